"""What the forecast makes of trees, temperature and long context, from the command line."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.conftest import Answer

Paceline = Callable[[Sequence[str]], Answer]
FORECAST = ["forecast", "--target", "llama-3.3-70b", "--gpu", "h100", "--gpus", "4", "--concurrency", "8"]


def said(paceline: Paceline, *options: str) -> dict[str, Any]:
    """The forecast's JSON."""
    answer = paceline([*FORECAST, *options, "--json"])
    assert answer.code == 0, answer.err
    document: dict[str, Any] = json.loads(answer.out)
    return document


def test_a_tree_is_forecast_from_ranks_and_compared_by_tokens(paceline: Paceline) -> None:
    """The tree's depth is its draft length, whatever --draft-tokens says, and no break-even α is printed for it."""
    found = said(paceline, "--tree", "2,2,4", "--rank-acceptance", ".7,.12")
    assert found["tree"]["tokens_per_step"] == pytest.approx(2.394)
    assert found["tree"]["chain"]["tokens_per_step"] == pytest.approx(2.19)
    assert found["rows"][0]["tokens_per_step"] == pytest.approx(2.394)
    assert found["rows"][0]["break_even_alpha"] is None
    assert said(paceline, "--tree", "5,4,20", "--acceptance-length", "3.2")["rows"][0]["tokens_per_step"] == pytest.approx(3.2)


def test_ranks_without_a_tree_are_a_chain(paceline: Paceline) -> None:
    """A chain drafts first ranks only: .7 + .49 + .343."""
    found = said(paceline, "--rank-acceptance", ".7,.12")
    assert found["tree"] is None
    assert found["rows"][0]["tokens_per_step"] == pytest.approx(2.533)


def test_alpha_of_a_tree_is_refused(paceline: Paceline) -> None:
    """α = .095 of a 20-node tree typed in as α of a chain would bury it."""
    answer = paceline([*FORECAST, "--tree", "5,4,20", "--alpha", ".095"])
    assert answer.code == 2
    assert "--rank-acceptance" in answer.err
    assert paceline([*FORECAST, "--tree", "2,2,4", "--survival", ".5"]).code == 2


def test_a_profile_used_for_a_tree_says_that_it_is_a_chains(paceline: Paceline) -> None:
    """A tree accepts more than the chain that the profile was measured with."""
    assert "the chain's figure for a tree" in said(paceline, "--tree", "3,4,8")["acceptance"]["label"]


def test_temperature_and_draft_context_move_acceptance_and_say_so(paceline: Paceline) -> None:
    """A head of 2,048 tokens at 9,000 of context loses more than half of its drafts; off unless asked for."""
    plain = said(paceline, "--alpha", ".5", "--context", "9000")
    assert plain["acceptance"]["tokens_per_step_range"] is None
    assert plain["rows"][0]["tokens_per_step"] == pytest.approx(2.5)
    moved = said(paceline, "--alpha", ".5", "--context", "9000", "--draft-context", "2048", "--temperature", "1")
    tokens = moved["acceptance"]["tokens_per_step_range"]
    assert tokens["low"] < tokens["value"] < tokens["high"] <= 2.5
    assert moved["rows"][0]["tokens_per_step"] == tokens["value"] < 1.75
    assert "context 9,000 beyond the draft's 2,048" in moved["acceptance"]["label"]
    assert "temperature 1 instead of 0" in moved["acceptance"]["label"]
    text = paceline([*FORECAST, "--alpha", ".5", "--temperature", "1"]).out
    assert "acceptance is modelled: 2.29 (1.95 to 2.45) tokens per step" in text
