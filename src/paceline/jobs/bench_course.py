"""What a load-test measures, stretch after stretch, what of it is there, and where it may stop.

The schedule is in `traffic.schedule`. Two more kinds of stretches follow its blocks at each load: the baseline's repeat for the noise
floor, and each segment alone where the server only has counters.

A test that stops when it is decided is looked at after each pair of blocks from the second on, for one pair has one order only. A look is
the gate's own verdict under the policy, with intervals that hold at all looks together (`stats.looks`): as soon as it can tell, no more
blocks are begun. Nobody has to watch: a folder that is gone on with comes to the same looks.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from math import ceil

from paceline.decide.gate import Policy
from paceline.errors import BadInputError, printable
from paceline.files.answers import REPEAT
from paceline.files.benchfolder import BenchFolder
from paceline.jobs.asking import ToAsk
from paceline.jobs.bench_runs import Settings, has_counters_only, whole_run, with_blocks, with_segments
from paceline.jobs.planning import compared
from paceline.live.http_connection import Timeouts
from paceline.live.openai import Ask, Server
from paceline.run import Arm, Load, Run
from paceline.stats.looks import Looks, with_looks
from paceline.traffic.schedule import Block, blocks
from paceline.verdict import Decision

__all__ = ["Bench", "BenchLoad", "Course", "FIRST_LOOK", "Stretch"]

SEGMENT_CONCURRENCY = 8
FIRST_LOOK = 2  # pairs of blocks: both orders


@dataclass(frozen=True, slots=True)
class BenchLoad:
    """One load: a closed loop, or an open one with the instant at which each counted request is due, in seconds from the first one's."""

    name: str
    load: Load
    due_s: tuple[float, ...] | None
    edge: int


@dataclass(frozen=True, slots=True)
class Bench:
    """What is measured.

    Attributes:
        servers: by arm; one of them, or both.
        identity: which server an arm is; another one does not go into the same folder.
        to_ask: the requests.
        loads: one after the other.
        pairs: pairs of blocks at each load.
        noise_floor: the share of the requests that the baseline gets twice, None for none.
        stop_when: the policy whose verdict ends a load as soon as it can tell; None measures all that was asked for.
        timeouts: of each request.
        settings: what is written into the runs.

    """

    servers: Mapping[Arm, Server]
    identity: Mapping[Arm, Mapping[str, str]]
    to_ask: ToAsk
    loads: tuple[BenchLoad, ...]
    pairs: Mapping[str, int]
    noise_floor: float | None
    stop_when: Policy | None
    timeouts: Timeouts
    settings: Settings


@dataclass(frozen=True, slots=True)
class Stretch:
    """Requests that go to one server without a break: a block, a segment alone, or the baseline's repeat.

    `texts` is the name under which the answers' texts are kept, None where they are not.
    """

    load: BenchLoad
    stem: str
    arm: Arm
    asks: tuple[Ask, ...]
    texts: str | None

    __hash__ = object.__hash__  # by identity: asks hold messages that do not hash


