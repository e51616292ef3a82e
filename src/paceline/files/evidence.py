"""Reads any file or folder that is evidence, recognised by what is in it and never by its name.

A file may hold several runs. `FILE#LABEL` asks for one of them, by the label that the refusal lists.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from paceline.errors import BadInputError, NoEvidenceError, UnknownNameError, ascii_controls, printable
from paceline.files.benchfile.assemble import listed
from paceline.files.benchfile.documents import keys_of, whole_document
from paceline.files.benchfile.folder import read_folder
from paceline.files.benchfile.recognisers import BENCHFILES
from paceline.files.benchfile.refused import REFUSED
from paceline.files.dump import measure_dumps, read_head
from paceline.files.found import Found, Recogniser, as_arm
from paceline.files.runfile import read_run
from paceline.files.serverlog import LOGS_WE_READ, is_server_log, read_server_log
from paceline.run import Arm, Run
from paceline.servers.scrape import METRICS_WE_READ

__all__ = ["RECOGNISERS", "read_all", "read_evidence"]

SCHEMA = re.compile(r'"schema"\s*:\s*"([^"]*)"')
SPACE_AFTER_KEY = re.compile(r'"\s*:\s*')


def _is_run(head: str) -> bool:
    named = SCHEMA.search(head) if head.lstrip().startswith("{") else None
    return named is not None and named[1].startswith("paceline.run/")


def _read_run(path: Path) -> tuple[Found, ...]:
    return (Found(label="", run=read_run(path), arm_stated=True),)


RECOGNISERS = (Recogniser('paceline run files (JSON with "schema": "paceline.run/1")', _is_run, _read_run), *BENCHFILES)
RECOGNISED = (
    f"{', '.join(each.name for each in RECOGNISERS if each not in REFUSED)}, /metrics dumps of {METRICS_WE_READ}, {LOGS_WE_READ}; "
    "folders of paceline, vllm bench sweep and aiperf"
)


def read_evidence(path: Path, arm: Arm | None = None) -> Run:
    """The one run in a file or folder, whatever made it; `FILE#LABEL` asks for one of several.

    `arm` says which arm it is where the file does not, and which is asked for where it holds both.

    Raises:
        BadInputError: unreadable, nothing that is recognised (the message lists what is), or several runs (the message lists them).
        NoEvidenceError: a file in which nothing was measured.

    """
    found = read_all(path, arm)
    if len(found) > 1:
        name = printable(path.name)
        raise BadInputError(f"{name} holds {len(found)} runs; ask for one as {ascii_controls(path.name)}#LABEL: {listed(found)}")
    return found[0].run


def read_all(path: Path, arm: Arm | None = None) -> tuple[Found, ...]:
    """Every run in a file or folder, as that arm where it does not say; of one that holds both arms, those of `arm`.

    Raises:
        BadInputError: unreadable, or nothing that is recognised; the message lists what is.
        NoEvidenceError: a file in which nothing was measured.
        UnknownNameError: no run has the label that was asked for.

    """
    place, label = _split(path)
    found = _found(place)
    if label is not None:
        wanted = [each for each in found if each.label == label]
        if not wanted:
            raise UnknownNameError("run", label, [each.label for each in found])
        found = wanted
    stated = {each.run.arm for each in found if each.arm_stated}
    if arm is not None and len(stated) > 1:
        found = [each for each in found if not each.arm_stated or each.run.arm is arm]
    return tuple(replace(each, run=as_arm(each, arm)) for each in found)


def _split(path: Path) -> tuple[Path, str | None]:
    """The file and the label behind its `#`, unless there is a file of that whole name."""
    name, mark, label = str(path).partition("#")
    return (Path(name), label) if mark and name and not path.exists() else (path, None)


def _found(path: Path) -> Sequence[Found]:
    if path.is_dir():
        return read_folder(path)
    head = read_head(path)
    known = _recogniser(head)
    if known is None and head and not head.lstrip().startswith("{") and is_server_log(path):  # a log's lines may begin with a bracket
        return (Found(label="", run=read_server_log(path), arm_stated=True),)
    if known is None and head.lstrip().startswith(("{", "[")):
        known = _recogniser(keys_of(whole_document(path)))
        if known is None and head.lstrip().startswith("{"):  # a list may be TensorRT-LLM's iterations
            named = SCHEMA.search(head)
            found = f"JSON with schema {printable(named[1])}" if named else "JSON without a schema"
            raise BadInputError(f"{printable(path.name)} is {found}; recognised: {RECOGNISED}")
    if known is not None:
        try:
            return known.read(path)
        except (BadInputError, NoEvidenceError) as error:
            if path.name in str(error):
                raise
            raise type(error)(f"{printable(path.name)}: {error}") from error
    return (Found(label="", run=_dump(path), arm_stated=True),)


def _recogniser(head: str) -> Recogniser | None:
    plain = SPACE_AFTER_KEY.sub('":', head)
    return next((each for each in RECOGNISERS if each.recognise(plain)), None)


def _dump(path: Path) -> Run:
    try:
        return measure_dumps(None, path, model=None)
    except BadInputError as error:
        raise BadInputError(f"{error}; recognised: {RECOGNISED}") from error
