"""Stands between paceline and a server that it started, and leaves nothing of the server behind. Run as a script, by its path:

    python launch_guardian.py GRACE_S COMMAND…          stdin: a pipe from paceline, stdout: a pipe to it, stderr: the server's log

1. The server gets a session of its own, so that Ctrl-C at a terminal reaches paceline alone, and paceline ends what it started.
2. The end of stdin is the end of paceline, however that came about (`kill -9` too), or its wish. So is another parent.
3. What the server forks becomes the guardian's child when its parent ends (Linux: subreaper), so that a process that made itself a daemon
   is found as well. Everything is asked to end (SIGTERM), and killed after GRACE_S.
4. A guardian that is killed takes the server's first process with it (Linux: parent-death signal); paceline finds the others by a mark
   in their environment.
5. It ends as the server did: with its exit code, or 128 + the signal that killed it.

Only the standard library, no thread, nothing of paceline: it starts in a twentieth of a second, and between `fork` and `exec` there is
nobody who holds a lock.
"""

import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

__all__ = ["MARK", "exit_code_of", "main", "marked", "processes_below"]

MARK = "PACELINE_LAUNCH"

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LOOK_S = 1.0  # how often a parent that is gone is looked for where no pipe told it
POLL_S = 0.02
KILL_S = 5.0
CANNOT_START = 127
WAKING = (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def main(words: Sequence[str]) -> int:
    """Start the server, wait for its end or paceline's, leave nothing; the exit code to end with."""
    grace_s, command = float(words[0]), list(words[1:])
    parent = os.getppid()
    _process_control(PR_SET_CHILD_SUBREAPER, 1)
    woken = _woken_by_signals()
    server = os.fork()
    if server == 0:
        _become(command)
    os.write(1, b"%d\n" % server)
    os.close(1)
    status = _watch(server, parent, woken)
    ended = _end_all(server, grace_s)
    return exit_code_of(status if status is not None else ended)


def exit_code_of(status: int | None) -> int:
    """A wait status as a shell says it: the exit code, or 128 + the signal; 0 where nobody knows."""
    code = 0 if status is None else os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def processes_below(top: int) -> list[int]:
    """Everything that descends from a process, as /proc tells it now; nothing where there is no /proc."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    found, left = [], list(children.get(top, ()))
    while left:
        pid = left.pop()
        found.append(pid)
        left += children.get(pid, ())
    return found


def marked(mark: str) -> list[int]:
    """Every process that was started with this mark in its environment, as far as /proc tells."""
    wanted, found = f"{MARK}={mark}".encode("ascii"), []
    for pid, _ in _parents():
        with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            found += [pid] if wanted in file.read().split(b"\0") else []
    return found


def _parents() -> Iterator[tuple[int, int]]:
    """Every process with its parent."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        if name.isdecimal():
            with suppress(OSError, ValueError), open(f"/proc/{name}/stat", "rb") as stat:
                # The name stands in brackets and may hold anything; after it come the state and the parent.
                yield int(name), int(stat.read().rpartition(b")")[2].split()[1])


def _process_control(option: int, value: int) -> None:
    """prctl, where there is one."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def _woken_by_signals() -> int:
    """What becomes readable when a signal came."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for each in WAKING:
        signal.signal(each, lambda *_: None)
    return read


def _become(command: Sequence[str]) -> None:
    """Turn this child into the server."""
    guardian = os.getppid()
    signal.set_wakeup_fd(-1)
    for each in WAKING:
        signal.signal(each, signal.SIG_DFL)
    os.setsid()
    _process_control(PR_SET_PDEATHSIG, signal.SIGKILL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    if os.getppid() != guardian:  # it was killed before the kernel knew what to do then
        os._exit(CANNOT_START)
    try:
        os.execvp(command[0], list(command))  # noqa: S606 - no shell is what is wanted
    except OSError as error:
        os.write(2, f"error: cannot start {command[0]}: {error.strerror}\n".encode("utf-8", "replace"))
    os._exit(CANNOT_START)


def _watch(server: int, parent: int, woken: int) -> int | None:
    """The server's wait status once it ended by itself; None where it is to be ended."""
    while os.getppid() == parent:
        readable, _, _ = select.select([0, woken], [], [], LOOK_S)
        if 0 in readable and not os.read(0, 4096):
            return None
        if woken in readable and not set(os.read(woken, 4096)) <= {signal.SIGCHLD}:
            return None
        status = _reaped(server)
        if status is not None:
            return status
    return None


def _reaped(server: int) -> int | None:
    """Take the ends of all children that ended; the server's wait status if it was among them."""
    found = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == server:
                found = ended[1]
    return found


def _end_all(server: int, grace_s: float) -> int | None:
    """Ask everything to end, kill what stays; the server's wait status where it ended only now."""
    asked = _signalled(server, signal.SIGTERM, grace_s)
    killed = _signalled(server, signal.SIGKILL, KILL_S)
    return asked if asked is not None else killed


def _signalled(server: int, number: int, time_s: float) -> int | None:
    """Send a signal to all that is left, again to what came since, until nothing is or the time is over; the server's wait status, if it
    ended.
    """
    until_s, told, found = time.monotonic() + time_s, set[int](), None
    while True:
        status = _reaped(server)
        found = status if status is not None else found
        left = _left(server)
        if not left or time.monotonic() >= until_s:
            return found
        for pid in left:
            _tell(pid, number, told)
        time.sleep(POLL_S)


def _tell(pid: int, number: int, told: set[int]) -> None:
    """Send it the signal, a wish to end only once."""
    if number == signal.SIGKILL or pid not in told:
        told.add(pid)
        with suppress(OSError):
            os.kill(pid, number)


def _left(server: int) -> list[int]:
    """What is still there of it; without /proc, its process group."""
    if os.path.exists("/proc/self/stat"):
        return processes_below(os.getpid())
    try:
        os.killpg(server, 0)
    except OSError:
        return []
    return [-server]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
