"""What a reader must know about the evidence before believing a comparison: each with a stable code."""

import re
from collections.abc import Iterator

from paceline.decide.break_even import same_load
from paceline.decide.comparability import comparability_cautions
from paceline.decide.own_share import client_cautions
from paceline.decide.totals import totals_caution
from paceline.errors import printable
from paceline.run import Evidence, Run
from paceline.stats.paired import same_requests
from paceline.verdict import Caution, Estimate

__all__ = ["evidence_cautions", "speedup_caution"]

MOST_MISSING = 0.01  # beyond it what is left of an arm is a selection
WORDS = re.compile(r"[a-z0-9.]+")
FORMATS = re.compile(r"(?:nv|mx)?fp\d+|b?f?(?:16|32)|int\d+|w\d+a\d+|awq|gptq|gguf|q\d\w*|\dbit|bnb|quantized")
LENGTHS_DIFFER = 0.05  # mean output lengths further apart than this are other answers, not numerical noise

RESTS_ON = {
    Evidence.SIMULATED: ("simulated_evidence", "figures are simulated: they rank alternatives, they do not replace a measurement"),
    Evidence.PROFILE: ("profile_acceptance", "acceptance comes from a published profile of other traffic, not from this traffic"),
    Evidence.REPLAYED: ("replayed_acceptance", "acceptance was replayed offline: no server decoded this traffic with drafts"),
    Evidence.STATED: ("stated_acceptance", "acceptance was stated, not measured"),
}


def evidence_cautions(
    baseline: Run, speculative: Run, *, alpha: Estimate | None, break_even: Estimate | None, alpha_floor: float | None, confidence: float
) -> tuple[Caution, ...]:
    """Every caution that the two runs carry or give rise to, in a fixed order and each once; `alpha_floor` None names no prior."""
    rests = totals_caution((baseline, speculative), confidence=confidence)
    found = (
        *baseline.cautions,
        *speculative.cautions,
        *_rests_on(baseline, speculative),
        *_targets(baseline, speculative),
        *_loads(baseline, speculative),
        *_requests(baseline, speculative),
        *([] if rests is None else [rests]),
        *comparability_cautions(baseline, speculative),
        *_alphas(alpha, break_even, alpha_floor),
        *client_cautions((baseline, speculative)),
    )
    return tuple(dict.fromkeys(found))


def _rests_on(baseline: Run, speculative: Run) -> Iterator[Caution]:
    """What each arm's figures rest on, and what the acceptance that a simulation was given rests on, with its label."""
    if (baseline.provenance.evidence is Evidence.SIMULATED) != (speculative.provenance.evidence is Evidence.SIMULATED):
        yield Caution("different_evidence", "one arm is simulated and the other is not: what differs may be the simulator, not the drafts")
    told = speculative.provenance.arguments
    kinds = {each.provenance.evidence.value for each in (baseline, speculative)} | {told.get("acceptance_evidence", "")}
    for evidence, (code, message) in RESTS_ON.items():
        if evidence.value in kinds:
            more = told.get("model_range" if evidence is Evidence.SIMULATED else "acceptance", "")
            yield Caution(code, f"{message}: {more}" if more else message)
    if told.get("tokens", "").startswith("bytes"):
        yield Caution("byte_tokens", "tokens are UTF-8 bytes, not the target's: lengths and n-gram acceptance are off; give --tokenizer")


def _targets(baseline: Run, speculative: Run) -> Iterator[Caution]:
    for key in ("model", "target", "hardware"):
        ours, theirs = (each.provenance.arguments.get(key) for each in (baseline, speculative))
        if ours is None or theirs is None or ours == theirs:
            continue
        shown = f"{printable(ours)} against {printable(theirs)}"
        if key == "model" and _same_but_for_a_label(ours, theirs):
            yield Caution(
                "served_names_differ",
                f"the arms are served under two names ({shown}), of which one has all words of the other: taken for one model",
            )
        else:
            yield Caution("different_targets", f"the arms differ in {key} ({shown}): they do not compare")


def _same_but_for_a_label(ours: str, theirs: str) -> bool:
    """Whether one served name is the other with more words, none of which names a number format."""
    words = [set(WORDS.findall(each.lower())) for each in (ours, theirs)]
    more = words[0] ^ words[1]
    return (words[0] <= words[1] or words[1] <= words[0]) and not any(FORMATS.fullmatch(each) for each in more)


