"""The whole job: every file it promises, whole, the same bytes from the same inputs, and a verdict that `plan` agrees with."""

import gzip
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paceline.decide.gate import DEFAULT_POLICY
from paceline.errors import BadInputError, NoEvidenceError
from paceline.files.runfile import read_run
from paceline.jobs.acceptance import AskedAcceptance
from paceline.jobs.rollout import Job, Rollout, roll_out
from paceline.jobs.simulation import SimulationPlan
from paceline.jobs.traffic import Reading
from paceline.replay.ngram import NgramRule
from paceline.run import Arm, Evidence
from paceline.simulate.replica import Rejection
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.method import Method
from tests.checkpoints import tokenizer
from tests.conftest import Answer
from tests.test_jobs_scenario import ASKED, VERSION, config_folder

Paceline = Callable[[Sequence[str]], Answer]

SHAPES = Path(__file__).parent / "data" / "traffic"
JOB = Job(
    traffic=(str(SHAPES / "openai_chat.jsonl"),),
    asked=replace(ASKED, target="llama-3.1-8b", gpus=1),
    acceptance=AskedAcceptance(typed=None, file=None, segment_alphas={}),
    reading=Reading(
        tokenizer=None,
        segment_rule=None,
        segment_field=None,
        rule=NgramRule(min_tokens=2, max_tokens=4, draft_tokens=3),
        assumed_output_tokens=50,
        seed=1,
    ),
    simulation=SimulationPlan(requests=30, max_requests=8, token_budget=512, spread=0.5, rejection=Rejection.IN_PASS, seed=1),
    policy=DEFAULT_POLICY,
    policy_inputs={"policy.toml": "ab12"},
    concurrencies=(1, 4),
    requests_per_s=2.0,
    version=VERSION,
    ngram=(2, 4),
    servers=None,
    launching=None,
    hardware_told=True,
    resume=False,
    rehearse=False,
    arguments={"traffic": ["openai_chat.jsonl"]},
    command=("paceline", "rollout", "--traffic", "openai_chat.jsonl"),
)
VERDICT = ("verdict", "concurrency", "findings", "alpha", "break_even_alpha", "requests_needed", "routing", "warnings", "lesson_verdict")
PROMISED = {
    "replay.json",
    "forecast.json",
    "verdict.json",
    "plan.md",
    "plan.json",
    "report.html",
    "skill-eagle3-rollout.md",
    "manifests/baseline.sh",
    "manifests/speculative.sh",
    "runs/c0001-baseline.json",
    "runs/c0001-speculative.json",
    "runs/c0004-baseline.json",
    "runs/c0004-speculative.json",
}


def done(out: Path, job: Job = JOB) -> Rollout:
    """The job, done without a bar."""
    return roll_out(job, out, reading=lambda _: None, step=lambda _: None)


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file below the folder."""
    return {str(each.relative_to(folder)): each.read_bytes() for each in sorted(folder.rglob("*")) if each.is_file()}


def journal(folder: Path) -> dict[str, str]:
    """Hashes by file, as the journal has them."""
    rows = [json.loads(line) for line in (folder / "journal.jsonl").read_text(encoding="utf-8").splitlines()]
    return {row["written"]: row["sha256"] for row in rows}


def document(file: Path) -> dict[str, Any]:
    """A JSON file, plain or gzip."""
    content = file.read_bytes()
    parsed: dict[str, Any] = json.loads(gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content)
    return parsed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One job's folder for the tests that only read."""
    out = tmp_path_factory.mktemp("one") / "out"
    done(out)
    return out


def test_every_promised_file_is_there_and_the_journal_knows_its_content(folder: Path) -> None:
    """A journal that vouches for other bytes vouches for nothing."""
    written = files_of(folder)
    assert set(written) == PROMISED | {"journal.jsonl"}
    assert journal(folder) == {name: hashlib.sha256(content).hexdigest() for name, content in written.items() if name != "journal.jsonl"}
    assert all(content.endswith((b"\n", b"</html>")) for name, content in written.items() if not name.startswith("runs/"))


def test_the_same_inputs_give_the_same_bytes_anywhere(tmp_path: Path, folder: Path) -> None:
    """A report that differs from the one that was signed off cannot be checked; a path tells whose machine made it."""
    done(tmp_path / "elsewhere" / "out")
    assert files_of(tmp_path / "elsewhere" / "out") == files_of(folder)


