"""What is simulated: one replica's limits, and how it drafts.

Notation: K drafts per drafted step; a tree verifies more tokens than K (`Speculation.verified_tokens`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

from paceline.errors import BadInputError, UnknownNameError, printable
from paceline.forecast.step_cost import StepCost
from paceline.simulate.draft_lengths import Ladder, LengthTable
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.method import Method, Speculation

__all__ = ["Drafting", "RECOMPUTE_LAST_BLOCK", "Rejection", "Replica", "need_room"]

ANY_SEGMENT = "all"
LARGEST_SPREAD = 10.0
# Heads that read the target's hidden states need those of the last matched KV block anew.
RECOMPUTE_LAST_BLOCK = (Method.EAGLE, Method.EAGLE2, Method.EAGLE3, Method.MTP)


class Rejection(StrEnum):
    """Where the token after a rejection comes from: the same target pass (the standard), or a second one (the textbook's reroll)."""

    IN_PASS = "in-pass"  # noqa: S105 - a forward pass, no password
    TWO_PASS = "two-pass"  # noqa: S105 - as above


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica's limits.

    Attributes:
        kv_blocks: KV-cache blocks.
        block_tokens: tokens per block.
        max_requests: requests that run at once at most.
        token_budget: tokens per step at most (decode, verified drafts and prefill together).

    """

    kv_blocks: int
    block_tokens: int
    max_requests: int
    token_budget: int

    def __post_init__(self) -> None:
        """Reject limits below 1.

        Raises:
            BadInputError: with the value.

        """
        for name in ("kv_blocks", "block_tokens", "max_requests", "token_budget"):
            if getattr(self, name) < 1:
                raise BadInputError(f"{name} = {getattr(self, name)!r}, but at least 1 is needed")


@dataclass(frozen=True, slots=True)
class Drafting:
    """How the speculative arm drafts.

    Attributes:
        speculation: method and draft length K (the longest one, where `lengths` are given).
        acceptance: by segment; 'all' stands for every segment that is not named.
        spread: standard deviation of the shift between requests, in logits of conditional acceptance; 0 where all requests are alike.
        rejection: where the token after a rejection comes from.
        persistence: probability that a step accepts what the request's step before did, in [0, 1): the correlation of neighbouring steps.
        lengths: draft length by batch, None where every step drafts K tokens.

    """

    speculation: Speculation
    acceptance: Mapping[str, Acceptance]
    spread: float
    rejection: Rejection
    persistence: float = 0.0
    lengths: LengthTable | Ladder | None = None

    def __post_init__(self) -> None:
        """Reject a spread outside [0, 10], persistence outside [0, 1), drafts beyond 1,000 tokens, trees with lengths by batch, and
        acceptance that is missing or at another draft length.

        Raises:
            BadInputError: with the value.

        """
        if not (isfinite(self.spread) and 0 <= self.spread <= LARGEST_SPREAD):
            raise BadInputError(f"spread {self.spread!r} is not between 0 and {LARGEST_SPREAD:g} logits")
        if not 0 <= self.persistence < 1:
            raise BadInputError(f"persistence {self.persistence!r} is not a probability below 1")
        if self.lengths is not None and self.speculation.tree is not None:
            raise BadInputError("draft lengths by batch are for chains; leave out the tree, or the lengths")
        if not self.acceptance:
            raise BadInputError(f"no acceptance is given; name each segment's, or {ANY_SEGMENT!r} for every segment")
        for segment, each in self.acceptance.items():
            if each.draft_tokens != self.speculation.draft_tokens:
                raise BadInputError(
                    f"acceptance of segment {printable(segment)} is for {each.draft_tokens} drafts, "
                    f"not for {self.speculation.draft_tokens}; bring it to that length with Acceptance.at"
                )

    def of(self, segment: str) -> Acceptance:
        """The acceptance of one segment, else that of 'all'.

        Raises:
            UnknownNameError: neither is given.

        """
        found = self.acceptance.get(segment, self.acceptance.get(ANY_SEGMENT))
        if found is None:
            raise UnknownNameError("segment", segment, self.acceptance)
        return found


def need_room(replica: Replica, costs: Sequence[StepCost], verified_tokens: int) -> None:
    """Nothing, where every step that the replica may take has a cost and a drafted request fits into a step.

    `costs` are those of each draft length from 0 on, or the one of a fixed length.

    Raises:
        BadInputError: the token budget is below a drafted request's tokens, or a cost array ends too early.

    """
    if replica.token_budget < verified_tokens:
        raise BadInputError(f"token_budget {replica.token_budget} is below the {verified_tokens} tokens of one drafted request")
    for length, cost in enumerate(costs):
        verified = verified_tokens if len(costs) == 1 else 1 + length
        drafting = min(replica.max_requests, replica.token_budget // verified)
        if len(cost.token_s) <= replica.token_budget:
            raise BadInputError(
                f"token_s ends at {len(cost.token_s) - 1} tokens, but a step may have token_budget = {replica.token_budget}"
            )
        if verified > 1 and len(cost.draft_s) <= drafting:
            raise BadInputError(f"draft_s ends at {len(cost.draft_s) - 1} requests, but {drafting} may draft in one step")
