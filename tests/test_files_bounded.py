"""Files that are opened: what would never end is refused before it is read, whoever reads it."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.errors import BadInputError
from paceline.files.bounded import need_file, open_file, read_bounded
from paceline.files.calibration import read_calibration
from paceline.files.chatlog import read_chat_logs
from paceline.files.dump import read_text
from paceline.files.found import sha256_of
from paceline.files.gpufile import read_gpu
from paceline.files.modelconfig import read_model_config
from paceline.files.policy import read_policy
from paceline.files.runfile import read_run
from paceline.files.safetensors_header import read_header
from paceline.files.served_config import read_served_configs
from paceline.files.serverlog import read_server_log
from paceline.files.tokens import load_tokenizer
from paceline.live.fake_server_faults import read_faults
from paceline.traffic.segments import segment_rule

READERS: dict[str, Callable[[Path], object]] = {
    "calibration": read_calibration,
    "chat log": lambda path: list(read_chat_logs([path], segment=segment_rule(name=None, field=None), progress=None)),
    "config.json": read_model_config,
    "faults": read_faults,
    "hardware": read_gpu,
    "hash": sha256_of,
    "policy": read_policy,
    "run": read_run,
    "scrape": read_text,
    "served configuration": lambda path: read_served_configs(path, engine=None),
    "server log": read_server_log,
    "tokenizer": load_tokenizer,
    "weights": read_header,
}


@pytest.fixture
def named_pipe(tmp_path: Path) -> Path:
    """A pipe that nobody writes into."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("reader", READERS)
def test_no_reader_waits_for_a_pipe_or_reads_a_device(reader: str, named_pipe: Path) -> None:
    """A night's job that was given a pipe by mistake would be found in the morning where it was in the evening."""
    link = named_pipe.with_name("link")
    link.symlink_to(named_pipe)
    for path in (named_pipe, link):
        with pytest.raises(BadInputError, match=r"it is a named pipe, which may have no writer; give a regular file"):
            READERS[reader](path)
    with pytest.raises(BadInputError, match="it is a device; give a regular file"):
        READERS[reader](Path("/dev/zero"))


@pytest.mark.parametrize("reader", sorted(READERS.keys() - {"calibration", "config.json", "tokenizer"}))
def test_no_reader_takes_a_folder_for_a_file(reader: str, tmp_path: Path) -> None:
    """A folder that is named by mistake would end in a fault of ours."""
    with pytest.raises(BadInputError, match=r"[Ii]s a directory"):
        READERS[reader](tmp_path)


def test_a_pipe_that_is_held_open_is_read_to_its_end() -> None:
    """`paceline lint <(helm template …)` would be refused."""
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb") as pipe:
        pipe.write(b"vllm serve")
    assert read_bounded(Path(f"/dev/fd/{read_end}"), what="the text", most_bytes=64, remedy="none") == b"vllm serve"
    os.close(read_end)


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no file is named, whatever the system calls its refusal."""
    monkeypatch.chdir(tmp_path)  # a socket's path may not be long
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("socket")
        with pytest.raises(OSError, match=r"No such device|it is a socket"):
            need_file(Path("socket"))


def test_what_is_larger_than_its_bound_is_not_held(tmp_path: Path) -> None:
    """Weights that are given as a configuration would fill the memory."""
    file = tmp_path / "large"
    file.write_bytes(b"x" * 3000)
    assert len(read_bounded(file, what="the text", most_bytes=3000, remedy="cut it")) == 3000
    with pytest.raises(BadInputError, match=r"the text '.*large' is larger than 2 KiB; cut it"):
        read_bounded(file, what="the text", most_bytes=2048, remedy="cut it")
    file.write_bytes(b"x" * ((1 << 20) + 1))
    with pytest.raises(BadInputError, match="is larger than 1 MiB"):
        read_bounded(file, what="the text", most_bytes=1 << 20, remedy="cut it")
    with pytest.raises(BadInputError, match=r"cannot be read: .*null"):
        read_bounded(Path("a\0b"), what="the text", most_bytes=1, remedy="cut it")
    with open_file(file) as source:
        assert source.read(2) == b"xx"
