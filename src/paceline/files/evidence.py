"""Reads any file that is evidence, recognised by what is in it and never by its name."""

import re
from pathlib import Path

from paceline.errors import BadInputError, printable
from paceline.files.dump import measure_dumps, read_head
from paceline.files.runfile import read_run
from paceline.run import Run
from paceline.servers.scrape import METRICS_WE_READ

__all__ = ["read_evidence"]

SCHEMA = re.compile(r'"schema"\s*:\s*"([^"]*)"')
RECOGNISED = 'a paceline run file (JSON with "schema": "paceline.run/1") or a /metrics dump of ' + METRICS_WE_READ


def read_evidence(path: Path) -> Run:
    """The file as a run, whatever made it.

    Raises:
        BadInputError: unreadable, or nothing that is recognised; the message lists what is.
        NoEvidenceError: a dump of a server that generated nothing.

    """
    head = read_head(path)
    if head.lstrip().startswith("{"):
        named = SCHEMA.search(head)
        schema = named[1] if named else ""
        if schema.startswith("paceline.run/"):
            return read_run(path)
        found = f"JSON with schema {printable(schema)}" if schema else "JSON without a schema"
        raise BadInputError(f"{printable(path.name)} is {found}; recognised: {RECOGNISED}")
    try:
        return measure_dumps(None, path, model=None)
    except BadInputError as error:
        raise BadInputError(f"{error}; recognised: {RECOGNISED}") from error
