"""A head trained here drafts in a real vLLM as neural replay says it does.

The training is short, so the head is a poor one: what is checked is that the server reads it as it was trained (layers, positions, norms,
draft vocabulary), since one that reads it otherwise says nothing and accepts next to nothing.
"""

import json
import os
import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from paceline.files.dump import measure_dumps
from paceline.run import Arm
from tests.real.servers import running, scrape, vllm_environment

ROOT = Path(__file__).parents[2]
ORDERS = ROOT / "tests" / "data" / "orders"
DRAFT_TOKENS = 3
MAX_TOKENS = 60
READY_S = 420.0
APART = 0.03


def paceline(engine_python: Path, *words: object) -> dict[str, Any]:
    """What a verb prints with --json, run where torch is."""
    code = "import sys; from paceline.cli.main import main; sys.exit(main(sys.argv[1:]))"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [str(engine_python), "-c", code, *map(str, words), "--json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def server(vllm_python: Path, model_dir: Path, head: Path) -> Sequence[str]:
    """The command of a vLLM that drafts with the head."""
    drafts = {"method": "eagle3", "model": str(head), "num_speculative_tokens": DRAFT_TOKENS}
    return [
        *(str(vllm_python), "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(model_dir), "--served-model-name", "smollm2"),
        *("--max-model-len", "512", "--max-num-seqs", "4", "--dtype", "float32", "--enforce-eager", "--no-enable-prefix-caching"),
        *("--speculative-config", json.dumps(drafts)),
    ]


def chat(url: str, messages: list[dict[str, str]]) -> None:
    """One greedy answer."""
    asked = {"model": "smollm2", "messages": messages, "max_tokens": MAX_TOKENS, "temperature": 0}
    request = urllib.request.Request(  # noqa: S310 - our own server
        f"{url}/v1/chat/completions", data=json.dumps(asked).encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as reply:  # noqa: S310 - our own server
        json.load(reply)


@pytest.fixture(scope="module")
def head(engine_python: Path, model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A head trained for three epochs on 32 orders."""
    out = tmp_path_factory.mktemp("head") / "head"
    sizes = ("--max-tokens", MAX_TOKENS, "--draft-vocab", 512, "--epochs", 3, "--rows", 2)
    paceline(engine_python, "train-eagle3", ORDERS / "train.jsonl", "--target", model_dir, "--out", out, *sizes)
    return out


def test_vllm_accepts_what_replay_says(vllm_python: Path, engine_python: Path, model_dir: Path, head: Path, tmp_path: Path) -> None:
    """A head would be shipped for an acceptance that the server does not see."""
    log = ORDERS / "test.jsonl"
    models = ("--target", model_dir, "--draft", head, "--method", "eagle3")
    replayed = paceline(engine_python, "replay", log, *models, "--draft-tokens", DRAFT_TOKENS, "--max-tokens", MAX_TOKENS)
    arm: dict[str, Any] = {"arm": Arm.SPECULATIVE, "engine": "vllm", "model": "smollm2", "env": vllm_environment(vllm_python)}
    with running(server(vllm_python, model_dir, head), log=tmp_path / "server.log", ready_s=READY_S, **arm) as url:
        before = scrape(url, tmp_path / "before.prom")
        for line in log.read_text().splitlines():
            chat(url, json.loads(line)["messages"])
        counted = measure_dumps(before, scrape(url, tmp_path / "after.prom"), model=None).acceptance
    print(f"vLLM: α {counted.alpha:.4f}, survival {counted.survival}; replay: α {replayed['alpha']['value']:.4f}")  # noqa: T201
    assert counted.drafts > 200
    assert counted.alpha > 0.2
    assert abs(counted.alpha - replayed["alpha"]["value"]) < APART
    for ours, theirs in zip(replayed["survival"], counted.survival, strict=True):
        assert abs(ours["value"] - theirs) < 2 * APART
