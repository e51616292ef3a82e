"""Ship or keep, on runs whose truth is known."""

from dataclasses import replace

import numpy as np
import pytest

from paceline.decide.break_even import break_even_alpha, drafted_tokens_per_step, step_time_ratio, tokens_per_step
from paceline.decide.gate import DEFAULT_POLICY, Policy, default_claims, gate, gate_by_concurrency, production_verdict
from paceline.decide.lesson_gate import LessonVerdict, lesson_verdict
from paceline.decide.measured import harmed_share, metric_estimate, segments_of
from paceline.errors import BadInputError, NoEvidenceError, UnknownNameError
from paceline.latency import RequestTiming
from paceline.run import Arm, Evidence, Load, Outcome, Run, Summary
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method, Speculation
from paceline.verdict import Claim, Decision, Estimate, Holds, Verdict
from tests.strategies_runs import pair, provenance, run, summaries_only

# Real totals of vLLM 0.12 /metrics after a code-editing benchmark with EAGLE-3 on a mixture-of-experts target, K = 3, and of its plain twin
# (github.com/AltriaSetsuna/speculative-decoding-empirical, Qwen3-30B-A3B): decode seconds and decode steps of each.
MOE_COUNTS = AcceptanceCounts(steps=21706, drafts=21706, drafted_tokens=65118, accepted_tokens=48171, accepted_per_position=None)
MOE_STEP_S, PLAIN_STEP_S = 992.58 / 21706, 874.87 / 70027


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def policy(*claims: Claim) -> Policy:
    return replace(DEFAULT_POLICY, claims=claims) if claims else DEFAULT_POLICY


def claim(metric: str, *, at_most: float | None = None, at_least: float | None = None, segment: str | None = None) -> Claim:
    return Claim(metric=metric, at_most=at_most, at_least=at_least, segment=segment)


def estimate(metric: str, baseline: Run, speculative: Run, segment: str | None = None) -> Estimate:
    return metric_estimate(metric, baseline, speculative, segment=segment, confidence=0.95, rng=rng())


def codes(verdict: Verdict) -> set[str]:
    return {each.code for each in verdict.warnings}


def test_fast_drafts_that_hold_the_tails_ship() -> None:
    """The plain good case: α well below the textbook's floor, every request faster."""
    verdict = gate(*pair(n=400, step_s=0.012, alphas={"chat": 0.7}), policy=DEFAULT_POLICY, rng=rng())
    assert verdict.decision is Decision.SHIP
    assert verdict.alpha is not None
    assert verdict.alpha.value < 0.55
    assert verdict.warnings == ()
    assert verdict.concurrency == 8


def test_a_mixture_of_experts_that_accepts_three_quarters_and_is_slower_is_kept_plain() -> None:
    """α .74 at a step 3.66 times as long: the floor on α would have shipped a slow-down."""
    ratio = MOE_STEP_S / PLAIN_STEP_S
    assert ratio == pytest.approx(3.66, abs=0.005)
    baseline, speculative = pair(n=400, step_s=0.010 * ratio, alphas={"code": 0.85})
    verdict = gate(baseline, speculative, policy=DEFAULT_POLICY, rng=rng())
    assert verdict.decision is Decision.KEEP
    assert verdict.break_even_alpha is not None
    assert verdict.break_even_alpha.value == pytest.approx(0.887, abs=0.005)
    assert "below_break_even" in codes(verdict)


def test_the_same_from_totals_alone_is_a_point_that_decides_nothing() -> None:
    """A metrics dump has no interval; it must say so, and still warn that α lies below the break-even."""
    baseline = summaries_only(Arm.BASELINE, step_s=PLAIN_STEP_S, counts=None)
    speculative = summaries_only(Arm.SPECULATIVE, step_s=MOE_STEP_S, counts=MOE_COUNTS)
    verdict = gate(baseline, speculative, policy=DEFAULT_POLICY, rng=rng())
    assert verdict.decision is Decision.CANNOT_TELL
    assert verdict.alpha is not None
    assert verdict.alpha.value == pytest.approx(0.7397, abs=1e-4)
    assert verdict.break_even_alpha is not None
    assert verdict.break_even_alpha.value == pytest.approx(0.887, abs=5e-4)
    assert verdict.break_even_alpha.low is None
    assert verdict.findings[0].estimate is not None
    assert verdict.findings[0].estimate.value == pytest.approx(0.88, abs=0.005)
    assert all("no_per_request_data" in each.why for each in verdict.findings)
    assert {"below_break_even", "no_per_request_data"} <= codes(verdict)


def test_a_dense_twin_with_nearly_the_same_acceptance_has_another_break_even() -> None:
    """The published dense twin is 2.14 times as fast: acceptance alone cannot tell the two apart."""
    counts = AcceptanceCounts(steps=None, drafts=1000, drafted_tokens=3000, accepted_tokens=2250, accepted_per_position=None)
    baseline = summaries_only(Arm.BASELINE, step_s=0.027, counts=None)
    verdict = gate(baseline, summaries_only(Arm.SPECULATIVE, step_s=0.041, counts=counts), policy=DEFAULT_POLICY, rng=rng())
    assert verdict.findings[0].estimate is not None
    assert verdict.findings[0].estimate.value == pytest.approx(3.25 / (0.041 / 0.027))
    assert "below_break_even" not in codes(verdict)


