"""Servers that paceline starts: real processes that die, hang, lie and fork; none survives, and what went wrong is one sentence."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.errors import BadInputError, ServerFaultError
from paceline.live.launch import Launch, ending, launched
from paceline.live.launch_probe import Probed
from paceline.run import Arm

ENGINE = str(Path(__file__).with_name("fake_engine.py"))
WAIT_MS = 20_000
TELL = """
import sys
from pathlib import Path
from paceline.live.launch import Launch, launched
from paceline.run import Arm
log, command = Path(sys.argv[1]), tuple(sys.argv[2:])
launch = Launch(arm=Arm.BASELINE, engine="vllm", command=command, environment={}, model="fake", log=log, ready_s=60, end_s=0.2)
with launched(launch, step=lambda _: None) as server:
    print(server.guardian_pid, server.pid, flush=True)
    sys.stdin.read()
"""


def the_launch(folder: Path, *flags: str, arm: Arm = Arm.BASELINE, ready_s: float = 60.0, end_s: float = 0.2) -> Launch:
    speculation = ("--speculative-config", "{}") if arm is Arm.SPECULATIVE else ()
    command = (sys.executable, "-I", "-S", ENGINE, *flags, "serve", "MODEL", *speculation)
    return Launch(
        arm=arm, engine="vllm", command=command, environment={}, model="fake", log=folder / "log.txt", ready_s=ready_s, end_s=end_s
    )


def start(launch: Launch) -> None:
    with launched(launch, step=lambda _: None):
        pass


class Gone:
    """Processes that must end; made while they run."""

    def __init__(self, *pids: int) -> None:
        self._ends = [os.pidfd_open(pid) for pid in pids]

    def wait(self) -> None:
        """Until all have ended."""
        for each in self._ends:
            poll = select.poll()
            poll.register(each, select.POLLIN)
            assert poll.poll(WAIT_MS), "a process survived"
            os.close(each)


def test_nothing_is_left_of_a_deaf_server_and_its_daemon(tmp_path: Path) -> None:
    """A GPU that a forgotten worker holds is found by whoever is on call, hours later."""
    file = tmp_path / "daemon"
    with launched(the_launch(tmp_path, "--deaf", "--forks", str(file)), step=lambda _: None) as server:
        gone = Gone(server.guardian_pid, server.pid, int(file.read_text("ascii")))
        assert server.version == "0.32.0"
    gone.wait()


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    """Who stops a measurement starts the next one right away, on the same GPU."""
    running: list[Gone] = []

    def stopped_meanwhile() -> None:
        with launched(the_launch(tmp_path), step=lambda _: None) as server:
            running.append(Gone(server.guardian_pid, server.pid))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped_meanwhile()
    running[0].wait()


def test_kill_9_of_paceline_leaves_nothing(tmp_path: Path) -> None:
    """No handler runs then, and the out-of-memory killer asks nobody."""
    file = tmp_path / "daemon"
    engine = [sys.executable, "-I", "-S", ENGINE, "--deaf", "--forks", str(file), "serve", "MODEL"]
    ours = subprocess.Popen(
        [sys.executable, "-c", TELL, str(tmp_path / "log.txt"), *engine], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert ours.stdin is not None
    assert ours.stdout is not None
    gone = Gone(*map(int, ours.stdout.readline().split()), int(file.read_text("ascii")))
    ours.kill()
    ours.wait()
    gone.wait()
    ours.stdin.close()
    ours.stdout.close()


def test_kill_9_of_the_guardian_leaves_nothing(tmp_path: Path) -> None:
    """Whoever looks for processes to kill finds it first."""
    file = tmp_path / "daemon"
    with launched(the_launch(tmp_path, "--deaf", "--forks", str(file)), step=lambda _: None) as server:
        gone = Gone(server.guardian_pid, server.pid)
        daemon = Gone(int(file.read_text("ascii")))
        os.kill(server.guardian_pid, signal.SIGKILL)
        gone.wait()
    daemon.wait()


@pytest.mark.parametrize(
    ("code", "told"),
    [(0, "with exit code 0"), (3, "with exit code 3"), (139, "by SIGSEGV"), (-9, "by SIGKILL"), (255, "with exit code 255")],
)
def test_an_end_is_told_as_a_shell_tells_it(code: int, told: str) -> None:
    """Exit code -9 is looked up nowhere."""
    assert ending(code) == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "vllm: error: unrecognized arguments: --spec-tokenz 3",
            "ended with exit code 1: vllm: error: unrecognized arguments: --spec-tokenz 3",
        ),
        ("\x1b[31mValueError: no \x07 method\x1b[0m", r"ended with exit code 1: ValueError: no \x07 method"),
        ("Bye.", "ended with exit code 1: its log says nothing of why; see 'log.txt'"),
    ],
)
def test_a_server_that_dies_is_told_with_the_line_that_says_why(text: str, told: str, tmp_path: Path) -> None:
    """A log has thousands of lines, and the last is "cleaning up before exit"."""
    with pytest.raises(ServerFaultError) as fault:
        start(the_launch(tmp_path, "--dies", text))
    assert str(fault.value) == f"the baseline server {told}"
    assert fault.value.exit_code == 3


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    """The most frequent fault: another environment is active."""
    with pytest.raises(ServerFaultError, match="cannot start /no/such/vllm: No such file or directory"):
        start(
            Launch(
                arm=Arm.BASELINE,
                engine="vllm",
                command=("/no/such/vllm",),
                environment={},
                model="m",
                log=tmp_path / "l",
                ready_s=5,
                end_s=1,
            )
        )


def test_a_server_that_never_gets_ready_is_given_up_and_ended(tmp_path: Path) -> None:
    """A job that waits for ever holds its machine for ever."""
    with pytest.raises(ServerFaultError, match=r"not ready within 0\.6 s: .*answers 503"):
        start(the_launch(tmp_path, "--never-ready", ready_s=0.6))


def test_a_server_that_ends_when_it_is_asked_is_told_by_its_log(tmp_path: Path) -> None:
    """The client sees a cut connection; the cause is in the server's log."""
    with pytest.raises(ServerFaultError, match="ended with exit code 1: ValueError: head_dim 7 is not supported"):
        start(the_launch(tmp_path, "--dies-when-asked"))


