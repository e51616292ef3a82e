"""vLLM's /metrics: which series there are, and what they mean.

Inter-token latency is observed once per request and step, however many tokens the step gives: its count is the steps. Drafts are counted
per request and step that drafted, accepted tokens before a stop truncates. Ray writes `_` for the colon and may put `ray_` in front. The
speculation series exist only where speculation is configured, so their presence tells the arm.
Source: vLLM 0.32.0, v1/metrics/stats.py lines 552 and 601, v1/core/sched/scheduler.py lines 2111 to 2152.
"""

import re
from collections.abc import Iterable, Sequence

from paceline.errors import BadInputError
from paceline.run import Summary
from paceline.servers.counters import Change, Counters, EngineCounters, Vocabulary, by_edge, change, gauge_summary, positions, read_series
from paceline.servers.prometheus_text import Sample
from paceline.servers.vllm.v0 import V0_CAUTION, is_v0, v0_doubts, v0_figures
from paceline.servers.window import Window, observed, whole
from paceline.verdict import Caution

__all__ = ["difference", "is_vllm", "read_counters", "window"]

DRAFTS = "spec_decode_num_drafts_total"
DRAFTED = "spec_decode_num_draft_tokens_total"
ACCEPTED = "spec_decode_num_accepted_tokens_total"
EMITTED_V0 = "spec_decode_num_emitted_tokens_total"
PER_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"
GENERATED = "generation_tokens_total"
PROMPT = "prompt_tokens_total"
CACHE_ASKED = "prefix_cache_queries_total"
CACHE_HITS = "prefix_cache_hits_total"
PREEMPTED = "num_preemptions_total"
RUNNING = "num_requests_running"
FIRST_TOKEN = "time_to_first_token_seconds"  # noqa: S105 - a metric's name, no password
STEP_GAP = "inter_token_latency_seconds"
STEP_GAP_BEFORE_0_15 = "time_per_output_token_seconds"
TPOT = "request_time_per_output_token_seconds"
E2E = "e2e_request_latency_seconds"
DECODE = "request_decode_time_seconds"
REQUEST_TOKENS = "request_generation_tokens"
HISTOGRAMS = (FIRST_TOKEN, STEP_GAP, STEP_GAP_BEFORE_0_15, TPOT, E2E, DECODE, REQUEST_TOKENS)

VOCABULARY = Vocabulary(
    dialect="vLLM",
    prefix=re.compile(r"(?:ray_)?vllm[:_]"),
    counts=frozenset(
        {
            DRAFTS,
            DRAFTED,
            ACCEPTED,
            EMITTED_V0,
            GENERATED,
            PROMPT,
            CACHE_ASKED,
            CACHE_HITS,
            PREEMPTED,
            *(f"{each}_count" for each in HISTOGRAMS),
        }
    ),
    totals=frozenset(f"{each}_sum" for each in HISTOGRAMS),
    gauges=frozenset({RUNNING, "spec_decode_draft_acceptance_rate", "spec_decode_efficiency"}),
    by_label={PER_POSITION: "position", **by_edge((FIRST_TOKEN, STEP_GAP, STEP_GAP_BEFORE_0_15, TPOT, E2E))},
    splits=frozenset(),
    aliases={},
)


def is_vllm(samples: Iterable[Sample]) -> bool:
    """Whether any sample is one of vLLM's that we read."""
    return VOCABULARY.recognises(samples)


def read_counters(samples: Iterable[Sample], *, model: str | None) -> Counters:
    """What a scrape says of one model; `model` None takes the only one there is.

    Raises:
        BadInputError: no vLLM series, several models and none chosen, a series given twice, or a counter that is no count.
        UnknownNameError: no such model.

    """
    return read_series(samples, VOCABULARY, model=model)


def difference(before: Counters | None, after: Counters) -> Window:
    """What happened between two scrapes of one server; `before` None: since the server started.

    Raises:
        BadInputError: the scrapes are of different models or engines of different generations, or one is cut off.

    """
    return window((after,) if before is None else (before, after))


def window(scrapes: Sequence[Counters]) -> Window:
    """What happened between the first scrape and the last; since the server's start where there is one only.

    Raises:
        BadInputError: as `difference`.

    """
    v0 = is_v0(scrapes[-1].engines)
    if any(is_v0(each.engines) != v0 for each in scrapes):
        raise BadInputError("one scrape is of the V0 engine, another of V1; their counters mean different things")
    changed = change(scrapes, VOCABULARY)
    total = changed.total
    gauges = {"requests_running": gauge_summary(scrapes, RUNNING), "prefix_cache_hit_share": _cache_hits(total)}
    return Window(
        source="vllm /metrics",
        model=scrapes[-1].model,
        engines=tuple(sorted(scrapes[-1].engines)),
        speculates=DRAFTED in total or DRAFTS in total or v0,
        drafts=whole(total, DRAFTS),
        drafted_tokens=whole(total, DRAFTED),
        accepted_tokens=whole(total, ACCEPTED),
        accepted_per_position=positions(total, PER_POSITION),
        generation_tokens=whole(total, GENERATED),
        prompt_tokens=whole(total, PROMPT),
        preemptions=whole(total, PREEMPTED),
        first_tokens=whole(total, f"{FIRST_TOKEN}_count"),
        first_token=observed(total, FIRST_TOKEN),
        step_gap=None if v0 else observed(total, STEP_GAP) or observed(total, STEP_GAP_BEFORE_0_15),
        tpot=observed(total, TPOT),
        e2e=observed(total, E2E),
        decode=observed(total, DECODE),
        request_tokens=observed(total, REQUEST_TOKENS),
        gauges={name: each for name, each in gauges.items() if each is not None},
        missing_remedy="vLLM counts all three from 0.8.5 on",
        ratios_only=v0,
        stated=v0_figures(changed.engines.values()) if v0 else {},
        noted=(*changed.noted, *_noted(changed, v0=v0), *(v0_doubts(changed.engines.values()) if v0 and len(scrapes) == 1 else ())),
    )


def _cache_hits(total: EngineCounters) -> Summary | None:
    """The share of prompt tokens that came from the prefix cache, None where none was looked up."""
    asked, hits = whole(total, CACHE_ASKED), whole(total, CACHE_HITS)
    if not asked or hits is None or hits > asked:
        return None
    return Summary(value=hits / asked, statistic="pooled", n=asked, low=None, high=None)


def _noted(changed: Change, *, v0: bool) -> tuple[Caution, ...]:
    if v0:
        return (V0_CAUTION,)
    lengths = {len(at) for each in changed.engines.values() if (at := positions(each, PER_POSITION))}
    if len(lengths) > 1:
        return (
            Caution(
                "draft_lengths_differ",
                f"engines draft at different lengths ({', '.join(map(str, sorted(lengths)))}): survival at the later positions counts the "
                "shorter drafts as rejected",
            ),
        )
    return ()
