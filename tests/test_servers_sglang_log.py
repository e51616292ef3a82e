"""SGLang's decode lines become acceptance under the one definition, and nothing else does."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError, NoEvidenceError
from paceline.run import Arm, Run
from paceline.servers.sglang.log import is_sglang_line, read_line
from paceline.servers.sglang.logged import run_of_log
from paceline.speculation.method import Method, Speculation, Tree

CASE = Path(__file__).parent / "data" / "cases" / "17-sglang-rate-definition-change" / "input.txt"
ALWAYS = ["whole_log", "ratios_without_counts"]


def run_of(*lines: str) -> Run:
    """The run of a log with these lines."""
    return run_of_log(lines, inputs={}, most=1000)


def codes(run: Run) -> list[str]:
    """What the run warns of."""
    return [each.code for each in run.cautions]


def decode(length: float | None, rate: float | None, *, running: int = 1, per_s: float = 100.0, ranks: str = " TP0") -> str:
    """A decode line as SGLang prints it."""
    shown = "" if length is None else f"accept len: {length:.2f}, " + ("" if rate is None else f"accept rate: {rate:.2f}, ")
    return (
        f"[2026-07-10 04:44:07{ranks}] Decode batch, #running-req: {running}, #token: 8000, token usage: 0.10, {shown}"
        f"cuda graph: True, gen throughput (token/s): {per_s:.2f}, #queue-req: 0, "
    )


def started(**speculative: object) -> str:
    """The line of the server's arguments."""
    told = ", ".join(f"speculative_{name}={value!r}" for name, value in speculative.items())
    return f"[2026-07-10 04:40:00] INFO engine.py:156: server_args=ServerArgs(model_path='m/8b', tokenizer_path='t', {told}, port=30000)"


def test_the_older_rate_is_told_from_the_newer_by_the_lines_themselves() -> None:
    """Whoever reads 0.54 as α: with accept len 2.17 it is 2.17 / 4, and α is 0.33."""
    run = run_of(*CASE.read_text(encoding="utf-8").splitlines())
    assert run.summaries["acceptance_length"].value == pytest.approx(1.9925)
    assert run.summaries["alpha"].value == pytest.approx(0.9925 / 3)
    assert codes(run) == ["whole_log", "idle_intervals", "ratios_without_counts", "rate_was_length", "configured_width"]
    newer = run_of(decode(2.17, 0.39), decode(1.95, 0.32), decode(1.80, 0.27))
    assert newer.summaries["alpha"].value == pytest.approx((5.92 / 3 - 1) / 3)
    assert codes(newer) == [*ALWAYS, "configured_width"]


def test_intervals_weigh_by_the_requests_that_ran() -> None:
    """Whoever averages lines: an interval of 31 requests verified 31 times as many drafts as one of a single request."""
    run = run_of(decode(3.0, None, running=1), decode(2.0, None, running=31, per_s=2000.0))
    found = run.summaries["acceptance_length"]
    assert (found.value, found.n) == (65 / 32, 2)
    assert (found.low, found.high) == (65 / 32 - 0.005, 65 / 32 + 0.005)
    assert "alpha" not in run.summaries
    assert codes(run) == [*ALWAYS, "width_unknown"]


def test_the_start_says_the_width_where_lines_do_not() -> None:
    """Whoever's version prints no rate: α needs the width, which stands in the server's arguments."""
    run = run_of(started(algorithm="EAGLE3", num_steps=3, eagle_topk=1, num_draft_tokens=4), decode(2.5, None))
    assert run.summaries["alpha"].value == 0.5
    assert run.speculation == Speculation(method=Method.EAGLE3, draft_tokens=3, tree=None)
    assert run.provenance.arguments == {"engines": "1", "model": "m/8b"}


@pytest.mark.parametrize(
    ("length", "rate", "was_length"),
    [(2.5, 0.5, False), (2.5, 0.62, True), (1.0, 0.25, True), (4.0, 1.0, None)],
)
def test_the_width_that_is_configured_says_which_definition_it_is(length: float, rate: float, was_length: bool | None) -> None:
    """Whoever has both: the definition that gives the printed rate; where both do, the rate is not needed."""
    run = run_of(started(algorithm="EAGLE", num_steps=3, eagle_topk=1, num_draft_tokens=4), decode(length, rate))
    assert ("rate_was_length" in codes(run)) == (was_length is True)
    assert run.summaries["alpha"].value == pytest.approx((length - 1) / 3)


