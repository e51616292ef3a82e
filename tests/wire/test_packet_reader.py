"""`live/packet_reader` over loopback sockets: when packets came, whatever kept the event loop, and how a connection ends."""

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from time import perf_counter_ns

import pytest

from paceline.live.event_loop import run_in_loop
from paceline.live.packet_reader import PacketReader, Source

pytestmark = pytest.mark.skipif(not PacketReader.is_possible(), reason="packets are stamped on Linux, x86-64, and by compiled code")


@dataclass
class Heard:
    """What a reader handed over of one socket."""

    packets: list[tuple[int, bytes]] = field(default_factory=list)
    ends: list[OSError | None] = field(default_factory=list)
    looks: int = 0

    def packet(self, at_ns: int, data: bytes) -> None:
        """Keep a packet."""
        self.packets.append((at_ns, data))

    def look(self) -> None:
        """Count the looks."""
        self.looks += 1

    @property
    def data(self) -> bytes:
        """All bytes."""
        return b"".join(data for _, data in self.packets)

    async def until(self, *, packets: int = 0, ends: int = 0, looks: int = 0) -> None:
        """Wait for so many."""
        async with asyncio.timeout(10):
            while len(self.packets) < packets or len(self.ends) < ends or self.looks < looks:
                await asyncio.sleep(0)


@contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
    theirs.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with ours, theirs:
        yield ours, theirs


@asynccontextmanager
async def reader() -> AsyncIterator[PacketReader]:
    found = PacketReader()
    try:
        yield found
    finally:
        found.close()


def test_a_stamp_says_when_a_packet_came_and_not_when_its_turn_came() -> None:
    """A client that is busy with 255 other streams would call its own queue the server's stall."""

    async def exchange() -> None:
        heard = Heard()
        with connected() as (ours, theirs):
            async with reader() as reading:
                reading.add(ours.fileno(), packet=heard.packet, look=lambda: None, end=heard.ends.append)
                for number in range(1, 4):
                    sent_at_ns = perf_counter_ns()
                    theirs.send(b"now")
                    while perf_counter_ns() < sent_at_ns + 20_000_000:  # the event loop is kept
                        pass
                    await heard.until(packets=number)
                    assert abs(heard.packets[-1][0] - sent_at_ns) < 15_000_000

    run_in_loop(exchange())


def test_all_sockets_that_have_something_are_read_and_none_is_mixed_up() -> None:
    """One user's answer would be another's."""

    async def exchange() -> None:
        with connected() as (one, its_peer), connected() as (other, others_peer):
            first, second = Heard(), Heard()
            async with reader() as reading:
                reading.add(one.fileno(), packet=first.packet, look=lambda: None, end=first.ends.append)
                reading.add(other.fileno(), packet=second.packet, look=lambda: None, end=second.ends.append)
                others_peer.send(b"other")
                its_peer.send(b"one")
                await first.until(packets=1)
                await second.until(packets=1)
        assert [first.packets[0][1], second.packets[0][1]] == [b"one", b"other"]
        assert first.packets[0][0] >= second.packets[0][0] - 1_000_000

    run_in_loop(exchange())


def test_bytes_that_the_kernel_does_not_stamp_get_the_instant_of_reading() -> None:
    """A system without such stamps would get none at all."""

    async def exchange() -> None:
        ours, theirs = socket.socketpair()  # a Unix socket: no packets, no stamps
        heard = Heard()
        with ours, theirs:
            async with reader() as reading:
                reading.add(ours.fileno(), packet=heard.packet, look=lambda: None, end=heard.ends.append)
                sent_at_ns = perf_counter_ns()
                theirs.send(b"now")
                await heard.until(packets=1)
        assert sent_at_ns <= heard.packets[0][0] <= perf_counter_ns()

    run_in_loop(exchange())


@pytest.mark.parametrize("broken", [False, True])
def test_a_close_and_a_broken_connection_are_told_apart(broken: bool) -> None:
    """An answer that ends with its connection would pass for complete when the server died."""

    async def exchange() -> None:
        heard = Heard()
        with connected() as (ours, theirs):
            async with reader() as reading:
                reading.add(ours.fileno(), packet=heard.packet, look=lambda: None, end=heard.ends.append)
                if broken:
                    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                theirs.close()
                await heard.until(ends=1)
        assert isinstance(heard.ends[0], ConnectionResetError) if broken else heard.ends[0] is None

    run_in_loop(exchange())


