"""A target in parts answers as one that is whole, and no process holds much more than its part."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from paceline.cli.main import main
from paceline.engine.peers import Peers
from paceline.engine.states import StatesFolder
from paceline.engine.target import load_target
from tests.engine.sharded_answers import FAMILIES, SHARDS, Held, answered
from tests.engine.tiny import CPU, model_folder
from tests.engine.trainable import prompts, talking_model

ROOT = Path(__file__).parents[2]
ALONE = Peers(rank=0, size=1)
WIDE = {"hidden_size": 64, "intermediate_size": 1024, "head_dim": 16}


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which two processes have answered with the parts of each model, and trained a head."""
    folder = tmp_path_factory.mktemp("parts")
    for family in FAMILIES:
        model_folder(folder / family, family, **WIDE)
    words = [*training(folder), "--out", str(folder / "of-two"), "--fsdp"]
    talking_model(folder / "target")
    prompts(folder / "chats.jsonl")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "tests.engine.sharded_answers"]
    made = subprocess.run([*command, str(folder), *words], cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300, check=False)
    assert made.returncode == 0
    return folder


def training(folder: Path) -> list[str]:
    words = ("train-eagle3", folder / "chats.jsonl", "--target", folder / "target", "--max-tokens", 8, "--epochs", 1, "--draft-vocab", 6)
    return [*map(str, words), "--aux-layers", "1,2,3", "--json"]


@pytest.mark.parametrize("family", FAMILIES)
def test_parts_answer_as_the_whole_does(together: Path, tmp_path: Path, family: str) -> None:
    """A head would learn the states of a model that nobody serves."""
    whole = answered(load_target(together / family, dtype=torch.float64, device=CPU), tmp_path, ALONE)
    states = StatesFolder(together / f"{family}-states")
    parts = [each for number in range(len(SHARDS)) for each in states.read(number)]
    assert [each.tokens.tolist() for each in parts] == [each.tokens.tolist() for each in whole]
    for part, own in zip(parts, whole, strict=True):
        torch.testing.assert_close(part.aux, own.aux)
        torch.testing.assert_close(part.features, own.features)


@pytest.mark.parametrize("family", FAMILIES)
def test_each_of_two_processes_holds_half(together: Path, family: str) -> None:
    """A target that does not fit one device would not fit two either."""
    own = Held()
    target = load_target(together / family, dtype=torch.float64, device=CPU)
    whole = own.new_bytes
    outside = 2 * target.embedding.untyped_storage().nbytes()
    for rank in range(2):
        held = json.loads((together / f"held-{rank}.json").read_text())[family]
        for once in held:
            assert 0.5 * whole < once < 0.53 * whole + outside


def test_a_head_is_trained_from_a_target_in_parts(together: Path) -> None:
    """`torchrun … --fsdp` would end in another head than one process trains, or in none."""
    assert main([*training(together), "--out", str(together / "of-one")]) == 0
    one, two = (load_file(together / name / "model.safetensors") for name in ("of-one", "of-two"))
    assert one.keys() == two.keys()
    for name, own in one.items():
        torch.testing.assert_close(two[name].float(), own.float(), atol=0.01, rtol=0.02)


def test_a_single_process_has_nobody_to_share_with(together: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever forgot torchrun would run out of memory instead of being told."""
    assert main([*training(together), "--out", str(together / "of-none"), "--fsdp"]) == 2
    assert "start several with torchrun" in capsys.readouterr().err
