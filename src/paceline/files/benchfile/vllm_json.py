"""The JSON of `vllm bench serve` (and of benchmark_serving.py before it): one object per run, whole or appended line by line.

    ITL                       gap between two messages, however many tokens each carries: our chunk gap
    TPOT                      (latency − TTFT) / (output tokens − 1) per request: ours
    max_output_tokens_per_s   messages, not tokens, in the busiest second: not taken
    spec_decode_*             difference of the server's counters around the run (0.14.0 on); rate in percent, positions as fractions

Traps: the openai-chat backend up to 0.32 takes the role-only first message for a token; before 0.5.5 a gap list could begin with the time
to first token; `request_rate` "inf" is no rate. Source: vLLM 0.32.0, benchmarks/serve.py and benchmarks/lib/endpoint_request_func.py.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from paceline.errors import BadInputError, NoEvidenceError, printable
from paceline.files.benchfile.acceptance import counted, positions_of
from paceline.files.benchfile.assemble import (
    MILLISECONDS,
    Told,
    answers_cautions,
    found_of,
    method_named,
    parsed_runs,
    plain_name,
    requests_of,
    stated_load,
    summary,
    tool_summaries,
)
from paceline.files.benchfile.documents import documents
from paceline.files.benchfile.fields import Fields, as_object, finite, numbers
from paceline.files.benchfile.requests import Seen, instants_after
from paceline.files.found import Found, sha256_of
from paceline.run import Arm, Outcome
from paceline.servers.stated_rates import differing
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Speculation
from paceline.verdict import Caution

__all__ = ["is_vllm_json", "itl_doubts", "percentile_values", "read_vllm_json", "take_counters", "vllm_run"]

MADE_BY = "vllm bench serve"
METRICS = {"ttft": "ttft_s", "tpot": "tpot_s", "itl": "chunk_gap_s", "e2el": "e2e_s"}
STATISTICS = {"mean": "mean", "median": "p50", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
ITL_FIXED = "20240823"  # vLLM 0.5.5: before it a gap list could begin with the time to first token
ROLE_SHARE = 0.05
SAME = 1e-9
LATENCY_TOLERANCE_S = 1e-3
GAP_FAR_BELOW_PACE = 0.85
KEPT_ARGUMENTS = {"model_id": "model", "backend": "backend", "endpoint_type": "backend", "label": "label"}

SERVER_COUNTERS = Caution(
    "server_counters", "acceptance is the difference of the whole server's counters around the run: other traffic would be in it"
)


def is_vllm_json(head: str) -> bool:
    """Whether the file begins as one."""
    return all(f'"{key}":' in head for key in ("num_prompts", "request_rate")) and any(
        f'"{key}":' in head for key in ("model_id", "tokenizer_id", "request_throughput")
    )


def read_vllm_json(path: Path) -> tuple[Found, ...]:
    """Every run in the file.

    Raises:
        BadInputError: no whole JSON, or figures that are none.
        NoEvidenceError: no run finished a request.

    """
    inputs = {path.name: sha256_of(path)}
    values: list[Any] = []
    for each in documents(path):
        values += each if isinstance(each, list) else [each]
    objects = [Fields(as_object(each, f"run {i}"), "") for i, each in enumerate(values, 1)]
    return parsed_runs(objects, lambda each: found_of(vllm_run(each), made_by=MADE_BY, inputs=inputs), name=path.name)


def vllm_run(fields: Fields) -> Told:
    """One run.

    Raises:
        BadInputError: a figure that is none.
        NoEvidenceError: it finished no request.

    """
    completed = fields.count("completed")
    if not completed:
        raise NoEvidenceError(
            f"vllm bench finished {completed if completed is not None else 'an unknown number of'} requests: nothing was measured"
        )
    told = Told(window_s=fields.positive("duration"))
    told.arguments = {ours: plain_name(text) for theirs, ours in KEPT_ARGUMENTS.items() if (text := fields.text(theirs)) is not None}
    _load(fields, told, completed)
    _summaries(fields, told, completed)
    closed = told.load.rate_per_s is None
    told.cautions += itl_doubts(fields.text("date"), told, is_chat=_is_chat(fields), has_lists=fields.has("itls"))
    _failed(fields, told)
    if fields.has("ttfts", "itls", "output_lens", "input_lens"):
        seen = _seen(fields, told, closed=closed)
        requests_of(seen, told)
        answers_cautions(fields.list("generated_texts") or [], told)
        step = told.summaries.get("chunk_gap_s")
    else:
        seen, step = None, told.summaries.get("chunk_gap_s")
    told.step_seconds = step.value if step else None
    _speculation(fields, told, completed=completed, seen=seen)
    return told


def _is_chat(fields: Fields) -> bool:
    return "openai-chat" in (fields.text("backend"), fields.text("endpoint_type"))


def _load(fields: Fields, told: Told, completed: int) -> None:
    rate = fields.values.get("request_rate")
    rate_per_s = None if rate is None else float("inf") if rate in ("inf", float("inf")) else finite(rate, "request_rate")
    sent = fields.count("num_prompts") or completed
    stated_load(rate_per_s=rate_per_s, concurrency=fields.count("max_concurrency"), requests=sent, told=told)
    burstiness = fields.positive("burstiness")
    if told.load.rate_per_s is not None and burstiness not in (None, 1.0):
        told.note(
            "burstiness", f"requests came in gamma-distributed gaps (burstiness {burstiness:g}), not at random: compare equal ones only"
        )
        told.arguments["burstiness"] = f"{burstiness:g}"


def percentile_values(fields: Fields, metric: str) -> dict[str, float | None]:
    """A metric's statistics by our names, in the file's unit."""
    return {ours: fields.positive(f"{theirs}_{metric}_ms") for theirs, ours in STATISTICS.items() if fields.has(f"{theirs}_{metric}_ms")}


def _summaries(fields: Fields, told: Told, completed: int) -> None:
    for theirs, ours in METRICS.items():
        n = None if theirs == "itl" else completed
        told.summaries |= tool_summaries(percentile_values(fields, theirs), ours, unit=MILLISECONDS, n=n)
    rate, peak = fields.positive("output_throughput"), fields.positive("max_output_tokens_per_s")
    if rate is not None:
        told.summaries["output_tokens_per_s"] = summary(rate, "pooled", completed)
    for theirs, ours in (("total_output_tokens", "generation_tokens"), ("total_input_tokens", "prompt_tokens")):
        tokens = fields.count(theirs)
        if tokens is not None:
            told.summaries[ours] = summary(tokens, "total", None)
    if rate is not None and peak is not None and peak < rate:
        told.note(
            "peak_counts_messages",
            f"the stated peak ({peak:g}) lies below the mean ({rate:g} tokens/s): it counts messages, and is not taken",
        )


def itl_doubts(date: str | None, told: Told, *, is_chat: bool, has_lists: bool) -> list[Caution]:
    """What to doubt about the gaps, where only their statistics are known."""
    noted = []
    gap, pace = told.summaries.get("chunk_gap_s"), told.summaries.get("tpot_s")
    day = re.sub(r"\D", "", date or "")[:8]
    if not has_lists and len(day) == len(ITL_FIXED) and day < ITL_FIXED:
        noted.append(
            Caution("itl_may_include_ttft", "results of before vLLM 0.5.5: gaps may include times to first token; compare TPOT instead")
        )
    if not has_lists and is_chat and gap is not None:
        noted.append(
            Caution(
                "role_only_first_chunk_possible",
                "the chat backend up to vLLM 0.32 takes the role-only first message for a token: TTFT a message early, one gap near 0 per "
                "request; save with --save-detailed and it is told apart",
            )
        )
    if gap is not None and pace is not None and gap.value < GAP_FAR_BELOW_PACE * pace.value:
        noted.append(
            Caution(
                "itl_below_tpot", "the mean gap is far below the mean pace: more messages than tokens, or requests of very unequal length"
            )
        )
    return noted


def _failed(fields: Fields, told: Told) -> None:
    failed = fields.count("failed")
    if failed and not fields.has("ttfts", "itls"):
        told.note("requests_failed", f"{failed} requests failed; latencies are of the others")


def _seen(fields: Fields, told: Told, *, closed: bool) -> list[Seen]:
    """The requests of the detailed lists, what is no token taken out of them."""
    ttfts, outputs = numbers(fields.values["ttfts"], "ttfts"), _counts(fields, "output_lens")
    prompts, gaps = _counts(fields, "input_lens"), [numbers(each, f"itls[{i}]") for i, each in enumerate(fields.list("itls") or [])]
    errors = fields.list("errors") or [""] * len(outputs)
    lengths = {len(each) for each in (ttfts, outputs, prompts, gaps, errors)}
    if len(lengths) > 1:
        raise BadInputError("the lists of requests (ttfts, itls, input_lens, output_lens, errors) are of different lengths")
    _without_ttft(ttfts, gaps, told)
    if _is_chat(fields):
        _without_role(ttfts, gaps, told)
    sent, arrived = _instants(fields, told, count=len(outputs), closed=closed)
    _usage_in_latency(fields, ttfts, gaps, told)
    found = []
    for i, (ttft, tokens) in enumerate(zip(ttfts, outputs, strict=True)):
        done = not errors[i] and tokens > 0
        found.append(
            Seen(
                id=str(i),
                segment="all",
                prompt_tokens=prompts[i],
                output_tokens=tokens,
                arrived_at_s=arrived[i],
                sent_at_s=sent[i],
                chunk_at_s=instants_after(sent[i] + ttft, gaps[i]),
                chunk_tokens=None,
                sees_all_chunks=True,
                acceptance=None,
                outcome=Outcome.FINISHED if done else Outcome.FAILED,
            )
        )
    return found


def _counts(fields: Fields, key: str) -> list[int]:
    found = numbers(fields.values[key], key)
    wrong = [each for each in found if not each.is_integer() or each < 0]
    if wrong:
        raise BadInputError(f"{key} holds {wrong[0]!r}, which is no number of tokens")
    return [int(each) for each in found]


def _without_ttft(ttfts: list[float], gaps: list[list[float]], told: Told) -> None:
    """Take out a first gap that is the time to first token itself."""
    both = [(ttft, each[0]) for ttft, each in zip(ttfts, gaps, strict=True) if each and ttft > 0]
    same = sum(abs(ttft - gap) <= SAME * ttft for ttft, gap in both)
    if both and same * 2 > len(both):
        for each in gaps:
            del each[:1]
        told.note("itl_includes_ttft", "gap lists began with the time to first token (vLLM before 0.5.5); it was taken out of them")


def _without_role(ttfts: list[float], gaps: list[list[float]], told: Told) -> None:
    """Take out the role-only first message: the first gaps are then next to nothing beside the others."""
    first, others = [each[0] for each in gaps if each], [gap for each in gaps for gap in each[1:]]
    if not first or not others or median(first) > ROLE_SHARE * median(others):
        return
    for i, each in enumerate(gaps):
        if each:
            ttfts[i] += each.pop(0)
    told.note(
        "role_only_first_chunk",
        "the first message of each answer holds the role and no token (openai-chat up to vLLM 0.32): it was taken out, so TTFT and gaps "
        "differ from the file's own",
    )


def _usage_in_latency(fields: Fields, ttfts: list[float], gaps: list[list[float]], told: Told) -> None:
    latencies = fields.list("latencies")
    if latencies is None or len(latencies) != len(ttfts):
        return
    late = [finite(each, f"latencies[{i}]") - ttfts[i] - sum(gaps[i]) for i, each in enumerate(latencies)]
    if median(late) > LATENCY_TOLERANCE_S:
        told.note(
            "latency_includes_usage", "stated latencies end after the last token (with the usage message); ours end with the last token"
        )


def _instants(fields: Fields, told: Told, *, count: int, closed: bool) -> tuple[list[float], list[float]]:
    """When each request left, and when it should have: the same in a closed loop."""
    if not fields.has("start_times"):
        told.note(
            "send_times_unknown",
            "the file does not say when requests were sent: all count from 0, which leaves their latencies as they are",
        )
        return [0.0] * count, [0.0] * count
    started = numbers(fields.values["start_times"], "start_times")
    if len(started) != count:
        raise BadInputError("start_times is not as long as ttfts")
    queued = numbers(fields.values["queue_times"], "queue_times") if fields.has("queue_times") else None
    if closed:
        queued = [0.0] * count
    elif queued is None or len(queued) != count or min(queued, default=0.0) < 0:
        told.note("scheduled_times_unknown", "the file does not say when requests should have left: latencies count from when they did")
        queued = [0.0] * count
    arrived = [start - wait for start, wait in zip(started, queued, strict=True)]
    origin = min(arrived, default=0.0)
    return [each - origin for each in started], [each - origin for each in arrived]


def _speculation(fields: Fields, told: Told, *, completed: int, seen: list[Seen] | None) -> None:
    config = _config(fields)
    if config is not None:
        told.arm, told.speculation = Arm.SPECULATIVE, _stated_method(config)
    drafts, drafted, accepted = (fields.count(f"spec_decode_{key}") for key in ("num_drafts", "draft_tokens", "accepted_tokens"))
    if drafts is None or drafted is None or accepted is None:
        rate = fields.positive("spec_decode_acceptance_rate")
        if rate is not None:
            told.arm = Arm.SPECULATIVE
            told.summaries["alpha"] = summary(rate / 100, "pooled", None)
        return
    told.arm = Arm.SPECULATIVE
    rates = fields.values.get("spec_decode_per_position_acceptance_rates")
    positions = None if rates is None else positions_of(numbers(rates, "per_position"), drafts=drafts, accepted_tokens=accepted)
    if rates is not None and positions is None:
        told.note("positions_inconsistent", "acceptance by position does not add up to the accepted tokens and was left out")
    done = [each for each in seen or [] if each.is_finished]
    total = sum(each.output_tokens for each in done) if seen else fields.count("total_output_tokens")
    gaps = sum(len(each.chunk_at_s) - 1 for each in done) if seen else None
    counts, noted = counted(
        drafts=drafts,
        drafted_tokens=drafted,
        accepted_tokens=accepted,
        positions=positions,
        later_tokens=None if total is None else max(total - completed, 0),
        requests=completed,
        steps=gaps,
    )
    take_counters(
        told,
        counts,
        noted,
        percent=fields.number("spec_decode_acceptance_rate"),
        acceptance_length=fields.number("spec_decode_acceptance_length"),
    )
    told.note("temperature_unstated", "the file does not say at which temperature was sampled, and acceptance moves with it")


def take_counters(
    told: Told, counts: AcceptanceCounts, noted: Sequence[Caution], *, percent: float | None, acceptance_length: float | None
) -> None:
    """Keep the server's counters, and what is doubtful about them: the rate and length stated beside them among it."""
    told.acceptance = {"all": counts}
    stated = {"alpha": None if percent is None else percent / 100, "acceptance_length": acceptance_length}
    told.cautions += differing(stated, drafts=counts.drafts, drafted_tokens=counts.drafted_tokens, accepted_tokens=counts.accepted_tokens)
    told.cautions += [*noted, SERVER_COUNTERS]


def _config(fields: Fields) -> dict[str, Any] | None:
    """A sweep's `speculative_config`, an object or JSON in text."""
    value = fields.values.get("speculative_config")
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise BadInputError(f"speculative_config = {printable(value)} is no JSON") from None
    return value if isinstance(value, dict) and value else None


def _stated_method(config: dict[str, Any]) -> Speculation | None:
    method, tokens = method_named(str(config.get("method"))), config.get("num_speculative_tokens")
    return Speculation(method=method, draft_tokens=tokens, tree=None) if method is not None and isinstance(tokens, int) else None
