"""aiperf's directory: `profile_export.jsonl` with one record per request, and `profile_export_aiperf.json` with the aggregates.

    inter_token_latency     (last − first message) / (tokens − 1), the mean of one request: our TPOT. Its percentiles hide stalls
    inter_chunk_latency     gap between two messages: our chunk gap
    request_latency         from sending to the last message: our E2E, from when the request left

Instants are nanoseconds, metrics name their unit. Requests of the warm-up phase are no measurement. Source: aiperf 0.10.0 and 0.13.0.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from paceline.errors import BadInputError, NoEvidenceError, printable
from paceline.files.benchfile.acceptance import FROM_MESSAGES, INCONSISTENT, counted, request_counts
from paceline.files.benchfile.assemble import Told, found_of, requests_of, stated_load, summary, tool_summaries
from paceline.files.benchfile.documents import json_lines, whole_document
from paceline.files.benchfile.fields import Fields, as_object, numbers
from paceline.files.benchfile.requests import FloatArray, Seen, instants_after
from paceline.files.found import Found, sha256_of
from paceline.run import Arm, Outcome
from paceline.speculation.counts import AcceptanceCounts
from paceline.verdict import Caution

__all__ = ["is_aiperf_aggregates", "is_aiperf_records", "read_aiperf_aggregates", "read_aiperf_directory", "read_aiperf_records"]

UNITS_S = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0, "us": 1e-6, "ns": 1e-9}
METRICS = {
    "time_to_first_token": "ttft_s",
    "inter_token_latency": "tpot_s",
    "inter_chunk_latency": "chunk_gap_s",
    "request_latency": "e2e_s",
}
STATISTICS = {"avg": "mean", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
MEASURED_PHASE = "profiling"
MOST_REQUESTS = 2_000_000
ENDS_DIFFER = 0.02
ITL_IS_REQUEST_MEAN = Caution(
    "itl_is_request_mean", "aiperf's inter_token_latency is each request's mean: it is TPOT here; stalls show in the chunk gap only"
)


def is_aiperf_records(head: str) -> bool:
    """Whether the file begins as records."""
    return '"metadata":' in head and '"request_start_ns":' in head


def is_aiperf_aggregates(head: str) -> bool:
    """Whether the file begins as aggregates."""
    return (
        '"inter_token_latency":' in head
        and '"request_start_ns":' not in head
        and ('"aiperf_version":' in head or '"input_config":' in head)
    )


def read_aiperf_directory(records: Path | None, aggregates: Path | None) -> tuple[Found, ...]:
    """A directory's two files as one run; either may be missing.

    Raises:
        BadInputError: figures that are none.
        NoEvidenceError: no request finished.

    """
    if records is None:
        assert aggregates is not None
        return read_aiperf_aggregates(aggregates)
    if aggregates is None:
        return read_aiperf_records(records)
    told = _aggregates(_document(aggregates))
    _records(records, told)
    return (found_of(told, made_by=_made_by(told), inputs={each.name: sha256_of(each) for each in (records, aggregates)}),)


def read_aiperf_aggregates(path: Path) -> tuple[Found, ...]:
    """The aggregates alone, as a run without requests.

    Raises:
        BadInputError: figures that are none.
        NoEvidenceError: no request finished.

    """
    told = _aggregates(_document(path))
    if "ttft_s" not in told.summaries and "tpot_s" not in told.summaries and "e2e_s" not in told.summaries:
        raise NoEvidenceError(f"{printable(path.name)} holds aiperf's aggregates without a latency: no request finished")
    gap = told.summaries.get("chunk_gap_s")
    told.step_seconds = gap.value if gap else None
    _pooled_acceptance(_document(path), told)
    return (found_of(told, made_by=_made_by(told), inputs={path.name: sha256_of(path)}),)


def read_aiperf_records(path: Path) -> tuple[Found, ...]:
    """The records alone; how they were sent is then not known.

    Raises:
        BadInputError: a line that is no record, or figures that are none.
        NoEvidenceError: no request finished.

    """
    told = Told()
    stated_load(rate_per_s=None, concurrency=None, requests=None, told=told)
    _records(path, told)
    return (found_of(told, made_by=_made_by(told), inputs={path.name: sha256_of(path)}),)


def _document(path: Path) -> Fields:
    return Fields(as_object(whole_document(path), printable(path.name)), "")


def _made_by(told: Told) -> str:
    version = told.arguments.get("aiperf_version")
    return f"aiperf {version}" if version else "aiperf"


def _aggregates(fields: Fields) -> Told:
    duration = fields.object("benchmark_duration")
    told = Told(window_s=_seconds(duration, "avg", default="sec"))
    version = fields.text("aiperf_version")
    told.arguments = {} if version is None else {"aiperf_version": version}
    for theirs, ours in METRICS.items():
        metric = fields.object(theirs)
        values = {stat: metric.positive(key) for key, stat in STATISTICS.items()}
        told.summaries |= tool_summaries(values, ours, unit=_unit(metric, "ms"), n=metric.count("count"))
    if "tpot_s" in told.summaries:
        told.cautions.append(ITL_IS_REQUEST_MEAN)
    rate = fields.object("output_token_throughput").positive("avg")
    if rate is not None:
        told.summaries["output_tokens_per_s"] = summary(rate, "pooled", None)
    for theirs, ours in (("total_osl", "generation_tokens"), ("total_isl", "prompt_tokens")):
        tokens = fields.object(theirs).positive("avg")
        if tokens is not None:
            told.summaries[ours] = summary(tokens, "total", None)
    _config(fields, told)
    failed = fields.object("error_request_count").positive("avg")
    if failed:
        told.note("requests_failed", f"{failed:g} requests failed; latencies are of the others")
    if fields.values.get("was_cancelled") is True:
        told.note("run_cancelled", "the run was cancelled before its end")
    return told


def _pooled_acceptance(fields: Fields, told: Told) -> None:
    """The sums over requests, never the means of requests' rates."""
    keys = ("spec_decode_steps", "spec_decode_draft_tokens", "spec_decode_accepted_draft_tokens")
    drafts, drafted, accepted = (fields.object(each).count("sum") for each in keys)
    if drafts is None or drafted is None or accepted is None:
        return
    told.arm = Arm.SPECULATIVE
    histogram = Fields({"acceptance_histogram": fields.values.get("pooled_spec_decode_acceptance_histogram")}, "")
    spec = {"num_spec_steps": drafts, "num_draft_tokens": drafted, "num_accepted_draft_tokens": accepted, **histogram.values}
    known = request_counts(Fields(spec, ""), output_tokens=None, chunks=None)
    total = told.summaries.get("generation_tokens")
    requests = fields.object("request_count").count("avg") or 0
    counts, noted = counted(
        drafts=drafts,
        drafted_tokens=drafted,
        accepted_tokens=accepted,
        positions=None if known is None else known.accepted_per_position,
        later_tokens=None if total is None else max(int(total.value) - requests, 0),
        requests=requests,
        steps=None,
    )
    told.acceptance = {"all": counts}
    told.cautions += noted
    if known is None:
        told.cautions.append(INCONSISTENT)


