"""llama-server's /metrics (`--metrics`): vLLM's four speculation counters, counted when a request finishes.

1. The counters exist whether or not drafts are on, so drafts since the start tell the arm. `-md` without `--spec-type` drafts nothing and
   says nothing (llama.cpp issue 25345): then all of them are 0.
2. Values are printed with six digits. From a million on they are rounded, and a difference of two carries both errors; the positions are
   printed whole, so their sum is the accepted tokens.
3. Decode steps are not counted (`n_decode_total` counts batches). A step emits its accepted tokens and one, so tokens − accepted is the
   steps and the first tokens together: tokens per step is at least tokens / (tokens − accepted), at most the acceptance length.
4. There is no histogram: no time to first token, no gap, no percentile.

Source: llama.cpp b11434, run and read; pull requests 24536 and 26389 (the first named the counters without `_total`).
"""

import re
from collections.abc import Iterable, Sequence
from math import floor, log10

from paceline.run import Summary
from paceline.servers.counters import Counters, EngineCounters, Vocabulary, change, gauge_summary, positions, read_series
from paceline.servers.prometheus_text import Sample
from paceline.servers.window import Window, whole
from paceline.verdict import Caution

__all__ = ["is_llamacpp", "read_counters", "window"]

DRAFTS = "spec_decode_num_drafts_total"
DRAFTED = "spec_decode_num_draft_tokens_total"
ACCEPTED = "spec_decode_num_accepted_tokens_total"
PER_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"
GENERATED = "tokens_predicted_total"
GENERATED_SECONDS = "tokens_predicted_seconds_total"
PROMPT = "prompt_tokens_total"
RUNNING = "requests_processing"
COUNTS = (DRAFTS, DRAFTED, ACCEPTED, GENERATED, PROMPT)

VOCABULARY = Vocabulary(
    dialect="llama.cpp",
    prefix=re.compile(r"llamacpp[:_]"),
    counts=frozenset(COUNTS),
    totals=frozenset({GENERATED_SECONDS}),
    gauges=frozenset({RUNNING}),
    by_label={PER_POSITION: "position"},
    splits=frozenset(),
    aliases={each.removesuffix("_total"): each for each in (DRAFTS, DRAFTED, ACCEPTED, PER_POSITION)},
)
FIRST_ROUNDED = 10**6
DIGITS = 6
WORST_ROUNDING = 0.01


def is_llamacpp(samples: Iterable[Sample]) -> bool:
    """Whether any sample is one of llama-server's that we read."""
    return VOCABULARY.recognises(samples)


def read_counters(samples: Iterable[Sample], *, model: str | None) -> Counters:
    """What a scrape says; llama-server names no model, so `model` is None but behind a proxy that adds one.

    Raises:
        BadInputError: no llama.cpp series, a series given twice, or a counter that is no count.
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
    at = positions(total, PER_POSITION)
    error = _rounding(scrapes)
    usable = not error or error <= WORST_ROUNDING * total.get(DRAFTED, 0.0)
    speculates = any(each.get(DRAFTS) for each in scrapes[-1].engines.values())
    running, speed = gauge_summary(scrapes, RUNNING), _speed(total)
    return Window(
        source="llama.cpp /metrics",
        model=scrapes[-1].model,
        engines=tuple(sorted(scrapes[-1].engines)),
        speculates=speculates,
        drafts=whole(total, DRAFTS),
        drafted_tokens=whole(total, DRAFTED) if usable else None,
        accepted_tokens=sum(at) if error and at else whole(total, ACCEPTED),
        accepted_per_position=at,
        generation_tokens=whole(total, GENERATED),
        prompt_tokens=whole(total, PROMPT),
        preemptions=None,
        first_tokens=None,
        first_token=None,
        step_gap=None,
        tpot=None,
        e2e=None,
        decode=None,
        request_tokens=None,
        gauges={name: each for name, each in (("requests_running", running), ("decode_tokens_per_s", speed)) if each is not None},
        missing_remedy="llama-server counts all of them since August 2026; where rounding took them, measure over a longer window",
        ratios_only=False,
        stated={},
        noted=(*changed.noted, *_noted(total, error=error, speculates=speculates)),
    )


def _speed(total: EngineCounters) -> Summary | None:
    seconds = total.get(GENERATED_SECONDS)
    if not seconds or GENERATED not in total:
        return None
    return Summary(value=total[GENERATED] / seconds, statistic="pooled", n=None, low=None, high=None)


def _rounding(scrapes: Sequence[Counters]) -> float:
    """How far the difference of two speculation counters can be off: half a step of the sixth digit at each end, engines added up."""
    ends = scrapes[:1] if len(scrapes) == 1 else (scrapes[0], scrapes[-1])
    largest = [max(each.get(name, 0.0) for name in (DRAFTS, DRAFTED, ACCEPTED)) for scrape in ends for each in scrape.engines.values()]
    return float(sum(0.5 * 10.0 ** (floor(log10(value)) + 1 - DIGITS) for value in largest if value >= FIRST_ROUNDED))


def _noted(total: EngineCounters, *, error: float, speculates: bool) -> tuple[Caution, ...]:
    noted = []
    if error:
        noted.append(
            Caution(
                "counters_rounded",
                f"llama-server prints six digits: drafts and drafted tokens are off by up to {error:.3g} here"
                + ("; accepted tokens are the sum over positions, which is exact" if positions(total, PER_POSITION) else ""),
            )
        )
    if DRAFTS in total and not speculates:
        noted.append(
            Caution(
                "speculation_off",
                "no draft since the server's start: speculation is off, which is not an acceptance of 0 (a draft model without --spec-type "
                "drafts nothing and says nothing); counters move when a request finishes",
            )
        )
    return tuple(noted)
