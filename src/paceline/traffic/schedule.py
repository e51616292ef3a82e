"""Which server gets which requests when: one schedule for both arms.

Both arms get the same requests, in blocks that take turns: baseline, speculative | speculative, baseline | baseline, … A drift of the
machine that is even over a pair of blocks then falls on both arms alike, and so does whatever the first block of a pair leaves behind.

In a closed loop the requests at a block's edges are sent and not counted: the first `concurrency` all start at once, and the last
`concurrency` are served by a server that empties. In an open loop every request counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.errors import BadInputError
from paceline.run import Arm

__all__ = ["Block", "blocks", "pairs_that_fit"]

EDGES_PER_BLOCK = 2


@dataclass(frozen=True, slots=True)
class Block:
    """One stretch of requests on one server.

    Attributes:
        number: from 0 on, in the order of time.
        pair: which pair of blocks it belongs to; both of a pair send the same requests.
        arm: whose server.
        first: the first counted request.
        count: how many are counted.
        edge: how many uncounted ones are sent before, and how many after.

    """

    number: int
    pair: int
    arm: Arm
    first: int
    count: int
    edge: int

    @property
    def name(self) -> str:
        """As its files are called."""
        return f"{self.number:03d}-{self.arm.value}"


def pairs_that_fit(requests: int, *, edge: int, most: int) -> int:
    """How many pairs of blocks so many counted requests are worth: as many as leave edges at most half of all that is sent, up to `most`.

    An even number where it is above 1: order effects cancel over two pairs.
    """
    fitting = min(most, requests if edge == 0 else requests // (EDGES_PER_BLOCK * edge))
    return max(1, fitting - fitting % 2)


def blocks(requests: int, *, arms: Sequence[Arm], pairs: int, edge: int) -> tuple[Block, ...]:
    """The blocks in the order of time. With one arm there is one block per pair.

    Raises:
        BadInputError: fewer requests than pairs, no arm, or no pair.

    """
    if not arms:
        raise BadInputError("no server was named; give --baseline, --speculative or both")
    if not 1 <= pairs <= requests:
        raise BadInputError(f"{pairs} pairs of blocks for {requests} requests; at least one request goes into each")
    found: list[Block] = []
    for pair in range(pairs):
        first, end = requests * pair // pairs, requests * (pair + 1) // pairs
        ordered = tuple(arms) if pair % 2 == 0 else tuple(reversed(arms))
        for arm in ordered:
            found.append(Block(number=len(found), pair=pair, arm=arm, first=first, count=end - first, edge=edge))
    return tuple(found)
