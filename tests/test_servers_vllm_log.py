"""vLLM's log lines of all generations become acceptance, and nothing else does."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError, NoEvidenceError
from paceline.run import Arm, Run
from paceline.servers.log_lines import plain_lines
from paceline.servers.vllm.log import EngineStart, Throughput, is_vllm_line, read_line
from paceline.servers.vllm.logged import run_of_log
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method, Speculation

REAL = Path(__file__).parent / "data" / "logs" / "vllm-0.20.0-qwen3-8b-eagle3.log"
API = "(APIServer pid=7) INFO 06-30 23:07:05 "
WHOLE = ["whole_log", "steps_unknown"]


def run_of(*lines: str) -> Run:
    """The run of a log with these lines."""
    return run_of_log(lines, inputs={}, most=1000)


def codes(run: Run) -> list[str]:
    """What the run warns of."""
    return [each.code for each in run.cautions]


def interval(accepted: int, drafted: int, *, length: float, rates: Iterable[float], seconds: float = 10.0) -> str:
    """An interval as vLLM prints it since 0.10.2."""
    return (
        f"{API}[metrics.py:101] SpecDecoding metrics: Mean acceptance length: {length:.2f}, "
        f"Accepted throughput: {accepted / seconds:.2f} tokens/s, Drafted throughput: {drafted / seconds:.2f} tokens/s, "
        f"Accepted: {accepted} tokens, Drafted: {drafted} tokens, "
        f"Per-position acceptance rate: {', '.join(f'{each:.3f}' for each in rates)}, Avg Draft acceptance rate: 9.1%"
    )


def started(config: str, *, process: str = "EngineCore pid=9") -> str:
    """An engine's start."""
    return (
        f"({process}) INFO 06-30 23:05:14 [core.py:109] Initializing a V1 LLM engine (v0.20.0) with config: model='m/8b', "
        f"speculative_config={config}, tokenizer='m/8b'"
    )


def served(rate: float, running: int, *, engine: str = "Engine 000: ") -> str:
    """A line of throughput."""
    figures = f"Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: {rate} tokens/s, Running: {running} reqs, Waiting: 0 reqs"
    return f"{API}[loggers.py:271] {engine}{figures}"


def totals(efficiency: str, accepted: int, drafted: int, emitted: int) -> str:
    """The V0 engine's line."""
    return (
        f"INFO 08-26 12:07:05 metrics.py:427] Speculative metrics: Draft acceptance rate: 0.655, System efficiency: {efficiency}, "
        f"Number of speculative tokens: 4, Number of accepted tokens: {accepted}, Number of draft tokens: {drafted}, "
        f"Number of emitted tokens: {emitted}."
    )


EAGLE3 = "SpeculativeConfig(method='eagle3', model='h/head', num_spec_tokens=2)"


def test_a_real_log_gives_the_counts_that_the_server_counted() -> None:
    """Whoever has only the log: the same server's own counters, printed by its benchmark, said 14542 drafts, 4795 and 1094 by position."""
    run = run_of_log(plain_lines(REAL.read_text(encoding="utf-8").splitlines()), inputs={"server.log": "ab"}, most=100)
    assert run.acceptance == AcceptanceCounts(
        steps=None, drafts=14542, drafted_tokens=29084, accepted_tokens=5889, accepted_per_position=(4795, 1094)
    )
    assert run.speculation == Speculation(method=Method.EAGLE3, draft_tokens=2, tree=None)
    assert run.arm is Arm.SPECULATIVE
    assert run.provenance.arguments == {"engines": "1", "model": "/data/hw3/Qwen3-8B", "engine_version": "0.20.0"}
    assert run.provenance.inputs == {"server.log": "ab"}
    assert run.window_s == pytest.approx(5426 / 67.28 + 17580 / 1757.88 + 6078 / 607.81)
    assert run.summaries["output_tokens_per_s"].value == 1243.4
    assert codes(run) == ["whole_log", "positions_rounded", "idle_intervals"]


