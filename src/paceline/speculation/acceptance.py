"""What a forecast or a simulation is told about acceptance, however it was stated."""

from dataclasses import dataclass
from itertools import pairwise
from math import isfinite

from paceline.errors import BadInputError, is_count, printable
from paceline.speculation.counts import AcceptanceCounts, conditional_acceptance

__all__ = ["Acceptance", "conditional_from_tokens", "tokens_from_conditional"]


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What a forecast or a simulation is told about acceptance: survival by position in drafted steps, and coverage.

    `survival[i]` is the probability that the first i + 1 drafts are accepted; its length is the draft length K. `coverage` is the share of
    steps that have a draft (1 for every method but n-gram and suffix).
    """

    survival: tuple[float, ...]
    coverage: float

    def __post_init__(self) -> None:
        """Reject probabilities outside [0, 1], survival that rises, and an empty vector.

        Raises:
            BadInputError: with the value.

        """
        if not self.survival:
            raise BadInputError("survival has no positions; give one probability per drafted token")
        for name, value in [
            ("coverage", self.coverage),
            *((f"survival at position {i}", s) for i, s in enumerate(self.survival, 1)),
        ]:
            if not (isfinite(value) and 0 <= value <= 1):
                raise BadInputError(f"{name} = {value!r} is not a probability between 0 and 1")
        for i, (before, after) in enumerate(pairwise(self.survival), 2):
            if after > before:
                raise BadInputError(
                    f"survival rises from {before!r} to {after!r} at position {i}; a draft survives only if the ones before it do"
                )

    @classmethod
    def from_alpha(cls, alpha: float, *, draft_tokens: int) -> "Acceptance":
        """From accepted / drafted tokens at draft length K. Of all shapes with this α the i.i.d. one is chosen; α and E are exact.

        Raises:
            BadInputError: α outside [0, 1] or K below 1.

        """
        _need_probability("acceptance rate", alpha)
        _need_draft_tokens(draft_tokens)
        beta = conditional_from_tokens(1 + alpha * draft_tokens, draft_tokens=draft_tokens)
        return cls.from_conditional(beta, draft_tokens=draft_tokens)

    @classmethod
    def from_conditional(cls, beta: float, *, draft_tokens: int) -> "Acceptance":
        """From one conditional acceptance β for all positions (Leviathan's α): survival β, β², …, β^K.

        Raises:
            BadInputError: β outside [0, 1] or K below 1.

        """
        _need_probability("conditional acceptance", beta)
        _need_draft_tokens(draft_tokens)
        return cls(survival=tuple(beta**i for i in range(1, draft_tokens + 1)), coverage=1.0)

    @classmethod
    def from_acceptance_length(cls, length: float, *, draft_tokens: int) -> "Acceptance":
        """From tokens per drafted step τ, recovered or bonus token included: α = (τ − 1) / K.

        Raises:
            BadInputError: τ outside [1, K + 1] or K below 1.

        """
        _need_draft_tokens(draft_tokens)
        if not 1 <= length <= draft_tokens + 1:
            raise BadInputError(f"acceptance length {length!r} is not between 1 and K + 1 = {draft_tokens + 1}")
        return cls.from_alpha((length - 1) / draft_tokens, draft_tokens=draft_tokens)

    @classmethod
    def from_counts(cls, counts: AcceptanceCounts, *, draft_tokens: int) -> "Acceptance":
        """From what was measured at draft length K; positions never reached have survival 0.

        Raises:
            NoEvidenceError: nothing was drafted, or neither steps nor positions were counted.
            BadInputError: more positions were counted than K.

        """
        if len(counts.survival) > draft_tokens:
            raise BadInputError(f"measured at {len(counts.survival)} positions, more than the draft length {draft_tokens}")
        padded = counts.survival + (0.0,) * (draft_tokens - len(counts.survival))
        return cls(survival=padded, coverage=counts.coverage)

    @property
    def draft_tokens(self) -> int:
        """The draft length K."""
        return len(self.survival)

    @property
    def alpha(self) -> float:
        """Acceptance rate with full drafts: Σ s_i / K."""
        return sum(self.survival) / self.draft_tokens

    @property
    def acceptance_length(self) -> float:
        """τ = 1 + Σ s_i."""
        return 1 + sum(self.survival)

    @property
    def tokens_per_step(self) -> float:
        """E = 1 + coverage · Σ s_i."""
        return 1 + self.coverage * sum(self.survival)

    @property
    def conditional(self) -> tuple[float, ...]:
        """β_i = s_i / s_(i−1), up to the last position that is ever reached."""
        return conditional_acceptance(self.survival)

    def at(self, draft_tokens: int) -> "Acceptance":
        """The same drafts at another length: a shorter one is exact, a longer one goes on with the last conditional acceptance.

        The longer one is an extrapolation, and an optimistic one: conditional acceptance usually falls with position. A forecast takes
        `forecast.acceptance_model`, which models that and gives a range.

        Raises:
            BadInputError: K below 1.

        """
        _need_draft_tokens(draft_tokens)
        kept = self.survival[:draft_tokens]
        before = self.survival[-2] if len(self.survival) > 1 else 1.0
        ratio = self.survival[-1] / before if before > 0 else 0.0
        tail = tuple(self.survival[-1] * ratio**i for i in range(1, draft_tokens - len(kept) + 1))
        return Acceptance(survival=kept + tail, coverage=self.coverage)


def _need_probability(name: str, value: float) -> None:
    if not (isfinite(value) and 0 <= value <= 1):
        raise BadInputError(f"{name} {value!r} is not between 0 and 1; give a fraction, not percent")


def _need_draft_tokens(draft_tokens: int) -> None:
    if not is_count(draft_tokens, least=1):
        raise BadInputError(f"draft length {printable(draft_tokens)} is not a whole number from 1 on")


def tokens_from_conditional(beta: float, *, draft_tokens: int) -> float:
    """Tokens per drafted step when each draft is accepted with probability β: (1 − β^(K+1)) / (1 − β) = Σ_{i=0..K} β^i, in [1, K + 1].

    Source: Leviathan et al., arXiv 2211.17192, equation 1.

    Raises:
        BadInputError: β outside [0, 1] or K below 1.

    """
    _need_probability("conditional acceptance", beta)
    _need_draft_tokens(draft_tokens)
    return sum(beta**i for i in range(draft_tokens + 1))


def conditional_from_tokens(tokens: float, *, draft_tokens: int) -> float:
    """The β with `tokens_from_conditional(β) = tokens`, by bisection (the function rises strictly on [0, 1]).

    Raises:
        BadInputError: tokens outside [1, K + 1] or K below 1.

    """
    _need_draft_tokens(draft_tokens)
    if not 1 <= tokens <= draft_tokens + 1:
        raise BadInputError(f"{tokens!r} tokens per drafted step is not between 1 and K + 1 = {draft_tokens + 1}")
    if tokens == 1:
        return 0.0  # 1 + β rounds to 1 for a whole range of β; bisection would return its upper end
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        if tokens_from_conditional(middle, draft_tokens=draft_tokens) < tokens:
            low = middle
        else:
            high = middle
    return high
