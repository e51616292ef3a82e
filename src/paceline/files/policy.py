"""Reads a policy file: the claims that decide whether drafting ships, in TOML.

    claims = ["speedup >= 1.05", "tpot_p99.ratio <= 1.05", "alpha >= break_even + 0.05"]
    margin = 0.05            the gain worth having
    confidence = 0.95        of every interval
    alpha_floor = 0.55       stands for the break-even only where none was measured
    felt_ttft_s = 0.1        a rise of time to first token below this is not felt
    slo = "ttft_s=0.5,tpot_s=0.05"      the promised latencies, for goodput.ratio

    [segments.chat]
    claims = ["tpot_p99.ratio <= 1.02"]

Every key may be left out. A key or a metric that means nothing here is refused, and the message names the nearest: a typo in a policy may
not be a claim that nobody asks.
"""

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.decide.claims import parse_claim
from paceline.errors import BadInputError, UnknownNameError, printable
from paceline.files.bounded import read_bounded
from paceline.stats.goodput import Slo
from paceline.verdict import Claim

__all__ = ["StatedPolicy", "policy_from_toml", "read_policy"]

LARGEST_BYTES = 64 * 1024
NUMBERS = ("margin", "confidence", "alpha_floor", "felt_ttft_s")
KEYS = ("claims", *NUMBERS, "slo", "segments")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedPolicy:
    """What a policy file states, None (no claims: empty) where it leaves it out; `sha256` of its bytes."""

    claims: tuple[Claim, ...]
    margin: float | None
    confidence: float | None
    alpha_floor: float | None
    felt_ttft_s: float | None
    slo: Slo | None
    sha256: str


def read_policy(path: Path) -> StatedPolicy:
    """The policy in a file.

    Raises:
        BadInputError: it cannot be read, is larger than 64 KiB or no TOML, or a value is of another kind.
        UnknownNameError: a key or metric that is none; the message names the nearest.

    """
    content = read_bounded(path, what="the policy", most_bytes=LARGEST_BYTES, remedy="give a TOML file with a few claims")
    return policy_from_toml(content, name=path.name)


def policy_from_toml(content: bytes, *, name: str) -> StatedPolicy:
    """The policy that the bytes of a file state; `name` is the file's, for messages.

    Raises:
        BadInputError: no TOML, or a value of another kind.
        UnknownNameError: a key or metric that is none.

    """
    shown = f"the policy {printable(name)}"
    try:
        stated = tomllib.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BadInputError(f"{shown} is no text in UTF-8: byte {error.start}") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadInputError(f"{shown} is not TOML: {printable(str(error))}") from error
    _need_known(stated, KEYS, "policy key")
    numbers = {key: _number(stated.get(key), f"{key} in {shown}") for key in NUMBERS}
    slo = stated.get("slo")
    if slo is not None and not isinstance(slo, str):
        raise BadInputError(f"slo in {shown} is {printable(slo)}, which is no text of the form 'ttft_s=0.5,tpot_s=0.05'")
    claims = (*_claims(stated.get("claims"), shown, segment=None), *_segments(stated.get("segments"), shown))
    if len(set(claims)) < len(claims):
        raise BadInputError(f"{shown} states a claim twice: {next(str(each) for each in claims if claims.count(each) > 1)}")
    return StatedPolicy(
        claims=claims, slo=None if slo is None else Slo.stated_in(slo), sha256=hashlib.sha256(content).hexdigest(), **numbers
    )


def _need_known(stated: Mapping[str, Any], known: tuple[str, ...], kind: str) -> None:
    for key in stated:
        if key not in known:
            raise UnknownNameError(kind, key, known)


def _number(value: object, what: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadInputError(f"{what} is {printable(value)}, which is no number")
    return float(value)


def _segments(value: object, shown: str) -> list[Claim]:
    if value is None:
        return []
    if not isinstance(value, dict):
        raise BadInputError(f"segments in {shown} is {printable(value)}; write a table [segments.NAME] with claims for each")
    claims = []
    for segment, table in value.items():
        if not isinstance(table, dict):
            raise BadInputError(f"segments.{printable(segment)} in {shown} is {printable(table)}; write a table with claims")
        _need_known(table, ("claims",), f"key of segment {printable(segment)}")
        claims += _claims(table.get("claims"), shown, segment=segment)
    return claims


def _claims(value: object, shown: str, *, segment: str | None) -> list[Claim]:
    if value is None:
        return []
    if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
        raise BadInputError(f"claims in {shown} is {printable(value)}; write a list of texts such as ['speedup >= 1.05']")
    claims = [parse_claim(each) for each in value]
    if segment is None:
        return claims
    if any(each.segment not in (None, segment) for each in claims):
        raise BadInputError(f"a claim under segments.{printable(segment)} in {shown} names another segment")
    return [Claim(metric=each.metric, at_most=each.at_most, at_least=each.at_least, segment=segment) for each in claims]