def _loads(baseline: Run, speculative: Run) -> Iterator[Caution]:
    if not same_load(baseline, speculative):
        yield Caution(
            "different_loads",
            f"the arms ran under different loads ({baseline.load} against {speculative.load}), so they do not compare",
        )
    elif baseline.load.rate_per_s is not None:
        yield Caution(
            "unequal_batch", "in an open loop the faster arm runs smaller batches, so part of a speed-up is shorter queues, not fewer steps"
        )


def _requests(baseline: Run, speculative: Run) -> Iterator[Caution]:
    if baseline.requests is None or speculative.requests is None:
        yield Caution(
            "no_per_request_data",
            "a run has only aggregates: a figure whose requests nobody counted is a point, and a point decides nothing",
        )
        return
    yield from _missing(baseline, speculative)
    empty = [each.arm.value for each in (baseline, speculative) if not each.finished]
    if empty:
        yield Caution("zero_finished", f"no request finished in the {' and the '.join(empty)} arm")
        return
    if not same_requests(baseline, speculative):
        yield Caution("different_requests", "the arms served different requests, so they are compared as groups and not in pairs")
    ours, theirs = (sum(r.output_tokens for r in each.finished) / len(each.finished) for each in (baseline, speculative))
    if abs(theirs - ours) > LENGTHS_DIFFER * max(ours, theirs):
        yield Caution(
            "different_output_lengths",
            f"answers average {ours:.0f} tokens without drafts and {theirs:.0f} with: end-to-end times and throughput do not compare",
        )


def _missing(baseline: Run, speculative: Run) -> Iterator[Caution]:
    """That requests did not finish, or are not in an arm's file although the other arm served them in between."""
    missing = {}
    for run, other in ((baseline, speculative), (speculative, baseline)):
        sent = len(run.requests or ()) + _left_out(run, other)
        if sent:
            missing[run.arm.value] = 1 - len(run.finished) / sent
    if any(share > MOST_MISSING for share in missing.values()):
        shown = " and ".join(f"{share:.1%} in the {arm} arm" for arm, share in missing.items())
        yield Caution(
            "requests_missing",
            f"requests did not finish or were left out ({shown}); those that did are the easy ones, so the arms do not compare",
        )


def _left_out(run: Run, other: Run) -> int:
    """How many requests the other arm served between those of this one; a test that was shorter leaves none out.

    None either where the arms served different traffic: not nearly the same requests, nor only such as the other served.
    """
    own = {each.id: each.prompt_tokens for each in run.requests or ()}
    sent = sorted(other.requests or (), key=lambda each: each.timing.sent_at_s)
    known = [own.get(each.id) == each.prompt_tokens for each in sent]
    if True not in known or (sum(known) < len(own) and not same_requests(run, other)):
        return 0
    return known[: len(known) - known[::-1].index(True)].count(False)


def _alphas(alpha: Estimate | None, break_even: Estimate | None, alpha_floor: float | None) -> Iterator[Caution]:
    if alpha is None:
        return
    if alpha.value == 0:
        yield Caution("alpha_zero", "not one draft was accepted: the draft belongs to another target, or is loaded wrongly")
    if alpha.value == 1:
        yield Caution("alpha_one", "every draft was accepted: acceptance is synthetic, or the draft is the target itself")
    if break_even is None and alpha_floor is not None:
        stands = "clears" if alpha.value >= alpha_floor else "lies below"
        yield Caution(
            "no_break_even",
            "no step-time ratio was measured, so no break-even is known; as a prior "
            f"alpha {alpha.value:.3g} {stands} the floor {alpha_floor:g}",
        )
    if break_even is not None and alpha.value < break_even.value:
        yield Caution(
            "below_break_even", f"alpha {alpha.value:.3g} lies below the break-even {break_even.value:.3g} of this load: drafting slows it"
        )


def speedup_caution(baseline: Run, speculative: Run, *, speedup: Estimate | None, tokens_per_step: float | None) -> Caution | None:
    """The arms are not comparable if the speed-up surely exceeds the tokens per step: a speculative step is no shorter than a plain one.

    Holds at equal batch, so it is not asked in an open loop, where the faster arm runs smaller batches. "Surely" is the low end, or the
    value where that end is unknown.
    """
    open_loop = baseline.load.rate_per_s is not None or speculative.load.rate_per_s is not None
    if speedup is None or tokens_per_step is None or open_loop or baseline.load.concurrency != speculative.load.concurrency:
        return None
    surely = speedup.value if speedup.low is None else speedup.low
    if surely <= tokens_per_step:
        return None
    message = (
        f"speed-up {surely:.3g} exceeds {tokens_per_step:.3g} tokens per step: the arms differ in more than drafting and do not compare"
    )
    return Caution("speedup_exceeds_tokens_per_step", message)
