"""guidellm's JSON report, version 2: one benchmark per load, with its requests where they were kept.

    inter_token_latency_ms     (last − first token) / (tokens − 1) of a request: our TPOT; its statistics weigh each request by its tokens
    time_per_output_token_ms   end to end / tokens, so with the time to first token in it: not taken
    timings                    seconds since the epoch; of a request's messages the first and the last one and how many
    *_tokens_per_second        statistics over moments, not tokens per second of the run: throughput is tokens / duration

Source: guidellm 0.8.0 and 0.8.1; vllm-project/guidellm issue 1145.
"""

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from paceline.errors import BadInputError, NoEvidenceError, printable
from paceline.files.benchfile.acceptance import FROM_MESSAGES, INCONSISTENT, request_counts, request_doubts
from paceline.files.benchfile.assemble import (
    MILLISECONDS,
    Told,
    answers_cautions,
    found_of,
    parsed_runs,
    requests_of,
    stated_load,
    summary,
    tool_summaries,
)
from paceline.files.benchfile.documents import whole_document
from paceline.files.benchfile.fields import Fields, as_object
from paceline.files.benchfile.requests import Seen
from paceline.files.found import Found, sha256_of
from paceline.run import Arm, Outcome
from paceline.speculation.counts import AcceptanceCounts
from paceline.verdict import Caution

__all__ = ["is_guidellm", "read_guidellm"]

METRICS = {"time_to_first_token_ms": ("ttft_s", MILLISECONDS), "request_latency": ("e2e_s", 1.0)}
STATISTICS = ("p50", "p90", "p95", "p99")
OUTCOMES = {"successful": Outcome.FINISHED, "errored": Outcome.FAILED, "incomplete": Outcome.FAILED}
OPEN_LOOPS = ("constant", "poisson", "async")
VERSION = 2
ITL_IS_REQUEST_MEAN = Caution(
    "itl_is_request_mean", "guidellm's inter_token_latency is each request's mean: it is TPOT here, and no stall can be seen in it"
)


def is_guidellm(head: str) -> bool:
    """Whether the file begins as one."""
    return '"guidellm_version":' in head or ('"benchmarks":' in head and '"scheduler_state":' in head)


def read_guidellm(path: Path) -> tuple[Found, ...]:
    """Every benchmark in the report.

    Raises:
        BadInputError: no whole JSON, another version of the report, or figures that are none.
        NoEvidenceError: no benchmark finished a request.

    """
    document = Fields(as_object(whole_document(path), printable(path.name)), "")
    metadata = document.object("metadata")
    version = metadata.count("version")
    if version != VERSION:
        raise BadInputError(f"{printable(path.name)} is a guidellm report of version {printable(version)}; version {VERSION} is read")
    made_by, inputs = f"guidellm {metadata.text('guidellm_version') or '?'}", {path.name: sha256_of(path)}
    runs = [Fields(as_object(each, "benchmark"), f"benchmarks[{i}].") for i, each in enumerate(document.list("benchmarks") or [])]
    return parsed_runs(runs, lambda each: found_of(_run(each), made_by=made_by, inputs=inputs), name=path.name)


def _run(fields: Fields) -> Told:
    metrics = fields.object("metrics")
    totals = metrics.object("request_totals")
    finished, failed = totals.count("successful"), (totals.count("errored") or 0) + (totals.count("incomplete") or 0)
    if not finished:
        raise NoEvidenceError("guidellm's benchmark finished no request: nothing was measured")
    told = Told(window_s=fields.positive("duration"))
    _load(fields, told, sent=finished + failed)
    _summaries(metrics, told, finished)
    for each in fields.list("warnings") or []:
        note = Fields(as_object(each, "warning"), "warning.")
        told.note("tool_warning", f"guidellm warns ({note.text('code')}): {note.text('message')}"[:400])
    if fields.object("requests").list("successful"):
        _requests(fields, told)
    elif failed:
        told.note("requests_failed", f"{failed} of {finished + failed} requests did not finish; latencies are of the others")
    return told


def _load(fields: Fields, told: Told, *, sent: int) -> None:
    strategy = fields.object("config").object("strategy")
    kind = strategy.text("type_") or ""
    rate = strategy.positive("rate") if kind in OPEN_LOOPS else None
    streams = 1 if kind == "synchronous" else strategy.count("streams") if kind == "concurrent" else sent if kind == "throughput" else None
    stated_load(rate_per_s=rate or None, concurrency=streams or None, requests=None, told=told)
    if kind == "throughput":
        told.note("all_at_once", f"all {sent} requests were sent as fast as they would go: time to first token is mostly waiting")
    told.label = f"{kind}-{rate:g}" if rate else f"{kind}-{streams}" if streams else kind
    backend = fields.object("config").object("backend")
    told.arguments = {name: text for name in ("model", "request_format") if (text := backend.text(name)) is not None}


