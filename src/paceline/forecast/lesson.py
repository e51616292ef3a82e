"""The textbook's formulas as the textbook states them, Leviathan's beside them, and where both part with reality.

Notation of the textbook: α accepted / drafted tokens, K drafted tokens, ε what a speculative step costs beyond a plain one, as a share.

    E = 1 + K·α        S = E / (1 + ε)        break-even α = ε / K        α for a speed-up S: (S·(1 + ε) − 1) / K        floor: α ≥ .55

Under Leviathan's model the same α is read as the conditional acceptance β of every draft: E = (1 − β^(K+1)) / (1 − β). The first form is
exact where α counts tokens, the second where drafts are accepted independently; feeding a β to the first is the textbook's own mistake.

Sources: Leviathan et al., arXiv 2211.17192 (equation 1, theorems 3.8 and 3.11); measured figures as named in each deviation.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from paceline.errors import BadInputError
from paceline.speculation.acceptance import conditional_from_tokens, tokens_from_conditional

__all__ = [
    "Answer",
    "Deviation",
    "FLOOR_ALPHA",
    "Lesson",
    "alpha_for",
    "break_even_alpha",
    "lesson",
    "operations_ratio",
    "overhead_elasticity",
    "walltime_improvement",
]

FLOOR_ALPHA = 0.55
SPEEDUPS_ASKED_FOR = (2, 3)
MOST_DRAFT_TOKENS = 1000


@dataclass(frozen=True, slots=True)
class Answer:
    """What one model of acceptance says.

    Attributes:
        expected_tokens: tokens per step E.
        speedup: E / (1 + ε).
        break_even_alpha: acceptance at which the speed-up is 1: ε / K even above 1 (textbook), else None where none reaches it.
        alpha_for: acceptance for a speed-up of "2" and of "3"; None where no acceptance reaches it.

    """

    expected_tokens: float
    speedup: float
    break_even_alpha: float | None
    alpha_for: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Deviation:
    """Where the textbook and reality part: a stable `code`, whether the given numbers run into it, and a sentence."""

    code: str
    applies: bool
    message: str


@dataclass(frozen=True, slots=True)
class Lesson:
    """The textbook's answer, Leviathan's for the same numbers, whether α clears the textbook's floor, and the deviations."""

    alpha: float
    draft_tokens: int
    overhead: float
    textbook: Answer
    iid: Answer
    clears_floor: bool
    deviations: tuple[Deviation, ...]


def lesson(*, alpha: float, draft_tokens: int, overhead: float) -> Lesson:
    """What the textbook says of α, K and ε, what Leviathan's model says, and which deviations apply (those first).

    Raises:
        BadInputError: α outside [0, 1], K outside 1 to 1000, or ε negative or not finite.

    """
    _need_share(alpha)
    _need_terms(draft_tokens, overhead)
    textbook = Answer(
        expected_tokens=1 + draft_tokens * alpha,
        speedup=(1 + draft_tokens * alpha) / (1 + overhead),
        break_even_alpha=break_even_alpha(draft_tokens=draft_tokens, overhead=overhead),
        alpha_for={str(S): alpha_for(S, draft_tokens=draft_tokens, overhead=overhead) for S in SPEEDUPS_ASKED_FOR},
    )
    tokens = tokens_from_conditional(alpha, draft_tokens=draft_tokens)
    iid = Answer(
        expected_tokens=tokens,
        speedup=tokens / (1 + overhead),
        break_even_alpha=_conditional_for(1, draft_tokens=draft_tokens, overhead=overhead),
        alpha_for={str(S): _conditional_for(S, draft_tokens=draft_tokens, overhead=overhead) for S in SPEEDUPS_ASKED_FOR},
    )
    found = _deviations(alpha=alpha, draft_tokens=draft_tokens, overhead=overhead, textbook=textbook, iid=iid)
    return Lesson(
        alpha=alpha,
        draft_tokens=draft_tokens,
        overhead=overhead,
        textbook=textbook,
        iid=iid,
        clears_floor=alpha >= FLOOR_ALPHA,
        deviations=tuple(sorted(found, key=lambda each: not each.applies)),
    )


