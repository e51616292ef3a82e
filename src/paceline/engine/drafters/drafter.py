"""What every drafter does: begin with a sequence, observe what the target computed, draft, and finish.

A drafter sees the target's forward passes through `observe`: first the prompt's, then of each step the tokens that were kept (the one
before the draft, and the accepted ones). The context handed to `draft` is always one token ahead: the token that was drawn last has not
been through the target yet.
"""

from collections.abc import Sequence
from typing import Protocol

from paceline.engine.rows import Answered
from paceline.engine.speculative_sampling import Chance, Draft

__all__ = ["Drafter", "Drafting"]


class Drafting(Protocol):
    """The drafting of one sequence."""

    def observe(self, answered: Answered, kept: Sequence[int] | None) -> None:
        """Take what the target computed for the next tokens of the context: of the row's tokens those at `kept`, None for all."""

    def draft(self, context: Sequence[int], chance: Chance) -> Draft:
        """What follows `context`, the prompt and the output so far; empty where nothing is proposed."""

    def finish(self, output: Sequence[int]) -> None:
        """The sequence ended with this output."""


class Drafter(Protocol):
    """A way of drafting; `hidden_layers` are the target's layers whose residual stream it reads."""

    hidden_layers: tuple[int, ...]

    def begin(self) -> Drafting:
        """Start with a new sequence."""
