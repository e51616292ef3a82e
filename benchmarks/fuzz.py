"""Damages what paceline reads, for a while, and says what it did not stand.

    python benchmarks/fuzz.py --minutes 10 --seed 1 --keep found/

Seeds are tests/data: SSE streams, /metrics texts, server logs, result files, servers' configurations; and run files and load-test answers
made of those. Checked:

    raises      only PacelineError subclasses
    finite      every figure of a run is finite and not negative
    lawful      alpha and survival are in [0, 1], survival never rises, tau is in [1, 1 + drafted per draft]
    silent      one count of a scrape or a result file that was multiplied changes a figure, adds a caution or is refused
    contradict  so does a rate or a length that the same file's counts contradict
    possible    no more tokens accepted than generated, without a caution
    quoted      a finding holds no character that could steer a terminal
    packets     how a stream was cut into packets changes nothing
    hang        each case ends within 20 seconds

Each fault is told once, by where it was raised, with a file that shows it. Exit code 1 where there is one.
"""

import argparse
import json
import math
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from paceline.errors import PacelineError
from paceline.files.benchfolder import BenchFolder
from paceline.files.dump import measure_dumps
from paceline.files.evidence import read_all
from paceline.files.runfile import read_run, run_to_json
from paceline.files.served_config import read_served_configs
from paceline.jobs.bench_came import came_of, sent_of
from paceline.jobs.linting import Folders, lint_servers
from paceline.latency import Ended
from paceline.live.answer import Answer, read_answer
from paceline.live.http_connection import Received, StreamEnd
from paceline.live.openai import Ask
from paceline.live.sending import Sent
from paceline.run import Run

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"
CASE_S = 20
ODD_NUMBERS = (
    "-1",
    "0",
    "1e400",
    "-0.0",
    "NaN",
    "Infinity",
    "-Infinity",
    "1.5",
    "9007199254740993",
    "1" + "0" * 400,
    "true",
    "null",
    '"7"',
    "[]",
    "{}",
)
ODD_BYTES = (
    b"\x00",
    b"\xff\xfe",
    b"\x1b[31m",
    b"\r\n\r\n",
    b"\n\n",
    b"data: ",
    b"\xed\xa0\x80",
    b"\xe2\x80\xae",
    b"[" * 3000,
    b'{"a":' * 2000,
    b"9" * 5000,
    b"data: [DONE]\n\n",
    b"\\ud800",
    b"NaN",
    b"-",
    b"e999",
    b"\xc2\x85",
    b"\xe2\x80\xa8",
    b"\x1f\x8b\x08\x00",
)
NUMBER = re.compile(rb"-?\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\b")
COUNT_LINE = re.compile(
    r"^(?P<name>(?:ray_)?[a-z]+[:_][a-zA-Z_:]*(?:draft|accept|spec_verify|generation_tokens|predicted)[a-zA-Z_:]*)"
    r"(?P<labels>\{[^\n]*\})? (?P<value>[0-9.e+]+)$",
    re.M,
)
COUNT_KEY = re.compile(r"accept|draft|spec_|output_tokens|completion_tokens|num_generated|tokens_per_second|duration|tpot|ttft|itl", re.I)


# a moment's own figures, over another window than the counts, which no reader takes
MOMENTS = ("trtllm_spec_decode_acceptance_length", "draftOverhead")


class BrokenError(Exception):
    """A check that does not hold."""


class Late(BaseException):
    """A case that does not end."""


