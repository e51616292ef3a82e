"""Reads what a /metrics endpoint answered, from a file: plain or gzip, one scrape per file.

Half a scrape is no scrape: a file that is cut off is refused, not read as far as it goes.
"""

import gzip
import hashlib
import zlib
from pathlib import Path

from paceline.errors import BadInputError, printable
from paceline.run import Run
from paceline.servers.prometheus_text import Exposition, parse_exposition
from paceline.servers.vllm.metrics import difference, read_counters
from paceline.servers.vllm.window import VllmWindow, to_run
from paceline.verdict import Caution

__all__ = ["measure_dumps", "read_dump", "read_head", "read_text", "window_of_dumps"]

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
        with path.open("rb") as file:
            zipped = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
            file.seek(0)
            if not zipped:
                return file.read(most_bytes)
            with gzip.GzipFile(fileobj=file) as unpacked:
                return unpacked.read(most_bytes)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInputError(f"{printable(path.name)} is a damaged or cut off gzip file: {error}") from error
    except OSError as error:
        raise BadInputError(f"cannot read {printable(str(path))}: {error.strerror or type(error).__name__}") from error


def read_dump(path: Path) -> Exposition:
    """The samples of one scrape.

    Raises:
        BadInputError: unreadable, binary or cut off (its last line does not end), or without a sample.

    """
    return _exposition(read_text(path), path)


def _exposition(text: str, path: Path) -> Exposition:
    try:
        exposition = parse_exposition(text)
    except BadInputError as error:
        raise BadInputError(f"{printable(path.name)}: {error}") from error
    if not text.endswith("\n"):
        raise BadInputError(
            f"{printable(path.name)} ends in the middle of a line: cut off; scrape again (a whole scrape ends with a newline)"
        )
    return exposition


def window_of_dumps(before: Path | None, after: Path, *, model: str | None) -> VllmWindow:
    """What a vLLM server did between two scrapes, or since its start where `before` is None, with everything to be cautious about.

    Raises:
        BadInputError: a file cannot be read as a vLLM scrape, or the two do not belong together.

    """
    first = None if before is None else read_dump(before)
    second = read_dump(after)
    window = difference(None if first is None else read_counters(first.samples, model=model), read_counters(second.samples, model=model))
    noted = [*_malformed(first, before), *_malformed(second, after)]
    if before is None:
        noted.append(Caution("since_start", "one scrape alone counts from the server's start on, warm-up and every load included"))
    return window.with_cautions(tuple(noted))


def _malformed(exposition: Exposition | None, path: Path | None) -> list[Caution]:
    if exposition is None or path is None or not exposition.malformed:
        return []
    first = exposition.malformed[0]
    lines = len(exposition.malformed)
    return [Caution("malformed_lines", f"{printable(path.name)}: {lines} unreadable lines, the first is line {first.number}: {first.why}")]


def measure_dumps(before: Path | None, after: Path, *, model: str | None) -> Run:
    """The same as a run, with the files' hashes in its provenance. `model` None takes the only one served.

    Raises:
        BadInputError: as `window_of_dumps`, or the counters contradict each other.
        NoEvidenceError: the server generated no token in between.

    """
    window = window_of_dumps(before, after, model=model)
    named = {after.name: after} if before is None else {f"before {before.name}": before, f"after {after.name}": after}
    inputs = {name: _sha256(path) for name, path in named.items()}
    return to_run(window, arm=None, inputs=inputs)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
