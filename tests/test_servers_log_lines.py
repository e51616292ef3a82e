"""A line is read as the server wrote it, whatever coloured it or stood before it."""

import pytest

from paceline.servers.log_lines import LONGEST_LINE, plain_line, plain_lines

OWN = "(APIServer pid=7) INFO 06-30 23:07:05 [metrics.py:101] SpecDecoding metrics: Accepted: 3 tokens"


@pytest.mark.parametrize(
    "before",
    [
        "",
        "vllm-1  | ",
        "[pod/vllm-7d9c/server] ",
        "2026-06-30T23:07:05.123456789Z stdout F ",
        "2026-06-30T23:07:05Z ",
        "Jun 30 23:07:05 gpu-3 docker[812]: ",
        "vllm | 2026-06-30T23:07:05.1+02:00 stderr P ",
    ],
)
def test_what_a_container_writes_before_a_line_is_taken_off(before: str) -> None:
    """Whoever saves logs with docker, kubectl or journald: they are read as the server's own."""
    assert plain_line(before + OWN + "\r\n") == OWN


def test_colours_are_taken_off() -> None:
    """Whoever saved a terminal: an escape between level and time would hide every line."""
    assert plain_line("\x1b[1;36m(APIServer pid=7)\x1b[0;0m \x1b[32mINFO\x1b[0m" + OWN.partition("INFO")[2]) == OWN


def test_text_before_the_prefix_stays() -> None:
    """Whoever is sent hostile prompts: only what containers write is taken off, so that an echo keeps what stands before it."""
    assert plain_line("Received request: " + OWN) == "Received request: " + OWN


def test_lines_that_no_server_writes_are_passed_over() -> None:
    """Whoever logs requests of a megabyte: no pattern is ever tried on them."""
    assert list(plain_lines(["a\n", "b" * (LONGEST_LINE + 1), "c\n"])) == ["a", "c"]
