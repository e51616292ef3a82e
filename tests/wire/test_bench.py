"""`paceline bench` against fake servers, which know the truth."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.files.runfile import read_run
from paceline.jobs.asking import Asking, read_asks
from paceline.latency import samples
from paceline.live.fake_server_faults import read_faults
from paceline.run import Load, Outcome, Run
from paceline.simulate.server import simulate
from paceline.stats.blocks import block_pairs, blocks_stated
from paceline.workload import Request, Workload
from tests.conftest import Answer
from tests.wire.fake_servers import ROOMY, drafting, plain, served, speculative, step_cost

PLAIN_S, DRAFTED_S = 0.010, 0.012
DRAFTS = drafting(chat=(0.8, 0.6, 0.45), code=(0.5, 0.2, 0.1))
BENCH = ["bench", "--requests", "24", "--concurrency", "4", "--max-tokens", "24", "--ignore-eos", "--seed", "1"]


def write_log(file: Path) -> Path:
    """Forty prompts of two segments, every third about code."""
    rows = [
        {"messages": [{"role": "user", "content": f"question {i}: " + "word " * (5 + i % 7)}], "kind": "code" if i % 3 == 0 else "chat"}
        for i in range(40)
    ]
    file.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
    return file


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A chat log."""
    return write_log(tmp_path / "log.jsonl")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]], dict[str, Any]]:
    """One load-test of two fake servers: its folder, the speculative server's own record, and what was printed."""
    folder = tmp_path_factory.mktemp("measured")
    log_file, record = write_log(folder / "log.jsonl"), folder / "record.jsonl"
    with served(plain(PLAIN_S)) as one, served(speculative(DRAFTED_S, DRAFTS, record=record)) as two:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "paceline.cli.main",
                *BENCH,
                *("--baseline", one.url, "--speculative", two.url, "--traffic", str(log_file), "--segment-field", "kind"),
                *("--out", str(folder / "out"), "--json"),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    assert done.returncode in (0, 4), done.stderr
    lines = [json.loads(each) for each in record.read_text(encoding="utf-8").splitlines()]
    return folder / "out", [each for each in lines if "chunks" in each or "chunk_at_ns" in each], json.loads(done.stdout)


def run_of(folder: Path, arm: str, load: str = "c0004") -> Run:
    return read_run(folder / "runs" / f"{load}-{arm}.json")


def test_every_request_is_measured_once_in_each_arm(measured: tuple[Path, Any, Any]) -> None:
    """A request that is lost or doubled at a block's edge shifts every percentile."""
    ids = [sorted(each.id for each in run_of(measured[0], arm).requests or ()) for arm in ("baseline", "speculative")]
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 24
    assert all(each.outcome is Outcome.FINISHED and each.output_tokens == 24 for each in run_of(measured[0], "speculative").requests or ())


def test_each_run_says_which_block_its_requests_came_from(measured: tuple[Path, Any, Any]) -> None:
    """What came second in its pair can only be taken out of the comparison where it is known."""
    runs = [run_of(measured[0], arm) for arm in ("baseline", "speculative")]
    stated = [blocks_stated(each) for each in runs]
    assert sorted(number for blocks in stated for number, _ in blocks) == list(range(2 * len(stated[0])))
    found = block_pairs(*runs, latency="tpot_s", segment=None)
    assert [each.speculative_second for each in found] == [place % 2 == 0 for place in range(len(stated[0]))]
    assert sum(each.baseline.size for each in found) == 24


def simulated(run: Run, seeds: dict[str, int]) -> Run:
    """The simulator's own run of the same requests, each with the draws of its row."""
    rows = max(seeds.values()) + 1
    by_row = {seeds[each.id]: each for each in run.requests or ()}
    requests = tuple(
        Request(
            id=str(row),
            arrived_at_s=0.0,
            prompt_tokens=by_row[row].prompt_tokens if row in by_row else 1,
            output_tokens=24 if row in by_row else 1,
            segment=by_row[row].segment if row in by_row else "chat",
        )
        for row in range(rows)
    )
    load = Load(concurrency=4, rate_per_s=None)
    return simulate(Workload(requests, "test", None), replica=ROOMY, step_cost=step_cost(DRAFTED_S), drafting=DRAFTS, load=load, seed=1)


