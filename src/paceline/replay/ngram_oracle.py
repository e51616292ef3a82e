"""N-gram drafting and its replay written as the rule reads, slow on purpose: the oracle of `replay.ngram`.

Rules and notation as there. Nothing is indexed, hashed or compiled; each step searches its context from the beginning.
"""

import numpy as np
import numpy.typing as npt

from paceline.errors import BadInputError
from paceline.replay.ngram import NgramRule, need_token_ids
from paceline.speculation.counts import AcceptanceCounts
from paceline.traffic.exchange import TokenStream

__all__ = ["propose_obviously", "replay_obviously"]

TokenArray = npt.NDArray[np.int32]


def propose_obviously(context: TokenArray, rule: NgramRule) -> TokenArray:
    """The same as `ngram.propose`: the tokens drafted after `context` [tokens].

    Raises:
        BadInputError: the context contains a negative token id.

    """
    need_token_ids(context, "context")
    tokens = context.tolist()
    for n in range(min(rule.max_tokens, len(tokens)), rule.min_tokens - 1, -1):
        suffix = tokens[-n:]
        for start in range(len(tokens) - n):
            if tokens[start : start + n] == suffix:
                return context[start + n : start + n + rule.draft_tokens].copy()
    return np.empty(0, dtype=np.int32)


def replay_obviously(stream: TokenStream, rule: NgramRule) -> AcceptanceCounts:
    """The same as `ngram.replay`: what was drafted in `stream`, and what of it was accepted.

    Raises:
        BadInputError: the output is empty, or the context contains a negative token id.

    """
    if not stream.output.size:
        raise BadInputError("the stream has no output tokens; leave exchanges without an answer out")
    counts = AcceptanceCounts.none()
    given = 1
    while given < stream.output.size:
        draft = propose_obviously(np.concatenate((stream.prompt, stream.output[:given])), rule).tolist()
        remaining = stream.output[given:].tolist()
        judged = draft if stream.stopped else draft[: len(remaining)]
        accepted = _common(judged, remaining)
        counts += _step(len(judged), accepted, rule.draft_tokens)
        given += min(accepted + 1, len(remaining))
    return counts + _zeros(rule.draft_tokens)


def _common(draft: list[int], truth: list[int]) -> int:
    """How many tokens both begin with."""
    return max(i for i in range(min(len(draft), len(truth)) + 1) if draft[:i] == truth[:i])


def _step(drafted: int, accepted: int, draft_tokens: int) -> AcceptanceCounts:
    return AcceptanceCounts(
        steps=1,
        drafts=int(drafted > 0),
        drafted_tokens=drafted,
        accepted_tokens=accepted,
        accepted_per_position=tuple(int(i < accepted) for i in range(draft_tokens)),
    )


def _zeros(draft_tokens: int) -> AcceptanceCounts:
    """No step, with as many positions as a draft can have."""
    return AcceptanceCounts(steps=0, drafts=0, drafted_tokens=0, accepted_tokens=0, accepted_per_position=(0,) * draft_tokens)
