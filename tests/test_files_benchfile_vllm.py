"""What `vllm bench serve` wrote or printed, under our names; figures worked out by hand from the copies in data/benchfiles."""

import json
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import BadInputError, NoEvidenceError, UnknownNameError
from paceline.latency import Detail
from paceline.run import Arm, Load, Outcome
from paceline.speculation.method import Method
from tests.benchfiles import CHAT, COMPLETIONS, FOLDER, MOCK, SUMMARY_ONLY, changed, codes, read_all, read_evidence


def test_detailed_lists_become_requests_whose_pace_is_the_files_own() -> None:
    """Whoever gates two benchmark files: every request with its instants, and the means that the tool itself states."""
    run = read_evidence(COMPLETIONS)
    assert (run.arm, run.load, run.window_s) == (Arm.SPECULATIVE, Load(concurrency=2, rate_per_s=None), 8.302510987000005)
    assert run.requests is not None
    first = run.requests[0]
    assert (first.prompt_tokens, first.output_tokens, first.timing.chunk_at_s.size) == (51, 23, 8)
    assert first.timing.tpot_s == pytest.approx((2.4321847840 - 1.6493863900) / 22)
    assert run.summaries["tpot_s"].value == pytest.approx(0.06559389706453683)
    assert run.summaries["ttft_s"].value == pytest.approx(0.7410828078333603)
    assert run.summaries["e2e_s"].value == pytest.approx(2.406101221833372)
    assert run.requests[1].timing.sent_at_s == pytest.approx(2469.751448085 - 2469.751255359)


def test_what_vllm_calls_itl_is_a_chunk_gap_and_no_token_gap_is_made_up() -> None:
    """Whoever compares gaps across tools: a message carries several tokens here, so 169 ms is per step and not per token."""
    run = read_evidence(COMPLETIONS)
    assert run.requests is not None
    assert {each.timing.detail for each in run.requests} == {Detail.INSTANTS}
    assert run.summaries["chunk_gap_s"].value == pytest.approx(0.16932390650847576)
    assert run.step_seconds == pytest.approx(0.16932390650847576)
    assert "token_gap_s" not in run.summaries
    assert "chunk_sizes_unknown" in codes(run)


def test_one_token_per_message_gives_token_gaps_too(tmp_path: Path) -> None:
    """Whoever measured the plain arm: as many messages as tokens leaves nothing unknown."""

    def plain(document: dict[str, Any]) -> None:
        document["output_lens"] = [len(each) + 1 for each in document["itls"]]

    run = read_evidence(changed(COMPLETIONS, tmp_path, plain))
    assert run.requests is not None
    assert {each.timing.detail for each in run.requests} == {Detail.CHUNKS}
    assert run.summaries["token_gap_s"].value == run.summaries["chunk_gap_s"].value


def test_counters_give_acceptance_and_the_steps_that_hold_it() -> None:
    """Whoever multiplies by acceptance length: 26 of 59 steps drafted, so tokens per step are 2.58, not 4.58."""
    counts = read_evidence(COMPLETIONS).acceptance
    assert (counts.drafts, counts.drafted_tokens, counts.accepted_tokens, counts.accepted_per_position) == (26, 104, 93, (25, 23, 23, 22))
    assert counts.steps == 7 + 6 + 7 + 10 + 23 + 6
    assert counts.tokens_per_step == pytest.approx(1 + 93 / 59)
    assert counts.acceptance_length == pytest.approx(4.576923076923077)


def test_steps_follow_from_tokens_where_there_are_no_lists(tmp_path: Path) -> None:
    """Whoever kept only the summary: 155 tokens, 6 of them first ones, 93 accepted: 56 steps, with a word on it."""

    def summary(document: dict[str, Any]) -> None:
        for key in ("itls", "ttfts", "input_lens", "output_lens", "start_times", "errors", "generated_texts"):
            del document[key]

    run = read_evidence(changed(COMPLETIONS, tmp_path, summary))
    assert (run.acceptance.steps, run.requests) == (155 - 6 - 93, None)
    assert {"steps_derived", "server_counters", "temperature_unstated"} <= set(codes(run))


def test_more_drafts_than_steps_says_that_other_traffic_was_counted(tmp_path: Path) -> None:
    """Whoever benchmarked a server in use: its counters are not this run's, so no tokens per step come of them."""

    def busy(document: dict[str, Any]) -> None:
        document |= {"spec_decode_num_drafts": 260, "spec_decode_draft_tokens": 1040}
        del document["spec_decode_per_position_acceptance_rates"]

    run = read_evidence(changed(COMPLETIONS, tmp_path, busy))
    assert run.acceptance.steps is None
    assert {"counters_exceed_run", "coverage_unknown"} <= set(codes(run))


