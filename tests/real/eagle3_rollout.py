"""A rollout on vLLM that drafts with an EAGLE-3 head trained here; several tests read its folder.

The training is short, so the head is a poor one, and so are a busy machine's speed-ups. What counts is that every step of the job is there.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.main import main
from tests.real.servers import vllm_environment

__all__ = ["CONCURRENCIES", "DRAFTS", "MAX_TOKENS", "ORDERS", "REQUESTS", "roll_out", "run_with_torch", "train"]

ROOT = Path(__file__).parents[2]
ORDERS = ROOT / "tests" / "data" / "orders"
CONCURRENCIES = (1, 4)
REQUESTS = 8  # counted; with the edges of four in flight all 16 prompts are sent, each once
MAX_TOKENS = 60
DRAFTS = ("--method", "eagle3", "--draft-tokens", "3", "--draft-vocab", "512")
SERVED = "--max-model-len 512 --dtype float32 --enforce-eager --no-enable-prefix-caching"
TOLD = """import sys
from paceline.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def run_with_torch(engine_python: Path, *words: object) -> str:
    """What a script of ours prints, run where torch is; `-c` and a verb's words for the command line."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([str(engine_python), *map(str, words)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def train(engine_python: Path, target: Path, out: Path) -> dict[str, Any]:
    """A head in `out`, of three epochs on 32 orders; what its training says."""
    sizes = ("--max-tokens", MAX_TOKENS, "--draft-vocab", 512, "--epochs", 3, "--rows", 2)
    told = run_with_torch(
        engine_python, "-c", TOLD, "train-eagle3", ORDERS / "train.jsonl", "--target", target, "--out", out, *sizes, "--json"
    )
    found: dict[str, Any] = json.loads(told)
    return found


def roll_out(vllm_python: Path, target: Path, head: Path, hardware: Path, out: Path) -> None:
    """The rollout's folder: both servers started once, with what the user exports before vLLM on a CPU."""
    launch = ("--launch", "vllm", "--launch-python", str(vllm_python), f"--launch-arg={SERVED}", "--max-requests", "4")
    load = ("--measured-requests", str(REQUESTS), "--max-tokens", str(MAX_TOKENS), "--noise-floor", "1", "--token-budget", "1024")
    at = ("--concurrency", ",".join(map(str, CONCURRENCIES)))
    where = ("--target", str(target), "--gpu", str(hardware), "--gpus", "1")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in vllm_environment(vllm_python).items():
            patch.setenv(name, value)
        words = ["rollout", "--traffic", str(ORDERS / "test.jsonl"), *where, *DRAFTS, "--draft", str(head), *launch, *load, *at]
        assert main([*words, "--out", str(out)]) == 0