def _summaries(metrics: Fields, told: Told, finished: int) -> None:
    for theirs, (ours, unit) in METRICS.items():
        told.summaries |= tool_summaries(_statistics(metrics.object(theirs).object("successful")), ours, unit=unit, n=finished)
    pace = metrics.object("inter_token_latency_ms").object("successful")
    if pace.has("mean"):
        told.cautions.append(ITL_IS_REQUEST_MEAN)
        same_lengths = metrics.object("output_token_count").object("successful").positive("std_dev") == 0
        name = "tpot_s" if same_lengths else "token_weighted_tpot_s"
        told.summaries |= tool_summaries(_statistics(pace), name, unit=MILLISECONDS, n=finished)
    tokens, window_s = metrics.object("output_token_count").object("successful").positive("total_sum"), told.window_s
    if tokens is not None:
        told.summaries["generation_tokens"] = summary(tokens, "total", None)
        if window_s:
            told.summaries["output_tokens_per_s"] = summary(tokens / window_s, "pooled", finished)


def _statistics(values: Fields) -> dict[str, float | None]:
    percentiles = values.object("percentiles")
    return {"mean": values.number("mean"), **{each: percentiles.number(each) for each in STATISTICS}}


def _requests(fields: Fields, told: Told) -> None:
    origin_s = fields.positive("start_time") or 0.0
    seen: list[Seen] = []
    answers: list[str | None] = []
    drafting = contradicting = 0
    doubts: tuple[Caution, ...] = ()
    prompts: Counter[str] = Counter()
    for kind, outcome in OUTCOMES.items():
        for i, value in enumerate(fields.object("requests").list(kind) or []):
            request = Fields(as_object(value, f"requests.{kind}[{i}]"), f"requests.{kind}[{i}].")
            name = _prompt_name(request)
            prompts[name] += 1
            spec = request.object("response_metrics").object("speculative_decoding")
            drafting += spec.has("num_spec_steps")
            each = _seen(request, spec, f"{name}/{prompts[name]}", outcome, told, origin_s=origin_s)
            contradicting += spec.has("num_spec_steps") and each.is_finished and each.acceptance is None
            doubts = doubts or request_doubts(spec, each.acceptance)
            seen.append(each)
            answers.append(request.text("output"))
    if len(seen) > 1 and len(prompts) == 1:
        told.note("one_prompt_repeated", f"all {len(seen)} requests have the same prompt: repeats say nothing about other prompts")
    totals = fields.object("metrics").object("request_totals").count("total")
    if totals is not None and totals > len(seen):
        told.note("requests_sampled", f"the report keeps {len(seen)} of {totals} requests; the figures are of these")
    told.summaries = {name: each for name, each in told.summaries.items() if not name.startswith("token_weighted")}
    requests_of(seen, told)
    answers_cautions(answers, told)
    told.cautions += doubts
    if drafting:
        _speculation(seen, told, contradicting=contradicting)


def _speculation(seen: list[Seen], told: Told, *, contradicting: int) -> None:
    told.arm = Arm.SPECULATIVE
    counts = [each.acceptance for each in seen if each.acceptance is not None]
    if contradicting:
        told.cautions.append(INCONSISTENT)
    if counts:
        told.acceptance = {"all": AcceptanceCounts.pooled(counts)}
        told.cautions.append(FROM_MESSAGES)


def _prompt_name(request: Fields) -> str:
    """A name that both arms give to the same prompt: a hash of what was asked."""
    text = request.text("request_args") or ""
    try:
        body: Any = json.loads(text).get("body") or {}
        asked = body.get("messages", body.get("prompt", text))
    except (ValueError, RecursionError, AttributeError):
        asked = text
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:12]


def _seen(request: Fields, spec: Fields, name: str, outcome: Outcome, told: Told, *, origin_s: float) -> Seen:
    timings = request.object("info").object("timings")
    sent, first, last = (timings.positive(key) for key in ("request_start", "first_token_iteration", "last_token_iteration"))
    prompt, output = request.count("prompt_tokens"), request.count("output_tokens")
    done = outcome is Outcome.FINISHED
    if done and (sent is None or first is None or output is None):
        raise BadInputError(f"{request.where} lacks its start, its first token or its token count")
    sent_s = (sent if sent is not None else origin_s) - origin_s
    target = timings.positive("targeted_start") if told.load.rate_per_s is not None else None
    arrived_s = sent_s if target is None else min(target - origin_s, sent_s)
    ends = [each - origin_s for each in (first, last) if each is not None] if done else []
    chunks = timings.count("token_iterations")
    return Seen(
        id=name,
        segment="all",
        prompt_tokens=prompt or 0,
        output_tokens=output or 0,
        arrived_at_s=arrived_s,
        sent_at_s=sent_s,
        chunk_at_s=np.array(ends, dtype=np.float64),
        chunk_tokens=None,
        sees_all_chunks=(output or 0) < 2,
        acceptance=request_counts(spec, output_tokens=output, chunks=chunks) if done else None,
        outcome=outcome,
    )
