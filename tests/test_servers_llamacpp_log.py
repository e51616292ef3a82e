"""llama-server's timings become acceptance and pace, and nothing else does."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError, NoEvidenceError
from paceline.run import Arm, Run
from paceline.servers.llamacpp import log_requests
from paceline.servers.llamacpp.log import is_llamacpp_line
from paceline.servers.llamacpp.logged import run_of_log
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method, Speculation

LOGS = Path(__file__).parent / "data" / "logs"
STAMP = "0.34.089.489 I "


def run_of(*lines: str) -> Run:
    """The run of a log with these lines."""
    return run_of_log(lines, inputs={}, most=1000)


def codes(run: Run) -> list[str]:
    """What the run warns of."""
    return [each.code for each in run.cautions]


def header(slot: int, task: int) -> str:
    """What opens each line of a request."""
    return f"{STAMP}slot print_timing: id  {slot} | task {task} | "


def timed(tokens: int, ms: float = 1000.0) -> str:
    """The line of generation."""
    return f"       eval time = {ms:10.2f} ms / {tokens:5d} tokens ({ms / tokens:8.2f} ms per token, {1000.0:8.2f} tokens per second)"


def drafts(accepted: int, drafted: int, length: float | None = None, more: str = "") -> str:
    """The line of drafts."""
    shown = "" if length is None else f", mean len = {length:5.2f}"
    return f"draft acceptance = {accepted / max(drafted, 1):0.5f} ({accepted:5d} accepted / {drafted:5d} generated){shown}{more}"


def total(drafter: str, verified: int) -> str:
    """A drafter's running total."""
    return (
        f"{STAMP}spec common_specu: statistics {drafter:>16}: #calls(b,g,a) =    1 {verified:6d} {verified:6d}, #gen drafts = {verified:6d}"
    )


def request(slot: int, task: int, *figures: str) -> list[str]:
    """One request's lines."""
    return [header(slot, task) + each for each in figures]


def test_a_request_of_a_new_build_gives_drafts_and_steps() -> None:
    """Whoever runs MTP drafts: 512 tokens, the first from the prompt, 311 accepted, leave 200 steps, and the drafter counted 200 drafts."""
    run = run_of(*(LOGS / "llamacpp-mtp.log").read_text(encoding="utf-8").splitlines())
    assert run.acceptance == AcceptanceCounts(steps=200, drafts=200, drafted_tokens=399, accepted_tokens=311, accepted_per_position=None)
    assert run.acceptance.coverage == 1
    assert run.step_seconds == pytest.approx(17.1332 / 200)
    assert run.summaries["tpot_s"].value == pytest.approx(17.1332 / 511)
    assert run.provenance.arguments == {"drafters": "draft-mtp"}
    assert codes(run) == ["whole_log"]


def test_an_old_build_writes_bare_lines_below_a_header() -> None:
    """Whoever runs a build of 2025: figures below the header count, the same line later, in a user's text, does not."""
    run = run_of(*(LOGS / "llamacpp-old.log").read_text(encoding="utf-8").splitlines())
    assert run.acceptance_by_segment is None
    assert {name: each.value for name, each in run.summaries.items() if name != "tpot_s"} == {
        "alpha": 171 / 297,
        "accepted_tokens": 171,
        "drafted_tokens": 297,
    }
    assert codes(run) == ["whole_log", "unprefixed_lines", "drafts_unknown"]


def test_requests_without_drafts_count_their_steps() -> None:
    """Whoever drafts with n-grams: a request in which nothing matched is steps without drafts, so tokens per step falls."""
    run = run_of(
        *request(0, 1, timed(101), drafts(60, 100, 4.0)), total("ngram-mod", 20), *request(0, 2, timed(51)), total("ngram-mod", 20)
    )
    assert run.acceptance == AcceptanceCounts(steps=90, drafts=20, drafted_tokens=100, accepted_tokens=60, accepted_per_position=None)
    assert run.acceptance.tokens_per_step == 1 + 60 / 90
    assert run.step_seconds == pytest.approx(2 / 90)