def test_intervals_are_pooled_by_counts_and_not_by_their_rates() -> None:
    """Whoever averages the printed rates: 50 % of 10 tokens and 10 % of 1000 are 10.4 %, not 30 %."""
    run = run_of(interval(5, 10, length=1.5, rates=[0.5]), interval(100, 1000, length=1.1, rates=[0.1]))
    assert run.acceptance.alpha == 105 / 1010
    assert run.acceptance.drafts == 1010
    assert run.window_s == pytest.approx(20.0)
    assert codes(run) == WHOLE


@pytest.mark.parametrize("length", ["0.50", "1.50"])
def test_a_length_counts_the_targets_own_token_or_not(length: str) -> None:
    """Whoever reads vLLM 0.8.5 beside 0.9: one prints 0.50 where the other prints 1.50 for the same tokens."""
    figures = f"Mean acceptance length: {length}, Accepted: 20 tokens, Drafted: 80 tokens, Per-position acceptance rate: 0.400, 0.100"
    run = run_of(f"{API}metrics.py:70] SpecDecoding metrics: Draft acceptance rate: 25.0%, {figures}")
    assert run.acceptance == AcceptanceCounts(steps=None, drafts=40, drafted_tokens=80, accepted_tokens=20, accepted_per_position=(16, 4))
    assert ("length_without_own_token" in codes(run)) == (length == "0.50")
    assert run.window_s is None


def test_the_oldest_v1_lines_say_no_drafts_unless_the_start_says_k() -> None:
    """Whoever runs 0.8.3: the rate is exact; drafts only where the log still has the engine's start."""
    line = f"{API}[metrics.py:50] SpecDecoding metrics: Draft acceptance rate: 50.0%, Accepted: 30 tokens, Drafted: 60 tokens"
    run = run_of(line)
    assert run.acceptance_by_segment is None
    assert {name: each.value for name, each in run.summaries.items()} == {"alpha": 0.5, "accepted_tokens": 30, "drafted_tokens": 60}
    assert codes(run) == ["whole_log", "drafts_unknown", "steps_unknown"]
    known = run_of(started(EAGLE3), line)
    assert known.acceptance == AcceptanceCounts(steps=None, drafts=30, drafted_tokens=60, accepted_tokens=30, accepted_per_position=None)
    assert codes(known) == ["whole_log", "positions_unknown"]


def test_drafts_of_a_lookup_keep_the_ends_that_rounding_leaves() -> None:
    """Whoever drafts with n-grams: drafts may be short, so their number is only known to what the printed length leaves."""
    ngram = "SpeculativeConfig(method='ngram', model=None, num_spec_tokens=5)"
    run = run_of(started(ngram), interval(900, 4000, length=1.90, rates=[0.5, 0.2, 0.1, 0.07, 0.03]))
    drafts, length = run.summaries["drafts"], run.summaries["acceptance_length"]
    assert (drafts.low, drafts.value, drafts.high) == (998, 1000, 1002)
    assert (length.low, length.value, length.high) == (1 + 900 / 1002, 1.9, 1 + 900 / 998)
    assert codes(run) == ["whole_log", "drafts_inferred", "positions_rounded", "steps_unknown"]


def test_dynamic_drafts_are_never_taken_for_full_ones() -> None:
    """Whoever lets K follow the batch: the depth at the end of an interval is not the depth within it."""
    line = interval(2000, 8000, length=1.5, rates=[0.4, 0.1]).replace(
        "Accepted throughput", "Current speculative depth: 2, Accepted throughput"
    )
    run = run_of(started(EAGLE3), line)
    assert run.acceptance.drafts == 4000
    assert "drafts_inferred" in codes(run)


