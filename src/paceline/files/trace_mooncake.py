"""The Mooncake traces (Qin et al., FAST 2025): one JSON object per request, with no text but with the identity of its prompt's blocks.

    {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, …, 2353]}

`timestamp` is milliseconds from the trace's start. `hash_ids` names each block of 512 prompt tokens: two requests whose lists begin alike
have that much of their prompt in common, which is what a prefix cache can keep.
"""

import json
from typing import Any

from paceline.errors import is_count, printable
from paceline.files.read_report import Unusable
from paceline.files.trace_rows import RowReader, instant_from_seconds_ns, token_count
from paceline.traffic.segments import SegmentRule
from paceline.traffic.traces import TraceRow

__all__ = ["MOONCAKE_KEYS", "is_mooncake", "mooncake_reader"]

MOONCAKE_KEYS = ("timestamp", "input_length", "output_length")
HASHES = "hash_ids"
BLOCK_TOKENS = 512
MAX_MS = 1 << 53  # beyond it a float skips whole numbers, and far beyond it there is none
NOT_OBJECT = "not a JSON object"
NOT_HASHES = "not the hashes of the prompt's blocks"


def is_mooncake(line: bytes) -> bool:
    """Whether a line is an object with this trace's keys."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(row, dict) and all(key in row for key in MOONCAKE_KEYS)


def mooncake_reader(*, segment: str, rule: SegmentRule | None) -> RowReader:
    """What makes a row of each line; all are of `segment` where no `rule` finds theirs."""
    return lambda data: _row(_object(data), segment, rule)


def _object(data: bytes) -> dict[str, Any]:
    try:
        row = json.loads(data)
    except (ValueError, RecursionError) as fault:
        raise Unusable(NOT_OBJECT, printable(str(fault))) from None
    if not isinstance(row, dict):
        raise Unusable(NOT_OBJECT, printable(row))
    return row


def _row(row: dict[str, Any], segment: str, rule: SegmentRule | None) -> TraceRow:
    at_ms: Any = row.get("timestamp")
    is_number = isinstance(at_ms, float) or (is_count(at_ms, least=0) and at_ms <= MAX_MS)
    prompt_tokens = _count(row, "input_length")
    return TraceRow(
        arrived_at_ns=instant_from_seconds_ns(at_ms / 1000 if is_number else None, shown=at_ms),
        prompt_tokens=prompt_tokens,
        output_tokens=_count(row, "output_length"),
        segment=segment if rule is None else rule.segment_of(row, texts=()),
        prefix_hashes=_hashes(row.get(HASHES), prompt_tokens),
    )


def _count(row: dict[str, Any], name: str) -> int:
    value = row.get(name)
    return token_count(name, value if is_count(value, least=0) else None, shown=value)


def _hashes(value: object, prompt_tokens: int) -> tuple[int, ...] | None:
    """One hash per block that the prompt touches; None where the trace has none."""
    if value is None:
        return None
    blocks = -(-prompt_tokens // BLOCK_TOKENS)
    if not (isinstance(value, list) and len(value) == blocks and all(is_count(each, least=0) for each in value)):
        what = f"{len(value)} of them" if isinstance(value, list) else printable(value)
        raise Unusable(NOT_HASHES, f"{HASHES} is {what}, but {prompt_tokens} tokens are {blocks} blocks")
    return tuple(value)
