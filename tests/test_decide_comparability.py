"""What keeps two runs from being compared, each check on a pair that has just that fault."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from paceline.decide.cautions import evidence_cautions
from paceline.decide.comparability import CODES, DISTORTS, Reach, comparability_cautions, draft_lengths_caution, reach_of, takes_away
from paceline.decide.gate import DEFAULT_POLICY, gate
from paceline.jobs.planning import compared_at_loads
from paceline.latency import RequestTiming
from paceline.run import Evidence, Load, RequestRecord, Run, Summary
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method, Speculation, Tree
from paceline.verdict import Caution, Decision, Holds
from tests.strategies_runs import pair, provenance


def told(run: Run, arguments: Mapping[str, str], *, seed: int | None = 1) -> Run:
    """The run as one that states these arguments."""
    return replace(run, provenance=replace(run.provenance, arguments=dict(arguments), seed=seed))


def measured(run: Run, **values: float) -> Run:
    """The run with these summaries."""
    return replace(
        run, summaries={name: Summary(value=value, statistic="mean", n=9, low=None, high=None) for name, value in values.items()}
    )


def of_length(run: Run, tokens: int) -> Run:
    """The run with prompts of that many tokens."""
    assert run.requests is not None
    return replace(run, requests=tuple(replace(record, prompt_tokens=tokens) for record in run.requests))


def codes(baseline: Run, speculative: Run) -> list[str]:
    return [each.code for each in comparability_cautions(baseline, speculative)]


def test_a_pair_without_fault_is_told_nothing() -> None:
    """A warning on every run is read on none."""
    assert codes(*pair(n=40)) == []


@pytest.mark.parametrize(
    ("ours", "theirs", "code"),
    [
        ({"temperature": "0"}, {"temperature": "0.7"}, "different_sampling"),
        ({"max_tokens": "128"}, {"max_tokens": "256"}, "different_sampling"),
        ({"api": "chat"}, {"api": "completions"}, "different_sampling"),
        ({"tokenizer": "a"}, {"tokenizer": "b"}, "different_tokenizers"),
        ({}, {"dataset_name": "random"}, "random_dataset"),
        ({}, {"distinct_prompts": "1"}, "one_prompt_repeated"),
        ({}, {"rejection_sample_method": "synthetic"}, "synthetic_acceptance"),
        ({}, {"simulate_acc_len": "3.2"}, "synthetic_acceptance"),
        ({}, {"speculative_accept_threshold_acc": "0.9"}, "accept_threshold_below_1"),
        ({}, {"max_running_requests": "48"}, "max_running_requests_48"),
    ],
)
def test_what_the_arms_state_is_held_against_each_other(ours: dict[str, str], theirs: dict[str, str], code: str) -> None:
    """Each of these made a published comparison worthless."""
    baseline, speculative = pair(n=20)
    assert codes(told(baseline, ours), told(speculative, theirs)) == [code]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"temperature": "0"}, {}),
        ({}, {"rejection_sample_method": "standard"}),
        ({}, {"simulate_acc_len": "0"}),
        ({}, {"speculative_accept_threshold_single": "1"}),
        ({}, {"speculative_accept_threshold_single": "unread"}),
        ({"max_running_requests": "48"}, {"max_running_requests": "48"}),
        ({}, {"distinct_prompts": "20"}),
    ],
)
def test_what_one_arm_does_not_say_or_both_share_is_no_fault(ours: dict[str, str], theirs: dict[str, str]) -> None:
    """An absent figure is no other figure."""
    baseline, speculative = pair(n=20)
    assert codes(told(baseline, ours), told(speculative, theirs)) == []


def test_other_seeds_are_named() -> None:
    """Other seeds draw other requests."""
    baseline, speculative = pair(n=20)
    assert codes(baseline, replace(speculative, provenance=replace(speculative.provenance, seed=2))) == ["different_seeds"]
    assert codes(baseline, replace(speculative, provenance=replace(speculative.provenance, seed=None))) == []


def test_prompts_of_one_length_are_suspect_where_nobody_counted_them() -> None:
    """One prompt sent two hundred times is cached after the first."""
    baseline, speculative = (of_length(each, 64) for each in pair(n=20))
    assert codes(baseline, speculative) == ["one_prompt_length", "one_prompt_length"]
    counted = [told(each, {"distinct_prompts": "20"}) for each in (baseline, speculative)]
    assert codes(counted[0], counted[1]) == []
    simulated = [replace(each, provenance=provenance(Evidence.SIMULATED)) for each in (baseline, speculative)]
    assert codes(simulated[0], simulated[1]) == []
    unknown = [of_length(each, 0) for each in (baseline, speculative)]
    assert codes(unknown[0], unknown[1]) == []


def test_the_same_ids_with_other_token_counts_were_counted_otherwise() -> None:
    """A pace per token does not compare where tokens differ."""
    baseline, speculative = pair(n=20)
    assert codes(baseline, of_length(speculative, 77)) == ["one_prompt_length", "different_tokenizers"]


def test_somebody_else_on_the_server_and_a_cache_that_is_warm_in_one_arm_are_told() -> None:
    """Half of another team's traffic slows one arm only."""
    baseline, speculative = pair(n=20)
    assert codes(baseline, measured(speculative, other_traffic_share=0.2)) == ["other_traffic"]
    assert codes(baseline, measured(speculative, other_traffic_share=0.01)) == []
    caches = measured(baseline, prefix_cache_hit_share=0.0), measured(speculative, prefix_cache_hit_share=0.6)
    assert codes(*caches) == ["prefix_cache_in_one_arm"]
    assert codes(caches[0], measured(speculative, prefix_cache_hit_share=0.05)) == []
    assert codes(baseline, caches[1]) == []


