"""N-gram replay step by step: the same steps as the counted replay, and what they say of bursts."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError
from paceline.forecast.bursts import fit_bursts
from paceline.replay.ngram import NgramRule, replay
from paceline.replay.ngram_steps import ngram_steps
from paceline.traffic.exchange import END_OF_SEQUENCE, TokenStream

PAIRS = NgramRule(min_tokens=2, max_tokens=3, draft_tokens=3)


def ids(*tokens: int) -> npt.NDArray[np.int32]:
    """Token ids as streams hold them."""
    return np.array(tokens, dtype=np.int32)


def test_steps_by_hand() -> None:
    """Prompt 1 2 3 4, output 1 2 3 9 9: after 1 no pair is known; after 1 2 the draft is 3 4 1, of which 3 is kept and 9 recovered."""
    found = ngram_steps(TokenStream("r", "chat", ids(1, 2, 3, 4), ids(1, 2, 3, 9, 9), stopped=True), PAIRS)
    assert found.drafted.tolist() == [0, 3, 0]
    assert found.accepted.tolist() == [0, 1, 0]


@settings(max_examples=60, deadline=None)
@given(tokens=st.lists(st.integers(0, 2), min_size=2, max_size=40), stopped=st.booleans(), ended=st.booleans(), data=st.data())
def test_the_steps_add_up_to_what_replay_counts(tokens: list[int], stopped: bool, ended: bool, data: st.DataObject) -> None:
    """Bursts fitted to other steps than the counted ones describe another server."""
    first = data.draw(st.integers(0, len(tokens) - 1))
    output = [*tokens[first:], END_OF_SEQUENCE] if stopped and ended else tokens[first:]
    stream = TokenStream("r", "chat", ids(*tokens[:first]), ids(*output), stopped)
    steps, counts = ngram_steps(stream, PAIRS), replay(stream, PAIRS)
    assert (steps.drafted.size, int((steps.drafted > 0).sum())) == (counts.steps, counts.drafts)
    assert (int(steps.drafted.sum()), int(steps.accepted.sum())) == (counts.drafted_tokens, counts.accepted_tokens)
    assert counts.accepted_per_position == tuple(int((steps.accepted > i).sum()) for i in range(3))


def test_quoting_comes_in_bursts() -> None:
    """An answer that quotes its prompt, then says something new: matches stand together, and the fit says so."""
    quoted, new = list(range(100, 160)), list(range(200, 230))
    stream = TokenStream("r", "chat", ids(*quoted, 1), ids(*new, *quoted), stopped=False)
    steps = ngram_steps(stream, PAIRS)
    assert fit_bursts([(steps.drafted > 0).astype(np.float64)]).persistence > 0.8


def test_an_empty_output_is_refused() -> None:
    """An exchange without an answer has no step to walk."""
    with pytest.raises(BadInputError, match="has no output tokens"):
        ngram_steps(TokenStream("r", "chat", ids(1), ids(), stopped=True), PAIRS)
