"""Folders that hold one experiment: of paceline, of `vllm bench sweep`, of aiperf.

A sweep repeats each point (run=0.json, run=1.json, …). Repeats with per-request data are one run, their requests one after another; repeats
of which only statistics were kept cannot be put together and stay apart.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from paceline.errors import BadInputError, NoEvidenceError, printable
from paceline.files.benchfile.aiperf import is_aiperf_aggregates, is_aiperf_records, read_aiperf_directory
from paceline.files.benchfile.documents import keys_of, whole_document
from paceline.files.benchfile.requests import latency_summaries
from paceline.files.benchfile.vllm_json import is_vllm_json, read_vllm_json
from paceline.files.dump import read_head
from paceline.files.found import Found, sha256_of
from paceline.files.runfile import read_run
from paceline.latency import RequestTiming
from paceline.run import RequestRecord, Run
from paceline.speculation.counts import AcceptanceCounts
from paceline.verdict import Caution

__all__ = ["read_folder"]

MOST_FILES = 10_000
DEEPEST = 5
RUN_SCHEMA = '"schema":"paceline.run/'


def read_folder(folder: Path) -> tuple[Found, ...]:
    """Every run in the folder, labelled by its file or by its point of the sweep.

    Raises:
        BadInputError: none of the three kinds, or a file of it cannot be read.

    """
    inner = folder / "runs" if (folder / "runs").is_dir() else folder
    heads = {path: read_head(path) for path in _files(inner)}
    ours = [path for path, head in heads.items() if RUN_SCHEMA in head.replace(" ", "")[:400]]
    if ours:
        return tuple(Found(label=path.stem, run=read_run(path), arm_stated=True) for path in ours)
    records = [path for path, head in heads.items() if is_aiperf_records(head)]
    aggregates = [path for path, head in heads.items() if is_aiperf_aggregates(head)]
    if records or aggregates:
        if len(records) > 1 or len(aggregates) > 1:
            raise BadInputError(f"{printable(str(folder))} holds several runs of aiperf; give the folder of one")
        return read_aiperf_directory(*(each[0] if each else None for each in (records, aggregates)))
    sweep = [path for path, head in heads.items() if path.suffix == ".json" and _is_bench(path, head)]
    if not sweep:
        raise BadInputError(
            f"{printable(str(folder))} holds no run: neither paceline's run files, nor results of vllm bench sweep, nor aiperf's exports"
        )
    return _points(folder, sweep)


def _files(folder: Path) -> list[Path]:
    """The files that may be results, nearest first; links are not followed out of the folder."""
    found: list[Path] = []
    level = [folder]
    for _ in range(DEEPEST):
        following: list[Path] = []
        for each in level:
            try:
                inside = sorted(each.iterdir())
            except OSError as error:
                raise BadInputError(f"cannot read {printable(str(each))}: {error.strerror}") from error
            following += [path for path in inside if path.is_dir() and not path.is_symlink()]
            found += [path for path in inside if path.suffix in (".json", ".jsonl") and path.is_file()]
            if len(found) > MOST_FILES or len(following) > MOST_FILES:
                raise BadInputError(f"{printable(str(folder))} holds more than {MOST_FILES:,} files; give the folder of one experiment")
        level = following
    return found


def _is_bench(path: Path, head: str) -> bool:
    """Whether it is one result, not a summary that lists all of them again."""
    if not head.lstrip().startswith("{"):
        return False
    return is_vllm_json(head) or is_vllm_json(keys_of(whole_document(path)))


def _points(folder: Path, paths: Sequence[Path]) -> tuple[Found, ...]:
    groups: dict[str, list[Found]] = {}
    known: set[str] = set()
    empty = repeated = 0
    for path in paths:
        sha = sha256_of(path)
        repeated += sha in known
        if sha in known:
            continue
        known.add(sha)
        try:
            (only,) = read_vllm_json(path)
        except NoEvidenceError:
            empty += 1
            continue
        except ValueError:
            raise BadInputError(f"{printable(path.name)} holds several runs; a sweep's file holds one") from None
        repeat = path.stem.startswith("run=")
        name = (path.parent if repeat else path.with_suffix("")).relative_to(folder).as_posix()
        groups.setdefault(name if name != "." else "", []).append(replace(only, label=path.stem))
    if not groups:
        raise NoEvidenceError(f"{printable(str(folder))}: no run of this sweep finished a request")
    found = [each for name, repeats in groups.items() for each in _together(name, repeats)]
    noted = []
    if empty:
        noted.append(Caution("empty_runs", f"{empty} of {len(paths)} runs in the folder finished nothing and were left out"))
    if repeated:
        noted.append(Caution("duplicate_runs", f"{repeated} of {len(paths)} files in the folder are copies of another and were left out"))
    return tuple(replace(each, run=replace(each.run, cautions=(*each.run.cautions, *noted))) for each in found)


def _together(name: str, repeats: Sequence[Found]) -> list[Found]:
    runs = [each.run for each in repeats]
    alike = all((each.arm, each.load, each.speculation) == (runs[0].arm, runs[0].load, runs[0].speculation) for each in runs)
    if len(repeats) > 1 and (not alike or any(each.requests is None for each in runs)):
        return [replace(each, label=f"{name}/{each.label}".lstrip("/")) for each in repeats]
    if len(repeats) == 1:
        return [replace(repeats[0], label=name)]
    return [Found(label=name, run=_pooled(repeats), arm_stated=repeats[0].arm_stated)]


def _pooled(repeats: Sequence[Found]) -> Run:
    """Repeats of one point as one run; each request's id says which repeat it is of."""
    runs = [each.run for each in repeats]
    requests: list[RequestRecord] = []
    start_s = 0.0
    for each in repeats:
        own = [replace(record, id=f"{each.label}/{record.id}", timing=_later(record.timing, start_s)) for record in each.run.requests or ()]
        requests += own
        start_s = max([start_s, *(float(record.timing.chunk_at_s[-1]) for record in own if record.timing.chunk_at_s.size)])
    windows = [each.window_s for each in runs]
    window_s = None if any(each is None for each in windows) else sum(each or 0.0 for each in windows)
    counted = [each.acceptance_by_segment for each in runs]
    acceptance = None if any(each is None for each in counted) else {"all": AcceptanceCounts.pooled(each.acceptance for each in runs)}
    summaries = latency_summaries(requests)
    gap = summaries.get("chunk_gap_s")
    together = Caution("repeats_pooled", f"{len(runs)} repeats of this point are taken as one run")
    inputs = {f"{each.label} {name}": sha for each in repeats for name, sha in each.run.provenance.inputs.items()}
    return replace(
        runs[0],
        requests=tuple(requests),
        acceptance_by_segment=acceptance,
        step_seconds=gap.value if gap else None,
        summaries=summaries,
        window_s=window_s,
        provenance=replace(runs[0].provenance, inputs=inputs),
        cautions=(*dict.fromkeys(caution for each in runs for caution in each.cautions), together),
    )


def _later(timing: RequestTiming, by_s: float) -> RequestTiming:
    return replace(timing, arrived_at_s=timing.arrived_at_s + by_s, sent_at_s=timing.sent_at_s + by_s, chunk_at_s=timing.chunk_at_s + by_s)
