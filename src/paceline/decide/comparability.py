"""What keeps two runs from being compared, or some of their figures, and what a reader must be told: every code of the gate.

Each code says how much it takes away.

    refuses      no claim is answered: something other than drafting differs, or the traffic is none that anybody has
    some         claims on what it distorts (`DISTORTS`) are not answered, the others are
    warns        claims are answered; the reader is told

A check that lacks its evidence says nothing: the absence of a warning is no proof.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType

import numpy as np

from paceline.errors import printable
from paceline.run import Evidence, Run
from paceline.servers.sglang.log import CAP
from paceline.speculation.counts import AcceptanceCounts
from paceline.stats.paired import MATCHED_SHARE
from paceline.verdict import Caution

__all__ = [
    "CODES",
    "DISTORTS",
    "Reach",
    "comparability_cautions",
    "draft_lengths_caution",
    "reach_of",
    "synthetic_caution",
    "synthetic_cautions",
    "takes_away",
]


class Reach(StrEnum):
    """How much a code takes away."""

    REFUSES = "refuses"
    SOME = "some"
    WARNS = "warns"


CODES: Mapping[str, Reach] = MappingProxyType(
    {
        "accept_threshold_below_1": Reach.REFUSES,
        "alpha_one": Reach.WARNS,
        "alpha_zero": Reach.WARNS,
        "baseline_drafts": Reach.REFUSES,
        "below_break_even": Reach.WARNS,
        "blocks_disagree": Reach.WARNS,
        "byte_tokens": Reach.WARNS,
        "client_saturated": Reach.REFUSES,
        "cold_server": Reach.SOME,
        "different_evidence": Reach.REFUSES,
        "different_loads": Reach.REFUSES,
        "different_output_lengths": Reach.SOME,
        "different_requests": Reach.WARNS,
        "different_sampling": Reach.REFUSES,
        "different_seeds": Reach.WARNS,
        "different_targets": Reach.REFUSES,
        "different_tokenizers": Reach.REFUSES,
        "draft_length_changed": Reach.REFUSES,
        "draft_length_varies": Reach.WARNS,
        "drift": Reach.WARNS,
        "intervals_from_totals": Reach.WARNS,
        "looked_at_early": Reach.WARNS,
        "max_running_requests_48": Reach.WARNS,
        "no_break_even": Reach.WARNS,
        "no_chat_template": Reach.WARNS,
        "no_per_request_data": Reach.WARNS,
        "not_warm": Reach.WARNS,
        "one_prompt_length": Reach.WARNS,
        "one_prompt_repeated": Reach.REFUSES,
        "order_effect": Reach.WARNS,
        "other_traffic": Reach.REFUSES,
        "prefix_cache_in_one_arm": Reach.SOME,
        "profile_acceptance": Reach.WARNS,
        "random_dataset": Reach.REFUSES,
        "replayed_acceptance": Reach.WARNS,
        "requests_missing": Reach.REFUSES,
        "served_names_differ": Reach.WARNS,
        "simulated_evidence": Reach.WARNS,
        "speedup_exceeds_tokens_per_step": Reach.REFUSES,
        "stated_acceptance": Reach.WARNS,
        "synthetic_acceptance": Reach.REFUSES,
        "tokens_in_bursts": Reach.SOME,
        "unequal_batch": Reach.WARNS,
        "zero_finished": Reach.WARNS,
    }
)
FIRST_TOKENS = ("ttft", "e2e", "output_tokens_per_s", "goodput")
DISTORTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "cold_server": FIRST_TOKENS,
        "different_output_lengths": ("e2e", "output_tokens_per_s"),
        "prefix_cache_in_one_arm": FIRST_TOKENS,
        "tokens_in_bursts": ("chunk_gap",),
    }
)

SAMPLING = ("temperature", "top_p", "top_k", "max_tokens", "ignore_eos", "api", "dataset_name")
TOKENIZERS = ("tokenizer", "tokenizer_id")
RANDOM_DATASETS = ("random", "random-ids", "random-mm", "random-rerank")
NO = ("", "0", "false", "none", "off")
SYNTHETIC = ("synthetic_acceptance", "rejection_sample_method", "simulate_acc_len", "spec_synth_rates")
THRESHOLDS = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc", "accept_threshold")
COLD_FACTOR = 5.0
COLD_FEWEST = 20
COLD_S = 0.5
COLD_SUMMARY_TAIL = 20.0
MOST_OTHER = 0.05
CACHE_DIFFERS = 0.1
FEWEST_LENGTHS = 20
CHANGED = 0.02
LENGTHS = ("draft_tokens", "num_speculative_tokens", "speculative_num_steps")


def reach_of(code: str) -> Reach:
    """How much a code takes away; what a reader of files noted and is not of this table only warns."""
    return CODES.get(code, Reach.WARNS)


def takes_away(caution: Caution, metric: str) -> bool:
    """Whether a claim on `metric` is not answered because of it."""
    reach = reach_of(caution.code)
    return reach is Reach.REFUSES or metric.startswith(DISTORTS.get(caution.code, ()))


def comparability_cautions(baseline: Run, speculative: Run) -> Iterator[Caution]:
    """What the records of two runs say against comparing them, beyond what was noted when they were made."""
    for run in (baseline, speculative):
        yield from _traffic(run)
        yield from _cold(run)
    yield from _sampling(baseline, speculative)
    yield from _tokenizers(baseline, speculative)
    yield from _server(baseline, speculative)
    yield from _drafts(baseline, speculative)
    yield from _capped(baseline, speculative)


def _traffic(run: Run) -> Iterator[Caution]:
    told, arm = run.provenance.arguments, run.arm.value
    if told.get("dataset_name", "") in RANDOM_DATASETS:
        yield Caution(
            "random_dataset", f"the {arm} arm's prompts were random tokens: acceptance on them is nobody's; measure on your own prompts"
        )
    requests = 0 if run.requests is None else len(run.requests)
    if told.get("distinct_prompts") == "1" and requests > 1:
        yield Caution(
            "one_prompt_repeated", f"the {arm} arm's {requests} requests repeat one prompt: caches and drafts learn it, users send others"
        )
    elif requests >= FEWEST_LENGTHS and "distinct_prompts" not in told and run.provenance.evidence is Evidence.MEASURED:
        lengths = {each.prompt_tokens for each in run.requests or ()}
        if len(lengths) == 1 and lengths != {0}:
            yield Caution(
                "one_prompt_length",
                f"all {requests} prompts of the {arm} arm have {lengths.pop()} tokens: one prompt repeated, or random tokens",
            )
    other = run.summaries.get("other_traffic_share")
    if other is not None and other.value > MOST_OTHER:
        yield Caution(
            "other_traffic",
            f"{other.value:.0%} of the tokens that the {arm} server generated were not of this test: somebody else was on it, so its load "
            "is unknown",
        )


def _cold(run: Run) -> Iterator[Caution]:
    """The first answer far slower than the others: a compiler, a graph capture or an empty cache in the window."""
    if run.requests is None:
        mean, middle, tail = (run.summaries.get(name) for name in ("ttft_s", "ttft_p50_s", "ttft_p99_s"))
        if mean is None or middle is None or tail is None:
            return
        if mean.value > COLD_FACTOR * middle.value and tail.value > max(COLD_SUMMARY_TAIL * middle.value, COLD_S):
            yield _cold_caution(run, f"a median of {middle.value:.3g} s, a mean of {mean.value:.3g} s and a P99 of {tail.value:.3g} s")
        return
    timings = sorted((each.timing for each in run.finished if each.timing.chunk_at_s.size), key=lambda each: each.sent_at_s)
    if len(timings) < COLD_FEWEST:
        return
    first_s, rest_s = timings[0].ttft_s, np.array([each.ttft_s for each in timings[1:]])
    # In a closed loop the first answers wait for one another's prompts, so as many times the usual is still no sign.
    usual_s = float(np.median(rest_s)) * ((run.load.concurrency or 0) + 1)
    if first_s > max(COLD_FACTOR * float(np.quantile(rest_s, 0.95)), usual_s, COLD_S):
        yield _cold_caution(run, f"the first took {first_s:.3g} s, half of the others at most {float(np.median(rest_s)):.3g} s")


def _cold_caution(run: Run, figures: str) -> Caution:
    return Caution(
        "cold_server",
        f"times to first token in the {run.arm.value} arm look like a server that was still compiling or cold ({figures}); warm it up and "
        "measure again",
    )


def _sampling(baseline: Run, speculative: Run) -> Iterator[Caution]:
    ours, theirs = baseline.provenance.arguments, speculative.provenance.arguments
    for name in SAMPLING:
        if name in ours and name in theirs and ours[name] != theirs[name]:
            yield Caution(
                "different_sampling",
                f"the arms were asked with another {name} ({printable(ours[name])} against {printable(theirs[name])}), and lengths and "
                "acceptance hang on it: they do not compare",
            )
    seeds = (baseline.provenance.seed, speculative.provenance.seed)
    if None not in seeds and seeds[0] != seeds[1]:
        yield Caution(
            "different_seeds", f"the arms were sampled with other seeds ({seeds[0]} against {seeds[1]}): other requests or answers"
        )


def _tokenizers(baseline: Run, speculative: Run) -> Iterator[Caution]:
    ours, theirs = baseline.provenance.arguments, speculative.provenance.arguments
    for name in TOKENIZERS:
        if name in ours and name in theirs and ours[name] != theirs[name]:
            yield _tokens_differ(f"{printable(ours[name])} against {printable(theirs[name])}")
    if baseline.requests is None or speculative.requests is None:
        return
    lengths = {each.id: each.prompt_tokens for each in baseline.finished}
    twins = [each for each in speculative.finished if each.id in lengths and each.prompt_tokens and lengths[each.id]]
    other = sum(lengths[each.id] != each.prompt_tokens for each in twins)
    if len(twins) >= FEWEST_LENGTHS and other > (1 - MATCHED_SHARE) * len(twins):
        yield _tokens_differ(f"{other} of {len(twins)} prompts with the same id have another number of tokens")


def _tokens_differ(how: str) -> Caution:
    return Caution(
        "different_tokenizers", f"the arms count tokens differently ({how}): another tokenizer, template or prompt; no pace compares"
    )


def _server(baseline: Run, speculative: Run) -> Iterator[Caution]:
    hits = [each.summaries.get("prefix_cache_hit_share") for each in (baseline, speculative)]
    if hits[0] is not None and hits[1] is not None and abs(hits[0].value - hits[1].value) > CACHE_DIFFERS:
        yield Caution(
            "prefix_cache_in_one_arm",
            f"{hits[0].value:.0%} of prompt tokens came from the prefix cache without drafts and {hits[1].value:.0%} with: "
            "times to first token differ for that; start both with an empty cache",
        )
    told = speculative.provenance.arguments
    yield from synthetic_cautions(speculative)
    for name in THRESHOLDS:
        if name in told and _number(told[name]) < 1:
            yield Caution(
                "accept_threshold_below_1",
                f"{name} = {printable(told[name])}: drafts are accepted that the target would not have chosen, so answers are not its own "
                "and acceptance is not that of a lossless server",
            )


def synthetic_cautions(run: Run) -> Iterator[Caution]:
    """That the run's acceptance was made up, where its provenance says so."""
    told = run.provenance.arguments
    for name in SYNTHETIC:
        if told.get(name, "").lower() not in (*NO, "strict", "standard", "probabilistic"):
            yield synthetic_caution(name, told[name])


