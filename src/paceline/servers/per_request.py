"""What a server says of one request's own drafts, in the last messages of its answer.

    vLLM ≥ 0.29       metrics.speculative_decoding       counts, and steps by accepted drafts (only with --per-request-spec-decode-metrics)
    SGLang ≥ 0.5.19   sglext.spec_tokens_details         counts, and steps by accepted drafts (only if asked: return_spec_tokens_details)
    llama.cpp         timings.draft_n, draft_n_accepted  totals; left out where nothing was drafted
    TensorRT-LLM      choices[].avg_decoded_tokens_per_iter   a ratio, so no counts

Rules. What contradicts itself is dropped with a caution, never mended. vLLM counts only steps that had a draft; SGLang and llama.cpp
verify in every step. "Drafted" is what was proposed, in SGLang the configured width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite

from paceline.errors import BadInputError, is_count, printable
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import MOST_DRAFT_TOKENS
from paceline.verdict import Caution

__all__ = ["OwnDrafts", "own_drafts"]

MOST = 2**40  # more than any request has: a count above it is a fault, and its sum with others must stay an integer that JSON keeps


@dataclass(frozen=True, slots=True)
class OwnDrafts:
    """What one answer says of its own drafts.

    Attributes:
        dialect: whose way of saying it, None where nothing was said.
        counts: the counts, None where it gave none or they contradict each other.
        tokens_per_step: the server's own ratio, where it gives no counts.
        cautions: what is doubtful.

    """

    dialect: str | None
    counts: AcceptanceCounts | None
    tokens_per_step: float | None
    cautions: tuple[Caution, ...]


def own_drafts(said: Mapping[str, object], *, output_tokens: int, messages: int) -> OwnDrafts:
    """What an answer says of its drafts; `said` holds the last `metrics`, `sglext`, `timings` and `avg_decoded_tokens_per_iter` of it.

    vLLM does not count steps without a draft. They follow from the answer: each step emits what it accepted and one more token, so there
    were output tokens − 1 − accepted steps, and up to a draft's length more where a stop cut the last one short. Where the number of
    `messages` that brought tokens (the first is prefill's) falls into that range, it tells which.
    """
    try:
        return _fitting(_own_drafts(said, output_tokens=output_tokens, messages=messages), output_tokens)
    except BadInputError as error:
        message = f"a server's counts of one request's drafts contradict each other, so they are left out: {error}"
        return OwnDrafts(None, None, None, (Caution("unlawful_acceptance", message),))


def _fitting(found: OwnDrafts, output_tokens: int) -> OwnDrafts:
    """The same, where the answer is long enough for its counts: a step emits a token at least, and a stop cuts off one draft at most.

    Raises:
        BadInputError: more steps, or more accepted, than the answer's tokens allow.

    """
    counts = found.counts
    if counts is None:
        return found
    steps = max(counts.drafts, counts.steps or 0)
    if steps > output_tokens:
        raise BadInputError(f"{steps} steps in an answer of {output_tokens} tokens")
    longest = min(-(-counts.drafted_tokens // counts.drafts), MOST_DRAFT_TOKENS) if counts.drafts else 0
    if counts.accepted_tokens > output_tokens + longest:
        raise BadInputError(f"{counts.accepted_tokens} drafted tokens accepted in an answer of {output_tokens}")
    return found


def _own_drafts(said: Mapping[str, object], *, output_tokens: int, messages: int) -> OwnDrafts:
    metrics, sglext, timings = (_fields(said.get(name)) for name in ("metrics", "sglext", "timings"))
    if speculative := _fields(metrics.get("speculative_decoding")):
        counts = _vllm(speculative)
        steps = _steps(counts, longest_tokens=_count(speculative, "num_spec_tokens"), output_tokens=output_tokens, messages=messages)
        return OwnDrafts("vllm", replace(counts, steps=steps), None, ())
    if isinstance(sglext.get("spec_tokens_details"), list):
        return OwnDrafts("sglang", None, None, (Caution("several_answers", "counts of several answers to one request are not told apart"),))
    if details := _fields(sglext.get("spec_tokens_details")):
        return OwnDrafts("sglang", _sglang(details), None, ())
    if "predicted_n" in timings:
        return _llamacpp(timings)
    ratio = said.get("avg_decoded_tokens_per_iter")
    if ratio is None:
        return OwnDrafts(None, None, None, ())
    if isinstance(ratio, bool) or not (isinstance(ratio, int | float) and isfinite(ratio) and 1 <= ratio <= MOST):
        raise BadInputError(f"avg_decoded_tokens_per_iter = {printable(ratio)} is not a number from 1 on")
    return OwnDrafts("tensorrt_llm", None, float(ratio), ())


def _vllm(said: Mapping[str, object]) -> AcceptanceCounts:
    drafts = _count(said, "num_spec_steps")
    return AcceptanceCounts(
        steps=None,
        drafts=drafts,
        drafted_tokens=_count(said, "num_draft_tokens"),
        accepted_tokens=_count(said, "num_accepted_draft_tokens"),
        accepted_per_position=_positions(said.get("acceptance_histogram"), drafts),
    )


def _sglang(said: Mapping[str, object]) -> AcceptanceCounts:
    steps = _count(said, "spec_verify_ct")
    return AcceptanceCounts(
        steps=steps,
        drafts=steps,
        drafted_tokens=_count(said, "spec_num_proposed_drafts"),
        accepted_tokens=_count(said, "spec_num_correct_drafts"),
        accepted_per_position=_positions(said.get("spec_correct_drafts_histogram"), steps),
    )


def _llamacpp(said: Mapping[str, object]) -> OwnDrafts:
    drafted = _count(said, "draft_n") if "draft_n" in said else 0
    accepted = _count(said, "draft_n_accepted") if drafted else 0
    steps = max(_count(said, "predicted_n") - 1 - accepted, 1 if drafted else 0)
    drafts = min(steps, drafted)
    counts = AcceptanceCounts(steps=steps, drafts=drafts, drafted_tokens=drafted, accepted_tokens=accepted, accepted_per_position=None)
    if not drafted:
        return OwnDrafts("llamacpp", counts, None, ())
    message = "llama.cpp does not count a request's drafted steps; every decode step is taken for one, so acceptance length is per step"
    return OwnDrafts("llamacpp", counts, None, (Caution("drafted_steps_assumed", message),))


def _steps(counts: AcceptanceCounts, *, longest_tokens: int, output_tokens: int, messages: int) -> int:
    """Decode steps of a request of which only the drafted ones are counted."""
    fewest = max(output_tokens - 1 - counts.accepted_tokens, counts.drafts)
    return messages - 1 if fewest <= messages - 1 <= min(fewest + longest_tokens, output_tokens) else fewest


def _positions(histogram: object, drafts: int) -> tuple[int, ...] | None:
    """Accepted per position out of steps by accepted drafts: at position i all steps that accepted more than i. None where not said."""
    if histogram is None:
        return None
    if not (isinstance(histogram, Sequence) and all(is_count(each, least=0) and each <= MOST for each in histogram)):
        raise BadInputError(f"steps by accepted drafts = {printable(histogram)} is not a list of counts")
    if sum(histogram) != drafts:
        raise BadInputError(f"steps by accepted drafts add up to {sum(histogram)}, not to the {drafts} drafted steps")
    return tuple(sum(histogram[place:]) for place in range(1, len(histogram)))


def _fields(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _count(said: Mapping[str, object], name: str) -> int:
    value = said.get(name)
    if not (isinstance(value, int) and is_count(value, least=0) and value <= MOST):
        raise BadInputError(f"{name} = {printable(value)} is not a count")
    return value
