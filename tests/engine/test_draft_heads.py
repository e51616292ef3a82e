"""The whole way: prompts in, a trained head out, replayed on the log."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from paceline.cli.main import main
from tests.engine.trainable import prompts, talking_model


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A tiny model with a tokenizer of seven words and a chat template."""
    return talking_model(tmp_path / "target")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Prompts without answers."""
    return prompts(tmp_path / "chats.jsonl")


def ran(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, object]:
    assert main([*map(str, words), "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_two_processes_train_the_head_that_one_trains(tmp_path: Path, target: Path, log: Path) -> None:
    """Whoever trains on several GPUs would get another head, or a broken one."""
    words = [str(each) for each in ("train-eagle3", log, "--target", target, "--max-tokens", 8, "--epochs", 1, "--draft-vocab", 6)]
    code = "import sys; from paceline.cli.main import main; sys.exit(main(sys.argv[1:]))"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def started(rank: int, size: int) -> subprocess.Popen[bytes]:
        told = {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
        out = ["--out", str(tmp_path / f"of-{size}"), "--aux-layers", "1,2,3"]
        return subprocess.Popen([sys.executable, "-c", code, *words, *out], env={**os.environ, **told}, stdout=subprocess.DEVNULL)

    assert [each.wait(300) for each in [started(0, 2), started(1, 2), started(0, 1)]] == [0, 0, 0]
    alone, together = (load_file(tmp_path / f"of-{size}" / "model.safetensors") for size in (1, 2))
    assert alone.keys() == together.keys()
    for name, own in alone.items():
        torch.testing.assert_close(together[name].float(), own.float(), atol=0.01, rtol=0.02)


def test_prompts_become_a_head_that_replays(tmp_path: Path, target: Path, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The one command that a user types would not end in a head."""
    out = tmp_path / "head"
    train = ("train-eagle3", log, "--target", target, "--out", out, "--max-tokens", 12, "--epochs", 2, "--draft-vocab", 6)
    layers = ("--aux-layers", "1,2,3")
    made = ran(capsys, *train, *layers)
    assert made["schema"] == "paceline.train-eagle3/1"
    assert (made["draft_vocab"], made["aux_layers"], made["conversations"]) == (6, [1, 2, 3], 23)
    curves = json.loads((out / "curves.json").read_text())
    assert [each["epoch"] for each in curves["epochs"]] == [1, 2]
    assert "All 2 epochs are done" in (out / "report.html").read_text()
    assert main([*map(str, (*train, *layers))]) == 2
    assert "give --resume" in capsys.readouterr().err
    assert ran(capsys, *train, *layers, "--resume")["best"] == made["best"]
    assert main([*map(str, (*train[:-1], 5, *layers, "--resume"))]) == 2
    assert "give the same --draft-vocab" in capsys.readouterr().err

    states = tmp_path / "states"
    replay = ("replay", log, "--target", target, "--draft-tokens", 3, "--max-tokens", 12)
    head = ran(capsys, *replay, "--method", "eagle3", "--draft", out, "--states", states)
    assert head["exchanges"] == 24
    again = ran(
        capsys,
        "replay",
        states / "answers.jsonl",
        "--target",
        target,
        "--draft-tokens",
        3,
        "--method",
        "eagle3",
        "--draft",
        out,
        "--logged-answers",
    )
    assert again["accepted_tokens"] == head["accepted_tokens"]
    itself = ran(capsys, *replay, "--method", "draft-model", "--draft", target)
    assert itself["alpha"]["value"] == 1  # type: ignore[index]  # a model agrees with itself
    wrong = {
        "layer 99 is none of": ("--aux-layers", "1,2,99"),
        "leaves none of": (*layers, "--held-out", 1),
        "give a smaller --learning-rate": (*layers, "--learning-rate", 1e30),
    }
    for number, (told, options) in enumerate(wrong.items()):
        out_of_use = ("--out", tmp_path / f"wrong-{number}", "--max-tokens", 6, "--epochs", 1)
        assert main([*map(str, (*train[:4], *out_of_use, *options))]) == 2
        assert told in capsys.readouterr().err
    assert main(["replay", str(log), "--method", "eagle3"]) == 2
    assert "--target DIR and --draft DIR" in capsys.readouterr().err


def test_a_training_that_was_stopped_anywhere_goes_on_to_the_same_bytes(target: Path, log: Path) -> None:
    """A night's work would be lost, or would end in a head that differs from the one that was measured; and Ctrl-C would say nothing."""
    script = Path(__file__).parents[2] / "benchmarks" / "killed_training.py"
    stops = ("--kills", "3", "--interrupts", "1", "--json")
    training = ("--training", "--max-tokens", "6", "--epochs", "2", "--rows", "6", "--save-every", "3", "--draft-vocab", "6")
    command = [sys.executable, str(script), str(log), "--target", str(target), *stops, *training, "--aux-layers", "1,2,3"]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False)
    *killed, interrupted = json.loads(done.stdout)
    assert [each["part"] for each in killed] == ["answering", "learning", "saving"]
    assert [each["code"] for each in killed] == [-signal.SIGKILL] * 3
    assert (interrupted["part"], interrupted["code"]) == ("answering", 130)
    assert "interrupted; the same command with --resume goes on from what is kept\n" in interrupted["said"]
    assert [each["differs"] for each in (*killed, interrupted)] == [[]] * 4
