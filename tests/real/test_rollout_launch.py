"""The whole job on real engines that paceline starts itself: `rollout --launch` on vLLM with an EAGLE-3 head, on llama-server with a draft.

A machine without a GPU is no place to learn whether drafting pays, and this one is busy too. So what is looked at is that each step of the
job rests on what the real engine did: two arms with the same requests, acceptance by segment from its own counts, a verdict, a plan and a
report, in which version of which engine, and that nothing of it runs afterwards.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.main import main
from paceline.files.runfile import read_run
from paceline.run import Arm, Evidence, Run
from tests.conftest import Answer
from tests.real.eagle3_rollout import CONCURRENCIES, DRAFTS, REQUESTS

QUESTIONS = [f"Tell me about {each}." for each in ("salt", "bread", "rivers", "chess", "tea", "bees")]
LLAMA = "--threads 1 --threads-batch 1 --threads-draft 1 --threads-batch-draft 1 --ctx-size 4096 --parallel 2"
FILES = {"forecast.json", "journal.jsonl", "launch.json", "plan.json", "plan.md", "report.html", "verdict.json"}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short questions of two kinds."""
    file = tmp_path_factory.mktemp("log") / "log.jsonl"
    rows = [{"messages": [{"role": "user", "content": each}], "kind": ("chat", "code")[i % 2]} for i, each in enumerate(QUESTIONS)]
    file.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def on_llama(llama_server: Path, llama_gguf: Path, model_dir: Path, log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a rollout on llama-server, whose draft is the target itself."""
    out = tmp_path_factory.mktemp("llama") / "out"
    drafts = ("--target", str(model_dir), "--method", "draft-model", "--draft", str(model_dir), "--draft-tokens", "2")
    files = ("--launch-binary", str(llama_server), "--launch-model", str(llama_gguf), "--launch-draft", str(llama_gguf))
    load = ("--measured-requests", str(REQUESTS), "--max-tokens", "16", "--concurrency", "1,2", "--segment-field", "kind")
    code = main(
        ["rollout", "--traffic", str(log), *drafts, "--launch", "llamacpp", *files, "--launch-arg", LLAMA, *load, "--out", str(out)]
    )
    assert code == 0
    return out


def runs(out: Path, concurrency: int) -> tuple[Run, Run]:
    baseline, speculative = (read_run(out / "runs" / f"c{concurrency:04d}-{arm.value}.json") for arm in Arm)
    return baseline, speculative


def document(out: Path, name: str) -> Any:
    return json.loads((out / name).read_text("utf-8"))


def expect_whole_job(out: Path, paceline: Callable[[Sequence[str]], Answer], *, concurrencies: Sequence[int], segments: int) -> None:
    """Every file is there, the verdict rests on both arms' measurements at both points, and gate reads the same runs."""
    assert {each.name for each in out.iterdir() if each.is_file()} >= FILES
    verdict = document(out, "verdict.json")
    assert verdict["rests_on"]["arms"] == verdict["rests_on"]["acceptance"] == "measured"
    assert [each["concurrency"] for each in verdict["by_concurrency"]] == list(concurrencies)
    for concurrency in concurrencies:
        baseline, speculative = runs(out, concurrency)
        assert len(baseline.finished) == len(speculative.finished) == REQUESTS
        assert [each.id for each in baseline.finished] == [each.id for each in speculative.finished]
        assert baseline.acceptance_by_segment is None
        assert speculative.provenance.evidence is Evidence.MEASURED
        assert len(speculative.acceptance_by_segment or {}) == segments
        assert all(each.drafted_tokens > 0 for each in (speculative.acceptance_by_segment or {}).values())
    gated = paceline(["gate", *(str(out / "runs" / f"c{concurrencies[-1]:04d}-{arm.value}.json") for arm in Arm), "--json"])
    assert gated.code in (0, 1, 4), gated.err
    assert not [each["code"] for each in json.loads(gated.out)["warnings"] if each["code"] in ("baseline_drafts", "nothing_drafted")]
    for arm in Arm:
        assert (out / "bench" / "servers" / f"{arm.value}.log").stat().st_size > 0


def test_a_rollout_on_vllm_is_the_whole_job(on_vllm: Path, paceline: Callable[[Sequence[str]], Answer]) -> None:
    """What a user does on the first day; every step below it may be right and the job still not run."""
    out = on_vllm / "rollout"
    expect_whole_job(out, paceline, concurrencies=CONCURRENCIES, segments=1)
    launch = document(out, "launch.json")["arms"]
    assert launch["baseline"]["engine_version"].startswith("0.32.0")
    assert launch["speculative"]["command"][: len(launch["baseline"]["command"])] == launch["baseline"]["command"]
    assert "(vllm 0.32.0" in (out / "plan.md").read_text("utf-8")


def test_the_plan_made_of_the_folder_is_the_rollouts_own(
    on_vllm: Path, model_dir: Path, hardware: Path, paceline: Callable[[Sequence[str]], Answer]
) -> None:
    """Whoever decides again from what was measured gets the commands that were measured, not the defaults of a server that was not."""
    where = ("--target", str(model_dir), "--gpu", str(hardware), "--gpus", "1", "--max-requests", "4", "--token-budget", "1024")
    answer = paceline(["plan", str(on_vllm / "rollout"), *where, *DRAFTS, "--json"])
    assert answer.code == 0, answer.err
    said, own = json.loads(answer.out), document(on_vllm / "rollout", "plan.json")
    assert [each["name"] for each in said["stages"]] == [each["name"] for each in own["stages"]]
    assert "vllm.entrypoints.openai.api_server" in answer.out
    assert '\\"method\\": \\"eagle3\\"' in answer.out


def test_each_request_on_vllm_tells_its_own_drafts(on_vllm: Path) -> None:
    """The option for it is part of the command, so that acceptance by segment is no second measurement."""
    _, speculative = runs(on_vllm / "rollout", CONCURRENCIES[-1])
    assert speculative.provenance.arguments["acceptance_from"] == "each request"


def test_a_rollout_on_llama_server_is_the_whole_job(on_llama: Path, paceline: Callable[[Sequence[str]], Answer]) -> None:
    """llama-server says other things in other places; the job must not."""
    expect_whole_job(on_llama, paceline, concurrencies=(1, 2), segments=2)
    command = document(on_llama, "launch.json")["arms"]["speculative"]["command"]
    assert command[command.index("--spec-type") + 1] == "draft-simple"


def test_a_target_that_drafts_for_itself_is_nearly_always_right(on_llama: Path) -> None:
    """The one acceptance that is known beforehand; numbers in batches differ a little from those one by one."""
    assert runs(on_llama, 1)[1].acceptance.alpha > 0.8


def test_llama_server_without_its_speculation_is_no_speculative_arm(
    llama_server: Path, llama_gguf: Path, model_dir: Path, log: Path, tmp_path: Path, paceline: Callable[[Sequence[str]], Answer]
) -> None:
    """Its draft cannot be loaded, and the server says so and ends; exit code 3 and the cause in one sentence."""
    drafts = ("--target", str(model_dir), "--method", "eagle3", "--draft-tokens", "2")
    files = ("--launch-binary", str(llama_server), "--launch-model", str(llama_gguf), "--launch-draft", str(llama_gguf))
    load = ("--measured-requests", "2", "--max-tokens", "4", "--concurrency", "1")
    answer = paceline(
        [
            "rollout",
            "--traffic",
            str(log),
            *drafts,
            "--launch",
            "llamacpp",
            *files,
            "--launch-arg",
            LLAMA,
            *load,
            "--out",
            str(tmp_path / "out"),
        ]
    )
    assert answer.code == 3, answer.err
    assert len(answer.err.splitlines()) == 1


def test_made_up_acceptance_on_llama_server_is_what_it_was_told(
    llama_server: Path, llama_gguf: Path, log: Path, tmp_path: Path, paceline: Callable[[Sequence[str]], Answer]
) -> None:
    """The step-time ratio before any draft exists; with none accepted, a step costs what drafting and verifying cost."""
    files = ("--launch-binary", str(llama_server), "--launch-model", str(llama_gguf), "--launch-draft", str(llama_gguf))
    drafts = ("--method", "draft-model", "--draft-tokens", "2", "--synthetic-acceptance", "1")
    load = ("--traffic", str(log), "--requests", "4", "--max-tokens", "24", "--concurrency", "1", "--out", str(tmp_path / "out"))
    answer = paceline(["bench", "--launch", "llamacpp", *files, "--launch-arg", LLAMA, *drafts, *load, "--json"])
    assert answer.code == 0, answer.err
    (point,) = json.loads(answer.out)["by_concurrency"]
    (length,) = point["lengths"]
    assert length["tokens_per_step"] == 1.0
    assert length["step_time_ratio"]["value"] > 1
    assert (point["break_even_tokens_per_step"], point["pays_at_the_longest"]) == (None, False)
