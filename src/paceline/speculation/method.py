"""What proposes tokens, and how many at a time."""

from dataclasses import dataclass
from enum import StrEnum

from paceline.errors import BadInputError, is_count, printable

__all__ = ["Method", "Speculation", "Tree"]


MOST_DRAFT_TOKENS = 256


class Method(StrEnum):
    """What proposes the tokens."""

    DRAFT_MODEL = "draft-model"
    EAGLE = "eagle"
    EAGLE2 = "eagle2"
    EAGLE3 = "eagle3"
    NGRAM = "ngram"
    SUFFIX = "suffix"
    MTP = "mtp"

    @property
    def drafts_every_step(self) -> bool:
        """Whether every step has a draft; n-gram and suffix lookups draft only where they find a match."""
        return self not in (Method.NGRAM, Method.SUFFIX)


@dataclass(frozen=True, slots=True)
class Tree:
    """A draft tree: `depth` levels, `topk` children expanded per level, `nodes` drafted nodes verified per step (the root not counted)."""

    depth: int
    topk: int
    nodes: int

    def __post_init__(self) -> None:
        """Reject sizes below 1 and more nodes than the tree can hold: topk + (depth − 1)·topk².

        Raises:
            BadInputError: with the sizes.

        """
        if not all(is_count(each, least=1) for each in (self.depth, self.topk, self.nodes)):
            raise BadInputError(f"tree {self.depth},{self.topk},{self.nodes}: depth, topk and nodes are whole numbers from 1 on")
        most = self.topk + (self.depth - 1) * self.topk**2
        if self.nodes > most:
            raise BadInputError(
                f"tree of depth {self.depth} and topk {self.topk} has {most} candidates, fewer than the {self.nodes} nodes asked for"
            )


@dataclass(frozen=True, slots=True)
class Speculation:
    """A method with its draft length K in tokens (the depth, where it drafts a `tree`)."""

    method: Method
    draft_tokens: int
    tree: Tree | None

    def __post_init__(self) -> None:
        """Reject K outside 1 to 256 and a tree of another depth.

        Raises:
            BadInputError: with the value.

        """
        if not is_count(self.draft_tokens, least=1) or self.draft_tokens > MOST_DRAFT_TOKENS:
            raise BadInputError(
                f"draft length {printable(self.draft_tokens)} is not a whole number from 1 to {MOST_DRAFT_TOKENS}; "
                "without drafts, leave speculation out"
            )
        if self.tree is not None and self.tree.depth != self.draft_tokens:
            raise BadInputError(f"draft length {self.draft_tokens} is not the tree's depth {self.tree.depth}")

    @property
    def verified_tokens(self) -> int:
        """Tokens the target verifies per drafted step: the drafts and the token before them."""
        return 1 + (self.draft_tokens if self.tree is None else self.tree.nodes)
