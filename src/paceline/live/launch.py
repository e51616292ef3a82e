"""A server that paceline starts: a child process from a list of words, its log kept, asked whether it is ready and really drafts, ended.

1. No shell. The address is paceline's: loopback, on a port that was free; a port that somebody took meanwhile is tried again once.
2. A guardian (`live.launch_guardian`) stands between, so that nothing of the server survives Ctrl-C, a crash or `kill -9`.
3. Ready means that /health answers 200 and that drafts were seen where there must be some, none where there must be none
   (`live.launch_probe`). Anything else is a server fault, with the line of the log that tells why.
4. The key (PACELINE_API_KEY) is not in the server's environment. It goes there under the engine's own name, so that a server on a shared
   machine answers nobody else; the log is cleared of it.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from paceline.errors import BadInputError, ServerFaultError, printable
from paceline.files.whole import make_folder
from paceline.live import launch_guardian
from paceline.live.event_loop import run_in_loop
from paceline.live.fetch import fetch
from paceline.live.http_client import Http
from paceline.live.launch_probe import Probed, probed
from paceline.live.openai import KEY_VARIABLE, Server, without_key, without_key_bytes
from paceline.run import Arm
from paceline.servers.start_log import is_about_port, telling_line

__all__ = ["KEY_OF_ENGINE", "Launch", "Launched", "ending", "launched", "need_no_secret"]

LOOPBACK = "127.0.0.1"
POLL_S = 0.05
HEALTH_TIMEOUT_S = 5.0
LAST_BYTES = 256 * 1024
END_MARGIN_S = 10.0
LAST_WORDS_S = 2.0
STARTS = 2
PROMPTS = {Arm.BASELINE: 1, Arm.SPECULATIVE: 3}  # one that repeats itself shows drafts that are there; that there are none is asked again
KEY_OF_ENGINE: Mapping[str, str] = {"vllm": "VLLM_API_KEY", "llamacpp": "LLAMA_API_KEY"}
SECRETS = ("--api-key", "--hf-token", "-hft", "--ssl-keyfile-password")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One server to start.

    Attributes:
        arm: speculative: it must draft; baseline: it must not.
        engine: the dialect, such as vllm.
        command: program and arguments, without the address.
        environment: what is set besides this process's own environment.
        model: the name it serves under.
        log: where its output goes; added to what is there.
        ready_s: how long it may take until it is ready, in seconds.
        end_s: how long it may take to end before it is killed, in seconds.

    """

    arm: Arm
    engine: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    model: str
    log: Path
    ready_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Launched:
    """A server that runs, its version as it says itself (None where it does not), and the guardian's and its first process's ids."""

    server: Server
    version: str | None
    guardian_pid: int
    pid: int


def need_no_secret(words: Sequence[str]) -> None:
    """Nothing, where no word of a command is a secret.

    Raises:
        BadInputError: an option that carries one; its value is not quoted.

    """
    for word in words:
        if word.partition("=")[0] in SECRETS:
            raise BadInputError(
                f"{word.partition('=')[0]} carries a secret, and commands are written down; set {KEY_VARIABLE} or the engine's own"
            )


@contextmanager
def launched(launch: Launch, *, step: Callable[[str], None]) -> Iterator[Launched]:
    """The server, ready and doing what its arm should, until the end of the `with`; `step` is told what begins.

    Raises:
        ServerFaultError: it ended, was not ready in time, drafts although it must not or does not although it must.
        BadInputError: a secret in its command, or no place for the log.

    """
    if sys.platform == "win32":
        raise BadInputError("servers are started on Linux and macOS; on Windows start them yourself and name their URLs")
    need_no_secret(launch.command)
    step(f"starting the {launch.arm.value} server ({launch.engine})")
    make_folder(launch.log.parent)
    with _healthy(launch) as process:
        server = Server(url=process.url, api="chat", model=launch.model, dialect=launch.engine)
        step(f"asking the {launch.arm.value} server whether it drafts")
        try:
            version = _need_right(server, launch)
            yield Launched(server=server, version=version, guardian_pid=process.guardian.pid, pid=process.server_pid)
        except _WrongArmError:
            raise
        except ServerFaultError:
            process.need_alive(within_s=LAST_WORDS_S)  # a server that ended meanwhile has the reason in its log
            raise


@contextmanager
def _healthy(launch: Launch) -> Iterator["_Process"]:
    """The process once /health answers, ended with the `with`; a port that was taken meanwhile is tried again elsewhere.

    Raises:
        ServerFaultError: it ended, or was not ready in time.

    """
    process, starts = _Process.started(launch), 1
    try:
        while not process.is_healthy(again=starts < STARTS):
            process.end()
            process, starts = _Process.started(launch), starts + 1
        yield process
    finally:
        process.end()
        _clear_of_key(launch.log)


def _need_right(server: Server, launch: Launch) -> str | None:
    """The server's version, where it does what its arm must.

    Raises:
        ServerFaultError: it does not, or does not answer.

    """

    async def ask() -> Probed:
        http = Http()
        try:
            return await probed(http, server, most=PROMPTS[launch.arm], timeout_s=launch.ready_s)
        finally:
            http.close()

    found = run_in_loop(ask())
    wrong = found.wrong_for(launch.arm, launch.model)
    if wrong is not None:
        raise _WrongArmError(f"the {launch.arm.value} server {wrong}; its log is {printable(launch.log.name)}")
    return found.version


