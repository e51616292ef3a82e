"""Reads any file that is evidence, recognised by what is in it and never by its name."""

import re
from pathlib import Path

from paceline.errors import BadInputError, printable
from paceline.files.dump import measure_dumps, read_head, read_text
from paceline.files.runfile import read_run
from paceline.files.serverlog import LOGS_WE_READ, is_server_log, read_server_log
from paceline.run import Run
from paceline.servers.prometheus_text import parse_exposition
from paceline.servers.vllm.metrics import is_vllm

__all__ = ["read_evidence"]

SCHEMA = re.compile(r'"schema"\s*:\s*"([^"]*)"')
RECOGNISED = 'a paceline run file (JSON with "schema": "paceline.run/1"), a vLLM /metrics dump or ' + LOGS_WE_READ


def read_evidence(path: Path) -> Run:
    """The file as a run, whatever made it.

    Raises:
        BadInputError: unreadable, or nothing that is recognised; the message lists what is.
        NoEvidenceError: a dump of a server that generated nothing, a log without statistics.

    """
    head = read_head(path)
    if head.lstrip().startswith("{"):
        named = SCHEMA.search(head)
        schema = named[1] if named else ""
        if schema.startswith("paceline.run/"):
            return read_run(path)
        found = f"JSON with schema {printable(schema)}" if schema else "JSON without a schema"
        raise BadInputError(f"{printable(path.name)} is {found}; recognised: {RECOGNISED}")
    if head and is_server_log(path):
        return read_server_log(path)
    try:
        samples = parse_exposition(read_text(path)).samples
    except BadInputError as error:
        raise BadInputError(f"{printable(path.name)} is neither JSON, nor a /metrics dump, nor a log; recognised: {RECOGNISED}") from error
    if not is_vllm(samples):
        raise BadInputError(f"{printable(path.name)} is a /metrics dump without vLLM's series; recognised: {RECOGNISED}")
    return measure_dumps(None, path, model=None)