def asked_ids(log_file: Path) -> list[str]:
    """The ids in the order in which `bench` numbers requests, and seeds them."""
    asking = Asking(
        paths=(str(log_file),),
        segment_rule=None,
        segment_field="kind",
        requests=24,
        spare=8,
        max_tokens=24,
        temperature=0.0,
        ignore_eos=True,
        api="chat",
        seed=1,
    )
    return [each.id for each in read_asks(asking, progress=lambda _: None).counted]


def test_acceptance_is_the_simulator_s_own_exactly_by_request_and_segment(measured: tuple[Path, Any, Any]) -> None:
    """A load-tester that is a percent off in α decides for the wrong side of a break-even."""
    run = run_of(measured[0], "speculative")
    ids = asked_ids(measured[0].parent / "log.jsonl")
    own = {each.id: each for each in simulated(run, {name: number for number, name in enumerate(ids)}).requests or ()}
    for each in run.requests or ():
        assert each.acceptance == own[str(ids.index(each.id))].acceptance
    assert set(run.acceptance_by_segment or {}) == {"chat", "code"}


def test_latencies_are_the_simulator_s_own(measured: tuple[Path, Any, Any]) -> None:
    """A client that counts role-only chunks, or gaps as tokens, is off by more than any scheduler's jitter."""
    run = run_of(measured[0], "speculative")
    timings = [each.timing for each in run.requests or ()]
    assert float(np.median(samples("chunk_gap_s", timings))) == pytest.approx(DRAFTED_S, rel=0.15)
    for each in run.requests or ():
        assert each.acceptance is not None
        assert each.timing.chunk_at_s.size == (each.acceptance.steps or 0) + 1
    assert run.acceptance.tokens_per_step == pytest.approx(
        sum(int(each.chunk_tokens[1:].sum()) for each in timings) / sum(each.chunk_at_s.size - 1 for each in timings), rel=0.05
    )


def test_what_is_printed_compares_the_arms_and_names_the_client_s_share(measured: tuple[Path, Any, dict[str, Any]]) -> None:
    """Without the client's own lateness nobody knows whose tail it is."""
    body = measured[2]
    assert set(body["arms"]) == {"baseline", "speculative"}
    assert body["acceptance"]["segments"]["chat"]["alpha"]["value"] > body["acceptance"]["segments"]["code"]["alpha"]["value"]
    assert {"client_lag_s", "client_late_s", "client_cpu_share"} <= set(body["client"]["speculative"])
    assert body["speedup"] is None or body["speedup"]["low"] > 1


def test_temperature_and_seed_are_sent_and_recorded(measured: tuple[Path, Any, Any]) -> None:
    """Two arms at different temperatures measure the temperature."""
    told = run_of(measured[0], "speculative").provenance
    assert (told.arguments["temperature"], told.arguments["tokens_from"], told.seed) == ("0", "usage", 1)


def test_how_many_prompts_there_were_and_that_nobody_else_was_on_the_server_is_recorded(measured: tuple[Path, Any, Any]) -> None:
    """One prompt sent again and again, or another team's traffic, makes a comparison worthless."""
    for arm in ("baseline", "speculative"):
        run = run_of(measured[0], arm)
        assert int(run.provenance.arguments["distinct_prompts"]) > 1
        assert run.summaries["other_traffic_share"].value == pytest.approx(0, abs=0.01)


def test_gate_reads_what_bench_wrote(measured: tuple[Path, Any, Any], paceline: Callable[[Sequence[str]], Answer]) -> None:
    """The evidence is of no use if the verdict cannot be asked for."""
    runs = measured[0] / "runs"
    answer = paceline(["gate", str(runs / "c0004-baseline.json"), str(runs / "c0004-speculative.json"), "--json"])
    assert answer.code in (0, 1, 4), answer.err
    assert json.loads(answer.out)["alpha"] is not None


def command(log: Path, out: Path, *extra: str) -> list[str]:
    return [*BENCH, "--traffic", str(log), "--segment-field", "kind", "--out", str(out), *extra]