class Course:
    """The stretches of one load-test, against what its folder holds."""

    def __init__(self, bench: Bench, folder: BenchFolder) -> None:
        self._bench = bench
        self._folder = folder
        self._looks: dict[tuple[str, int], Decision] = {}

    def stretches(self, load: BenchLoad) -> Iterator[Stretch]:
        """What is to be measured at one load, in the order of time; what comes later follows from what came before, so ask as you go."""
        counted = self._bench.to_ask.counted
        for block in self._blocks(load):
            asks = counted[block.first : block.first + block.count]
            yield Stretch(load=load, stem=block.name, arm=block.arm, asks=asks, texts=block.arm.value)
        asked = self._asked(load)
        yield from self._repeat(load, asked)
        yield from self._segments(load, asked)

    def _blocks(self, load: BenchLoad) -> Iterator[Block]:
        """The blocks in the order of time, up to the look that decides."""
        for pair, both in groupby(self._planned(load), key=_pair_of):
            if self._stops_before(load, pair):
                return
            yield from both

    def _planned(self, load: BenchLoad) -> tuple[Block, ...]:
        arms, requests = tuple(self._bench.servers), len(self._bench.to_ask.counted)
        return blocks(requests, arms=arms, pairs=self._bench.pairs[load.name], edge=load.edge)

    def _stops_before(self, load: BenchLoad, pair: int) -> bool:
        """Whether no block of this pair is begun, because a look before it could tell."""
        return pair >= FIRST_LOOK and self._look(load, pair) is not Decision.CANNOT_TELL

    def _look(self, load: BenchLoad, pairs: int) -> Decision:
        """The verdict after so many pairs of blocks; cannot tell where one of them is not finished, or the test is not looked at."""
        policy, key = self._bench.stop_when, (load.name, pairs)
        if policy is None or pairs > self._finished_pairs(load):
            return Decision.CANNOT_TELL
        if key not in self._looks:
            looks = self._looks_of(load, pairs, Decision.CANNOT_TELL)
            ours, theirs = (with_looks(self._joined(self._runs(load, arm, pairs)), looks) for arm in Arm)
            self._looks[key] = compared(ours, theirs, policy=policy, seed=self._bench.settings.seed).verdict.decision
        return self._looks[key]

    def _looks_of(self, load: BenchLoad, pairs: int, decision: Decision) -> Looks:
        planned = self._bench.pairs[load.name] - FIRST_LOOK + 1
        return Looks(
            taken=max(0, pairs - FIRST_LOOK + 1), planned=planned, most_requests=len(self._bench.to_ask.counted), decision=decision
        )

    def _finished_pairs(self, load: BenchLoad) -> int:
        """Pairs whose blocks are all there, up to the first that is not."""
        for pair, both in groupby(self._planned(load), key=_pair_of):
            if not all(self._folder.is_finished(load.name, each.name) for each in both):
                return pair
        return self._bench.pairs[load.name]

    def stopped_at(self, load: BenchLoad) -> Looks | None:
        """The looks taken so far and what the last one said; None where the test is not looked at."""
        if self._bench.stop_when is None:
            return None
        pairs = self._finished_pairs(load)
        return self._looks_of(load, pairs, self._look(load, pairs) if pairs >= FIRST_LOOK else Decision.CANNOT_TELL)

    def _asked(self, load: BenchLoad) -> int:
        """How many of the counted requests the blocks up to the deciding look hold."""
        return max(each.first + each.count for each in self._blocks(load))

    def _repeat(self, load: BenchLoad, asked: int) -> Iterator[Stretch]:
        """The first requests to the baseline once more: what differs between its own two answers is noise."""
        if self._bench.noise_floor is None or Arm.BASELINE not in self._bench.servers:
            return
        counted = self._bench.to_ask.counted
        asks = counted[: min(asked, ceil(self._bench.noise_floor * len(counted)))]
        yield Stretch(load=load, stem=REPEAT, arm=Arm.BASELINE, asks=asks, texts=REPEAT)

    def _segments(self, load: BenchLoad, asked: int) -> Iterator[Stretch]:
        """Each segment alone in a closed loop, so that the server's counters are the segment's."""
        counted = self._bench.to_ask.counted[:asked]
        names = sorted({each.segment for each in counted})
        if len(names) < 2 or not any(has_counters_only(each) for _, each in self._runs(load, Arm.SPECULATIVE, None)):
            return
        alone = BenchLoad(
            name=load.name, load=Load(concurrency=load.load.concurrency or SEGMENT_CONCURRENCY, rate_per_s=None), due_s=None, edge=0
        )
        for number, name in enumerate(names):
            asks = tuple(each for each in counted if each.segment == name)
            yield Stretch(load=alone, stem=f"segment-{number:02d}", arm=Arm.SPECULATIVE, asks=asks, texts=None)

    def need_planned(self, stretch: Stretch) -> None:
        """Nothing, where what is kept of a stretch is of its arm, its load and its requests.

        Raises:
            BadInputError: somebody moved or changed it.

        """
        name, stem, ids = stretch.load.name, stretch.stem, {each.id for each in stretch.asks}
        whole = self._folder.run_of(name, stem)
        for run in (*self._folder.parts(name, stem), *(() if whole is None else (whole,))):
            kept = [each.id for each in run.requests or ()]
            lawful = run.arm is stretch.arm and run.load == stretch.load.load and len(kept) == len(set(kept)) and ids.issuperset(kept)
            if not lawful or (run is whole and len(kept) < len(ids)):
                raise BadInputError(
                    f"{printable(str(self._folder.path))}: block {printable(stem)} at {printable(name)} is not what the plan has there "
                    "(another arm, load or other requests); move its files away and --resume measures it again"
                )

    def _runs(self, load: BenchLoad, arm: Arm, pairs: int | None) -> list[tuple[int, Run]]:
        """The arm's finished blocks and parts at this load with their block's number, of the first pairs or of all; without segments."""
        found: list[tuple[int, Run]] = []
        for block in self._planned(load):
            if block.arm is arm and (pairs is None or block.pair < pairs):
                run = self._folder.run_of(load.name, block.name)
                there = [run] if run is not None else self._folder.parts(load.name, block.name)
                found += [(block.number, each) for each in there]
        return found

    def _joined(self, there: list[tuple[int, Run]]) -> Run:
        return with_blocks(whole_run([each for _, each in there]), [(number, len(each.requests or ())) for number, each in there])

    def join(self, load: BenchLoad, arm: Arm) -> None:
        """Write the arm's run at this load: all blocks and parts that are there, acceptance by segment where that was measured apart."""
        there = self._runs(load, arm, None)
        if not there:
            return
        whole, looks = self._joined(there), self.stopped_at(load)
        if arm is Arm.SPECULATIVE:
            apart = {each: self._folder.run_of(load.name, each.stem) for each in self._segments(load, self._asked(load))}
            measured = {each.asks[0].segment: run for each, run in apart.items() if run is not None}
            whole = with_segments(whole, measured) if apart and len(measured) == len(apart) else whole
        self._folder.keep_joined(load.name, whole if looks is None else with_looks(whole, looks))


def _pair_of(block: Block) -> int:
    return block.pair