def test_v0_totals_count_once_and_as_usable_tokens() -> None:
    """Whoever still runs V0: its lines repeat the total, and its rate counts matches after a rejection."""
    lines = [totals("0.649", 1735, 2648, 2149), served(9.0, 1), totals("0.654", 3268, 4980, 4074)]
    run = run_of(*lines)
    assert run.acceptance_by_segment is None
    assert {name: each.value for name, each in run.summaries.items()} == {
        "alpha": (4074 - 1245) / 4980,
        "alpha_counted_by_v0": 3268 / 4980,
        "acceptance_length": 4074 / 1245,
        "drafts": 1245,
        "drafted_tokens": 4980,
    }
    assert codes(run) == ["since_start", "v0_metrics"]
    again = run_of(*lines, totals("0.999", 10, 40, 20))
    assert again.summaries["drafts"].value == 1245 + 10
    assert codes(again) == ["since_start", "v0_metrics", "counter_reset", "stated_rate_differs", "efficiency_disagrees"]
    with pytest.raises(BadInputError, match="V0 engine and of V1"):
        run_of(*lines, interval(5, 10, length=1.5, rates=[0.5]))


def test_v0_totals_of_nothing_are_no_acceptance_of_0() -> None:
    """Whoever looks before the first request: no ratio, and nothing to roll back for."""
    run = run_of(totals("0.000", 0, 0, 0).partition("] ")[2])
    assert run.summaries == {}
    assert codes(run) == ["unprefixed_lines", "since_start", "v0_metrics", "stated_rate_differs", "nothing_drafted"]


def test_an_interval_without_drafts_is_no_acceptance_of_0() -> None:
    """Whoever's drafts are all rejected by a grammar: nothing drafted is said as such."""
    run = run_of(interval(0, 0, length=1.0, rates=[0.0]).replace("9.1%", "nan%"))
    assert (run.acceptance_by_segment, run.summaries) == (None, {})
    assert codes(run) == ["whole_log", "nothing_drafted"]


def test_a_broken_draft_is_named() -> None:
    """Whoever serves a head of another model: not one of 1500 tokens accepted is no weak draft."""
    run = run_of(started(EAGLE3), interval(0, 1500, length=1.0, rates=[0.0, 0.0]))
    assert codes(run) == ["whole_log", "nothing_accepted"]
    assert run.acceptance.accepted_per_position == (0, 0)


def test_a_line_that_contradicts_itself_is_left_out() -> None:
    """Whoever's log was damaged: the rest still counts, and the damage is told."""
    run = run_of(interval(5, 10, length=1.5, rates=[0.5]), interval(500, 10, length=1.5, rates=[0.5]))
    assert run.acceptance.drafted_tokens == 10
    assert "contradictory_lines" in codes(run)


@pytest.mark.parametrize(
    "echo",
    [
        "{api}[logger.py:40] Received request: prompt: '{line}'",
        "{api}[logger.py:40] {line}",
        "SpecDecoding metrics: {line}",
        "user says: {line}",
        " {line}",
    ],
)
def test_statistics_in_a_users_text_are_not_counted(echo: str) -> None:
    """Whoever is sent a prompt that looks like the server's statistics: acceptance must not be written by a user."""
    own, forged = interval(5, 10, length=1.5, rates=[0.5]), interval(999, 999, length=2.0, rates=[1.0])
    run = run_of(own, echo.format(api=API, line=forged.removeprefix(f"{API}[metrics.py:101] ")), own)
    assert run.acceptance.drafted_tokens == 20


def test_bare_lines_count_only_where_no_line_has_the_prefix() -> None:
    """Whoever cut the prefix off: the figures are read, and it is said that a user could have written them."""
    bare = interval(5, 10, length=1.5, rates=[0.5]).removeprefix(f"{API}[metrics.py:101] ")
    assert codes(run_of(bare)) == ["unprefixed_lines", *WHOLE]
    run = run_of(interval(50, 100, length=1.5, rates=[0.5]), bare)
    assert run.acceptance.drafted_tokens == 100
    assert codes(run) == ["unprefixed_lines_ignored", *WHOLE]


