"""The gate from the command line: policies in files, and the same bytes from the same folder."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.experimenting import policy_inputs, policy_of
from paceline.cli.main import build_parser
from paceline.files.runfile import write_run
from tests.conftest import Answer
from tests.strategies_runs import pair

Paceline = Callable[[Sequence[str]], Answer]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with both arms' runs, of which code pays and prose does not."""
    here = tmp_path / "runs"
    here.mkdir()
    for name, run in zip(("baseline", "speculative"), pair(n=80, step_s=0.019, alphas={"code": 0.9, "prose": 0.1}), strict=True):
        write_run(run, here / f"{name}.json")
    return here


def gated(paceline: Paceline, folder: Path, *more: str) -> Answer:
    return paceline(["gate", str(folder / "baseline.json"), str(folder / "speculative.json"), *more])


def said(answer: Answer) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(answer.out)
    return document


def test_a_policy_file_decides_and_what_is_typed_goes_before_it(folder: Path, paceline: Paceline) -> None:
    """Whoever keeps the policy beside the servers: it decides, and provenance says what was taken."""
    policy = folder / "policy.toml"
    policy.write_text('claims = ["tpot_mean.ratio <= 0.95"]\nconfidence = 0.9\n[segments.code]\nclaims = ["speedup >= 1.05"]\n')
    document = said(gated(paceline, folder, "--policy", str(policy), "--json"))
    assert [each["claim"] for each in document["findings"]] == ["tpot_mean.ratio <= 0.95", "speedup >= 1.05 [code]"]
    assert document["findings"][0]["estimate"]["confidence"] == 0.9
    made = document["provenance"]
    assert (made["arguments"]["policy"], made["arguments"]["confidence"], made["arguments"]["margin"]) == ("policy.toml", 0.9, 0.05)
    assert len(made["inputs"]["policy.toml"]) == 64
    typed = said(gated(paceline, folder, "--policy", str(policy), "--confidence", ".8", "--claim", "speedup >= 3", "--json"))
    assert [(each["claim"], each["estimate"]["confidence"]) for each in typed["findings"]] == [("speedup >= 3", 0.8)]


def test_a_policy_of_numbers_keeps_the_default_claims_at_its_margin(folder: Path, paceline: Paceline) -> None:
    """A margin of 10 % asks for a speed-up of 1.1."""
    policy = folder / "policy.toml"
    policy.write_text("margin = 0.1\n")
    document = said(gated(paceline, folder, "--policy", str(policy), "--json"))
    assert document["findings"][0]["claim"] == "speedup >= 1.1"


def test_a_policy_states_the_promises_that_goodput_is_held_to(folder: Path, paceline: Paceline) -> None:
    """A load-test states no objective; the policy's counts for both arms."""
    policy = folder / "policy.toml"
    policy.write_text('claims = ["goodput.ratio >= 0.1"]\nslo = "tpot_s=0.011"\n')
    document = said(gated(paceline, folder, "--policy", str(policy), "--json"))
    assert document["findings"][0]["holds"] == "yes"
    assert 0.2 < document["findings"][0]["estimate"]["value"] < 0.9


@pytest.mark.parametrize("verb", [["rollout"], ["plan", "runs"]])
def test_a_rollout_and_a_plan_take_the_same_policy(folder: Path, verb: list[str]) -> None:
    """A policy that only the gate reads would be another one than the rollout's."""
    path = folder / "policy.toml"
    path.write_text('claims = ["tpot_mean.ratio <= 0.95"]\nmargin = 0.1\n')
    options = build_parser().parse_args([*verb, "--policy", str(path), "--confidence", ".9"])
    found = policy_of(options)
    assert [str(each) for each in found.claims] == ["tpot_mean.ratio <= 0.95"]
    assert (found.margin, found.confidence, found.alpha_floor) == (0.1, 0.9, 0.55)
    assert policy_inputs(options.policy).keys() == {"policy.toml"}


def test_an_unknown_metric_or_key_of_a_policy_is_bad_input_that_names_the_nearest(folder: Path, paceline: Paceline) -> None:
    """A typo in a policy must not ship."""
    policy = folder / "policy.toml"
    for text, nearest in (('claims = ["tpot_p98.ratio <= 1"]', "tpot_p99.ratio"), ("margn = 0.1", "margin")):
        policy.write_text(text)
        answer = gated(paceline, folder, "--policy", str(policy))
        assert answer.code == 2
        assert nearest in answer.err


def test_the_same_folder_gives_the_same_bytes_wherever_it_lies(folder: Path, tmp_path: Path, paceline: Paceline) -> None:
    """Whoever is asked to prove a verdict: the folder is enough."""
    (folder / "policy.toml").write_text('claims = ["speedup >= 1.01", "harmed_share <= 0.2"]')
    moved = tmp_path / "elsewhere"
    shutil.copytree(folder, moved)
    for more in ((), ("--json",)):
        first, again, other = (gated(paceline, each, "--policy", str(each / "policy.toml"), *more) for each in (folder, folder, moved))
        assert first.out == again.out == other.out
        assert first.code == again.code == other.code


def test_routing_is_in_both_answers(folder: Path, paceline: Paceline) -> None:
    """Whoever has one segment that pays: what sending only it to drafts is worth, and to whom it does harm."""
    routing = said(gated(paceline, folder, "--json"))["routing"]
    assert routing["routed_segments"] == ["code"]
    speedup = routing["speedup"]
    assert speedup["routed"]["value"] >= max(speedup["all_on"]["value"], speedup["all_off"])
    assert [(each["segment"], each["pays"]) for each in routing["segments"]] == [("code", True), ("prose", False)]
    assert routing["harmed_share"]["routed"]["value"] < routing["harmed_share"]["all_on"]["value"]
    text = gated(paceline, folder).out
    assert "drafts for code only: speed-up" in text
    assert "harms" in text


def test_what_is_still_needed_is_a_number(folder: Path, paceline: Paceline) -> None:
    """'Cannot tell' without a way on is a dead end."""
    document = said(gated(paceline, folder, "--claim", "ttft_p99.ratio <= 1.1", "--felt-ttft", "0s", "--json"))
    assert document["verdict"] == "cannot_tell"
    assert document["requests_needed"] == 368
    assert "about 368 requests per arm in all" in gated(paceline, folder, "--claim", "ttft_p99.ratio <= 1.1", "--felt-ttft", "0s").out
