"""From a verdict to a staged plan: what to run, what must hold to go on, what is watched and how to go back.

1. Speculation is opt-in: it stays off until the gate says ship for this traffic at this load.
2. Nothing is exposed before the gate: baseline, canary off traffic, acceptance by segment, gate and the tail check all have share 0.
3. Where the verdict is keep or cannot tell, the plan says so at the top and opens with what would change the answer; the ramp stays in the
   plan, behind the gate, for when it does.
4. A ramp stage lasts until its canary has served the requests that the comparison needs, and never less than the shortest stage.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, log1p

from paceline.decide.gate import POWER, Policy, production_verdict
from paceline.errors import BadInputError
from paceline.plan import Guard, Plan, Stage
from paceline.speculation.method import Speculation
from paceline.stats.paired import requests_needed, requests_to_bound_quantile
from paceline.verdict import Claim, Decision, Holds, Verdict

__all__ = ["RolloutSetup", "requests_per_arm", "rollout_guards", "rollout_plan"]

RAMP = (0.01, 0.05, 0.25, 0.50, 1.0)
TAIL_QUANTILE = 0.99


@dataclass(frozen=True, slots=True)
class RolloutSetup:
    """What is rolled out, where, and on what traffic.

    Attributes:
        target: the model's name.
        speculation: method and draft length.
        draft: the draft's name, None where the method needs none (n-gram, suffix).
        engine: the server and its version, as "vllm 0.32.0".
        baseline_command: how the plain server is started, one string.
        speculative_command: how the speculative one is started.
        segments: each segment's share of generated tokens; they add up to 1.
        concurrency_points: requests in flight to measure at.
        production_concurrency: requests in flight in production, the point that decides.
        requests_per_s: production traffic, None where unknown.
        spread: standard deviation of paired log-ratios of TPOT, from a pilot.
        shortest_stage_s: seconds every ramp stage lasts at least.
        patience_s: seconds a tail or rate guard may be breached before it acts.
        chunk_gap_p99_s: the longest visible gap that users may see at the 99th percentile.
        error_rate: share of requests that may fail.

    """

    target: str
    speculation: Speculation
    draft: str | None
    engine: str
    baseline_command: str
    speculative_command: str
    segments: Mapping[str, float]
    concurrency_points: tuple[int, ...]
    production_concurrency: int
    requests_per_s: float | None
    spread: float
    shortest_stage_s: float
    patience_s: float
    chunk_gap_p99_s: float
    error_rate: float

    def __post_init__(self) -> None:
        """Reject shares that do not add up and a production concurrency that is not measured.

        Raises:
            BadInputError: with the value.

        """
        if abs(sum(self.segments.values()) - 1) > 1e-6 or any(each < 0 for each in self.segments.values()):
            raise BadInputError(f"segment shares {dict(self.segments)!r} do not add up to 1")
        if self.production_concurrency not in self.concurrency_points:
            raise BadInputError(
                f"production concurrency {self.production_concurrency!r} is not among the points {list(self.concurrency_points)!r}"
            )
        if self.requests_per_s is not None and not self.requests_per_s > 0:
            raise BadInputError(f"traffic of {self.requests_per_s!r} requests/s is not above 0")

    @property
    def what(self) -> str:
        """Method and draft length, as a title says them."""
        draft = f" with {self.draft}" if self.draft else ""
        return f"{self.speculation.method.value}{draft}, K = {self.speculation.draft_tokens}"


def requests_per_arm(setup: RolloutSetup, policy: Policy) -> int:
    """Requests per arm that show a gain of the policy's margin with 80 % power and bound the 99th percentile, whichever is more."""
    effect = log1p(policy.margin) if policy.margin else log1p(0.01)
    mean = requests_needed(effect=effect, spread=setup.spread, confidence=policy.confidence, power=POWER)
    return max(mean, requests_to_bound_quantile(TAIL_QUANTILE, confidence=policy.confidence))