@pytest.mark.parametrize(
    "lines",
    [
        (decode(2.5, 0.99),),  # τ / w = 0.99 for no w
        (started(algorithm="EAGLE", num_steps=3, eagle_topk=1, num_draft_tokens=4), decode(2.5, 0.3)),
        (decode(2.0, 0.5), decode(2.0, 0.25)),
        (decode(1.0, 0.01),),  # any width above 66
    ],
)
def test_a_rate_that_no_single_width_gives_is_not_turned_into_alpha(lines: tuple[str, ...]) -> None:
    """Whoever runs adaptive drafts: the width changes from line to line, so the rate compares with nothing."""
    run = run_of(*lines)
    assert "alpha" not in run.summaries
    assert "width_unknown" in codes(run)
    assert "acceptance_length" in run.summaries


def test_repeated_ranks_count_once_and_data_parallel_ranks_are_added_up() -> None:
    """Whoever serves on 4 GPUs: followers repeat the leader's line; replicas have lines of their own."""
    ranks = [decode(2.0, None, per_s=100.0, ranks=f" DP{dp} TP{tp}") for dp in (0, 1) for tp in (0, 1)]
    run = run_of(*ranks, decode(9.0, None, ranks=" PP1 TP0"))
    assert run.summaries["acceptance_length"].value == 2.0
    assert run.summaries["output_tokens_per_s"].value == 200.0
    assert "several_engines" in codes(run)


def test_speculation_that_verified_nothing_is_not_active() -> None:
    """Whoever sees accept len 0.00: the floor is 1, so 0 means off, not bad."""
    run = run_of(started(algorithm="EAGLE", num_steps=3), decode(0.0, 0.0))
    assert run.arm is Arm.SPECULATIVE
    assert set(run.summaries) == {"output_tokens_per_s"}
    assert codes(run) == ["whole_log", "speculation_off"]


def test_a_plain_server_is_the_baseline() -> None:
    """Whoever compares two logs: the one without accept len is the plain arm, with its throughput."""
    run = run_of(started(algorithm=None), decode(None, None, per_s=300.0), decode(None, None, running=0, per_s=0.0))
    assert run.arm is Arm.BASELINE
    assert (run.speculation, run.acceptance_by_segment) == (None, None)
    assert run.summaries["output_tokens_per_s"].value == 300.0
    assert run_of(decode(None, None, running=0)).summaries == {}


def test_a_restart_is_told() -> None:
    """Whoever's server crashed in between: its lives are pooled, and that is said."""
    run = run_of(started(algorithm="EAGLE", num_steps=3), started(algorithm="EAGLE", num_steps=4), decode(2.0, None))
    assert run.speculation is None
    assert codes(run)[:2] == ["whole_log", "restarts"]


def test_a_users_text_is_not_counted() -> None:
    """Whoever is sent a prompt with a decode line in it: acceptance must not be written by a user."""
    own = decode(2.0, None)
    echo = f"[2026-07-10 04:44:07] Receive: obj=GenerateReqInput(text='{decode(9.0, None)}')"
    bare = own.partition("] ")[2].replace("2.00", "9.00")
    run = run_of(own, echo, bare)
    assert run.summaries["acceptance_length"].value == 2.0
    assert codes(run)[0] == "unprefixed_lines_ignored"
    assert codes(run_of(bare))[0] == "unprefixed_lines"
    with pytest.raises(NoEvidenceError, match="Decode batch"):
        run_of(echo, bare.replace("Decode", "decode"))
    with pytest.raises(NoEvidenceError):
        run_of("server_args=ServerArgs(model_path='m')")


def test_a_log_whose_only_decode_lines_are_a_users_is_no_evidence() -> None:
    """Whoever's idle server echoed a prompt: the server's own lines are known by its start, and there are none."""
    with pytest.raises(NoEvidenceError, match="Decode batch"):
        run_of(started(algorithm="EAGLE", num_steps=3), decode(9.0, None).partition("] ")[2])


