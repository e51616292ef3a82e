"""What all trace formats share: how one line becomes a row, and why it cannot.

A reader is made once per file, from its first line, and then called with the bytes of each line that holds a request.
"""

from collections.abc import Callable

from paceline.errors import printable
from paceline.files.read_report import Unusable
from paceline.traffic.traces import TraceRow

__all__ = ["NOT_INSTANT", "RowReader", "instant_from_seconds_ns", "token_count"]

RowReader = Callable[[bytes], TraceRow]

NOT_COUNT = "not a count of tokens"
NO_TOKENS = "zero tokens, which no request has"
NOT_INSTANT = "not an instant"
MAX_TOKENS = 999_999_999
MAX_SECONDS = 1e10  # three centuries; what a float counts to the microsecond
NS_PER_S = 1_000_000_000


def token_count(name: str, value: int | None, *, shown: object) -> int:
    """The count, from 1 on; `shown` is what the file says, for the message.

    Raises:
        Unusable: it is no count (None), below 0 or above nine digits, or zero.

    """
    if value is None or not 0 <= value <= MAX_TOKENS:
        raise Unusable(NOT_COUNT, f"{name} is {printable(shown)}")
    if value == 0:
        raise Unusable(NO_TOKENS, f"{name} is 0")
    return value


def instant_from_seconds_ns(seconds: float | None, *, shown: object) -> int:
    """Seconds from the trace's own start as whole nanoseconds.

    Raises:
        Unusable: it is no number (None), below 0, or beyond three centuries (NaN is no number either).

    """
    if seconds is None or not 0 <= seconds <= MAX_SECONDS:
        raise Unusable(NOT_INSTANT, f"{printable(shown)} is no time from the trace's start")
    return round(seconds * NS_PER_S)