def rollout_guards(setup: RolloutSetup, policy: Policy, verdict: Verdict) -> tuple[Guard, ...]:
    """What is watched while traffic is exposed. The tails' bounds are the policy's own. Acceptance is held, where a break-even is known,
    above the α that still gives half the margin: α_be + margin/2 · ρ/K with ρ = 1 + K·α_be; with four times the patience, for it drifts.
    """
    bounds = {each.metric: each.at_most for each in policy.claims if each.at_most is not None and each.segment is None}
    patience = setup.patience_s
    guards = [
        Guard(metric="tpot_p99.ratio", at_most=bounds.get("tpot_p99.ratio", 1.05), at_least=None, breach_after_s=patience, felt_s=None),
        Guard(
            metric="ttft_p99.ratio",
            at_most=bounds.get("ttft_p99.ratio", 1.10),
            at_least=None,
            breach_after_s=patience,
            felt_s=policy.felt_ttft_s or None,
        ),
        Guard(metric="chunk_gap_p99_s", at_most=setup.chunk_gap_p99_s, at_least=None, breach_after_s=patience, felt_s=None),
        Guard(metric="error_rate", at_most=setup.error_rate, at_least=None, breach_after_s=patience / 4, felt_s=None),
        Guard(metric="preemptions_per_request.ratio", at_most=2.0, at_least=None, breach_after_s=patience, felt_s=None),
    ]
    even = verdict.break_even_alpha
    if even is not None and 0 < even.value < 1:
        K = setup.speculation.draft_tokens
        floor = min(1.0, even.value + policy.margin / 2 * (1 + K * even.value) / K)
        guards.insert(2, Guard(metric="alpha", at_most=None, at_least=floor, breach_after_s=4 * patience, felt_s=None))
    return tuple(guards)


def rollout_plan(setup: RolloutSetup, verdicts: tuple[Verdict, ...], *, policy: Policy) -> Plan:
    """The plan that follows from the verdicts, of which the largest concurrency decides.

    Raises:
        NoEvidenceError: there is no verdict.

    """
    verdict = production_verdict(verdicts)
    needed = requests_per_arm(setup, policy)
    routed = verdict.segments_to_ship if verdict.decision is Decision.SHIP_SEGMENTS else ()
    return Plan(
        title=f"{_standing(verdict)}: {setup.what} on {setup.target} ({setup.engine})",
        opt_in=_opt_in(verdict),
        measurement=_measurement(setup, policy, needed),
        stages=(
            *_capped(verdict, verdicts),
            *_changing(setup, verdict),
            *_before_exposure(setup, policy, needed),
            *_ramp(setup, needed, routed),
            _done(setup, routed),
        ),
        guards=rollout_guards(setup, policy, verdict),
        on_breach=(
            "send all traffic to the baseline replicas at once; do not wait for the canary's requests to finish before routing new ones",
            "look for no switch: speculation is chosen when a server starts, so the way back is the other pool or a restart",
            f"keep one speculative replica off traffic for the diagnosis; restart the others with: {setup.baseline_command}",
            "save both arms' /metrics and logs of the last stage before anything restarts",
            "start again from the gate, not from the stage that broke",
        ),
    )


def _standing(verdict: Verdict) -> str:
    return {
        Decision.SHIP: "Ship",
        Decision.SHIP_SEGMENTS: f"Ship for {', '.join(verdict.segments_to_ship)} only",
        Decision.KEEP: "Keep plain decoding, for now",
        Decision.CANNOT_TELL: "Cannot tell yet",
    }[verdict.decision]


def _opt_in(verdict: Verdict) -> str:
    alpha, even = verdict.alpha, verdict.break_even_alpha
    figures = f" Here: acceptance {alpha.value:.3g}, break-even {even.value:.3g}." if alpha is not None and even is not None else ""
    return (
        "Speculation stays off unless asked for: whether it is faster depends on the traffic (how often drafts are accepted) and on the "
        "load (what a longer step costs at that batch), and both move." + figures
    )


