"""What aiperf, guidellm and inference-perf wrote, under our names."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import BadInputError, NoEvidenceError
from paceline.files.evidence import read_evidence
from paceline.latency import Detail
from paceline.run import Arm, Load, Outcome
from tests.benchfiles import FOLDER, changed, codes, read_all

AIPERF = FOLDER / "aiperf-0.13-ngram"
RECORDS = AIPERF / "profile_export.jsonl"
AGGREGATES = AIPERF / "profile_export_aiperf.json"
GUIDELLM = FOLDER / "guidellm-0.8.1-spec.json"
NGRAM = FOLDER / "guidellm-0.8.1-ngram.json"


def records(folder: Path, change: Callable[[list[dict[str, Any]]], object]) -> Path:
    """The records with `change` done to their list."""
    lines = [json.loads(each) for each in RECORDS.read_text(encoding="utf-8").splitlines()]
    change(lines)
    path = folder / "records.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")
    return path


def test_a_directory_of_aiperf_is_one_run_with_requests_load_and_acceptance() -> None:
    """Whoever keeps aiperf's folder: requests from the records, the load from the aggregates."""
    run = read_evidence(AIPERF)
    assert (run.arm, run.load) == (Arm.SPECULATIVE, Load(concurrency=2, rate_per_s=None))
    assert run.window_s == pytest.approx(126.271443456)
    assert run.requests is not None
    first = next(each for each in run.requests if each.id == "session_000001/0")
    assert (first.prompt_tokens, first.output_tokens, first.timing.chunk_at_s.size) == (94, 40, 21)
    assert first.timing.ttft_s == pytest.approx(10.318709266)
    assert first.timing.e2e_s == pytest.approx(25.641396304)
    assert first.timing.tpot_s == pytest.approx(0.3928894112307692)
    assert sorted(run.provenance.inputs) == ["profile_export.jsonl", "profile_export_aiperf.json"]


def test_per_request_counts_are_taken_with_the_steps_that_messages_show() -> None:
    """Whoever multiplies 3.75 by the pace: 8 of 20 steps drafted, and the other requests drafted next to nothing."""
    run = read_evidence(AIPERF)
    first = next(each for each in run.finished if each.id == "session_000001/0").acceptance
    assert first is not None
    assert (first.steps, first.drafts, first.drafted_tokens, first.accepted_tokens) == (20, 8, 32, 22)
    assert first.accepted_per_position == (7, 5, 5, 5)
    assert (run.acceptance.drafts, run.acceptance.drafted_tokens, run.acceptance.accepted_tokens) == (17, 68, 25)
    assert run.acceptance.coverage == pytest.approx(17 / 212)


def test_aiperfs_itl_is_a_requests_mean_and_so_a_pace() -> None:
    """Whoever gates P99 "ITL": 13 ms of request means, where messages waited 118 ms."""
    run = read_evidence(FOLDER / "aiperf-0.10-agent.json")
    assert run.summaries["tpot_p99_s"].value == pytest.approx(13.272469915788289e-3)
    assert run.summaries["chunk_gap_p99_s"].value == pytest.approx(117.98615575276864e-3)
    assert run.summaries["chunk_gap_p99_s"].value / run.summaries["tpot_p99_s"].value == pytest.approx(8.9, abs=0.05)
    assert (run.summaries["tpot_s"].n, run.summaries["chunk_gap_s"].n) == (96, 52023)
    assert run.load == Load(concurrency=16, rate_per_s=None)  # not the warm-up phase's
    assert "itl_is_request_mean" in codes(run)


def test_aggregates_alone_pool_acceptance_over_requests() -> None:
    """Whoever reads 17.7 %: that is the mean of requests' rates; of 68 drafts 25 were accepted."""
    run = read_evidence(AGGREGATES)
    assert (run.arm, run.requests) == (Arm.SPECULATIVE, None)
    assert run.acceptance.alpha == pytest.approx(25 / 68)
    assert run.acceptance.accepted_per_position == (10, 5, 5, 5)
    assert run.acceptance.steps == 240 - 6 - 25
    assert {"ignore_eos", "synthetic_dataset", "steps_derived"} <= set(codes(run))


def test_records_alone_leave_the_load_unknown() -> None:
    """Whoever has only the records: nothing is assumed of how they were sent."""
    run = read_evidence(RECORDS)
    assert run.load == Load(concurrency=None, rate_per_s=None)
    assert "load_unknown" in codes(run)


