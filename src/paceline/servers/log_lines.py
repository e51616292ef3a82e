"""What the logs of all servers have in common: colours, and what a container or a service manager writes before each line.

A line counts as the server's own only where the server's prefix stands at its very start. Text that a user sent and the server echoes
stands behind the prefix of another message, so it is never counted; where a server writes no prefix at all, that cannot be told.
"""

import re
from collections.abc import Iterable, Iterator

__all__ = ["LONGEST_LINE", "plain_line", "plain_lines"]

LONGEST_LINE = 65_536  # what servers print of themselves is shorter; longer lines are echoed requests

COLOUR = re.compile(r"\x1b\[[0-9;:?]{0,32}[A-Za-z]")
OUTER = (
    re.compile(r"[A-Za-z0-9][\w.-]{0,80} {0,40}\| "),  # docker compose
    re.compile(r"\[pod/[\w./-]{1,200}\] "),  # kubectl logs --prefix
    re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]{0,10}(?:Z|[+-]\d\d:\d\d) (?:std(?:out|err) [FP] )?"),  # docker -t, containerd
    re.compile(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,80} [\w.@-]{1,80}\[\d{1,9}\]: "),  # journald
)


def plain_line(line: str) -> str:
    """The line as the server wrote it: no colours, no line end, nothing before it that a container or a service manager added."""
    text = COLOUR.sub("", line) if "\x1b" in line else line
    for outer in OUTER:
        found = outer.match(text)
        if found:
            text = text[found.end() :]
    return text.rstrip("\r\n")


def plain_lines(lines: Iterable[str]) -> Iterator[str]:
    """Every line of a bearable length as the server wrote it."""
    return (plain_line(each) for each in lines if len(each) <= LONGEST_LINE)
