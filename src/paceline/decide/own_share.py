"""How much of what a load-test shows is its own doing.

The client has a lateness too: a busy event loop stamps a chunk after it came. That error is the same for both arms where they are equally
busy, and a difference between them where one sends more messages. So the test is refused where the client's own error is a visible share of
the effect it is to show, or of the smallest effect that would matter.
"""

from collections.abc import Sequence

import numpy as np

from paceline.errors import BadInputError
from paceline.latency import samples
from paceline.run import Run
from paceline.verdict import Caution

__all__ = ["CLIENT_SATURATED", "client_caution", "client_cautions", "own_share"]

CLIENT_SATURATED = "client_saturated"
SMALLEST_EFFECT = 0.1
VISIBLE_SHARE = 0.2
BUSY_SHARE = 0.9
FELT_IN = {"ttft_s": "the time to first token's", "chunk_gap_s": "the gap between chunks'"}
TAIL_WEIGHS = 5  # one stamp in a hundred that is late by the whole effect hides it as well as all of them late by a fifth of it


def own_share(own_s: float, *, baseline_s: float, speculative_s: float) -> float:
    """The client's own error as a share of |speculative − baseline|, or of 10 % of the baseline where that is more; 0 where all is 0.

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
    return _busy(cpu_share)


def _alone(metric: str, own_s: float, *, tail_s: float, cpu_share: float | None) -> Caution | None:
    """The same of one arm, where there is no effect yet: against the latency itself, and as much as the smallest effect that matters."""
    if own_s > SMALLEST_EFFECT * tail_s:
        share = f"{own_s / tail_s:.0%}" if tail_s else "more than all"
        return Caution(
            CLIENT_SATURATED,
            f"the client's own lateness ({1000 * own_s:.2f} ms) is {share} of {FELT_IN[metric]} tail ({1000 * tail_s:.2f} ms), which is "
            "not the server's alone; run the client on an idle machine of its own, or with fewer requests in flight",
        )
    return _busy(cpu_share)


def _busy(cpu_share: float | None) -> Caution | None:
    if cpu_share is not None and cpu_share > BUSY_SHARE:
        return Caution(
            CLIENT_SATURATED,
            f"the client's processor was busy {cpu_share:.0%} of the time, so instants may be the client's and not the servers'; run it on "
            "an idle machine of its own, or with fewer requests in flight",
        )
    return None


def client_cautions(runs: Sequence[Run]) -> tuple[Caution, ...]:
    """What to say of the client that measured these arms (one, or the baseline and the speculative one); nothing where none says how
    late it was. The tails of time to first token and of the gap between chunks are what it could hide.
    """
    own_s = _worst(runs, "client_lag_mean_s")
    if own_s is None:
        return ()
    tail_s = (_worst(runs, "client_lag_s") or 0.0) / TAIL_WEIGHS
    late_s = (_worst(runs, "client_late_s") or 0.0) / TAIL_WEIGHS  # a request that left late waits longer for its first token
    busy = _worst(runs, "client_cpu_share")
    found = []
    for metric in FELT_IN:
        tails = [_tail_s(run, metric) for run in runs]
        known = [each for each in tails if each is not None]
        if known:
            own = max(own_s, tail_s, late_s if metric == "ttft_s" else 0.0)
            if len(runs) == 1:
                found.append(_alone(metric, own, tail_s=known[0], cpu_share=busy))
            else:
                found.append(client_caution(metric, own, baseline_s=known[0], speculative_s=known[-1], cpu_share=busy))
    return tuple(dict.fromkeys(each for each in found if each is not None))


def _worst(runs: Sequence[Run], name: str) -> float | None:
    return max((run.summaries[name].value for run in runs if name in run.summaries), default=None)


def _tail_s(run: Run, metric: str) -> float | None:
    if run.requests is None:
        return None
    values = samples(metric, [each.timing for each in run.finished])
    return float(np.quantile(values, 0.99)) if values.size else None