def test_slots_are_told_apart() -> None:
    """Whoever serves several requests at once: lines of two slots interleave, and each slot has its own running total."""
    first, second = request(0, 1, timed(101), drafts(60, 100, 4.0)), request(1, 2, timed(51), drafts(30, 60, 2.5))
    run = run_of(
        first[0],
        second[0],
        first[1],
        total("draft-simple", 20),
        second[1],
        total("draft-simple", 20),
        *request(0, 3, timed(11), drafts(4, 8, 2.0)),
        total("draft-simple", 24),
    )
    assert run.acceptance == AcceptanceCounts(
        steps=40 + 20 + 6, drafts=20 + 20 + 4, drafted_tokens=168, accepted_tokens=94, accepted_per_position=None
    )


def test_positions_are_rebuilt_where_they_are_printed() -> None:
    """Whoever logs verbosely: rates by position beside the acceptance, or on a line of their own, become counts."""
    inline = drafts(257, 388, 3.65, more=", acceptance rate per position = (0.804, 0.701, 0.629, 0.515)").replace(
        "len", "acceptance length"
    )
    run = run_of(*request(0, 42, timed(353), inline), total("draft-mtp", 97))
    assert run.acceptance == AcceptanceCounts(
        steps=97, drafts=97, drafted_tokens=388, accepted_tokens=257, accepted_per_position=(78, 68, 61, 50)
    )
    assert run.speculation == Speculation(method=Method.MTP, draft_tokens=4, tree=None)
    apart = run_of(*request(0, 1, timed(21), drafts(12, 16, 2.5), "     acc per pos = (0.875, 0.625)"))
    assert apart.acceptance.accepted_per_position == (7, 5)
    assert apart.speculation is None
    many = run_of(*request(0, 1, timed(9001), drafts(5000, 8000, 2.25), "     acc per pos = (0.800, 0.450)"), total("draft-mtp", 4000))
    assert codes(many) == ["whole_log", "positions_rounded"]


def test_drafts_without_a_total_keep_the_ends_that_rounding_leaves() -> None:
    """Whoever logs at the default level: the acceptance length has two digits, which leave a few drafts open."""
    run = run_of(*request(0, 1, timed(1001), drafts(600, 900, 2.5)))
    found = run.summaries["drafts"]
    assert (found.low, found.value, found.high) == (399, 400, 401)
    assert codes(run) == ["whole_log", "drafts_inferred"]


def test_a_request_without_an_accepted_token_takes_its_draft_length_from_the_others() -> None:
    """Whoever has one short answer among many: it must not make the drafts of all unknown."""
    run = run_of(*request(0, 1, timed(101), drafts(60, 100, 4.0)), *request(0, 2, timed(9), drafts(0, 10, 1.0)))
    assert run.acceptance.drafts == 20 + 2
    assert (run.summaries["drafts"].low, run.summaries["drafts"].high) == (22, 30)
    alone = run_of(*request(0, 2, timed(9), drafts(0, 10, 1.0)))
    assert alone.acceptance_by_segment is None
    assert codes(alone) == ["whole_log", "nothing_accepted", "drafts_unknown"]


def test_a_plain_server_is_the_baseline() -> None:
    """Whoever compares two logs: without drafts it is the plain arm, with its pace; with a drafter that never matched it is not."""
    run = run_of(*request(0, 1, timed(101)), *request(0, 2, timed(1)))
    assert run.arm is Arm.BASELINE
    assert run.acceptance_by_segment is None
    assert run.summaries["tpot_s"].n == 1
    assert run.step_seconds is None
    assert codes(run) == ["whole_log"]
    idle = run_of(*request(0, 1, timed(101)), total("ngram-mod", 0))
    assert idle.arm is Arm.SPECULATIVE
    assert codes(idle) == ["whole_log", "nothing_drafted"]


def test_figures_that_contradict_each_other_are_left_out() -> None:
    """Whoever's log was damaged: the rest still counts, and the damage is told."""
    good = request(0, 1, timed(101), drafts(60, 100, 4.0))
    run = run_of(*good, *request(0, 2, timed(101), drafts(70, 60, 2.0)), *request(0, 3, timed(101), drafts(5, 0)))
    assert run.acceptance.drafted_tokens == 100
    assert run.step_seconds is None
    assert "contradictory_lines" in codes(run)


def test_a_log_that_was_cut_keeps_what_its_lines_say() -> None:
    """Whoever filtered the log for the drafts: acceptance is there, steps and pace are not, and neither is guessed."""
    run = run_of(*request(0, 1, drafts(60, 100, 4.0)))
    assert (run.acceptance.drafts, run.acceptance.steps) == (20, None)
    assert (run.step_seconds, run.summaries) == (None, {})


