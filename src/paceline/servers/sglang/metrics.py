"""SGLang's /metrics (`--enable-metrics`): gauges of the last moments, and since 0.5.13 one counter that makes them a window.

1. `spec_accept_length` and `spec_accept_rate` are set every 40 decode batches and hold their last value when idle: they are samples, no
   means, and never added up. A value that does not change in the window is from before it and is left out.
2. With `spec_verify_calls_total` (0.5.13 on) the acceptance length of a window is (generated − requests) / verify calls, over requests that
   finished: each gives its first token from prefill, and every verify call emits what it accepts and one token.
3. The drafted tokens are not counted. On a chain (`spec_num_draft_tokens` = `spec_num_steps` + 1, the root included) each verify call is
   taken for a full draft of that width; a tree's rate compares with no chain's, so there is no α of it.
4. The rate's meaning changed between versions (`accept_rate`).
5. Ranks repeat the same gauge: the leading one is taken. A draft or prefill engine's series are not the server's.
6. `inter_token_latency_seconds` is the gap of a chunk spread over its tokens, so it is a gap per token; there is no time per step.

Source: SGLang 0.4.3 to 0.5.23, the metrics collector and scheduler; read, not run.
"""

import re
from collections.abc import Iterable, Sequence

from paceline.errors import BadInputError, printable
from paceline.run import Summary
from paceline.servers.counters import Counters, EngineCounters, Vocabulary, by_edge, change, gauge_summary, read_series
from paceline.servers.prometheus_text import Sample
from paceline.servers.sglang.gauges import GAUGES, draft_width, gauge_doubts, gauge_figures
from paceline.servers.window import Window, observed, whole
from paceline.verdict import Caution

__all__ = ["is_sglang", "read_counters", "window"]

VERIFIED = "spec_verify_calls_total"
GENERATED = "generation_tokens_total"
PROMPT = "prompt_tokens_total"
REQUESTS = "num_requests_total"
RUNNING = "num_running_reqs"
FIRST_TOKEN = "time_to_first_token_seconds"  # noqa: S105 - a metric's name, no password
TOKEN_GAP = "inter_token_latency_seconds"  # noqa: S105 - as above
E2E = "e2e_request_latency_seconds"
HISTOGRAMS = (FIRST_TOKEN, TOKEN_GAP, E2E)
RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")
NOT_THE_SERVER = ("draft", "prefill")

VOCABULARY = Vocabulary(
    dialect="SGLang",
    prefix=re.compile(r"sglang[:_]"),
    counts=frozenset({VERIFIED, GENERATED, PROMPT, REQUESTS, *(f"{each}_count" for each in HISTOGRAMS)}),
    totals=frozenset(f"{each}_sum" for each in HISTOGRAMS),
    gauges=frozenset({RUNNING, *GAUGES}),
    by_label=by_edge((FIRST_TOKEN, E2E)),
    splits=frozenset({"is_streaming", "priority", *RANKS}),
    aliases={},
)


def is_sglang(samples: Iterable[Sample]) -> bool:
    """Whether any sample is one of SGLang's that we read."""
    return VOCABULARY.recognises(samples)


def read_counters(samples: Iterable[Sample], *, model: str | None) -> Counters:
    """What a scrape says of one model; `model` None takes the only one there is, a draft engine's own not counted.

    Raises:
        BadInputError: no SGLang series, several models and none chosen, a series given twice, or a counter that is no count.
        UnknownNameError: no such model.

    """
    return read_series(_leading(tuple(samples)), VOCABULARY, model=model)


def _leading(samples: tuple[Sample, ...]) -> list[Sample]:
    """The samples without those of draft and prefill engines (where there are others) and of ranks that repeat the leading one's."""
    ours = [each for each in samples if VOCABULARY.series(each.name)]
    whole_engines = any(each.labels.get("engine_type") not in NOT_THE_SERVER for each in ours)
    first = {rank: min((_rank(each, rank) for each in ours if rank in each.labels), default=0) for rank in RANKS}
    return [
        each
        for each in samples
        if all(_rank(each, rank) == first[rank] for rank in RANKS if rank in each.labels)
        and not (whole_engines and each.labels.get("engine_type") in NOT_THE_SERVER)
    ]


