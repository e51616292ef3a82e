"""Typed fields of an object that another tool wrote: a number is a number, or the file is refused with the place and the value.

A key that is missing, or null, was not measured: None. What is there must be what it should be.
"""

import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.errors import BadInputError, is_count, printable

__all__ = ["Fields", "as_list", "as_object", "finite", "numbers"]

LARGEST = sys.float_info.max
MOST_TOKENS = 10**12
MOST_NS = 2**63


@dataclass(frozen=True, slots=True)
class Fields:
    """An object and where it stands, for messages."""

    values: dict[str, Any]
    where: str

    def number(self, key: str) -> float | None:
        """A finite number."""
        value = self.values.get(key)
        return None if value is None else finite(value, f"{self.where}{key}")

    def positive(self, key: str) -> float | None:
        """A finite number from 0 on: a time, a rate."""
        value = self.number(key)
        if value is not None and value < 0:
            raise BadInputError(f"{self.where}{key} = {printable(value)} is below 0")
        return value

    def count(self, key: str) -> int | None:
        """A whole number from 0 on; tools write 240.0 too."""
        value = self.values.get(key)
        if isinstance(value, float) and value.is_integer() and abs(value) <= MOST_TOKENS:
            value = int(value)
        if value is None:
            return None
        if not is_count(value, least=0) or value > MOST_TOKENS:
            raise BadInputError(f"{self.where}{key} = {printable(value)} is not a whole number from 0 on")
        return int(value)

    def count_ns(self, key: str) -> int | None:
        """An instant in nanoseconds: a whole number from 0 on, whose last digits a float would lose."""
        value = self.values.get(key)
        if value is not None and (not is_count(value, least=0) or value > MOST_NS):
            raise BadInputError(f"{self.where}{key} = {printable(value)} is not a whole number of nanoseconds")
        return value

    def text(self, key: str) -> str | None:
        """Text; a number or a flag is written out."""
        value = self.values.get(key)
        return None if value is None or isinstance(value, dict | list) else str(value)

    def object(self, key: str) -> "Fields":
        """The object under the key, an empty one where there is none."""
        value = self.values.get(key)
        return Fields({} if value is None else as_object(value, f"{self.where}{key}"), f"{self.where}{key}.")

    def list(self, key: str) -> list[Any] | None:
        """The list under the key."""
        value = self.values.get(key)
        return None if value is None else as_list(value, f"{self.where}{key}")

    def has(self, *keys: str) -> bool:
        """Whether all of them are there and not null."""
        return all(self.values.get(key) is not None for key in keys)


def finite(value: Any, where: str) -> float:
    """A number that is one.

    Raises:
        BadInputError: with the place and the value.

    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
        raise BadInputError(f"{where} = {printable(value)} is not a finite number; what was not measured is null")
    return float(value)


def as_object(value: Any, where: str) -> dict[str, Any]:
    """An object.

    Raises:
        BadInputError: it is something else.

    """
    if not isinstance(value, dict):
        raise BadInputError(f"{where} = {printable(value)} is not an object")
    return value


def as_list(value: Any, where: str) -> list[Any]:
    """A list.

    Raises:
        BadInputError: it is something else.

    """
    if not isinstance(value, list):
        raise BadInputError(f"{where} = {printable(value)} is not a list")
    return value


def numbers(values: Any, where: str) -> list[float]:
    """A list of finite numbers.

    Raises:
        BadInputError: with the first that is none.

    """
    items = as_list(values, where)
    if set(map(type, items)) <= {int, float}:  # millions of gaps are checked at once
        with suppress(OverflowError):
            array = np.array(items, dtype=np.float64)
            if np.isfinite(array).all():
                found: list[float] = array.tolist()
                return found
    return [finite(each, f"{where}[{i}]") for i, each in enumerate(items)]