def test_a_request_that_ends_elsewhere_than_its_last_message_is_said() -> None:
    """Whoever reads the sample of aiperf's documentation: its end-to-end time is not its messages'."""
    run = read_evidence(FOLDER / "aiperf-docs-records.jsonl")
    assert run.requests is not None
    assert [each.outcome for each in run.requests] == [Outcome.FINISHED, Outcome.FAILED]
    assert run.requests[0].timing.detail is Detail.CHUNKS
    assert run.summaries["tpot_s"].value == pytest.approx(5.2048325e-3)
    assert {"latency_disagrees", "requests_failed"} <= set(codes(run))


def test_warm_up_and_requests_without_lengths_are_left_out_and_counted(tmp_path: Path) -> None:
    """Whoever warms up: those requests are no measurement."""

    def change(lines: list[dict[str, Any]]) -> None:
        lines[0]["metadata"]["benchmark_phase"] = "warmup"
        del lines[1]["metrics"]["output_sequence_length"]

    run = read_evidence(records(tmp_path, change))
    assert run.requests is not None
    assert len(run.requests) == 4
    assert {"warm_up_excluded", "requests_without_tokens"} <= set(codes(run))


def test_records_without_gaps_know_the_ends_only(tmp_path: Path) -> None:
    """Whoever dropped the gap lists: pace and end to end remain, and no gap is made of first and last."""

    def change(lines: list[dict[str, Any]]) -> None:
        for each in lines:
            del each["metrics"]["inter_chunk_latency"]

    run = read_evidence(records(tmp_path, change))
    assert run.requests is not None
    assert {each.timing.detail for each in run.requests} == {Detail.ENDS}
    assert run.summaries["tpot_s"].value == pytest.approx(867.0221257564101e-3)
    assert not {"chunk_gap_s", "token_gap_s"} & set(run.summaries)
    assert run.step_seconds is None


def test_one_conversation_turn_twice_keeps_both(tmp_path: Path) -> None:
    """Whoever's data set was shorter than the run: ids stay unique."""
    run = read_evidence(records(tmp_path, lambda lines: [each["metadata"].update(conversation_id="c") for each in lines]))
    assert run.requests is not None
    assert {each.id for each in run.requests} == {f"c/0#{i}" for i in range(6)}


def test_counts_that_contradict_each_other_are_left_out(tmp_path: Path) -> None:
    """Whoever reads a broken server's acceptance: none is better."""

    def change(lines: list[dict[str, Any]]) -> None:
        lines[0]["spec_decode_acceptance"]["num_accepted_draft_tokens"] = 99
        lines[1]["spec_decode_acceptance"]["acceptance_histogram"] = {"3": 1}
        lines[2]["spec_decode_acceptance"]["acceptance_histogram"] = {"-1": 1}

    run = read_evidence(records(tmp_path, change))
    assert run.requests is not None
    assert [each.acceptance is None for each in run.requests] == [True, True, True, False, False, False]
    assert "acceptance_inconsistent" in codes(run)


def test_a_record_cut_off_at_the_end_is_left_out_and_one_in_the_middle_refuses(tmp_path: Path) -> None:
    """Whoever interrupted aiperf: its whole records count; a damaged file does not."""
    text = RECORDS.read_text(encoding="utf-8")
    path = tmp_path / "cut.jsonl"
    path.write_text(text[:-300], encoding="utf-8")
    run = read_evidence(path)
    assert run.requests is not None
    assert len(run.requests) == 5
    assert "last_line_cut" in codes(run)
    lines = text.splitlines()
    path.write_text("\n".join([lines[0], lines[1][:-9], *lines[2:]]) + "\n", encoding="utf-8")
    with pytest.raises(BadInputError, match="line 2 is no whole JSON"):
        read_evidence(path)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda lines: lines[0]["metadata"].update(request_start_ns=1.5), "nanoseconds"),
        (lambda lines: lines[0]["metadata"].pop("request_start_ns"), "request_start_ns is missing"),
        (lambda lines: lines[0]["metrics"]["time_to_first_token"].update(unit="parsec"), "no unit of time"),
        (lambda lines: lines[0]["spec_decode_acceptance"].update(acceptance_histogram={"x": 1}), "a key that is no number"),
        (lambda lines: lines[0]["spec_decode_acceptance"].update(acceptance_histogram={"1": 1.5}), "not a whole number"),
        (lambda lines: lines[0]["metrics"]["inter_chunk_latency"].update(value=[-1.0]), "the clock goes back"),
    ],
)
def test_records_that_are_none_are_refused(tmp_path: Path, change: Callable[[list[dict[str, Any]]], object], why: str) -> None:
    """Whoever's export was damaged."""
    with pytest.raises(BadInputError, match=why):
        read_evidence(records(tmp_path, change))


