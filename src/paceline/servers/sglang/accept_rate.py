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


@dataclass(frozen=True, slots=True)
class RateMeaning:
    """A rate understood: tokens verified per step with the root (`width`), the acceptance rate α, and whether the rate itself was α."""

    width: int
    alpha: float
    rate_is_alpha: bool


def rate_meaning(length: float, rate: float, *, length_error: float, rate_error: float) -> RateMeaning | None:
    """What a rate printed beside acceptance length τ means; None where both meanings fit, or neither.

    The errors are half of the last printed digit (0 for full floats).
    """
    if not (length >= 1 and rate > 0):
        return None
    with_bonus = _whole(length, rate, length_error, rate_error)
    without = _whole(length - 1, rate, length_error, rate_error)
    strict = None if without is None else without + 1
    older = with_bonus if with_bonus is not None and with_bonus >= 2 and length <= with_bonus + length_error else None
    newer = strict if strict is not None and length <= strict + length_error else None
    if (older is None) == (newer is None):
        return None
    width = older if older is not None else newer
    assert width is not None
    return RateMeaning(width=width, alpha=(length - 1) / (width - 1), rate_is_alpha=older is None)


def _whole(top: float, rate: float, top_error: float, rate_error: float) -> int | None:
    """The one whole number that top / rate can be within the errors, None where there is none or several."""
    slack = 1e-6
    low = (top - top_error) / (rate + rate_error) - slack
    high = (top + top_error) / max(rate - rate_error, 1e-9) + slack
    inside = [k for k in range(max(1, int(low)), min(MOST_WIDTH, int(high)) + 1) if low <= k <= high]
    return inside[0] if len(inside) == 1 else None