def test_every_json_opens_with_its_schema_and_provenance_and_no_path(folder: Path) -> None:
    """A file that does not say what it is cannot be read in a year."""
    for name in sorted(PROMISED):
        content = files_of(folder)[name]
        text = (gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content).decode("utf-8")
        assert str(folder.parent) not in text
        assert str(SHAPES) not in text
        if name.endswith(".json"):
            said = json.loads(text)
            assert list(said)[:2] == ["schema", "provenance"], name
            assert re.fullmatch(r"paceline\.[a-z]+/\d+", said["schema"])


def test_the_inputs_are_named_with_their_hashes(folder: Path) -> None:
    """Which log was it, and which policy? A name alone does not tell."""
    hashes = document(folder / "verdict.json")["provenance"]["inputs"]
    log = hashlib.sha256((SHAPES / "openai_chat.jsonl").read_bytes()).hexdigest()
    assert hashes == {"openai_chat.jsonl": log, "policy.toml": "ab12"}


def test_the_verdict_stands_at_each_concurrency_and_the_largest_decides(folder: Path) -> None:
    """One verdict for all loads would be batch 1's."""
    said = document(folder / "verdict.json")
    assert [each["concurrency"] for each in said["by_concurrency"]] == [1, 4]
    last = said["by_concurrency"][-1]
    assert (said["concurrency"], said["verdict"], said["findings"]) == (4, last["verdict"], last["findings"])
    assert said["rests_on"]["acceptance"] == "profile"
    assert "not your traffic" in said["rests_on"]["acceptance_label"]
    assert said["rests_on"]["arms"] == "simulated"


def test_the_cost_models_own_error_is_a_factor_that_every_verdict_is_within(folder: Path) -> None:
    """A range of decoding alone, 1.84 to 2.56, beside a verdict of 1.79 says that the verdict is wrong."""
    warnings = document(folder / "verdict.json")["warnings"]
    (told,) = (each["message"] for each in warnings if each["code"] == "simulated_evidence")
    found = re.search(r"may be off by a factor of (\d\.\d\d) to (\d\.\d\d)$", told)
    assert found is not None, told
    assert 0.3 < float(found[1]) < 1 < float(found[2]) < 3


def test_the_runs_are_evidence_that_gate_reads(folder: Path, paceline: Paceline) -> None:
    """Files that no other verb reads are decoration."""
    arms = [folder / "runs" / f"c0004-{arm}.json" for arm in ("baseline", "speculative")]
    assert [read_run(each).arm for each in arms] == [Arm.BASELINE, Arm.SPECULATIVE]
    answer = paceline(["gate", *map(str, arms), "--json"])
    own, said = document(folder / "verdict.json"), json.loads(answer.out)
    assert {name: said[name] for name in VERDICT} == {name: own[name] for name in VERDICT}
    assert paceline(["gate", *map(str, arms), "--json"]).out == answer.out


def test_the_plan_made_from_the_folder_is_the_rollouts_own(folder: Path, paceline: Paceline, tmp_path: Path) -> None:
    """Two plans for one evidence, and nobody knows which to follow."""
    asked = ["--target", "llama-3.1-8b", "--gpu", "h100", "--gpus", "1", "--dtype", "bf16", "--requests-per-s", "2"]
    asked += ["--max-requests", "8", "--token-budget", "512"]
    answer = paceline(["plan", str(folder), *asked, "--json", "--out", str(tmp_path / "plan")])
    assert answer.code == 0, answer.err
    said, own = json.loads(answer.out), document(folder / "plan.json")
    assert {name: each for name, each in said.items() if name not in ("schema", "provenance")} == {
        name: each for name, each in own.items() if name not in ("schema", "provenance")
    }
    assert (tmp_path / "plan" / "plan.md").read_bytes() == (folder / "plan.md").read_bytes()
    assert document(tmp_path / "plan" / "plan.json") == said


def test_the_manifests_start_what_the_plan_says(folder: Path) -> None:
    """Two ways to start one server, and one of them is wrong."""
    plan = (folder / "plan.md").read_text(encoding="utf-8")
    for arm in ("baseline", "speculative"):
        lines = (folder / "manifests" / f"{arm}.sh").read_text(encoding="utf-8").splitlines()
        assert lines[0] == "#!/bin/sh"
        assert lines[1].removeprefix("exec ") in plan


