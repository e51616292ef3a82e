"""Draft trees: tokens per step from acceptance by rank, and the chain as a special case."""

import json
from itertools import pairwise, product
from math import nan, prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import BadInputError
from paceline.forecast.trees import RankAcceptance, candidate_nodes, tokens_per_step_tree, tree_acceptance
from paceline.speculation.method import Tree

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden_vectors.json").read_text(encoding="utf-8"))
RANKS = (0.7, 0.12, 0.05)


def alike(ranks: tuple[float, ...], depth: int) -> RankAcceptance:
    """The same ranks on every level."""
    return RankAcceptance.alike(ranks, depth=depth)


def test_a_small_tree_by_hand() -> None:
    """Depth 2, two children: candidates .7, .12, .49, .084, .084, .0144. The best four are .7, .49, .12, .084: E = 2.394."""
    tree = Tree(depth=2, topk=2, nodes=4)
    assert candidate_nodes(tree) == 6
    found = tree_acceptance(alike(RANKS, 2), tree)
    assert found.survival == pytest.approx((0.82, 0.574))
    assert tokens_per_step_tree(alike(RANKS, 2), tree) == pytest.approx(2.394)
    assert tokens_per_step_tree(alike(RANKS, 2), Tree(depth=2, topk=2, nodes=6)) == pytest.approx(1 + 0.82 + 0.82**2)


def test_only_the_best_nodes_of_a_level_are_expanded() -> None:
    """EAGLE-2 expands topk nodes a level: depth 3, topk 2 has 2 + 4 + 4 candidates, not 2 + 4 + 8."""
    tree = Tree(depth=3, topk=2, nodes=10)
    assert candidate_nodes(tree) == 10
    deepest = tree_acceptance(alike((0.6, 0.2), 3), tree).survival[2]
    assert deepest == pytest.approx((0.36 + 0.12) * 0.8)


@pytest.mark.parametrize("case", GOLDEN["eagle1_chain_from_n_alpha"], ids=lambda case: str(case["model"]))
def test_eagle_s_chain_lengths_follow_from_its_rank_one_acceptance(case: dict[str, Any]) -> None:
    """Source arXiv 2401.15077: the product of the printed n-α, within 5.3 % of the printed chain length."""
    ranks = RankAcceptance(by_level=tuple((each,) for each in case["n_alpha"]))
    found = tokens_per_step_tree(ranks, Tree(depth=5, topk=1, nodes=5))
    assert found == pytest.approx(case["formula"], abs=1e-9)
    assert found == pytest.approx(ranks.chain.acceptance_length, abs=1e-12)
    assert found == pytest.approx(case["tau_chain_K5"], rel=0.053)


def test_eagle_s_own_tree_adds_what_it_printed() -> None:
    """Source arXiv 2401.15077: the default tree adds .6 to .8. Ranks 2 to 4 were not printed: half of what rank 1 leaves explains it."""
    for case in GOLDEN["eagle1_chain_from_n_alpha"]:
        ranks = RankAcceptance(by_level=tuple((each, 0.32 * (1 - each), 0.12 * (1 - each), 0.06 * (1 - each)) for each in case["n_alpha"]))
        gain = tokens_per_step_tree(ranks, Tree(depth=5, topk=4, nodes=25)) - ranks.chain.acceptance_length
        assert 0.6 <= gain <= 0.8


def test_accepted_over_drafted_of_a_tree_says_nothing_about_speed() -> None:
    """SGLang's 21-token tree (arXiv 2601.11580, GSM8K): 2.92 tokens per step are α = .096 of 20 drafted nodes; printed .095."""
    tokens, drafted = 2.92, 20
    assert (tokens - 1) / drafted == pytest.approx(0.095, abs=0.002)


@st.composite
def rank_lists(draw: st.DrawFn) -> tuple[float, ...]:
    """Ranks of one level that add up to 1 at most."""
    shares = draw(st.lists(st.floats(0, 1), min_size=1, max_size=4))
    total = max(1.0, sum(shares))
    return tuple(each / total for each in shares)


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """A small tree."""
    depth, topk = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    return Tree(depth=depth, topk=topk, nodes=draw(st.integers(1, topk + (depth - 1) * topk**2)))


@given(ranks=rank_lists(), depth=st.integers(1, 8))
def test_a_tree_of_one_child_is_the_chain(ranks: tuple[float, ...], depth: int) -> None:
    """Were it not, chains and trees could not be compared at all."""
    found = tree_acceptance(alike(ranks, depth), Tree(depth=depth, topk=1, nodes=depth))
    assert found.survival == alike(ranks, depth).chain.survival


@given(ranks=rank_lists(), tree=trees())
def test_more_nodes_never_give_fewer_tokens(ranks: tuple[float, ...], tree: Tree) -> None:
    """A larger tree that loses tokens would mean that a worse node was chosen."""
    tokens = [
        tokens_per_step_tree(alike(ranks, tree.depth), Tree(depth=tree.depth, topk=tree.topk, nodes=nodes))
        for nodes in range(1, candidate_nodes(tree) + 1)
    ]
    assert all(after >= before - 1e-12 for before, after in pairwise(tokens))
    assert 1 <= tokens[-1] <= tree.depth + 1 + 1e-12


@given(ranks=rank_lists(), depth=st.integers(1, 3))
def test_a_tree_that_holds_every_path_is_the_sum_over_paths(ranks: tuple[float, ...], depth: int) -> None:
    """The oracle: every sequence of two ranks, enumerated, where nothing is left out (depth up to 2, or one child)."""
    topk = 2 if depth <= 2 else 1
    shares = (*ranks, 0.0)[:topk]
    whole = Tree(depth=depth, topk=topk, nodes=topk + (depth - 1) * topk**2)
    paths = sum(prod(path) for level in range(1, depth + 1) for path in product(shares, repeat=level))
    assert tokens_per_step_tree(alike(ranks, depth), whole) == pytest.approx(1 + paths)


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ((), "has no level"),
        (((),), r"\(\) on level 1 is not a list"),
        (((0.5,), (nan,)), "on level 2 is not a list"),
        (((1.2,),), "is not a list of probabilities"),
        (((0.7, 0.4),), "add up to more than 1"),
    ],
)
def test_impossible_ranks_are_refused(levels: tuple[tuple[float, ...], ...], message: str) -> None:
    """Ranks that add up to more than 1 let a step accept two children of one node."""
    with pytest.raises(BadInputError, match=message):
        RankAcceptance(by_level=levels)


def test_a_tree_deeper_than_its_ranks_is_refused() -> None:
    """Levels that nobody stated would be invented."""
    with pytest.raises(BadInputError, match="stated for 2 levels, but the tree is 3 deep"):
        tree_acceptance(alike(RANKS, 2), Tree(depth=3, topk=1, nodes=3))