def break_even_alpha(*, draft_tokens: int, overhead: float) -> float:
    """The textbook's ε / K. Above 1 no acceptance breaks even.

    Raises:
        BadInputError: K outside 1 to 1000, or ε negative.

    """
    _need_terms(draft_tokens, overhead)
    return overhead / draft_tokens


def alpha_for(speedup: float, *, draft_tokens: int, overhead: float) -> float | None:
    """The α that the textbook asks for a speed-up: (S·(1 + ε) − 1) / K, 0 where less would do, None where it exceeds 1.

    Raises:
        BadInputError: S not above 0, K below 1, or ε negative.

    """
    _need_terms(draft_tokens, overhead)
    _need_speedup(speedup)
    alpha = max(0.0, (speedup * (1 + overhead) - 1) / draft_tokens)
    return alpha if alpha <= 1 else None


def overhead_elasticity(speedup: float, *, draft_tokens: int, overhead: float) -> float:
    """By how many percent the α for a speed-up rises when ε rises by one percent: S·ε / (S·(1 + ε) − 1). The slope itself is S / K.

    Raises:
        BadInputError: S·(1 + ε) is at most 1, so that every α gives that speed-up; or K below 1 or ε negative.

    """
    _need_terms(draft_tokens, overhead)
    _need_speedup(speedup)
    needed = speedup * (1 + overhead) - 1
    if needed <= 0:
        raise BadInputError(f"a speed-up of {speedup!r} at overhead {overhead!r} needs no acceptance, so nothing about it is sensitive")
    return speedup * overhead / needed


def walltime_improvement(beta: float, *, draft_tokens: int, cost: float) -> float:
    """Leviathan's expected improvement in wall time: E / (K·c + 1), verification taken for free; c is a draft step over a target step.

    Source: theorem 3.8.

    Raises:
        BadInputError: β outside [0, 1], K below 1, or c negative.

    """
    _need_terms(draft_tokens, cost)
    return tokens_from_conditional(beta, draft_tokens=draft_tokens) / (draft_tokens * cost + 1)


def operations_ratio(beta: float, *, draft_tokens: int, cost: float) -> float:
    """Leviathan's factor on arithmetic operations: (K·ĉ + K + 1) / E, at least 1; ĉ is draft operations over target operations per token.

    Source: theorem 3.11.

    Raises:
        BadInputError: β outside [0, 1], K below 1, or ĉ negative.

    """
    _need_terms(draft_tokens, cost)
    return (draft_tokens * cost + draft_tokens + 1) / tokens_from_conditional(beta, draft_tokens=draft_tokens)


def _conditional_for(speedup: float, *, draft_tokens: int, overhead: float) -> float | None:
    tokens = speedup * (1 + overhead)
    return conditional_from_tokens(tokens, draft_tokens=draft_tokens) if tokens <= draft_tokens + 1 else None


def _need_share(alpha: float) -> None:
    if not (isfinite(alpha) and 0 <= alpha <= 1):
        raise BadInputError(f"α = {alpha!r} is not between 0 and 1; give a fraction, not percent")


def _need_speedup(speedup: float) -> None:
    if not (isfinite(speedup) and speedup > 0):
        raise BadInputError(f"speed-up {speedup!r} is not above 0")


def _need_terms(draft_tokens: int, overhead: float) -> None:
    if not 1 <= draft_tokens <= MOST_DRAFT_TOKENS:
        raise BadInputError(f"draft length {draft_tokens!r} is not between 1 and {MOST_DRAFT_TOKENS}")
    if not (isfinite(overhead) and overhead >= 0):
        raise BadInputError(f"overhead {overhead!r} is not a share from 0 on; .1 means that a speculative step takes 10 % longer")


