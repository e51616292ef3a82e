"""TensorRT-LLM's /prometheus/metrics: two countings of acceptance side by side.

1. Per finished request and draft position (needs `return_perf_metrics`): tokens drafted and accepted. Drafts at position 0 are the drafted
   steps, so the counts are whole.
2. Per iteration: drafted and accepted tokens in total, without the number of drafts: an acceptance rate, no length.
3. The gauges (`…_acceptance_length`, `…_draft_overhead`) are the last iteration's, no figure of a window, and are not read.
4. Decode steps are not counted; with requests that finished they are tokens − requests − accepted. `time_per_output_token_seconds` is per
   finished request: TPOT.

The series of both exist only where speculation is configured. Its /metrics, a JSON list of iterations, is read by `iterations`.
Source: TensorRT-LLM, tensorrt_llm/metrics/collector.py at 050f80d; read, not run.
"""

import re
from collections.abc import Iterable, Sequence

from paceline.servers.counters import Counters, EngineCounters, Vocabulary, by_edge, change, gauge_summary, positions, read_series
from paceline.servers.prometheus_text import Sample
from paceline.servers.window import Window, observed, whole
from paceline.verdict import Caution

__all__ = ["is_tensorrt_llm", "read_counters", "window"]

DRAFTED = "spec_decode_num_draft_tokens_total"
ACCEPTED = "spec_decode_num_accepted_tokens_total"
DRAFTED_AT = "spec_decode_drafted_tokens_total"
ACCEPTED_AT = "spec_decode_accepted_tokens_total"
GENERATED = "generation_tokens_total"
PROMPT = "prompt_tokens_total"
FINISHED = "request_success_total"
RUNNING = "num_requests_running"
FIRST_TOKEN = "time_to_first_token_seconds"  # noqa: S105 - a metric's name, no password
TPOT = "time_per_output_token_seconds"
E2E = "e2e_request_latency_seconds"
DECODE = "request_decode_time_seconds"
HISTOGRAMS = (FIRST_TOKEN, TPOT, E2E, DECODE)

VOCABULARY = Vocabulary(
    dialect="TensorRT-LLM",
    prefix=re.compile(r"trtllm[:_]"),
    counts=frozenset({DRAFTED, ACCEPTED, GENERATED, PROMPT, FINISHED, *(f"{each}_count" for each in HISTOGRAMS)}),
    totals=frozenset(f"{each}_sum" for each in HISTOGRAMS),
    gauges=frozenset({RUNNING}),
    by_label={DRAFTED_AT: "token_position", ACCEPTED_AT: "token_position", **by_edge((FIRST_TOKEN, TPOT, E2E))},
    splits=frozenset({"finished_reason"}),
    aliases={},
)


def is_tensorrt_llm(samples: Iterable[Sample]) -> bool:
    """Whether any sample is one of TensorRT-LLM's that we read."""
    return VOCABULARY.recognises(samples)


def read_counters(samples: Iterable[Sample], *, model: str | None) -> Counters:
    """What a scrape says of one model; `model` None takes the only one there is.

    Raises:
        BadInputError: no TensorRT-LLM series, several models and none chosen, a series given twice, or a counter that is no count.
        UnknownNameError: no such model.

    """
    return read_series(samples, VOCABULARY, model=model)


def window(scrapes: Sequence[Counters]) -> Window:
    """What happened between the first scrape and the last; since the server's start where there is one only.

    Raises:
        BadInputError: the scrapes are of different models, or one is cut off.

    """
    changed = change(scrapes, VOCABULARY)
    total = changed.total
    drafted_at, accepted_at = positions(total, DRAFTED_AT), positions(total, ACCEPTED_AT)
    per_request = drafted_at is not None
    if drafted_at is not None and accepted_at is None:
        accepted_at = (0,) * len(drafted_at)
    speculates = per_request or DRAFTED in total
    running = gauge_summary(scrapes, RUNNING)
    return Window(
        source="tensorrt-llm /prometheus/metrics",
        model=scrapes[-1].model,
        engines=tuple(sorted(scrapes[-1].engines)),
        speculates=speculates,
        drafts=None if drafted_at is None else drafted_at[0],
        drafted_tokens=whole(total, DRAFTED) if drafted_at is None else sum(drafted_at),
        accepted_tokens=whole(total, ACCEPTED) if accepted_at is None else sum(accepted_at),
        accepted_per_position=accepted_at,
        generation_tokens=whole(total, GENERATED),
        prompt_tokens=whole(total, PROMPT),
        preemptions=None,
        first_tokens=whole(total, FINISHED),
        first_token=observed(total, FIRST_TOKEN),
        step_gap=None,
        tpot=observed(total, TPOT),
        e2e=observed(total, E2E),
        decode=observed(total, DECODE),
        request_tokens=None,
        gauges={} if running is None else {"requests_running": running},
        missing_remedy="TensorRT-LLM counts drafts by position with return_perf_metrics: true",
        ratios_only=False,
        stated={},
        noted=(*changed.noted, *_noted(total, per_request=per_request)),
    )


def _noted(total: EngineCounters, *, per_request: bool) -> tuple[Caution, ...]:
    if per_request or DRAFTED not in total:
        return ()
    return (
        Caution(
            "counted_live",
            "drafted and accepted tokens count iterations, generated tokens and latencies finished requests: over a short window the two "
            "are not of the same requests",
        ),
    )
