"""Compilation without reference counts, whose cache notices a change in every module that a compiled function draws on.

numba keys a function's cache by the function's own file. Constants and functions of other modules are frozen into it, and a change in them
would go unnoticed: yesterday's machine code would run. `compiled(module, …)` adds those modules' change times and sizes to the key, and
this module's own.

numba counts references to each array that a compiled function takes out of a tuple. The kernel takes dozens in a step and keeps none: the
caller holds them all. Counting took up to nine tenths of its time, so it is off (`_nrt`); a function that makes an array does not compile
then. numba has no public names for either; its version is pinned.
"""

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar

from numba import njit

__all__ = ["compiled"]

OPTIONS: dict[str, Any] = {"cache": True, "_nrt": False}

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(*sources: ModuleType) -> Callable[[Function], Function]:
    """`numba.njit` for functions that make no array, with a cache that is stale as soon as one of `sources` changes.

    Name every module whose values or functions are used.
    """
    stamps = tuple(_stamp(each) for each in (sys.modules[__name__], *sources))

    def made(function: Function) -> Function:
        dispatcher: Any = njit(**OPTIONS)(function)
        cache = getattr(dispatcher, "_cache", None)  # none where compilation is switched off
        index: Any = getattr(cache, "_cache_file", SimpleNamespace(_source_stamp=()))
        index._source_stamp = (index._source_stamp, *stamps)  # noqa: SLF001 - no public name
        compiled_function: Function = dispatcher
        return compiled_function

    return made


def _stamp(module: ModuleType) -> tuple[float, int]:
    loader: Any = module.__spec__.loader if module.__spec__ else None
    found = loader.path_stats(module.__file__)
    return float(found["mtime"]), int(found["size"])