def synthetic_caution(name: str, value: str) -> Caution:
    """That a server was told by this option what to accept."""
    return Caution("synthetic_acceptance", f"the server was told what to accept ({name} = {printable(value)}): its answers are no text")


def _number(text: str) -> float:
    """The number, 1 where it is none (a threshold that nobody can read breaks nothing)."""
    try:
        return float(text)
    except ValueError:
        return 1.0


def _drafts(baseline: Run, speculative: Run) -> Iterator[Caution]:
    ours, theirs = baseline.speculation, speculative.speculation
    if ours is not None and theirs is not None and ours.draft_tokens != theirs.draft_tokens:
        yield Caution(
            "draft_length_changed", f"both arms draft, one up to {ours.draft_tokens} tokens and the other up to {theirs.draft_tokens}"
        )
    stated = [
        {each.provenance.arguments[name] for name in LENGTHS if name in each.provenance.arguments} for each in (baseline, speculative)
    ]
    if stated[0] and stated[1] and stated[0] != stated[1]:
        shown = " against ".join(", ".join(map(printable, sorted(each))) for each in stated)
        yield Caution("draft_length_changed", f"the arms state other draft lengths ({shown}): which of them was compared is not known")
    counts = _pooled(speculative)
    if theirs is None or theirs.tree is not None or counts is None or not counts.drafts:
        return
    drafted, deepest = counts.drafted_tokens / counts.drafts, len(counts.accepted_per_position or ())
    if drafted > theirs.draft_tokens * (1 + CHANGED) or deepest > theirs.draft_tokens:
        yield Caution(
            "draft_length_changed",
            f"the run says that up to {theirs.draft_tokens} tokens are drafted, its counters say {max(drafted, deepest):.3g}: "
            "the draft length was changed",
        )


