"""What proposes tokens: which methods draft in every step, and which trees exist."""

from math import nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import BadInputError
from paceline.speculation.method import Method, Speculation, Tree


def test_lookups_skip_steps_and_models_do_not() -> None:
    """Coverage of an n-gram draft is taken for 1, and its tokens per step are too high."""
    skipping = {each.value for each in Method if not each.drafts_every_step}
    assert skipping == {"ngram", "suffix"}


def test_methods_are_spelled_as_on_the_command_line() -> None:
    """`--method draft-model` is refused."""
    assert {each.value for each in Method} == {"draft-model", "eagle", "eagle2", "eagle3", "ngram", "suffix", "mtp"}


def test_a_chain_verifies_its_drafts_and_the_token_before_them() -> None:
    """The price of verification is off by one token in every request of every step."""
    assert Speculation(method=Method.EAGLE3, draft_tokens=3, tree=None).verified_tokens == 4


def test_a_tree_verifies_its_nodes_and_the_root() -> None:
    """A tree of 60 nodes is priced as a chain of its depth."""
    assert Speculation(method=Method.EAGLE2, draft_tokens=5, tree=Tree(depth=5, topk=8, nodes=59)).verified_tokens == 60


def test_a_tree_holds_topk_nodes_and_topk_squared_per_further_level() -> None:
    """A server refuses at start what was planned."""
    assert Tree(depth=3, topk=4, nodes=4 + 2 * 16).nodes == 36
    with pytest.raises(BadInputError, match="tree of depth 3 and topk 4 has 36 candidates, fewer than the 37 nodes"):
        Tree(depth=3, topk=4, nodes=37)


@given(st.integers(1, 100), st.integers(1, 100))
def test_with_one_child_per_node_a_tree_is_a_chain(depth: int, nodes: int) -> None:
    """SGLang's topk = 1 is treated as something else than a chain."""
    if nodes <= depth:
        assert Tree(depth=depth, topk=1, nodes=nodes).depth == depth
    else:
        with pytest.raises(BadInputError, match="candidates"):
            Tree(depth=depth, topk=1, nodes=nodes)


@pytest.mark.parametrize("value", [0, -1, 1.5, nan, True])
def test_sizes_are_whole_numbers_from_one_on(value: int) -> None:
    """A draft length of 0, 2.5 or "yes" decodes something nobody asked for."""
    with pytest.raises(BadInputError, match="without drafts, leave speculation out"):
        Speculation(method=Method.EAGLE3, draft_tokens=value, tree=None)
    for depth, topk, nodes in [(value, 2, 2), (2, value, 2), (2, 2, value)]:
        with pytest.raises(BadInputError, match="depth, topk and nodes are whole numbers from 1 on"):
            Tree(depth=depth, topk=topk, nodes=nodes)


def test_numpy_integers_are_draft_lengths() -> None:
    """A sweep over an array of draft lengths is refused."""
    assert Speculation(method=Method.MTP, draft_tokens=np.int64(2), tree=None).verified_tokens == 3  # type: ignore[arg-type]  # meant to pass


def test_a_tree_s_depth_is_the_draft_length() -> None:
    """Survival is stated for positions that the tree does not have."""
    with pytest.raises(BadInputError, match="draft length 4 is not the tree's depth 5"):
        Speculation(method=Method.EAGLE2, draft_tokens=4, tree=Tree(depth=5, topk=2, nodes=8))
