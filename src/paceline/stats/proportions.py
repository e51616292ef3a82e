"""Two shares compared.

The interval of a difference is Newcombe's hybrid of two Wilson intervals (Newcombe 1998, Statistics in Medicine 17, method 10), which works
at 0 and at n successes. The exact test of a change within pairs is the sign test on the pairs that changed (McNemar 1947).
"""

from math import hypot

from scipy.special import bdtr

from paceline.verdict import Estimate

__all__ = ["share_difference", "sign_test"]


def share_difference(left: Estimate, right: Estimate) -> Estimate:
    """`left` − `right` of two independent shares with Wilson intervals, in [−1, 1]; its n is the smaller one."""
    assert left.low is not None
    assert left.high is not None
    assert right.low is not None
    assert right.high is not None
    value = left.value - right.value
    low = value - hypot(left.value - left.low, right.high - right.value)
    high = value + hypot(left.high - left.value, right.value - right.low)
    return Estimate(value=value, low=max(-1.0, low), high=min(1.0, high), confidence=left.confidence, n=min(left.n, right.n))


def sign_test(worse: int, better: int) -> float:
    """The chance of at least so many `worse` among the pairs that changed, if neither direction were likelier; 1 where none changed."""
    changed = worse + better
    return float(bdtr(better, changed, 0.5)) if changed else 1.0
