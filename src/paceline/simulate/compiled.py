"""Compilation whose cache notices a change in every module that a compiled function draws on.

numba keys a function's cache by the function's own file. Constants and functions of other modules are frozen into it, and a change in them
would go unnoticed: yesterday's machine code would run. `compiled(module, …)` adds those modules' change times and sizes to the key.
"""

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar

from numba import njit

__all__ = ["compiled"]

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(*sources: ModuleType) -> Callable[[Function], Function]:
    """`numba.njit` with a cache that is stale as soon as one of `sources` changes; name every module whose values or functions are used."""
    stamps = tuple(_stamp(each) for each in sources)

    def made(function: Function) -> Function:
        dispatcher: Any = njit(cache=True)(function)
        cache = getattr(dispatcher, "_cache", None)  # none where compilation is switched off
        # numba has no public way to add to the key; its version is pinned.
        index: Any = getattr(cache, "_cache_file", SimpleNamespace(_source_stamp=()))
        index._source_stamp = (index._source_stamp, *stamps)  # noqa: SLF001 - as above
        compiled_function: Function = dispatcher
        return compiled_function

    return made


def _stamp(module: ModuleType) -> tuple[float, int]:
    loader: Any = module.__spec__.loader if module.__spec__ else None
    found = loader.path_stats(module.__file__)
    return float(found["mtime"]), int(found["size"])
