"""Modelled acceptance and trees, as JSON and as text."""

import pytest

from paceline.forecast.acceptance_model import exactly, extrapolated
from paceline.forecast.trees import RankAcceptance, tree_acceptance
from paceline.report.acceptances import ranged_dict, ranged_lines, tree_dict, tree_lines
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.method import Method, Tree

STATED = Acceptance(survival=(0.8, 0.6, 0.45), coverage=1.0)
TREE = Tree(depth=2, topk=2, nodes=4)
RANKS = (0.7, 0.12)


def test_modelled_acceptance_has_a_range_and_given_acceptance_none() -> None:
    """A range around what the user typed would say that we doubt it; none around a guess would say that we do not."""
    assert ranged_dict(exactly(STATED)) == {
        "survival": [0.8, 0.6, 0.45],
        "tokens_per_step": pytest.approx(2.85),
        "tokens_per_step_range": None,
    }
    assert ranged_lines(exactly(STATED)) == []
    longer = extrapolated(STATED, draft_tokens=5, method=Method.EAGLE3)
    said = ranged_dict(longer)
    assert said["tokens_per_step_range"]["low"] == pytest.approx(2.85)
    assert said["tokens_per_step_range"]["value"] == said["tokens_per_step"]
    (line,) = ranged_lines(longer)
    assert "(2.85 to " in line


def test_a_tree_stands_beside_its_chain_without_alpha() -> None:
    """Were α printed, the tree of four nodes would look worse than the chain that it beats."""
    acceptance = tree_acceptance(RankAcceptance.alike(RANKS, depth=2), TREE)
    said = tree_dict(TREE, acceptance, RANKS)
    assert said["tokens_per_step"] == pytest.approx(2.394)
    assert (said["drafted_nodes"], said["candidate_nodes"]) == (4, 6)
    assert said["chain"] == {"tokens_per_step": pytest.approx(2.19), "drafted_nodes": 2}
    assert "alpha" not in said
    (line,) = tree_lines(said)
    assert line.startswith("tree: 2.39 tokens per step from 4 nodes verified; the chain of its first ranks: 2.19 from 2. ")
    (alone,) = tree_lines(tree_dict(TREE, acceptance, None))
    assert "chain of its first ranks" not in alone
    assert tree_lines(None) == []