def cold(run: Run, first_s: float, *, requests: int = 1) -> Run:
    """The run whose first requests waited that long for their first token."""
    assert run.requests is not None
    late = tuple(replace(each, timing=_delayed(each, first_s)) for each in run.requests[:requests])
    return replace(run, requests=(*late, *run.requests[requests:]))


def _delayed(record: RequestRecord, ttft_s: float) -> RequestTiming:
    return replace(record.timing, chunk_at_s=record.timing.chunk_at_s + (ttft_s - record.timing.ttft_s))


def test_a_first_answer_that_waited_for_a_compiler_is_told() -> None:
    """A compile of 30 s in the baseline's window makes any drafts look fast."""
    baseline, speculative = pair(n=40, step_s=0.012, alphas={"chat": 0.7}, concurrency=1)
    assert codes(cold(baseline, 30.0), speculative) == ["cold_server"]
    assert codes(cold(baseline, 0.4), speculative) == []
    few = pair(n=10, concurrency=1)
    assert codes(cold(few[0], 30.0), few[1]) == []


def test_a_cold_arm_takes_away_first_tokens_and_leaves_the_pace() -> None:
    """The pace after the first token is not what a compiler held up."""
    baseline, speculative = pair(n=400, step_s=0.012, alphas={"chat": 0.7})
    verdict = gate(cold(baseline, 30.0), speculative, policy=replace(DEFAULT_POLICY, felt_ttft_s=0.0), rng=np.random.default_rng(1))
    assert [each.holds for each in verdict.findings] == [Holds.YES, Holds.YES, Holds.CANNOT_TELL]
    assert verdict.findings[2].why.startswith("cold_server")
    slow = cold(baseline, 30.0, requests=12)  # the baseline's P99 is the compiler's, and no rise against it is known
    assert gate(slow, speculative, policy=DEFAULT_POLICY, rng=np.random.default_rng(1)).findings[2].holds is Holds.CANNOT_TELL
    felt = gate(cold(baseline, 30.0), speculative, policy=replace(DEFAULT_POLICY, felt_ttft_s=0.5), rng=np.random.default_rng(1))
    assert felt.decision is Decision.SHIP
    assert "not felt" in felt.findings[2].why
    assert "cold_server" in felt.findings[2].why


def test_a_table_whose_mean_lies_far_above_its_median_is_of_a_cold_server() -> None:
    """A printed mean of 649 ms beside a median of 33 ms is a compiler's."""
    baseline, speculative = (replace(each, requests=None) for each in pair(n=9))
    figures = {"ttft_s": 0.649, "ttft_p50_s": 0.0326, "ttft_p99_s": 5.887}
    assert codes(measured(baseline, **figures), speculative) == ["cold_server"]
    assert codes(measured(baseline, **{**figures, "ttft_s": 0.05}), speculative) == []
    assert codes(measured(baseline, ttft_s=0.649), speculative) == []


