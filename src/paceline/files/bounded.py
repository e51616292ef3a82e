"""Opens what a user names so that reading it ends: a regular file, or a pipe that somebody holds open already (`<(…)`, /dev/stdin).

A directory, a device and a named pipe are refused before a byte is read: a named pipe waits for a writer that may never come, and a device
has no end. What is read as a whole is read up to a bound.
"""

import errno
import io
import os
import stat
from pathlib import Path

from paceline.errors import BadInputError, printable

__all__ = ["need_file", "open_file", "opener", "read_bounded"]

KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFIFO: "a named pipe, which may have no writer",
}
NOT_WAITING = getattr(os, "O_NONBLOCK", 0)  # opening a named pipe waits for its writer otherwise


def opener(path: str, flags: int) -> int:
    """What `open` and `io.FileIO` take as their opener.

    Raises:
        OSError: there is no such file, or it is of a kind that may never end; `strerror` says which.

    """
    descriptor = os.open(path, flags | NOT_WAITING)
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG and not (kind == stat.S_IFIFO and _is_held_open(path)):
        os.close(descriptor)
        raise OSError(
            errno.EISDIR if kind == stat.S_IFDIR else errno.EINVAL, f"it is {KINDS.get(kind, 'no file')}; give a regular file", path
        )
    if NOT_WAITING:
        os.set_blocking(descriptor, True)
    return descriptor


def _is_held_open(path: str) -> bool:
    """Whether a pipe is one of our own descriptors: it has no place in the file system, or is one in /dev."""
    place = Path(path).resolve()
    return place.parts[:2] == ("/", "dev") or not place.is_fifo()


def open_file(path: Path) -> io.BufferedReader:
    """The file, to read its bytes.

    Raises:
        OSError: as `opener`.

    """
    return io.BufferedReader(io.FileIO(path, opener=opener))


def need_file(path: Path) -> None:
    """Nothing, where a library that opens `path` by itself finds a file that ends.

    Raises:
        OSError: as `opener`.

    """
    open_file(path).close()


def read_bounded(path: Path, *, what: str, most_bytes: int, remedy: str) -> bytes:
    """All bytes of a file; `what` it is and the `remedy` where it is none are for messages.

    Raises:
        BadInputError: it cannot be read, or is larger than `most_bytes`.

    """
    shown = f"{what} {printable(str(path))}"
    try:
        with open_file(path) as file:
            content = file.read(most_bytes + 1)
    except (OSError, ValueError) as fault:  # ValueError: a path with a NUL in it
        why = (fault.strerror if isinstance(fault, OSError) else str(fault)) or type(fault).__name__
        raise BadInputError(f"{shown} cannot be read: {why}; {remedy}") from None
    if len(content) > most_bytes:
        size = f"{most_bytes >> 20} MiB" if most_bytes >= 1 << 20 else f"{most_bytes >> 10} KiB"
        raise BadInputError(f"{shown} is larger than {size}; {remedy}")
    return content