def _deviations(*, alpha: float, draft_tokens: int, overhead: float, textbook: Answer, iid: Answer) -> list[Deviation]:
    K, E = draft_tokens, textbook.expected_tokens
    excess = E / iid.expected_tokens - 1
    unreachable = [f"{S}x" for S, value in textbook.alpha_for.items() if value is None]
    pays = textbook.speedup > 1
    clears = alpha >= FLOOR_ALPHA
    found = [
        Deviation(
            code="alpha_is_not_beta",
            applies=excess > 0.05,
            message=f"1 + K·α is exact only if α = {alpha:.4g} counts accepted over drafted tokens. If it is the acceptance of one draft "
            "given "
            f"the ones before it, as papers state it, a step gives {iid.expected_tokens:.2f} tokens and not {E:.2f} ({excess:+.0%}).",
        ),
        Deviation(
            code="overhead_too_low",
            applies=overhead < 0.3 and K >= 3,
            message=f"ε = {overhead:.4g} is below what was measured: .3 to .5 at batch 1 with EAGLE-3, K = 3, on 8B and 70B (H100), .28 to "
            "1.34 at batch 32 (B200, SPEED-Bench). Use the forecast's step-time ratio for your batch and context.",
        ),
        Deviation(
            code="floor_is_no_law",
            applies=clears != pays,
            message=f"α = {alpha:.4g} is {'above' if clears else 'below'} the floor of {FLOOR_ALPHA}, and S = {textbook.speedup:.2f}. Most "
            "EAGLE-3 deployments with K = 5 or 7 run at α .25 to .5 and are 1.5 to 2.5 times faster. Gate on the speed-up, not on α.",
        ),
        *GENERAL_DEVIATIONS,
    ]
    if overhead > K:
        message = f"ε / K = {overhead / K:.2f} exceeds 1: at this overhead no acceptance breaks even."
        found.append(Deviation(code="break_even_out_of_reach", applies=True, message=message))
    if unreachable:
        most = (1 + K) / (1 + overhead)
        message = f"{' and '.join(unreachable)} would take an α above 1: K = {K} at ε = {overhead:.4g} gives at most {most:.2f}x."
        found.append(Deviation(code="speedup_out_of_reach", applies=True, message=message))
    return found


GENERAL_DEVIATIONS = (
    Deviation(
        code="overhead_is_not_constant",
        applies=True,
        message="ε is no constant: it grows with batch once batch · (K + 1) passes 200 to 300 tokens and shrinks with context. The "
        "break-even "
        "at 256 requests is not .45 to .55: .50, .33 and .17 on 8B bf16 (H100) at 200, 700 and 2,000 tokens of context, .68 to .20 on "
        "70B fp8.",
    ),
    Deviation(
        code="no_reroll",
        applies=False,
        message="A rejected draft does not cost a second forward of the target: the corrected token comes from the same pass (Leviathan, "
        "algorithm 1). What is lost is the drafting and the verifying of the rejected tokens.",
    ),
    Deviation(
        code="p99_gap_always_rises",
        applies=False,
        message="A gate on the P99 gap between chunks fails where users gain: each chunk waits a whole, longer step, even at twice the "
        "speed; it holds by chance, where others' prefills make the longest gaps. Time per output token and time to first token can be "
        "compared.",
    ),
    Deviation(
        code="batch_one_is_best",
        applies=False,
        message="Offline work at batch 1 is where drafting pays most, not least: decoding is bound by memory there.",
    ),
    Deviation(
        code="short_outputs",
        applies=False,
        message="Outputs below 50 tokens gain little because prefill is most of their time (.81 to 1.03 times on GB300 with 2,000 tokens "
        "in "
        "and 64 out), not because drafting would fail on them.",
    ),
    Deviation(
        code="method_bands",
        applies=False,
        message="The bands of α by method mix definitions: EAGLE-2 accepts as EAGLE-1 does and gains by its tree; accepted over drafted "
        "tokens, EAGLE-1 is at .42 to .46 (K = 3), EAGLE-3 at .43 to .65 (K = 3) and .25 to .4 (K = 7).",
    ),
    Deviation(
        code="fp8_weights",
        applies=False,
        message="Llama-3.3-70B in fp8 reads about 71 GB of weights per forward; 140 GB is bf16, which does not fit one 80 GB GPU.",
    ),
)
