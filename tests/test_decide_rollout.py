"""A plan follows from a verdict, and never exposes anybody before the gate."""

from dataclasses import replace

import pytest

from paceline.decide.gate import DEFAULT_POLICY
from paceline.decide.rollout import RolloutSetup, requests_per_arm, rollout_guards, rollout_plan
from paceline.errors import BadInputError, NoEvidenceError
from paceline.plan import Plan
from paceline.speculation.method import Method, Speculation
from paceline.verdict import Claim, Estimate, Finding, Holds, Verdict

CLAIM = Claim(metric="speedup", at_most=None, at_least=1.05, segment=None)


def point(value: float) -> Estimate:
    return Estimate(value=value, low=value, high=value, confidence=0.95, n=300)


def verdict(
    holds: Holds, *, alpha: float | None = 0.5, even: float | None = 0.2, segments: tuple[str, ...] = (), concurrency: int = 64
) -> Verdict:
    return Verdict(
        concurrency=concurrency,
        findings=(Finding(claim=CLAIM, estimate=point(1.2), holds=holds, why="measure 120 more requests per arm"),),
        segments_to_ship=segments,
        break_even_alpha=None if even is None else point(even),
        break_even_tokens_per_step=None,
        alpha=None if alpha is None else point(alpha),
        tokens_per_step=None,
        requests_needed=None,
        routing=None,
        warnings=(),
    )


SETUP = RolloutSetup(
    target="llama-3.1-8b",
    speculation=Speculation(method=Method.EAGLE3, draft_tokens=4, tree=None),
    draft="eagle3-llama-3.1-8b",
    engine="vllm 0.32.0",
    baseline_command="vllm serve llama",
    speculative_command="vllm serve llama --speculative-config X",
    segments={"chat": 0.75, "code": 0.25},
    concurrency_points=(1, 8, 64),
    production_concurrency=64,
    requests_per_s=2.0,
    spread=0.3,
    shortest_stage_s=600.0,
    patience_s=120.0,
    chunk_gap_p99_s=0.2,
    error_rate=0.01,
)


def plan(found: Verdict, setup: RolloutSetup = SETUP) -> Plan:
    return rollout_plan(setup, (verdict(Holds.NO, concurrency=1), found), policy=DEFAULT_POLICY)


def names(made: Plan) -> list[str]:
    return [each.name for each in made.stages]


BEFORE = ["baseline", "enable", "acceptance", "gate", "tail-check"]
RAMP = ["ramp-1", "ramp-5", "ramp-25", "ramp-50", "ramp-100", "done"]


def test_a_yes_goes_from_the_baseline_to_everybody() -> None:
    """The order of the stages is what keeps users out of experiments."""
    made = plan(verdict(Holds.YES))
    assert made.title.startswith("Ship: eagle3 with eagle3-llama-3.1-8b, K = 4 on llama-3.1-8b (vllm 0.32.0)")
    assert names(made) == BEFORE + RAMP
    assert [each.traffic_share for each in made.stages] == [0, 0, 0, 0, 0, 0.01, 0.05, 0.25, 0.5, 1, 1]


def test_a_ramp_stage_lasts_until_its_canary_served_enough() -> None:
    """368 requests (the 99th percentile's) at 1 % of 2 requests/s take 5 h 7 min; at half of traffic the shortest stage is longer."""
    assert requests_per_arm(SETUP, DEFAULT_POLICY) == 368
    stages = {each.name: each for each in plan(verdict(Holds.YES)).stages}
    assert stages["ramp-1"].min_duration_s == 368 / 0.02
    assert stages["ramp-50"].min_duration_s == 600
    unknown = plan(verdict(Holds.YES), replace(SETUP, requests_per_s=None))
    assert {each.min_duration_s for each in unknown.stages if each.name.startswith("ramp")} == {600}


def test_noisier_traffic_and_smaller_gains_need_more_requests() -> None:
    """((1.96 + 0.84) · 1 / ln 1.05)² is 3,297, and a margin of 0 asks for a gain of 1 % to be seen."""
    assert requests_per_arm(replace(SETUP, spread=1.0), DEFAULT_POLICY) == pytest.approx(3300, abs=3)
    assert requests_per_arm(SETUP, replace(DEFAULT_POLICY, margin=0.0)) > 7000


def test_some_segments_are_routed_alone() -> None:
    """Shares are of all traffic: code is a quarter of it, and no more may ever decode with drafts."""
    made = plan(verdict(Holds.NO, segments=("code",)))
    assert made.title.startswith("Ship for code only")
    assert [each.traffic_share for each in made.stages][-6:] == [0.0025, 0.0125, 0.0625, 0.125, 0.25, 0.25]
    unknown = plan(verdict(Holds.NO, segments=("legal",)))
    assert unknown.stages[-1].traffic_share == 0


def test_a_no_opens_with_what_would_change_it() -> None:
    """A plan that ramps up what was just refused would be the worst of answers."""
    made = plan(verdict(Holds.NO, alpha=0.2, even=0.5))
    assert made.title.startswith("Keep plain decoding, for now")
    assert names(made) == ["shorter-draft", "domain-head", "route-segments", *BEFORE, *RAMP]
    assert "draft length of 2" in made.stages[0].do[0]
    assert "train an EAGLE-3 head" in made.stages[1].do[0]
    assert made.stages[1].passes_when == ("acceptance above 0.5, this load's break-even",)


def test_a_head_is_not_held_against_the_break_even_of_lookups() -> None:
    """N-grams draft in a few steps only, so their break-even is far above what a head, which drafts in all, would need."""
    lookups = replace(SETUP, speculation=Speculation(method=Method.NGRAM, draft_tokens=4, tree=None), draft=None)
    assert plan(verdict(Holds.NO, alpha=0.2, even=0.8), lookups).stages[1].passes_when == ("speed-up above the margin",)


