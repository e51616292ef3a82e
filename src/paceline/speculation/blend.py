"""Acceptance of mixed traffic from its segments."""

from collections.abc import Mapping
from itertools import accumulate
from math import isfinite

from paceline.errors import BadInputError, NoEvidenceError
from paceline.speculation.acceptance import Acceptance

__all__ = ["blend_by_drafted_tokens", "blend_by_generated_tokens"]


def blend_by_drafted_tokens(alphas: Mapping[str, float], drafted_tokens: Mapping[str, float]) -> float:
    """α of mixed traffic from each segment's α and its drafted tokens, or shares of them: Σ d_j·α_j / Σ d_j.

    This equals pooling the counts.

    Raises:
        BadInputError: the names differ, a weight is negative, or an α is not between 0 and 1.
        NoEvidenceError: no segment drafted anything.

    """
    weights = _weights(drafted_tokens, alphas)
    if any(not (isfinite(each) and 0 <= each <= 1) for each in alphas.values()):
        raise BadInputError(f"acceptance rates {dict(alphas)!r} are not all between 0 and 1; give fractions, not percent")
    # both sums run in one order, so rounding cannot lift α past the largest of the segments' by more than the last bit, nor past 1
    return sum(weights[name] * alphas[name] for name in alphas) / sum(weights[name] for name in alphas)


def blend_by_generated_tokens(segments: Mapping[str, Acceptance], shares: Mapping[str, float]) -> Acceptance:
    """Acceptance of mixed traffic from each segment's acceptance and its share g of *generated* tokens; equals pooling the counts.

    A segment's steps are in proportion to g / E, so tokens per step blend harmonically, E = 1 / Σ (g_j / E_j), and survival by drafted
    steps g_j·coverage_j / E_j. Weighting α by requests or by generated tokens instead is the common mistake.

    Raises:
        BadInputError: the names or the draft lengths differ, or a share is negative.
        NoEvidenceError: all shares are 0.

    """
    generated = _weights(shares, segments)
    lengths = {each.draft_tokens for each in segments.values()}
    if len(lengths) > 1:
        raise BadInputError(f"segments with draft lengths {sorted(lengths)} cannot be blended; bring them to one length first")
    steps = {name: generated[name] / each.tokens_per_step for name, each in segments.items()}
    drafts = {name: steps[name] * each.coverage for name, each in segments.items()}
    all_drafts = sum(drafts.values())
    if all_drafts == 0:
        return Acceptance(survival=(0.0,) * lengths.pop(), coverage=0.0)
    columns = zip(*(tuple(drafts[name] * s for s in each.survival) for name, each in segments.items()), strict=True)
    pooled = [min(1.0, sum(column) / all_drafts) for column in columns]
    monotone = tuple(accumulate(pooled, min))  # guards the last bit of rounding only
    return Acceptance(survival=monotone, coverage=min(1.0, all_drafts / sum(steps.values())))


def _weights(weights: Mapping[str, float], named: Mapping[str, object]) -> dict[str, float]:
    if set(weights) != set(named):
        raise BadInputError(f"weights are given for {sorted(weights)}, segments for {sorted(named)}")
    if any(not isfinite(each) or each < 0 for each in weights.values()):
        raise BadInputError(f"weights {dict(weights)!r} are not all numbers from 0 on")
    total = sum(weights.values())
    if total == 0:
        raise NoEvidenceError("all weights are 0, so there is nothing to blend")
    return {name: each / total for name, each in weights.items()}
