"""Totals decide where the number of requests behind them says how far off they may be, on figures that people published."""

from dataclasses import replace

import numpy as np
import pytest

from paceline.decide.gate import DEFAULT_POLICY, gate
from paceline.decide.measured import difference, metric_estimate
from paceline.decide.totals import requests_counted, summary_estimate, totals_caution
from paceline.run import Arm, Run, Summary
from paceline.speculation.counts import AcceptanceCounts
from paceline.verdict import Caution, Claim, Decision, Estimate, Holds, Verdict
from tests.strategies_runs import pair, summaries_only

# Totals of two /metrics dumps of vLLM 0.12 (github.com/AltriaSetsuna/speculative-decoding-empirical, Qwen3-30B-A3B, EAGLE-3 with K = 3, 210
# requests each): decode seconds / decode steps, and the mean of the requests' paces.
MOE_COUNTS = AcceptanceCounts(steps=21706, drafts=21706, drafted_tokens=65118, accepted_tokens=48171, accepted_per_position=None)


def mean(value: float, n: int | None) -> Summary:
    return Summary(value=value, statistic="mean", n=n, low=None, high=None)


def of(statistic: str, value: float, n: int | None = 80) -> Summary:
    return Summary(value=value, statistic=statistic, n=n, low=None, high=None)


def moe(n: int | None = 210) -> tuple[Run, Run]:
    """The two dumps."""
    plain = summaries_only(Arm.BASELINE, step_s=874.8697 / 70027, counts=None, summaries={"tpot_s": mean(2.635278 / 210, n)})
    drafts = summaries_only(Arm.SPECULATIVE, step_s=992.5769 / 21706, counts=MOE_COUNTS, summaries={"tpot_s": mean(3.004401 / 210, n)})
    return plain, drafts


def verdict_on(arms: tuple[Run, Run], *claims: Claim) -> Verdict:
    policy = replace(DEFAULT_POLICY, claims=claims) if claims else DEFAULT_POLICY
    return gate(*arms, policy=policy, rng=np.random.default_rng(1))


def estimate(name: str, arms: tuple[Run, Run]) -> Estimate:
    return metric_estimate(name, *arms, segment=None, confidence=0.95, rng=np.random.default_rng(1))


def test_the_mixture_of_experts_is_kept_from_its_totals_alone() -> None:
    """α .74 at 0.87x: 210 requests cannot have hidden a gain of 5 %, and the verdict says what that rests on."""
    verdict = verdict_on(moe())
    assert verdict.decision is Decision.KEEP
    even, tokens = verdict.break_even_tokens_per_step, verdict.tokens_per_step
    assert even is not None
    assert even.value == pytest.approx(3.66, abs=0.005)
    assert tokens is not None
    assert tokens.value == pytest.approx(3.22, abs=0.005)
    assert tokens.low is not None
    assert tokens.high is not None
    assert 1 < tokens.low < tokens.value < tokens.high < 4
    speedup = verdict.findings[0].estimate
    assert speedup is not None
    assert speedup.high is not None
    assert 0.877 < speedup.high < 1
    rests = next(each.message for each in verdict.warnings if each.code == "intervals_from_totals")
    assert "210 requests, their paces assumed to spread by 0.5" in rests
    assert verdict.requests_needed is None


def test_the_same_totals_over_an_unknown_number_of_requests_are_points() -> None:
    """Nobody counted, so nothing bounds the error."""
    verdict = verdict_on(moe(n=None))
    assert verdict.decision is Decision.CANNOT_TELL
    assert "intervals_from_totals" not in {each.code for each in verdict.warnings}
    assert verdict.break_even_tokens_per_step is not None
    assert verdict.break_even_tokens_per_step.high is None


def dense(n: int = 80) -> tuple[Run, Run]:
    """Two printed tables (github.com/dishantghai/ai-perf-hw3-spec-decode-quant, Qwen3-8B on one H100, 8 in flight, K = 2)."""

    def table(mean_s: float, median_s: float, p99_s: float, ttft_s: tuple[float, float, float]) -> dict[str, Summary]:
        paces = {"tpot_s": mean(mean_s, n), "tpot_p50_s": of("p50", median_s, n), "tpot_p99_s": of("p99", p99_s, n)}
        waits = {"ttft_s": mean(ttft_s[0], n), "ttft_p50_s": of("p50", ttft_s[1], n), "ttft_p99_s": of("p99", ttft_s[2], n)}
        return {**paces, **waits}

    counts = AcceptanceCounts(steps=14579, drafts=14579, drafted_tokens=29158, accepted_tokens=5842, accepted_per_position=None)
    plain = table(0.00703, 0.00702, 0.00714, (0.0272, 0.0326, 0.0446))
    drafts = table(0.00590, 0.00589, 0.00676, (0.02714, 0.02489, 0.0446))
    return (
        summaries_only(Arm.BASELINE, step_s=0.00703, counts=None, summaries=plain),
        summaries_only(Arm.SPECULATIVE, step_s=0.00826, counts=counts, summaries=drafts),
    )


def test_the_dense_twin_ships_from_its_tables_though_it_accepts_a_fifth() -> None:
    """α .20 at 1.19x: a floor of .55 would have kept a win from production."""
    verdict = verdict_on(dense())
    assert verdict.decision is Decision.SHIP
    assert [each.holds for each in verdict.findings] == [Holds.YES] * 3
    assert verdict.alpha is not None
    assert verdict.alpha.value == pytest.approx(0.2004, abs=1e-4)
    assert verdict.break_even_alpha is not None
    assert verdict.break_even_alpha.value == pytest.approx((8.26 / 7.03 - 1) / 2, abs=1e-6)