def test_one_segment_may_ship_where_the_whole_may_not() -> None:
    """Extraction that drafts badly must not cost code its gain, nor code hide it."""
    baseline, speculative = pair(n=1000, step_s=0.019, alphas={"code": 0.9, "prose": 0.1})
    verdict = gate(baseline, speculative, policy=DEFAULT_POLICY, rng=rng())
    assert verdict.decision is Decision.SHIP_SEGMENTS
    assert verdict.segments_to_ship == ("code",)


def test_a_segment_claim_of_the_policy_is_asked_of_that_segment_only() -> None:
    """A claim on prose must not stop code."""
    asked = policy(claim("speedup", at_least=1.05), claim("speedup", at_least=1.2, segment="prose"), claim("alpha", at_most=0.9))
    verdict = gate(*pair(n=100, step_s=0.019, alphas={"code": 0.9, "prose": 0.1}), policy=asked, rng=rng())
    assert verdict.findings[1].holds is Holds.NO
    assert verdict.segments_to_ship == ("code",)


def test_too_few_requests_say_how_many_more() -> None:
    """'Cannot tell' without a way on is a dead end."""
    verdict = gate(*pair(n=100, step_s=0.012), policy=DEFAULT_POLICY, rng=rng())
    assert verdict.decision is Decision.CANNOT_TELL
    assert "about 268 more requests per arm are needed (368 in all)" in verdict.findings[1].why


def test_a_claim_near_its_bound_asks_for_more_requests() -> None:
    """The number must grow as the claim comes nearer to its bound."""
    baseline, speculative = pair(n=60, step_s=0.012)
    value = estimate("speedup", baseline, speculative).value
    near = gate(baseline, speculative, policy=policy(claim("speedup", at_least=value - 0.01)), rng=rng())
    at = gate(baseline, speculative, policy=policy(claim("speedup", at_least=value - 1e-9)), rng=rng())
    assert "more requests per arm are needed" in near.findings[0].why
    assert "no feasible number of requests would settle it: it lies 1e-09 from its bound" in at.findings[0].why


def test_a_number_of_requests_that_nobody_measures_comes_with_what_can_be_told() -> None:
    """'About 44226 more requests' is a dead end; how far from its bound a claim must lie to be told is a way on."""
    baseline, speculative = pair(n=60, step_s=0.012)
    value = estimate("speedup", baseline, speculative).value
    why = gate(baseline, speculative, policy=policy(claim("speedup", at_least=value - 0.003)), rng=rng()).findings[0].why
    assert "only about " in why
    assert "lies 0.003 from its bound, and 5000 requests per arm tell a distance of 0.0099 or more" in why


def test_an_interval_that_nobody_knows_says_so() -> None:
    """Five requests have no interval, so no number of them follows."""
    why = gate(*pair(n=5), policy=policy(claim("speedup", at_least=1.05)), rng=rng()).findings[0].why
    assert "no feasible number of requests settles it from these 5" in why


def test_a_percentile_whose_upper_end_is_open_asks_for_as_many_as_bound_it() -> None:
    """368 requests bound a P99 on both sides at 95 %: fewer must not be asked for, nor twice as many."""
    baseline, speculative = pair(n=320, step_s=0.012)
    verdict = gate(baseline, speculative, policy=policy(claim("ttft_p99_s", at_most=0.5)), rng=rng())
    assert "about 48 more requests per arm are needed (368 in all)" in verdict.findings[0].why


def test_nothing_finished_is_cannot_tell_for_every_claim() -> None:
    """A server that crashed must not pass for one that is not slower."""
    baseline, speculative = pair(n=20)
    assert speculative.requests is not None
    dead = replace(speculative, requests=tuple(replace(each, outcome=Outcome.FAILED) for each in speculative.requests))
    verdict = gate(baseline, dead, policy=DEFAULT_POLICY, rng=rng())
    assert verdict.decision is Decision.CANNOT_TELL
    assert "zero_finished" in codes(verdict)
    assert all(each.why.startswith("zero_finished") for each in verdict.findings)


def test_what_a_run_with_requests_does_not_measure_is_not_measured() -> None:
    """A missing window must not read as a throughput of 0."""
    baseline, speculative = pair(n=20)
    asked = policy(claim("output_tokens_per_s.ratio", at_least=1))
    verdict = gate(replace(baseline, window_s=None), speculative, policy=asked, rng=rng())
    assert verdict.findings[0].why.startswith("not_measured")


def test_more_speed_up_than_tokens_per_step_is_no_comparison() -> None:
    """A baseline from a slower machine would ship anything."""
    verdict = gate(*pair(n=400, step_s=0.005, alphas={"all": 0.5}), policy=DEFAULT_POLICY, rng=rng())
    assert "speedup_exceeds_tokens_per_step" in codes(verdict)
    assert verdict.decision is Decision.CANNOT_TELL
    assert all(each.why.startswith("speedup_exceeds_tokens_per_step") for each in verdict.findings)