def test_a_server_that_ignores_its_speculation_is_no_speculative_arm(tmp_path: Path) -> None:
    """Two plain servers compare beautifully, and the verdict is about nothing."""
    with pytest.raises(ServerFaultError, match="the speculative server answers, but drafted nothing on 3 prompts"):
        start(the_launch(tmp_path, "--ignores-speculation", arm=Arm.SPECULATIVE))
    start(the_launch(tmp_path, arm=Arm.SPECULATIVE))


def test_a_baseline_that_drafts_is_no_baseline(tmp_path: Path) -> None:
    """Drafts against drafts show a speed-up of nothing."""
    with pytest.raises(ServerFaultError, match="the baseline server drafts"):
        start(the_launch(tmp_path, "--always-drafts"))


@pytest.mark.parametrize(
    ("says", "counted", "arm", "wrong"),
    [
        (True, 12, Arm.SPECULATIVE, None),
        (None, 12, Arm.SPECULATIVE, None),
        (True, None, Arm.SPECULATIVE, None),
        (False, None, Arm.SPECULATIVE, "says of itself that it does not speculate"),
        (True, 0, Arm.SPECULATIVE, "drafted nothing on 3 prompts"),
        (None, None, Arm.SPECULATIVE, "neither its answers nor /metrics tell"),
        (None, None, Arm.BASELINE, None),
        (False, 0, Arm.BASELINE, None),
        (True, None, Arm.BASELINE, "a baseline must not"),
    ],
)
def test_what_the_probe_found_is_judged_by_the_arm(says: bool | None, counted: int | None, arm: Arm, wrong: str | None) -> None:
    """No counts and no word is no proof of drafts; a server that says it drafts and counts none does not."""
    found = Probed(models=("m",), says=says, counted_tokens=counted, asked=3, version=None).wrong_for(arm, "m")
    assert found is None if wrong is None else wrong in (found or "")


def test_a_port_that_somebody_took_is_tried_again_elsewhere(tmp_path: Path) -> None:
    """Between our look and the server's another process may come; the user can do nothing about it."""
    taken = "OSError: [Errno 98] error while attempting to bind on address: address already in use"
    start(the_launch(tmp_path, "--dies-once", str(tmp_path / "once"), taken))
    with pytest.raises(ServerFaultError, match="address already in use"):
        start(the_launch(tmp_path, "--dies", taken))


def test_the_key_reaches_the_server_under_its_own_name_and_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs are sent to colleagues and pasted into issues."""
    monkeypatch.setenv("PACELINE_API_KEY", "sk-very-secret-key")
    start(the_launch(tmp_path, "--says-key"))
    assert (tmp_path / "log.txt").read_text("utf-8") == "args: ****************** None\n"
    with pytest.raises(BadInputError, match="--api-key carries a secret") as refused:
        start(the_launch(tmp_path, "--api-key=sk-other"))
    assert "sk-other" not in str(refused.value)


def test_another_model_on_the_port_is_told(tmp_path: Path) -> None:
    """Whoever else answers there would be measured."""
    with pytest.raises(ServerFaultError, match="serves 'other', not 'fake'"):
        start(the_launch(tmp_path, "--served-model-name", "other"))