def test_tables_of_a_gain_at_the_margin_rarely_ship() -> None:
    """Whoever ships on tables: with a true gain of exactly 5 %, at most one in twenty may say that it is more."""
    rng, shipped = np.random.default_rng(5), 0
    for _ in range(100):
        arms = []
        for arm, mean_s in ((Arm.BASELINE, 0.0105), (Arm.SPECULATIVE, 0.01)):
            paces_s = mean_s * np.exp(0.3 * rng.standard_normal(80) - 0.045)
            told = {"tpot_s": mean(float(paces_s.mean()), 80)}
            told |= {f"tpot_{name}_s": of(name, float(np.quantile(paces_s, q))) for name, q in (("p50", 0.5), ("p99", 0.99))}
            arms.append(summaries_only(arm, step_s=None, counts=None, summaries=told))
        claim = Claim(metric="speedup", at_most=None, at_least=1.05, segment=None)
        shipped += verdict_on((arms[0], arms[1]), claim).decision is Decision.SHIP
    assert shipped <= 5


def test_a_table_of_ten_requests_does_not() -> None:
    """Ten requests say nothing about one in a hundred."""
    assert verdict_on(dense(n=10)).decision is Decision.CANNOT_TELL


def test_acceptance_is_held_against_the_break_even_or_its_prior() -> None:
    """A claim on the break-even where none was measured falls back on the floor, and says so."""
    above = Claim(metric="alpha_above_break_even", at_most=None, at_least=0.05, segment=None)
    found = verdict_on(moe(), above).findings[0]
    assert found.holds is Holds.NO
    assert found.estimate is not None
    assert found.estimate.value == pytest.approx(0.7397 - 0.8866, abs=1e-3)
    without = tuple(replace(each, step_seconds=None) for each in moe())
    prior = verdict_on((without[0], without[1]), above)
    assert prior.break_even_alpha is None
    assert prior.findings[0].holds is Holds.YES
    assert "the floor stands for it" in prior.findings[0].why
    assert "no_break_even" in {each.code for each in prior.warnings}
    points = tuple(replace(each, step_seconds=None) for each in moe(n=None))
    assert verdict_on((points[0], points[1]), above).findings[0].holds is Holds.CANNOT_TELL


def test_a_difference_needs_both_ends() -> None:
    """3 (2 to 5) − 1 (unknown to 2): 2, down to 2 − √2, up to nobody knows."""
    first = Estimate(value=3, low=2, high=5, confidence=0.95, n=9)
    found = difference(first, Estimate(value=1, low=None, high=2, confidence=0.95, n=4))
    assert found.low == pytest.approx(2 - 2**0.5)
    assert (found.value, found.high, found.n) == (2, None, 4)


def test_requests_of_both_arms_have_their_acceptance_held_against_the_break_even() -> None:
    """The errors of both add in squares."""
    arms = pair(n=320, step_s=0.012, alphas={"chat": 0.7})
    found, alpha = estimate("alpha_above_break_even", arms), estimate("alpha", arms)
    assert found.low is not None
    assert found.high is not None
    assert alpha.low is not None
    assert found.low < found.value < found.high
    assert found.value - found.low > alpha.value - alpha.low


def test_speed_up_falls_back_on_tokens_per_step_over_the_step_time_ratio() -> None:
    """A dump without paces per request still has steps."""
    without = tuple(replace(each, summaries={"e2e_s": mean(4.0, 210)}) for each in moe())
    found = estimate("speedup", (without[0], without[1]))
    assert found.value == pytest.approx(3.2192 / 3.6602, abs=1e-3)
    assert found.high is not None
    nothing = moe()
    none_accepted = replace(MOE_COUNTS, accepted_tokens=0)
    dead = replace(nothing[1], acceptance_by_segment={"all": none_accepted})
    assert estimate("tokens_per_step", (nothing[0], dead)).value == 1


def test_only_paces_are_assumed_to_spread_by_a_half() -> None:
    """Times to first token spread as prompts do, and throughput as the load: nothing is assumed of them."""
    run = moe()[0]
    spread = replace(run, summaries={**run.summaries, "ttft_s": mean(0.2, 210), "output_tokens_per_s": of("pooled", 900.0, 210)})
    assert summary_estimate(spread, "ttft_s", "mean", confidence=0.95).high is None
    assert summary_estimate(spread, "output_tokens_per_s", None, confidence=0.95).high is None
    assert summary_estimate(spread, "tpot_s", "mean", confidence=0.95).high is not None


def test_percentiles_read_off_buckets_have_no_tail_fitted() -> None:
    """A bucket's edge is no order statistic."""
    run = dense()[1]
    coarse = replace(run, cautions=(Caution("histogram_percentiles", ""),))
    assert summary_estimate(run, "tpot_s", "p99", confidence=0.95).high is not None
    assert summary_estimate(coarse, "tpot_s", "p99", confidence=0.95).high is None
    assert summary_estimate(run, "tpot_s", "p50", confidence=0.95).high is None
    low = replace(run, summaries={**run.summaries, "tpot_p90_s": Summary(value=0.006, statistic="p90", n=80, low=0.005, high=0.01)})
    assert summary_estimate(low, "tpot_s", "p90", confidence=0.95).high == 0.01


def test_a_run_without_totals_of_requests_counts_none() -> None:
    """Nothing is said of intervals that do not exist."""
    assert requests_counted(summaries_only(Arm.BASELINE, step_s=0.01, counts=None)) is None
    assert totals_caution(pair(n=9), confidence=0.95) is None