def test_a_second_test_does_not_overwrite_the_first(log: Path, tmp_path: Path, paceline: Callable[[Sequence[str]], Answer]) -> None:
    """An evening's measurement is gone because a folder's name was used again."""
    with served(plain(0.001)) as server:
        first = command(log, tmp_path / "out", "--baseline", server.url)
        assert paceline(first).code in (0, 4)
        again = paceline(first)
        assert (again.code, "add --resume" in again.err) == (2, True)
        other = paceline([*first, "--max-tokens", "7"])
        assert (other.code, "other max_tokens" in other.err) == (2, True)
        assert paceline([*first, "--resume"]).code in (0, 4)
        (block,) = (tmp_path / "out" / "blocks" / "c0004").glob("*.json")
        block.write_text(block.read_text("utf-8").replace('"baseline"', '"speculative"', 1), "utf-8")
        moved = paceline([*first, "--resume"])
        assert (moved.code, "is not what the plan has there" in moved.err) == (2, True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years", "utf-8")
    assert "not empty" in paceline(command(log, tmp_path / "mine", "--baseline", "http://127.0.0.1:9", "--model", "m")).err


def test_a_wrong_model_is_answered_with_the_servers_own_words(
    log: Path, tmp_path: Path, paceline: Callable[[Sequence[str]], Answer]
) -> None:
    """The middle of a refusal holds its reason: cut out, only the quotes of some JSON are left."""
    with served(plain(0.001)) as server:
        answer = paceline(command(log, tmp_path / "out", "--baseline", server.url, "--model", "meta-llama/Llama-3.3-70B-Instruct"))
    assert answer.code == 3
    assert "meta-llama/Llama-3.3-70B-Instruct' is not served here; this server has" in answer.err


def test_one_gpu_measures_its_arms_one_after_the_other(log: Path, tmp_path: Path, paceline: Callable[[Sequence[str]], Answer]) -> None:
    """Most have no second machine."""
    out = tmp_path / "out"
    with served(plain(0.002)) as server:
        assert paceline(command(log, out, "--baseline", server.url)).code in (0, 4)
    with served(speculative(0.002, DRAFTS)) as server:
        answer = paceline(command(log, out, "--speculative", server.url, "--json"))
    assert answer.code in (0, 4), answer.err
    assert set(json.loads(answer.out)["arms"]) == {"baseline", "speculative"}


# Whoever started the tests in the background made them deaf to Ctrl-C, and children inherit that.
HEEDS_CTRL_C = "import signal, sys; signal.signal(2, signal.default_int_handler); from paceline.cli.main import main; sys.exit(main())"


def stopped(arguments: list[str], blocks: Path, kind: signal.Signals) -> int:
    """Start, wait until the second block has answers, stop with that signal; the exit code. Two more blocks leave a busy machine time."""
    process = subprocess.Popen([sys.executable, "-c", HEEDS_CTRL_C, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until = time.monotonic() + 60
    while time.monotonic() < until and not any(each.stat().st_size for each in blocks.glob("*/001-*.came")):
        time.sleep(0.005)
    process.send_signal(kind)
    process.communicate(timeout=60)
    return process.returncode


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGKILL])
def test_what_was_measured_survives_and_is_gone_on_with(
    kind: signal.Signals, log: Path, tmp_path: Path, paceline: Callable[[Sequence[str]], Answer]
) -> None:
    """Ctrl-C in the last minute of an hour must not cost the hour."""
    out = tmp_path / "out"
    with served(plain(0.004)) as one, served(speculative(0.020, DRAFTS)) as two:
        arguments = command(log, out, "--baseline", one.url, "--speculative", two.url)
        code = stopped(arguments, out / "blocks", kind)
        assert code == (130 if kind is signal.SIGINT else -9)
        assert (out / "blocks" / "c0004" / "000-baseline.json").is_file()
        done = paceline([*arguments, "--resume"])
        assert done.code in (0, 4), done.err
    for arm in ("baseline", "speculative"):
        ids = [each.id for each in run_of(out, arm).requests or ()]
        texts = [json.loads(each)["id"] for each in (out / "answers" / f"c0004-{arm}.jsonl").read_text("utf-8").splitlines()]
        assert (len(ids), len(set(ids)), sorted(texts)) == (24, 24, sorted(ids))


def test_an_open_loop_counts_from_when_a_request_should_have_left(
    log: Path, tmp_path: Path, paceline: Callable[[Sequence[str]], Answer]
) -> None:
    """A client that waits for the server before it sends hides the queue."""
    arguments = ["bench", "--requests", "12", "--rate", "40", "--max-tokens", "8", "--ignore-eos", "--traffic", str(log), "--seed", "1"]
    with served(plain(0.003)) as server:
        assert paceline([*arguments, "--out", str(tmp_path / "out"), "--baseline", server.url]).code in (0, 4)
    run = run_of(tmp_path / "out", "baseline", "r40")
    due = [each.timing.arrived_at_s for each in run.requests or ()]
    assert run.load == Load(concurrency=None, rate_per_s=40.0)
    assert due == sorted(due)
    assert due[0] == 0
    assert all(each.timing.sent_at_s >= each.timing.arrived_at_s for each in run.requests or ())


def test_failures_are_outcomes_and_told(log: Path, tmp_path: Path, paceline: Callable[[Sequence[str]], Answer]) -> None:
    """A server that fails one request in four is no fast server."""
    faults = tmp_path / "faults.toml"
    faults.write_text(f"[[fault]]\nkind = 'error'\nstatus = 500\nrequests = {list(range(10, 100, 4))}\n", encoding="utf-8")
    with served(plain(0.001, faults=read_faults(faults))) as server:
        answer = paceline(command(log, tmp_path / "out", "--baseline", server.url, "--json"))
    assert answer.code in (0, 4), answer.err
    body = json.loads(answer.out)
    assert body["arms"]["baseline"]["failed"] > 0
    assert "requests_failed" in [each["code"] for each in body["warnings"]]


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ([], "give --baseline URL"),
        (["--baseline", "http://127.0.0.1:9"], "is the server up"),
        (["--baseline", "http://127.0.0.1:9", "--speculative", "http://127.0.0.1:9"], "both arms are"),
        (["--baseline", "http://localhost:9/v1/", "--speculative", "http://127.0.0.1:9"], "both arms are"),
        (["--baseline", "http://a..b:9"], "63 characters"),
        (["--baseline", "ftp://x"], "begins with http"),
        (["--baseline", "http://127.0.0.1:9", "--rate", "3"], "give one load"),
        (["--baseline", "http://127.0.0.1:9", "--burstiness", "3"], "give --rate too"),
        (["--baseline", "http://127.0.0.1:9", "--time-scale", "3"], "give --trace too"),
        (["--baseline", "http://127.0.0.1:9", "--method", "eagle3"], "give both or neither"),
        (["--baseline", "http://127.0.0.1:9", "--stop-when-decided"], "two arms that take turns"),
        (
            ["--baseline", "http://127.0.0.1:9", "--speculative", "http://127.0.0.1:8", "--pairs", "1", "--stop-when-decided"],
            "ask for at least 16 requests",
        ),
    ],
)
def test_what_cannot_be_measured_is_said_before_anything_is_sent(
    extra: list[str], said: str, log: Path, tmp_path: Path, paceline: Callable[[Sequence[str]], Answer]
) -> None:
    """Half an hour later is too late to hear of a wrong option."""
    answer = paceline(command(log, tmp_path / "out", *extra))
    assert answer.code in (2, 3)
    assert said in answer.err
    assert not (tmp_path / "out" / "blocks").exists()


