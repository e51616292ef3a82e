"""LMDeploy's /metrics (`--enable-metrics`): vLLM's four speculation counters under another prefix, with gauges derived from them.

The counters exist whether or not drafts are configured, so drafts since the start tell the arm. `iter_token_latency` is observed per
request and step. `time_per_output_token_seconds` is per step too (gap / its tokens), no TPOT of a finished request, and is not read; nor
are the gauges (`…_mean_accept_length` and the like), which are ratios of the same counters since the start: one scrape holds them together.
Source: LMDeploy 0.18.0, lmdeploy/metrics/loggers.py; read, not run.
"""

import re
from collections.abc import Iterable, Sequence

from paceline.servers.counters import Counters, Vocabulary, by_edge, change, gauge_summary, positions, read_series
from paceline.servers.prometheus_text import Sample
from paceline.servers.stated_rates import differing
from paceline.servers.window import Window, observed, whole
from paceline.verdict import Caution

__all__ = ["is_lmdeploy", "read_counters", "window"]

DRAFTS = "spec_decode_num_drafts_total"
DRAFTED = "spec_decode_num_draft_tokens_total"
ACCEPTED = "spec_decode_num_accepted_tokens_total"
PER_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"
GENERATED = "generation_tokens_total"
PROMPT = "prompt_tokens_total"
RATE = "spec_decode_mean_accept_rate"
LENGTH = "spec_decode_mean_accept_length"
RUNNING = "num_requests_running"
FIRST_TOKEN = "time_to_first_token_seconds"  # noqa: S105 - a metric's name, no password
STEP_GAP = "iter_token_latency"
E2E = "e2e_request_latency_seconds"
DECODE = "request_decode_time_seconds"
REQUEST_TOKENS = "request_generation_tokens"
HISTOGRAMS = (FIRST_TOKEN, STEP_GAP, E2E, DECODE, REQUEST_TOKENS)

VOCABULARY = Vocabulary(
    dialect="LMDeploy",
    prefix=re.compile(r"lmdeploy[:_]"),
    counts=frozenset({DRAFTS, DRAFTED, ACCEPTED, GENERATED, PROMPT, *(f"{each}_count" for each in HISTOGRAMS)}),
    totals=frozenset(f"{each}_sum" for each in HISTOGRAMS),
    gauges=frozenset({RUNNING, RATE, LENGTH}),
    by_label={PER_POSITION: "position", **by_edge((FIRST_TOKEN, STEP_GAP, E2E))},
    splits=frozenset(),
    aliases={},
)
OFF = Caution(
    "speculation_off",
    "no draft since the server's start: speculation is off, which is not an acceptance of 0",
)


def is_lmdeploy(samples: Iterable[Sample]) -> bool:
    """Whether any sample is one of LMDeploy's that we read."""
    return VOCABULARY.recognises(samples)


def read_counters(samples: Iterable[Sample], *, model: str | None) -> Counters:
    """What a scrape says of one model; `model` None takes the only one there is.

    Raises:
        BadInputError: no LMDeploy series, several models and none chosen, a series given twice, or a counter that is no count.
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
    running = gauge_summary(scrapes, RUNNING)
    speculates = any(each.get(DRAFTS) for each in scrapes[-1].engines.values())
    return Window(
        source="lmdeploy /metrics",
        model=scrapes[-1].model,
        engines=tuple(sorted(scrapes[-1].engines)),
        speculates=speculates,
        drafts=whole(total, DRAFTS),
        drafted_tokens=whole(total, DRAFTED),
        accepted_tokens=whole(total, ACCEPTED),
        accepted_per_position=positions(total, PER_POSITION),
        generation_tokens=whole(total, GENERATED),
        prompt_tokens=whole(total, PROMPT),
        preemptions=None,
        first_tokens=whole(total, f"{FIRST_TOKEN}_count"),
        first_token=observed(total, FIRST_TOKEN),
        step_gap=observed(total, STEP_GAP),
        tpot=None,
        e2e=observed(total, E2E),
        decode=observed(total, DECODE),
        request_tokens=observed(total, REQUEST_TOKENS),
        gauges={} if running is None else {"requests_running": running},
        missing_remedy="LMDeploy counts all of them from 0.18 on",
        ratios_only=False,
        stated={},
        noted=(*changed.noted, *(() if speculates or DRAFTS not in total else (OFF,)), *_differing(scrapes)),
    )


def _differing(scrapes: Sequence[Counters]) -> tuple[Caution, ...]:
    """What the gauges say otherwise than the counters since the start, in one scrape."""
    if len(scrapes) > 1:
        return ()
    return tuple(
        caution
        for each in scrapes[0].engines.values()
        for caution in differing(
            {"alpha": each.get(RATE), "acceptance_length": each.get(LENGTH)},
            drafts=whole(each, DRAFTS),
            drafted_tokens=whole(each, DRAFTED),
            accepted_tokens=whole(each, ACCEPTED),
        )
    )