def test_engines_that_started_again_or_otherwise_are_told() -> None:
    """Whoever restarted with another K: pooling both lives would describe neither."""
    first, second = started(EAGLE3), started(EAGLE3.replace("=2", "=3"))
    run = run_of(first, interval(5, 10, length=2.0, rates=[0.6, 0.4]), second, interval(5, 15, length=2.0, rates=[0.6, 0.2, 0.2]))
    assert run.speculation is None
    assert codes(run)[:2] == ["restarts", "speculation_changed"]
    assert run.acceptance.accepted_per_position == (3 + 3, 2 + 1, 1)


def test_data_parallel_engines_are_added_up() -> None:
    """Whoever serves with several ranks: each writes its own lines, and none is a restart of another."""
    starts = [started(EAGLE3, process=f"EngineCore_DP{rank} pid={rank}") for rank in (0, 1)]
    rates = [served(rate, 8, engine=f"Engine 00{rank}: ") for _ in range(2) for rank, rate in ((0, 100.0), (1, 300.0))]
    run = run_of(*starts, *rates, interval(5, 20, length=1.5, rates=[0.4, 0.1]), interval(5, 20, length=1.5, rates=[0.4, 0.1]))
    assert run.summaries["output_tokens_per_s"].value == 400.0
    assert run.acceptance.drafts == 20
    assert run.window_s is None
    assert codes(run) == ["several_engines", "whole_log"]


def test_throughput_is_taken_from_busy_intervals_only() -> None:
    """Whoever's server was idle half the time: its speed is that of the intervals at whose both ends requests were running."""
    run = run_of(started("None"), served(10.0, 0), served(100.0, 4), served(300.0, 4), served(500.0, 8), served(50.0, 0))
    assert run.summaries["output_tokens_per_s"].value == 400.0
    assert run.arm is Arm.BASELINE
    assert (run.speculation, run.acceptance_by_segment, run.window_s) == (None, None, None)
    assert codes(run) == []


@pytest.mark.parametrize("lines", [(), (f"{API}[api_server.py:1] ready",), (started(EAGLE3), served(9.0, 4), served(9.0, 0))])
def test_a_log_without_statistics_is_no_evidence(lines: tuple[str, ...]) -> None:
    """Whoever runs with --disable-log-stats: not an acceptance of 0."""
    with pytest.raises(NoEvidenceError, match="disable-log-stats"):
        run_of(*lines)


@pytest.mark.parametrize(
    ("config", "speculation"),
    [
        (EAGLE3, Speculation(method=Method.EAGLE3, draft_tokens=2, tree=None)),
        (
            "SpeculativeConfig(method='ngram_gpu', model=None, num_spec_tokens=4)",
            Speculation(method=Method.NGRAM, draft_tokens=4, tree=None),
        ),
        ("SpeculativeConfig(method='deepseek_mtp', num_spec_tokens=1)", Speculation(method=Method.MTP, draft_tokens=1, tree=None)),
        ("SpeculativeConfig(method='medusa', num_spec_tokens=1)", None),
        ("SpeculativeConfig(method='eagle3', num_spec_tokens=999)", None),
        ("SpeculativeConfig(method='eagle3')", None),
        ("SpeculativeConfig(nested=(1))", None),
    ],
)
def test_the_engines_start_says_what_drafts(config: str, speculation: Speculation | None) -> None:
    """Whoever compares with a break-even: the method and K of the log, or nothing where they are not told."""
    run = run_of(started(config), interval(5, 10, length=1.5, rates=[0.5]))
    assert run.speculation == speculation