def _unit(metric: Fields, default: str) -> float:
    name = metric.text("unit") or default
    if name not in UNITS_S:
        raise BadInputError(f"{metric.where}unit = {printable(name)} is no unit of time that is known here")
    return UNITS_S[name]


def _seconds(metric: Fields, key: str, *, default: str) -> float | None:
    value = metric.positive(key)
    return None if value is None else value * _unit(metric, default)


def _config(fields: Fields, told: Told) -> None:
    config = fields.object("input_config")
    phase = _phase(config)
    requests = phase.count("requests")
    rate = phase.positive("request_rate") or phase.positive("rate")
    stated_load(rate_per_s=rate or None, concurrency=phase.count("concurrency"), requests=requests, told=told)
    models = config.object("models").list("items") or []
    names = [str(each["name"]) for each in models if isinstance(each, dict) and "name" in each]
    if len(names) == 1:
        told.arguments["model"] = names[0]
    if config.object("endpoint").object("extra").values.get("ignore_eos") is True:
        told.note("ignore_eos", "answers were made to run past their end: acceptance of what follows is not that of real answers")
    if any(isinstance(each, dict) and each.get("type") == "synthetic" for each in config.list("datasets") or []):
        told.note(
            "synthetic_dataset", "prompts were synthetic text: acceptance on them is not that of real traffic; measure on your own prompts"
        )