def test_more_lines_than_anybody_asks_about_are_refused() -> None:
    """Whoever hands in years of logs: a message instead of all memory."""
    with pytest.raises(BadInputError, match="more than 2 decode lines"):
        run_of_log(3 * [decode(2.0, None)], inputs={}, most=2)


@pytest.mark.parametrize(
    ("told", "speculation"),
    [
        ({"algorithm": "NEXTN", "num_steps": 2}, Speculation(method=Method.MTP, draft_tokens=2, tree=None)),
        ({"algorithm": "NGRAM", "num_draft_tokens": 12, "eagle_topk": 10}, Speculation(method=Method.NGRAM, draft_tokens=11, tree=None)),
        (
            {"algorithm": "EAGLE3", "num_steps": 5, "eagle_topk": 4, "num_draft_tokens": 9},
            Speculation(method=Method.EAGLE3, draft_tokens=5, tree=Tree(depth=5, topk=4, nodes=8)),
        ),
        ({"algorithm": "EAGLE3", "num_steps": 1, "eagle_topk": 4, "num_draft_tokens": 9}, None),
        ({"algorithm": "EAGLE3", "num_steps": None}, None),
        ({"algorithm": "EAGLE3", "num_steps": 999}, None),
        ({"algorithm": "DFLASH", "num_steps": 5}, None),
    ],
)
def test_the_start_says_what_drafts(told: dict[str, object], speculation: Speculation | None) -> None:
    """Whoever compares with a break-even: the method, depth and tree of the log, or nothing where they are none of ours."""
    assert run_of(started(**told), decode(2.0, None)).speculation == speculation


def test_only_lines_of_note_are_recognised() -> None:
    """Whoever hands in any file: a log of SGLang is known by lines that only SGLang writes."""
    assert is_sglang_line(decode(2.0, 0.5))
    assert is_sglang_line(started())
    assert not is_sglang_line("[2026-07-10 04:44:07 TP0] Prefill batch, #new-seq: 1")
    assert read_line("sglang:spec_accept_length 2.0") is None


@settings(max_examples=60)
@given(
    width=st.integers(2, 12),
    accepted=st.lists(st.integers(1, 400), min_size=4, max_size=12, unique=True),
    older=st.booleans(),
)
def test_alpha_is_never_off_whichever_definition_printed_it(width: int, accepted: list[int], older: bool) -> None:
    """Whoever upgrades SGLang in between: the same drafts give the same α, or it is said that it cannot be told."""
    shares = [1 + each / 400 * (width - 1) for each in accepted]
    lines = [decode(each, each / width if older else (each - 1) / (width - 1)) for each in shares]
    run = run_of(*lines)
    truth = (sum(shares) / len(shares) - 1) / (width - 1)
    if "alpha" in run.summaries:
        found = run.summaries["alpha"]
        assert found.low is not None
        assert found.high is not None
        assert found.low - 1e-9 <= truth <= found.high + 1e-9
    else:
        assert "width_unknown" in codes(run)


def test_limits_that_bear_on_a_comparison_are_in_the_provenance() -> None:
    """A batch of 48 and a threshold below 1 are nowhere else; two starts that differ tell nothing."""
    start = started(accept_threshold_acc=0.9, accept_threshold_single=1.0).replace("port=", "max_running_requests=48, port=")
    told = run_of(start, decode(3.0, None)).provenance.arguments
    assert told["max_running_requests"] == "48"
    assert told["speculative_accept_threshold_acc"] == "0.9"
    assert "max_running_requests" not in run_of(start, started(accept_threshold_acc=1.0), decode(3.0, None)).provenance.arguments


def test_a_batch_that_stays_at_48_while_others_wait_is_sglangs_silent_limit() -> None:
    """With speculation on SGLang serves 48 at once unless told, and whoever compares at 64 compares queues."""
    busy = [decode(2.0, 0.5, running=each).replace("#queue-req: 0", "#queue-req: 16") for each in (47, 48, 48)]
    assert "max_running_requests_48" in codes(run_of(*busy))
    assert "max_running_requests_48" not in codes(run_of(*busy, decode(2.0, 0.5, running=49)))
    assert "max_running_requests_48" not in codes(run_of(*(decode(2.0, 0.5, running=48) for _ in range(3))))
