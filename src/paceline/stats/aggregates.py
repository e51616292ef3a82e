"""What a mean or a percentile without its requests may be off by: intervals for printed tables and counters.

A table or a counter says over how many requests it is, and that is most of what its precision hangs on; how far single requests lie apart
has to be fitted or assumed. So these intervals are weaker than those of `intervals` and `paired`, on purpose wider, and never used where
the requests themselves are known.

    mean         value · exp(± t · spread / √n)      spread: standard deviation of one request / mean, fitted where a percentile stands
                                                     beside the median, else ASSUMED_SPREAD
    percentile   log-normal through the median and the printed percentile; the share of requests that truly lie above the printed one of
                 n has a Beta distribution, whatever their distribution (David and Nagaraja, Order Statistics, 3rd edition, section 2.1)
    share        Wilson's interval as if each of n / UNEVEN requests were accepted or rejected whole: no dependence of tokens within a
                 request can make it wider

A fitted tail cannot see what no request of n showed: of a second kind of request that is rarer than one in n nothing is known.
"""

from math import exp, log, sqrt

from scipy.special import betaincinv, ndtri, stdtrit

from paceline.errors import BadInputError
from paceline.stats.intervals import FEWEST_CLUSTERS, wilson
from paceline.verdict import Estimate

__all__ = ["ASSUMED_SPREAD", "UNEVEN", "aggregate_mean", "aggregate_share", "fitted_quantile", "fitted_spread"]

ASSUMED_SPREAD = 0.5  # as a mix of segments that accept .1, .7 and .9 of K = 3 spreads; one kind of traffic spreads by .05 to .3
UNEVEN = 2.0  # requests of unequal length weigh like half as many of equal length (1 + their variation², taken as 1)
MOST_ERROR = 1.0  # beyond a factor e to either side an interval says nothing


def aggregate_mean(value: float, *, spread: float, n: int, confidence: float) -> Estimate:
    """The mean of `n` requests, known by its value alone, when one request spreads by `spread` (standard deviation / mean).

    Fewer than 8 requests, or an error beyond a factor e, leave both ends None.
    """
    error = float(stdtrit(n - 1, (1 + confidence) / 2)) * spread / sqrt(n) if n >= FEWEST_CLUSTERS else MOST_ERROR + 1
    known = value > 0 and error <= MOST_ERROR
    low, high = (value * exp(-error), value * exp(error)) if known else (None, None)
    return Estimate(value=value, low=low, high=high, confidence=confidence, n=n)


def aggregate_share(share: float, *, n: int, confidence: float) -> Estimate:
    """A share pooled over the tokens of `n` requests; fewer than 8 leave both ends None."""
    if n < FEWEST_CLUSTERS:
        return Estimate(value=share, low=None, high=None, confidence=confidence, n=n)
    whole = max(1, int(n / UNEVEN))
    found = wilson(successes=share * whole, n=whole, confidence=confidence)
    return Estimate(value=share, low=found.low, high=found.high, confidence=confidence, n=n)


def fitted_spread(middle: float, tail: float, q: float, *, n: int, confidence: float) -> float | None:
    """Standard deviation / mean of one request: the widest log-normal that `n` requests with this median and q-quantile allow.

    None where they allow any.

    Raises:
        BadInputError: q is not above one half.

    """
    sigma = _sigma(middle, tail, q, n=n, chance=(1 + confidence) / 2)
    return None if sigma is None or sigma > 5 else sqrt(exp(sigma**2) - 1)


def fitted_quantile(middle: float, tail: float, q: float, *, n: int, confidence: float) -> Estimate:
    """The q-quantile, of which `tail` was printed beside the median `middle` over `n` requests; both ends None where nothing can be fitted.

    Raises:
        BadInputError: q is not above one half.

    """
    widest, narrowest = (_sigma(middle, tail, q, n=n, chance=each) for each in ((1 + confidence) / 2, (1 - confidence) / 2))
    if n < FEWEST_CLUSTERS or widest is None or narrowest is None:
        return Estimate(value=tail, low=None, high=None, confidence=confidence, n=n)
    factor = float(ndtri(q))
    low, high = (middle * exp(factor * each) for each in (narrowest, widest))
    return Estimate(value=tail, low=min(tail, low), high=max(tail, high), confidence=confidence, n=n)


def _sigma(middle: float, tail: float, q: float, *, n: int, chance: float) -> float | None:
    """Standard deviation of logarithms if the share of requests above `tail` is as large as it is with probability `chance`."""
    if not 0.5 < q < 1:
        raise BadInputError(f"a tail is fitted to a quantile above one half, not {q!r}")
    if not 0 < middle <= tail:
        return None
    place = 1 + (n - 1) * q  # of the printed percentile among the ordered requests (type 7)
    above = float(betaincinv(n + 1 - place, place, chance))
    return None if above >= 0.5 else log(tail / middle) / -float(ndtri(above))