def figures(run: Run) -> dict[str, float]:
    """Every figure of a run, checked to be lawful."""
    found = {name: summary.value for name, summary in run.summaries.items()}
    for name, summary in run.summaries.items():
        found |= {f"{name}.{end}": value for end in ("low", "high") if (value := getattr(summary, end)) is not None}
    found |= {name: value for name in ("step_seconds", "window_s") if (value := getattr(run, name)) is not None}
    for segment, counts in (run.acceptance_by_segment or {}).items():
        for name in ("steps", "drafts", "drafted_tokens", "accepted_tokens", "alpha", "acceptance_length", "tokens_per_step", "survival"):
            try:
                value = getattr(counts, name)
            except PacelineError:
                continue
            values = value if isinstance(value, tuple) else (value,)
            found |= {f"{segment} {name} {place}": as_float(each) for place, each in enumerate(values) if each is not None}
    for number, each in enumerate(run.requests or ()):
        found[f"request {number} tokens"] = each.output_tokens
        found[f"request {number} prompt"] = each.prompt_tokens
        for name in ("ttft_s", "tpot_s", "e2e_s"):
            if each.timing is not None and (value := getattr(each.timing, name, None)) is not None:
                found[f"request {number} {name}"] = float(value)
    check_lawful(found)
    return found


def as_float(value: float) -> float:
    """The figure, infinite where no float holds it."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def check_lawful(found: dict[str, float]) -> None:
    """Nothing, where all figures may be."""
    for name, value in found.items():
        if not math.isfinite(value) or value < 0:
            raise BrokenError(f"finite: {name} = {value}")
        if re.search(r"alpha|survival|acceptance_rate", name) and value > 1 + 1e-12:
            raise BrokenError(f"lawful: {name} = {value}")
    for name, value in found.items():
        if name.endswith("acceptance_length 0"):
            stem = name.removesuffix("acceptance_length 0")
            drafts, drafted = found.get(f"{stem}drafts 0"), found.get(f"{stem}drafted_tokens 0")
            if value < 1 or (drafts and drafted is not None and value > 1 + drafted / drafts + 1e-9):
                raise BrokenError(f"lawful: {name} = {value}")
        if name == "acceptance_length" and value < 1:
            raise BrokenError(f"lawful: {name} = {value}")
    survival = [value for name, value in found.items() if " survival " in name]
    if len({name.partition(" survival ")[0] for name in found if " survival " in name}) == 1 and any(b > a for a, b in pairwise(survival)):
        raise BrokenError("lawful: survival rises")


def possible(run: Run) -> None:
    """More accepted than generated, and nobody says so."""
    counts = sum(each.accepted_tokens for each in (run.acceptance_by_segment or {}).values())
    generated = run.summaries.get("generation_tokens")
    if generated is not None and counts > generated.value + 1 and not {each.code for each in run.cautions} - {"since_start"}:
        raise BrokenError(f"possible: {counts} tokens accepted, {generated.value:g} generated, no caution")


def damaged(content: bytes, chance: random.Random) -> bytes:
    """The content with one to three things wrong."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        at = chance.randrange(len(content) + 1)
        end = min(len(content), at + chance.choice((0, 1, 2, 7, 40, 400)))
        lines = content.split(b"\n")
        match chance.randrange(9):
            case 0:
                content = content[:at]
            case 1:
                content = content[:at] + chance.choice(ODD_BYTES) + content[end:]
            case 2:
                content = content[:at] + content[end:]
            case 3:
                content = content[:at] + content[at:end] * 3 + content[end:]
            case 4 | 5 if numbers := list(NUMBER.finditer(content)):
                spot = chance.choice(numbers)
                content = content[: spot.start()] + chance.choice(ODD_NUMBERS).encode() + content[spot.end() :]
            case 6:
                place = chance.randrange(len(lines))
                lines.insert(chance.randrange(len(lines) + 1), lines[place])
                content = b"\n".join(lines)
            case 7:
                chance.shuffle(lines)
                content = b"\n".join(lines)
            case _ if content:
                at = min(at, len(content) - 1)
                content = content[:at] + bytes([content[at] ^ (1 << chance.randrange(8))]) + content[at + 1 :]
    return content


def cautions(runs: list[Run]) -> list[tuple[str, str]]:
    """What the runs warn of."""
    return [(each.code, each.message) for run in runs for each in run.cautions]


