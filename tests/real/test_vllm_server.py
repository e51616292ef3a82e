"""`bench` and `measure` against one real vLLM on CPU with n-gram drafts: three ways to the same counts.

The requests go out in an open loop, so that no uncounted request is sent beside them and the server's counters between the two scrapes are
theirs. Three sources are compared: what each answer says of its own drafts, the counters, and our own count of tokens and messages.

The one difference that is real: a request that stops inside an accepted draft (a stop token, or the length) emits fewer tokens than it
accepted. So tokens emitted per step are at most tokens accepted per step, by up to K tokens per request.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from paceline.files.runfile import read_run
from paceline.latency import samples
from paceline.run import Arm, Outcome, Run
from tests.conftest import Answer
from tests.real.servers import running, scrape, vllm_environment, watched

DRAFT_TOKENS = 4
REQUESTS = 10
MAX_TOKENS = 40
READY_S = 420.0
NGRAM = {"method": "ngram", "num_speculative_tokens": DRAFT_TOKENS, "prompt_lookup_min": 2, "prompt_lookup_max": 4}


@pytest.fixture(scope="module")
def vllm_url(vllm_python: Path, model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A vLLM with n-gram drafts, started once: it takes more than a minute."""
    command = [
        *(str(vllm_python), "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(model_dir), "--served-model-name", "smollm2"),
        *("--max-model-len", "1024", "--max-num-seqs", "4", "--dtype", "float32", "--enforce-eager", "--no-enable-prefix-caching"),
        *("--speculative-config", json.dumps(NGRAM), "--per-request-spec-decode-metrics", "detailed"),
    ]
    env = vllm_environment(vllm_python)
    log = tmp_path_factory.mktemp("vllm") / "server.log"
    with running(command, arm=Arm.SPECULATIVE, engine="vllm", model="smollm2", log=log, ready_s=READY_S, env=env) as url:
        yield url


@pytest.fixture(scope="module")
def measured(vllm_url: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folder of one load-test, and a scrape from before its warm-up."""
    from paceline.cli.main import main

    folder = tmp_path_factory.mktemp("bench")
    before = scrape(vllm_url, folder / "before.prom")
    code = main(
        [
            *("bench", "--speculative", vllm_url, "--method", "ngram", "--draft-tokens", str(DRAFT_TOKENS), "--traffic", "demo"),
            *("--requests", str(REQUESTS), "--max-tokens", str(MAX_TOKENS), "--rate", "4", "--out", str(folder / "out"), "--json"),
        ]
    )
    assert code in (0, 4), "4: the client was late on this busy machine, which changes no count"
    return folder, before


def the_run(measured: tuple[Path, Path]) -> Run:
    (file,) = (measured[0] / "out" / "runs").glob("*.json")
    return read_run(file)


def scrapes_of(measured: tuple[Path, Path]) -> tuple[Path, Path]:
    """What /metrics said right before and after the counted requests."""
    (before,) = (measured[0] / "out" / "scrapes").rglob("*-before.prom")
    (after,) = (measured[0] / "out" / "scrapes").rglob("*-after.prom")
    return before, after


def measure(paceline: Callable[[Sequence[str]], Answer], before: Path, after: Path) -> dict[str, Any]:
    answer = paceline(["measure", "--before", str(before), "--after", str(after), "--json"])
    assert answer.code == 0, answer.err
    body: dict[str, Any] = json.loads(answer.out)
    return body


def test_every_request_is_answered_and_counted_by_the_server(measured: tuple[Path, Path]) -> None:
    """Where tokens per message are guessed, TPOT under speculation is wrong by the acceptance length."""
    run = the_run(measured)
    assert [each.outcome for each in run.requests or ()] == [Outcome.FINISHED] * REQUESTS
    assert run.provenance.arguments["tokens_from"] == "usage"
    assert run.provenance.arguments["acceptance_from"] == "each request"


def test_the_requests_own_counts_add_up_to_the_counters(measured: tuple[Path, Path], paceline: Callable[[Sequence[str]], Answer]) -> None:
    """Acceptance per segment is only worth something if the segments together are what the server counted: to the last token."""
    ours = the_run(measured).acceptance
    theirs = measure(paceline, *scrapes_of(measured))["acceptance"]
    assert ours.drafts > 0
    assert (ours.drafts, ours.drafted_tokens, ours.accepted_tokens) == (
        theirs["drafts"],
        theirs["drafted_tokens"],
        theirs["accepted_tokens"],
    )
    assert list(ours.survival) == [each["value"] for each in theirs["survival"]]


def test_steps_without_a_draft_are_counted_too(measured: tuple[Path, Path], paceline: Callable[[Sequence[str]], Answer]) -> None:
    """The acceptance length that vLLM prints leaves them out; for n-gram drafts that reads 2.5 where users get 1.1.

    We conclude each request's steps from its messages; the server observes one inter-token latency per request and step.
    """
    ours = the_run(measured).acceptance
    theirs = measure(paceline, *scrapes_of(measured))["acceptance"]
    assert ours.steps is not None
    assert ours.steps == theirs["steps"]
    assert ours.steps > ours.drafts
    assert ours.tokens_per_step == theirs["tokens_per_step"]["value"]


def test_our_own_count_of_tokens_is_the_servers(measured: tuple[Path, Path], paceline: Callable[[Sequence[str]], Answer]) -> None:
    """The pace that a user feels is counted on this side of the wire; it must not need the server's word."""
    run = the_run(measured)
    told = measure(paceline, *scrapes_of(measured))["summaries"]
    assert sum(each.output_tokens for each in run.finished) == told["generation_tokens"]["value"]
    assert sum(each.prompt_tokens for each in run.finished) == told["prompt_tokens"]["value"]


def test_tokens_per_message_are_tokens_per_step_but_for_stops(measured: tuple[Path, Path]) -> None:
    """For a server without any counter, tokens per message are all there is.

    A step whose only token is the end of the sequence shows no text, so its message is no chunk; a stop inside a draft emits fewer tokens
    than were accepted. Nothing else may differ, request by request.
    """
    for each in the_run(measured).finished:
        counts, tokens = each.acceptance, each.timing.chunk_tokens
        assert counts is not None
        assert counts.steps is not None
        assert counts.steps - 1 <= tokens.size - 1 <= counts.steps
        emitted, accepted = each.output_tokens - 1, counts.steps + counts.accepted_tokens
        assert accepted - DRAFT_TOKENS <= emitted <= accepted


def test_both_clocks_tell_the_same_pace(measured: tuple[Path, Path], paceline: Callable[[Sequence[str]], Answer]) -> None:
    """The server's histograms have no percentiles worth the name; where both have a mean, a difference is a fault of ours."""
    timings = [each.timing for each in the_run(measured).finished]
    told = measure(paceline, *scrapes_of(measured))["summaries"]
    tpot_s, gaps_s, e2e_s = (samples(name, timings) for name in ("tpot_s", "chunk_gap_s", "e2e_s"))
    assert tpot_s.mean() == pytest.approx(told["tpot_s"]["value"], rel=0.05)
    assert gaps_s.mean() == pytest.approx(told["chunk_gap_s"]["value"], rel=0.05)
    assert e2e_s.mean() == pytest.approx(told["e2e_s"]["value"], rel=0.05)


def test_a_dump_taken_earlier_holds_the_warm_up_too(measured: tuple[Path, Path], paceline: Callable[[Sequence[str]], Answer]) -> None:
    """Two dumps around a whole load-test also count its warm-up, and somebody who compares both figures must know why."""
    before, after = scrapes_of(measured)
    counted, everything = (measure(paceline, each, after)["summaries"]["generation_tokens"]["value"] for each in (before, measured[1]))
    assert everything > counted


def test_a_window_on_the_running_server_holds_what_was_asked_in_it(vllm_url: str) -> None:
    """Production is measured without dumps; a window that misses its last request understates every total."""
    run, answer = watched(vllm_url, "one two three four one two three four one two three", model="smollm2", tokens=16)
    told = answer["metrics"]["speculative_decoding"]
    assert run.summaries["generation_tokens"].value == answer["usage"]["completion_tokens"]
    assert (run.acceptance.drafts, run.acceptance.drafted_tokens, run.acceptance.accepted_tokens) == (
        told["num_spec_steps"],
        told["num_draft_tokens"],
        told["num_accepted_draft_tokens"],
    )
