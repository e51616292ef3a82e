"""`rollout --launch`: both arms on servers that are started here, one after the other."""

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from paceline.files.runfile import read_run
from tests.conftest import Answer

ENGINE = str(Path(__file__).with_name("fake_engine.py"))
ASKED = ("--target", "llama-3.1-8b", "--gpus", "1", "--method", "ngram", "--draft-tokens", "3", "--launch", "vllm")
SHORT = ("--measured-requests", "6", "--max-tokens", "12", "--concurrency", "1,2")

Paceline = Callable[[Sequence[str]], Answer]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    file = tmp_path / "log.jsonl"
    rows = [{"messages": [{"role": "user", "content": f"question {i}"}], "kind": ("chat", "code")[i % 2]} for i in range(12)]
    file.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
    return file


def engine(folder: Path, *flags: str) -> Path:
    """A program that starts the fake engine with these flags, whatever else it is given."""
    file = folder / "vllm"
    command = shlex.join([sys.executable, "-I", "-S", ENGINE, *flags])
    file.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
    file.chmod(0o755)
    return file


def arguments(log: Path, program: Path, out: Path) -> list[str]:
    return ["rollout", "--traffic", str(log), "--segment-field", "kind", *ASKED, *SHORT, "--launch-binary", str(program), "--out", str(out)]


def test_both_arms_are_started_measured_and_decided_and_not_started_again(log: Path, tmp_path: Path, paceline: Paceline) -> None:
    """The whole job with one command on one machine; deciding again must not cost two starts of a large model."""
    asked = arguments(log, engine(tmp_path), tmp_path / "out")
    answer = paceline([*asked, "--json"])
    assert answer.code == 0, answer.err
    runs = [read_run(tmp_path / "out" / "runs" / f"c0002-{arm}.json") for arm in ("baseline", "speculative")]
    assert [each.id for each in runs[0].finished] == [each.id for each in runs[1].finished]
    assert runs[0].provenance.arguments["engine_version"] == "0.32.0"
    assert "--speculative-config" in runs[1].provenance.arguments["server_command"]
    assert str(tmp_path) not in runs[1].provenance.arguments["server_command"]
    assert "hardware" not in runs[1].provenance.arguments, "nobody said what it ran on"
    assert set(runs[1].acceptance_by_segment or {}) == {"chat", "code"}
    launch = json.loads((tmp_path / "out" / "launch.json").read_text("utf-8"))
    assert launch["arms"]["speculative"]["engine_version"] == "0.32.0"
    assert (tmp_path / "out" / launch["arms"]["speculative"]["log"]).is_file()
    assert "(vllm 0.32.0)" in (tmp_path / "out" / "plan.md").read_text("utf-8")
    said = json.loads((tmp_path / "out" / "verdict.json").read_text("utf-8"))["losslessness_by_concurrency"]
    assert [(each["concurrency"], each["divergence"]["share"]["n"], each["noise_floor"]["share"]["n"]) for each in said] == [
        (1, 6, 2),
        (2, 6, 2),
    ]
    assert json.loads(answer.out)["losslessness"]["noise_floor"]["share"]["value"] == 0.0
    engine(tmp_path, "--dies", "started again")
    again = paceline([*asked, "--resume", "--json"])
    assert again.code == 0, again.err
    assert json.loads(again.out)["verdict"] == json.loads(answer.out)["verdict"]
    others = {"4,'": ["--draft-tokens", "4"], "8192 --enforce-eager'": ["--launch-arg=--enforce-eager"]}
    for told, more in others.items():
        refused = paceline([*asked, "--resume", *more])
        assert (refused.code, told in refused.err) == (2, True), f"what was measured gets no other command's name: {refused.err}"


def test_a_server_that_does_not_speculate_ends_in_a_server_fault(log: Path, tmp_path: Path, paceline: Paceline) -> None:
    """Exit code 3 with the cause; the baseline stays measured for the next try."""
    asked = arguments(log, engine(tmp_path, "--ignores-speculation"), tmp_path / "out")
    failed = paceline(asked)
    assert (failed.code, "the speculative server answers, but drafted nothing on 3 prompts" in failed.err) == (3, True), failed.err
    assert not (tmp_path / "out" / "verdict.json").exists()
    assert read_run(tmp_path / "out" / "bench" / "runs" / "c0002-baseline.json").finished


def test_ctrl_c_keeps_what_was_measured_and_resume_goes_on(log: Path, tmp_path: Path, paceline: Paceline) -> None:
    """A measurement of an hour that is stopped in its last minute is not measured again."""
    asked = arguments(log, engine(tmp_path, "--interrupts", "5"), tmp_path / "out")
    stopped = paceline(asked)
    assert stopped.code == 130, stopped.err
    kept = read_run(tmp_path / "out" / "bench" / "runs" / "c0001-baseline.json")
    assert kept.finished
    engine(tmp_path)
    answer = paceline([*asked, "--resume"])
    assert answer.code == 0, answer.err
    whole = read_run(tmp_path / "out" / "runs" / "c0001-baseline.json")
    assert len(whole.finished) == 6
    assert kept.finished[0].timing.ttft_s in {each.timing.ttft_s for each in whole.finished}


def test_ctrl_c_in_the_last_repeat_is_gone_on_with(log: Path, tmp_path: Path, paceline: Paceline) -> None:
    """A baseline whose counted requests are all there looks measured; without the repeat nobody knows what noise is."""
    asked = arguments(log, engine(tmp_path, "--interrupts", "25"), tmp_path / "out")
    stopped = paceline(asked)
    assert stopped.code == 130, stopped.err
    engine(tmp_path)
    answer = paceline([*asked, "--resume", "--json"])
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["losslessness"]["noise_floor"]["share"]["n"] == 2


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--launch", "llamacpp"], "give --launch-model FILE"),
        (["--launch", "llamacpp", "--launch-python", "python3"], "name llama-server with --launch-binary"),
        (["--launch", "vllm", "--launch-arg=--port=80"], "'--port=80' is set by paceline"),
        (["--launch", "vllm", "--launch-arg=--api-key=sk-secret"], "--api-key carries a secret"),
        (["--launch", "vllm", "--launch-arg='"], "cannot be split into words"),
        (["--launch", "vllm", "--baseline", "http://127.0.0.1:1"], "--baseline is for servers that run already"),
        (["--launch", "sglang", "--engine", "vllm"], "--engine vllm and --launch sglang are two engines"),
        (["--launch", "sglang", "--engine-version", "0.32.0"], "--engine-version does nothing with --launch sglang"),
        (["--launch", "vllm", "--launch-python", "p", "--launch-binary", "b"], "two ways to name one program"),
        (["--launch", "vllm", "--temperature", "1", "--noise-floor", ".5"], "--noise-floor tells how often greedy answers differ"),
        (["--launch-model", "m"], "--launch-model is for servers that are started here; give --launch too"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_starts(
    more: list[str], said: str, tmp_path: Path, paceline: Paceline
) -> None:
    """A large model takes minutes to load; a mistake that is seen afterwards costs them."""
    answer = paceline(
        ["rollout", "--target", "llama-3.1-8b", "--method", "eagle3", "--draft-tokens", "3", *more, "--out", str(tmp_path / "out")]
    )
    assert (answer.code, said in answer.err) == (2, True), answer.err
    assert "sk-secret" not in answer.err
