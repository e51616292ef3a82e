"""Files of the same tools that hold no run of ours, recognised so that they can be refused by their name and with a better file's."""

from pathlib import Path
from typing import NoReturn

from paceline.errors import BadInputError, printable
from paceline.files.found import Recogniser

__all__ = ["REFUSED"]


def _is_server_metrics(head: str) -> bool:
    return '"aiperf_version":' in head and '"metrics_phase":' in head


def _is_aiperf_table(head: str) -> bool:
    return head.startswith("Metric,avg,") or "\nTime to First Token (ms)," in head


def _is_stream(head: str) -> bool:
    return head.lstrip().startswith(("data:", "event:")) and "data:" in head


def _refuser(name: str, what: str, instead: str, recognise: object) -> Recogniser:
    def refuse(path: Path) -> NoReturn:
        raise BadInputError(f"{printable(path.name)} is {what}, not a run; {instead}")

    assert callable(recognise)
    return Recogniser(name=name, recognise=recognise, read=refuse)


REFUSED = (
    _refuser(
        "aiperf's server metrics",
        "aiperf's summary of a server's /metrics",
        "give its profile_export.jsonl or the directory, and `measure --before DUMP --after DUMP` for acceptance",
        _is_server_metrics,
    ),
    _refuser(
        "aiperf's table",
        "aiperf's table of aggregates (CSV)",
        "give profile_export.jsonl, profile_export_aiperf.json or the directory",
        _is_aiperf_table,
    ),
    _refuser(
        "a captured stream",
        "one captured stream of server-sent events",
        "measure with `bench`, or give the load-tester's result file",
        _is_stream,
    ),
)