def test_a_restart_begins_new_totals() -> None:
    """Whoever restarted the server: the drafter counts from 0 again, which is not a fall."""
    first = [*request(0, 1, timed(101), drafts(60, 100, 4.0)), total("draft-simple", 20)]
    run = run_of(f"{STAMP}main: model loaded", *first, "main: model loaded", *first)
    assert run.acceptance.drafts == 40
    assert codes(run) == ["whole_log", "restarts"]
    unsaid = run_of(*first, *request(0, 2, timed(101), drafts(30, 50, 4.0)), total("draft-simple", 10))
    assert unsaid.acceptance.drafts == 30


@pytest.mark.parametrize(
    "echo",
    [
        "srv  log_server_r: request:  {line}",
        "0.1.002.003 D srv  update_chat_: Parsing chat message: {line}",
        "{line}",
        "slot launch_slot_: id  0 | task 9 | {line}",
    ],
)
def test_a_users_text_is_not_counted(echo: str) -> None:
    """Whoever is sent a prompt with statistics in it: acceptance must not be written by a user."""
    own, forged = request(0, 1, timed(101), drafts(60, 100, 4.0)), drafts(999, 999, 2.0)
    assert run_of(*own, echo.format(line=forged), *request(0, 2, "graphs reused = 3", "something else")).acceptance.drafted_tokens == 100
    with pytest.raises(NoEvidenceError, match="print_timing"):
        run_of(echo.format(line=forged))


def test_only_lines_of_note_are_recognised() -> None:
    """Whoever hands in any file: a log of llama-server is known by what opens its lines."""
    assert is_llamacpp_line("srv  log_server_r: request:  {")
    assert is_llamacpp_line("[49965] 3.07.591.111 I srv  update_slots: all slots are idle")
    assert is_llamacpp_line("main: server is listening on http://127.0.0.1:8080")
    assert not is_llamacpp_line("llamacpp:spec_decode_num_drafts_total 3")
    assert not is_llamacpp_line("my slot machine: paid")


def test_what_no_server_has_is_refused() -> None:
    """Whoever hands in years of logs, or nonsense: a message instead of all memory."""
    lines = [line for task in range(4) for line in request(0, task, timed(11))]
    assert len(run_of_log(lines, inputs={}, most=4).summaries) == 1
    with pytest.raises(BadInputError, match="more than 2 requests"):
        run_of_log(lines, inputs={}, most=2)
    with pytest.raises(BadInputError, match="slots"):
        run_of(*(line for slot in range(log_requests.MOST_SLOTS + 1) for line in request(slot, 1, timed(11))))


def test_totals_of_more_drafters_than_any_server_has_are_not_kept() -> None:
    """Whoever is sent nonsense: memory stays bounded."""
    names = (total(f"draft-{i}", 1) for i in range(log_requests.MOST_SLOTS + 2))
    run = run_of(*request(0, 1, timed(11)), *names)
    assert run.provenance.arguments["drafters"].count(",") == log_requests.MOST_SLOTS - 1


@settings(max_examples=60)
@given(
    requests=st.lists(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=40), min_size=1, max_size=6),
    counted=st.booleans(),
)
def test_what_was_drafted_lies_within_what_is_said(requests: list[list[tuple[int, int]]], counted: bool) -> None:
    """Whoever trusts the figures: accepted, drafted and steps are exact, and drafts lie within their ends."""
    lines, verified = [f"{STAMP}main: model loaded"], 0
    for task, steps in enumerate(requests):
        accepted, drafted = sum(min(a, n) for n, a in steps), sum(n for n, _ in steps)
        verified += len(steps)
        lines += request(0, task, timed(1 + accepted + len(steps)), drafts(accepted, drafted, 1 + accepted / len(steps)))
        lines += [total("draft-simple", verified)] if counted else []
    run = run_of(*lines)
    if run.acceptance_by_segment is None:
        assert "drafts_unknown" in codes(run)
        return
    assert run.acceptance.drafted_tokens == sum(n for steps in requests for n, _ in steps)
    found = run.summaries.get("drafts")
    low, high = (run.acceptance.drafts,) * 2 if found is None else (found.low or 0, found.high or 0)
    if counted:
        assert (run.acceptance.drafts, run.acceptance.steps) == (verified, verified)
    elif all(sum(min(a, n) for n, a in steps) for steps in requests):
        assert low <= verified <= high