def test_no_head_is_trained_towards_the_impossible() -> None:
    """Where even perfect acceptance does not pay, training is wasted; a cheaper draft is what is left."""
    alone = replace(SETUP, segments={"all": 1.0}, speculation=Speculation(method=Method.NGRAM, draft_tokens=1, tree=None), draft=None)
    made = plan(verdict(Holds.NO, alpha=0.9, even=1.2), alone)
    assert names(made)[0] == "another-draft"
    assert "ngram, K = 1 on" in made.title


def test_cannot_tell_opens_with_the_missing_measurement() -> None:
    """The finding's own advice is the first thing to do."""
    made = plan(verdict(Holds.CANNOT_TELL))
    assert made.title.startswith("Cannot tell yet")
    assert made.stages[0].do == ("measure 120 more requests per arm",)
    empty = plan(replace(verdict(Holds.YES), findings=()))
    assert "request by request" in empty.stages[0].do[0]


def test_guards_follow_the_policy_and_the_break_even() -> None:
    """A guard looser than the gate would let through what the gate refuses."""
    strict = replace(DEFAULT_POLICY, claims=(CLAIM, Claim(metric="tpot_p99.ratio", at_most=0.9, at_least=None, segment=None)))
    guards = {each.metric: each for each in rollout_guards(SETUP, strict, verdict(Holds.YES))}
    assert guards["tpot_p99.ratio"].at_most == 0.9
    assert guards["ttft_p99.ratio"].at_most == 1.10
    assert guards["alpha"].at_least == pytest.approx(0.2 + 0.025 * 1.8 / 4)
    assert guards["alpha"].breach_after_s == 480
    assert guards["error_rate"].breach_after_s == 30
    assert guards["chunk_gap_p99_s"].at_most == 0.2
    assert "preemptions_per_request.ratio" in guards
    assert "alpha" not in {each.metric for each in rollout_guards(SETUP, strict, verdict(Holds.YES, even=None))}
    assert "alpha" not in {each.metric for each in rollout_guards(SETUP, strict, verdict(Holds.YES, even=1.3))}


def test_the_measurement_says_what_decides() -> None:
    """A plan that leaves the benchmark open gets the answer somebody wants."""
    made = plan(verdict(Holds.YES))
    assert made.measurement["traffic"].startswith("production's mix by generated tokens: chat 75%, code 25%")
    assert "64 is production and decides" in made.measurement["concurrency"]
    assert made.measurement["requests"].startswith("368 per arm")
    assert "break-even 0.2" in made.opt_in
    assert "break-even" not in plan(verdict(Holds.YES, alpha=None)).opt_in
    assert any("baseline replicas" in each for each in made.on_breach)
    assert any("chosen when a server starts" in each for each in made.on_breach), "no engine switches speculation off while it runs"
    assert "at 64 in flight" in made.stages[4].do[0]


def test_a_policy_without_tails_is_checked_on_all_its_claims() -> None:
    """The tail check must never be empty."""
    made = rollout_plan(SETUP, (verdict(Holds.YES),), policy=replace(DEFAULT_POLICY, claims=(CLAIM,)))
    assert made.stages[4].passes_when == ("speedup >= 1.05",)


def test_impossible_setups_are_refused() -> None:
    """Shares that do not add up route somebody twice."""
    for wrong in (
        {"segments": {"chat": 0.5}},
        {"segments": {"a": 1.5, "b": -0.5}},
        {"production_concurrency": 32},
        {"requests_per_s": 0.0},
    ):
        with pytest.raises(BadInputError):
            replace(SETUP, **wrong)
    with pytest.raises(NoEvidenceError):
        rollout_plan(SETUP, (), policy=DEFAULT_POLICY)


def test_a_lower_concurrency_that_ships_is_the_first_thing_to_do() -> None:
    """Half the answer is lost where a plan says no and hides that it pays below."""
    low = replace(verdict(Holds.YES), concurrency=8)
    made = rollout_plan(SETUP, (low, verdict(Holds.NO, alpha=0.2, even=0.5)), policy=DEFAULT_POLICY)
    assert names(made)[0] == "cap-concurrency"
    assert "8 requests in flight" in made.stages[0].do[0]
    assert "cap-concurrency" not in names(rollout_plan(SETUP, (low, verdict(Holds.YES)), policy=DEFAULT_POLICY))


def test_the_plan_forgives_the_rise_that_the_verdict_forgives() -> None:
    """A guard stricter than the gate rolls back what was shipped, by its own forecast."""
    made = plan(verdict(Holds.YES))
    guard = next(each for each in made.guards if each.metric == "ttft_p99.ratio")
    assert guard.felt_s == DEFAULT_POLICY.felt_ttft_s
    strict = rollout_guards(SETUP, replace(DEFAULT_POLICY, felt_ttft_s=0.0), verdict(Holds.YES))
    assert all(each.felt_s is None for each in strict)


def test_the_stages_name_the_verbs_that_do_them() -> None:
    """Whoever is told to write a run file by hand where `bench` writes both arms' gives up or mistypes."""
    stages = {each.name: " ".join(each.do) for each in rollout_plan(SETUP, (verdict(Holds.YES),), policy=DEFAULT_POLICY).stages}
    assert "paceline bench --speculative URL --traffic LOG" in stages["acceptance"]
    points = ",".join(str(each) for each in SETUP.concurrency_points)
    assert f"paceline bench --baseline URL --speculative URL --traffic LOG --concurrency {points}" in stages["gate"]
    file = f"bench/runs/c{SETUP.production_concurrency:04d}"
    assert f"paceline gate {file}-baseline.json {file}-speculative.json" in stages["gate"]
