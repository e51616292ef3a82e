"""What chance decides about acceptance: each request's keys for its hashed draws, and how easy its text is to draft.

Requests differ. Request r has z_r ~ N(0, 1) and accepts its i-th draft, given the ones before, with probability

    β_i(z) = logistic(base_i + spread · z),        s_i(z) = β_1(z) · … · β_i(z),        E(z) = 1 + coverage · Σ s_i(z)

What was stated is the survival pooled over drafted steps. A request of n tokens takes n / E(z) steps, so hard requests weigh more:

    s_i = ∫ φ(z) s_i(z) / E(z) dz  /  ∫ φ(z) / E(z) dz

`base_logits` solves this for base_1 … base_K. A conditional acceptance of 0 or 1 is the same for everybody: its base is −∞ or +∞.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from paceline.speculation.acceptance import Acceptance

__all__ = ["Chance", "base_logits", "chance", "conditional_at", "conditional_by_request", "pooled_survival"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

KEY_VALUES = 2**32
# The trapezoid rule converges geometrically here; at spread 10 its error is below 1e-9 with these nodes.
NODES = np.linspace(-9.0, 9.0, 241)
DENSITY = np.exp(-(NODES**2) / 2)
SETTLED = 1e-12
BISECTION_STEPS = 60
LARGEST_LOGIT = 150.0


@dataclass(frozen=True, slots=True, eq=False)
class Chance:
    """What chance gives each request, whatever the schedule and the load: `keys` of its draws [requests, 2] and `ease` z [requests]."""

    keys: IntArray  # [requests, 2]
    ease: FloatArray  # [requests]


def chance(seed: int, *, requests: int) -> Chance:
    """Keys (uniform 32-bit words) and ease (standard normal) of each request; the first requests' do not depend on how many follow."""
    for_keys, for_ease = np.random.default_rng(seed).spawn(2)
    return Chance(keys=for_keys.integers(0, KEY_VALUES, size=(requests, 2), dtype=np.int64), ease=for_ease.standard_normal(requests))


def _logistic(logit: FloatArray) -> FloatArray:
    return 0.5 + 0.5 * np.tanh(logit / 2)


def conditional_at(base: FloatArray, *, spread: float, ease: FloatArray) -> FloatArray:
    """β_i(z) for each z in `ease`, shape [len(ease), K]."""
    return _logistic(base[None, :] + spread * ease[:, None])


def _survival_at_nodes(base: FloatArray, spread: float) -> FloatArray:
    return np.asarray(np.cumprod(conditional_at(base, spread=spread, ease=NODES), axis=1), dtype=np.float64)


def _weights(survival: FloatArray, coverage: float) -> FloatArray:
    """Each node's share of steps, from s_i(z) [nodes, K]."""
    raw = DENSITY / (1 + coverage * survival.sum(axis=1))
    shares: FloatArray = raw / raw.sum()
    return shares


def pooled_survival(base: FloatArray, *, spread: float, coverage: float) -> FloatArray:
    """Survival pooled over drafted steps of requests that differ by `spread`, shape [K]: the integral above."""
    survival = _survival_at_nodes(base, spread)
    pooled: FloatArray = _weights(survival, coverage) @ survival
    return pooled


@lru_cache(maxsize=1024)
def base_logits(acceptance: Acceptance, *, spread: float) -> FloatArray:
    """base_1 … base_K with which survival pooled over steps is the stated one (to 1e-9), shape [K].

    Fixed point over the weights 1 / E(z), until the gap is below 1e-12 or shrinks no more; with the weights held, position after position
    by bisection. The array is kept for the next time, and read-only: a sweep asks for the same ones at every load.
    """
    stated = np.array(acceptance.survival)
    base, shares = np.zeros(acceptance.draft_tokens), DENSITY / DENSITY.sum()
    gap_before, gap = np.inf, 2.0  # no gap between probabilities is as large
    while SETTLED < gap < gap_before:
        base = _solved(acceptance.survival, shares=shares, spread=spread)
        survival = _survival_at_nodes(base, spread)
        shares = _weights(survival, acceptance.coverage)
        gap_before, gap = gap, float(np.abs(shares @ survival - stated).max())
    base.flags.writeable = False
    return base


def _solved(stated: tuple[float, ...], *, shares: FloatArray, spread: float) -> FloatArray:
    """The bases that give the stated survival under these shares of steps."""
    reaching = shares
    bases = []
    for before, after in pairwise((1.0, *stated)):
        base = _base(after, before, reaching=reaching, spread=spread)
        bases.append(base)
        reaching = reaching * _logistic(base + spread * NODES)
    return np.array(bases)


def _base(after: float, before: float, *, reaching: FloatArray, spread: float) -> float:
    """The base with which `after` of the steps survive, of the `reaching` mass (`before` in all) that comes so far."""
    if after <= 0:
        return -np.inf
    if after >= before:
        return np.inf
    low, high = -LARGEST_LOGIT, LARGEST_LOGIT
    for _ in range(BISECTION_STEPS):
        middle = (low + high) / 2
        if float(reaching @ _logistic(middle + spread * NODES)) < after:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def conditional_by_request(
    acceptance: Mapping[str, Acceptance], segments: tuple[str, ...], *, draft_tokens: int, spread: float, ease: FloatArray
) -> FloatArray:
    """Each request's conditional acceptance by position, shape [requests, K]; `segments` names each request's."""
    of_segment = np.array(segments)
    rows = np.zeros((len(segments), draft_tokens))
    for segment in sorted(set(segments)):
        mine = of_segment == segment
        if spread == 0:
            stated = acceptance[segment].conditional
            rows[mine, : len(stated)] = stated
        else:
            rows[mine] = conditional_at(base_logits(acceptance[segment], spread=spread), spread=spread, ease=ease[mine])
    return rows
