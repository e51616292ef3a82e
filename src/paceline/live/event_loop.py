"""The event loop that measures: uvloop where it runs, because it hands a packet over in half the time.

What was there before is left out of garbage collection while it runs, so that a full one has less to go through while streams are timed.

A thousand streams are a thousand open files, and many systems start a process with room for fewer; the limit that a process may raise
itself is raised.
"""

import asyncio
import gc
import sys
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from paceline.errors import PacelineError

__all__ = ["run_in_loop"]

OPEN_FILES = 65_536

Result = TypeVar("Result")


def run_in_loop(main: Coroutine[Any, Any, Result]) -> Result:
    """What `main` returns, run in an event loop of its own. Of what several tasks raised the first cause is raised."""
    gc.freeze()
    try:
        return _run(main)
    except BaseExceptionGroup as group:
        raise _first_cause(group) or group from None
    finally:
        gc.unfreeze()


def _run(main: Coroutine[Any, Any, Result]) -> Result:
    if sys.platform == "win32":
        return asyncio.run(main)
    import uvloop

    _make_room_for_connections()
    return uvloop.run(main)


def _first_cause(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """The first thing in it that a user can act on, None where all of it is a fault of ours."""
    for kind in (PacelineError, OSError, MemoryError):
        found: BaseException | None = group.subgroup(kind)
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        if found is not None:
            return found
    return None


def _make_room_for_connections() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # a system with a limit of its own above this one: then as many as it gives
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
