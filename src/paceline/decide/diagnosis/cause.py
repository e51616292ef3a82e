"""A cause, how surely it is one, and the table of all codes.

1. A cause is named only with a figure from the evidence. One whose figure is missing is listed as not checked, with what it needs.
2. Rank: first what makes the figures themselves untrustworthy, then what is broken, then what costs pace, then what delays the first token;
   within these the surer first, then the larger loss.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from types import MappingProxyType

__all__ = ["CODES", "Cause", "Figure", "Kind", "Surely", "Unchecked", "ranked"]

Figure = float | str | Mapping[str, float]


class Surely(StrEnum):
    """How surely a cause is one, from the surest on.

    sure: the interval or the count leaves no other reading; likely: the figure points to it and another cause could give it too; possible:
    it fits, and the evidence cannot tell it from others.
    """

    SURE = "sure"
    LIKELY = "likely"
    POSSIBLE = "possible"


class Kind(IntEnum):
    """What a cause is about, in the order of rank."""

    EVIDENCE = 0
    BROKEN = 1
    COST = 2
    FIRST_TOKEN = 3


CODES: Mapping[str, tuple[Kind, str]] = MappingProxyType(
    {
        "random_prompts": (Kind.EVIDENCE, "prompts were random tokens, so acceptance is not that of real traffic"),
        "forced_length": (Kind.EVIDENCE, "answers were forced on beyond their end, and what follows an end is no real text"),
        "degenerate_answers": (Kind.EVIDENCE, "answers run in circles, so acceptance is that of a loop"),
        "too_few_prompts": (Kind.EVIDENCE, "acceptance differs so much between prompts that this many of them say little"),
        "too_few_drafts": (Kind.EVIDENCE, "so few drafts that acceptance is uncertain"),
        "gain_not_monotone": (Kind.EVIDENCE, "the gain goes up and down with the load, as noise does"),
        "nothing_accepted": (Kind.BROKEN, "next to no draft is accepted: the draft does not belong to the target or is loaded wrongly"),
        "draft_faulty_after_first": (Kind.BROKEN, "only the first position is ever accepted: later ones are fed wrongly"),
        "draft_context_exceeded": (Kind.BROKEN, "beyond a prompt length nothing is accepted: the draft's context ends there"),
        "structured_output_breaks": (Kind.BROKEN, "JSON that is valid without drafts is not with them"),
        "answers_differ": (Kind.BROKEN, "greedy answers differ from the baseline's more often than the baseline's own"),
        "output_lengths_differ": (Kind.BROKEN, "answers have another length with drafts"),
        "acceptance_fell": (Kind.COST, "acceptance is lower than in the run before"),
        "slower_at_equal_acceptance": (Kind.COST, "the same acceptance gives less speed than in the run before: the engine, not the draft"),
        "longer_draft_slower": (Kind.COST, "the run with longer drafts is the slower one"),
        "verification_cost": (Kind.COST, "a step with drafts takes too long for what it yields"),
        "moe_verification": (Kind.COST, "every verified token wakes experts of its own"),
        "large_batch": (Kind.COST, "requests and drafts together fill the compute"),
        "tensor_parallel_verification": (Kind.COST, "every verified token crosses the link between the GPUs"),
        "slower_than_forecast": (Kind.COST, "steps take longer with drafts than target and hardware explain"),
        "draft_model_cost": (Kind.COST, "the draft model's own passes cost too much"),
        "low_acceptance": (Kind.COST, "the draft is accepted too seldom"),
        "lookup_seldom_matches": (Kind.COST, "prompt lookup seldom finds anything to draft"),
        "temperature": (Kind.COST, "drafts are greedy and the target draws at a temperature"),
        "draft_too_long": (Kind.COST, "the last drafted positions cost more than they yield"),
        "acceptance_falls_with_context": (Kind.COST, "acceptance is lower on long prompts"),
        "step_cost_rises_with_context": (Kind.COST, "steps with drafts get dearer on long prompts"),
        "acceptance_decays": (Kind.COST, "acceptance falls in the course of the run"),
        "disabled_drafting_not_free": (Kind.COST, "nothing is drafted and it is slower all the same"),
        "batch_beyond_cuda_graphs": (Kind.COST, "the batch is larger than the captured graphs"),
        "mean_better_tail_worse": (Kind.COST, "the mean pace improves and the slowest requests get slower"),
        "harmed_segment": (Kind.COST, "a segment gets slower while others gain"),
        "uneven_acceptance": (Kind.COST, "the slowest requests are those whose drafts are rejected"),
        "long_steps_at_full_batch": (Kind.COST, "the slowest requests ran in the fullest batches"),
        "prefill_interference": (Kind.COST, "long gaps are other requests' prompts"),
        "preemption": (Kind.COST, "the cache for keys and values is too small, and requests are stopped for others"),
        "ttft_worse": (Kind.FIRST_TOKEN, "the first token comes later"),
        "ttft_of_longer_steps": (Kind.FIRST_TOKEN, "the first token waits for a running step, which is longer with drafts"),
        "draft_prefill": (Kind.FIRST_TOKEN, "the draft reads the prompt too, so the first token of long prompts comes later"),
    }
)


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that the evidence points to.

    Attributes:
        code: stable, one of `CODES`.
        message: one sentence with the figures.
        figures: what points to it, by name; units in the names.
        remedy: what to do.
        surely: how surely.
        loss: the share of speed, or of requests, that it costs, in [0, 1]; for the order only.

    """

    code: str
    message: str
    figures: Mapping[str, Figure]
    remedy: str
    surely: Surely
    loss: float

    @property
    def kind(self) -> Kind:
        """What it is about."""
        return CODES[self.code][0]


@dataclass(frozen=True, slots=True)
class Unchecked:
    """A cause that this evidence cannot tell, and what would."""

    code: str
    needs: str


def ranked(found: Iterable[Cause | Unchecked]) -> tuple[tuple[Cause, ...], tuple[Unchecked, ...]]:
    """The causes by rank, each code once, and what could not be checked and was not found otherwise, each code once."""
    every = list(found)
    causes = sorted((each for each in every if isinstance(each, Cause)), key=_rank)
    first = {each.code: each for each in reversed(causes)}
    unchecked = {each.code: each for each in reversed(list(_unchecked(every, first)))}
    return tuple(each for each in causes if first[each.code] is each), tuple(unchecked[code] for code in CODES if code in unchecked)


def _rank(cause: Cause) -> tuple[int, int, float, str]:
    return (cause.kind, list(Surely).index(cause.surely), -cause.loss, cause.code)


def _unchecked(found: Iterable[Cause | Unchecked], causes: Mapping[str, Cause]) -> Iterator[Unchecked]:
    return (each for each in found if isinstance(each, Unchecked) and each.code not in causes)