class Fuzz:
    """The cases. Each takes a generator of chance, and leaves in `shown` what was read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shown = b""
        self.note = ""
        self.streams = {path.name: path.read_bytes() for path in sorted((DATA / "streams").iterdir())}
        self.dumps = sorted((DATA / "dumps").glob("*.prom")) + sorted((DATA / "cases").rglob("*.prom"))
        self.pairs = [(DATA / "dumps" / "vllm-0.32.0-smollm2-ngram-before.prom", DATA / "dumps" / "vllm-0.32.0-smollm2-ngram-after.prom")]
        logs = [*(DATA / "logs").iterdir(), *(DATA / "cases").rglob("*.log"), *(DATA / "cases").rglob("*.txt")]
        self.logs = sorted(path for path in logs if self.reads(path))
        results = [*(DATA / "benchfiles").rglob("*"), *(DATA / "cases").rglob("*.json"), *(DATA / "dumps").glob("*.json")]
        self.results = sorted(path for path in results if path.is_file() and self.reads(path))
        self.configs = [path for path in sorted((DATA / "served").iterdir()) if path.suffix != ".jsonl"]
        self.runs = [run_to_json(each.run).encode() for path in (*self.results, *self.logs) for each in read_all(path)]

    @staticmethod
    def reads(path: Path) -> bool:
        """Whether it can be read undamaged."""
        try:
            return path.is_file() and bool(read_all(path))
        except PacelineError:
            return False

    def written(self, content: bytes, name: str = "damaged") -> Path:
        """The content in a file."""
        self.shown = content
        place = self.folder / name
        place.write_bytes(content)
        return place

    def stream(self, chance: random.Random) -> None:
        """A damaged stream, in two cuts."""
        name, content = chance.choice(sorted(self.streams.items()))
        self.note = name
        self.shown = body = damaged(content, chance)
        first = self.answer(body, [len(body)], ended=StreamEnd.COMPLETE)
        second = self.answer(body, [chance.randint(1, 40) for _ in range(len(body))], ended=StreamEnd.COMPLETE)
        if (first.record.output_tokens, first.text, first.record.acceptance, first.record.timing.ended) != (
            second.record.output_tokens,
            second.text,
            second.record.acceptance,
            second.record.timing.ended,
        ):
            raise BrokenError("packets: another cut gives another answer")

    def answer(self, body: bytes, sizes: list[int], *, ended: StreamEnd) -> Answer:
        """The body as an answer in packets of these sizes."""
        pieces, at = [], 0
        for size in sizes:
            if at >= len(body):
                break
            pieces.append(body[at : at + size])
            at += size
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(body)
        packets = tuple((1_000_000 * (place + 2), each) for place, each in enumerate((head, *pieces)))
        received = Received(
            sent_at_ns=1_000_000,
            status=200,
            headers={"content-type": "text/event-stream"},
            packets=packets,
            ended=ended,
            ended_at_ns=packets[-1][0] + 1,
            error=None,
            received_bytes=len(body),
            sent_twice=False,
        )
        asked = self.ask()
        read = read_answer(received, asked, arrived_at_s=0.0, clock_origin_ns=0, count_tokens=None)
        counts, tokens = read.record.acceptance, read.record.output_tokens
        if tokens > asked.max_tokens + 16 and not read.cautions:
            raise BrokenError(f"possible: {tokens} output tokens where {asked.max_tokens} were asked for, no caution")
        if counts is not None:
            if counts.drafted_tokens and not 0 <= counts.alpha <= 1:
                raise BrokenError(f"lawful: alpha = {counts.alpha}")
            if read.record.timing.ended in (Ended.STOP, Ended.LENGTH) and counts.accepted_tokens > tokens + 16 and not read.cautions:
                raise BrokenError(f"possible: {counts.accepted_tokens} drafts accepted in an answer of {tokens} tokens, no caution")
        check_lawful(
            {name: float(value) for name in ("ttft_s", "tpot_s", "e2e_s") if (value := getattr(read.record.timing, name, None)) is not None}
        )
        return read

    @staticmethod
    def ask() -> Ask:
        """What was asked."""
        return Ask(id="a", segment="all", messages=None, prompt="p", max_tokens=200, temperature=0.0, seed=1, extra={})

    def came(self, chance: random.Random) -> None:
        """A load-test's answers, damaged on disk."""
        content = next(iter(self.streams.values()))
        received = Received(
            sent_at_ns=1,
            status=200,
            headers={},
            packets=((2, content[:50]), (3, content[50:])),
            ended=StreamEnd.COMPLETE,
            ended_at_ns=4,
            error=None,
            received_bytes=len(content),
            sent_twice=False,
        )
        bench = BenchFolder(self.folder / "bench")
        bench.forget_came("c0001", "000-speculative")
        with bench.writer("c0001", "000-speculative") as writer:
            for _ in range(3):
                writer.add(came_of(Sent(ask=self.ask(), due_ns=1, received=received)))
        place = self.folder / "bench" / "blocks" / "c0001" / "000-speculative.came"
        self.shown = damaged(place.read_bytes(), chance)
        place.write_bytes(self.shown)
        for each in bench.came("c0001", "000-speculative"):
            if each.told.get("id", "a") == "a":  # one without is refused as damaged
                sent_of(each, {"a": self.ask()})

    def dump(self, chance: random.Random) -> None:
        """One damaged scrape, or a pair of which one is damaged, or two of different servers."""
        before, after = chance.choice(
            [*((None, each) for each in self.dumps), *self.pairs, (chance.choice(self.dumps), chance.choice(self.dumps))]
        )
        self.note = f"{before and before.name} {after.name}"
        place = self.written(damaged(after.read_bytes(), chance), "after.prom")
        run = measure_dumps(before, place, model=None)
        figures(run)
        possible(run)

    def counter(self, chance: random.Random) -> None:
        """One count of a scrape multiplied: never silent."""
        before, after = chance.choice([*((None, each) for each in self.dumps), *self.pairs * 5])
        text = after.read_text(encoding="utf-8")
        spots = [
            each
            for each in COUNT_LINE.finditer(text)
            if not re.search("created|bucket|request_generation_tokens_count", each["name"])
            and not re.search('engine_type="draft"|_rank="[1-9]', each["labels"] or "")  # the first rank speaks for all
        ]
        try:
            whole = measure_dumps(before, after, model=None)
        except PacelineError:
            return
        if not spots:
            return
        spot = chance.choice(spots)
        value = 3 * float(spot["value"]) + 5
        self.note = f"{after.name}: {spot['name']} {spot['value']} -> {value}"
        place = self.written((text[: spot.start("value")] + f"{value}" + text[spot.end("value") :]).encode(), "after.prom")
        run = measure_dumps(before, place, model=None)
        found = figures(run)
        possible(run)
        if spot["name"] not in MOMENTS and found == figures(whole) and cautions([run]) == cautions([whole]):
            raise BrokenError(unheard(spot["name"]))

    def log(self, chance: random.Random) -> None:
        """A damaged log."""
        path = chance.choice(self.logs)
        self.note = path.parent.name + "/" + path.name
        self.read_damaged(path, chance)

    def result(self, chance: random.Random) -> None:
        """A damaged result file."""
        path = chance.choice(self.results)
        self.note = path.name
        self.read_damaged(path, chance)

    def read_damaged(self, path: Path, chance: random.Random) -> None:
        """Any evidence, damaged."""
        for each in read_all(self.written(damaged(path.read_bytes(), chance))):
            figures(each.run)
            possible(each.run)

    def result_count(self, chance: random.Random) -> None:
        """One count of a result file multiplied: never silent. Only where it is the only place that says so."""
        path = chance.choice([each for each in self.results if each.suffix == ".json"])
        document = json.loads(path.read_text(encoding="utf-8"))
        spots = [(holder, key) for holder, key in numbers(document) if isinstance(key, str) and COUNT_KEY.search(key)]
        if not spots:
            return
        holder, key = chance.choice(spots)
        found_before = read_all(path)
        before = [each.run for each in found_before]
        was, holder[key] = holder[key], holder[key] * 3 + 5
        self.note = f"{path.name}: {key} {was} -> {holder[key]}"
        found_after = read_all(self.written(json.dumps(document).encode(), path.name))
        after = [each.run for each in found_after]
        found = [figures(each) for each in after]
        told = [(each.label, each.run.speculation) for each in found_after] != [(each.label, each.run.speculation) for each in found_before]
        if told or key in MOMENTS:
            return
        if re.search(r"accept|draft", key, re.I) and found == [figures(each) for each in before] and cautions(before) == cautions(after):
            raise BrokenError(f"{unheard(key)} ({path.name.partition('-')[0]})")

    def config(self, chance: random.Random) -> None:
        """A damaged configuration of a server, linted for every engine in it."""
        path = chance.choice(self.configs)
        self.note = path.name
        place = self.written(damaged(path.read_bytes(), chance), path.name)
        for engine in {each.engine for each in read_served_configs(place, engine=None)} - {None}:
            version = {"vllm": "0.18.0", "sglang": "0.5.23", "llamacpp": "b11434", "tensorrt_llm": "1.3.0"}[str(engine)]
            nowhere = Folders(target=None, draft=None)
            for each in lint_servers(place, engine=str(engine), version=version, folders=nowhere, requests_use=frozenset()):
                told = [text for found in each.findings for text in (found.message, found.remedy, found.field or "")]
                if not "".join(told).isprintable():
                    raise BrokenError("quoted: a finding steers a terminal")

    def run(self, chance: random.Random) -> None:
        """A damaged run file."""
        for each in [read_run(self.written(damaged(chance.choice(self.runs), chance)))]:
            figures(each)
            run_to_json(replace(each))