def _phase(config: Fields) -> Fields:
    """How the measured phase was loaded, in the newer form (`phases`) or the older one (`loadgen`)."""
    phases = [each for each in config.list("phases") or [] if isinstance(each, dict)]
    measured = [each for each in phases if not each.get("exclude_from_results") and each.get("name") != "warmup"]
    if measured:
        return Fields(measured[-1], "input_config.phases.")
    return config.object("loadgen")


@dataclass(slots=True)
class _Lines:
    """What was found in the records."""

    seen: list[Seen] = field(default_factory=list)
    drafting: int = 0
    contradicting: int = 0
    warm_up: int = 0
    without_length: int = 0
    other_end: int = 0
    cut: bool = False


def _records(path: Path, told: Told) -> None:
    lines = _Lines()
    open_loop = told.load.rate_per_s is not None
    for record in _objects(path, lines):
        _take(record, lines, open_loop=open_loop)
        if len(lines.seen) > MOST_REQUESTS:
            raise BadInputError(f"{printable(path.name)} holds more than {MOST_REQUESTS:,} requests")
    seen = _on_one_clock(_named(lines.seen))
    if not any(each.is_finished for each in seen):
        raise NoEvidenceError(
            f"{printable(path.name)} holds {len(seen)} of aiperf's records, none of a finished request: nothing was measured"
        )
    _notes(lines, told)
    requests_of(seen, told)
    gap = told.summaries.get("chunk_gap_s")
    told.step_seconds = gap.value if gap else None
    _acceptance(lines, seen, told)


def _objects(path: Path, lines: _Lines) -> Iterator[Fields]:
    """The records; a last line that is cut off is noted, any other that is no JSON is an error."""
    broken: BadInputError | None = None
    for number, value in json_lines(path):
        if broken is not None:
            raise broken
        if isinstance(value, BadInputError):
            broken = value
        else:
            yield Fields(as_object(value, f"line {number}"), f"line {number}: ")
    if broken is not None and not lines.seen:
        raise broken
    lines.cut = broken is not None


def _take(record: Fields, lines: _Lines, *, open_loop: bool) -> None:
    metadata, metrics = record.object("metadata"), record.object("metrics")
    if (metadata.text("benchmark_phase") or MEASURED_PHASE) != MEASURED_PHASE:
        lines.warm_up += 1
        return
    sent_ns = metadata.count_ns("request_start_ns")
    if sent_ns is None:
        raise BadInputError(f"{metadata.where}request_start_ns is missing, so this is no record of a request")
    issued_ns = metadata.count_ns("credit_issued_ns") if open_loop else None
    finished = record.values.get("error") is None and metadata.values.get("was_cancelled") is not True
    prompt = _tokens(metrics, "input_sequence_length")
    output = _tokens(metrics, "output_sequence_length")
    first_s = _seconds(metrics.object("time_to_first_token"), "value", default="ms")
    if finished and (prompt is None or output is None or first_s is None):
        lines.without_length += 1
        return
    instants = _instants(metrics, first_s) if finished and first_s is not None else np.empty(0)
    last_s = _seconds(metrics.object("request_latency"), "value", default="ms")
    lines.other_end += bool(instants.size and last_s is not None and abs(instants[-1] - last_s) > ENDS_DIFFER * max(last_s, instants[-1]))
    sees_all = isinstance(metrics.object("inter_chunk_latency").values.get("value"), list)
    acceptance = _spec(record, metrics, lines, output=output, chunks=len(instants) if sees_all else 0) if finished else None
    lines.seen.append(
        Seen(
            id="\0".join([metadata.text("conversation_id") or "", metadata.text("turn_index") or "", metadata.text("session_num") or ""]),
            segment="all",
            prompt_tokens=prompt or 0,
            output_tokens=output or 0,
            arrived_at_s=min(issued_ns or sent_ns, sent_ns),
            sent_at_s=sent_ns,
            chunk_at_s=instants,
            chunk_tokens=None,
            sees_all_chunks=sees_all or (output or 0) < 2,
            acceptance=acceptance,
            outcome=Outcome.FINISHED if finished else Outcome.FAILED,
        )
    )


