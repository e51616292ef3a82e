"""`bench` and `measure` against a real llama-server whose acceptance is dialled in.

`--spec-synth-len 2.5` makes each step accept so many drafts that it emits 2.5 tokens on average, whatever the draft model says (and
whatever the target would say: the text is not to be trusted). With K = 2 drafts p + p² = 1.5, so each of the two is accepted with p = .823
given the one before, and the accepted drafts of a step have a standard deviation of .78. Twelve answers of 250 tokens are some 1,200
steps: a standard error of .022, and the server's draws follow from the requests' seeds, so a run that passed passes again. The last draft
of an answer is cut to what is left of it, which makes the mean smaller by less than .01. A step takes some 130 ms of one processor, and
five tokens of a prompt, read by both models, take more: so the prompts are short.

The requests go out in an open loop, so that no uncounted request is sent beside them and the server's counters between the two scrapes are
theirs. llama-server tells of each request what was drafted and accepted, but not in how many steps.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.main import main
from paceline.files.runfile import read_run
from paceline.run import Arm, Outcome, Run
from tests.conftest import Answer
from tests.real.servers import running, watched

DRAFT_TOKENS = 2
DIALLED = 2.5
TOLERANCE = 0.05
REQUESTS = 12
MAX_TOKENS = 250
FEW_REQUESTS = 4
FEW_TOKENS = 24
READY_S = 120.0
MODEL = "smollm2"
SUBJECTS = ("salt", "bread", "rivers", "chess", "tea", "bees", "iron", "maps", "rain", "wool", "clocks", "stars", "glass", "ants")
QUESTIONS = [f"Tell me about {each}." for each in SUBJECTS]
# One thread: threads that wait for each other spin, and on a busy machine with two processors that costs more than a second gives.
COMMON = ("--threads", "1", "--threads-batch", "1", "--parallel", "2", "--ctx-size", "4096", "--metrics")
DRAFTING = ("--spec-type", "draft-simple", "--spec-draft-n-max", str(DRAFT_TOKENS), "--spec-synth-len", str(DIALLED))


@dataclass(frozen=True, slots=True)
class Servers:
    """The URLs of the server without drafts and of the one with them."""

    plain: str
    speculative: str


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chat log of short questions."""
    file = tmp_path_factory.mktemp("log") / "log.jsonl"
    lines = [json.dumps({"messages": [{"role": "user", "content": each}]}) for each in QUESTIONS]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def servers(llama_server: Path, llama_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Both, started once."""
    folder = tmp_path_factory.mktemp("llama")
    command = [str(llama_server), "--model", str(llama_gguf), "--alias", MODEL, *COMMON]
    drafting = [*command, "--model-draft", str(llama_gguf), "--threads-draft", "1", "--threads-batch-draft", "1", *DRAFTING]
    common: dict[str, Any] = {"engine": "llamacpp", "model": MODEL, "ready_s": READY_S, "env": {}}
    with (
        running(command, arm=Arm.BASELINE, log=folder / "plain.log", **common) as plain,
        running(drafting, arm=Arm.SPECULATIVE, log=folder / "drafting.log", **common) as speculative,
    ):
        yield Servers(plain=plain, speculative=speculative)


@pytest.fixture(scope="module")
def measured(servers: Servers, log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a load-test of the speculative server alone, long enough for its acceptance."""
    out = tmp_path_factory.mktemp("alone") / "out"
    load = ("--requests", str(REQUESTS), "--max-tokens", str(MAX_TOKENS), "--ignore-eos", "--rate", "100", "--first-byte-timeout", "600s")
    drafts = ("--method", "draft-model", "--draft-tokens", str(DRAFT_TOKENS))
    code = main(["bench", "--speculative", servers.speculative, *drafts, *load, "--traffic", str(log), "--out", str(out), "--json"])
    assert code in (0, 4), "4: the client was late on this busy machine, which changes no count"
    return out


def the_run(folder: Path, arm: str = "speculative") -> Run:
    (file,) = (folder / "runs").glob(f"*-{arm}.json")
    return read_run(file)


def measure(paceline: Callable[[Sequence[str]], Answer], folder: Path) -> dict[str, Any]:
    """What `measure` says of the scrapes before and after the counted requests."""
    ends = [next((folder / "scrapes").rglob(f"*-{when}.prom")) for when in ("before", "after")]
    answer = paceline(["measure", "--before", str(ends[0]), "--after", str(ends[1]), "--json"])
    assert answer.code == 0, answer.err
    body: dict[str, Any] = json.loads(answer.out)
    return body


def test_the_dialled_acceptance_is_measured_by_bench_and_by_measure(measured: Path, paceline: Callable[[Sequence[str]], Answer]) -> None:
    """The one figure that no model and no traffic can explain away: what was put in has to come out."""
    run, told = the_run(measured), measure(paceline, measured)["acceptance"]
    assert run.acceptance.drafts > 1000
    assert run.acceptance.acceptance_length == pytest.approx(DIALLED, abs=TOLERANCE)
    assert told["acceptance_length"]["value"] == pytest.approx(DIALLED, abs=TOLERANCE)


def test_the_requests_own_counts_add_up_to_the_counters(measured: Path, paceline: Callable[[Sequence[str]], Answer]) -> None:
    """Acceptance per segment is only worth something if the segments together are what the server counted: to the last token."""
    run, told = the_run(measured), measure(paceline, measured)
    ours, theirs = run.acceptance, told["acceptance"]
    assert [each.outcome for each in run.requests or ()] == [Outcome.FINISHED] * REQUESTS
    assert run.provenance.arguments["acceptance_from"] == "each request"
    assert (ours.drafted_tokens, ours.accepted_tokens) == (theirs["drafted_tokens"], theirs["accepted_tokens"])
    assert sum(each.output_tokens for each in run.finished) == told["summaries"]["generation_tokens"]["value"]


def test_drafted_steps_are_all_steps_but_the_last_of_an_answer(measured: Path, paceline: Callable[[Sequence[str]], Answer]) -> None:
    """We take every step of a llama.cpp answer for a drafted one and say so; here the counters show what that is worth."""
    run, theirs = the_run(measured), measure(paceline, measured)["acceptance"]["drafts"]
    assert "drafted_steps_assumed" in {each.code for each in run.cautions}
    assert theirs <= run.acceptance.drafts <= theirs + REQUESTS


def test_each_message_is_one_token_and_that_is_said(measured: Path) -> None:
    """llama-server sends accepted drafts one by one, so tokens per message say nothing of its steps and most gaps are nothing."""
    run = the_run(measured)
    assert run.summaries["tokens_per_chunk"].value == pytest.approx(1, abs=0.02)
    assert "tokens_in_bursts" in {each.code for each in run.cautions}
    assert run.acceptance.steps is not None
    after_first = sum(each.output_tokens - 1 for each in run.finished)
    assert after_first / run.acceptance.steps == pytest.approx(run.acceptance.tokens_per_step, abs=0.001)


def test_the_plain_server_is_taken_for_one(
    servers: Servers, log: Path, tmp_path: Path, paceline: Callable[[Sequence[str]], Answer]
) -> None:
    """llama-server has the same counters with and without drafts; a comparison of two arms that both draft shows nothing."""
    load = ("--requests", str(FEW_REQUESTS), "--max-tokens", str(FEW_TOKENS), "--rate", "100", "--pairs", "1", "--traffic", str(log))
    arms = ("--baseline", servers.plain, "--speculative", servers.speculative)
    answer = paceline(["bench", *arms, *load, "--out", str(tmp_path / "out"), "--json"])
    assert answer.code in (0, 4), answer.err
    plain = the_run(tmp_path / "out", "baseline")
    speculative = the_run(tmp_path / "out", "speculative")
    assert not {"baseline_drafts", "nothing_drafted"} & {each["code"] for each in json.loads(answer.out)["warnings"]}
    assert [each.id for each in plain.finished] == [each.id for each in speculative.finished]
    assert plain.acceptance_by_segment is None
    assert speculative.acceptance.accepted_tokens > 0


def test_a_window_on_the_running_server_holds_what_was_asked_in_it(servers: Servers) -> None:
    """Production is measured without dumps; a window that misses its last request understates every total."""
    run, answer = watched(servers.speculative, "The sun is a star.", model="any", tokens=16)
    assert run.summaries["generation_tokens"].value == answer["timings"]["predicted_n"]
    assert (run.acceptance.drafted_tokens, run.acceptance.accepted_tokens) == (
        answer["timings"]["draft_n"],
        answer["timings"]["draft_n_accepted"],
    )
