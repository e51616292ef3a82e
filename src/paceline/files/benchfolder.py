"""A load-test's folder: what was planned, each block's run as soon as it is over, and every answer as soon as it came.

    bench.json             what is measured; another test does not go into the same folder
    blocks/<load>/NNN-<arm>.json     one finished block, a run file
    blocks/<load>/NNN-<arm>.came     its answers as they came, while it runs, packets with their instants
    blocks/<load>/NNN-<arm>.partMM.json     what a sitting that was stopped finished of it
    answers/<load>-<arm>.jsonl       the texts, by request; <load>-repeat.jsonl those of the baseline asked a second time
    blocks/<load>/repeat.json        that second time, in no figure
    servers/<arm>.json     which server an arm was measured on; another one does not go into the same folder
    scrapes/<load>/NNN-<arm>-before.prom, -after.prom     what /metrics said around it
    runs/<load>-<arm>.json           all blocks joined

A block that was stopped keeps what was answered; the same test goes on with the rest. One process at a time writes there: the folder is
locked from `open` until `close`. Answers that the disk damaged are moved aside (`.came.damaged`) and asked again.
"""

import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from paceline.errors import BadInputError, printable
from paceline.files.answers import read_answers
from paceline.files.folder_lock import lock_folder
from paceline.files.runfile import read_run, write_run
from paceline.files.whole import make_folder, write_text
from paceline.run import Arm, Run

__all__ = ["BENCH_SCHEMA", "BenchFolder", "Came", "CameWriter"]

BENCH_SCHEMA = "paceline.bench/1"
DAMAGED = "the answers that came are damaged"


@dataclass(frozen=True, slots=True)
class Came:
    """One answer as it came: what is known of it, and its body's bytes."""

    told: Mapping[str, Any]
    body: bytes