def _measurement(setup: RolloutSetup, policy: Policy, needed: int) -> dict[str, str]:
    shares = ", ".join(f"{name} {share:.0%}" for name, share in sorted(setup.segments.items(), key=lambda each: -each[1]))
    points = ", ".join(str(each) for each in setup.concurrency_points)
    tail = requests_to_bound_quantile(TAIL_QUANTILE, confidence=policy.confidence)
    return {
        "benchmark": (
            "the same requests to both arms, in alternating blocks, at fixed concurrency, temperature sent with every request; time per "
            "output token and time to first token of each request, never the gap between chunks"
        ),
        "traffic": f"production's mix by generated tokens: {shares}; prompts from production logs, never random tokens",
        "concurrency": f"{points} in flight; {setup.production_concurrency} is production and decides",
        "deciding metric": "; ".join(_claim_words(each, policy) for each in policy.claims)
        + f" (whole interval at {policy.confidence:.0%})",
        "requests": (
            f"{needed} per arm and point: enough to show a gain of {policy.margin:.0%} with {POWER:.0%} power when paired ratios spread by "
            f"{setup.spread:.2g}, and at least {tail} to bound a 99th percentile"
        ),
    }


def _capped(verdict: Verdict, verdicts: tuple[Verdict, ...]) -> list[Stage]:
    """Where drafting pays at a lower concurrency only, that is the first thing to know."""
    pays = [each.concurrency for each in verdicts if each.decision is Decision.SHIP and each.concurrency is not None]
    if verdict.decision is Decision.SHIP or not pays:
        return []
    most = max(pays)
    do = (
        f"hold speculative replicas at {most} requests in flight (vLLM: --max-num-seqs {most}), with more replicas for the same traffic",
        f"then measure and gate at {most} in flight, which is production for them",
    )
    purpose = f"uses that it pays up to {most} requests in flight"
    return [_off("cap-concurrency", purpose, do, (f"every claim holds at {most} in flight", "the extra replicas are worth it"))]


def _changing(setup: RolloutSetup, verdict: Verdict) -> list[Stage]:
    """What would change the answer, where it is not yes."""
    if verdict.decision in (Decision.SHIP, Decision.SHIP_SEGMENTS):
        return []
    if verdict.decision is Decision.CANNOT_TELL:
        do = tuple(each.why for each in verdict.findings if each.holds is Holds.CANNOT_TELL) or ("measure both arms request by request",)
        return [_off("measure-more", "finds out what the evidence so far cannot tell", do, ("no claim is left at cannot tell",))]
    alpha, even, K = verdict.alpha, verdict.break_even_alpha, setup.speculation.draft_tokens
    stages = []
    if K > 1:
        do = (
            f"start a replica off traffic with a draft length of {max(1, K // 2)}; measure it at {setup.production_concurrency} in flight",
        )
        stages.append(
            _off("shorter-draft", "finds out whether fewer drafts pay: they cost less to verify", do, ("speed-up above the margin",))
        )
    if alpha is not None and even is not None and alpha.value < even.value < 1:
        do = (
            "train an EAGLE-3 head on this traffic's own answers, the target's at temperature 0",
            "measure acceptance with the new head",
        )
        bar = f"acceptance above {even.value:.3g}, this load's break-even"
        # Of a method that skips steps the break-even is per drafted token of fewer steps: no bar for a head, which drafts in all.
        wanted = (bar if setup.speculation.method.drafts_every_step else "speed-up above the margin",)
        stages.append(_off("domain-head", f"raises acceptance, which is {alpha.value:.3g} here", do, wanted))
    if len(setup.segments) > 1:
        do = ("gate each segment by itself: add claims per segment to the policy", "route only segments that pay to speculative replicas")
        stages.append(_off("route-segments", "finds segments that pay alone", do, ("at least one segment passes every claim",)))
    return stages or [
        _off("another-draft", "looks for a cheaper draft", ("forecast n-gram and suffix drafting",), ("speed-up above the margin",))
    ]


def _claim_words(claim: Claim, policy: Policy) -> str:
    felt = claim.metric.startswith("ttft_") and claim.metric.endswith(".ratio") and claim.at_most is not None and policy.felt_ttft_s > 0
    return f"{claim}, or a rise below {policy.felt_ttft_s:g} s" if felt else str(claim)


def _off(name: str, purpose: str, do: tuple[str, ...], passes_when: tuple[str, ...], *, requests: int = 0) -> Stage:
    return Stage(name=name, purpose=purpose, traffic_share=0.0, min_duration_s=0.0, min_requests=requests, do=do, passes_when=passes_when)


