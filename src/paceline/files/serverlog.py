"""Reads a server's log: vLLM's, SGLang's or llama.cpp's, plain or gzip, line by line and in constant memory but for its statistics.

A log is recognised by a line among the first MiB that only that server writes, never by the file's name. Lines longer than 64 KiB are
echoed requests and are passed over.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from paceline.errors import BadInputError, printable
from paceline.files.found import sha256_of
from paceline.files.lines import Source, opened, raw_lines
from paceline.run import Run
from paceline.servers.llamacpp import log as llamacpp
from paceline.servers.llamacpp.logged import run_of_log as llamacpp_run
from paceline.servers.log_lines import LONGEST_LINE, plain_line
from paceline.servers.sglang import log as sglang
from paceline.servers.sglang.logged import run_of_log as sglang_run
from paceline.servers.vllm import log as vllm
from paceline.servers.vllm.logged import run_of_log as vllm_run

__all__ = ["LOGS_WE_READ", "is_server_log", "read_server_log"]

LOGS_WE_READ = "a server log of vLLM, SGLang or llama.cpp"
LOOK_BYTES = 2**20
MOST_STATISTICS = 500_000  # lines or requests; two months at one line every ten seconds


@dataclass(frozen=True, slots=True)
class _Dialect:
    """Whether a line is that server's own, and the run of its log."""

    owns: Callable[[str], bool]
    run: Callable[..., Run]


DIALECTS = (
    _Dialect(vllm.is_vllm_line, vllm_run),
    _Dialect(sglang.is_sglang_line, sglang_run),
    _Dialect(llamacpp.is_llamacpp_line, llamacpp_run),
)


def is_server_log(path: Path) -> bool:
    """Whether a line among the first MiB is a server's own.

    Raises:
        BadInputError: no such file, empty or binary.

    """
    with opened(path) as source:
        return _dialect(_head(_lines(source))) is not None


def read_server_log(path: Path) -> Run:
    """What the log says, with everything to be cautious about.

    Raises:
        BadInputError: not a log of a server that is read, a damaged file, or more statistics than are read.
        NoEvidenceError: a log without statistics.

    """
    inputs: Mapping[str, str] = {path.name: sha256_of(path)}
    with opened(path) as source:
        lines = _lines(source)
        head = list(_head(lines))
        dialect = _dialect(head)
        if dialect is None:
            raise BadInputError(f"{printable(path.name)} is no log of vLLM, SGLang or llama.cpp: no line among its first MiB is theirs")
        run: Run = dialect.run(chain(head, lines), inputs=inputs, most=MOST_STATISTICS)
    return run


def _lines(source: Source) -> Iterator[str]:
    """The lines as the server wrote them; what is no UTF-8 is replaced.

    Raises:
        BadInputError: the file cannot be read to its end.

    """
    for raw in raw_lines(source.stream):
        if raw.fault is not None and raw.fault.detail:
            raise BadInputError(f"the log cannot be read beyond line {raw.number}: {raw.fault.detail}; copy it again from where it came")
        if len(raw.data) <= LONGEST_LINE:
            yield plain_line(raw.data.decode("utf-8", errors="replace"))


def _head(lines: Iterator[str]) -> Iterator[str]:
    """The lines of the first MiB."""
    seen = 0
    for line in lines:
        yield line
        seen += len(line) + 1
        if seen >= LOOK_BYTES:
            return


def _dialect(lines: Iterable[str]) -> _Dialect | None:
    return next((each for line in lines for each in DIALECTS if each.owns(line)), None)