def numbers(value: Any, holder: Any = None, key: Any = None) -> Iterator[tuple[Any, Any]]:
    """Where each number stands."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in pairs:
        yield from numbers(each, value, name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield holder, key


def unheard(name: str) -> str:
    """What is wrong where a number changed and nothing was said."""
    kind = "contradict" if re.search(r"rate|length|overhead|efficiency", name, re.I) else "silent"
    return f"{kind}: {name} multiplied changes nothing"


def where(error: BaseException) -> str:
    """The innermost place of ours, or the check."""
    if isinstance(error, BrokenError):
        return re.sub(r"(?<![\w.])-?\d[\d.e+-]*", "N", str(error))
    ours = [each for each in traceback.extract_tb(error.__traceback__) if "paceline" in each.filename]
    return f"{type(error).__name__} at {Path(ours[-1].filename).name}:{ours[-1].lineno} {ours[-1].name}" if ours else repr(error)


def late(*_: object) -> None:
    """The alarm."""
    raise Late(f"hang: not ended within {CASE_S} s")


def main() -> int:
    """Run cases until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="one case, such as stream")
    parser.add_argument("--keep", type=Path, help="folder for a file per fault")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, late)
    told: Counter[str] = Counter()
    done: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        fuzz = Fuzz(Path(folder))
        names = ("stream", "came", "dump", "counter", "log", "result", "result_count", "run", "config")
        cases: dict[str, Callable[[random.Random], None]] = {each: getattr(fuzz, each) for each in names if options.only in (None, each)}
        end, number = time.monotonic() + 60 * options.minutes, 0
        while time.monotonic() < end:
            name = list(cases)[number % len(cases)]
            number += 1
            signal.alarm(CASE_S)
            try:
                cases[name](random.Random(f"{options.seed}/{name}/{number}"))  # noqa: S311 - damage, no secrets
            except PacelineError:
                done[f"{name} refused"] += 1
            except (Exception, Late) as error:
                signal.alarm(0)
                mark = f"{name}: {where(error)}"
                told[mark] += 1
                if told[mark] == 1:
                    print(f"FAULT {mark}\n  {str(error)[:300]!r}\n  input: {fuzz.note}; --seed {options.seed}, case {number}", flush=True)
                    if options.keep is not None:
                        options.keep.mkdir(parents=True, exist_ok=True)
                        (options.keep / re.sub(r"\W+", "_", mark)[:100]).write_bytes(fuzz.shown)
            else:
                done[f"{name} read"] += 1
            finally:
                signal.alarm(0)
    print(f"{number} cases: " + ", ".join(f"{count} {name}" for name, count in sorted(done.items())))
    for mark, count in told.most_common():
        print(f"{count:6} {mark}")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
