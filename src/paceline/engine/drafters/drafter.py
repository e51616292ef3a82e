"""What every drafter does: begin with a sequence, observe what the target computed, draft, and finish.

A drafter sees the target's forward passes through `observe`: first the prompt's, then of each step the tokens that were kept (the one
before the draft, and the accepted ones). The context handed to a draft is always one token ahead: the token that was drawn last has not
been through the target yet.

Sequences that are written side by side draft together: a draft model's weights are read once for all of them, which is what takes the time.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from paceline.engine.rows import Answered
from paceline.engine.speculative_sampling import Chance, Draft

__all__ = ["Drafter", "Drafting", "LoneDrafting", "drafted_alone"]


class Drafting(Protocol):
    """The drafting of one sequence."""

    def observe(self, answered: Answered, kept: Sequence[int] | None) -> None:
        """Take what the target computed for the next tokens of the context: of the row's tokens those at `kept`, None for all."""

    def finish(self, output: Sequence[int]) -> None:
        """The sequence ended with this output."""


class LoneDrafting(Drafting, Protocol):
    """The drafting of one sequence that has nothing to share with others."""

    def draft(self, context: Sequence[int], chance: Chance) -> Draft:
        """What follows `context`, the prompt and the output so far; empty where nothing is proposed."""


class Drafter(Protocol):
    """A way of drafting; `hidden_layers` are the target's layers whose residual stream it reads."""

    hidden_layers: tuple[int, ...]

    def begin(self) -> Drafting:
        """Start with a new sequence."""

    def draft_together(self, draftings: Sequence[Any], contexts: Sequence[Sequence[int]], chances: Sequence[Chance]) -> list[Draft]:
        """What each of the sequences that it began drafts behind its context; empty where nothing is proposed."""


def drafted_alone(draftings: Sequence[LoneDrafting], contexts: Sequence[Sequence[int]], chances: Sequence[Chance]) -> list[Draft]:
    """`draft_together` where there is nothing to share."""
    return [each.draft(context, chance) for each, context, chance in zip(draftings, contexts, chances, strict=True)]
