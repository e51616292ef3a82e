"""TensorRT-LLM's draft length by batch size: `draft_len_schedule` of a speculative config.

A key is the largest batch size of its range, and beyond the last key nothing is drafted. The length at the smallest key must be
`max_draft_len`, so later ones are cut to it.
"""

from collections.abc import Mapping, Sequence

from paceline.servers.batch_ranges import BatchRange, batch_ranges

__all__ = ["draft_len_schedule", "schedule_of_ranges"]


def draft_len_schedule(best: Mapping[int, int], *, most_requests: int) -> dict[int, int] | None:
    """Draft length by largest batch size; None where nothing is drafted at the smallest one, for which there is no schedule.

    Raises:
        BadInputError: as `batch_ranges`.

    """
    return schedule_of_ranges(batch_ranges(best, most_requests=most_requests))


def schedule_of_ranges(ranges: Sequence[BatchRange]) -> dict[int, int] | None:
    """The same from ranges without gaps."""
    longest = ranges[0][2]
    if longest == 0:
        return None
    schedule = {last: min(length, longest) for _, last, length in ranges}
    while schedule[max(schedule)] == 0:
        del schedule[max(schedule)]
    return schedule