def draft_lengths_caution(runs: Sequence[Run]) -> Caution | None:
    """That the speculative runs of several loads drafted at other lengths; None where what they say agrees."""
    lengths = {str(each.load): length for each in runs if (length := _length(each)) is not None}
    if len(set(lengths.values())) < 2:
        return None
    shown = ", ".join(f"{length:.3g} at {load}" for load, length in lengths.items())
    return Caution(
        "draft_length_varies",
        f"drafts were not equally long at all loads ({shown}): each point is decided for its own length, and one setting gives one of "
        "them; measure all points at the length that is to ship, or ship the server that changes it",
    )


def _length(run: Run) -> float | None:
    """Tokens per draft: as counted where every step drafts as many as it may, else as stated; None where neither is known."""
    counts, how = _pooled(run), run.speculation
    if counts is not None and counts.drafts and (how is None or how.method.drafts_every_step) and (how is None or how.tree is None):
        return round(counts.drafted_tokens / counts.drafts, 1)  # answers that end in mid-draft cut a little
    return None if how is None else float(how.draft_tokens)


def _pooled(run: Run) -> AcceptanceCounts | None:
    return AcceptanceCounts.pooled(run.acceptance_by_segment.values()) if run.acceptance_by_segment else None


def _capped(baseline: Run, speculative: Run) -> Iterator[Caution]:
    asked = speculative.load.concurrency
    told = [_most_running(each) for each in (baseline, speculative)]
    if told[1] == CAP and told[0] is not None and told[0] > CAP:
        yield _sglang_cap(f"ran {CAP} requests at most, the plain one {told[0]:g}")
    cap = speculative.provenance.arguments.get("max_running_requests")
    if cap == str(CAP) and baseline.provenance.arguments.get("max_running_requests") != cap:
        yield _sglang_cap("says so")
    if asked is None or baseline.requests is None or speculative.requests is None:
        return
    plain, drafted = _most_decoding(baseline), _most_decoding(speculative)
    if drafted == CAP < min(asked, plain):
        yield _sglang_cap(f"decoded {drafted} at once and never more, of {asked} in flight")


def _most_running(run: Run) -> float | None:
    """The most requests that a server's gauge showed running, None where it was not read."""
    gauge = run.summaries.get("requests_running")
    return None if gauge is None else gauge.value if gauge.high is None else gauge.high


def _sglang_cap(why: str) -> Caution:
    return Caution(
        "max_running_requests_48",
        f"the speculative server {why}: SGLang sets max_running_requests to {CAP} with speculation on unless it is given; give both "
        "servers the same",
    )


def _most_decoding(run: Run) -> int:
    """The most requests that were between their first and their last token at one time."""
    spans = [each.timing.chunk_at_s for each in run.finished if each.timing.chunk_at_s.size > 1]
    if not spans:
        return 0
    starts, ends = (np.sort(np.array([float(each[place]) for each in spans])) for place in (0, -1))
    return int((np.arange(1, starts.size + 1) - np.searchsorted(ends, starts, side="right")).max())