class CameWriter:
    """Adds answers to a file, each whole: a line of JSON, the body's bytes, a newline. Cheap enough to do while others are awaited."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("ab", buffering=0)
        self._whole_bytes = os.fstat(self._file.fileno()).st_size

    def __enter__(self) -> "CameWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, came: Came) -> None:
        """Add one, whole or not at all.

        Raises:
            OSError: the disk is full; what was added before stays.

        """
        head = json.dumps({**came.told, "body_bytes": len(came.body), "crc32": zlib.crc32(came.body)}).encode("ascii")
        left = memoryview(b"%b\n%b\n" % (head, came.body))
        added_bytes = len(left)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError:
            with suppress(OSError):  # what was wrong with the disk is said already
                self._file.truncate(self._whole_bytes)
            raise
        self._whole_bytes += added_bytes


class BenchFolder:
    """The folder of one load-test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._locked: int | None = None

    def open(self, plan: Mapping[str, Any], *, arms: Sequence[Arm], resume: bool) -> None:
        """Make the folder for this plan, or go on with the one that has it: with the other arm, or with `resume` with the same one.

        Raises:
            BadInputError: the folder holds another test, or this arm without `resume`, or cannot be made, or another process writes there.

        """
        file = self.path / "bench.json"
        if resume and not file.is_file():
            raise BadInputError(f"{printable(str(self.path))} holds no load-test to resume; leave out --resume to start one there")
        make_folder(self.path)
        self.close()
        self._locked = lock_folder(self.path, verb="bench", option="--out")
        try:
            self._begin(file, plan, arms=arms, resume=resume)
        except BadInputError:
            self.close()
            raise

    def _begin(self, file: Path, plan: Mapping[str, Any], *, arms: Sequence[Arm], resume: bool) -> None:
        if file.is_file():
            self._need_same(file, plan)
            if not resume and any(self._has_begun(arm) for arm in arms):
                raise BadInputError(
                    f"{printable(str(self.path))} already holds this load-test; add --resume to go on with it, or choose another folder"
                )
            return
        if any(self.path.iterdir()):
            raise BadInputError(f"{printable(str(self.path))} is not empty; choose another folder for --out")
        write_text(file, json.dumps({"schema": BENCH_SCHEMA, "plan": plan}, indent=2, ensure_ascii=False) + "\n")

    def close(self) -> None:
        """Let another process write there."""
        if self._locked is not None:
            os.close(self._locked)
            self._locked = None

    def need_server(self, arm: Arm, identity: Mapping[str, str]) -> None:
        """Nothing, where this arm was not yet measured or was on the same server; what it was is kept.

        Raises:
            BadInputError: the folder holds this arm of another server.

        """
        file = self.path / "servers" / f"{arm.value}.json"
        if file.is_file():
            found = _read_object(file)
            for key, value in identity.items():
                if found.get(key) != value:
                    before, now = _differing(str(found.get(key)), value)
                    raise BadInputError(
                        f"{printable(str(self.path))} holds the {arm.value} arm of a server whose {key} was "
                        f"{printable(before)}, and now it is {printable(now)}; choose another folder for --out"
                    )
            return
        make_folder(file.parent)
        write_text(file, json.dumps(identity, indent=2, ensure_ascii=False) + "\n")

    def _has_begun(self, arm: Arm) -> bool:
        return next((self.path / "blocks").glob(f"*/*-{arm.value}.*"), None) is not None

    def _need_same(self, file: Path, plan: Mapping[str, Any]) -> None:
        before = _read_object(file).get("plan")
        if before != json.loads(json.dumps(plan)):
            differing = sorted(key for key in plan if not isinstance(before, dict) or before.get(key) != json.loads(json.dumps(plan[key])))
            raise BadInputError(
                f"{printable(str(self.path))} holds a load-test with other {', '.join(differing) or 'settings'}; choose another folder for "
                "--out, or the same settings"
            )

    def run_of(self, load: str, stem: str) -> Run | None:
        """The run of a finished block, None where it is not finished."""
        file = self._block(load, stem, "json")
        return read_run(file) if file.is_file() else None

    def is_finished(self, load: str, stem: str) -> bool:
        """Whether the block's run is there."""
        return self._block(load, stem, "json").is_file()

    def keep_run(self, load: str, stem: str, run: Run) -> None:
        """The block is finished: its run stands for its parts."""
        file = self._block(load, stem, "json")
        make_folder(file.parent)
        write_run(run, file)
        self.forget_came(load, stem)
        for each in self._parts(load, stem):
            each.unlink()

    def parts(self, load: str, stem: str) -> tuple[Run, ...]:
        """What earlier sittings finished of a block, in their order."""
        return tuple(read_run(each) for each in self._parts(load, stem))

    def keep_part(self, load: str, stem: str, run: Run) -> None:
        """What a sitting that was stopped finished of the block; its answers are in there now."""
        number = len(self._parts(load, stem)) + 1
        write_run(run, self._block(load, stem, f"part{number:02d}.json"))
        self.forget_came(load, stem)

    def came(self, load: str, stem: str) -> Iterator[Came]:
        """The answers of a sitting that was stopped; the last one is left out where it was cut.

        Raises:
            BadInputError: from here on the file is not what was written; answers before stand.

        """
        file = self._block(load, stem, "came")
        if not file.is_file():
            return
        with file.open("rb") as lines:
            while head := lines.readline():
                if not head.endswith(b"\n"):
                    return
                told = _told(head)
                body = lines.read(min(told["body_bytes"], file.stat().st_size))
                end = lines.read(1)
                if not end:
                    return
                if end != b"\n" or zlib.crc32(body) != told["crc32"]:
                    raise BadInputError(DAMAGED)
                yield Came(told=told, body=body)

    def set_came_aside(self, load: str, stem: str) -> Path:
        """Move a damaged file of answers out of the way; where to."""
        file = self._block(load, stem, "came")
        aside = file.with_name(f"{file.name}.damaged")
        file.replace(aside)
        return aside

    def writer(self, load: str, stem: str) -> "CameWriter":
        """Where the block's answers go while it runs."""
        file = self._block(load, stem, "came")
        make_folder(file.parent)
        return CameWriter(file)

    def forget_came(self, load: str, stem: str) -> None:
        """The answers are in a run now."""
        self._block(load, stem, "came").unlink(missing_ok=True)

    def _parts(self, load: str, stem: str) -> list[Path]:
        return sorted((self.path / "blocks" / load).glob(f"{stem}.part*.json"))

    def keep_scrape(self, load: str, stem: str, when: str, text: str) -> None:
        """What /metrics said, `before` or `after` the block."""
        file = self.path / "scrapes" / load / f"{stem}-{when}.prom"
        make_folder(file.parent)
        write_text(file, text)

    def keep_answers(self, load: str, who: str, texts: Mapping[str, str]) -> None:
        """The texts of finished requests, by id, each once, with the text that came last; `who` is an arm, or `repeat`."""
        file = self._answers(load, who)
        make_folder(file.parent)
        kept = {**_texts(file), **texts}
        write_text(file, "".join(json.dumps({"id": name, "text": text}) + "\n" for name, text in kept.items()))

    def answers(self, load: str, who: str) -> Mapping[str, str]:
        """The texts kept under that name, empty where there are none."""
        file = self._answers(load, who)
        return read_answers(file) if file.is_file() else {}

    def _answers(self, load: str, who: str) -> Path:
        return self.path / "answers" / f"{load}-{who}.jsonl"

    def keep_joined(self, load: str, run: Run) -> Path:
        """All blocks of one arm at one load; where it is kept."""
        file = self.path / "runs" / f"{load}-{run.arm.value}.json"
        make_folder(file.parent)
        write_run(run, file)
        return file

    def joined(self, load: str, arm: Arm) -> Run | None:
        """The arm's run at this load, None where there is none yet."""
        file = self.path / "runs" / f"{load}-{arm.value}.json"
        return read_run(file) if file.is_file() else None

    def _block(self, load: str, stem: str, kind: str) -> Path:
        return self.path / "blocks" / load / f"{stem}.{kind}"


def _differing(before: str, now: str) -> tuple[str, str]:
    """Where two texts differ, with a word before it: commands are long, and what is long is shown without its middle."""
    ours, theirs = before.split(), now.split()
    start = _alike(ours, theirs)
    end = _alike(ours[start:][::-1], theirs[start:][::-1])
    first = max(start - 1, 0)
    return " ".join(ours[first : len(ours) - end]), " ".join(theirs[first : len(theirs) - end])


def _alike(ours: Sequence[str], theirs: Sequence[str]) -> int:
    """How many words both begin with."""
    return sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(ours, theirs, strict=False)))


def _told(head: bytes) -> dict[str, Any]:
    """What stands before an answer's body."""
    try:
        told = json.loads(head)
    except (ValueError, RecursionError) as error:
        raise BadInputError(DAMAGED) from error
    if not isinstance(told, dict) or not all(type(told.get(name)) is int and told[name] >= 0 for name in ("body_bytes", "crc32")):
        raise BadInputError(DAMAGED)
    return told


def _texts(file: Path) -> dict[str, str]:
    """The texts in a file of answers, lines left out that are none."""
    found: dict[str, str] = {}
    if not file.is_file():
        return found
    for line in file.read_bytes().splitlines():
        try:
            each = json.loads(line)
            found[str(each["id"])] = str(each["text"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return found


def _read_object(file: Path) -> dict[str, Any]:
    """What one of the folder's own files says; an empty object where it holds something else."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInputError(f"cannot read {printable(str(file))}: {error}; choose another folder for --out") from error
    return found if isinstance(found, dict) else {}
