"""One process at a time writes into a folder: a lock on the folder itself, which the system lets go when its process ends, however it does.

The lock is on the folder and not on its name: whoever comes through a link meets it too. Files in it are replaced, and a lock on one would
go with it.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paceline.errors import BadInputError, printable

__all__ = ["lock_folder", "only_writer"]


def lock_folder(path: Path, *, verb: str, option: str) -> int | None:
    """Lock a folder until the descriptor that comes back is closed; None where the system or the file system has no locks.

    `verb` writes there, `option` names the folder, for the message.

    Raises:
        BadInputError: another process writes there.

    """
    if sys.platform == "win32":
        return None
    import fcntl

    locked = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(locked)
        raise BadInputError(
            f"another paceline {verb} is writing into {printable(str(path))}; wait for it, or choose another folder for {option}"
        ) from error
    except OSError:  # a file system without locks
        os.close(locked)
        return None
    return locked


@contextmanager
def only_writer(path: Path, *, verb: str, option: str) -> Iterator[None]:
    """A block in which no other process writes into a folder.

    Raises:
        BadInputError: another one does.

    """
    locked = lock_folder(path, verb=verb, option=option)
    try:
        yield
    finally:
        if locked is not None:
            os.close(locked)
