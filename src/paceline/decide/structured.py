"""What an answer holds that a program reads: JSON as the whole answer, in a fenced block, or in a tool call.

Reasoning before `</think>` is not looked at. A piece that does not parse makes the answer invalid: the program behind it fails.
"""

import json
import re

__all__ = ["leaves", "structure"]

THINKING_ENDS = "</think>"
FENCE = re.compile(r"```json\s*\n(.*?)(?:```|\Z)", re.DOTALL)
CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
DIGITS = 4000  # Python refuses to read longer whole numbers; they are no structure that a program uses


def structure(text: str) -> list[object] | None:
    """The values in the answer; an empty list where it holds none, None where it holds one that does not parse."""
    found: list[object] = []
    for piece in _pieces(text):
        try:
            found.append(json.loads(piece, parse_int=_whole))
        except (ValueError, RecursionError):
            return None
    return found


def _pieces(text: str) -> list[str]:
    shown = text.rpartition(THINKING_ENDS)[2].strip()
    marked = [*FENCE.findall(shown), *CALL.findall(shown)]
    return marked or ([shown] if shown.startswith(("{", "[")) else [])


def _whole(digits: str) -> int:
    return int(digits[:DIGITS])


def leaves(value: object) -> int:
    """How many values stand in it that are no container: what an answer says, counted."""
    count, left = 0, [value]
    while left:
        each = left.pop()
        inner = list(each.values()) if isinstance(each, dict) else each if isinstance(each, list) else None
        if inner is None:
            count += 1
        else:
            left += inner
    return count
