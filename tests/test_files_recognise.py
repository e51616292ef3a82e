"""Which kind of traffic file it is, by content."""

import gzip
from pathlib import Path

import pytest

from paceline.errors import BadInputError
from paceline.files.recognise import kind_of

DATA = Path(__file__).parent / "data" / "traffic"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("openai_chat.jsonl", "chat-log"),
        ("sharegpt.json", "chat-log"),
        ("prompts.jsonl", "chat-log"),
        ("azure_trace.csv", "azure-trace"),
        ("burstgpt_trace.csv", "burstgpt-trace"),
        ("mooncake_trace.jsonl", "mooncake-trace"),
    ],
)
def test_a_file_is_known_by_its_content(tmp_path: Path, name: str, kind: str) -> None:
    """A trace named .json, or a packed log without .gz, would be refused or misread."""
    assert kind_of(DATA / name) == kind
    hidden = tmp_path / "traffic"
    hidden.write_bytes(gzip.compress((DATA / name).read_bytes(), mtime=0))
    assert kind_of(hidden) == kind


def test_a_log_with_a_bad_first_line_is_still_a_log(tmp_path: Path) -> None:
    """A banner above the log would hide all of it."""
    path = tmp_path / "log"
    path.write_bytes(b"# exported\n\n  {}\n")
    assert kind_of(path) == "chat-log"


@pytest.mark.parametrize("content", [b"hello\n", b"a,b,c\n1,2,3\n", b"\n", b"\xef\xbb\xbf"])
def test_what_is_neither_is_refused_by_naming_both(tmp_path: Path, content: bytes) -> None:
    """A spreadsheet of something else would be read as a log with nothing in it."""
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match=r"neither a chat log .* nor a trace .*TIMESTAMP"):
        kind_of(path)
