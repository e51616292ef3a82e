"""What a file holds: one run or several, each under a label, and how a kind of file is recognised.

A file seldom says which arm it measured. Where it does not, whoever asks says so, by an option or by the place on the command line.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paceline.errors import BadInputError, printable
from paceline.files.bounded import open_file
from paceline.run import Arm, Run
from paceline.verdict import Caution

__all__ = ["Found", "Recogniser", "as_arm", "sha256_of"]


@dataclass(frozen=True, slots=True)
class Found:
    """One run of a file: its `label` there ('' where it is the only one), and whether the file says which arm it is."""

    label: str
    run: Run
    arm_stated: bool


@dataclass(frozen=True, slots=True)
class Recogniser:
    """A kind of file: what it is called, whether the first few thousand characters are of it, and what reads it."""

    name: str
    recognise: Callable[[str], bool]
    read: Callable[[Path], Sequence[Found]]


def as_arm(found: Found, arm: Arm | None) -> Run:
    """The run as that arm where its file does not say; without either it counts as the baseline, with a caution."""
    if found.arm_stated:
        return found.run
    if arm is not None:
        return replace(found.run, arm=arm)
    assumed = Caution(
        "arm_assumed", "the file does not say whether drafts were on: it is taken as the plain arm; give --arm speculative if not"
    )
    return replace(found.run, arm=Arm.BASELINE, cautions=(*found.run.cautions, assumed))


def sha256_of(path: Path) -> str:
    """The hash of the file's bytes as they lie there.

    Raises:
        BadInputError: it cannot be read.

    """
    try:
        with open_file(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BadInputError(f"cannot read {printable(str(path))}: {error.strerror or type(error).__name__}") from error
