"""inference-perf's reports: the life cycle of the requests of one stage, of all stages, or what Prometheus says of the server.

    time_per_output_token              (last − first) / (tokens − 1) per request: our TPOT
    inter_token_latency                one sample per token, nearly 0 for tokens of one message: neither of our gaps, not taken
    normalized_time_per_output_token   end to end / tokens: not taken
    request_latency                    from sending, however late that was (`schedule_delay`)
    summary_prometheus                 vLLM's own histograms; its time_per_output_token is per step: our chunk gap

All times are seconds. Source: the reports of kubernetes-sigs/inference-perf, its stages and its Prometheus client.
"""

from pathlib import Path

from paceline.errors import BadInputError, NoEvidenceError, printable
from paceline.files.benchfile.assemble import Told, found_of, stated_load, summary, tool_summaries
from paceline.files.benchfile.documents import whole_document
from paceline.files.benchfile.fields import Fields, as_object
from paceline.files.found import Found, sha256_of
from paceline.verdict import Caution

__all__ = ["is_inference_perf", "read_inference_perf"]

MADE_BY = "inference-perf"
CLIENT = {"time_to_first_token": "ttft_s", "time_per_output_token": "tpot_s", "request_latency": "e2e_s"}
SERVER = {"time_to_first_token": "ttft_s", "time_per_output_token": "chunk_gap_s", "request_latency": "e2e_s"}
STATISTICS = {"mean": "mean", "median": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
RATE_REACHED = 0.95
LATE_SHARE = 0.1
ITL_NOT_TAKEN = Caution(
    "itl_not_taken", "inference-perf's inter_token_latency has a gap of nearly 0 for each further token of a message: it is no gap of ours"
)


def is_inference_perf(head: str) -> bool:
    """Whether the file begins as one."""
    return '"load_summary":' in head


def read_inference_perf(path: Path) -> tuple[Found, ...]:
    """The report as one run.

    Raises:
        BadInputError: figures that are none.
        NoEvidenceError: no request succeeded.

    """
    document = Fields(as_object(whole_document(path), printable(path.name)), "")
    done = document.object("successes")
    count = done.count("count")
    if not count:
        raise NoEvidenceError(f"{printable(path.name)}: inference-perf counts no successful request, so nothing was measured")
    told = _of_server(done, count) if not done.has("latency") else _of_client(document, done, count)
    failed = document.object("failures").count("count")
    if failed:
        told.note("requests_failed", f"{failed} requests failed; latencies are of the others")
    return (found_of(told, made_by=MADE_BY, inputs={path.name: sha256_of(path)}),)


def _of_client(document: Fields, done: Fields, count: int) -> Told:
    told, latency, sent = Told(), done.object("latency"), document.object("load_summary")
    for theirs, ours in CLIENT.items():
        told.summaries |= tool_summaries(_statistics(latency.object(theirs)), ours, unit=1.0, n=count)
    if latency.has("inter_token_latency"):
        told.cautions.append(ITL_NOT_TAKEN)
    throughput = done.object("throughput")
    rate, requests_per_s = throughput.positive("output_tokens_per_sec"), throughput.positive("requests_per_sec")
    if rate is not None:
        told.summaries["output_tokens_per_s"] = summary(rate, "pooled", count)
    told.window_s = count / requests_per_s if requests_per_s else None
    _load(sent, told)
    return told


def _load(sent: Fields, told: Told) -> None:
    requested, achieved = sent.positive("requested_rate"), sent.positive("achieved_rate")
    stated_load(rate_per_s=requested or None, concurrency=sent.count("concurrency") or None, requests=None, told=told)
    if requested is None and sent.count("concurrency") is None:
        told.note("mixed_loads", "this summary pools all stages, so different rates: read the stages' own reports to compare arms")
    if requested and achieved is not None and achieved < RATE_REACHED * requested:
        told.note("rate_not_reached", f"{achieved:g} requests/s were sent of the {requested:g} asked for: the load was lower")
    delay, first = sent.object("schedule_delay").number("p99"), told.summaries.get("ttft_s")
    if delay is not None and first is not None and delay > LATE_SHARE * first.value:
        told.note(
            "load_generator_late",
            f"requests left up to {delay:.3g} s late (P99), and latencies count from when they did: users would have waited longer",
        )


def _of_server(done: Fields, count: int) -> Told:
    told = Told()
    for theirs, ours in SERVER.items():
        told.summaries |= tool_summaries(_statistics(done.object(theirs)), ours, unit=1.0, n=None if ours == "chunk_gap_s" else count)
    if not told.summaries:
        raise BadInputError("inference-perf's report holds no latency")
    stated_load(rate_per_s=None, concurrency=None, requests=None, told=told)
    gap = told.summaries.get("chunk_gap_s")
    told.step_seconds = gap.value if gap else None
    tokens = done.object("output_len").positive("rate")
    if tokens is not None:
        told.summaries["output_tokens_per_s"] = summary(tokens, "pooled", count)
    told.note(
        "prometheus_tpot_is_per_step",
        "time_per_output_token from vLLM's metrics is observed once per decode step: it is a chunk gap here, not a pace per token",
    )
    told.note("histogram_percentiles", "percentiles come from a histogram's buckets, whose lowest for steps is 10 ms: they are coarse")
    return told


def _statistics(values: Fields) -> dict[str, float | None]:
    return {ours: values.number(theirs) for theirs, ours in STATISTICS.items()}