class _WrongArmError(ServerFaultError):
    """It answers, and not as its arm must: its end is none of the reasons."""


class _PortTakenError(ServerFaultError):
    """Somebody else took the port between our look and the server's."""


@dataclass(frozen=True, slots=True)
class _Process:
    """A guardian with its server."""

    launch: Launch
    guardian: "subprocess.Popen[bytes]"
    server_pid: int
    port: int
    log_from: int
    mark: str

    @classmethod
    def started(cls, launch: Launch) -> "_Process":
        port, mark = _free_port(), uuid4().hex
        command = [*launch.command, "--host", LOOPBACK, "--port", str(port)]
        with launch.log.open("ab") as log:
            log_from = log.tell()
            guardian = subprocess.Popen(  # noqa: S603 - the words are the user's own, and no shell reads them
                [sys.executable, "-I", "-S", str(Path(launch_guardian.__file__)), f"{launch.end_s:g}", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_environment(launch) | {launch_guardian.MARK: mark},
                start_new_session=True,
            )
        assert guardian.stdout is not None
        told = guardian.stdout.readline()  # right after its fork
        return cls(launch, guardian, int(told) if told.strip().isdigit() else 0, port, log_from, mark)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def is_healthy(self, *, again: bool) -> bool:
        """True once /health answers 200; False where somebody else took its port and it may be started `again`.

        Raises:
            ServerFaultError: it ended, or was not ready in time.

        """
        try:
            self._wait_until_healthy()
        except _PortTakenError:
            if again:
                return False
            raise
        return True

    def _wait_until_healthy(self) -> None:
        """Nothing, once /health answers 200.

        Raises:
            ServerFaultError: it ended, or did not in time.

        """
        until_s = time.monotonic() + self.launch.ready_s
        while True:
            self.need_alive()
            try:
                fetch(f"{self.url}/health", HEALTH_TIMEOUT_S)
            except ServerFaultError as fault:
                if time.monotonic() >= until_s:
                    why = self._why() or f"{fault}; give it more time with --launch-timeout"
                    raise ServerFaultError(
                        f"the {self.launch.arm.value} server was not ready within {self.launch.ready_s:g} s: {why}"
                    ) from None
                time.sleep(POLL_S)
            else:
                self.need_alive()  # whoever else has the port now answers for himself
                return

    def need_alive(self, *, within_s: float = 0.0) -> None:
        """Nothing, where it runs and does not end `within_s` seconds.

        Raises:
            ServerFaultError: with how it ended and why.

        """
        try:
            code = self.guardian.wait(within_s)
        except subprocess.TimeoutExpired:
            return
        why = self._why() or f"its log says nothing of why; see {printable(self.launch.log.name)}"
        message = f"the {self.launch.arm.value} server ended {ending(code)}: {why}"
        raise _PortTakenError(message) if is_about_port(why) else ServerFaultError(message)

    def _why(self) -> str | None:
        """The telling line of its log, as it may be shown."""
        with self.launch.log.open("rb") as log:
            log.seek(max(self.log_from, log.seek(0, os.SEEK_END) - LAST_BYTES))
            lines = without_key(log.read().decode("utf-8", "replace")).splitlines()
        found = telling_line(lines)
        return None if found is None else " ".join(printable(each)[1:-1] for each in _pieces(found))

    def end(self) -> None:
        """Nothing of it is left after this."""
        assert self.guardian.stdin is not None
        assert self.guardian.stdout is not None
        with suppress(OSError):
            self.guardian.stdin.close()
        self.guardian.stdout.close()
        try:
            code = self.guardian.wait(self.launch.end_s + launch_guardian.KILL_S + END_MARGIN_S)
        except subprocess.TimeoutExpired:
            self.guardian.kill()
            code = self.guardian.wait()
        if code < 0 and self.server_pid > 0:  # the guardian itself was killed: what it started has a session of its own
            with suppress(OSError):
                os.killpg(self.server_pid, signal.SIGKILL)
            for pid in launch_guardian.marked(self.mark):  # and daemons of it have theirs
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)


def _pieces(line: str) -> Iterator[str]:
    """A long line in pieces that are shown whole."""
    words, piece = line.split(), ""
    for word in words:
        if piece and len(piece) + len(word) >= 80:
            yield piece
            piece = ""
        piece = f"{piece} {word}" if piece else word
    yield piece


def ending(code: int) -> str:
    """How a process ended, in words: its exit code as a shell or as Python tells it."""
    number = -code if code < 0 else code - 128  # below 0 its guardian was killed, and it with it
    if number > 0:
        with suppress(ValueError):
            return f"by {signal.Signals(number).name}"
    return f"with exit code {code}"


def _environment(launch: Launch) -> dict[str, str]:
    found = {name: value for name, value in os.environ.items() if name != KEY_VARIABLE}
    key, name = os.environ.get(KEY_VARIABLE, "").strip(), KEY_OF_ENGINE.get(launch.engine)
    return found | ({name: key} if key and name else {}) | dict(launch.environment)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _clear_of_key(log: Path) -> None:
    """Write stars over the key wherever the server printed it; no length changes."""
    with suppress(OSError), log.open("r+b") as file:
        while line := file.readline():
            cleared = without_key_bytes(line)
            if cleared != line:
                file.seek(-len(line), os.SEEK_CUR)
                file.write(cleared)
