"""Records of llama.cpp's `timings` per prompt, as benchmark scripts save them, by backend and method.

    predicted_n, predicted_ms   tokens generated and the time they took: our TPOT is predicted_ms / predicted_n (older builds count the
                                first token's time in, newer ones leave it out: one token in predicted_n)
    draft_n, draft_n_accepted   tokens drafted and accepted; left out where nothing was drafted
    steps                       predicted_n − 1 − draft_n_accepted, exact but for a stop in mid-draft; where a model drafts, it
                                drafts in every one of them

Prompts' lengths and times to first token are not in these files, so they give summaries and acceptance by category, and no requests.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from paceline.errors import BadInputError, NoEvidenceError, printable
from paceline.files.benchfile.assemble import Told, found_of, method_named, parsed_runs, plain_name, stated_load, summary
from paceline.files.benchfile.documents import whole_document
from paceline.files.benchfile.fields import Fields, as_list, as_object
from paceline.files.benchfile.requests import summary_name
from paceline.files.found import Found, sha256_of
from paceline.latency import distribution
from paceline.run import Arm
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method, Speculation

__all__ = ["is_llama_timings", "read_llama_timings"]

MADE_BY = "llama.cpp timings"
STATISTICS = ("mean", "p50", "p90", "p95", "p99")
FEW_PROMPTS = 30


def is_llama_timings(head: str) -> bool:
    """Whether the file begins as one."""
    return '"predicted_n":' in head and ('"records":' in head or '"baseline_records":' in head)


def read_llama_timings(path: Path) -> tuple[Found, ...]:
    """Every method and backend in the file, labelled group/backend/method.

    Raises:
        BadInputError: no whole JSON, or figures that are none.
        NoEvidenceError: no record of a finished prompt.

    """
    document = Fields(as_object(whole_document(path), printable(path.name)), "")
    inputs = {path.name: sha256_of(path)}
    return parsed_runs(list(_runs(document)), lambda each: found_of(_run(each), made_by=MADE_BY, inputs=inputs), name=path.name)


def _runs(document: Fields) -> Iterator[Fields]:
    """The file's runs, each with its label and its group's `meta`: a list, groups of lists, or a sweep over drafts with a baseline."""
    runs, meta = document.values.get("runs"), document.object("meta").values
    if isinstance(runs, dict):
        for group, value in runs.items():
            inner = Fields(as_object(value, f"runs.{group}"), f"runs.{group}.")
            yield from _listed(inner.list("runs") or [], inner.object("meta").values, group=f"{group}/")
    elif runs is not None:
        yield from _listed(as_list(runs, "runs"), meta, group="")
    if document.has("baseline_records"):
        baseline = {"method": "baseline", "backend": meta.get("backend"), "records": document.values["baseline_records"]}
        yield from _listed([baseline], meta, group="")
        drafts = [as_object(each, "drafts") for each in document.list("drafts") or []]
        yield from _listed([{"method": "draft", "backend": meta.get("backend"), **each} for each in drafts], meta, group="")


def _listed(runs: Sequence[Any], meta: dict[str, Any], *, group: str) -> Iterator[Fields]:
    for i, value in enumerate(runs):
        run = as_object(value, f"{group}runs[{i}]")
        method, backend = run.get("method") or run.get("label") or str(i), run.get("backend")
        name = "/".join(str(each) for each in (backend, method, run.get("label") if method == "draft" else None) if each)
        yield Fields({**run, "meta": meta, "name": f"{group}{name}"}, f"{group}{name}: ")


def _run(fields: Fields) -> Told:
    told, method = Told(label=str(fields.values["name"])), fields.text("method") or ""
    plain = method.casefold() in ("baseline", "none", "no speculation")
    told.arm = Arm.BASELINE if plain else Arm.SPECULATIVE
    meta = fields.object("meta")
    told.arguments = {
        ours: plain_name(text)
        for theirs, ours in (("target", "target"), ("draft", "draft"), ("gpu", "hardware"))
        if (text := meta.text(theirs))
    }
    stated_load(rate_per_s=None, concurrency=1, requests=None, told=told)
    drafting = None if plain else _method(method)
    longest = meta.count("spec_draft_n_max")
    if drafting is not None and longest:
        told.speculation = Speculation(method=drafting, draft_tokens=longest, tree=None)
    values = [
        Fields(as_object(each, f"records[{i}]"), f"{fields.where}records[{i}].") for i, each in enumerate(fields.list("records") or [])
    ]
    done = [each for each in values if each.values.get("error") is None and each.count("predicted_n")]
    if values and not done:
        raise NoEvidenceError("no prompt was answered")
    if not values:
        return _aggregate(fields, told)
    if len(done) < len(values):
        told.note("requests_failed", f"{len(values) - len(done)} of {len(values)} prompts failed; figures are of the others")
    _pace(done, told)
    if not plain:
        _acceptance(done, drafting, told)
    return told


def _method(name: str) -> Method | None:
    folded = name.casefold()
    known = method_named(name)
    return known or (Method.NGRAM if folded.startswith("ngram") else Method.DRAFT_MODEL if folded.startswith("draft") else None)


def _aggregate(fields: Fields, told: Told) -> Told:
    """A run of which only the mean speed and acceptance are stated."""
    speed, alpha = fields.positive("tps"), fields.positive("acceptance")
    if not speed:
        raise NoEvidenceError("neither records nor a speed")
    told.summaries["decode_tokens_per_s"] = summary(speed, "mean", None)
    if alpha is not None:
        told.summaries["alpha"] = summary(alpha, "pooled", None)
    return told


def _pace(done: Sequence[Fields], told: Told) -> None:
    paces = [_pace_s(each) for each in done]
    known = distribution([each for each in paces if each is not None])
    for statistic in STATISTICS:
        told.summaries[summary_name("tpot_s", statistic)] = summary(getattr(known, statistic), statistic, known.n)
    told.summaries["generation_tokens"] = summary(sum(each.count("predicted_n") or 0 for each in done), "total", None)
    told.note(
        "pace_with_first_token", "pace is generated tokens per second of generation: builds differ in whether the first token's time counts"
    )
    if len(done) < FEW_PROMPTS:
        told.note("few_prompts", f"{len(done)} prompts, each once: prompts differ by half in acceptance, so means of them are rough")


def _pace_s(record: Fields) -> float | None:
    tokens, taken_ms, speed = record.count("predicted_n"), record.positive("predicted_ms"), record.positive("tps")
    if tokens and taken_ms:
        return taken_ms / 1e3 / tokens
    if not speed:
        raise BadInputError(f"{record.where} has neither predicted_ms nor a speed")
    return 1 / speed


def _acceptance(done: Sequence[Fields], method: Method | None, told: Told) -> None:
    segments: dict[str, list[AcceptanceCounts]] = {}
    drafted, accepted, stated = 0, 0, 0
    for each in done:
        own_drafted, own_accepted = each.count("draft_n"), each.count("draft_n_accepted")
        stated += own_drafted is not None
        drafted, accepted = drafted + (own_drafted or 0), accepted + (own_accepted or 0)
        if method is not None and method.drafts_every_step and own_drafted:
            counts = _counts(each, drafted=own_drafted, accepted=own_accepted or 0)
            segments.setdefault(each.text("category") or "all", []).append(counts)
    if not drafted:
        told.note(
            "nothing_drafted",
            "no record counts a draft: llama.cpp leaves them out where nothing was drafted (n-gram defaults never match in short "
            "answers), or the script did not keep them; this arm may be a plain server",
        )
        return
    if stated < len(done):
        told.note("drafts_in_some", f"{len(done) - stated} of {len(done)} answers had no draft")
    told.summaries["alpha"] = summary(accepted / drafted, "pooled", drafted)
    if segments and stated == len(done):
        told.acceptance = {name: AcceptanceCounts.pooled(each) for name, each in sorted(segments.items())}
        told.note(
            "drafts_derived", "drafted steps are not in llama.cpp's timings: every step is taken to have a draft, as with a draft model"
        )


def _counts(record: Fields, *, drafted: int, accepted: int) -> AcceptanceCounts:
    steps = max((record.count("predicted_n") or 0) - 1 - accepted, 0)
    drafts = min(steps, drafted)
    try:
        return AcceptanceCounts(steps=steps, drafts=drafts, drafted_tokens=drafted, accepted_tokens=accepted, accepted_per_position=None)
    except BadInputError as error:
        raise BadInputError(f"{record.where[:-1]}: {error}") from error
