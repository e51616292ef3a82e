"""The steps of n-gram replay one by one, for whoever asks how they hang together: `replay.ngram` gives sums only.

Rules and notation as there; the sums over a stream's steps are its counts. Each step looks its context up anew, so a stream of N tokens
takes time in N²: meant for a sample of a log.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.errors import BadInputError, printable
from paceline.replay.ngram import NgramRule, propose
from paceline.traffic.exchange import TokenStream

__all__ = ["Steps", "ngram_steps"]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Steps:
    """What each decode step drafted and what of it was accepted, in tokens, in order."""

    drafted: IntArray  # [steps]
    accepted: IntArray  # [steps]


def ngram_steps(stream: TokenStream, rule: NgramRule) -> Steps:
    """The steps that `rule` would have walked through `stream`; none where the output is one token.

    Raises:
        BadInputError: the output is empty, or the context contains a negative token id.

    """
    if not stream.output.size:
        raise BadInputError(f"stream {printable(stream.id)} has no output tokens; leave exchanges without an answer out")
    tokens = np.concatenate((stream.prompt, stream.output))
    drafted: list[int] = []
    accepted: list[int] = []
    given = stream.prompt.size + 1
    while given < tokens.size:
        draft, remaining = propose(tokens[:given], rule), tokens[given:]
        overlap = min(draft.size, remaining.size)
        refused = np.flatnonzero(draft[:overlap] != remaining[:overlap])
        kept = int(refused[0]) if refused.size else overlap
        drafted.append(draft.size if stream.stopped else overlap)
        accepted.append(kept)
        given += kept + 1
    return Steps(drafted=np.array(drafted, dtype=np.int64), accepted=np.array(accepted, dtype=np.int64))
