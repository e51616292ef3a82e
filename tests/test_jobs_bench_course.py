"""Where a load-test stops, and what it still measures then; no server is asked."""

from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest

from paceline.decide.gate import DEFAULT_POLICY, Policy, gate
from paceline.files.benchfolder import BenchFolder
from paceline.jobs.asking import ToAsk
from paceline.jobs.bench_course import Bench, BenchLoad, Course
from paceline.jobs.bench_runs import Settings
from paceline.jobs.planning import compared
from paceline.live.http_connection import Timeouts
from paceline.live.openai import Ask, Server
from paceline.run import Arm, Load, Run
from paceline.stats.looks import Looks, looks_stated
from paceline.verdict import Claim, Decision
from tests.strategies_runs import pair

PAIRS, REQUESTS = 4, 80
LOAD = BenchLoad(name="c0008", load=Load(concurrency=8, rate_per_s=None), due_s=None, edge=0)
SPEEDUP = replace(DEFAULT_POLICY, claims=(Claim(metric="speedup", at_most=None, at_least=1.05, segment=None),))
SETTINGS = Settings(speculation=None, arguments={}, inputs={}, seed=1, cautions=(), count_tokens=None)


def bench(arms: tuple[Run, Run], *, stop_when: Policy | None = SPEEDUP) -> Bench:
    counted = tuple(
        Ask(id=each.id, segment=each.segment, messages=None, prompt="x", max_tokens=1, temperature=0.0, seed=1, extra={})
        for each in arms[0].requests or ()
    )
    return Bench(
        servers={arm: Server(url=f"http://{arm.value}:1", api="chat", model="m", dialect=None) for arm in Arm},
        identity={arm: {"URL": f"http://{arm.value}:1"} for arm in Arm},
        to_ask=ToAsk(counted=counted, spare=(), inputs={}, cautions=()),
        loads=(LOAD,),
        pairs={LOAD.name: PAIRS},
        noise_floor=0.5,
        stop_when=stop_when,
        timeouts=Timeouts(first_byte_s=1, gap_s=1, total_s=inf),
        settings=SETTINGS,
    )


def measured(folder: BenchFolder, course: Course, arms: tuple[Run, Run]) -> list[str]:
    """Everything that the course asks for, with the answers of these runs; the names in their order."""
    answers = {run.arm: {each.id: each for each in run.requests or ()} for run in arms}
    done = []
    for stretch in course.stretches(LOAD):
        course.need_planned(stretch)
        run = next(each for each in arms if each.arm is stretch.arm)
        folder.keep_run(LOAD.name, stretch.stem, replace(run, requests=tuple(answers[stretch.arm][each.id] for each in stretch.asks)))
        done.append(stretch.stem)
    for arm in Arm:
        course.join(LOAD, arm)
    return done


BLOCKS = ["000-baseline", "001-speculative", "002-speculative", "003-baseline"]
MORE = ["004-baseline", "005-speculative", "006-speculative", "007-baseline", "repeat"]


def test_a_clear_answer_stops_the_test_after_both_orders_and_the_gate_gives_the_same(tmp_path: Path) -> None:
    """An evening on two servers for what twenty minutes had shown; and a verdict that the gate then takes back is none."""
    arms, folder = pair(n=REQUESTS, step_s=0.012), BenchFolder(tmp_path)
    course = Course(bench(arms), folder)
    assert measured(folder, course, arms) == [*BLOCKS, "repeat"]
    looks = Looks(taken=1, planned=3, most_requests=REQUESTS, decision=Decision.SHIP)
    assert course.stopped_at(LOAD) == looks
    runs = [folder.joined(LOAD.name, arm) for arm in Arm]
    assert runs[0] is not None
    assert runs[1] is not None
    assert looks_stated(runs[0]) == looks_stated(runs[1]) == looks
    assert len(runs[0].requests or ()) == 40
    assert compared(runs[0], runs[1], policy=SPEEDUP, seed=1).verdict.decision is Decision.SHIP
    repeat = folder.run_of(LOAD.name, "repeat")
    assert repeat is not None
    assert len(repeat.requests or ()) == 40


def test_a_clear_loss_stops_it_too(tmp_path: Path) -> None:
    """Slower by half is as clear as faster by half."""
    arms, folder = pair(n=REQUESTS, step_s=0.06), BenchFolder(tmp_path)
    course = Course(bench(arms), folder)
    assert measured(folder, course, arms) == [*BLOCKS, "repeat"]
    stopped = course.stopped_at(LOAD)
    assert stopped is not None
    assert stopped.decision is Decision.KEEP


def test_what_lies_on_its_bound_is_measured_to_the_end_and_cannot_be_told(tmp_path: Path) -> None:
    """A test that never ends is no test."""
    arms, folder = pair(n=REQUESTS, step_s=0.012), BenchFolder(tmp_path)
    whole = gate(*arms, policy=SPEEDUP, rng=np.random.default_rng(1)).findings[0].estimate
    assert whole is not None
    at = replace(SPEEDUP, claims=(replace(SPEEDUP.claims[0], at_least=whole.value),))
    course = Course(bench(arms, stop_when=at), folder)
    assert measured(folder, course, arms) == [*BLOCKS, *MORE]
    assert course.stopped_at(LOAD) == Looks(taken=3, planned=3, most_requests=REQUESTS, decision=Decision.CANNOT_TELL)


def test_without_a_policy_all_is_measured_and_no_look_is_stated(tmp_path: Path) -> None:
    """Who did not ask for it gets the narrowest intervals."""
    arms, folder = pair(n=REQUESTS, step_s=0.012), BenchFolder(tmp_path)
    course = Course(bench(arms, stop_when=None), folder)
    assert measured(folder, course, arms) == [*BLOCKS, *MORE]
    assert course.stopped_at(LOAD) is None
    joined = folder.joined(LOAD.name, Arm.BASELINE)
    assert joined is not None
    assert looks_stated(joined) is None


def test_a_folder_that_is_gone_on_with_comes_to_the_same_looks(tmp_path: Path) -> None:
    """Ctrl-C between two looks must not be a way to look more often."""
    arms, folder = pair(n=REQUESTS, step_s=0.012), BenchFolder(tmp_path)
    first = Course(bench(arms), folder)
    measured(folder, first, arms)
    (tmp_path / "blocks" / LOAD.name / "003-baseline.json").unlink()
    again = Course(bench(arms), folder)
    assert again.stopped_at(LOAD) == Looks(taken=0, planned=3, most_requests=REQUESTS, decision=Decision.CANNOT_TELL)
    assert measured(folder, again, arms) == [*BLOCKS, "repeat"]
    assert again.stopped_at(LOAD) == first.stopped_at(LOAD)


@pytest.mark.parametrize(("done", "taken"), [(3, 0), (4, 1)])
def test_a_pair_of_blocks_counts_once_both_are_there(tmp_path: Path, done: int, taken: int) -> None:
    """Half a pair is no comparison."""
    arms, folder = pair(n=REQUESTS, step_s=0.012), BenchFolder(tmp_path)
    measured(folder, Course(bench(arms), folder), arms)
    for name in BLOCKS[done:]:
        (tmp_path / "blocks" / LOAD.name / f"{name}.json").unlink()
    stopped = Course(bench(arms), folder).stopped_at(LOAD)
    assert stopped is not None
    assert stopped.taken == taken
