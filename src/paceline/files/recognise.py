"""Which kind of traffic file this is, told by what is in it and never by its name."""

from pathlib import Path
from typing import Literal

from paceline.errors import BadInputError, printable
from paceline.files.lines import BYTE_ORDER_MARK, LOOK_BYTES, opened
from paceline.files.trace import TRACES_WE_READ, TraceKind, trace_kind_of

__all__ = ["TrafficKind", "kind_of"]

TrafficKind = Literal["chat-log"] | TraceKind


def kind_of(path: Path) -> TrafficKind:
    """The kind: a trace where the first line is one's header or request, "chat-log" where a line of the first block opens like JSON.

    Raises:
        BadInputError: the file cannot be read, is empty or binary, or is neither.

    """
    with opened(path) as source:
        start = source.stream.peek(LOOK_BYTES)[:LOOK_BYTES].removeprefix(BYTE_ORDER_MARK)
    lines = start.splitlines()
    trace = trace_kind_of(lines[0] if lines else b"")
    if trace is not None:
        return trace
    if any(line.lstrip().startswith((b"{", b"[")) for line in lines):
        return "chat-log"
    raise BadInputError(
        f"{printable(str(path))} is neither a chat log (one JSON object per line, or a JSON array) nor a trace "
        f"({TRACES_WE_READ}); convert it to one of them"
    )
