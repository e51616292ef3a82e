"""The event loop that measures: uvloop where it runs, because it hands a packet over in half the time."""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["run_in_loop"]

Result = TypeVar("Result")


def run_in_loop(main: Coroutine[Any, Any, Result]) -> Result:
    """What `main` returns, run in an event loop of its own."""
    if sys.platform == "win32":
        return asyncio.run(main)
    import uvloop

    return uvloop.run(main)