def test_what_is_removed_is_read_no_more_and_may_be_removed_again() -> None:
    """A cancelled request's packets would go to the next one, or a second close would end the run."""

    async def exchange() -> None:
        heard, other = Heard(), Heard()
        with connected() as (ours, theirs), connected() as (second, its_peer):
            async with reader() as reading:
                source = reading.add(ours.fileno(), packet=heard.packet, look=lambda: None, end=heard.ends.append)
                reading.remove(source)
                reading.remove(source)
                reading.add(second.fileno(), packet=other.packet, look=lambda: None, end=other.ends.append)
                theirs.send(b"too late")
                its_peer.send(b"in time")
                await other.until(packets=1)
            reading.close()
        assert (heard.packets, other.packets[0][1]) == ([], b"in time")

    run_in_loop(exchange())


async def received(reading: PacketReader, source: Source, size: int) -> None:
    """Wait until the thread has so many bytes."""
    async with asyncio.timeout(10):
        while reading.received_bytes(source) < size:
            await asyncio.sleep(0)


def test_a_packet_in_the_middle_waits_until_somebody_asks() -> None:
    """Python at every packet costs more than reading it, and a time-out that does not ask calls a lively stream silent."""

    async def exchange() -> None:
        heard = Heard()
        with connected() as (ours, theirs):
            async with reader() as reading:
                source = reading.add(ours.fileno(), packet=heard.packet, look=heard.look, end=heard.ends.append)
                reading.look_at(source, 1000)
                theirs.send(b"middle")
                await received(reading, source, 6)
                before = list(heard.packets)
                reading.hand_over()
                assert (before, heard.data, heard.looks) == ([], b"middle", 0)

    run_in_loop(exchange())


@pytest.mark.parametrize("packet", [b"0\r\nx: y\r\n\r\n", b"\r\n", b"x" * 500], ids=["empty line", "short", "due"])
def test_whoever_waits_is_told_of_a_packet_that_may_end_a_reply(packet: bytes) -> None:
    """A finished answer would wait for its time-out."""

    async def exchange() -> None:
        heard = Heard()
        with connected() as (ours, theirs):
            async with reader() as reading:
                source = reading.add(ours.fileno(), packet=heard.packet, look=heard.look, end=heard.ends.append)
                reading.look_at(source, 500)
                theirs.send(packet)
                await heard.until(looks=1)
                assert heard.data == packet

    run_in_loop(exchange())


def test_what_comes_while_the_event_loop_is_kept_comes_whole_and_in_order() -> None:
    """A run's busiest moments would be lost, or the reader would write over what nobody has taken."""
    sent = b"".join(number.to_bytes(4, "big") for number in range(3_000_000))

    async def exchange() -> None:
        heard, loop = Heard(), asyncio.get_running_loop()
        with connected() as (ours, theirs):
            async with reader() as reading:
                source = reading.add(ours.fileno(), packet=heard.packet, look=heard.look, end=heard.ends.append)
                reading.look_at(source, 2**40)
                sending = loop.run_in_executor(None, theirs.sendall, sent)
                began_ns = perf_counter_ns()
                while perf_counter_ns() < began_ns + 100_000_000:  # the event loop is kept, and more comes than the reader holds
                    pass
                await sending
                async with asyncio.timeout(10):
                    while len(heard.data) < len(sent):
                        reading.hand_over()
                        await asyncio.sleep(0)
                stamps = [at_ns for at_ns, _ in heard.packets]
        assert heard.data == sent
        assert stamps == sorted(stamps)

    run_in_loop(exchange())


def test_a_descriptor_that_is_used_again_starts_anew() -> None:
    """The next request would get the tail of a cancelled one."""

    async def exchange() -> None:
        async with reader() as reading:
            for number in range(50):
                heard = Heard()
                with connected() as (ours, theirs):
                    source = reading.add(ours.fileno(), packet=heard.packet, look=heard.look, end=heard.ends.append)
                    reading.look_at(source, 1000)
                    assert reading.received_bytes(source) == 0
                    theirs.send(b"request %02d, " % number)
                    await received(reading, source, 12)
                    theirs.send(b"its tail")
                    reading.hand_over()
                    reading.remove(source)
                    reading.hand_over()
                    assert heard.data in (b"request %02d, " % number, b"request %02d, its tail" % number)
                    assert heard.ends == []

    run_in_loop(exchange())


def test_a_thread_that_can_read_no_more_ends_what_it_read() -> None:
    """Every request would wait for its time-out, and nobody would know why."""

    async def exchange() -> None:
        heard = Heard()
        with connected() as (ours, theirs), open(os.devnull) as nothing:
            async with reader() as reading:
                source = reading.add(ours.fileno(), packet=heard.packet, look=heard.look, end=heard.ends.append)
                os.dup2(nothing.fileno(), reading._epoll.fileno())  # no epoll any more
                theirs.send(b"the last one")
                await heard.until(ends=1)
                assert not source.is_read
        assert isinstance(heard.ends[0], OSError)

    run_in_loop(exchange())
