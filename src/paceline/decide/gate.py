"""Ship it? Claims held against the intervals of a measured comparison.

1. A claim holds only if the whole interval satisfies it, and fails only if none of it does. Everything else is cannot tell.
2. What was not measured is cannot tell, never a yes; `why` then opens with a code (`no_per_request_data`, `zero_finished`, `not_measured`).
3. Arms that do not compare (other loads, more speed-up than tokens per step) answer no claim at all.
4. Acceptance decides nothing by itself: 0.3 may pay and 0.74 may not. It is shown beside the break-even that this load asks for. The
   textbook's floor is a prior: a claim on the break-even is held against it only where no step-time ratio was measured, and says so.

5. A ratio of times to first token that is too high still holds where the rise is surely too short to be felt: from 36 to 65 ms is 1.8
   times, and nobody notices. The default, a tenth of a second, is the usual limit of what feels instantaneous (Nielsen, Usability
   Engineering, section 5.5).
6. What distorts some figures only (`decide.comparability`) leaves the others answered. A time to first token that is surely below the
   rise that is felt holds all the same, whatever the other arm's.

The default policy asks for a speed-up of 1.05, a 99th-percentile pace (TPOT) at most 5 % and a time to first token at most 10 % worse. The
harmed share is reported and does not decide: noise alone makes half of the requests slower where drafts neither help nor hurt, so no one
bound suits every load. A policy that wants it adds the claim.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np

from paceline.decide.break_even import break_even_alpha, drafted_tokens_per_step
from paceline.decide.cautions import evidence_cautions, speedup_caution
from paceline.decide.claims import metric_named
from paceline.decide.comparability import Reach, reach_of, takes_away
from paceline.decide.in_turns import block_cautions
from paceline.decide.looked import looked_at_caution, looked_estimate
from paceline.decide.measured import metric_estimate, needs_requests, rests_on_buckets, segments_of
from paceline.decide.routing import routing
from paceline.errors import BadInputError, NoEvidenceError
from paceline.run import Arm, Run
from paceline.stats.goodput import Slo, promising
from paceline.stats.looks import Looks, looks_stated
from paceline.stats.paired import distance_told, requests_to_bound_quantile, requests_to_settle
from paceline.stats.several import decided_together, one_sided, shared_confidence
from paceline.verdict import ABOVE_BREAK_EVEN, UNFELT_RISE, Caution, Claim, Estimate, Finding, Holds, Verdict, judge

__all__ = ["DEFAULT_POLICY", "FELT_TTFT_S", "Policy", "default_claims", "gate", "gate_by_concurrency", "production_verdict"]

SHARING = 3  # claims from which on their errors would add up to more than 1 − confidence
SHARE_OF_PERCENTILE = 4 / 3  # of a mean's, so that 400 requests still bound a P99 among the default claims
AFFORDABLE, FAR_MORE = 5_000, 4  # requests per arm, or times as many as there are: beyond both nobody measures
POWER = 0.8  # the usual chance that the advised number of requests settles a claim


@dataclass(frozen=True, slots=True)
class Policy:
    """What must hold before drafting ships.

    Attributes:
        claims: all of them must hold.
        margin: the gain worth having, as a fraction; a segment ships alone only above 1 + margin.
        confidence: of every interval, two-sided.
        alpha_floor: the textbook's floor on acceptance, for its verdict beside ours.
        felt_ttft_s: a rise of time to first token that stays below this is not felt; 0 makes every ratio count as it stands.
        slo: the promised latencies that goodput is held to, None for those that the runs themselves state.

    """

    claims: tuple[Claim, ...]
    margin: float
    confidence: float
    alpha_floor: float
    felt_ttft_s: float
    slo: Slo | None

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


DEFAULT_POLICY = Policy(claims=default_claims(0.05), margin=0.05, confidence=0.95, alpha_floor=0.55, felt_ttft_s=FELT_TTFT_S, slo=None)


def _who_drafted(first: Run, second: Run) -> str:
    """What two runs that are no pair in order say of themselves."""
    drafted = (first.arm is Arm.SPECULATIVE, second.arm is Arm.SPECULATIVE)
    return {(True, True): "both of these drafted", (False, False): "neither of these drafted"}.get(drafted, "these are swapped")


def gate(baseline: Run, speculative: Run, *, policy: Policy, rng: np.random.Generator) -> Verdict:
    """The verdict on one pair of runs: every claim of the policy judged, the break-even, and what a reader must know.

    Where a claim surely fails for all traffic, segments on which every claim surely holds, speed-up above 1 + margin among them, are named.

    Raises:
        BadInputError: the arms are swapped.

    """
    if baseline.arm is not Arm.BASELINE or speculative.arm is not Arm.SPECULATIVE:
        raise BadInputError(
            "a gate takes the run without drafts first and the one with drafts second, and "
            f"{_who_drafted(baseline, speculative)}; give the baseline's run, then the speculative server's"
        )
    if policy.slo is not None:
        baseline, speculative = promising(baseline, policy.slo), promising(speculative, policy.slo)
    looks = looks_stated(baseline, speculative)
    break_even = _break_even(baseline, speculative, policy.confidence if looks is None else looks.each_at(policy.confidence), rng)
    asked = _Question(baseline, speculative, policy, rng, break_even, looks)
    speedup, alpha = asked.estimate("speedup", None), asked.estimate("alpha", None)
    tokens = asked.estimate("tokens_per_step", None)
    cautions = evidence_cautions(
        baseline, speculative, alpha=alpha, break_even=break_even, alpha_floor=policy.alpha_floor, confidence=policy.confidence
    )
    extra = speedup_caution(baseline, speculative, speedup=speedup, tokens_per_step=None if tokens is None else tokens.value)
    turns = () if needs_requests(baseline, speculative) else block_cautions(baseline, speculative, confidence=policy.confidence)
    warnings = (*cautions, *([extra] if extra else []), *turns, *([] if looks is None else [looked_at_caution(looks)]))
    judged = asked.sharing_error(tuple(asked.judged(each, warnings) for each in policy.claims), warnings)
    findings = tuple(each.finding for each in judged)
    failed = any(each.holds is Holds.NO for each in findings)
    refused = any(reach_of(each.code) is Reach.REFUSES for each in warnings)
    return Verdict(
        concurrency=speculative.load.concurrency,
        findings=findings,
        segments_to_ship=asked.segments_to_ship(warnings) if failed else (),
        break_even_alpha=break_even,
        break_even_tokens_per_step=_as_tokens(break_even, speculative),
        alpha=alpha,
        tokens_per_step=tokens,
        requests_needed=_needed(judged),
        routing=None if refused else routing(baseline, speculative, confidence=policy.confidence, rng=rng),
        warnings=warnings,
    )


def _break_even(baseline: Run, speculative: Run, confidence: float, rng: np.random.Generator) -> Estimate | None:
    try:
        return break_even_alpha(baseline, speculative, confidence=confidence, rng=rng)
    except NoEvidenceError:
        return None


def _as_tokens(break_even: Estimate | None, speculative: Run) -> Estimate | None:
    """The tokens per step at which drafting pays, which is ρ, the ratio of the step times."""
    if break_even is None:
        return None
    drafted = drafted_tokens_per_step(speculative)
    value, low, high = (None if each is None else 1 + drafted * each for each in (break_even.value, break_even.low, break_even.high))
    assert value is not None
    return Estimate(value=value, low=low, high=high, confidence=break_even.confidence, n=break_even.n)


@dataclass(frozen=True, slots=True)
class _Judged:
    """A finding, and the requests per arm in all that would settle it where it cannot be told (None: unknown)."""

    finding: Finding
    needed: int | None


def _needed(judged: tuple[_Judged, ...]) -> int | None:
    """What settles every open claim; None as soon as one of them cannot be settled by requests."""
    needed = [each.needed for each in judged if each.finding.holds is Holds.CANNOT_TELL]
    known = [each for each in needed if each is not None]
    return max(known) if known and len(known) == len(needed) else None


@dataclass(frozen=True, slots=True)
class _Question:
    """Two runs and what is asked of them; `looks` None where the test's size was fixed."""

    baseline: Run
    speculative: Run
    policy: Policy
    rng: np.random.Generator
    break_even: Estimate | None
    looks: Looks | None

    def measure(self, metric: str, segment: str | None) -> Estimate:
        return self._between(metric, self.baseline, self.speculative, segment)

    def _between(self, metric: str, baseline: Run, speculative: Run, segment: str | None) -> Estimate:
        confidence, rng = self.policy.confidence, self.rng
        if self.looks is None:
            return metric_estimate(metric, baseline, speculative, segment=segment, confidence=confidence, rng=rng)
        return looked_estimate(metric, baseline, speculative, looks=self.looks, segment=segment, confidence=confidence, rng=rng)

    def estimate(self, metric: str, segment: str | None) -> Estimate | None:
        try:
            return self.measure(metric, segment)
        except NoEvidenceError:
            return None

    def judged(self, claim: Claim, warnings: tuple[Caution, ...]) -> _Judged:
        try:
            estimate = self._measured(claim)
        except NoEvidenceError as error:
            return self._open(claim, None, f"{self._missing_code()}: {error}")
        broken = next((each for each in warnings if takes_away(each, claim.metric)), None)
        if broken is not None and reach_of(broken.code) is Reach.REFUSES:
            return self._open(claim, estimate, f"{broken.code}: {broken.message}")
        found = judge(claim, estimate)
        rise_s = self._longest_rise_s(claim, trusted=broken is None) if found.holds is not Holds.YES or broken is not None else None
        if rise_s is not None and rise_s < self.policy.felt_ttft_s:
            though = found.why if broken is None else f"{broken.code}: {broken.message}"
            why = f"{UNFELT_RISE} {rise_s:.3f} s is not felt (below {self.policy.felt_ttft_s:g} s), though {though}"
            return _Judged(Finding(claim=claim, estimate=estimate, holds=Holds.YES, why=why), None)
        if broken is not None:
            return self._open(claim, estimate, f"{broken.code}: {broken.message}")
        if self._prior(claim):
            found = Finding(
                claim=claim,
                estimate=estimate,
                holds=found.holds,
                why=f"{found.why}; no break-even was measured, so the floor stands for it",
            )
        if found.holds is not Holds.CANNOT_TELL:
            return _Judged(found, None)
        return self._open(claim, estimate, f"{found.why}; {self._remedy(claim, estimate)}", needed=self._settled_by(claim, estimate))

    def _open(self, claim: Claim, estimate: Estimate | None, why: str, *, needed: int | None = None) -> _Judged:
        return _Judged(Finding(claim=claim, estimate=estimate, holds=Holds.CANNOT_TELL, why=why), needed)

    def _prior(self, claim: Claim) -> bool:
        return claim.metric == ABOVE_BREAK_EVEN and self.break_even is None

    def _measured(self, claim: Claim) -> Estimate:
        """The metric; where no break-even was measured the policy's floor stands for it."""
        if not self._prior(claim):
            return self.measure(claim.metric, claim.segment)
        alpha, floor = self.measure("alpha", claim.segment), self.policy.alpha_floor
        low, high = (None if each is None else each - floor for each in (alpha.low, alpha.high))
        return Estimate(value=alpha.value - floor, low=low, high=high, confidence=alpha.confidence, n=alpha.n)

    def _longest_rise_s(self, claim: Claim, *, trusted: bool) -> float | None:
        """The most by which a time to first token may have risen, in seconds; None for other claims, and where an end is unknown.

        Where the baseline's is not `trusted` it is taken as 0.
        """
        metric = metric_named(claim.metric)
        if metric.latency != "ttft_s" or metric.quantile is None or not metric.is_ratio or claim.at_most is None:
            return None
        name = f"ttft_{metric.statistic}_s"
        ends = [self._between(name, each, each, claim.segment) for each in (self.baseline, self.speculative)]
        low, high = ends[0].low if trusted else 0.0, ends[1].high
        return None if low is None or high is None else high - low

    def _missing_code(self) -> str:
        if needs_requests(self.baseline, self.speculative):
            return "no_per_request_data"
        return "not_measured" if self.baseline.finished and self.speculative.finished else "zero_finished"

    def _remedy(self, claim: Claim, estimate: Estimate) -> str:
        """What would settle a claim that cannot be told."""
        if needs_requests(self.baseline, self.speculative) and estimate.low is None and estimate.high is None:
            return "no_per_request_data: measure both arms request by request"
        if rests_on_buckets(claim.metric, self.baseline, self.speculative):
            return "no_per_request_data: a histogram's buckets are no finer than that; measure both arms request by request"
        needed = self._settled_by(claim, estimate)
        if needed is None or needed > max(AFFORDABLE, FAR_MORE * estimate.n):
            return self._near(claim, estimate, needed)
        return f"about {needed - estimate.n} more requests per arm are needed ({needed} in all)"

    def _near(self, claim: Claim, estimate: Estimate, needed: int | None) -> str:
        """That a claim lies too near its bound to be settled, or is too uncertain, and what a test that can be paid for would tell."""
        bound, most = _bound(claim), max(AFFORDABLE, FAR_MORE * estimate.n)
        many = "no feasible number of requests" if needed is None else f"only about {needed} requests per arm"
        told = distance_told(estimate, bound, requests=most, power=POWER)
        if told is None:
            return f"no feasible number of requests settles it from these {estimate.n}; measure longer, or move the bound"
        distance = abs(estimate.value - bound)
        return (
            f"{many} would settle it: it lies {distance:.2g} from its bound, and {most} requests per arm tell a distance of {told:.2g} or "
            "more; move the bound by as much, or take it for no difference"
        )

    def _settled_by(self, claim: Claim, estimate: Estimate) -> int | None:
        """Requests per arm in all that would settle it, more than there are; None where no number is known to."""
        if rests_on_buckets(claim.metric, self.baseline, self.speculative):
            return None
        needed, quantile = requests_to_settle(estimate, _bound(claim), power=POWER), metric_named(claim.metric).quantile
        if needed is None and quantile is not None and estimate.high is None:
            one = self.policy.confidence if self.looks is None else self.looks.each_at(self.policy.confidence)
            least = requests_to_bound_quantile(max(quantile, 1 - quantile), confidence=one)
            needed = max(least, 2 * estimate.n) if estimate.n >= least else least
        return None if needed is None else max(needed, estimate.n + 1)

    def sharing_error(self, judged: tuple[_Judged, ...], warnings: tuple[Caution, ...]) -> tuple[_Judged, ...]:
        """The claims' answers, where those that fail are held to the error that all claims share: one that fails is enough to keep.

        With two claims each has its own interval still, for two tails of a half of 1 − confidence are 1 − confidence (`stats.several`).
        """
        if len(judged) < SHARING or not any(each.finding.holds is Holds.NO for each in judged):
            return judged
        again = replace(self, rng=self.rng.spawn(1)[0])  # what else is drawn does not hang on how many claims fail
        by_name = {str(i): each for i, each in enumerate(judged)}
        shares = {name: SHARE_OF_PERCENTILE if metric_named(each.finding.claim.metric).quantile else 1.0 for name, each in by_name.items()}

        def at(name: str, confidence: float) -> _Judged:
            level = one_sided(confidence, least=self.policy.confidence)
            return replace(again, policy=replace(self.policy, confidence=level)).judged(by_name[name].finding.claim, warnings)

        def fails(name: str, confidence: float) -> bool:
            return by_name[name].finding.holds is Holds.NO and at(name, confidence).finding.holds is Holds.NO

        surely = decided_together(shares, fails, confidence=self.policy.confidence)
        left = shared_confidence({name: each for name, each in shares.items() if name not in surely}, confidence=self.policy.confidence)
        return tuple(
            _told_of_sharing(at(name, left[name]), claims=len(judged)) if each.finding.holds is Holds.NO and name in left else each
            for name, each in by_name.items()
        )

    def segments_to_ship(self, warnings: tuple[Caution, ...]) -> tuple[str, ...]:
        """The segments that surely pay, the error rate shared among all that are asked (`stats.several`)."""
        names = segments_of(self.speculative)

        def surely(name: str, confidence: float) -> bool:
            return replace(self, policy=replace(self.policy, confidence=confidence)).pays(name, warnings)

        return decided_together(dict.fromkeys(names, 1.0), surely, confidence=self.policy.confidence) if len(names) > 1 else ()

    def pays(self, segment: str, warnings: tuple[Caution, ...]) -> bool:
        """Whether a segment alone is surely faster by the margin and holds every claim."""
        gain = Claim(metric="speedup", at_most=None, at_least=1 + self.policy.margin, segment=segment)
        own = [_on_segment(each, segment) for each in self.policy.claims if each.segment in (None, segment)]
        return all(self.judged(each, warnings).finding.holds is Holds.YES for each in [gain, *own])


def _told_of_sharing(judged: _Judged, *, claims: int) -> _Judged:
    """A claim that fails by itself, and not at the confidence that it shares with the others."""
    finding = judged.finding
    return replace(judged, finding=replace(finding, why=f"{finding.why}; it fails by itself, but one of {claims} claims does so by chance"))


def _bound(claim: Claim) -> float:
    bound = claim.at_most if claim.at_most is not None else claim.at_least
    assert bound is not None
    return bound


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
