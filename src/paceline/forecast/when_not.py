"""The textbook's list of when not to draft, each held against the numbers of one forecast.

The list mixes truths, half-truths and one error, so every entry says whether it applies here and what is true of it, with the figure.
"""

from dataclasses import dataclass

from paceline.errors import printable
from paceline.forecast.speedup import Bound, ForecastRow, Lengths
from paceline.hardware import ModelShape

__all__ = ["Condition", "Pairing", "when_not"]

SHORT_OUTPUT_TOKENS = 50
LARGE_PREFILL_SHARE = 0.5
TIGHT_SHARE = 1.25


@dataclass(frozen=True, slots=True)
class Condition:
    """One reason not to draft: a stable `code`, whether it applies to these numbers, and what is true of it."""

    code: str
    applies: bool
    message: str


@dataclass(frozen=True, slots=True)
class Pairing:
    """What is known of a draft and of where its acceptance comes from; None where it is not known.

    Attributes:
        trained_for: the target that the head was trained with, or whose tokens the draft model shares.
        draft_vocab: the vocabulary of a draft *model*; None for a head, whose own tables translate.
        profile_label: where the acceptance was taken from a published profile, its label.
        replayed: where it was replayed with this very draft and target, its label.

    """

    trained_for: str | None
    draft_vocab: int | None
    profile_label: str | None
    replayed: str | None


def when_not(*, row: ForecastRow, lengths: Lengths, target: ModelShape, pairing: Pairing) -> tuple[Condition, ...]:
    """The textbook's reasons not to draft, at the concurrency of `row`; those that apply first."""
    found = (
        _short_outputs(row, lengths),
        _borrowed_acceptance(row, pairing),
        _wrong_pair(target, pairing),
        _batch_one(row),
        _compute_bound(row),
        _below_break_even(row),
        _tight_memory(row),
    )
    return tuple(sorted(found, key=lambda each: not each.applies))


def _short_outputs(row: ForecastRow, lengths: Lengths) -> Condition:
    return Condition(
        code="short_outputs",
        applies=lengths.output_tokens < SHORT_OUTPUT_TOKENS or row.prefill_share > LARGE_PREFILL_SHARE,
        message=f"{lengths.output_tokens} output tokens after {lengths.prompt_tokens} of prompt: prefill is {row.prefill_share:.0%} of a "
        f"request's time, so decoding {row.speedup.value:.2f}x as fast makes whole requests {row.end_to_end_speedup.value:.2f}x as fast. "
        "The share of prefill decides, not the length of the output.",
    )


def _borrowed_acceptance(row: ForecastRow, pairing: Pairing) -> Condition:
    needed = _break_even(row)
    if pairing.replayed is not None:
        message = f"The acceptance was replayed with this very draft ({printable(pairing.replayed)}); {needed}."
    elif pairing.profile_label is None:
        message = f"The acceptance was stated for this traffic, not taken from a published profile; {needed}."
    else:
        message = (
            f"The acceptance comes from a published profile ({pairing.profile_label}) and does not carry over to other traffic: on a "
            "finance "
            f"domain a general head fell from 2.9 to 1.9 tokens per step at K = 3. {needed[0].upper()}{needed[1:]}; replay your own logs "
            "first."
        )
    return Condition(code="domain_without_its_own_head", applies=pairing.profile_label is not None, message=message)


def _wrong_pair(target: ModelShape, pairing: Pairing) -> Condition:
    other = pairing.trained_for is not None and pairing.trained_for.casefold() != target.name.casefold()
    tokens_differ = pairing.draft_vocab is not None and pairing.draft_vocab != target.vocab
    if tokens_differ:
        message = (
            f"The draft model has {pairing.draft_vocab} tokens and {printable(target.name)} has {target.vocab}: a draft model must share "
            "the "
            "target's tokenizer, or the server refuses the pair."
        )
    elif other:
        message = (
            f"The draft was trained for {printable(pairing.trained_for)}, not for {printable(target.name)}: a head reads its target's "
            "hidden "
            "states, and with another target's it accepts next to nothing."
        )
    elif pairing.replayed is not None:
        message = "The acceptance was replayed with this very draft and target, so they belong together."
    else:
        message = "Nothing known says that draft and target do not belong together." + (
            "" if pairing.trained_for else " Which target the draft was trained for was not stated."
        )
    return Condition(code="draft_of_another_target", applies=other or tokens_differ, message=message)


def _batch_one(row: ForecastRow) -> Condition:
    return Condition(
        code="offline_batch_one",
        applies=False,
        message=f"The textbook is wrong here: batch 1 is where a step is bound by reading weights and drafting pays most. At concurrency "
        f"{row.concurrency} the forecast is {row.speedup.value:.2f}x.",
    )


def _compute_bound(row: ForecastRow) -> Condition:
    bound = row.bound is Bound.COMPUTE
    return Condition(
        code="high_concurrency",
        applies=bound,
        message=f"At concurrency {row.concurrency} and {row.context_tokens} tokens of context the largest term of a step is "
        f"{row.bound.value}, "
        f"a speculative step takes {row.step_time_ratio.value:.2f} times as long, and {_break_even(row)}. No batch size is too large as "
        "such: "
        "long contexts lower the break-even again.",
    )


def _below_break_even(row: ForecastRow) -> Condition:
    return Condition(
        code="below_break_even",
        applies=row.speedup.value < 1,
        message=f"{row.tokens_per_step:.2f} tokens per step against a step {row.step_time_ratio.value:.2f} times as long: "
        f"{row.speedup.value:.2f}x, and {_break_even(row)}.",
    )


def _tight_memory(row: ForecastRow) -> Condition:
    return Condition(
        code="memory_tight",
        applies=row.requests_that_fit < row.concurrency * TIGHT_SHARE,
        message=f"{row.requests_that_fit} requests of {row.context_tokens} tokens fit beside target and draft; {row.concurrency} are "
        "asked for." + (" The rest would wait or be preempted." if row.requests_that_fit < row.concurrency else ""),
    )


def _break_even(row: ForecastRow) -> str:
    if row.break_even_alpha is None:
        return "nothing is drafted, so no acceptance breaks even"
    if row.break_even_alpha.value > 1:
        return "drafting never pays here, at any acceptance"
    return f"break-even α is {row.break_even_alpha.value:.2f}"