def test_other_loads_are_no_comparison() -> None:
    """A baseline at 8 in flight against drafts at 1 would ship anything."""
    baseline, speculative = pair(n=50)
    other = replace(speculative, load=Load(concurrency=1, rate_per_s=None))
    verdict = gate(baseline, other, policy=DEFAULT_POLICY, rng=rng())
    assert "different_loads" in codes(verdict)
    assert verdict.break_even_alpha is None
    assert {each.holds for each in verdict.findings} == {Holds.CANNOT_TELL}


def test_an_open_loop_says_that_batches_differ() -> None:
    """Part of an open loop's speed-up is shorter queues."""
    baseline, speculative = (replace(each, load=Load(concurrency=None, rate_per_s=2.0)) for each in pair(n=30))
    assert "unequal_batch" in codes(gate(baseline, speculative, policy=DEFAULT_POLICY, rng=rng()))
    other = replace(speculative, load=Load(concurrency=None, rate_per_s=3.0))
    message = next(each.message for each in gate(baseline, other, policy=DEFAULT_POLICY, rng=rng()).warnings)
    assert "2 requests/s against 3 requests/s" in message


@pytest.mark.parametrize(
    ("evidence", "code"),
    [
        (Evidence.SIMULATED, "simulated_evidence"),
        (Evidence.PROFILE, "profile_acceptance"),
        (Evidence.REPLAYED, "replayed_acceptance"),
        (Evidence.STATED, "stated_acceptance"),
    ],
)
def test_weaker_evidence_is_named(evidence: Evidence, code: str) -> None:
    """A simulated page must not pass for a measured one."""
    baseline, speculative = pair(n=20)
    verdict = gate(baseline, replace(speculative, provenance=provenance(evidence)), policy=DEFAULT_POLICY, rng=rng())
    assert code in codes(verdict)


