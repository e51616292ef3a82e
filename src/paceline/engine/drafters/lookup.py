"""Drafts looked up in text, by the rules that `replay` judges on logs: n-gram and suffix."""

from collections import deque
from collections.abc import Sequence

import numpy as np

from paceline.engine.drafters.drafter import LoneDrafting, drafted_alone
from paceline.engine.rows import Answered
from paceline.engine.speculative_sampling import Chance, Draft, chain
from paceline.replay.ngram import NgramRule, propose
from paceline.replay.suffix import SuffixRule, propose_suffix

__all__ = ["NgramDrafter", "SuffixDrafter"]


class NgramDrafter:
    """Drafts what followed the context's end where it occurred before."""

    hidden_layers: tuple[int, ...] = ()

    def __init__(self, rule: NgramRule) -> None:
        self._rule = rule

    def begin(self) -> "NgramDrafter":
        """Start with a new sequence."""
        return self

    def draft_together(
        self, draftings: Sequence[LoneDrafting], contexts: Sequence[Sequence[int]], chances: Sequence[Chance]
    ) -> list[Draft]:
        """What follows each context."""
        return drafted_alone(draftings, contexts, chances)

    def observe(self, answered: Answered, kept: Sequence[int] | None) -> None:
        """Nothing is read off the target."""

    def draft(self, context: Sequence[int], chance: Chance) -> Draft:  # noqa: ARG002  # lookups name their tokens
        """Up to K tokens that followed the longest suffix."""
        return chain(propose(np.array(context, dtype=np.int32), self._rule).tolist(), None)

    def finish(self, output: Sequence[int]) -> None:
        """Nothing is kept for the next sequence."""


class SuffixDrafter:
    """Drafts the likeliest continuation of the context's end, in the sequence itself and in the outputs of earlier ones."""

    hidden_layers: tuple[int, ...] = ()

    def __init__(self, rule: SuffixRule) -> None:
        self._rule = rule
        self._outputs: deque[list[int]] = deque(maxlen=rule.cached_requests)

    def begin(self) -> "_SuffixDrafting":
        """Start with a new sequence."""
        return _SuffixDrafting(self._rule, self._outputs)

    def draft_together(
        self, draftings: Sequence[LoneDrafting], contexts: Sequence[Sequence[int]], chances: Sequence[Chance]
    ) -> list[Draft]:
        """What follows each context."""
        return drafted_alone(draftings, contexts, chances)


class _SuffixDrafting:
    """The lookup for one sequence."""

    def __init__(self, rule: SuffixRule, outputs: deque[list[int]]) -> None:
        self._rule, self._outputs = rule, outputs
        self._prompt_tokens: int | None = None

    def observe(self, answered: Answered, kept: Sequence[int] | None) -> None:
        """The prompt's pass says how long the prompt is."""
        if kept is None:
            self._prompt_tokens = answered.features.shape[0]

    def draft(self, context: Sequence[int], chance: Chance) -> Draft:  # noqa: ARG002  # lookups name their tokens
        """The likeliest continuation."""
        assert self._prompt_tokens is not None, "observe comes before draft"
        own = np.array(context, dtype=np.int32)
        cached = [np.array(each, dtype=np.int32) for each in (*self._outputs, context[self._prompt_tokens :])]
        return chain(propose_suffix(own, cached if self._rule.cached_requests else [], self._rule).tolist(), None)

    def finish(self, output: Sequence[int]) -> None:
        """The output is looked up from now on; the oldest goes where there are too many."""
        self._outputs.append(list(output))
