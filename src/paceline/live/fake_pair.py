"""Fake servers in processes of their own, so that their clock and the client's do not wait for each other.

A child ends when its pipe does: at the end of the `with`, or when the parent is gone, however it went.
"""

import asyncio
import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection

from paceline.errors import ServerFaultError
from paceline.live.fake_server import FakeServer, serve

__all__ = ["fake_servers"]

START_TIMEOUT_S = 180.0  # compiling the simulator on a machine that does something else
END_TIMEOUT_S = 10.0


@contextmanager
def fake_servers(settings: Sequence[FakeServer]) -> Iterator[tuple[str, ...]]:
    """The URLs of so many running servers.

    Raises:
        ServerFaultError: one did not start.

    """
    context = multiprocessing.get_context("spawn")
    pipes: list[Connection] = []
    children = []
    try:
        for each in settings:
            ours, theirs = context.Pipe()
            pipes.append(ours)
            child = context.Process(target=_serve, args=(theirs, each), daemon=True)
            child.start()
            theirs.close()
            children.append(child)
        yield tuple(_url(each) for each in pipes)
    finally:
        for pipe in pipes:
            pipe.close()
        for child in children:
            child.join(END_TIMEOUT_S)
            if child.is_alive():
                child.kill()


def _url(pipe: Connection) -> str:
    try:
        if pipe.poll(START_TIMEOUT_S):
            return str(pipe.recv())
    except EOFError:
        pass
    raise ServerFaultError("a fake server did not start; `paceline fake-server` says why")


def _serve(pipe: Connection, settings: FakeServer) -> None:
    """The child: serves until its pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the parent, which ends the pipe
    asyncio.run(_until_alone(pipe, settings))


async def _until_alone(pipe: Connection, settings: FakeServer) -> None:
    running = await serve(settings)
    pipe.send(running.url)
    alone = asyncio.Event()
    asyncio.get_running_loop().add_reader(pipe.fileno(), alone.set)
    await alone.wait()
    await running.stop()
