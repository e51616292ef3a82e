"""How much of what a load-test shows is its own doing.

The client has a lateness too: a busy event loop stamps a chunk after it came. That error is the same for both arms where they are equally
busy, and a difference between them where one sends more messages. So the test is refused where the client's own error is a visible share of
the effect it is to show, or of the smallest effect that would matter.
"""

from paceline.errors import BadInputError
from paceline.verdict import Caution

__all__ = ["CLIENT_SATURATED", "client_caution", "own_share"]

CLIENT_SATURATED = "client_saturated"
SMALLEST_EFFECT = 0.05
VISIBLE_SHARE = 0.1
BUSY_SHARE = 0.9


def own_share(own_s: float, *, baseline_s: float, speculative_s: float) -> float:
    """The client's own error as a share of |speculative − baseline|, or of 5 % of the baseline where that is more; 0 where all is 0.

    Raises:
        BadInputError: a time is negative.

    """
    if min(own_s, baseline_s, speculative_s) < 0:
        raise BadInputError(f"times below 0: own {own_s!r} s, baseline {baseline_s!r} s, speculative {speculative_s!r} s")
    effect_s = max(abs(speculative_s - baseline_s), SMALLEST_EFFECT * baseline_s)
    return 0.0 if own_s == 0 else own_s / effect_s if effect_s else float("inf")


def client_caution(metric: str, own_s: float, *, baseline_s: float, speculative_s: float, cpu_share: float | None) -> Caution | None:
    """What to say where the client's own error is visible in `metric`, or its processor was busy throughout; None where neither is.

    `cpu_share` is the client's CPU seconds per second, None where it was not measured.
    """
    share = own_share(own_s, baseline_s=baseline_s, speculative_s=speculative_s)
    if share > VISIBLE_SHARE:
        return Caution(
            CLIENT_SATURATED,
            f"the client's own lateness ({1000 * own_s:.2f} ms) is {share:.0%} of the effect on {metric}, so it cannot be told from the "
            "servers'; run the client on an idle machine of its own, or with fewer requests in flight",
        )
    if cpu_share is not None and cpu_share > BUSY_SHARE:
        return Caution(
            CLIENT_SATURATED,
            f"the client's processor was busy {cpu_share:.0%} of the time, so instants may be the client's and not the servers'; run it on "
            "an idle machine of its own, or with fewer requests in flight",
        )
    return None
