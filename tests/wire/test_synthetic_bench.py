"""`bench --synthetic-acceptance`: servers that are told what to accept, and nothing that takes that for a draft's acceptance."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from paceline.files.runfile import read_run
from tests.conftest import Answer
from tests.wire.test_launched_rollout import engine

Paceline = Callable[[Sequence[str]], Answer]
MODEL = ("--launch-model", "models/target", "--launch-draft", "models/draft", "--method", "draft-model", "--draft-tokens", "3")


@pytest.fixture
def asked(tmp_path: Path) -> list[str]:
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps({"prompt": f"question {i}", "completion": "yes"}) + "\n" for i in range(12)), encoding="utf-8")
    load = ("--traffic", str(log), "--requests", "8", "--max-tokens", "21", "--concurrency", "2", "--out", str(tmp_path / "out"))
    return ["bench", "--launch", "vllm", "--launch-binary", str(engine(tmp_path)), *MODEL, *load]


def test_each_length_is_measured_against_one_baseline_and_gate_refuses_it(asked: list[str], tmp_path: Path, paceline: Paceline) -> None:
    """What drafting costs is known before there is a draft; nobody may read it as what a draft reaches."""
    answer = paceline([*asked, "--synthetic-acceptance", "1,2,4", "--json"])
    assert answer.code == 0, answer.err
    (point,) = json.loads(answer.out)["by_concurrency"]
    assert [each["tokens_per_step"] for each in point["lengths"]] == pytest.approx([1, 2, 4])
    assert all(each["step_time_ratio"]["value"] > 0 for each in point["lengths"])
    assert json.loads((tmp_path / "out" / "break-even.json").read_text("utf-8"))["by_concurrency"] == [point]
    folder = tmp_path / "out"
    runs = [folder / "plain" / "runs" / "c0002-baseline.json", folder / "length-2" / "runs" / "c0002-speculative.json"]
    assert read_run(runs[1]).provenance.arguments["synthetic_acceptance"] == "2"
    gated = paceline(["gate", *map(str, runs)])
    assert (gated.code, "[synthetic_acceptance]" in gated.out) == (4, True), gated.out
    forecast = paceline(["forecast", "--target", "llama-3.1-8b", "--draft-tokens", "3", "--acceptance-from", str(runs[1])])
    assert (forecast.code, "is no acceptance to go on with" in forecast.err) == (2, True), forecast.err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--synthetic-acceptance", "1,5"], "length 5 is not within 1 and 4"),
        (["--synthetic-acceptance", "0"], "is not above 0"),
        (["--synthetic-acceptance", "2", "--method", "ngram"], "ngram drafts where it finds a match"),
        (["--synthetic-acceptance", "2", "--engine-version", "0.18.0"], "vLLM 0.18.0 cannot make acceptance up; 0.20.0 and later can"),
        (["--synthetic-acceptance", "2", "--baseline", "http://127.0.0.1:1"], "--baseline does nothing with --synthetic-acceptance"),
        ([], "--launch is for servers that are started here and told what to accept; give --synthetic-acceptance too"),
    ],
)
def test_what_cannot_be_made_up_is_refused(more: list[str], said: str, asked: list[str], paceline: Paceline) -> None:
    """Before a large model is loaded for it."""
    answer = paceline([*asked, *more])
    assert (answer.code, said in answer.err) == (2, True), answer.err


def test_servers_that_run_already_are_told_nothing(paceline: Paceline) -> None:
    """Their acceptance is their own."""
    answer = paceline(["bench", "--synthetic-acceptance", "2", "--out", "never-made"])
    assert (answer.code, "give --launch" in answer.err) == (2, True), answer.err
    untold = paceline(["bench", "--synthetic-acceptance", "2", "--launch", "vllm", "--out", "never-made"])
    assert (untold.code, "--launch-model, --method and --draft-tokens" in untold.err) == (2, True), untold.err
