"""An answer as it is kept while its block runs, and the same read back, every field checked: what the disk damaged is asked again.

The key is left out of it, whatever the server said.
"""

from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import Any

from paceline.errors import BadInputError
from paceline.files.benchfolder import Came
from paceline.live.http_connection import Received, StreamEnd
from paceline.live.openai import Ask, without_key, without_key_bytes
from paceline.live.sending import Sent

__all__ = ["came_of", "sent_of"]


def came_of(sent: Sent) -> Came:
    """One answer as it is kept while the block runs."""
    got = sent.received
    told: dict[str, Any] = {
        "id": sent.ask.id,
        "due_ns": sent.due_ns,
        "sent_at_ns": got.sent_at_ns,
        "status": got.status,
        "headers": {name: without_key(value) for name, value in got.headers.items()},
        "ended": got.ended.value,
        "ended_at_ns": got.ended_at_ns,
        "error": None if got.error is None else without_key(got.error),
        "received_bytes": got.received_bytes,
        "sent_twice": got.sent_twice,
        "at_ns": [at_ns for at_ns, _ in got.packets],
        "sizes": [len(data) for _, data in got.packets],
    }
    return Came(told=told, body=without_key_bytes(b"".join(data for _, data in got.packets)))


def sent_of(came: Came, known: Mapping[str, Ask]) -> Sent:
    """The same, read back.

    Raises:
        BadInputError: it is not what `came_of` told.

    """
    told = came.told
    if not _is_lawful(told, len(came.body)) or told["id"] not in known:
        raise BadInputError("the answers that came are damaged, or not this test's")
    cuts = pairwise(accumulate(told["sizes"], initial=0))
    received = Received(
        sent_at_ns=told["sent_at_ns"],
        status=told["status"],
        headers=told["headers"],
        packets=tuple((at_ns, came.body[start:end]) for at_ns, (start, end) in zip(told["at_ns"], cuts, strict=True)),
        ended=StreamEnd(told["ended"]),
        ended_at_ns=told["ended_at_ns"],
        error=told["error"],
        received_bytes=told["received_bytes"],
        sent_twice=told["sent_twice"],
    )
    return Sent(ask=known[told["id"]], due_ns=told["due_ns"], received=received)


def _is_lawful(told: Mapping[str, Any], body_bytes: int) -> bool:
    """Whether every field is of its type, sizes sum up to the body, and instants rise."""
    texts, lists = (told.get("id"), told.get("ended")), (told.get("at_ns"), told.get("sizes"))
    if not all(isinstance(each, str) for each in texts) or told["ended"] not in set(StreamEnd):
        return False
    if not all(isinstance(each, list) and all(_is_size(number) for number in each) for each in lists):
        return False
    instants = [told.get("due_ns"), told.get("sent_at_ns"), *told["at_ns"], told.get("ended_at_ns")]
    if not all(_is_size(each) for each in instants) or any(before > after for before, after in pairwise(instants)):
        return False
    status, headers, error = told.get("status", ""), told.get("headers"), told.get("error", 0)
    return (
        (status is None or (_is_size(status) and status < 1000))
        and isinstance(headers, dict)
        and all(isinstance(each, str) for each in headers.values())
        and (error is None or isinstance(error, str))
        and _is_size(told.get("received_bytes"))
        and type(told.get("sent_twice")) is bool
        and len(told["at_ns"]) == len(told["sizes"])
        and sum(told["sizes"]) == body_bytes
    )


def _is_size(value: object) -> bool:
    """Whether it is a whole number that an array of instants holds."""
    return type(value) is int and 0 <= value < 2**63