def test_two_draft_lengths_are_told() -> None:
    """K of 2 against K of 5 compares two settings, not drafts against none."""
    baseline, speculative = pair(n=20)
    other = Speculation(method=Method.EAGLE3, draft_tokens=2, tree=None)
    assert codes(replace(baseline, speculation=other), speculative) == ["draft_length_changed"]
    assert codes(baseline, replace(speculative, speculation=other)) == ["draft_length_changed"]
    tree = Speculation(method=Method.EAGLE3, draft_tokens=2, tree=Tree(depth=2, topk=2, nodes=4))
    assert codes(baseline, replace(speculative, speculation=tree)) == []
    assert codes(baseline, replace(speculative, acceptance_by_segment={"all": AcceptanceCounts.none()})) == []
    assert codes(baseline, replace(speculative, acceptance_by_segment=None)) == []


@pytest.mark.parametrize("name", ["draft_tokens", "num_speculative_tokens"])
def test_arms_that_state_two_draft_lengths_are_told(name: str) -> None:
    """Launch settings of K = 3 beside K = 5: nobody knows which one was compared."""
    baseline, speculative = pair(n=20)
    assert codes(told(baseline, {name: "3"}), told(speculative, {name: "5"})) == ["draft_length_changed"]
    assert codes(told(baseline, {name: "3"}), told(speculative, {name: "3"})) == []
    assert codes(baseline, told(speculative, {name: "5"})) == []


def at(concurrency: int, run: Run, drafted_per_draft: float | None = None) -> Run:
    """The run at that load, its counters saying that many tokens per draft."""
    drafted = round(1000 * (drafted_per_draft or 1))
    counts = AcceptanceCounts(steps=None, drafts=1000, drafted_tokens=drafted, accepted_tokens=500, accepted_per_position=None)
    by_segment = {"all": counts} if drafted_per_draft is not None else None
    return replace(run, load=Load(concurrency=concurrency, rate_per_s=None), acceptance_by_segment=by_segment)


def test_drafts_that_change_their_length_between_loads_are_told() -> None:
    """A server that drafts 3 tokens at 8 in flight and 1 at 64 has two settings on its curve, and one of them ships."""
    three, one = (pair(n=4, draft_tokens=tokens)[1] for tokens in (3, 1))
    found = draft_lengths_caution([at(8, three), at(64, one)])
    assert found is not None
    assert (found.code, "3 at 8 in flight, 1 at 64 in flight" in found.message) == ("draft_length_varies", True)
    counted = draft_lengths_caution([at(8, three, 3.0), at(64, three, 2.0)])
    assert counted is not None
    assert "2 at 64 in flight" in counted.message
    assert draft_lengths_caution([at(8, three, 3.0), at(64, three, 2.97)]) is None
    sometimes = replace(three, speculation=Speculation(method=Method.NGRAM, draft_tokens=3, tree=None))
    assert draft_lengths_caution([at(8, sometimes, 3.0), at(64, sometimes, 1.4)]) is None
    assert draft_lengths_caution([at(8, three), at(64, replace(three, speculation=None))]) is None
    assert draft_lengths_caution([at(8, replace(three, speculation=None), 3.0), at(64, three, 5.0)]) is not None


def test_a_verdict_at_several_loads_says_so_at_each() -> None:
    """Whoever reads the deciding point alone must hear of it."""
    pairs = [pair(n=20, concurrency=8, draft_tokens=3), pair(n=20, concurrency=32, draft_tokens=2)]
    found = compared_at_loads(pairs, policy=DEFAULT_POLICY, seed=1)
    assert all("draft_length_varies" in {warning.code for warning in each.verdict.warnings} for each in found)
    same = compared_at_loads(pairs[:1], policy=DEFAULT_POLICY, seed=1)
    assert not any(warning.code == "draft_length_varies" for warning in same[0].verdict.warnings)


