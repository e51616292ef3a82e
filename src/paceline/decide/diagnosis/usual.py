"""What drafting usually costs and yields, to tell which of the two falls short.

The usual cost of drafting on a target that leaves compute idle is 1 + .15 + .15 K plain steps for a chain of K from a one-layer head. It is
the dearer of two measurements on an 8B target, one H100, one request: 1.18 + .144 K (vLLM issue 20780, EAGLE-3) and 1.125 + .073 K
(SGLang). Lookups draft for next to nothing: 1 + .05 + .03 K. With a forecast of target and hardware that is what one expects instead. The
usual yield is that of conditional acceptance .7 at every position, a head that fits its target on general chat.
"""

from dataclasses import dataclass

from paceline.decide.diagnosis.case import Case
from paceline.speculation.acceptance import tokens_from_conditional

__all__ = ["Shortfall", "USUAL_CONDITIONAL", "shortfall"]

USUAL_CONDITIONAL = 0.7
HEAD, LOOKUP = (0.15, 0.15), (0.05, 0.03)


@dataclass(frozen=True, slots=True)
class Shortfall:
    """How much dearer than usual a step is, and how much less than usual it yields, each as a ratio; above 1 is worse.

    `usual_ratio` is the step-time ratio to expect.
    """

    dearer: float
    fewer: float
    usual_ratio: float


def shortfall(case: Case) -> Shortfall | None:
    """Both ratios; None where step times, tokens per step or the draft length are not known."""
    ratio, tokens, k = case.figures.step_time_ratio, case.figures.tokens_per_step, case.draft_tokens
    if ratio is None or tokens is None or k is None:
        return None
    fixed, each = HEAD if case.drafts_always else LOOKUP
    usual = case.forecast_ratio or 1 + fixed + each * k
    usual_tokens = tokens_from_conditional(USUAL_CONDITIONAL, draft_tokens=k)
    return Shortfall(dearer=ratio.value / usual, fewer=usual_tokens / tokens.value, usual_ratio=usual)
