"""How numbers are written for a person: milliseconds and percent are born here, and an interval stands beside every estimate.

An unknown end is written as a question mark, a missing figure as a dash.
"""

from paceline.verdict import UNFELT_RISE, Decision, Estimate, Finding, Holds, Verdict, judge

__all__ = [
    "break_even",
    "decision_reason",
    "decision_words",
    "holds_beyond_bound",
    "holds_words",
    "interval",
    "milliseconds",
    "percent",
    "plain",
    "times",
]

MISSING = "–"
NEVER, NEVER_PAYS = "never", "never pays"

DECISION_WORDS = {
    Decision.SHIP: "Ship it",
    Decision.SHIP_SEGMENTS: "Ship it for some segments",
    Decision.KEEP: "Keep plain decoding",
    Decision.CANNOT_TELL: "Cannot tell yet",
}
METRIC_WORDS = {
    "speedup": "speed-up",
    "tpot_p99.ratio": "P99 time per token against plain",
    "ttft_p99.ratio": "P99 time to first token against plain",
    "harmed_share": "share of requests that got slower",
}
HOLDS_WORDS = {Holds.YES: "holds", Holds.NO: "fails", Holds.CANNOT_TELL: "cannot tell"}


def plain(value: float | None) -> str:
    """Three significant digits."""
    return MISSING if value is None else f"{value:#.3g}".rstrip(".")


def milliseconds(value_s: float | None) -> str:
    """Seconds, as milliseconds."""
    if value_s is None:
        return MISSING
    value_ms = value_s * 1000
    return f"{value_ms:,.0f} ms" if value_ms >= 100 else f"{value_ms:.1f} ms"


def percent(value: float | None) -> str:
    """A fraction, as percent."""
    return MISSING if value is None else f"{value * 100:.3g} %"


def times(value: float | None) -> str:
    """A ratio, as how many times."""
    return MISSING if value is None else f"{value:.2f}×"


def interval(estimate: Estimate | None) -> str:
    """`1.42 (1.38 to 1.46)`; `1.42 (? to 1.46)` where an end is unknown; a dash where nothing was measured."""
    if estimate is None:
        return MISSING
    low, high = ("?" if each is None else plain(each) for each in (estimate.low, estimate.high))
    return f"{plain(estimate.value)} ({low} to {high})"


def break_even(alpha: Estimate | None) -> str:
    """The acceptance rate from which on drafting pays, as `interval`; above 1 in words, for no draft is accepted more than always."""
    if alpha is None or max(alpha.value, alpha.high or 0) <= 1:
        return interval(alpha)
    if (alpha.value if alpha.low is None else alpha.low) > 1:
        return NEVER_PAYS
    low, high = ("?" if each is None else _or_never(each) for each in (alpha.low, alpha.high))
    return f"{_or_never(alpha.value)} ({low} to {high})"


def _or_never(alpha: float) -> str:
    return NEVER if alpha > 1 else plain(alpha)


def decision_words(decision: Decision) -> str:
    """The decision as a headline."""
    return DECISION_WORDS[decision]


def holds_words(holds: Holds) -> str:
    """An answer in a word or two."""
    return HOLDS_WORDS[holds]


def decision_reason(verdict: Verdict) -> str:
    """The decision's reason in one sentence: the first claim that fails, else that cannot be told, else the first that holds."""
    if not verdict.findings:
        return "No claim was tested."
    at = "" if verdict.concurrency is None else f"At {verdict.concurrency} in flight: "
    failed = [_claim_words(each, "is not") for each in verdict.findings if each.holds is Holds.NO]
    if failed:
        also = f" It pays for {', '.join(verdict.segments_to_ship)}." if verdict.segments_to_ship else ""
        return f"{at}{'; '.join(failed)}.{also}"
    open_ = next((each for each in verdict.findings if each.holds is Holds.CANNOT_TELL), None)
    if open_ is not None:
        return f"{at}{open_.why}."
    return f"{at}{'; '.join(_claim_words(each, 'is') for each in verdict.findings)}."


def holds_beyond_bound(finding: Finding) -> bool:
    """Whether a claim holds for a reason that its bound alone does not give, so that `why` has to be read."""
    if finding.holds is not Holds.YES or finding.estimate is None:
        return False
    return finding.why.startswith(UNFELT_RISE) or judge(finding.claim, finding.estimate).holds is not Holds.YES


def _claim_words(finding: Finding, verb: str) -> str:
    claim = finding.claim
    bound = f"at most {claim.at_most:g}" if claim.at_most is not None else f"at least {claim.at_least:g}"
    where = f" for {claim.segment}" if claim.segment else ""
    if holds_beyond_bound(finding):
        return finding.why
    return f"{METRIC_WORDS.get(claim.metric, claim.metric)}{where} {interval(finding.estimate)} {verb} {bound}"