def batch(run: Run, most: int, in_flight: int) -> Run:
    """The run whose requests decode `most` at a time, one group after the other."""
    assert run.requests is not None
    records = []
    for i, each in enumerate(run.requests):
        start_s = float(i // most)
        timing = replace(
            each.timing, arrived_at_s=start_s, sent_at_s=start_s, chunk_at_s=start_s + np.linspace(0.1, 0.9, each.timing.chunk_at_s.size)
        )
        records.append(replace(each, timing=timing))
    return replace(run, requests=tuple(records), load=Load(concurrency=in_flight, rate_per_s=None))


def test_a_server_that_never_decodes_more_than_48_is_sglangs_silent_limit() -> None:
    """64 in flight against a silent 48 compares two batches."""
    baseline, speculative = pair(n=128)
    arms = batch(baseline, 64, 64), batch(speculative, 48, 64)
    assert codes(*arms) == ["max_running_requests_48"]
    assert codes(batch(baseline, 64, 64), batch(speculative, 64, 64)) == []
    assert codes(batch(baseline, 48, 64), batch(speculative, 48, 64)) == []
    assert codes(arms[0], replace(arms[1], requests=())) == []


@pytest.mark.parametrize("code", sorted(code for code, reach in CODES.items() if reach is Reach.REFUSES))
def test_a_refusal_answers_no_claim(code: str) -> None:
    """Whatever ships on a comparison that is none has shipped on nothing."""
    baseline, speculative = pair(n=40, step_s=0.012, alphas={"chat": 0.7})
    verdict = gate(
        baseline,
        replace(speculative, cautions=(Caution(code, "why"),)),
        policy=replace(DEFAULT_POLICY, claims=DEFAULT_POLICY.claims[1:]),
        rng=np.random.default_rng(1),
    )
    assert verdict.decision is Decision.CANNOT_TELL
    assert all(each.why == f"{code}: why" for each in verdict.findings)
    assert verdict.routing is None


def test_what_a_code_takes_away_is_in_its_table() -> None:
    """A reader's own code warns; it may not silence a claim by accident."""
    assert reach_of("peak_counts_messages") is Reach.WARNS
    assert takes_away(Caution("other_traffic", ""), "speedup")
    assert takes_away(Caution("cold_server", ""), "ttft_p99.ratio")
    assert not takes_away(Caution("cold_server", ""), "tpot_p99.ratio")
    assert not takes_away(Caution("alpha_one", ""), "ttft_p99.ratio")
    assert takes_away(Caution("different_output_lengths", ""), "e2e_mean.ratio")
    assert not takes_away(Caution("different_output_lengths", ""), "ttft_p99.ratio")
    assert set(DISTORTS) == {code for code, reach in CODES.items() if reach is Reach.SOME}


@pytest.mark.parametrize(
    ("ours", "theirs", "code"),
    [
        ("Qwen3-30B-A3B_vllm", "eagle3/Qwen3-30B-A3B_RedHatAI_vllm", "served_names_differ"),
        ("llama-3.1-8b", "llama-3.1-70b", "different_targets"),
        ("qwen3-8b", "qwen3-8b-fp8", "different_targets"),
        ("qwen3-8b", "qwen3-8b-awq", "different_targets"),
    ],
)
def test_a_label_in_a_served_name_is_no_other_model_and_a_number_format_is(ours: str, theirs: str, code: str) -> None:
    """Two dumps of one model under two names compare; a quantized arm does not."""
    baseline, speculative = pair(n=20)
    arms = told(baseline, {"model": ours}), told(speculative, {"model": theirs})
    found = evidence_cautions(*arms, alpha=None, break_even=None, alpha_floor=0.55, confidence=0.95)
    assert [each.code for each in found] == [code]


def test_a_gauge_that_stays_at_48_beside_a_fuller_plain_server_is_sglangs_silent_limit() -> None:
    """Two dumps know no request, and their gauges know how many ran."""
    baseline, speculative = (replace(each, requests=None) for each in pair(n=9))

    def running(run: Run, most: float, high: float | None) -> Run:
        gauge = Summary(
            value=most if high is None else high / 2, statistic="mean of scrapes", n=3, low=None if high is None else 1.0, high=high
        )
        return replace(run, summaries={"requests_running": gauge})

    assert codes(running(baseline, 64, None), running(speculative, 48, None)) == ["max_running_requests_48"]
    assert codes(running(baseline, 0, 64.0), running(speculative, 0, 48.0)) == ["max_running_requests_48"]
    assert codes(running(baseline, 48, None), running(speculative, 48, None)) == []
    assert codes(running(baseline, 64, None), running(speculative, 60, None)) == []
    assert codes(baseline, running(speculative, 48, None)) == []
