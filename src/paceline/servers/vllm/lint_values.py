"""What vLLM takes the value of a key for. It reads leniently: "4", 4.0 and true pass for whole numbers, "yes" for true.

That is pydantic's lax mode, which vLLM's configuration uses from 0.9.1 on (0.32.0 was run beside this).
"""

import re
from collections.abc import Callable, Mapping
from math import isfinite
from types import MappingProxyType
from typing import Any

__all__ = ["NOT_TAKEN", "taken_for"]

NOT_TAKEN = object()
WHOLE = re.compile(r"\s*[+-]?[0-9]+(?:_[0-9]+)*(?:\.0*)?\s*")
TRUTHS = MappingProxyType(
    {**dict.fromkeys(("1", "true", "t", "yes", "y", "on"), True), **dict.fromkeys(("0", "false", "f", "no", "n", "off"), False)}
)
TRIPLE = 3


def taken_for(kind: str, value: object) -> Any:
    """The value as a key of this kind gets it: integer, number, flag, text, choice, rates, schedule or object; else NOT_TAKEN."""
    return KINDS[kind](value)


def _integer(value: object) -> Any:
    if isinstance(value, str):
        return int(value.strip().partition(".")[0].replace("_", "")) if WHOLE.fullmatch(value) else NOT_TAKEN
    if isinstance(value, float):
        return int(value) if isfinite(value) and value == int(value) else NOT_TAKEN
    return int(value) if isinstance(value, int) else NOT_TAKEN


def _number(value: object) -> Any:
    if not isinstance(value, int | float | str):
        return NOT_TAKEN
    try:
        return float(value)
    except (ValueError, OverflowError):
        return NOT_TAKEN


def _flag(value: object) -> Any:
    if isinstance(value, str):
        return TRUTHS.get(value.casefold(), NOT_TAKEN)
    return bool(value) if isinstance(value, int | float) and value in (0, 1) else NOT_TAKEN


def _text(value: object) -> Any:
    return value if isinstance(value, str) else NOT_TAKEN


def _rates(value: object) -> Any:
    rates = [_number(each) for each in value] if isinstance(value, list) else [NOT_TAKEN]
    return NOT_TAKEN if NOT_TAKEN in rates else rates


def _schedule(value: object) -> Any:
    if not isinstance(value, list) or not all(isinstance(each, list) and len(each) == TRIPLE for each in value):
        return NOT_TAKEN
    rows = [tuple(_integer(part) for part in each) for each in value]
    return NOT_TAKEN if any(NOT_TAKEN in each for each in rows) else rows


def _object(value: object) -> Any:
    return value if isinstance(value, Mapping) else NOT_TAKEN


KINDS: Mapping[str, Callable[[object], Any]] = MappingProxyType(
    {
        "integer": _integer,
        "number": _number,
        "flag": _flag,
        "text": _text,
        "choice": _text,
        "rates": _rates,
        "schedule": _schedule,
        "object": _object,
    }
)
