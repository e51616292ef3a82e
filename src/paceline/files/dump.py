"""Reads what a /metrics endpoint answered, from a file: plain or gzip, one scrape per file, of any server that we read.

Half a scrape is no scrape: a file that is cut off is refused, not read as far as it goes.
"""

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path

from paceline.errors import BadInputError, UnknownNameError, printable
from paceline.files.bounded import open_file
from paceline.files.found import sha256_of
from paceline.files.histograms import with_percentiles
from paceline.run import Run
from paceline.servers.measured_run import to_run
from paceline.servers.prometheus_text import MalformedLine
from paceline.servers.scrape import Scrape, read_scrape, restart_or_swap, window_of
from paceline.servers.tensorrt_llm.iterations import Iterations
from paceline.servers.window import Window
from paceline.verdict import Caution

__all__ = [
    "malformed_lines",
    "measure_dumps",
    "read_head",
    "read_scrape_file",
    "read_text",
    "since",
    "window_of_dumps",
]

LARGEST_BYTES = 64 * 2**20
HEAD_BYTES = 4096
GZIP_MAGIC = b"\x1f\x8b"


def read_text(path: Path) -> str:
    """The text of a file, unpacked where it is gzip.

    Raises:
        BadInputError: no such file, above 64 MiB unpacked, a gzip file that is cut off or damaged, or not UTF-8 text.

    """
    content = _content(path, LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        raise BadInputError(f"{printable(path.name)} holds more than {LARGEST_BYTES // 2**20} MiB; give one scrape per file")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInputError(f"{printable(path.name)} is not text: byte {error.start} is no UTF-8") from error


def read_head(path: Path) -> str:
    """The first 4096 bytes of a file as text, to recognise it by; what is no UTF-8 is replaced.

    Raises:
        BadInputError: no such file, or a damaged gzip file.

    """
    return _content(path, HEAD_BYTES).decode("utf-8", errors="replace")


def _content(path: Path, most_bytes: int) -> bytes:
    try:
        with open_file(path) as file:
            zipped = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
            file.seek(0)
            if not zipped:
                return file.read(most_bytes)
            with gzip.GzipFile(fileobj=file) as unpacked:
                return unpacked.read(most_bytes)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInputError(f"{printable(path.name)} is a damaged or cut off gzip file: {error}") from error
    except OSError as error:
        instead = "; an address is watched by `measure --url`" if str(path).startswith(("http:", "https:")) else ""
        raise BadInputError(f"cannot read {printable(str(path))}: {error.strerror or type(error).__name__}{instead}") from error


def read_scrape_file(path: Path, *, model: str | None) -> Scrape:
    """One scrape of any server that we read.

    Raises:
        BadInputError: unreadable, cut off, or nothing that we read.

    """
    text = read_text(path)
    try:
        return read_scrape(text, model=model)
    except UnknownNameError:
        raise
    except BadInputError as error:
        raise BadInputError(f"{printable(path.name)}: {error}") from error


def window_of_dumps(before: Path | None, after: Path, *, model: str | None) -> Window:
    """What a server did between two scrapes, or since its start where `before` is None, with everything to be cautious about.

    Raises:
        BadInputError: a file cannot be read as a scrape, the two do not belong together, or look swapped.

    """
    paths = (after,) if before is None else (before, after)
    scrapes = [read_scrape_file(path, model=model) for path in paths]
    noted = [each for path, scrape in zip(paths, scrapes, strict=True) for each in malformed_lines(path.name, scrape.malformed)]
    if before is None:
        noted.append(since(scrapes[0]))
    elif (doubt := restart_or_swap(*scrapes)) is not None:
        noted.append(doubt)
    return window_of(scrapes).with_cautions(tuple(noted))


def since(scrape: Scrape) -> Caution:
    """Since when a single scrape counts."""
    if isinstance(scrape.said, Iterations):
        return Caution("since_last_reading", "one list of iterations holds those since /metrics was read before, by whomever")
    return Caution("since_start", "one scrape alone counts from the server's start on, warm-up and every load included")


def malformed_lines(name: str, lines: Sequence[MalformedLine]) -> list[Caution]:
    """That lines of a scrape could not be read, none where all could."""
    if not lines:
        return []
    return [
        Caution("malformed_lines", f"{printable(name)}: {len(lines)} unreadable lines, the first is line {lines[0].number}: {lines[0].why}")
    ]


def measure_dumps(before: Path | None, after: Path, *, model: str | None) -> Run:
    """The same as a run, with the files' hashes in its provenance. `model` None takes the only one served.

    Raises:
        BadInputError: as `window_of_dumps`, or the counters contradict each other.
        NoEvidenceError: the server generated no token in between.

    """
    window = window_of_dumps(before, after, model=model)
    named = {after.name: after} if before is None else {f"before {before.name}": before, f"after {after.name}": after}
    inputs = {name: sha256_of(path) for name, path in named.items()}
    return with_percentiles(to_run(window, arm=None, inputs=inputs, window_s=None), window)
