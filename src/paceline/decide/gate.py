"""Ship it? Claims held against the intervals of a measured comparison.

1. A claim holds only if the whole interval satisfies it, and fails only if none of it does. Everything else is cannot tell.
2. What was not measured is cannot tell, never a yes; `why` then opens with a code (`no_per_request_data`, `zero_finished`, `not_measured`).
3. Arms that do not compare (other loads, more speed-up than tokens per step) answer no claim at all.
4. Acceptance decides nothing by itself: 0.3 may pay and 0.74 may not. It is shown beside the break-even that this load asks for.

5. A ratio of times to first token that is too high still holds where the rise is surely too short to be felt: from 36 to 65 ms is 1.8
   times, and nobody notices. The default, a tenth of a second, is the usual limit of what feels instantaneous (Nielsen, Usability
   Engineering, section 5.5).

The default policy asks for a speed-up of 1.05, a 99th-percentile pace (TPOT) at most 5 % and a time to first token at most 10 % worse. The
harmed share is reported and does not decide: noise alone makes half of the requests slower where drafts neither help nor hurt, so no one
bound suits every load. A policy that wants it adds the claim.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite

import numpy as np

from paceline.decide.break_even import break_even_alpha, tokens_per_step
from paceline.decide.cautions import evidence_cautions, speedup_caution
from paceline.decide.claims import metric_named
from paceline.decide.measured import metric_estimate, needs_requests, segments_of
from paceline.decide.own_share import CLIENT_SATURATED
from paceline.errors import BadInputError, NoEvidenceError
from paceline.run import Arm, Run
from paceline.stats.paired import requests_to_bound_quantile, requests_to_settle
from paceline.verdict import Caution, Claim, Estimate, Finding, Holds, Verdict, judge

__all__ = ["DEFAULT_POLICY", "FELT_TTFT_S", "Policy", "default_claims", "gate", "gate_by_concurrency", "production_verdict"]

POWER = 0.8  # the usual chance that the advised number of requests settles a claim
NOT_COMPARABLE = (CLIENT_SATURATED, "different_loads", "different_targets", "requests_missing", "speedup_exceeds_tokens_per_step")


@dataclass(frozen=True, slots=True)
class Policy:
    """What must hold before drafting ships.

    Attributes:
        claims: all of them must hold.
        margin: the gain worth having, as a fraction; a segment ships alone only above 1 + margin.
        confidence: of every interval, two-sided.
        alpha_floor: the textbook's floor on acceptance, for its verdict beside ours.
        felt_ttft_s: a rise of time to first token that stays below this is not felt; 0 makes every ratio count as it stands.

    """

    claims: tuple[Claim, ...]
    margin: float
    confidence: float
    alpha_floor: float
    felt_ttft_s: float

    def __post_init__(self) -> None:
        """Reject a policy without claims, unknown metrics, and fractions that are none.

        Raises:
            BadInputError: with the value.
            UnknownNameError: a claim on an unknown metric.

        """
        if not self.claims:
            raise BadInputError("a policy without claims would ship anything; give at least one")
        for each in self.claims:
            metric_named(each.metric)
        if not 0 <= self.margin < 1 or not 0.5 <= self.confidence < 1 or not 0 <= self.alpha_floor <= 1:
            raise BadInputError(
                f"margin {self.margin!r}, confidence {self.confidence!r} and alpha floor {self.alpha_floor!r} must be fractions of 1, "
                "the confidence .5 or more"
            )
        if not (isfinite(self.felt_ttft_s) and self.felt_ttft_s >= 0):
            raise BadInputError(f"a felt rise of {self.felt_ttft_s!r} s is no time from 0 on")


FELT_TTFT_S = 0.1


def default_claims(margin: float) -> tuple[Claim, ...]:
    """The default policy's claims at that margin: faster by it, and neither tail worse than users notice."""
    return (
        Claim(metric="speedup", at_most=None, at_least=1 + margin, segment=None),
        Claim(metric="tpot_p99.ratio", at_most=1.05, at_least=None, segment=None),
        Claim(metric="ttft_p99.ratio", at_most=1.10, at_least=None, segment=None),
    )


DEFAULT_POLICY = Policy(claims=default_claims(0.05), margin=0.05, confidence=0.95, alpha_floor=0.55, felt_ttft_s=FELT_TTFT_S)


def gate(baseline: Run, speculative: Run, *, policy: Policy, rng: np.random.Generator) -> Verdict:
    """The verdict on one pair of runs: every claim of the policy judged, the break-even, and what a reader must know.

    Where a claim surely fails for all traffic, segments on which every claim surely holds, speed-up above 1 + margin among them, are named.

    Raises:
        BadInputError: the arms are swapped.

    """
    if baseline.arm is not Arm.BASELINE or speculative.arm is not Arm.SPECULATIVE:
        raise BadInputError(
            f"a gate takes the baseline first and the speculative run second, not {baseline.arm.value} and {speculative.arm.value}"
        )
    asked = _Question(baseline, speculative, policy, rng)
    speedup, alpha, break_even = asked.estimate("speedup", None), asked.estimate("alpha", None), asked.break_even()
    cautions = evidence_cautions(baseline, speculative, alpha=alpha, break_even=break_even)
    extra = speedup_caution(baseline, speculative, speedup=speedup, tokens_per_step=_tokens_per_step(speculative))
    warnings = (*cautions, *([extra] if extra else []))
    broken = next((each for each in warnings if each.code in NOT_COMPARABLE), None)
    findings = tuple(asked.finding(each, broken) for each in policy.claims)
    failed = any(each.holds is Holds.NO for each in findings)
    return Verdict(
        concurrency=speculative.load.concurrency,
        findings=findings,
        segments_to_ship=asked.segments_to_ship() if failed else (),
        break_even_alpha=break_even,
        alpha=alpha,
        warnings=warnings,
    )