def test_a_server_that_is_gone_stops_the_test_and_resume_asks_again(
    log: Path, tmp_path: Path, paceline: Callable[[Sequence[str]], Answer]
) -> None:
    """A hundred failures at a dead port are no measurement, and must not be kept as one."""
    out = tmp_path / "out"
    faults = tmp_path / "faults.toml"
    faults.write_text("[[fault]]\nkind = 'restart'\nseconds = 600\nrequests = [80]\n", encoding="utf-8")
    with served(plain(0.001, faults=read_faults(faults))) as server:
        port, arguments = server.port, command(log, out, "--baseline", server.url, "--requests", "120")
        stopped_at = paceline(arguments)
    assert (stopped_at.code, "server is gone" in stopped_at.err, "--resume" in stopped_at.err) == (3, True, True)
    with served(plain(0.001), port=port):
        done = paceline([*arguments, "--resume", "--json"])
    assert done.code in (0, 4), done.err
    assert json.loads(done.out)["arms"]["baseline"]["failed"] == 0
    assert len({each.id for each in run_of(out, "baseline").requests or ()}) == 120


def test_another_server_does_not_go_into_the_same_folder(log: Path, tmp_path: Path, paceline: Callable[[Sequence[str]], Answer]) -> None:
    """The old server's figures under the new one's name are believed."""
    out = tmp_path / "out"
    with served(plain(0.001)) as one, served(plain(0.001)) as two:
        assert paceline(command(log, out, "--baseline", one.url)).code in (0, 4)
        other = paceline(command(log, out, "--baseline", two.url, "--resume"))
    assert (other.code, "of a server whose URL was" in other.err) == (2, True)


