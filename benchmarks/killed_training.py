"""Stops trainings at random instants, goes on with them, and compares what comes out with an undisturbed one's, byte for byte.

    python benchmarks/killed_training.py LOG --target DIR --kills 20 --interrupts 4 [--seed 1] [--json] [--training --epochs 2 …]

An instant is a place in what the program does and no time: the n-th call within one of the parts below, n drawn anew for every stop. So a
seed means the same places on every machine, and a part that takes a millisecond is hit as often as one that takes an hour.

    answering   the target answers
    learning    updates, and the judgement of epochs
    saving      tensors are written: states, progress, the head
    elsewhere   all else: logs are read, models loaded, answers and curves written

A kill is SIGKILL, which nothing can prepare for; an interrupt is Ctrl-C, and has to end in exit code 130. Every stop has a folder and a
process of its own. Needs the extra `engine`, and an operating system that forks.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch._dynamo  # noqa: F401  # an optimizer's first step loads it

import paceline.jobs.draft_heads  # noqa: F401  # the verb loads it
from paceline.cli.main import main
from paceline.engine.chat import load_chat
from paceline.engine.few_rows import BLOCK, multiply

ELSEWHERE = "elsewhere"
PARTS = {"answer_all": "answering", "train": "learning", "save_whole": "saving"}
ORDER = (*PARTS.values(), ELSEWHERE)
INTERRUPTED, OURS = 130, 70
CLOCKED = ("seconds", "answer_tokens_per_s")
TIMED = {"progress.safetensors", "curves.json", "report.html"}  # with seconds in them; the curves are compared without


@dataclass(frozen=True, slots=True)
class Stop:
    """Where a process is stopped: at so many calls within a part, by a signal."""

    part: str
    call: int
    signal: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of it: how the stopped process ended (below 0: by that signal), what it said, and what differs after going on."""

    part: str
    call: int
    signal: int
    code: int
    said: str
    differs: list[str]

    @property
    def is_right(self) -> bool:
        """Whether the process was stopped as it should be, and going on led where an undisturbed training leads."""
        wanted = INTERRUPTED if self.signal == signal.SIGINT else -self.signal
        return self.code == wanted and not self.differs


class Watch:
    """Counts calls by part, and stops its own process where it is told to."""

    def __init__(self, stop: Stop | None) -> None:
        self.calls: Counter[str] = Counter()
        self._stop, self._inside = stop, [ELSEWHERE]

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """What the interpreter calls at every call and return."""
        part = PARTS.get(frame.f_code.co_qualname) if event in {"call", "return"} else None
        if part is not None and event == "call":
            self._inside.append(part)
        if part is not None and event == "return":
            self._inside.pop()
        if event in {"call", "c_call"}:
            inside = self._inside[-1]
            self.calls[inside] += 1
            if self._stop is not None and self._stop.part == inside and self._stop.call == self.calls[inside]:
                os.kill(os.getpid(), self._stop.signal)


def ran(words: Sequence[str], stop: Stop | None, told: Path) -> int:
    """Run a verb in a process of its own; its exit code, below 0 the signal that ended it. `told` gets what it says, then calls by part."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = OURS
    try:
        with told.open("w", encoding="utf-8") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are born deaf to Ctrl-C
            watch = Watch(stop)
            sys.setprofile(watch)
            code = main(words)
            sys.setprofile(None)
            print(json.dumps(watch.calls), flush=True)
    finally:
        os._exit(code)


def made(folder: Path) -> dict[str, Any]:
    """Everything that a finished training leaves, by name, but for what a clock says and the state that --resume goes on from."""
    files = [each for each in sorted(folder.rglob("*")) if each.is_file() and each.name not in TIMED]
    curves = json.loads((folder / "curves.json").read_text(encoding="utf-8"))
    epochs = [{name: value for name, value in each.items() if name not in CLOCKED} for each in curves["epochs"]]
    return {**{str(each.relative_to(folder)): each.read_bytes() for each in files}, "curves.json": epochs}


def stopped(words: Sequence[str], stop: Stop, wanted: dict[str, Any], folder: Path) -> Outcome:
    """One training: stopped, gone on with, compared."""
    told = folder / "told"
    code = ran([*words, "--out", str(folder / "out")], stop, told)
    said = told.read_text(encoding="utf-8").strip()
    again = ran([*words, "--out", str(folder / "out"), "--resume"], None, told)
    found = made(folder / "out") if again == 0 else {}
    differs = sorted(name for name in {*wanted, *found} if wanted.get(name) != found.get(name))
    return Outcome(**asdict(stop), code=code, said=said, differs=differs)


def load_everything(target: Path) -> None:
    """Load once what every process would load, a million calls in which nothing is trained."""
    load_chat(target)
    multiply(*(np.zeros((BLOCK, BLOCK), dtype=np.float32) for _ in range(3)))


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path)
    parser.add_argument(
        "--target", type=Path, required=True, help="the target's folder; a small one, since it answers the log at every stop"
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--interrupts", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--training", nargs=argparse.REMAINDER, default=[], help="what follows goes to train-eagle3")
    return parser.parse_args()


def outcomes(options: argparse.Namespace, folder: Path) -> list[Outcome]:
    """All stops' outcomes; parts take turns."""
    load_everything(options.target)
    words = ["train-eagle3", str(options.log), "--target", str(options.target), *options.training]
    if ran([*words, "--out", str(folder / "whole")], None, folder / "told"):
        sys.exit((folder / "told").read_text(encoding="utf-8"))
    calls = json.loads((folder / "told").read_text(encoding="utf-8").splitlines()[-1])
    wanted, rng, found = made(folder / "whole"), np.random.default_rng(options.seed), []
    for kind, count in ((signal.SIGKILL, options.kills), (signal.SIGINT, options.interrupts)):
        for number in range(count):
            part = ORDER[number % len(ORDER)]
            with tempfile.TemporaryDirectory(dir=folder) as own:
                stop = Stop(part, int(rng.integers(1, calls[part] + 1)), int(kind))
                found.append(stopped(words, stop, wanted, Path(own)))
    return found


def table(found: Sequence[Outcome]) -> str:
    """Stops by part, and how many of them left no trace."""
    lines = [f"{'part':10} {'stops':>6} {'same bytes after --resume':>26}"]
    for part in ORDER:
        own = [each for each in found if each.part == part]
        lines.append(f"{part:10} {len(own):6} {sum(each.is_right for each in own):26}")
    wrong = (each for each in found if not each.is_right)
    return "\n".join([*lines, *(f"{each.part}, call {each.call}: ended with {each.code}; differs: {each.differs}" for each in wrong)])


def run() -> int:
    options = asked()
    with tempfile.TemporaryDirectory() as folder:
        found = outcomes(options, Path(folder))
    print(json.dumps([asdict(each) for each in found], indent=2) if options.json else table(found))
    return 0 if all(each.is_right for each in found) else 1


if __name__ == "__main__":
    sys.exit(run())
