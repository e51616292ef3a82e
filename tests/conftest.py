"""Every property test draws the same examples on every machine, none fails because a machine is slow; `--accept` rewrites golden files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings

from paceline.cli.main import main

settings.register_profile("paceline", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("paceline")

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--accept`: what a golden test sees becomes what it expects; the diff is reviewed."""
    parser.addoption("--accept", action="store_true", help="rewrite the golden files")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with the committed file of that name."""

    def compare(name: str, text: str) -> None:
        file = GOLDEN / name
        if request.config.getoption("--accept"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert file.is_file(), f"{name} is not there yet; run pytest with --accept and review what it wrote"
        assert text == file.read_text(encoding="utf-8"), f"differs from tests/golden/{name}; if right, run pytest with --accept"

    return compare


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


@pytest.fixture
def paceline(capsys: pytest.CaptureFixture[str]) -> Callable[[Sequence[str]], Answer]:
    """Run a verb in this process."""

    def run(arguments: Sequence[str]) -> Answer:
        try:
            code = main([str(each) for each in arguments])
        except SystemExit as stop:  # argparse's own way out
            code = int(str(stop.code))
        printed = capsys.readouterr()
        return Answer(code=code, out=printed.out, err=printed.err)

    return run