def test_records_of_failures_only_are_no_evidence(tmp_path: Path) -> None:
    """Whoever's server refused everything."""
    with pytest.raises(NoEvidenceError, match="none of a finished request"):
        read_evidence(records(tmp_path, lambda lines: [each.update(error={"code": 500}) for each in lines]))
    with pytest.raises(NoEvidenceError, match="without a latency"):
        read_evidence(
            changed(
                AGGREGATES,
                tmp_path,
                lambda d: [d.pop(k) for k in ("request_latency", "time_to_first_token")] and d.update(inter_token_latency={}),
            )
        )


def test_in_aiperfs_open_loop_a_request_counts_from_its_credit(tmp_path: Path) -> None:
    """The user of a late client waits from when her request should have left."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "a.jsonl").write_text(RECORDS.read_text(encoding="utf-8"), encoding="utf-8")
    changed(AGGREGATES, folder, lambda d: d["input_config"].update(phases=[{"name": "profiling", "type": "rate", "rate": 0.5}]))
    run = read_evidence(folder)
    assert run.load == Load(concurrency=None, rate_per_s=0.5)
    first = next(each for each in run.finished if each.id == "session_000001/0")
    assert first.timing.ttft_s == pytest.approx(10.318709266 + 8254790e-9)


def test_guidellms_itl_is_a_pace_and_no_gap_is_made_of_it() -> None:
    """Whoever gates guidellm's P99 ITL: it is a mean per request; the messages between first and last were not kept."""
    run = read_evidence(GUIDELLM)
    assert run.requests is not None
    assert {each.timing.detail for each in run.requests} == {Detail.ENDS}
    paces = [each.timing.tpot_s for each in run.requests]
    assert paces == pytest.approx([6.989447275797526e-3, 6.989320119222005e-3, 9.717464447021484e-3, 9.831984837849935e-3], rel=1e-6)
    assert not {"chunk_gap_s", "token_gap_s"} & set(run.summaries)
    assert run.summaries["ttft_s"].value == pytest.approx(54.93736267089844e-3)
    assert run.summaries["output_tokens_per_s"].value == pytest.approx(64 / 0.21967172622680664)
    assert run.load == Load(concurrency=4, rate_per_s=None)
    assert {"itl_is_request_mean", "chunks_unknown", "one_answer_repeated", "tool_warning"} <= set(codes(run))


def test_guidellms_requests_carry_their_acceptance() -> None:
    """Whoever wants acceptance per request: histograms give positions, messages give steps."""
    counts = read_evidence(GUIDELLM).acceptance
    assert (counts.steps, counts.drafts, counts.drafted_tokens, counts.accepted_tokens) == (24, 24, 72, 36)
    assert counts.accepted_per_position == (5 + 5 + 4 + 4, 3 + 3 + 2 + 3, 2 + 2 + 2 + 1)
    real = read_evidence(NGRAM)
    assert real.acceptance.drafts == 40
    assert real.acceptance.coverage == pytest.approx(40 / 541)
    assert len({each.id for each in real.finished}) == 12


def test_guidellm_without_requests_weighs_pace_by_tokens_and_says_which_load() -> None:
    """Whoever dumped no requests: equal lengths make the weights equal, so the pace is one; each rate is a run."""
    found = read_all(FOLDER / "guidellm-0.8.0-two-rates.json")
    assert [(each.label, each.run.load.rate_per_s) for each in found] == [("constant-2", 2.0), ("constant-4", 4.0)]
    assert found[0].run.summaries["tpot_s"].value == pytest.approx(1.1508464813232422e-3)
    assert found[0].run.requests is None


def test_guidellm_summaries_of_unequal_lengths_are_no_tpot(tmp_path: Path) -> None:
    """Whoever compares means: weighed by tokens they are another mean than ours, so they have another name."""

    def change(document: dict[str, Any]) -> None:
        document["benchmarks"][0]["requests"] = {"successful": None, "errored": None, "incomplete": None}

    run = read_evidence(changed(NGRAM, tmp_path, change))
    assert "tpot_s" not in run.summaries
    assert run.summaries["token_weighted_tpot_s"].value == pytest.approx(110.05500347717948e-3)


