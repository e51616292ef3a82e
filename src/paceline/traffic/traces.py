"""Rows of a published request trace as a workload: who sent how many tokens when, without any text.

The Azure LLM inference trace of 2023 (Patel et al., Splitwise, ISCA 2024; data under CC-BY-4.0) has the columns TIMESTAMP, ContextTokens
and GeneratedTokens. Its instants carry seven fractional digits, which a float of seconds since 1970 cannot hold (it steps by 2.4e-7 s
there), so instants are whole nanoseconds until the first one is taken off.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.errors import BadInputError, printable
from paceline.workload import Request, Workload

__all__ = ["TraceRow", "instant_ns", "rows_out_of_order", "workload_from_trace"]

NS_PER_S = 1_000_000_000
INSTANT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[ T]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?(?:Z|([+-])([0-9]{2}):([0-9]{2}))?"
)
MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request of a trace.

    Attributes:
        arrived_at_ns: its instant, in whole nanoseconds since 1970 or since the trace's own start.
        prompt_tokens: the tokens it brought.
        output_tokens: the tokens it got.
        segment: its kind.
        prefix_hashes: what `Request.prefix_hashes` holds; None where the trace does not say.

    """

    arrived_at_ns: int
    prompt_tokens: int
    output_tokens: int
    segment: str
    prefix_hashes: tuple[int, ...] | None


def instant_ns(text: str) -> int:
    """The instant `YYYY-MM-DD HH:MM:SS[.fraction][Z|±HH:MM]` in whole nanoseconds since 1970-01-01 00:00 UTC; without an offset it is UTC.

    Raises:
        BadInputError: it is not written like that, or no calendar and clock show it.

    """
    match = INSTANT.fullmatch(text)
    if match is None:
        raise BadInputError(f"{printable(text)} is not an instant; write it as 2023-11-16 18:17:03.9799600")
    year, month, day, hour, minute, second = (int(each) for each in match.groups()[:6])
    fraction, sign, offset_hours, offset_minutes = match.groups()[6:]
    if not (1 <= month <= 12 and 1 <= day <= _days_in(year, month) and hour < 24 and minute < 60 and second < 60):
        raise BadInputError(f"{printable(text)} is on no calendar and clock; check the file it comes from")
    offset_s = 0 if sign is None else int(f"{sign}1") * (int(offset_hours) * 3600 + int(offset_minutes) * 60)
    seconds = ((_days_from_civil(year, month, day) * 24 + hour) * 60 + minute) * 60 + second - offset_s
    return seconds * NS_PER_S + int((fraction or "").ljust(9, "0"))


def _days_in(year: int, month: int) -> int:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if month == 2 and leap else MONTH_DAYS[month - 1]


def _days_from_civil(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the proleptic Gregorian calendar. Years are counted from March, so that the leap day ends one."""
    from_march = year - (month <= 2)
    day_of_year = (153 * ((month - 3) % 12) + 2) // 5 + day - 1
    leap_days = from_march // 4 - from_march // 100 + from_march // 400
    return from_march * 365 + leap_days + day_of_year - 719468  # days from 0000-03-01 to 1970-01-01


def rows_out_of_order(rows: Sequence[TraceRow]) -> int:
    """How many rows arrived before one that stands above them; 0 in a sorted trace."""
    latest = None
    count = 0
    for row in rows:
        count += latest is not None and row.arrived_at_ns < latest
        latest = row.arrived_at_ns if latest is None else max(latest, row.arrived_at_ns)
    return count


def workload_from_trace(rows: Sequence[TraceRow], *, source: str) -> Workload:
    """The trace as requests in order of arrival, counted from the earliest; ids are places in that order, from 1 on.

    Raises:
        BadInputError: there are no rows, or one of them has no tokens.

    """
    ordered = sorted(rows, key=lambda row: row.arrived_at_ns)
    requests = tuple(
        Request(
            id=str(number),
            arrived_at_s=(row.arrived_at_ns - ordered[0].arrived_at_ns) / NS_PER_S,
            prompt_tokens=row.prompt_tokens,
            output_tokens=row.output_tokens,
            segment=row.segment,
            prefix_hashes=row.prefix_hashes,
        )
        for number, row in enumerate(ordered, 1)
    )
    return Workload(requests=requests, source=source, seed=None)