def _rank(sample: Sample, label: str) -> int:
    text = sample.labels[label]
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        raise BadInputError(f"{label} {printable(text)} of {printable(sample.name)} is no rank")
    return int(text)


def window(scrapes: Sequence[Counters]) -> Window:
    """What happened between the first scrape and the last; since the server's start where there is one only.

    Raises:
        BadInputError: the scrapes are of different models, or one is cut off.

    """
    changed = change(scrapes, VOCABULARY)
    total = changed.total
    width, chain = draft_width(scrapes)
    verified, accepted = whole(total, VERIFIED), _accepted(total)
    counted = bool(verified) and accepted is not None
    fits = counted and chain and width is not None and accepted is not None and accepted <= (verified or 0) * (width - 1)
    gauges = None if counted else gauge_figures(scrapes)
    stated = _length(verified, accepted) if counted and not fits else {} if gauges is None else gauges.stated
    active = counted or (gauges is not None and gauges.active)
    return Window(
        source="sglang /metrics",
        model=scrapes[-1].model,
        engines=tuple(sorted(scrapes[-1].engines)),
        speculates=active,
        drafts=verified if fits else None,
        drafted_tokens=(verified or 0) * (width - 1) if fits and width is not None else None,
        accepted_tokens=accepted if fits else None,
        accepted_per_position=None,
        generation_tokens=whole(total, GENERATED),
        prompt_tokens=whole(total, PROMPT),
        preemptions=None,
        first_tokens=whole(total, REQUESTS),
        first_token=observed(total, FIRST_TOKEN),
        step_gap=None,
        tpot=None,
        e2e=observed(total, E2E),
        decode=None,
        request_tokens=None,
        gauges=_aggregates(scrapes, total),
        missing_remedy="",
        ratios_only=not fits,
        stated=stated,
        noted=(
            *changed.noted,
            *(() if gauges is None else gauges.noted),
            *_noted(counted=counted, fits=fits, width=width, chain=chain),
            *gauge_doubts(scrapes[-1], width),
        ),
    )


def _accepted(total: EngineCounters) -> int | None:
    """Generated − requests − verify calls; None where one is not exported, or where requests under way make it negative."""
    if not {GENERATED, REQUESTS, VERIFIED} <= total.keys():
        return None
    accepted = int(total[GENERATED] - total[REQUESTS] - total[VERIFIED])
    return accepted if accepted >= 0 else None


def _length(verified: int | None, accepted: int | None) -> dict[str, Summary]:
    assert verified is not None
    assert accepted is not None
    return {"acceptance_length": Summary(value=1 + accepted / verified, statistic="pooled", n=verified, low=None, high=None)}


def _aggregates(scrapes: Sequence[Counters], total: EngineCounters) -> dict[str, Summary]:
    running, gap = gauge_summary(scrapes, RUNNING), observed(total, TOKEN_GAP)
    named = {} if running is None else {"requests_running": running}
    if gap is not None and gap.mean is not None:
        named["token_gap_s"] = Summary(value=gap.mean, statistic="mean", n=gap.count, low=None, high=None)
    return named


def _noted(*, counted: bool, fits: bool, width: int | None, chain: bool) -> tuple[Caution, ...]:
    if not counted:
        return ()
    if fits:
        return (
            Caution(
                "derived_acceptance",
                "SGLang counts verify calls, requests and tokens: accepted tokens are tokens − requests − verify calls, a little low where "
                f"a stop cuts a draft, and drafted tokens are the configured width, {(width or 1) - 1} per verify call, drafted or not",
            ),
        )
    if width is None:
        why = "the server states no draft width, or changed it in the window"
    elif not chain:
        why = "drafts are a tree, whose accepted / verified compares with no chain's"
    else:
        why = f"more was accepted than {width - 1} tokens per verify call allow, as where requests were under way at a scrape"
    return (Caution("no_alpha", f"the acceptance length is counted, the acceptance rate is not: {why}"),)
