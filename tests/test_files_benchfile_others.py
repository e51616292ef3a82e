"""llama.cpp timings, speculation_profile.json, single answers, folders, and files that are refused by name."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import BadInputError, NoEvidenceError
from paceline.files.benchfile.speculation_profile import profile_of, write_speculation_profile
from paceline.files.runfile import write_run
from paceline.run import Arm, Evidence, Load
from paceline.speculation.method import Method, Speculation
from tests.benchfiles import COMPLETIONS, FOLDER, MOCK, SUMMARY_ONLY, changed, codes, nothing, read_all, read_evidence, updated

LLAMA = FOLDER / "llama-1080ti.json"
SIZES = FOLDER / "llama-draft-sizes.json"
ANSWER = FOLDER / "vllm-0.32.0-answer.json"
PROFILE = {
    "schema_version": "1.0",
    "measured": True,
    "method": "eagle3",
    "draft_checkpoint": {"id": "org/draft"},
    "target_model": {"id": "org/target"},
    "num_speculative_tokens": 3,
    "verification_method": "longest_prefix",
    "conditional_accept_rates": [0.7, 0.714286, 0.6],
    "marginal_accept_rates": [0.7, 0.5, 0.3],
    "mean_accept_length": 2.5,
    "mean_accept_length_per_request": 2.6,
    "accept_length_model": "chain_analytic",
    "accept_length_by_k": {"3": 2.5},
    "acceptance_length_histogram": {"1": 30, "2": 20, "3": 20, "4": 30},
    "per_category": {"coding": {"mean_accept_length": 3.1}, "writing": {"mean_accept_length": 1.9}},
    "validation": {"mean_consistency": {"passed": True}},
}


def profile(folder: Path, **new: object) -> Path:
    """The profile above with other values."""
    path = folder / "profile.json"
    path.write_text(json.dumps(PROFILE | new), encoding="utf-8")
    return path


def test_llama_timings_give_pace_and_acceptance_by_category() -> None:
    """Whoever ran llama.cpp by prompt: code accepts 207 of 237 drafts in 48 steps, chat far fewer."""
    found = {each.label: each.run for each in read_all(LLAMA)}
    assert list(found) == ["cuda/baseline", "cuda/draft_0_5b", "cuda/ngram"]
    run = found["cuda/draft_0_5b"]
    assert (run.arm, run.load, run.requests) == (Arm.SPECULATIVE, Load(concurrency=1, rate_per_s=None), None)
    assert run.acceptance_by_segment is not None
    code = run.acceptance_by_segment["code"]
    assert (code.steps, code.drafts, code.drafted_tokens, code.accepted_tokens) == (48, 48, 237, 207)
    assert code.tokens_per_step == pytest.approx(255 / 48)
    assert {"drafts_derived", "few_prompts", "pace_with_first_token"} <= set(codes(run))
    paces = [5.022431 / 256, 5.071105 / 256]
    plain = found["cuda/baseline"].summaries["tpot_s"]
    assert plain.n == 3
    assert min(paces) * 0.97 < plain.value < max(paces) * 1.03


def test_llama_without_a_counted_draft_says_so() -> None:
    """Whoever believes n-gram ran: no draft was counted, so this arm may be a plain server."""
    run = read_evidence(Path(f"{LLAMA}#cuda/ngram"))
    assert run.acceptance_by_segment is None
    assert "nothing_drafted" in codes(run)


def test_a_sweep_over_drafts_states_length_and_acceptance() -> None:
    """Whoever compares draft sizes: K = 5 as the file says, α as stated, failures counted."""
    found = {each.label: each.run for each in read_all(SIZES)}
    assert list(found) == ["cuda/baseline", "cuda/draft/0.5B", "cuda/draft/1.5B", "cuda/draft/3B"]
    run = found["cuda/draft/3B"]
    assert run.speculation == Speculation(method=Method.DRAFT_MODEL, draft_tokens=5, tree=None)
    assert run.summaries["alpha"].value == pytest.approx(0.86975)
    assert "requests_failed" in codes(found["cuda/baseline"])


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        (lambda d: d["runs"][1]["records"][0].update(draft_n_accepted=999), BadInputError, "accepted tokens = 999"),
        (lambda d: d["runs"][0]["records"][0].update(predicted_ms=None, tps=None), BadInputError, "neither predicted_ms"),
        (lambda d: d.update(runs=[{"method": "baseline", "records": [{"error": "x", "predicted_n": 1}]}]), NoEvidenceError, "no prompt"),
        (lambda d: d.update(runs=[{"method": "baseline"}], x={"records": 1, "predicted_n": 1}), NoEvidenceError, "neither records"),
        (lambda d: d.update(runs=[{"method": "x", "records": [{"predicted_n": "many"}]}]), BadInputError, "whole number"),
    ],
)
def test_llama_records_that_are_none_are_refused(tmp_path: Path, change: Callable[[Any], object], error: type[Exception], why: str) -> None:
    """Whoever's script failed."""
    with pytest.raises(error, match=why):
        read_all(changed(LLAMA, tmp_path, lambda d: (change(d), None)[1]))