def test_guidellms_other_strategies_and_outcomes(tmp_path: Path) -> None:
    """Whoever ran flat out, had failures or kept a sample."""

    def change(document: dict[str, Any]) -> None:
        only = document["benchmarks"][0]
        only["config"]["strategy"] = {"type_": "throughput"}
        only["metrics"]["request_totals"] = {"successful": 3, "errored": 1, "incomplete": 0, "total": 9}
        only["requests"]["errored"] = [only["requests"]["successful"].pop()]
        only["requests"]["successful"][0]["response_metrics"]["speculative_decoding"]["num_accepted_draft_tokens"] = 99
        only["requests"]["successful"][1]["request_args"] = "{"

    run = read_evidence(changed(GUIDELLM, tmp_path, change))
    assert run.load.concurrency == 4
    assert {"all_at_once", "requests_sampled", "requests_failed", "acceptance_inconsistent"} <= set(codes(run))


def test_guidellm_counts_from_the_targeted_start_in_an_open_loop(tmp_path: Path) -> None:
    """The user of a late client waits from when her request should have left."""
    path = changed(GUIDELLM, tmp_path, lambda d: d["benchmarks"][0]["config"].update(strategy={"type_": "constant", "rate": 9.0}))
    run = read_evidence(path)
    assert run.finished[0].timing.ttft_s == pytest.approx(56.527137756347656e-3 + 0.006795406341552734)


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        (lambda d: d["metadata"].update(version=1), BadInputError, "version 1; version 2 is read"),
        (lambda d: d["benchmarks"][0]["metrics"].update(request_totals={"successful": 0}), NoEvidenceError, "finished no request"),
        (lambda d: d.update(benchmarks=[]), NoEvidenceError, "no run in it"),
        (lambda d: d["benchmarks"][0]["requests"]["successful"][0].update(output_tokens=None), BadInputError, "lacks its start"),
    ],
)
def test_guidellm_reports_that_are_none_are_refused(
    tmp_path: Path, change: Callable[[Any], object], error: type[Exception], why: str
) -> None:
    """Whoever has another version, or an empty report."""
    with pytest.raises(error, match=why):
        read_evidence(changed(GUIDELLM, tmp_path, lambda d: (change(d), None)[1]))


def test_inference_perf_gives_pace_and_keeps_its_zero_gaps_out() -> None:
    """Whoever compares ITL: half of its gaps are 50 µs because tokens of one message count apart."""
    run = read_evidence(FOLDER / "inference-perf-eagle-stage_3_lifecycle.json")
    assert run.load == Load(concurrency=None, rate_per_s=52.49)
    assert run.summaries["tpot_p99_s"].value == pytest.approx(0.014609695741105391)
    assert run.summaries["ttft_s"].n == 3149
    assert not {"chunk_gap_s", "token_gap_s"} & set(run.summaries)
    assert run.window_s == pytest.approx(3149 / 51.63746915121225)
    assert codes(run) == ["itl_not_taken", "arm_assumed"]


def test_inference_perf_says_where_its_load_was_late_low_or_mixed() -> None:
    """Whoever reads the highest stage: requests left seconds late, and no latency shows it."""
    assert {"load_generator_late", "rate_not_reached"} <= set(codes(read_evidence(FOLDER / "inference-perf-eagle-stage_6_lifecycle.json")))
    assert "mixed_loads" in codes(read_evidence(FOLDER / "inference-perf-eagle-summary_lifecycle.json"))


def test_inference_perfs_prometheus_pace_is_a_step() -> None:
    """Whoever compares 28.9 ms with the 13.9 ms of the same run: the server's histogram is per step, not per token."""
    run = read_evidence(FOLDER / "inference-perf-eagle-summary_prometheus.json")
    assert run.summaries["chunk_gap_s"].value == 0.028903 == run.step_seconds
    assert "tpot_s" not in run.summaries
    assert {"prometheus_tpot_is_per_step", "histogram_percentiles"} <= set(codes(run))


def test_inference_perf_without_successes_is_no_evidence(tmp_path: Path) -> None:
    """Whoever's stage failed."""
    source = FOLDER / "inference-perf-eagle-stage_3_lifecycle.json"
    with pytest.raises(NoEvidenceError, match="no successful request"):
        read_evidence(changed(source, tmp_path, lambda d: d["successes"].update(count=0)))
    failed = read_evidence(changed(source, tmp_path, lambda d: d["failures"].update(count=7)))
    assert "requests_failed" in codes(failed)
    with pytest.raises(BadInputError, match="holds no latency"):
        read_evidence(changed(source, tmp_path, lambda d: d["successes"].pop("latency") and None))