def test_the_role_only_first_message_is_no_token() -> None:
    """Whoever uses the chat backend: without this, TTFT is a message early and each answer has a gap of 5 µs."""
    run = read_evidence(CHAT)
    assert run.requests is not None
    assert "role_only_first_chunk" in codes(run)
    assert [each.timing.chunk_at_s.size for each in run.requests] == [37, 30, 40, 33, 37, 37]
    assert run.requests[0].timing.ttft_s == pytest.approx(5.280610109999998 + 5.208000402490143e-06, abs=1e-9)
    assert min(float(each.timing.chunk_gaps_s.min()) for each in run.requests) > 0.01


def test_a_chat_server_without_a_role_message_keeps_its_first_token() -> None:
    """Whoever serves with something else than vLLM: a first gap like the others is a gap."""
    run = read_evidence(MOCK)
    assert "role_only_first_chunk" not in codes(run)
    assert run.requests is not None
    assert run.requests[0].timing.chunk_at_s.size == 28
    assert run.acceptance.steps == 401 == run.acceptance.drafts


def test_one_answer_over_and_over_is_said_to_be_no_traffic() -> None:
    """Whoever repeats one prompt: sixteen equal answers are one sample."""
    assert {"one_answer_repeated", "degenerate_answers"} <= set(codes(read_evidence(MOCK)))


def test_a_peak_below_the_mean_is_not_taken() -> None:
    """Whoever reads peak throughput: it counts messages, and 16 is below the mean of 18.7 tokens/s."""
    run = read_evidence(COMPLETIONS)
    assert "peak_counts_messages" in codes(run)
    assert run.summaries["output_tokens_per_s"].value == pytest.approx(18.669050874211134)


def test_a_summary_without_lists_gives_summaries_and_no_requests() -> None:
    """Whoever did not save details: the figures that are there, null for the rest, and the arm as asked."""
    run = read_evidence(SUMMARY_ONLY)
    assert (run.requests, run.acceptance_by_segment, run.load.concurrency) == (None, None, 128)
    assert run.summaries["tpot_p99_s"].value == pytest.approx(13.610708657261469e-3)
    assert run.summaries["tpot_p99_s"].n == 500
    assert "e2e_s" not in run.summaries
    assert codes(run) == ["arm_assumed"]
    asked = read_evidence(SUMMARY_ONLY, Arm.SPECULATIVE)
    assert (asked.arm, codes(asked)) == (Arm.SPECULATIVE, [])


@pytest.mark.parametrize(
    ("rate", "most", "sent", "load", "code"),
    [
        ("inf", 2, 6, Load(concurrency=2, rate_per_s=None), None),
        ("inf", None, 6, Load(concurrency=6, rate_per_s=None), "all_at_once"),
        ("inf", 64, 6, Load(concurrency=6, rate_per_s=None), "concurrency_not_reached"),
        (float("inf"), 2, 6, Load(concurrency=2, rate_per_s=None), None),
        (2.5, None, 6, Load(concurrency=None, rate_per_s=2.5), None),
        (2.5, 2, 6, Load(concurrency=None, rate_per_s=2.5), "rate_capped"),
        (None, None, 6, Load(concurrency=None, rate_per_s=None), "load_unknown"),
    ],
)
def test_an_infinite_rate_is_a_closed_loop_or_all_at_once(
    tmp_path: Path, rate: float | str | None, most: int | None, sent: int, load: Load, code: str | None
) -> None:
    """Whoever compares loads: "inf" with 2 in flight and "inf" without a bound are two different tests."""
    path = changed(COMPLETIONS, tmp_path, lambda d: d.update(request_rate=rate, max_concurrency=most, num_prompts=sent))
    run = read_evidence(path)
    assert run.load == load
    found = {"all_at_once", "concurrency_not_reached", "rate_capped", "load_unknown"} & set(codes(run))
    assert found == ({code} if code else set())


def test_in_an_open_loop_a_request_counts_from_when_it_should_have_left(tmp_path: Path) -> None:
    """The user of a late client: what the client made her wait is part of her wait."""
    run = read_evidence(changed(COMPLETIONS, tmp_path, lambda d: d.update(request_rate=2.0, max_concurrency=None, burstiness=0.5)))
    assert run.requests is not None
    assert run.requests[5].timing.ttft_s == pytest.approx(0.39679001300009986 + 3.9368773159999364)
    assert "burstiness" in codes(run)
    without = changed(COMPLETIONS, tmp_path, lambda d: (d.pop("queue_times"), d.update(request_rate=2.0, max_concurrency=None))[1])
    assert "scheduled_times_unknown" in codes(read_evidence(without))