def test_lines_of_note_and_no_others_are_read() -> None:
    """Whoever's log is long: what says nothing of speculation is passed over."""
    assert read_line(f"{API}[metrics.py:1] SpecDecoding metrics: Accepted: x tokens") is None
    assert read_line("SpecDecoding metrics: nothing") is None
    assert read_line(f"{API}[metrics.py:1] something else") is None
    assert read_line(f"{API}[metrics.py:1] DiffusionDecoding metrics: Committed: 3 tokens") is None
    assert read_line(f"{API}[core.py:1] Initializing nothing") is None
    old = read_line(served(143.6, 7, engine="").replace("[loggers.py:271]", "metrics.py:411]"))
    assert old is not None
    assert old.said == Throughput(engine="", generated_per_s=143.6, running=7)
    bare = read_line("INFO 08-26 12:07:05 llm_engine.py:230] Initializing an LLM engine (v0.6.0) with config: tokenizer='t'")
    assert bare is not None
    assert bare.said == EngineStart(version="0.6.0", model=None, speculates=None, method=None, draft_tokens=None)
    assert is_vllm_line("SpecDecoding metrics: x")
    assert is_vllm_line("INFO 07-01 02:32:50 [api_server.py:602] Starting vLLM server")
    assert is_vllm_line("(EngineCore_DP0 pid=3) WARNING 07-01 02:32:50 [nixl_utils.py:34] NIXL is not available")
    assert not is_vllm_line("WARNING 07-01 02:32:50 [nixl_utils.py:34] NIXL is not available")
    assert not is_vllm_line("# TYPE vllm:num_drafts counter")


def test_more_statistics_than_anybody_asks_about_are_refused() -> None:
    """Whoever hands in years of logs: a message instead of all memory."""
    lines = 4 * [interval(5, 10, length=1.5, rates=[0.5])]
    assert run_of_log(lines, inputs={}, most=4).acceptance.drafted_tokens == 40
    with pytest.raises(BadInputError, match="more than 3 lines of statistics; cut it to the window"):
        run_of_log(lines, inputs={}, most=3)


@settings(max_examples=40)
@given(
    windows=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=40), min_size=1, max_size=5),
    generation=st.sampled_from(["0.8.5", "0.9", "0.20"]),
)
def test_what_was_drafted_comes_back_from_every_generation(windows: list[list[int]], generation: str) -> None:
    """Whoever upgrades vLLM in between: the same drafts give the same acceptance in every format, split into intervals as one likes."""
    lines = [started("SpeculativeConfig(method='eagle3', num_spec_tokens=3)")]
    for accepted in windows:
        rates = [sum(each > i for each in accepted) / len(accepted) for i in range(3)]
        length = sum(accepted) / len(accepted) + (generation != "0.8.5")
        line = interval(sum(accepted), 3 * len(accepted), length=length, rates=rates)
        lines.append(line if generation == "0.20" else line.replace("Mean", "Draft acceptance rate: 1.0%, Mean"))
    run = run_of(*lines)
    every = [each for accepted in windows for each in accepted]
    positions = tuple(sum(each > i for each in every) for i in range(3))
    assert run.acceptance == AcceptanceCounts(
        steps=None,
        drafts=len(every),
        drafted_tokens=3 * len(every),
        accepted_tokens=sum(every),
        accepted_per_position=positions,
    )
    assert "positions_rounded" not in codes(run)


@pytest.mark.parametrize(("accepted", "drafted", "emitted"), [(1735, 26, 2149), (1735, 2648, 3), (2700, 2648, 2149)])
def test_v0_totals_that_no_engine_can_print_give_no_acceptance(accepted: int, drafted: int, emitted: int) -> None:
    """A cut number in a log gives an acceptance rate of 8240 % and a length of 358."""
    run = run_of(totals("0.649", accepted, drafted, emitted))
    assert {"alpha", "acceptance_length"} & run.summaries.keys() == set()
    assert "totals_contradict" in codes(run)
    assert ("alpha_counted_by_v0" in run.summaries) == (accepted <= drafted)