def test_the_page_and_the_skill_come_from_the_same_verdict(folder: Path) -> None:
    """A page that ships beside a plan that keeps would be quoted by both sides."""
    words = {"ship": "Ship it", "keep": "Keep plain decoding", "cannot_tell": "Cannot tell yet"}[
        document(folder / "verdict.json")["verdict"]
    ]
    assert words in (folder / "report.html").read_text(encoding="utf-8")
    skill = (folder / "skill-eagle3-rollout.md").read_text(encoding="utf-8")
    assert f"**{words}.**" in skill
    assert "```bash\npaceline rollout --traffic openai_chat.jsonl\n```" in skill
    assert "no server was measured" in skill


@pytest.mark.parametrize("at", [0, 1, 2, 3, 4])
def test_an_interrupted_job_leaves_whole_files(tmp_path: Path, at: int) -> None:
    """Ctrl-C in the third hour must not cost the first two, nor leave a file that is cut off."""
    seen: list[str] = []

    def step(name: str) -> None:
        if len(seen) == at:
            raise KeyboardInterrupt
        seen.append(name)

    with pytest.raises(KeyboardInterrupt):
        roll_out(JOB, tmp_path / "out", reading=lambda _: None, step=step)
    written = files_of(tmp_path / "out")
    expected = [
        set(),
        {"replay.json"},
        {"replay.json", "forecast.json"},
        {"replay.json", "forecast.json", "runs/c0001-baseline.json", "runs/c0001-speculative.json"},
        {name for name in PROMISED if name.startswith(("runs/", "replay", "forecast"))},
    ][at]
    assert set(written) - {"journal.jsonl"} == expected
    if expected:
        assert journal(tmp_path / "out") == {
            name: hashlib.sha256(content).hexdigest() for name, content in written.items() if name != "journal.jsonl"
        }
    for name in expected:
        document(tmp_path / "out" / name)


def test_a_second_job_in_the_same_folder_leaves_no_run_of_the_first(tmp_path: Path) -> None:
    """A run at 4 in flight of yesterday's job would be taken for production's today; a stranger's file stays."""
    done(tmp_path / "out")
    (tmp_path / "out" / "runs" / "mine.json").write_text("{}", encoding="utf-8")
    (tmp_path / "out" / "runs" / "c-notes.json").write_text("{}", encoding="utf-8")
    done(tmp_path / "out", replace(JOB, concurrencies=(1,)))
    assert sorted(each.name for each in (tmp_path / "out" / "runs").iterdir()) == [
        "c-notes.json",
        "c0001-baseline.json",
        "c0001-speculative.json",
        "mine.json",
    ]
    assert not any("c0004" in name for name in journal(tmp_path / "out"))


def test_what_acceptance_rests_on_is_in_every_file_that_uses_it(tmp_path: Path) -> None:
    """α typed by hand that reads as replayed an hour later decides a rollout."""
    typed = (Acceptance.from_alpha(0.9, draft_tokens=3), "stated: α = 0.9 at K = 3")
    job = replace(JOB, acceptance=AskedAcceptance(typed=typed, file=None, segment_alphas={}), concurrencies=(1,))
    found = done(tmp_path / "out", job)
    assert found.known.evidence is Evidence.STATED
    assert document(tmp_path / "out" / "verdict.json")["rests_on"]["acceptance_label"] == typed[1]
    assert document(tmp_path / "out" / "forecast.json")["acceptance_label"] == typed[1]
    assert "acceptance is stated" in (tmp_path / "out" / "skill-eagle3-rollout.md").read_text(encoding="utf-8")


def test_ngram_drafts_take_the_replayed_acceptance_of_the_log_itself(tmp_path: Path) -> None:
    """Of all methods this one needs no profile: the log has the answer."""
    job = replace(JOB, asked=replace(JOB.asked, method=Method.NGRAM), concurrencies=(1,))
    found = done(tmp_path / "out", job)
    assert found.known.evidence is Evidence.REPLAYED
    assert "replayed" in document(tmp_path / "out" / "verdict.json")["rests_on"]["acceptance_label"]


def test_prompts_alone_get_no_replay_file_and_a_note(tmp_path: Path) -> None:
    """An empty replay.json would be read as an acceptance of nothing."""
    found = done(tmp_path / "out", replace(JOB, traffic=(str(SHAPES / "prompts.jsonl"),), concurrencies=(1,)))
    assert not (tmp_path / "out" / "replay.json").exists()
    assert any("not measured" in note for note in found.notes)
    assert any("not measured" in note for note in document(tmp_path / "out" / "verdict.json")["notes"])


