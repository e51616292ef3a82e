"""What moves acceptance away from where it was measured: context beyond the draft's, and sampling temperature.

Both scale the drafted tokens of a step, τ − 1, and with them survival at every position, by shares from data/acceptance_model.toml. Each
comes from few measurements, so the ranges are wide and the labels say so. Neither applies unless asked for: acceptance that was measured
at the context and temperature of production needs no shift.
"""

from math import exp, isfinite

from paceline.data.tables import table
from paceline.errors import BadInputError
from paceline.forecast.acceptance_model import RangedAcceptance, scaled

__all__ = ["at_temperature", "beyond_draft_context"]


def beyond_draft_context(given: RangedAcceptance, *, context_tokens: int, draft_context_tokens: int) -> RangedAcceptance:
    """Acceptance of a draft trained on `draft_context_tokens` of context, at `context_tokens`; the same up to that length.

    Beyond it max(floor, exp(−(x / scale)^power)) of the drafted tokens are left, x the tokens beyond. The range reaches from half that
    scale to no decay at all, as drafts with sliding-window attention show it.

    Raises:
        BadInputError: a length below 1.

    """
    if context_tokens < 1 or draft_context_tokens < 1:
        raise BadInputError(f"context of {context_tokens!r} and of the draft {draft_context_tokens!r} are token counts from 1 on")
    if context_tokens <= draft_context_tokens:
        return given
    row = table("acceptance_model")["context"]
    beyond = (context_tokens - draft_context_tokens) / row["scale_tokens"]

    def left(stretch: float) -> float:
        return max(float(row["floor"]), exp(-((beyond / stretch) ** float(row["power"]))))

    kept = left(1.0)
    label = f"context {context_tokens:,} beyond the draft's {draft_context_tokens:,}: {kept:.0%} of drafted tokens kept (one head measured)"
    return scaled(given, kept=kept, least_kept=left(row["pessimistic_scale"]), most_kept=1.0, label=label)


def at_temperature(given: RangedAcceptance, *, temperature: float) -> RangedAcceptance:
    """Acceptance of greedy drafts at `temperature`, from acceptance at temperature 0: kept^T of the drafted tokens are left.

    A greedy draft proposes its argmax, and the target takes it with the probability that it gives that token, which falls as the
    temperature rises. Drafts that are sampled lose less.

    Raises:
        BadInputError: a temperature below 0, or not finite.

    """
    if not (isfinite(temperature) and temperature >= 0):
        raise BadInputError(f"temperature {temperature!r} is not a number from 0 on")
    if temperature == 0:
        return given
    row = table("acceptance_model")["temperature"]
    kept, least, most = (row[name] ** temperature for name in ("kept", "least_kept", "most_kept"))
    label = f"temperature {temperature:g} instead of 0: {kept:.0%} of drafted tokens kept ({least:.0%} to {most:.0%} published)"
    return scaled(given, kept=kept, least_kept=least, most_kept=most, label=label)
