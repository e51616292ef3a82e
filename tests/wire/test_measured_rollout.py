"""A rollout that measures: the user's own two servers, and two fake ones for a rehearsal."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from paceline.files.runfile import read_run
from paceline.run import Evidence
from tests.conftest import Answer
from tests.wire.fake_servers import drafting, plain, served, speculative

DRAFTS = drafting(all=(0.8, 0.6, 0.45))
ASKED = ["--target", "llama-3.1-8b", "--method", "eagle3", "--draft-tokens", "3"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    file = tmp_path / "log.jsonl"
    rows = [{"messages": [{"role": "user", "content": f"question {i}"}, {"role": "assistant", "content": "word " * 20}]} for i in range(30)]
    file.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
    return file


def test_two_servers_are_measured_and_decide(log: Path, tmp_path: Path, paceline: Callable[[Sequence[str]], Answer]) -> None:
    """A rollout that simulates although servers were named rests on nothing."""
    out = tmp_path / "out"
    with served(plain(0.010)) as one, served(speculative(0.011, DRAFTS)) as two:
        servers = ["--baseline", one.url, "--speculative", two.url, "--measured-requests", "12", "--max-tokens", "24"]
        answer = paceline(["rollout", "--traffic", str(log), *ASKED, *servers, "--concurrency", "2", "--out", str(out), "--json"])
    assert answer.code == 0, answer.err
    run = read_run(out / "runs" / "c0002-speculative.json")
    assert run.provenance.evidence is Evidence.MEASURED
    assert run.provenance.arguments["target"] == "Llama-3.1-8B"
    verdict = json.loads((out / "verdict.json").read_text("utf-8"))
    assert verdict["rests_on"]["arms"] == "measured"
    assert verdict["rests_on"]["acceptance"] == "measured"
    assert "simulated_evidence" not in [each["code"] for each in verdict["warnings"]]
    assert "both arms were measured on servers" in (out / "skill-eagle3-rollout.md").read_text("utf-8")
    assert not (out / "rehearsal").exists()


def test_a_measurement_is_decided_from_again_only_where_that_is_asked_for(
    log: Path, tmp_path: Path, paceline: Callable[[Sequence[str]], Answer]
) -> None:
    """A second rollout after a change of the server must not show the first one's figures."""
    out = tmp_path / "out"
    with served(plain(0.004)) as one, served(speculative(0.004, drafting(all=(0.8, 0.6, 0.5, 0.4, 0.3)))) as two:
        servers = ["--baseline", one.url, "--speculative", two.url, "--measured-requests", "6", "--max-tokens", "12"]
        arguments = ["rollout", "--traffic", str(log), *ASKED, *servers, "--concurrency", "2", "--out", str(out)]
        longer = paceline(arguments)
        assert (longer.code, "give --draft-tokens 5 --resume" in longer.err) == (2, True)
        again = paceline(arguments)
        assert (again.code, "add --resume" in again.err) == (2, True), again.err
        assert paceline([*arguments, "--draft-tokens", "5", "--resume"]).code == 0
        untold = paceline(["rollout", "--traffic", str(log), *servers, "--out", str(tmp_path / "other")])
    assert (untold.code, "--target and --method" in untold.err) == (2, True)
    planned = paceline(["plan", str(out / "bench")])
    assert (planned.code, "name it with --target" in planned.err) == (2, True)


def test_one_server_is_no_rollout(log: Path, tmp_path: Path, paceline: Callable[[Sequence[str]], Answer]) -> None:
    """A verdict needs both arms."""
    answer = paceline(["rollout", "--traffic", str(log), *ASKED, "--baseline", "http://127.0.0.1:9", "--out", str(tmp_path / "out")])
    assert (answer.code, "run `bench` twice" in answer.err) == (2, True)


def test_without_servers_two_fake_ones_are_measured_over_http(
    log: Path, tmp_path: Path, paceline: Callable[[Sequence[str]], Answer]
) -> None:
    """Whoever has no GPU yet sees what the load-test will do, and its files."""
    out = tmp_path / "out"
    arguments = ["rollout", "--traffic", str(log), *ASKED, "--survival", ".8,.6,.45", "--concurrency", "2", "--requests", "20"]
    (out / "rehearsal").mkdir(parents=True)
    (out / "rehearsal" / "bench.json").write_text("{}", encoding="utf-8")  # of an earlier one
    answer = paceline([*arguments, "--out", str(out)])
    assert answer.code == 0, answer.err
    assert "rehearsed over HTTP on two fake servers at 2 in flight" in answer.out
    run = read_run(out / "rehearsal" / "runs" / "c0002-speculative.json")
    assert len(run.requests or ()) == 4
    assert run.acceptance.steps
    assert json.loads((out / "verdict.json").read_text("utf-8"))["rests_on"]["arms"] == "simulated"
