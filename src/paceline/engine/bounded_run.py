"""Runs foreign code of the same process with an end: a template that came with a model.

The lines that it runs are counted, not the seconds: a busy machine refuses nothing that an idle one takes. What runs in C is not counted,
so its memory is bounded (Linux only): a text that doubles itself fails to be made instead of filling the machine.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

__all__ = ["RanTooLongError", "run_bounded"]

Result = TypeVar("Result")


class RanTooLongError(Exception):
    """The code ran more lines than it may."""


def run_bounded(call: Callable[[], Result], *, most_lines: int, most_bytes: int) -> Result:
    """What `call` gives, of which all Python code runs at most `most_lines` lines and takes at most `most_bytes` more of memory.

    Raises:
        RanTooLongError: it would run more lines.
        MemoryError: it would take more memory.

    """
    left = most_lines

    def count(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if left < 0:
                raise RanTooLongError(f"it ran more than {most_lines:,} lines")
        return count

    before = sys.gettrace()
    with _bounded_memory(most_bytes):
        sys.settrace(count)
        try:
            return call()
        finally:
            sys.settrace(before)


@contextmanager
def _bounded_memory(most_bytes: int) -> Iterator[None]:
    """A block in which the process gets at most so much more memory; nothing where a system does not say how much it has."""
    if sys.platform != "linux":
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize() + most_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most if soft == resource.RLIM_INFINITY else min(soft, most), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
