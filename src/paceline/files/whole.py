"""Writes a file whole or not at all: beside its place, then moved there, so that a reader never sees half of one."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from paceline.errors import BadInputError, printable

__all__ = ["make_folder", "remove_unfinished", "write_text"]

UNFINISHED = (".*.json.*", ".*.jsonl.*", ".*.safetensors.*")


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, over what was there.

    Raises:
        BadInputError: the place cannot be written to.

    """
    beside = None
    path = path.resolve()  # through a link to the file it names
    if path.exists() and not path.is_file():
        raise BadInputError(f"cannot write {printable(path.name)}: something other than a file is there; choose another place")
    try:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            beside = file.name
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(beside, 0o666 & ~umask)  # a temporary file is for its owner only; this one is for whoever may read the folder
        os.replace(beside, path)
    except OSError as error:
        if beside is not None:
            with suppress(OSError):
                os.unlink(beside)
        raise BadInputError(f"cannot write {printable(path.name)}: {error.strerror}; choose another place") from error


def make_folder(path: Path) -> None:
    """Make the folder and those above it.

    Raises:
        BadInputError: something else is in the way, or the place cannot be written to.

    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"cannot make the folder {printable(str(path))}: {error.strerror}; choose another place") from error


def remove_unfinished(folder: Path) -> None:
    """Delete what processes that were killed while they wrote left beside the files of `folder` and of the folders in it."""
    for pattern in UNFINISHED:
        for left in folder.rglob(pattern):
            left.unlink(missing_ok=True)