def _before_exposure(setup: RolloutSetup, policy: Policy, needed: int) -> list[Stage]:
    points, most = ",".join(str(each) for each in setup.concurrency_points), setup.production_concurrency
    claims = tuple(_claim_words(each, policy) for each in policy.claims)
    bench = f"send {needed} requests of the log to each arm at each concurrency ({points}), keeping each one's latencies"
    scrape = "scrape /metrics of the arm before and after each point, with nothing else on the server"
    steady = ("no errors", "output tokens and lengths are those of production")
    return [
        _off("baseline", "measures what users have today", (setup.baseline_command, bench, scrape), steady, requests=needed),
        _off(
            "enable",
            "starts the canary beside production, on a replica that gets no user traffic",
            (setup.speculative_command, "send it a copy of the log (offline or shadow), never a user's request"),
            ("the server reports drafted tokens above 0", "greedy answers agree with the baseline as often as the baseline with itself"),
        ),
        _off(
            "acceptance",
            f"measures acceptance for each of {len(setup.segments)} segments, pooled by drafted tokens",
            (
                f"paceline bench --speculative URL --traffic LOG --concurrency {setup.production_concurrency} --requests {needed} "
                "--out acceptance",
                "with another load-tester: one segment at a time, `paceline measure --before before.prom --after after.prom` around it",
            ),
            ("every segment has an interval for alpha", "the blended alpha lies above the break-even"),
            requests=needed,
        ),
        _off(
            "gate",
            "decides, at each concurrency",
            (
                f"paceline bench --baseline URL --speculative URL --traffic LOG --concurrency {points} --requests {needed} --out bench",
                f"paceline gate bench/runs/c{most:04d}-baseline.json bench/runs/c{most:04d}-speculative.json, and each lower point alike",
                "with another load-tester: the files it writes, or run files (docs/reference/run-file.md)",
            ),
            claims,
            requests=needed,
        ),
        _off(
            "tail-check",
            f"holds the 99th percentiles at {setup.production_concurrency} in flight, where batches are largest",
            (bench.replace(f"each concurrency ({points})", f"{setup.production_concurrency} in flight"),),
            tuple(each for each in claims if "p99" in each) or claims,
            requests=max(needed, requests_to_bound_quantile(TAIL_QUANTILE, confidence=policy.confidence)),
        ),
    ]


def _ramp(setup: RolloutSetup, needed: int, routed: tuple[str, ...]) -> list[Stage]:
    """The exposed stages. With only some segments shipping, a share is of all traffic and stops at those segments' own."""
    top = sum(setup.segments.get(each, 0.0) for each in routed) if routed else 1.0
    only = f" of {', '.join(routed)}" if routed else ""
    stages = []
    for share in RAMP:
        exposed = min(1.0, share * top)
        wait_s = 0.0 if setup.requests_per_s is None or exposed == 0 else ceil(needed / (setup.requests_per_s * exposed))
        stages.append(
            Stage(
                name=f"ramp-{share:.0%}".removesuffix("%"),
                purpose=f"exposes {share:.0%} of traffic{only} while the rest stays the control",
                traffic_share=exposed,
                min_duration_s=max(setup.shortest_stage_s, wait_s),
                min_requests=needed,
                do=(f"route {share:.0%} of requests{only} to the speculative replicas", "watch the guards"),
                passes_when=("no guard breached", f"{needed} canary requests finished"),
            )
        )
    return stages


def _done(setup: RolloutSetup, routed: tuple[str, ...]) -> Stage:
    where = f"{', '.join(routed)} decode" if routed else "all traffic decodes"
    return Stage(
        name="done",
        purpose=f"{where} with drafts; watched on, for acceptance drifts with traffic and upgrades",
        traffic_share=min(1.0, sum(setup.segments.get(each, 0.0) for each in routed)) if routed else 1.0,
        min_duration_s=0.0,
        min_requests=0,
        do=("watch the guards", "gate again after each upgrade of engine, target or draft"),
        passes_when=("no guard breached",),
    )
