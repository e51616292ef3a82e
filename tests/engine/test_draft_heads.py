"""The whole way: prompts in, a trained head out, replayed on the log."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from paceline.cli.main import main
from paceline.engine.sampling import Sampling
from paceline.files.folder_lock import only_writer
from paceline.jobs.draft_heads import Drafting, neural_replay
from paceline.jobs.generating import load_engine, write
from paceline.jobs.target_states import LogAsked
from paceline.speculation.method import Method
from tests.engine.trainable import prompts, talking_model

AUX = ("--aux-layers", "1,2,3")
GREEDY = Sampling(temperature=0, top_k=0, top_p=1, min_p=0, repetition_penalty=1, presence_penalty=0, frequency_penalty=0)


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


def test_two_trainings_do_not_write_into_one_folder(tmp_path: Path, target: Path, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each would overwrite the other's weights; and states that are linked would be written by two."""
    states, out = tmp_path / "states", tmp_path / "head"
    for each in (states, out / "training"):
        each.mkdir(parents=True)
    (out / "training" / "states").symlink_to(states)
    train = [*map(str, ("train-eagle3", log, "--target", target, "--out", out, "--resume"))]
    for held in (out, states):
        with only_writer(held, verb="train-eagle3", option="--out"):
            assert main(train) == 2
        assert "another paceline train-eagle3 is writing into" in capsys.readouterr().err
    replay = ("replay", log, "--method", "draft-model", "--target", target, "--draft", target, "--states", tmp_path)
    with only_writer(states, verb="replay", option="--states"):
        assert main([*map(str, replay)]) == 2
    assert "another paceline replay is writing into" in capsys.readouterr().err


def test_a_training_says_what_to_repeat(tmp_path: Path, target: Path, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever forgets an option would get a head of two trainings, or no hint which option it was."""
    train = ["train-eagle3", *map(str, (log, "--target", target, "--out", tmp_path / "head", "--aux-layers", "1,2,3", "--resume"))]
    kept = ["--max-tokens", "6", "--epochs", "1", "--rows", "12", "--draft-vocab", "6"]
    assert main([*train, *kept]) == 0
    for other, told in {
        ("--max-tokens", "7"): "give the same --max-tokens to go on with them",
        ("--epochs", "2", "--rows", "6"): "has --epochs 1 --rows 12, not 2, 6; repeat the command with --epochs 1 --rows 12 to go on",
        ("--held-out", ".5"): "repeat the command with the same --held-out to go on",
    }.items():
        capsys.readouterr()
        assert main([*train, *kept, *other]) == 2
        assert told in capsys.readouterr().err


def test_conversations_beyond_the_target_s_positions_are_left_out_and_told(
    tmp_path: Path, target: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A target answers garbage behind its last position, and a head would learn it."""
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 11}))
    long = json.dumps({"messages": [{"role": "user", "content": "c d e c d e"}], "segment": "words"})
    log.write_text(f"{log.read_text()}\n{long}")
    replay = ("replay", log, "--method", "draft-model", "--target", target, "--draft", target, "--max-tokens", 6)
    found = ran(capsys, *replay)
    assert found["exchanges"] == 24
    told = "1 of 25 conversations are left out: prompt and --max-tokens 6 are more than the 11 positions of the models"
    assert told in found["notes"]  # type: ignore[operator]
    made = ran(capsys, *("train-eagle3", log, "--target", target, "--max-tokens", 6, "--epochs", 1), "--out", tmp_path / "a", *AUX)
    assert (made["left_out"], made["conversations"], made["held_out_conversations"]) == (told, 23, 1)
    assert main([*map(str, (*replay[:-1], 7))]) == 4
    assert "25 of 25 conversations are left out" in capsys.readouterr().err
    write = ["generate", "--target", str(target), "--prompt", "c d e", "--method", "none", "--max-tokens"]
    assert main([*write, "6"]) == 0
    assert main([*write, "7"]) == 2
    assert (
        "prompt 1 of 5 tokens and --max-tokens 7 are more than the target's 11 positions; give --max-tokens up to 6"
        in capsys.readouterr().err
    )
    assert main([*write[:4], "c d e c d e c d e c d e", *write[5:], "1"]) == 2
    assert "give a shorter prompt" in capsys.readouterr().err


def test_every_bar_has_a_total_and_comes_to_it(tmp_path: Path, target: Path, log: Path) -> None:
    """A bar without an end tells nobody whether to wait, and one that stops before it looks like a fault."""
    done: dict[str, list[float]] = {}

    def bar(what: str, total: float | None) -> Callable[[float], None]:
        assert total is not None
        done[what] = [total, 0]

        def advance(more: float) -> None:
            done[what][1] += more

        return advance

    asked = LogAsked(target=target, logs=(log,), segment_rule=None, segment_field=None, logged_answers=False, max_tokens=6, sharded=False)
    drafting = Drafting(method=Method.DRAFT_MODEL, draft=target, draft_tokens=2, temperature=None, seed=1)
    neural_replay(asked, drafting, folder=tmp_path / "states", step=lambda _: None, bar=bar)
    assert done == {"answering": [24, 24], "replaying": [24, 24]}
    engine = load_engine(target, dtype="float32", device="cpu")
    write(
        engine,
        None,
        ["c d", "e"],
        raw=False,
        sampling=GREEDY,
        most_tokens=9,
        positions=0,
        seed=1,
        on_text=lambda _: None,
        progress=bar("writing", 18),
    )
    assert done["writing"] == [18, 18]


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