def _tokens(metrics: Fields, key: str) -> int | None:
    return metrics.object(key).count("value")


def _instants(metrics: Fields, first_s: float) -> FloatArray:
    """Each message's instant, in seconds after sending; without gaps, the first and the last one."""
    gaps = metrics.object("inter_chunk_latency")
    value = gaps.values.get("value")
    if isinstance(value, list):
        unit = _unit(gaps, "ms")
        return instants_after(first_s, [each * unit for each in numbers(value, f"{gaps.where}value")])
    last_s = _seconds(metrics.object("request_latency"), "value", default="ms")
    return np.array([first_s] if last_s is None or last_s <= first_s else [first_s, last_s])


def _spec(record: Fields, metrics: Fields, lines: _Lines, *, output: int | None, chunks: int) -> AcceptanceCounts | None:
    told = record.object("spec_decode_acceptance")
    if not told.values:
        keys = {"num_spec_steps": "spec_decode_steps", "num_accepted_draft_tokens": "spec_decode_accepted_draft_tokens"}
        keys["num_draft_tokens"] = "spec_decode_draft_tokens"
        told = Fields({ours: metrics.object(theirs).values.get("value") for ours, theirs in keys.items()}, f"{record.where}spec_decode.")
    if not told.has("num_spec_steps", "num_draft_tokens"):
        return None
    lines.drafting += 1
    counts = request_counts(told, output_tokens=output, chunks=chunks)
    lines.contradicting += counts is None
    return counts


def _named(seen: list[Seen]) -> list[Seen]:
    """Ids that both arms share: the conversation and its turn, with the place in the run only where that is not unique."""
    short = [each.id.split("\0") for each in seen]
    times = Counter((conversation, turn) for conversation, turn, _ in short)
    return [
        replace(each, id=f"{conversation}/{turn}" if times[conversation, turn] == 1 else f"{conversation}/{turn}#{session}")
        for each, (conversation, turn, session) in zip(seen, short, strict=True)
    ]


def _on_one_clock(seen: list[Seen]) -> list[Seen]:
    """Nanoseconds since the epoch made seconds since the first arrival, subtracted as whole numbers."""
    origin = min((int(each.arrived_at_s) for each in seen), default=0)
    found = []
    for each in seen:
        sent_s, arrived_s = ((int(at) - origin) * 1e-9 for at in (each.sent_at_s, each.arrived_at_s))
        found.append(replace(each, sent_at_s=sent_s, arrived_at_s=arrived_s, chunk_at_s=sent_s + each.chunk_at_s))
    return found


def _notes(lines: _Lines, told: Told) -> None:
    if lines.cut:
        told.note("last_line_cut", "the last record is cut off and was left out: the run was interrupted, or is still going on")
    if lines.warm_up:
        told.note("warm_up_excluded", f"{lines.warm_up} requests of the warm-up phase were left out")
    if lines.other_end:
        told.note(
            "latency_disagrees", f"in {lines.other_end} requests the end-to-end time stated is not that of the last message; that is used"
        )
    if lines.without_length:
        told.note("requests_without_tokens", f"{lines.without_length} requests have no token counts or no first token and were left out")


def _acceptance(lines: _Lines, seen: list[Seen], told: Told) -> None:
    if not lines.drafting:
        return
    told.arm = Arm.SPECULATIVE
    counts = [each.acceptance for each in seen if each.acceptance is not None]
    if lines.contradicting:
        told.cautions.append(INCONSISTENT)
    if counts:
        told.acceptance = {"all": AcceptanceCounts.pooled(counts)}
        told.cautions.append(FROM_MESSAGES)