def test_groups_and_drafts_in_some_answers_only(tmp_path: Path) -> None:
    """Whoever ran several machines: labels name the group; a prompt without drafts is said."""

    def change(document: dict[str, Any]) -> dict[str, Any]:
        document["runs"][1]["records"][0].update(draft_n=None, draft_n_accepted=None, predicted_ms=None)
        return {"name": "x", "runs": {"gpu0": document}}

    found = {each.label: each.run for each in read_all(changed(LLAMA, tmp_path, change))}
    run = found["gpu0/cuda/draft_0_5b"]
    assert run.acceptance_by_segment is None
    assert "drafts_in_some" in codes(run)
    assert run.summaries["alpha"].n is not None


def test_a_profile_gives_counts_and_no_latency(tmp_path: Path) -> None:
    """Whoever gets a draft with its profile: 100 steps, 150 of 300 drafts accepted; nobody's load or latency."""
    run = read_evidence(profile(tmp_path))
    assert (run.arm, run.provenance.evidence, run.requests) == (Arm.SPECULATIVE, Evidence.PROFILE, None)
    assert run.speculation == Speculation(method=Method.EAGLE3, draft_tokens=3, tree=None)
    counts = run.acceptance
    assert (counts.steps, counts.drafts, counts.drafted_tokens, counts.accepted_tokens) == (100, 100, 300, 150)
    assert counts.accepted_per_position == (70, 50, 30)
    assert counts.acceptance_length == 2.5
    assert run.summaries["acceptance_length [coding]"].value == 3.1
    assert run.provenance.arguments == {"target": "org/target", "draft": "org/draft"}


@pytest.mark.parametrize(
    ("new", "code"),
    [
        ({"validation": {"mean_consistency": {"passed": False}}}, "profile_inconsistent"),
        ({"verification_method": "block"}, "other_verification"),
        ({"method": "ngram"}, "coverage_unknown"),
        ({"num_speculative_tokens": 2}, "profile_truncated"),
    ],
)
def test_what_a_profile_leaves_doubtful_is_said(tmp_path: Path, new: dict[str, object], code: str) -> None:
    """Whoever takes a profile's vectors at their word."""
    assert code in codes(read_evidence(profile(tmp_path, **new)))


def test_an_early_profiles_mean_weighs_requests(tmp_path: Path) -> None:
    """Whoever has a profile of before the mean was by step: the positions are the steps'."""
    early = {key: value for key, value in PROFILE.items() if key != "mean_accept_length_per_request"} | {"mean_accept_length": 2.6}
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(early), encoding="utf-8")
    assert "mean_is_per_request" in codes(read_evidence(path))


@pytest.mark.parametrize(
    ("new", "error", "why"),
    [
        ({"measured": False}, NoEvidenceError, "stub"),
        ({"schema_version": "2.0"}, BadInputError, "version '2.0'"),
        ({"marginal_accept_rates": [1.2]}, BadInputError, "fractions of 1"),
        ({"acceptance_length_histogram": {"x": 1}}, BadInputError, "no number of tokens"),
        ({"acceptance_length_histogram": {"0": 1}}, BadInputError, "impossible entry"),
    ],
)
def test_a_profile_that_is_none_is_refused(tmp_path: Path, new: dict[str, object], error: type[Exception], why: str) -> None:
    """Whoever got a stub, or a later version."""
    with pytest.raises(error, match=why):
        read_evidence(profile(tmp_path, **new))