def test_what_cannot_be_done_writes_nothing(tmp_path: Path) -> None:
    """A folder with half a report of an impossible job would be found by somebody."""
    with pytest.raises(NoEvidenceError, match="no published profile"):
        done(tmp_path / "out", replace(JOB, asked=replace(JOB.asked, method=Method.SUFFIX)))
    with pytest.raises(BadInputError, match=r"README\.md"):
        done(tmp_path / "out", replace(JOB, traffic=(str(SHAPES / "README.md"),)))
    assert not (tmp_path / "out").exists()


SMALL = ["--no-rehearsal", "--target", "llama-3.1-8b", "--gpus", "1", "--requests", "8", "--concurrency", "2"]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("openai_calls.jsonl", 0),
        ("openai_chat.jsonl", 0),
        ("pairs.jsonl", 0),
        ("prompts.jsonl", 0),
        ("sharegpt.json", 0),
        ("azure_trace.csv", 0),
        ("burstgpt_trace.csv", 0),
        ("mooncake_trace.jsonl", 0),
        ("README.md", 2),
    ],
)
def test_every_shape_of_traffic_is_rolled_out_or_refused_with_a_reason(name: str, code: int, tmp_path: Path, paceline: Paceline) -> None:
    """A traceback is the last thing that anybody sees of a tool."""
    answer = paceline(["rollout", "--traffic", str(SHAPES / name), *SMALL, "--out", str(tmp_path / "out")])
    assert answer.code == code, answer.err
    if code:
        assert name in answer.err
        assert not (tmp_path / "out").exists()
    else:
        assert "written to" in answer.out
        assert (tmp_path / "out" / "report.html").is_file()


def test_the_skill_is_named_after_its_method(paceline: Paceline, tmp_path: Path) -> None:
    """An n-gram rollout under EAGLE-3's name is followed by whoever looks for EAGLE-3; one of an earlier method must not stay beside it."""
    (tmp_path / "skill-eagle3-rollout.md").write_text("earlier")
    words = [each for each in SMALL if each not in ("--method", "eagle3")]
    answer = paceline(["rollout", "--traffic", str(SHAPES / "pairs.jsonl"), *words, "--method", "ngram", "--out", str(tmp_path)])
    assert answer.code == 0, answer.err
    assert "manifests/, skill-ngram-rollout.md" in answer.out
    assert [each.name for each in tmp_path.glob("skill-*")] == ["skill-ngram-rollout.md"]
    assert "\nname: ngram-rollout\n" in (tmp_path / "skill-ngram-rollout.md").read_text(encoding="utf-8")


def test_the_command_that_makes_it_again_has_no_folder_of_this_machine(tmp_path: Path) -> None:
    """`--out=/home/me/secret` in a skill that is passed on tells where somebody works."""
    log = SHAPES / "pairs.jsonl"
    command = [sys.executable, "-m", "paceline.cli.main", "rollout", "--traffic", str(log), *SMALL, f"--out={tmp_path / 'out'}"]
    subprocess.run(command, check=True, capture_output=True)
    text = (tmp_path / "out" / "skill-eagle3-rollout.md").read_text(encoding="utf-8")
    assert f"```bash\npaceline rollout --traffic pairs.jsonl {' '.join(SMALL)} --out=out\n```" in text
    assert str(tmp_path) not in text


def test_the_tokens_are_those_of_the_target_s_own_folder(paceline: Paceline, tmp_path: Path) -> None:
    """Whoever names the folder: lengths in bytes would be four times as long, and drafts of bytes are no drafts of tokens."""
    target = config_folder(tmp_path / "target")
    tokenizer(target, [chr(each) for each in range(32, 127)])
    command = ["rollout", "--traffic", str(SHAPES / "pairs.jsonl"), *SMALL, "--target", str(target), "--out", str(tmp_path / "out")]
    assert paceline(command).code == 0
    told = document(tmp_path / "out" / "runs" / "c0002-baseline.json")["provenance"]["arguments"]["tokens"]
    assert told.startswith("tokenizer.json sha256:")
    assert document(tmp_path / "out" / "verdict.json")["provenance"]["arguments"]["tokenizer"] == "tokenizer.json"
