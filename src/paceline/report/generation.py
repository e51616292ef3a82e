"""What the engine wrote, and what became of every drafted token, as JSON and as text.

In the trace, [ ] holds tokens that were drafted and accepted, { } a recovered one: the target's own, where it refused a draft. What stands
outside came from the target alone: the first token, bonuses, and steps without a draft. Brackets of the text itself have a backslash before
them. What a model wrote may steer a terminal, so it is shown with its control characters escaped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any

from paceline.errors import ascii_controls
from paceline.report.text import columns
from paceline.speculation.counts import AcceptanceCounts

__all__ = ["DraftedStep", "Origin", "Piece", "Written", "generation_dict", "generation_text", "shown"]


class Origin(StrEnum):
    """Where an output token came from."""

    FIRST = "first"
    ACCEPTED = "accepted"
    RECOVERED = "recovered"
    BONUS = "bonus"
    PLAIN = "plain"


MARKS = {Origin.ACCEPTED: ("[", "]"), Origin.RECOVERED: ("{", "}")}
HEAD = ("position", "drafts so far right", "accepted", "recovered", "bonus")


@dataclass(frozen=True, slots=True)
class Piece:
    """One output token: its id, the text that it adds, and where it came from."""

    token: int
    text: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class DraftedStep:
    """One step: the drafted tokens with their texts and parents (−1 for the root), the nodes accepted, and what the last token was."""

    tokens: tuple[int, ...]
    texts: tuple[str, ...]
    parents: tuple[int, ...]
    accepted: tuple[int, ...]
    last: Origin


@dataclass(frozen=True, slots=True)
class Written:
    """One prompt's output, its steps, and what they add up to; `stopped` where the target ended it."""

    prompt: str
    pieces: tuple[Piece, ...]
    steps: tuple[DraftedStep, ...]
    stopped: bool
    counts: AcceptanceCounts

    @property
    def text(self) -> str:
        """The output."""
        return "".join(each.text for each in self.pieces)


def generation_dict(written: Sequence[Written], acceptance: Mapping[str, Any], *, seconds: float) -> dict[str, Any]:
    """The texts with every step, and acceptance over all of them. `seconds` is what writing took, prompts included."""
    tokens = sum(len(each.pieces) for each in written)
    return {
        "output_tokens": tokens,
        "seconds": seconds,
        "output_tokens_per_s": tokens / seconds,
        "acceptance": dict(acceptance) if any(each.counts.drafts for each in written) else None,
        **_by_position(written),
        "generations": [_written_dict(each) for each in written],
    }


def shown(text: str) -> str:
    """What a model wrote, as a terminal may show it: all control characters but line feeds and tabs escaped."""
    return "".join(each if each in "\n\t" else ascii_controls(each) for each in text)


def generation_text(written: Sequence[Written], body: Mapping[str, Any], *, how: str, streamed: bool) -> str:
    """Each output, unless it was `streamed`, with its trace, then acceptance by position; `how` says what drafted."""
    lines: list[str] = []
    for each in written:
        lines += ([] if streamed else [shown(each.text).rstrip("\n"), ""]) + [f"trace: {_trace(each.pieces)}", ""]
    seconds, tokens = body["seconds"], body["output_tokens"]
    steps = sum(len(each.steps) for each in written)
    lines.append(f"{tokens} tokens in {seconds:.2f} s, {tokens / seconds:.1f} tokens/s, {steps} steps; {how}")
    if body["acceptance"] is not None:
        lines += ["[accepted drafts] {recovered}; the rest is the target's own", "", _positions(body)]
    return "\n".join(lines)


def _by_position(written: Sequence[Written]) -> dict[str, list[int]]:
    """How often a position was accepted, recovered or followed by a bonus: position i is the i-th token of a step, from 1 on."""
    steps = [step for each in written for step in each.steps if step.tokens]
    width = max((len(step.accepted) for step in steps), default=0) + 1
    ends = {origin: [0] * width for origin in (Origin.RECOVERED, Origin.BONUS)}
    accepted = [0] * width
    for step in steps:
        ends[step.last][len(step.accepted)] += 1
        for place in range(len(step.accepted)):
            accepted[place] += 1
    return {
        "accepted_per_position": accepted,
        "recovered_per_position": ends[Origin.RECOVERED],
        "bonus_per_position": ends[Origin.BONUS],
    }


def _written_dict(each: Written) -> dict[str, Any]:
    return {
        "prompt": each.prompt,
        "text": each.text,
        "stopped": each.stopped,
        "trace": _trace(each.pieces),
        "tokens": [{"id": piece.token, "text": piece.text, "origin": piece.origin.value} for piece in each.pieces],
        "steps": [
            {
                "drafted": [
                    {"id": token, "text": text, "parent": parent}
                    for token, text, parent in zip(step.tokens, step.texts, step.parents, strict=True)
                ],
                "accepted": list(step.accepted),
                "last": step.last.value,
            }
            for step in each.steps
        ],
    }


def _trace(pieces: Sequence[Piece]) -> str:
    runs = [(origin, "".join(_escaped(piece.text) for piece in run)) for origin, run in groupby(pieces, key=lambda piece: piece.origin)]
    marked = [f"{MARKS[origin][0]}{text}{MARKS[origin][1]}" if origin in MARKS else text for origin, text in runs]
    return ascii_controls("".join(marked))


def _escaped(text: str) -> str:
    return "".join(f"\\{each}" if each in "[]{}" else each for each in text)


def _positions(body: Mapping[str, Any]) -> str:
    kinds = [body[f"{kind}_per_position"] for kind in ("accepted", "recovered", "bonus")]
    rows = [(str(place), str(sum(counts)), *map(str, counts)) for place, counts in enumerate(zip(*kinds, strict=True), 1)]
    return columns(HEAD, rows)