def test_a_written_profile_reads_back_as_the_same_counts(tmp_path: Path) -> None:
    """Whoever hands a measured draft on: another reader of the format finds the same positions, and we the same counts."""
    run = replace(read_evidence(MOCK), speculation=Speculation(method=Method.EAGLE3, draft_tokens=3, tree=None))
    path = tmp_path / "speculation_profile.json"
    write_speculation_profile(run, path)
    again = read_evidence(path)
    assert replace(again.acceptance, steps=401) == run.acceptance
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["marginal_accept_rates"] == [0.690773, 0.476309, 0.346633]
    assert document["conditional_accept_rates"] == pytest.approx([0.690773, 191 / 277, 139 / 191], abs=2e-6)
    assert document["mean_accept_length"] == pytest.approx(1 + 607 / 401, abs=1e-6)
    assert document["acceptance_length_histogram"] == {"1": 124, "2": 86, "3": 52, "4": 139}
    assert document["accept_length_model"] == "chain_analytic"
    assert document["validation"]["mean_consistency"]["passed"] is True
    assert document["mean_accept_length_per_request"] is None


def test_a_profile_has_categories_and_the_mean_by_request_where_they_were_measured() -> None:
    """Whoever deploys by category: each has its own mean length."""
    run = read_evidence(FOLDER / "aiperf-0.13-ngram")
    counts = run.acceptance
    both = replace(run, acceptance_by_segment={"code": counts, "chat": counts}, speculation=Speculation(Method.NGRAM, 6, None))
    document = profile_of(both)
    assert document["per_category"] == {"code": {"mean_accept_length": 2.470588}, "chat": {"mean_accept_length": 2.470588}}
    assert document["mean_accept_length_per_request"] == pytest.approx((3.75 + 1 + 1.5 + 2 + 1) / 5)
    assert document["num_speculative_tokens"] == 6
    assert document["marginal_accept_rates"][4:] == [0.0, 0.0]
    assert document["conditional_accept_rates"][4:] == [0.0, 0.0]
    assert document["method"] == "ngram"


def test_a_profile_of_nothing_measured_is_not_written() -> None:
    """Whoever would publish a simulation as a measurement."""
    run = read_evidence(MOCK)
    simulated = replace(run, provenance=replace(run.provenance, evidence=Evidence.SIMULATED))
    with pytest.raises(NoEvidenceError, match="simulated"):
        profile_of(simulated)
    with pytest.raises(NoEvidenceError, match="by position"):
        profile_of(read_evidence(FOLDER / "vllm-text-k2.log"))
    with pytest.raises(NoEvidenceError, match="not measured"):
        profile_of(read_evidence(SUMMARY_ONLY))


def test_one_answer_of_a_server_gives_its_acceptance(tmp_path: Path) -> None:
    """Whoever saved a response: a list or an object as histogram, and nothing from OpenAI's predicted outputs."""
    assert read_evidence(ANSWER).acceptance.steps == 31  # 32 tokens, none accepted
    spec = {"num_spec_steps": 43, "num_accepted_draft_tokens": 10, "num_draft_tokens": 129, "num_spec_tokens": 3}
    for histogram in ([39, 1, 0, 3], {"0": 39, "1": 1, "3": 3}):
        path = tmp_path / "answer.json"
        path.write_text(json.dumps({"metrics": {"speculative_decoding": spec | {"acceptance_histogram": histogram}}}), encoding="utf-8")
        counts = read_evidence(path).acceptance
        assert counts.alpha == pytest.approx(10 / 129)
        assert counts.acceptance_length == pytest.approx(1 + 10 / 43)
        assert counts.accepted_per_position == (4, 3, 3)
    path.write_text(json.dumps({"metrics": {"speculative_decoding": spec | {"acceptance_histogram": [1]}}}), encoding="utf-8")
    with pytest.raises(BadInputError, match="contradict"):
        read_evidence(path)
    path.write_text(json.dumps({"timings": {"predicted_n": 9, "draft_n": 8, "draft_n_accepted": 6}}), encoding="utf-8")
    assert read_evidence(path).summaries["alpha"].value == 0.75
    path.write_text(json.dumps({"timings": {"predicted_n": 9, "draft_n": 8, "draft_n_accepted": 9}}), encoding="utf-8")
    with pytest.raises(BadInputError, match="9 drafts accepted of 8"):
        read_evidence(path)
    usage = {"completion_tokens": 35, "completion_tokens_details": {"accepted_prediction_tokens": 0}}
    path.write_text(json.dumps({"usage": usage}), encoding="utf-8")
    with pytest.raises(NoEvidenceError, match="predicted outputs"):
        read_evidence(path)


