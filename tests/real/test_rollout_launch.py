"""The whole job on real engines that paceline starts itself: `rollout --launch` on vLLM with n-gram drafts, on llama-server with a draft.

A machine without a GPU is no place to learn whether drafting pays, and this one is busy too. So what is looked at is that each step of the
job rests on what the real engine did: two arms with the same requests, acceptance by segment from its own counts, a verdict, a plan and a
report, in which version of which engine, and that nothing of it runs afterwards.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.main import main
from paceline.files.runfile import read_run
from paceline.run import Arm, Evidence, Run
from tests.conftest import Answer
from tests.real.servers import vllm_environment

QUESTIONS = [f"Tell me about {each}." for each in ("salt", "bread", "rivers", "chess", "tea", "bees")]
VLLM = "--max-model-len 1024 --dtype float32 --enforce-eager --no-enable-prefix-caching"
LLAMA = "--threads 1 --threads-batch 1 --threads-draft 1 --threads-batch-draft 1 --ctx-size 4096 --parallel 2"
FILES = {"forecast.json", "journal.jsonl", "launch.json", "plan.json", "plan.md", "report.html", "verdict.json"}
REQUESTS = 8


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short questions of two kinds."""
    file = tmp_path_factory.mktemp("log") / "log.jsonl"
    rows = [{"messages": [{"role": "user", "content": each}], "kind": ("chat", "code")[i % 2]} for i, each in enumerate(QUESTIONS)]
    file.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def environment(vllm_python: Path) -> Iterator[None]:
    """What the user exports before vLLM on a CPU."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in vllm_environment(vllm_python).items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def on_vllm(vllm_python: Path, model_dir: Path, environment: None, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: ARG001 - set before
    """The folder of a rollout on vLLM: both servers started once, two points each."""
    out = tmp_path_factory.mktemp("vllm") / "out"
    drafts = ("--target", str(model_dir), "--method", "ngram", "--draft-tokens", "4")
    engine = (
        "--launch",
        "vllm",
        "--launch-python",
        str(vllm_python),
        "--launch-arg",
        VLLM,
        "--max-requests",
        "4",
        "--token-budget",
        "1024",
    )
    load = ("--measured-requests", str(REQUESTS), "--max-tokens", "32", "--concurrency", "1,2")
    assert main(["rollout", "--traffic", "demo", *drafts, *engine, *load, "--out", str(out)]) == 0
    return out


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


def expect_whole_job(out: Path, paceline: Callable[[Sequence[str]], Answer]) -> None:
    """Every file is there, the verdict rests on both arms' measurements at both points, and gate reads the same runs."""
    assert {each.name for each in out.iterdir() if each.is_file()} >= FILES
    verdict = document(out, "verdict.json")
    assert verdict["rests_on"]["arms"] == verdict["rests_on"]["acceptance"] == "measured"
    assert [each["concurrency"] for each in verdict["by_concurrency"]] == [1, 2]
    for concurrency in (1, 2):
        baseline, speculative = runs(out, concurrency)
        assert len(baseline.finished) == len(speculative.finished) == REQUESTS
        assert [each.id for each in baseline.finished] == [each.id for each in speculative.finished]
        assert baseline.acceptance_by_segment is None
        assert speculative.provenance.evidence is Evidence.MEASURED
        assert len(speculative.acceptance_by_segment or {}) == 2
        assert all(each.drafted_tokens > 0 for each in (speculative.acceptance_by_segment or {}).values())
    gated = paceline(["gate", *(str(out / "runs" / f"c0002-{arm.value}.json") for arm in Arm), "--json"])
    assert gated.code in (0, 1, 4), gated.err
    assert not [each["code"] for each in json.loads(gated.out)["warnings"] if each["code"] in ("baseline_drafts", "nothing_drafted")]
    for arm in Arm:
        assert (out / "bench" / "servers" / f"{arm.value}.log").stat().st_size > 0


def test_a_rollout_on_vllm_is_the_whole_job(on_vllm: Path, paceline: Callable[[Sequence[str]], Answer]) -> None:
    """What a user does on the first day; every step below it may be right and the job still not run."""
    expect_whole_job(on_vllm, paceline)
    launch = document(on_vllm, "launch.json")["arms"]
    assert launch["baseline"]["engine_version"].startswith("0.32.0")
    assert launch["speculative"]["command"][: len(launch["baseline"]["command"])] == launch["baseline"]["command"]
    assert "(vllm 0.32.0" in (on_vllm / "plan.md").read_text("utf-8")


def test_each_request_on_vllm_tells_its_own_drafts(on_vllm: Path) -> None:
    """The option for it is part of the command, so that acceptance by segment is no second measurement."""
    _, speculative = runs(on_vllm, 2)
    assert speculative.provenance.arguments["acceptance_from"] == "each request"


def test_a_rollout_on_llama_server_is_the_whole_job(on_llama: Path, paceline: Callable[[Sequence[str]], Answer]) -> None:
    """llama-server says other things in other places; the job must not."""
    expect_whole_job(on_llama, paceline)
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
    drafts = ("--method", "draft-model", "--draft-tokens", "2", "--synthetic-acceptance", "1,3")
    load = ("--traffic", str(log), "--requests", "4", "--max-tokens", "24", "--concurrency", "1", "--out", str(tmp_path / "out"))
    answer = paceline(["bench", "--launch", "llamacpp", *files, "--launch-arg", LLAMA, *drafts, *load, "--json"])
    assert answer.code == 0, answer.err
    (point,) = json.loads(answer.out)["by_concurrency"]
    least, most = point["lengths"]
    assert least["tokens_per_step"] == 1.0
    assert most["tokens_per_step"] == pytest.approx(3.0, abs=0.25), "the last draft of an answer is cut to what is left of it"
    assert least["step_time_ratio"]["value"] > 1