def test_other_requests_and_other_answers_are_named() -> None:
    """Groups of other requests, or answers half as long, compare differently than a reader thinks."""
    baseline, speculative = pair(n=30)
    other = run(Arm.SPECULATIVE, n=30, step_s=0.012, alphas={"all": 0.7}, prefix="x")
    assert "different_requests" in codes(gate(baseline, other, policy=DEFAULT_POLICY, rng=rng()))
    assert speculative.requests is not None
    short = replace(speculative, requests=tuple(replace(each, output_tokens=each.output_tokens // 2) for each in speculative.requests))
    assert "different_output_lengths" in codes(gate(baseline, short, policy=DEFAULT_POLICY, rng=rng()))


@pytest.mark.parametrize(("alpha", "code"), [(0.0, "alpha_zero"), (1.0, "alpha_one")])
def test_an_acceptance_of_exactly_0_or_1_is_suspect(alpha: float, code: str) -> None:
    """A draft of another model accepts nothing; synthetic acceptance accepts everything."""
    counts = AcceptanceCounts(
        steps=100, drafts=100, drafted_tokens=300, accepted_tokens=int(alpha * 300), accepted_per_position=(int(alpha * 100),) * 3
    )
    baseline, speculative = pair(n=10)
    assert speculative.requests is not None
    whole = tuple(replace(each, acceptance=counts) for each in speculative.requests)
    assert code in codes(gate(baseline, replace(speculative, requests=whole), policy=DEFAULT_POLICY, rng=rng()))


def test_swapped_arms_are_refused() -> None:
    """Swapped arguments would turn every answer round."""
    baseline, speculative = pair(n=10)
    for first, second, said in (
        (speculative, baseline, "these are swapped"),
        (baseline, baseline, "neither of these drafted"),
        (speculative, speculative, "both of these drafted"),
    ):
        with pytest.raises(BadInputError, match=said):
            gate(first, second, policy=DEFAULT_POLICY, rng=rng())


def test_a_policy_that_asks_nothing_or_nonsense_is_refused() -> None:
    """An empty policy would ship anything."""
    with pytest.raises(BadInputError, match="without claims"):
        replace(DEFAULT_POLICY, claims=())
    with pytest.raises(UnknownNameError, match="speedup"):
        policy(claim("speedop", at_least=1))
    with pytest.raises(BadInputError, match="fractions"):
        replace(DEFAULT_POLICY, margin=5.0)
    assert [str(each) for each in default_claims(0.05)] == ["speedup >= 1.05", "tpot_p99.ratio <= 1.05", "ttft_p99.ratio <= 1.1"]


def test_the_largest_concurrency_decides() -> None:
    """A gain at one request in flight does not pay for production."""
    good, bad = pair(n=400, step_s=0.012, concurrency=1), pair(n=400, step_s=0.05, concurrency=64)
    verdicts = gate_by_concurrency([bad, good], policy=DEFAULT_POLICY, rng=rng())
    assert [each.concurrency for each in verdicts] == [1, 64]
    assert [each.decision for each in verdicts] == [Decision.SHIP, Decision.KEEP]
    assert production_verdict(verdicts) is verdicts[1]
    with pytest.raises(NoEvidenceError):
        production_verdict(())


def test_metrics_of_a_known_pair() -> None:
    """Each metric against what the pair was made with: steps of 10 and 12 ms, tokens per step E, so S is about E / 1.2."""
    baseline, speculative = pair(n=400, step_s=0.012, alphas={"all": 0.7})
    tokens = estimate("tokens_per_step", baseline, speculative)
    assert tokens.value == pytest.approx(2.5, abs=0.06)
    assert estimate("speedup", baseline, speculative).value == pytest.approx(tokens.value / 1.2, rel=0.03)
    assert estimate("tpot_mean.ratio", baseline, speculative).value == pytest.approx(1 / estimate("speedup", baseline, speculative).value)
    assert estimate("chunk_gap_p99.ratio", baseline, speculative).value == pytest.approx(1.2, rel=0.01)
    assert estimate("chunk_gap_p99_s", baseline, speculative).value == pytest.approx(0.0126, rel=0.01)
    assert estimate("ttft_p99_s", baseline, speculative).value == pytest.approx(0.24, rel=0.01)
    assert estimate("ttft_p99.ratio", baseline, speculative).value == pytest.approx(1, abs=0.01)
    assert estimate("harmed_share", baseline, speculative).value < 0.01
    assert segments_of(speculative) == ("all",)


def test_throughput_of_a_closed_loop_has_an_interval_and_of_an_open_one_none() -> None:
    """In an open loop throughput is what was sent: no interval could make it evidence."""
    baseline, speculative = pair(n=100, step_s=0.012, alphas={"all": 0.7})
    closed = estimate("output_tokens_per_s.ratio", baseline, speculative)
    assert closed.low is not None
    assert closed.high is not None
    assert 1 < closed.low < closed.value < closed.high
    opened = [replace(each, load=Load(concurrency=None, rate_per_s=1.0)) for each in (baseline, speculative)]
    assert estimate("output_tokens_per_s.ratio", opened[0], opened[1]).low is None
    with pytest.raises(NoEvidenceError, match="one segment"):
        estimate("output_tokens_per_s.ratio", baseline, speculative, "all")
    with pytest.raises(NoEvidenceError, match="finished no token"):
        estimate("output_tokens_per_s.ratio", replace(baseline, requests=()), speculative)
    sums = [
        summaries_only(arm, step_s=None, counts=None, summaries={"output_tokens_per_s": Summary(v, "pooled", 9, None, None)})
        for arm, v in ((Arm.BASELINE, 50.0), (Arm.SPECULATIVE, 75.0))
    ]
    assert estimate("output_tokens_per_s.ratio", sums[0], sums[1]).value == 1.5
    with pytest.raises(NoEvidenceError, match="throughput was not measured"):
        estimate("output_tokens_per_s.ratio", replace(sums[0], summaries={}), sums[1])


def test_goodput_is_compared_where_both_runs_state_the_same_promise() -> None:
    """Steps of 10 and 8 ms with 1 and about 3 tokens each: 20 ms per token are kept by all, 9 ms by the drafts alone."""

    def stated(run: Run, slo: str) -> Run:
        return replace(run, provenance=replace(run.provenance, arguments={"slo": slo}))

    baseline, speculative = pair(n=100, step_s=0.008)
    found = estimate("goodput.ratio", stated(baseline, "tpot_s=0.02"), stated(speculative, "tpot_s=0.02"))
    assert found.value == 1.0
    assert found.low is not None
    assert found.high is not None
    assert 0.9 < found.low < 1 < found.high < 1.1
    chat = estimate("goodput.ratio", stated(baseline, "tpot_s=0.02"), stated(speculative, "tpot_s=0.02"), "chat")
    assert chat.value == 1.0
    assert chat.n < found.n
    slower = estimate("goodput.ratio", stated(speculative, "tpot_s=0.009"), stated(baseline, "tpot_s=0.009"))
    assert slower.value == 0.0
    with pytest.raises(NoEvidenceError, match="no ratio"):
        estimate("goodput.ratio", stated(baseline, "tpot_s=0.009"), stated(speculative, "tpot_s=0.009"))
    with pytest.raises(NoEvidenceError, match="different promised"):
        estimate("goodput.ratio", stated(baseline, "tpot_s=0.02"), stated(speculative, "tpot_s=0.03"))
    with pytest.raises(NoEvidenceError, match="states no promised"):
        estimate("goodput.ratio", baseline, speculative)
    with pytest.raises(NoEvidenceError, match="only summaries"):
        estimate("goodput.ratio", stated(baseline, "tpot_s=0.02"), replace(stated(speculative, "tpot_s=0.02"), requests=None))


def test_a_histograms_buckets_are_the_interval() -> None:
    """P99 in (20, 40] ms against (40, 80] ms: the ratio lies between 1 and 4, and nothing finer is known."""
    base = summaries_only(Arm.BASELINE, step_s=None, counts=None, summaries={"tpot_p99_s": Summary(0.03, "p99", 500, 0.02, 0.04)})
    spec = summaries_only(Arm.SPECULATIVE, step_s=None, counts=None, summaries={"tpot_p99_s": Summary(0.06, "p99", 400, 0.04, 0.08)})
    found = estimate("tpot_p99.ratio", base, spec)
    assert (found.low, found.value, found.high, found.n) == (1.0, 2.0, 4.0, 400)
    verdict = gate(base, spec, policy=policy(claim("tpot_p99.ratio", at_most=0.9), claim("tpot_p99.ratio", at_most=2)), rng=rng())
    assert [each.holds for each in verdict.findings] == [Holds.NO, Holds.CANNOT_TELL]
    assert "a histogram's buckets are no finer than that" in verdict.findings[1].why
    surer = metric_estimate("tpot_p99.ratio", base, spec, segment=None, confidence=0.995, rng=rng())
    assert (surer.low, surer.high) == (None, None)
    assert estimate("tpot_p99_s", base, spec).value == 0.06
    with pytest.raises(NoEvidenceError, match="or a summary"):
        estimate("tpot_p90_s", base, spec)
    with pytest.raises(NoEvidenceError, match="same summary"):
        estimate("tpot_p99.ratio", base, spec, "chat")


def test_a_claim_that_fails_by_itself_may_not_fail_among_three() -> None:
    """Each claim at its own 95 % keeps back one rollout in thirteen that should ship; two still have all of their own error."""
    arms = pair(n=60, step_s=0.022)
    own, shared = (metric_estimate("harmed_share", *arms, segment=None, confidence=each, rng=rng()).high for each in (0.95, 1 - 0.1 / 3))
    assert own is not None
    assert shared is not None
    doubtful, holds = claim("harmed_share", at_least=(own + shared) / 2), [claim("speedup", at_least=each) for each in (0.01, 0.02)]
    two = gate(*arms, policy=policy(doubtful, holds[0]), rng=rng())
    three = gate(*arms, policy=policy(doubtful, *holds), rng=rng())
    assert (two.decision, three.decision) == (Decision.KEEP, Decision.CANNOT_TELL)
    found = three.findings[0]
    assert "it fails by itself, but one of 3 claims does so by chance" in found.why
    assert found.estimate is not None
    assert found.estimate.confidence == pytest.approx(1 - 0.1 / 3)
    clear = gate(*arms, policy=policy(claim("harmed_share", at_least=0.99), *holds), rng=rng())
    assert (clear.decision, clear.findings[0].estimate) == (Decision.KEEP, two.findings[0].estimate)


def test_an_arm_that_drafted_is_no_baseline() -> None:
    """Swapped arms, or the same file twice, would ship the opposite."""
    baseline, speculative = pair(n=4)
    for first, second in ((speculative, speculative), (speculative, baseline), (baseline, baseline)):
        with pytest.raises(BadInputError, match="give the baseline's run, then the speculative server's"):
            gate(first, second, policy=DEFAULT_POLICY, rng=rng())


def test_mean_summaries_give_the_speed_up_as_a_point() -> None:
    """What a dump's mean TPOTs say, before E / ρ is asked."""
    means = {"tpot_s": Summary(0.02, "mean", 50, None, None)}
    base = summaries_only(Arm.BASELINE, step_s=None, counts=None, summaries=means)
    spec = summaries_only(Arm.SPECULATIVE, step_s=None, counts=None, summaries={"tpot_s": Summary(0.01, "mean", None, None, None)})
    found = estimate("speedup", base, spec)
    assert (found.value, found.low, found.high, found.n) == (2.0, None, None, 0)
    assert estimate("tpot_mean.ratio", base, spec).value == 0.5
    with pytest.raises(NoEvidenceError, match="segment's speed-up"):
        estimate("speedup", base, spec, "chat")
    zero = replace(base, summaries={"tpot_s": Summary(0.0, "mean", 50, None, None)})
    with pytest.raises(NoEvidenceError, match="summary is 0"):
        estimate("tpot_mean.ratio", zero, spec)


def test_steps_that_take_no_time_have_no_speed_up() -> None:
    """A broken counter must not be infinitely fast."""
    base = summaries_only(Arm.BASELINE, step_s=0.01, counts=None)
    with pytest.raises(NoEvidenceError, match="no time"):
        estimate("speedup", base, summaries_only(Arm.SPECULATIVE, step_s=0.0, counts=MOE_COUNTS))


def test_acceptance_of_segments_from_totals() -> None:
    """A scrape knows totals by segment at best, and points have no interval."""
    base = summaries_only(Arm.BASELINE, step_s=0.01, counts=None)
    spec = summaries_only(Arm.SPECULATIVE, step_s=0.02, counts=MOE_COUNTS)
    assert estimate("alpha", base, spec, "all").value == pytest.approx(0.7397, abs=1e-4)
    assert estimate("tokens_per_step", base, spec, "all").value == pytest.approx(3.22, abs=0.005)
    assert estimate("tokens_per_step", base, spec).value == pytest.approx(3.22, abs=0.005)
    with pytest.raises(NoEvidenceError, match="'chat'"):
        estimate("alpha", base, spec, "chat")
    with pytest.raises(NoEvidenceError):
        estimate("alpha", base, replace(spec, acceptance_by_segment=None))
    assert segments_of(spec) == ("all",)
    assert segments_of(base) == ()


def test_the_harmed_without_pairs_are_those_below_the_step_time_ratio() -> None:
    """Arms that served other requests still know which requests got fewer tokens per step than a step costs."""
    baseline, _ = pair(n=40)
    other = run(Arm.SPECULATIVE, n=40, step_s=0.03, alphas={"a": 0.05, "b": 0.99}, prefix="x")
    found = harmed_share(baseline, other, segment=None, confidence=0.95, rng=rng())
    assert found.value == 0.5
    bare = tuple(replace(each, acceptance=None) for each in other.requests or ())
    with pytest.raises(NoEvidenceError, match="harmed"):
        harmed_share(baseline, replace(other, requests=bare), segment=None, confidence=0.95, rng=rng())


def test_the_step_time_ratio_comes_from_requests_first() -> None:
    """Requests give ρ an interval; the servers' means alone do not."""
    baseline, speculative = pair(n=100, step_s=0.015)
    found = step_time_ratio(baseline, speculative, confidence=0.95, rng=rng())
    assert found.value == pytest.approx(1.5, rel=0.01)
    assert found.low is not None
    bare = replace(speculative, requests=tuple(replace(each, acceptance=None) for each in speculative.requests or ()))
    mean = step_time_ratio(baseline, bare, confidence=0.95, rng=rng())
    assert mean.value == pytest.approx(1.5)
    assert mean.low is None
    with pytest.raises(NoEvidenceError, match="not measured in both"):
        step_time_ratio(baseline, replace(bare, step_seconds=None), confidence=0.95, rng=rng())


def test_break_even_counts_the_steps_without_a_draft() -> None:
    """An n-gram draft in half of the steps must accept twice as much to pay for the same ρ."""
    half = AcceptanceCounts(steps=100, drafts=50, drafted_tokens=200, accepted_tokens=50, accepted_per_position=None)
    base = summaries_only(Arm.BASELINE, step_s=0.010, counts=None)
    found = break_even_alpha(base, summaries_only(Arm.SPECULATIVE, step_s=0.012, counts=half), confidence=0.95, rng=rng())
    assert found.value == pytest.approx(0.2 / 2)


def test_uncounted_steps_are_the_drafted_ones_only_where_every_step_drafts() -> None:
    """Taken for all steps, an n-gram's matches would report 2.4 tokens per step where 1.1 is true."""
    counts = AcceptanceCounts(steps=None, drafts=50, drafted_tokens=150, accepted_tokens=75, accepted_per_position=None)
    eagle = summaries_only(Arm.SPECULATIVE, step_s=0.012, counts=counts)
    ngram = replace(eagle, speculation=Speculation(method=Method.NGRAM, draft_tokens=3, tree=None))
    assert (tokens_per_step(eagle), drafted_tokens_per_step(eagle)) == (2.5, 3.0)
    for each in (ngram, replace(eagle, speculation=None)):
        with pytest.raises(NoEvidenceError, match="not all of them"):
            tokens_per_step(each)
    idle = replace(eagle, acceptance_by_segment={"all": AcceptanceCounts(10, 0, 0, 0, None)})
    with pytest.raises(NoEvidenceError, match="nothing was drafted"):
        drafted_tokens_per_step(idle)


def lesson(baseline: Run, speculative: Run) -> LessonVerdict:
    verdict = gate(baseline, speculative, policy=DEFAULT_POLICY, rng=rng())
    return lesson_verdict(baseline, speculative, verdict, alpha_floor=0.55, confidence=0.95, rng=rng())


def test_the_textbook_rejects_what_pays_and_says_why_it_is_wrong() -> None:
    """α .5 at K = 3 pays twice over: the floor and the gap rule would both have kept it out."""
    told = lesson(*pair(n=400, step_s=0.012, alphas={"chat": 0.7}))
    assert (told.alpha_clears_floor, told.chunk_gap_not_worse, told.passes) == (False, False, False)
    assert len(told.disagreements) == 3
    assert "break-even at this load is 0.06" in told.disagreements[0]
    assert "at K = 1" in told.disagreements[1]
    assert "99th-percentile chunk gap is 1.2 times" in told.disagreements[2]


def test_the_textbooks_floor_passes_what_does_not_pay() -> None:
    """α .75 on a mixture of experts at a step 3.66 times as long."""
    told = lesson(*pair(n=400, step_s=0.0366, alphas={"code": 0.86}))
    assert told.alpha_clears_floor
    assert "clears the floor 0.55, yet the claims fail" in told.disagreements[0]


def test_the_textbook_passes_only_what_it_knows() -> None:
    """Without chunk gaps its second half is open, without acceptance its first."""
    base, spec = summaries_only(Arm.BASELINE, step_s=0.01, counts=None), summaries_only(Arm.SPECULATIVE, step_s=0.011, counts=MOE_COUNTS)
    half = lesson(base, spec)
    assert (half.alpha_clears_floor, half.chunk_gap_not_worse, half.passes) == (True, None, None)
    nothing = lesson(base, replace(spec, acceptance_by_segment=None))
    assert (nothing.alpha_clears_floor, nothing.passes, nothing.disagreements) == (None, None, ())
    assert LessonVerdict(alpha_clears_floor=True, chunk_gap_not_worse=True, disagreements=()).passes
    low = AcceptanceCounts(steps=100, drafts=100, drafted_tokens=100, accepted_tokens=40, accepted_per_position=(40,))
    (doubt,) = lesson(base, replace(spec, acceptance_by_segment={"all": low})).disagreements
    assert doubt.startswith("It says no from points")


@pytest.mark.parametrize("floor", [0.0, 0.3, 0.55, 0.8, 1.0])
@pytest.mark.parametrize(("step_s", "alpha"), [(0.0095, 0.8), (0.012, 0.7), (0.0366, 0.86), (0.021, 0.7)])
def test_every_disagreement_with_the_textbook_has_a_sentence(step_s: float, alpha: float, floor: float) -> None:
    """Two answers side by side and no word on why is a reason to trust neither."""
    arms = pair(n=60, step_s=step_s, alphas={"chat": alpha})
    verdict = gate(*arms, policy=DEFAULT_POLICY, rng=rng())
    told = lesson_verdict(*arms, verdict, alpha_floor=floor, confidence=0.95, rng=rng())
    ours = {Decision.SHIP: True, Decision.SHIP_SEGMENTS: True, Decision.KEEP: False, Decision.CANNOT_TELL: None}[verdict.decision]
    assert told.disagreements or told.passes in (ours, None)


def test_requests_without_a_second_token_have_no_pace() -> None:
    """One-token answers measure TTFT only, and must not count as infinitely fast."""
    baseline, speculative = pair(n=12)
    assert baseline.requests is not None
    one = tuple(
        replace(
            each,
            timing=RequestTiming(
                arrived_at_s=each.timing.arrived_at_s,
                sent_at_s=each.timing.sent_at_s,
                chunk_at_s=each.timing.chunk_at_s[:1],
                chunk_tokens=each.timing.chunk_tokens[:1],
                ended=each.timing.ended,
            ),
        )
        for each in baseline.requests
    )
    verdict = gate(replace(baseline, requests=one), speculative, policy=DEFAULT_POLICY, rng=rng())
    assert verdict.findings[0].why.startswith("not_measured")


def with_ttft(baseline: Run, speculative: Run, *, plain_s: float, drafts_s: float) -> tuple[Run, Run]:
    """Both arms with every first token at one instant, the later ones where they were."""

    def moved(arm: Run, ttft_s: float) -> Run:
        assert arm.requests is not None
        requests = tuple(
            replace(
                each,
                timing=replace(
                    each.timing, chunk_at_s=each.timing.chunk_at_s - each.timing.chunk_at_s[0] + each.timing.arrived_at_s + ttft_s
                ),
            )
            for each in arm.requests
        )
        return replace(arm, requests=requests)

    return moved(baseline, plain_s), moved(speculative, drafts_s)


TTFT_CLAIM = claim("ttft_p99.ratio", at_most=1.1)


@pytest.mark.parametrize(
    ("plain_s", "drafts_s", "felt_s", "holds"),
    [
        (0.036, 0.065, 0.1, Holds.YES),
        (0.036, 0.065, 0.0, Holds.NO),
        (0.036, 0.150, 0.1, Holds.NO),
        (1.000, 1.050, 0.0, Holds.YES),
    ],
)
def test_a_rise_of_time_to_first_token_that_nobody_feels_is_none(plain_s: float, drafts_s: float, felt_s: float, holds: Holds) -> None:
    """30 ms on 36 ms is 1.8 times and invisible: a ratio alone keeps users at half the speed for it."""
    arms = with_ttft(*pair(n=600, step_s=0.012, alphas={"chat": 0.7}), plain_s=plain_s, drafts_s=drafts_s)
    (found,) = gate(*arms, policy=replace(policy(TTFT_CLAIM), felt_ttft_s=felt_s), rng=rng()).findings
    assert found.holds is holds
    assert ("not felt" in found.why) is (holds is Holds.YES and drafts_s / plain_s > 1.1)


def test_a_rise_of_unknown_size_is_not_called_unfelt() -> None:
    """Below 368 requests a 99th percentile has no upper end, so the rise might be anything."""
    arms = with_ttft(*pair(n=340, step_s=0.012, alphas={"chat": 0.7}), plain_s=0.036, drafts_s=0.065)
    (found,) = gate(*arms, policy=policy(TTFT_CLAIM), rng=rng()).findings
    assert found.holds is Holds.NO


def test_only_time_to_first_token_has_a_felt_limit() -> None:
    """A slower pace is felt over a whole answer, however few milliseconds one token is."""
    arms = pair(n=600, step_s=0.05, alphas={"chat": 0.2})
    claims = (claim("tpot_p99.ratio", at_most=1.05), claim("ttft_mean.ratio", at_most=0.1), claim("ttft_p99.ratio", at_least=99.0))
    findings = gate(*arms, policy=policy(*claims), rng=rng()).findings
    assert {each.holds for each in findings} == {Holds.NO}


@pytest.mark.parametrize("felt_s", [-0.1, float("nan"), float("inf")])
def test_a_policy_needs_a_felt_limit_that_is_a_time(felt_s: float) -> None:
    """A limit that no number is would make every rise pass."""
    with pytest.raises(BadInputError, match="felt"):
        replace(DEFAULT_POLICY, felt_ttft_s=felt_s)


def given(run: Run, **arguments: str) -> Run:
    """The run with more in its provenance."""
    made = run.provenance
    return replace(run, provenance=replace(made, arguments={**made.arguments, **arguments}))


def test_what_a_simulation_was_given_is_told_with_its_label() -> None:
    """A published acceptance behind a simulated verdict passes for one's own traffic unless every verdict says so."""
    baseline, speculative = pair(n=60, step_s=0.012, alphas={"chat": 0.7})
    told = given(speculative, acceptance="profile eagle3", acceptance_evidence="profile", tokens="bytes (fallback)")
    messages = {each.code: each.message for each in gate(baseline, told, policy=DEFAULT_POLICY, rng=rng()).warnings}
    assert messages["profile_acceptance"].endswith("profile eagle3")
    assert "bytes" in messages["byte_tokens"]
    simulated = replace(told, provenance=replace(told.provenance, evidence=Evidence.SIMULATED, arguments={"model_range": "1.2 to 1.5"}))
    messages = {each.code: each.message for each in gate(baseline, simulated, policy=DEFAULT_POLICY, rng=rng()).warnings}
    assert messages["simulated_evidence"].endswith("1.2 to 1.5")


@pytest.mark.parametrize("key", ["model", "target", "hardware"])
def test_arms_of_two_models_do_not_compare(key: str) -> None:
    """An 8B with drafts is eight times faster than a 70B without, and drafting has little to do with it."""
    baseline, speculative = pair(n=400, step_s=0.012, alphas={"chat": 0.7})
    verdict = gate(given(baseline, **{key: "70b"}), given(speculative, **{key: "8b"}), policy=DEFAULT_POLICY, rng=rng())
    assert "different_targets" in codes(verdict)
    assert verdict.decision is Decision.CANNOT_TELL
    same = gate(given(baseline, **{key: "8b"}), given(speculative, **{key: "8b"}), policy=DEFAULT_POLICY, rng=rng())
    assert "different_targets" not in codes(same)


def test_more_speed_up_than_tokens_per_step_is_no_comparison_at_an_unknown_load_either() -> None:
    """Two /metrics dumps state no load, and are the evidence most easily mixed up."""
    baseline = summaries_only(Arm.BASELINE, step_s=0.1, counts=None)
    speculative = summaries_only(Arm.SPECULATIVE, step_s=0.01, counts=MOE_COUNTS)
    assert "speedup_exceeds_tokens_per_step" in codes(gate(baseline, speculative, policy=DEFAULT_POLICY, rng=rng()))


def test_arms_of_which_requests_are_missing_do_not_compare() -> None:
    """Drop the slow half of an arm and it is twice as fast."""
    baseline, speculative = pair(n=400, step_s=0.012, alphas={"chat": 0.7})
    assert speculative.requests is not None
    failed = tuple(replace(each, outcome=Outcome.FAILED) if i % 20 == 0 else each for i, each in enumerate(speculative.requests))
    few, many = (tuple(each for i, each in enumerate(speculative.requests) if i % every) for every in (40, 4))
    for requests in (failed, few, many):
        verdict = gate(baseline, replace(speculative, requests=requests), policy=DEFAULT_POLICY, rng=rng())
        assert "requests_missing" in codes(verdict)
        assert verdict.decision is Decision.CANNOT_TELL


@pytest.mark.parametrize("n", [380, 200])
def test_a_shorter_test_of_the_same_requests_has_none_missing(n: int) -> None:
    """Half the log is enough for the second arm: nobody chose which half by how it went."""
    baseline, speculative = pair(n=400, step_s=0.012, alphas={"chat": 0.7})
    assert speculative.requests is not None
    shorter = replace(speculative, requests=speculative.requests[:n])
    assert "requests_missing" not in codes(gate(baseline, shorter, policy=DEFAULT_POLICY, rng=rng()))


def test_arms_that_were_asked_nothing_have_no_share_missing() -> None:
    """A rollout that was stopped before its first request ends in a division by zero."""
    baseline, speculative = (replace(each, requests=()) for each in pair(n=3, step_s=0.012, alphas={"chat": 0.7}))
    found = codes(gate(baseline, speculative, policy=DEFAULT_POLICY, rng=rng()))
    assert "zero_finished" in found
    assert "requests_missing" not in found


def test_a_simulated_arm_and_a_measured_one_do_not_compare() -> None:
    """Take the faster of two worlds for each arm, and anything ships."""
    baseline, speculative = pair(n=400, step_s=0.012, alphas={"chat": 0.7})
    verdict = gate(baseline, replace(speculative, provenance=provenance(Evidence.SIMULATED)), policy=DEFAULT_POLICY, rng=rng())
    assert "different_evidence" in codes(verdict)
    assert verdict.decision is Decision.CANNOT_TELL