def test_a_gap_list_that_begins_with_the_ttft_loses_it(tmp_path: Path) -> None:
    """Whoever kept results of vLLM 0.5: the first gap was the time to first token, and its P99 nonsense."""

    def old(document: dict[str, Any]) -> None:
        document["itls"] = [[ttft, *gaps] for ttft, gaps in zip(document["ttfts"], document["itls"], strict=True)]

    run = read_evidence(changed(COMPLETIONS, tmp_path, old))
    assert "itl_includes_ttft" in codes(run)
    assert run.summaries["chunk_gap_s"].value == pytest.approx(0.16932390650847576)
    summary = changed(SUMMARY_ONLY, tmp_path, lambda d: d.update(date="20240601-120000"))
    assert "itl_may_include_ttft" in codes(read_evidence(summary))


def test_chat_summaries_say_that_the_role_message_may_be_in_them(tmp_path: Path) -> None:
    """Whoever has only the summary of a chat run: it cannot be told apart any more."""
    path = changed(SUMMARY_ONLY, tmp_path, lambda d: d.update(endpoint_type="openai-chat", mean_itl_ms=5.0))
    assert {"role_only_first_chunk_possible", "itl_below_tpot"} <= set(codes(read_evidence(path)))


def test_failed_requests_are_failed_and_not_fast(tmp_path: Path) -> None:
    """Whoever had time-outs: a failed request has no latency, and is counted."""

    def fail(document: dict[str, Any]) -> None:
        document["errors"][2], document["output_lens"][2], document["ttfts"][2], document["itls"][2] = "boom", 0, 0.0, []
        document["completed"], document["failed"] = 5, 1

    run = read_evidence(changed(COMPLETIONS, tmp_path, fail))
    assert run.requests is not None
    assert [each.outcome for each in run.requests].count(Outcome.FAILED) == 1
    assert len(run.finished) == 5
    assert "requests_failed" in codes(run)
    assert "requests_failed" in codes(read_evidence(changed(SUMMARY_ONLY, tmp_path, lambda d: d.update(failed=3))))


def test_an_empty_run_is_no_evidence(tmp_path: Path) -> None:
    """Whoever's server was down: zeros are not fast."""
    with pytest.raises(NoEvidenceError, match="finished 0 requests"):
        read_evidence(changed(SUMMARY_ONLY, tmp_path, lambda d: d.update(completed=0)))


def test_appended_lines_are_runs_of_their_own_and_copies_count_once(tmp_path: Path) -> None:
    """Whoever uses --append-result: each line is a run; one written twice is one."""
    one = json.loads(SUMMARY_ONLY.read_text(encoding="utf-8"))
    lines = [one, {**one, "max_concurrency": 64}, one, {**one, "completed": 0}]
    path = tmp_path / "appended.json"
    path.write_text("\n".join(json.dumps(each) for each in lines) + "\n", encoding="utf-8")
    found = read_all(path)
    assert [(each.label, each.run.load.concurrency) for each in found] == [("1", 128), ("2", 64)]
    assert {"duplicate_runs", "empty_runs"} <= set(codes(found[0].run))
    with pytest.raises(
        BadInputError, match=r"holds 2 runs; ask for one as appended\.json#LABEL: '1' \(128 in flight\), '2' \(64 in flight\)"
    ):
        read_evidence(path)
    assert read_evidence(Path(f"{path}#2")).load.concurrency == 64
    with pytest.raises(UnknownNameError, match="unknown run '3'"):
        read_evidence(Path(f"{path}#3"))


def test_a_sweeps_config_states_arm_method_and_length(tmp_path: Path) -> None:
    """Whoever sweeps serve parameters: the result says itself what drafted."""
    config = json.dumps({"method": "eagle3", "num_speculative_tokens": 3})
    run = read_evidence(changed(SUMMARY_ONLY, tmp_path, lambda d: d.update(speculative_config=config)))
    assert run.arm is Arm.SPECULATIVE
    assert run.speculation is not None
    assert (run.speculation.method, run.speculation.draft_tokens) == (Method.EAGLE3, 3)
    with pytest.raises(BadInputError, match="speculative_config"):
        read_evidence(changed(SUMMARY_ONLY, tmp_path, lambda d: d.update(speculative_config="{")))


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("mean_tpot_ms", float("nan"), "is not a finite number"),
        ("mean_tpot_ms", -1.0, "is below 0"),
        ("mean_tpot_ms", "7.03", "is not a finite number"),
        ("duration", 10**400, "is not a finite number"),
        ("completed", 1.5, "is not a whole number"),
        ("completed", True, "is not a whole number"),
        ("request_rate", "often", "is not a finite number"),
        ("output_lens", [1, 2], "different lengths"),
        ("output_lens", [1.5] * 6, "no number of tokens"),
        ("start_times", [1.0], "not as long as"),
        ("ttfts", [-9.0, 1, 1, 1, 1, 1], "request '0': the clock goes back"),
        ("itls", [["a"]] * 6, "is not a finite number"),
        ("spec_decode_accepted_tokens", 200, "accepted tokens = 200"),
    ],
)
def test_a_figure_that_is_none_is_refused_with_its_place(tmp_path: Path, key: str, value: object, why: str) -> None:
    """Whoever's file was damaged: no figure comes of it, and the message says where."""
    with pytest.raises(BadInputError, match=why) as refusal:
        read_evidence(changed(COMPLETIONS, tmp_path, lambda d: d.update({key: value})))
    assert "changed.json" in str(refusal.value)


