"""What a warm-up's answers tell before anything is measured: a server that does not answer as it should is said at once."""

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.errors import ServerFaultError
from paceline.live.answer import read_answer
from paceline.live.http_connection import StreamEnd
from paceline.live.openai import without_key
from paceline.live.sending import Sent
from paceline.run import Arm

__all__ = ["Warmed", "need_answers", "need_text"]


@dataclass(frozen=True, slots=True)
class Warmed:
    """A server that was warmed up: the optional fields it refuses, and after how many rounds it had settled (None: not within 8)."""

    without: tuple[str, ...]
    rounds: int | None


def need_answers(done: Sequence[Sent], arm: Arm) -> None:
    """Nothing, where all were answered as a server should.

    Raises:
        ServerFaultError: with what went wrong.

    """
    for each in done:
        answer = read_answer(each.received, each.ask, arrived_at_s=None, clock_origin_ns=each.due_ns, count_tokens=None)
        if answer.error is not None or each.received.ended is not StreamEnd.COMPLETE:
            what = answer.error or each.received.error or each.received.ended.value
            raise ServerFaultError(f"the {arm.value} server did not answer a warm-up request: {without_key(what)}")


def need_text(done: Sequence[Sent], arm: Arm) -> None:
    """Nothing, where one of the answers shows text.

    Raises:
        ServerFaultError: none does, so nothing can be timed.

    """
    answers = (read_answer(each.received, each.ask, arrived_at_s=None, clock_origin_ns=each.due_ns, count_tokens=None) for each in done)
    if not any(each.text for each in answers):
        raise ServerFaultError(
            f"all {len(done)} warm-up answers of the {arm.value} server were empty: no message had text, so nothing is timed"
        )
