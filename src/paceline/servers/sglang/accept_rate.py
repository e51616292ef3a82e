"""What SGLang's `accept rate` means in the version that printed it.

    0.5.4 to 0.5.5     (accepted + 1) / (steps + 1)                  τ / (num_steps + 1)
    0.5.6 to 0.5.10    (accepted + 1) / num_draft_tokens             τ / width: never below 1 / width
    0.5.11 on          accepted / (num_draft_tokens − 1)             (τ − 1) / (width − 1): accepted / drafted, over the *configured* width

`num_draft_tokens` counts the root, so width − 1 tokens are drafted. No scrape or log line says its version, but the acceptance length τ
beside the rate does: τ / rate is a whole number under the older meanings, (τ − 1) / rate under the newer one. Where both are, or neither,
the rate is not used.
Source: SGLang's metrics collector in 0.5.4, 0.5.6 and 0.5.11.
"""

from dataclasses import dataclass

__all__ = ["RateMeaning", "rate_meaning"]

MOST_WIDTH = 512
SLACK = 1e-6


@dataclass(frozen=True, slots=True)
class RateMeaning:
    """A rate understood: tokens verified per step with the root (`width`), the acceptance rate α, and whether the rate itself was α."""

    width: int
    alpha: float
    rate_is_alpha: bool


def rate_meaning(length: float, rate: float) -> RateMeaning | None:
    """What a rate means that stands beside acceptance length τ; None where both meanings fit, or neither."""
    if not (length >= 1 and rate > 0):
        return None
    older, drafted = _whole(length / rate), _whole((length - 1) / rate)
    newer = None if drafted is None else drafted + 1
    fitting = [
        (width, is_alpha) for width, is_alpha in ((older, False), (newer, True)) if width is not None and width >= 2 and length <= width
    ]
    if len(fitting) != 1:
        return None
    ((width, is_alpha),) = fitting
    return RateMeaning(width=width, alpha=(length - 1) / (width - 1), rate_is_alpha=is_alpha)


def _whole(value: float) -> int | None:
    nearest = round(value) if value <= MOST_WIDTH else 0
    return nearest if nearest >= 1 and abs(value - nearest) <= SLACK * nearest else None
