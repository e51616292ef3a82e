"""What SGLang's `accept rate` means in the version that printed it.

    0.5.4 to 0.5.5     (accepted + 1) / (steps + 1)                  τ / (num_steps + 1)
    0.5.6 to 0.5.10    (accepted + 1) / num_draft_tokens             τ / width: never below 1 / width
    0.5.11 on          accepted / (num_draft_tokens − 1)             (τ − 1) / (width − 1): accepted / drafted, over the *configured* width

`num_draft_tokens` counts the root, so width − 1 tokens are drafted. No scrape or log line says its version, but the acceptance length τ
beside the rate does: τ / rate is a whole number under the older meanings, (τ − 1) / rate under the newer one. Where several readings fit
all pairs of τ and rate, or none, the rate is not used.
Source: SGLang's metrics collector in 0.5.4, 0.5.6 and 0.5.11.
"""

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["RateMeaning", "rate_meaning"]

MOST_WIDTH = 512
SLACK = 1e-6


@dataclass(frozen=True, slots=True)
class RateMeaning:
    """A rate understood: tokens verified per step with the root (`width`), and whether the rate is the acceptance rate itself."""

    width: int
    rate_is_alpha: bool

    def alpha(self, length: float) -> float:
        """The acceptance rate at acceptance length τ: (τ − 1) / (width − 1)."""
        return (length - 1) / (self.width - 1)


def rate_meaning(pairs: Iterable[tuple[float, float]]) -> RateMeaning | None:
    """The one meaning that fits every pair of acceptance length and rate; None where several do, or none."""
    fitting = [_meanings(length, rate) for length, rate in pairs]
    common = frozenset.intersection(*fitting) if fitting else frozenset()
    return next(iter(common)) if len(common) == 1 else None


def _meanings(length: float, rate: float) -> frozenset[RateMeaning]:
    if not (length >= 1 and rate > 0):
        return frozenset()
    older, drafted = _whole(length / rate), _whole((length - 1) / rate)
    widths = ((older, False), (None if drafted is None else drafted + 1, True))
    return frozenset(RateMeaning(width, is_alpha) for width, is_alpha in widths if width is not None and width >= 2 and length <= width)


def _whole(value: float) -> int | None:
    nearest = round(value) if value <= MOST_WIDTH else 0
    return nearest if nearest >= 1 and abs(value - nearest) <= SLACK * nearest else None