def test_a_sweep_folder_pools_repeats_and_keeps_points_apart(tmp_path: Path) -> None:
    """Whoever ran vllm bench sweep: three repeats of a point are one run of three times the requests."""
    point = tmp_path / "exp" / "SERVE--k=4-BENCH--c=2"
    point.mkdir(parents=True)
    for i in range(3):
        changed(COMPLETIONS, point, updated(run_number=i), name=f"run={i}.json")
    changed(COMPLETIONS, point, lambda d: d.update(run_number=0), name="run=9.json")
    other = tmp_path / "exp" / "SERVE--k=4-BENCH--c=128"
    other.mkdir()
    for i in range(2):
        changed(SUMMARY_ONLY, other, updated(run_number=i), name=f"run={i}.json")
    changed(SUMMARY_ONLY, other, lambda d: d.update(completed=0), name="run=2.json")
    (tmp_path / "exp" / "summary.json").write_text(json.dumps([json.loads(COMPLETIONS.read_text(encoding="utf-8"))]), encoding="utf-8")
    found = {each.label: each.run for each in read_all(tmp_path)}
    assert list(found) == ["exp/SERVE--k=4-BENCH--c=128/run=0", "exp/SERVE--k=4-BENCH--c=128/run=1", "exp/SERVE--k=4-BENCH--c=2"]
    pooled = found["exp/SERVE--k=4-BENCH--c=2"]
    assert pooled.requests is not None
    assert [len(pooled.requests), len({each.id for each in pooled.requests})] == [18, 18]
    assert pooled.acceptance.drafts == 78
    assert pooled.summaries["tpot_s"].value == pytest.approx(0.06559389706453683)
    assert pooled.window_s == pytest.approx(3 * 8.302510987000005)
    assert pooled.requests[6].timing.sent_at_s >= float(pooled.requests[5].timing.chunk_at_s[-1])
    assert {"repeats_pooled", "duplicate_runs", "empty_runs"} <= set(codes(pooled))


def test_our_own_folder_gives_the_arm_that_is_asked_for(tmp_path: Path) -> None:
    """Whoever gives the folder that rollout wrote: the plain runs of it as the plain arm."""
    (tmp_path / "runs").mkdir()
    run = read_evidence(MOCK)
    write_run(run, tmp_path / "runs" / "c4-speculative.json")
    write_run(replace(run, arm=Arm.BASELINE, acceptance_by_segment=None), tmp_path / "runs" / "c4-baseline.json")
    assert read_evidence(tmp_path, Arm.BASELINE).arm is Arm.BASELINE
    assert read_evidence(tmp_path, Arm.SPECULATIVE) == run
    with pytest.raises(BadInputError, match="holds 2 runs"):
        read_evidence(tmp_path)