def test_an_arm_that_lost_requests_is_not_compared(log: Path, tmp_path: Path, paceline: Callable[[Sequence[str]], Answer]) -> None:
    """Those that finished are the easy ones."""
    faults = tmp_path / "faults.toml"
    faults.write_text(f"[[fault]]\nkind = 'error'\nstatus = 500\nrequests = {list(range(10, 100, 4))}\n", encoding="utf-8")
    with served(plain(0.002)) as one, served(speculative(0.002, DRAFTS, faults=read_faults(faults))) as two:
        answer = paceline(command(log, tmp_path / "out", "--baseline", one.url, "--speculative", two.url, "--json"))
    body = json.loads(answer.out)
    assert (answer.code, body["speedup"]) == (4, None)
    assert "requests_missing" in [each["code"] for each in body["warnings"]]


def test_the_key_is_in_no_file(log: Path, tmp_path: Path, paceline: Callable[[Sequence[str]], Answer]) -> None:
    """A results folder is sent to a colleague, or committed."""
    before = os.environ.get("PACELINE_API_KEY")
    os.environ["PACELINE_API_KEY"] = "sk-very-secret"
    try:
        with served(plain(0.001)) as server:
            answer = paceline(command(log, tmp_path / "out", "--baseline", server.url))
    finally:
        if before is None:
            del os.environ["PACELINE_API_KEY"]
        else:
            os.environ["PACELINE_API_KEY"] = before
    written = "".join(each.read_text("utf-8", errors="replace") for each in (tmp_path / "out").rglob("*") if each.is_file())
    assert "very-secret" not in written + answer.out + answer.err


def test_the_noise_floor_asks_the_baseline_twice_and_is_in_no_figure(
    log: Path, tmp_path: Path, paceline: Callable[[Sequence[str]], Answer]
) -> None:
    """Without it nobody knows whether answers differ by drafts or by numerics; counted, it would make the baseline's tail its own."""
    out = tmp_path / "out"
    with served(plain(0.001)) as one, served(speculative(0.001, DRAFTS)) as two:
        arguments = command(log, out, "--baseline", one.url, "--speculative", two.url, "--noise-floor", "0.25", "--json")
        answer = paceline(arguments)
        again = paceline([*arguments, "--resume"])
    assert answer.code in (0, 4), answer.err
    kept = {
        who: [json.loads(each)["id"] for each in (out / "answers" / f"c0004-{who}.jsonl").read_text("utf-8").splitlines()]
        for who in ("baseline", "speculative", "repeat")
    }
    assert [len(each) for each in kept.values()] == [24, 24, 6]
    assert set(kept["repeat"]) <= set(kept["baseline"])
    assert len(run_of(out, "baseline").requests or ()) == 24
    said = json.loads(answer.out)["losslessness"]
    assert said["noise_floor"]["share"]["n"] == 6
    assert said["divergence"]["share"]["n"] == 24
    assert json.loads(answer.out)["by_load"]["c0004"]["losslessness"] == said
    assert json.loads(again.out)["losslessness"] == said
    assert not list((out / "blocks").glob("*/*.came"))


@pytest.mark.parametrize("extra", [["--noise-floor", "0"], ["--noise-floor", "0.2", "--temperature", "0.7"]])
def test_a_noise_floor_of_nothing_or_of_draws_is_refused(
    extra: list[str], log: Path, tmp_path: Path, paceline: Callable[[Sequence[str]], Answer]
) -> None:
    """Drawn answers differ anyway; an hour of asking twice would tell nothing."""
    answer = paceline(command(log, tmp_path / "out", "--baseline", "http://127.0.0.1:9", *extra))
    assert (answer.code, "--noise-floor" in answer.err) == (2, True)
