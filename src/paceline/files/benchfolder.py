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

A block that was stopped keeps what was answered; the same test goes on with the rest.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import BadInputError, printable
from paceline.files.answers import read_answers
from paceline.files.runfile import read_run, write_run
from paceline.files.whole import make_folder, write_text
from paceline.run import Arm, Run

__all__ = ["BENCH_SCHEMA", "BenchFolder", "Came", "CameWriter"]

BENCH_SCHEMA = "paceline.bench/1"


@dataclass(frozen=True, slots=True)
class Came:
    """One answer as it came: what is known of it, and its body's bytes."""

    told: Mapping[str, Any]
    body: bytes


class CameWriter:
    """Adds answers to a file, each whole: a line of JSON, the body's bytes, a newline. Cheap enough to do while others are awaited."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("ab", buffering=0)

    def __enter__(self) -> "CameWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, came: Came) -> None:
        """Add one."""
        head = json.dumps({**came.told, "body_bytes": len(came.body)}).encode("ascii")
        self._file.write(b"%b\n%b\n" % (head, came.body))


class BenchFolder:
    """The folder of one load-test."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, plan: Mapping[str, Any], *, arms: Sequence[Arm], resume: bool) -> None:
        """Make the folder for this plan, or go on with the one that has it: with the other arm, or with `resume` with the same one.

        Raises:
            BadInputError: the folder holds another test, or this arm without `resume`, or cannot be made.

        """
        file = self.path / "bench.json"
        if file.is_file():
            self._need_same(file, plan)
            if not resume and any(self._has_begun(arm) for arm in arms):
                raise BadInputError(
                    f"{printable(str(self.path))} already holds this load-test; add --resume to go on with it, or choose another folder"
                )
            return
        if resume:
            raise BadInputError(f"{printable(str(self.path))} holds no load-test to resume; leave out --resume to start one there")
        if self.path.is_dir() and any(self.path.iterdir()):
            raise BadInputError(f"{printable(str(self.path))} is not empty; choose another folder for --out")
        make_folder(self.path)
        write_text(file, json.dumps({"schema": BENCH_SCHEMA, "plan": plan}, indent=2, ensure_ascii=False) + "\n")

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
                    raise BadInputError(
                        f"{printable(str(self.path))} holds the {arm.value} arm of a server whose {key} was "
                        f"{printable(found.get(key))}, and now it is {printable(value)}; choose another folder for --out"
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
        """The answers of a sitting that was stopped; the last one is left out where it was cut."""
        file = self._block(load, stem, "came")
        if not file.is_file():
            return
        with file.open("rb") as lines:
            while head := lines.readline():
                if not head.endswith(b"\n"):
                    return
                try:
                    told = json.loads(head)
                    body = lines.read(told["body_bytes"])
                except (ValueError, KeyError, TypeError, RecursionError):  # the disk's doing, or somebody's; the rest is asked again
                    return
                if len(body) < told["body_bytes"] or lines.read(1) != b"\n":
                    return
                yield Came(told=told, body=body)

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
        """The texts of finished requests, by id; `who` is an arm, or `repeat`."""
        file = self._answers(load, who)
        make_folder(file.parent)
        with file.open("a", encoding="utf-8") as lines:
            lines.writelines(json.dumps({"id": name, "text": text}, ensure_ascii=False) + "\n" for name, text in texts.items())

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


def _read_object(file: Path) -> dict[str, Any]:
    """What one of the folder's own files says; an empty object where it holds something else."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInputError(f"cannot read {printable(str(file))}: {error}; choose another folder for --out") from error
    return found if isinstance(found, dict) else {}