def _tokens_per_step(run: Run) -> float | None:
    try:
        return tokens_per_step(run)
    except NoEvidenceError:
        return None


@dataclass(frozen=True, slots=True)
class _Question:
    """Two runs and what is asked of them."""

    baseline: Run
    speculative: Run
    policy: Policy
    rng: np.random.Generator

    def measure(self, metric: str, segment: str | None) -> Estimate:
        confidence = self.policy.confidence
        return metric_estimate(metric, self.baseline, self.speculative, segment=segment, confidence=confidence, rng=self.rng)

    def estimate(self, metric: str, segment: str | None) -> Estimate | None:
        try:
            return self.measure(metric, segment)
        except NoEvidenceError:
            return None

    def break_even(self) -> Estimate | None:
        try:
            return break_even_alpha(self.baseline, self.speculative, confidence=self.policy.confidence, rng=self.rng)
        except NoEvidenceError:
            return None

    def finding(self, claim: Claim, broken: Caution | None) -> Finding:
        try:
            estimate = self.measure(claim.metric, claim.segment)
        except NoEvidenceError as error:
            return Finding(claim=claim, estimate=None, holds=Holds.CANNOT_TELL, why=f"{self._missing_code()}: {error}")
        if broken is not None:
            return Finding(claim=claim, estimate=estimate, holds=Holds.CANNOT_TELL, why=f"{broken.code}: {broken.message}")
        found = judge(claim, estimate)
        rise_s = None if found.holds is Holds.YES else self._longest_rise_s(claim)
        if rise_s is not None and rise_s < self.policy.felt_ttft_s:
            why = f"a rise of at most {rise_s:.3f} s is not felt (below {self.policy.felt_ttft_s:g} s), though {found.why}"
            return Finding(claim=claim, estimate=estimate, holds=Holds.YES, why=why)
        if found.holds is not Holds.CANNOT_TELL:
            return found
        return Finding(claim=claim, estimate=estimate, holds=found.holds, why=f"{found.why}; {self._remedy(claim, estimate)}")

    def _longest_rise_s(self, claim: Claim) -> float | None:
        """The most by which a time to first token may have risen, in seconds; None for other claims, and where either end is unknown."""
        metric = metric_named(claim.metric)
        if metric.latency != "ttft_s" or metric.quantile is None or not metric.is_ratio or claim.at_most is None:
            return None
        name = f"ttft_{metric.statistic}_s"
        ends = [
            metric_estimate(name, each, each, segment=claim.segment, confidence=self.policy.confidence, rng=self.rng)
            for each in (self.baseline, self.speculative)
        ]
        low, high = ends[0].low, ends[1].high
        return None if low is None or high is None else high - low

    def _missing_code(self) -> str:
        if needs_requests(self.baseline, self.speculative):
            return "no_per_request_data"
        return "not_measured" if self.baseline.finished and self.speculative.finished else "zero_finished"

    def _remedy(self, claim: Claim, estimate: Estimate) -> str:
        """What would settle a claim that cannot be told."""
        if needs_requests(self.baseline, self.speculative) and estimate.low is None and estimate.high is None:
            return "no_per_request_data: measure both arms request by request"
        bound = claim.at_most if claim.at_most is not None else claim.at_least
        assert bound is not None
        needed, quantile = requests_to_settle(estimate, bound, power=POWER), metric_named(claim.metric).quantile
        if needed is None and quantile is not None and estimate.high is None:
            least = requests_to_bound_quantile(max(quantile, 1 - quantile), confidence=self.policy.confidence)
            needed = max(least, 2 * estimate.n) if estimate.n >= least else least
        if needed is None:
            return f"no feasible number of requests settles it from these {estimate.n}; measure longer, or move the bound"
        return f"about {max(1, needed - estimate.n)} more requests per arm are needed ({max(needed, estimate.n + 1)} in all)"

    def segments_to_ship(self) -> tuple[str, ...]:
        names = segments_of(self.speculative)
        return tuple(name for name in names if self._pays(name)) if len(names) > 1 else ()

    def _pays(self, segment: str) -> bool:
        gain = Claim(metric="speedup", at_most=None, at_least=1 + self.policy.margin, segment=segment)
        own = [_on_segment(each, segment) for each in self.policy.claims if each.segment in (None, segment)]
        return all(self.finding(each, None).holds is Holds.YES for each in [gain, *own])


def _on_segment(claim: Claim, segment: str) -> Claim:
    return Claim(metric=claim.metric, at_most=claim.at_most, at_least=claim.at_least, segment=segment)


def gate_by_concurrency(pairs: Iterable[tuple[Run, Run]], *, policy: Policy, rng: np.random.Generator) -> tuple[Verdict, ...]:
    """One verdict per pair of baseline and speculative runs, by rising concurrency (unknown first)."""
    ordered = sorted(pairs, key=lambda each: each[1].load.concurrency or 0)
    return tuple(gate(baseline, speculative, policy=policy, rng=rng) for baseline, speculative in ordered)


def production_verdict(verdicts: tuple[Verdict, ...]) -> Verdict:
    """The verdict that decides: that of the largest concurrency, which stands for production.

    Raises:
        NoEvidenceError: there is none.

    """
    if not verdicts:
        raise NoEvidenceError("no concurrency was measured, so nothing decides")
    return max(verdicts, key=lambda each: each.concurrency or 0)