def test_positions_that_do_not_add_up_are_left_out(tmp_path: Path) -> None:
    """Whoever plots acceptance by position: none is better than a wrong one."""
    path = changed(COMPLETIONS, tmp_path, lambda d: d.update(spec_decode_per_position_acceptance_rates=[0.9, 0.8, 0.7, 0.6]))
    run = read_evidence(path)
    assert run.acceptance.accepted_per_position is None
    assert "positions_inconsistent" in codes(run)


def test_a_printed_result_is_read_with_the_options_above_it() -> None:
    """Whoever kept the console log: acceptance 0.20 and yet 7.03 → 5.90 ms per token, at a step ratio of 1.175."""
    plain, drafting = read_evidence(FOLDER / "vllm-text-baseline.log"), read_evidence(FOLDER / "vllm-text-k2.log")
    assert (plain.arm, drafting.arm, drafting.load.concurrency) == (Arm.BASELINE, Arm.SPECULATIVE, 8)
    assert plain.summaries["tpot_s"].value / drafting.summaries["tpot_s"].value == pytest.approx(7.03 / 5.90)
    assert plain.step_seconds
    assert drafting.step_seconds
    assert drafting.step_seconds / plain.step_seconds == pytest.approx(8.26 / 7.03)
    counts = drafting.acceptance
    assert (counts.drafts, counts.drafted_tokens, counts.accepted_tokens) == (14579, 29158, 5842)
    assert counts.alpha == pytest.approx(0.2004, abs=5e-5)
    assert counts.steps == 14579  # 20480 − 80 − 5842 = 14558, and no fewer than the drafts
    assert counts.accepted_per_position is None
    assert drafting.summaries["survival_1"].value == pytest.approx(0.3312)
    assert drafting.provenance.arguments["model"] == "Qwen3-8B"


def test_several_printed_results_are_several_runs() -> None:
    """Whoever concatenated logs: each block on its own."""
    found = read_all(FOLDER / "vllm-text-two-runs.txt")
    assert [each.run.summaries["ttft_s"].value for each in found] == pytest.approx([0.31458, 0.37280])
    assert all("load_unknown" in codes(each.run) for each in found)


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("dataset_name='hf'", "dataset_name='random'", "random_dataset"),
        ("ignore_eos=False", "ignore_eos=True", "ignore_eos"),
        ("backend='openai'", "backend='openai-chat'", "role_only_first_chunk_possible"),
        ("temperature=None", "temperature=None", "temperature_unstated"),
    ],
)
def test_what_makes_printed_acceptance_doubtful_is_said(tmp_path: Path, old: str, new: str, code: str) -> None:
    """Whoever benchmarked random tokens: their acceptance is nobody's."""
    text = (FOLDER / "vllm-text-k2.log").read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "bench.log"
    path.write_text(text.replace(old, new), encoding="utf-8")
    assert code in codes(read_evidence(path))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("==================================================\n", "", "ends in the middle of a result"),
        ("Mean TPOT (ms):                          5.90", "Mean TPOT (ms):                          5.9.0", "is no number"),
        ("Mean TPOT (ms):                          5.90", "Mean TPOT (ms):                          nan", "not a finite number"),
        ("Median TPOT (ms)", "Mean TPOT (ms)", "twice"),
    ],
)
def test_a_printed_result_that_is_cut_or_mixed_is_refused(tmp_path: Path, old: str, new: str, why: str) -> None:
    """Whoever's log was cut: half a result is none."""
    path = tmp_path / "bench.log"
    path.write_text((FOLDER / "vllm-text-k2.log").read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(BadInputError, match=why):
        read_evidence(path)


def test_a_log_without_a_result_says_that_the_run_did_not_end(tmp_path: Path) -> None:
    """Whoever stopped the benchmark: there is nothing to read in its log."""
    path = tmp_path / "bench.log"
    path.write_text("Starting main benchmark run...\nTraffic request rate: inf\n", encoding="utf-8")
    with pytest.raises(NoEvidenceError, match="holds no result"):
        read_evidence(path)
