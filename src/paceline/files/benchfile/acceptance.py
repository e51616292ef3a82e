"""Acceptance out of what tools state: totals of a server's counters, or one request's histogram.

Steps are seldom counted. A step emits one token and what it accepted, so steps = output tokens − first tokens − accepted, but for drafts
that were accepted and then cut off by a stop: those make it smaller, by at most K per request. Messages after the first count the steps
where the server sends one per step. A count of drafts that steps cannot hold says that the counters saw other traffic too.
"""

from collections.abc import Mapping, Sequence

from paceline.errors import BadInputError
from paceline.files.benchfile.fields import Fields, as_object
from paceline.servers.stated_rates import differing
from paceline.speculation.counts import AcceptanceCounts
from paceline.verdict import Caution

__all__ = [
    "FROM_MESSAGES",
    "INCONSISTENT",
    "LENGTH_IS_CONDITIONAL",
    "counted",
    "histogram_counts",
    "positions_of",
    "request_counts",
    "request_doubts",
]

DERIVED = Caution(
    "steps_derived",
    "decode steps were not counted: they are output tokens less first tokens and accepted drafts, too few by drafts cut off at a stop",
)
INCONSISTENT = Caution("acceptance_inconsistent", "some counts of drafts contradict each other and were left out")
FROM_MESSAGES = Caution(
    "steps_from_messages", "each message after the first is taken for a decode step; a slow client or --stream-interval merges some"
)
LENGTH_IS_CONDITIONAL = Caution(
    "coverage_unknown",
    "acceptance length counts only steps that had a draft, and steps were not counted: it is no number of tokens per step",
)
MOST_DRAFT_TOKENS = 256
INTEGER_TOLERANCE = 1e-4


def positions_of(rates: Sequence[float], *, drafts: int, accepted_tokens: int) -> tuple[int, ...] | None:
    """Accepted per position from unconditional rates (fractions of drafts), where they are whole counts that add up; else None."""
    counts = [each * drafts for each in rates]
    whole = tuple(round(each) for each in counts)
    exact = all(abs(each - near) <= INTEGER_TOLERANCE for each, near in zip(counts, whole, strict=True))
    return whole if exact and sum(whole) == accepted_tokens else None


def counted(
    *,
    drafts: int,
    drafted_tokens: int,
    accepted_tokens: int,
    positions: tuple[int, ...] | None,
    later_tokens: int | None,
    requests: int,
    steps: int | None,
) -> tuple[AcceptanceCounts, list[Caution]]:
    """The counts, with steps as counted, else as they follow from `later_tokens` (output tokens after each request's first), else None.

    Raises:
        BadInputError: counts that no decoding can give.

    """
    noted = []
    longest = -(-drafted_tokens // drafts) if drafts else 0
    cut_tokens = requests * longest
    least = None if later_tokens is None else max(later_tokens - accepted_tokens, 0)
    if steps is not None and (steps < drafts or (least is not None and not least <= steps <= least + cut_tokens)):
        steps = None
    if steps is not None:
        noted.append(FROM_MESSAGES)
    elif least is not None:
        if drafts > least + cut_tokens:
            noted.append(
                Caution(
                    "counters_exceed_run",
                    f"the server counted {drafts} drafts, more than this run's {least} steps: its counters saw other traffic too, "
                    "so acceptance is not this run's alone; measure on a server that serves nothing else",
                )
            )
        else:
            steps = max(least, drafts)
            noted.append(DERIVED)
    if steps is None:
        noted.append(LENGTH_IS_CONDITIONAL)
    counts = AcceptanceCounts(
        steps=steps, drafts=drafts, drafted_tokens=drafted_tokens, accepted_tokens=accepted_tokens, accepted_per_position=positions
    )
    return counts, noted


def histogram_counts(histogram: Mapping[int, int], *, drafted_tokens: int, width: int, steps: int | None) -> AcceptanceCounts:
    """Counts from a histogram of accepted drafts by step (`histogram[j]` drafted steps accepted exactly j).

    Raises:
        BadInputError: counts that no decoding can give.

    """
    if any(not 0 <= j <= MOST_DRAFT_TOKENS or number < 0 for j, number in histogram.items()):
        raise BadInputError("a histogram of accepted drafts has an impossible entry")
    length = max([width, *histogram])
    positions = tuple(sum(number for j, number in histogram.items() if j > i) for i in range(length))
    drafts, accepted = sum(histogram.values()), sum(j * number for j, number in histogram.items())
    return AcceptanceCounts(
        steps=steps, drafts=drafts, drafted_tokens=drafted_tokens, accepted_tokens=accepted, accepted_per_position=positions
    )


def request_counts(told: Fields, *, output_tokens: int | None, chunks: int | None) -> AcceptanceCounts | None:
    """One request's counts as vLLM (`metrics.speculative_decoding`) states them; None where it states none or they contradict each other.

    `output_tokens` and `chunks` (messages with tokens) give the steps, where known.

    Raises:
        BadInputError: a count that is none.

    """
    drafts, accepted, drafted = (told.count(key) for key in ("num_spec_steps", "num_accepted_draft_tokens", "num_draft_tokens"))
    if drafts is None or accepted is None or drafted is None:
        return None
    steps = None
    if output_tokens is not None:
        least = max(output_tokens - 1 - accepted, drafts)
        seen = (chunks or 1) - 1
        steps = seen if least <= seen <= output_tokens - 1 else least
    histogram, width = _histogram(told), told.count("num_spec_tokens") or 0
    try:
        if histogram is None:
            return AcceptanceCounts(
                steps=steps, drafts=drafts, drafted_tokens=drafted, accepted_tokens=accepted, accepted_per_position=None
            )
        counts = histogram_counts(histogram, drafted_tokens=drafted, width=min(width, MOST_DRAFT_TOKENS), steps=steps)
    except BadInputError:
        return None
    return counts if (counts.drafts, counts.accepted_tokens) == (drafts, accepted) else None


def request_doubts(told: Fields, counts: AcceptanceCounts | None) -> tuple[Caution, ...]:
    """What the rate and the length that vLLM states beside one request's counts say otherwise.

    Raises:
        BadInputError: one that is no number.

    """
    if counts is None:
        return ()
    stated = {"alpha": told.number("draft_acceptance_rate"), "acceptance_length": told.number("mean_acceptance_length")}
    return differing(stated, drafts=counts.drafts, drafted_tokens=counts.drafted_tokens, accepted_tokens=counts.accepted_tokens)


def _histogram(told: Fields) -> dict[int, int] | None:
    """Steps by accepted drafts: a list whose index is the number, or an object whose keys are."""
    value = told.values.get("acceptance_histogram")
    if value is None:
        return None
    if isinstance(value, list):
        value = dict(enumerate(value))
    entries = Fields(
        {str(j): number for j, number in as_object(value, f"{told.where}acceptance_histogram").items()}, "acceptance_histogram."
    )
    try:
        return {int(j): entries.count(j) or 0 for j in entries.values}
    except ValueError:
        raise BadInputError(f"{told.where}acceptance_histogram has a key that is no number of tokens") from None