def test_folders_that_hold_no_experiment_are_refused(tmp_path: Path) -> None:
    """Whoever gives the wrong folder."""
    with pytest.raises(BadInputError, match="holds no run"):
        read_evidence(tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        changed(FOLDER / "aiperf-0.10-agent.json", tmp_path / name, nothing)
    with pytest.raises(BadInputError, match="several runs of aiperf"):
        read_evidence(tmp_path)
    assert read_evidence(tmp_path / "a").provenance.made_by == "aiperf 0.10.0"
    folder = tmp_path / "records"
    folder.mkdir()
    (folder / "x.jsonl").write_bytes((FOLDER / "aiperf-0.13-ngram" / "profile_export.jsonl").read_bytes())
    assert read_evidence(folder).provenance.made_by == "aiperf"
    empty = tmp_path / "empty"
    empty.mkdir()
    changed(SUMMARY_ONLY, empty, lambda d: d.update(completed=0))
    with pytest.raises(NoEvidenceError, match="no run of this sweep"):
        read_evidence(empty)
    twice = tmp_path / "twice"
    twice.mkdir()
    changed(SUMMARY_ONLY, twice, lambda d: d.update(note="a"))
    line = json.loads(SUMMARY_ONLY.read_text(encoding="utf-8"))
    (twice / "lines.json").write_text(f"{json.dumps(line)}\n{json.dumps(line | {'duration': 1.0})}\n", encoding="utf-8")
    with pytest.raises(BadInputError, match="holds several runs; a sweep's file holds one"):
        read_evidence(twice)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            '{"schema_version": "1.1", "aiperf_version": "0.13.0", "metrics_phase": "profiling", "metrics": {}}',
            "aiperf's summary of a server",
        ),
        ("Metric,avg,min,max,sum\nActive Decode Throughput (tokens/sec),1.91,0,1,2\n", "aiperf's table"),
        ('data: {"id": "x"}\n\ndata: [DONE]\n', "captured stream"),
    ],
)
def test_a_file_of_the_same_tools_that_holds_no_run_is_named(tmp_path: Path, text: str, what: str) -> None:
    """Whoever picks the wrong one of five files: what it is, and which to give."""
    path = tmp_path / "export"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInputError, match=what):
        read_evidence(path)


def test_a_file_is_known_by_its_keys_wherever_they_stand(tmp_path: Path) -> None:
    """Whoever sorted the keys or has long notes first: what is in the file counts, not where."""

    def late(document: dict[str, Any]) -> dict[str, Any]:
        return {"notes": "x" * 10_000, **document}

    assert read_evidence(changed(COMPLETIONS, tmp_path, late)).acceptance.drafts == 26
    path = tmp_path / "results#2.json"
    path.write_bytes(COMPLETIONS.read_bytes())
    assert read_evidence(path).acceptance.drafts == 26  # a `#` in a name that exists is of the name


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"num_prompts": 1, "request_rate": 1, "model_id": "x"', "no whole JSON"),
        (b'{"num_prompts": 1, "request_rate": 1, "model_id": ' + b"[" * 100_000, "nesting or digits"),
        (b'{"num_prompts": 1, "request_rate": 1, "model_id": "x", "completed": ' + b"9" * 5000 + b"}", "nesting or digits"),
        (b'{"num_prompts": 1, "request_rate": 1, "model_id": "\xff"}', "is not text"),
        (b'{"metadata": {"request_start_ns": 1}}\n"\xff"\n', "is not text"),
    ],
)
def test_what_is_no_json_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    """Whoever's file was cut, or made to harm: refused, not followed."""
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match=why):
        read_evidence(path)


@pytest.mark.parametrize(
    ("name", "pattern", "instead", "figure"),
    [
        ("llama-draft-sizes.json", r'"acceptance": 0\.\d+', '"acceptance": 7.5', "alpha"),
        ("specforge-table.json", r'"accept_length": 2\.64\d+', '"accept_length": -0.0', "acceptance_length"),
        ("vllm-text-k2.log", r"Position 0:( +)33\.12", r"Position 0:\g<1>9000.0", "survival_1"),
    ],
)
def test_a_figure_that_cannot_be_is_left_out_and_the_rest_is_kept(
    tmp_path: Path, name: str, pattern: str, instead: str, figure: str
) -> None:
    """One damaged number in a report of a whole night."""
    damaged = tmp_path / name
    damaged.write_text(re.sub(pattern, instead, (FOLDER / name).read_text(encoding="utf-8")), encoding="utf-8")
    doubted = [each.run for each in read_all(damaged) if "unlawful_figure" in {caution.code for caution in each.run.cautions}]
    assert doubted
    assert all(figure not in each.summaries for each in doubted)
    assert all(each.summaries for each in doubted)
