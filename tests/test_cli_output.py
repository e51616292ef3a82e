"""What long work says of itself: a bar on a terminal, a line now and then in a log, never two bars at once."""

import io
from contextlib import redirect_stderr

from paceline.cli.output import LINE_S, lines_of_progress
from paceline.cli.training import bars


class Terminal(io.StringIO):
    """A stderr that somebody looks at."""

    def isatty(self) -> bool:
        """Whether somebody looks."""
        return True


def test_a_log_gets_a_line_now_and_then_with_what_is_left() -> None:
    """Hours of training in CI would say nothing until they end, or a line per update."""
    now, lines = [0.0], list[str]()
    bar = lines_of_progress("answering", 3000, clock=lambda: now[0], write=lines.append)
    bar(1000)  # what an earlier sitting did counts, and not for the pace
    for _ in range(4):
        now[0] += LINE_S / 2
        bar(50)
    assert lines == [
        "answering: 1,100 of 3,000, about 1 min left\n",  # 1100 in 30 s, with what was there before
        "answering: 1,200 of 3,000, about 9 min left\n",  # 100 in 30 s
    ]


def test_what_has_no_total_or_does_not_move_promises_no_end() -> None:
    """A guess would be taken for an estimate."""
    now, lines = [0.0], list[str]()
    counting = lines_of_progress("reading", None, clock=lambda: now[0], write=lines.append)
    waiting = lines_of_progress("measuring", 10, clock=lambda: now[0], write=lines.append)
    now[0] = LINE_S
    counting(12)
    waiting(0)
    assert lines == ["reading: 12\n", "measuring: 0 of 10\n"]


def test_a_bar_ends_before_the_next_begins() -> None:
    """Two bars would draw over each other, and the one that is done would stand there as if it went on."""
    shown = Terminal()
    with redirect_stderr(shown), bars() as bar:
        bar("answering", 10)(10)
        before = len(shown.getvalue())
        bar("training", 4)(1)
    assert "answering" in shown.getvalue()[:before]
    assert "answering" not in shown.getvalue()[before + 200 :]
    assert "training" in shown.getvalue()


def test_a_log_of_short_work_stays_empty() -> None:
    """Every verb would leave lines in every log."""
    log = io.StringIO()
    with redirect_stderr(log), bars() as bar:
        bar("answering", 10)(10)
    assert log.getvalue() == ""
