"""A head trained here drafts in a real vLLM as neural replay says it does, and changes no text by more than rounding.

The training is short, so the head is a poor one: what is checked is that the server reads it as it was trained (layers, positions, norms,
draft vocabulary), since one that reads it otherwise says nothing and accepts next to nothing. Nothing is served for it: what the rollout
left is read, by the script that makes the record of a fully trained head.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.real.eagle3_rollout import CONCURRENCIES, MAX_TOKENS, ORDERS, REQUESTS, ROOT, run_with_torch

APART = 0.03
ROUNDING = 0.05  # logits; between float32 passes of another width


@pytest.fixture(scope="module")
def read(on_vllm: Path, engine_python: Path, model_dir: Path, head: Path, hardware: Path) -> dict[str, Any]:
    """What benchmarks/head_in_vllm.py reads in the rollout's folder."""
    models = ("--target", model_dir, "--head", head, "--gpu", hardware, "--traffic", ORDERS / "test.jsonl")
    script = ROOT / "benchmarks" / "head_in_vllm.py"
    print(run_with_torch(engine_python, script, "--read", "--out", on_vllm, *models, "--max-tokens", MAX_TOKENS, "--threads", 1))  # noqa: T201
    found: dict[str, Any] = json.loads((on_vllm / "head-in-vllm.json").read_text(encoding="utf-8"))
    return found


def test_vllm_accepts_what_replay_says(read: dict[str, Any]) -> None:
    """A head would be shipped for an acceptance that the server does not see."""
    most = read["by_concurrency"][str(CONCURRENCIES[-1])]
    replay, counted = most["replay"], most["acceptance"]
    assert counted["drafts"] > 200
    assert counted["alpha"] > 0.2
    assert abs(counted["alpha"] - replay["alpha"]["value"]) < APART
    for ours, theirs in zip(replay["survival"], counted["survival"], strict=True):
        assert abs(ours - theirs) < 2 * APART


def test_texts_part_from_plain_ones_no_more_than_those_from_themselves(read: dict[str, Any]) -> None:
    """A server that loses text with drafts loses customers; one that rounds otherwise does not."""
    for each in read["by_concurrency"].values():
        assert each["differing"]["n"] == each["noise_floor"]["n"] == REQUESTS
        assert each["lossless"] != "no", each["why"]
        assert all(gap < ROUNDING for gap in (*each["gaps_of_arms"], *each["gaps_of_baseline_twice"])), each


def test_there_is_a_verdict_and_a_forecast_at_each_concurrency(read: dict[str, Any]) -> None:
    """One batch size stands for no other; a forecast from the smaller ones is held against the largest."""
    assert [int(name) for name in read["by_concurrency"]] == list(CONCURRENCIES)
    assert all(each["verdict"] in ("ship", "keep", "cannot_tell", "ship_segments") for each in read["by_concurrency"].values())
    assert all(each["speedup"]["value"] > 0 for each in read["by_concurrency"].values())
    assert [each["concurrency"] for each in read["forecast"]["rows"]] == list(CONCURRENCIES)
