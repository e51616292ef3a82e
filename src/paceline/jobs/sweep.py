"""Sweeps a grid by forecast, and by simulation where asked: in parallel over local cores, resumable, nothing lost on Ctrl-C.

Each finished point is a line of OUT/points.jsonl, keyed by a hash of everything that its figures depend on; a rerun computes what is
missing. A block of work is one load and one draft length with every α; the plain arm of a load is simulated once per worker. Requests of a
simulated load all have the same prompt; their outputs are uniform between half and one and a half times the stated length.
"""

import hashlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import paceline
from paceline.decide.surface import Corner, Point, Setting
from paceline.errors import BadInputError, printable
from paceline.files.whole import make_folder
from paceline.forecast.acceptance_model import exactly
from paceline.forecast.calibrate import Calibration
from paceline.forecast.speedup import Lengths, forecast
from paceline.forecast.step_cost import StepCost
from paceline.jobs.scenario import Asked, Scenario, scenario
from paceline.jobs.simulation import SimulationPlan, cost_of, need_seats, replica_of
from paceline.run import Load
from paceline.simulate.figures import ArmTimes, arm_times
from paceline.simulate.replica import Drafting
from paceline.speculation.acceptance import Acceptance
from paceline.workload import Request, Workload

__all__ = ["Grid", "Sweep", "sweep"]

POINTS = "points.jsonl"
ALL = "all"
SHORTEST_PROMPT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The values to combine; α is accepted / drafted at `reference_draft_tokens`."""

    alphas: tuple[float, ...]
    draft_lengths: tuple[int, ...]
    concurrencies: tuple[int, ...]
    contexts: tuple[int, ...]
    reference_draft_tokens: int

    def settings(self) -> Iterator[Setting]:
        """Every combination, in order."""
        for context in self.contexts:
            for concurrency in self.concurrencies:
                corner = Corner(context_tokens=context, concurrency=concurrency)
                for K in self.draft_lengths:
                    yield from (Setting(corner=corner, draft_tokens=K, alpha=alpha) for alpha in self.alphas)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What to sweep; `simulation` None asks for the forecast only, `calibration` None for the packaged coefficients."""

    asked: Asked
    grid: Grid
    output_tokens: int
    simulation: SimulationPlan | None
    calibration: Calibration | None


@dataclass(frozen=True, slots=True)
class _Block:
    """One load and one draft length, and the α that are missing there."""

    job: Sweep
    corner: Corner
    draft_tokens: int
    alphas: tuple[float, ...]


def sweep(job: Sweep, out: Path | None, *, workers: int, done: Callable[[float], None]) -> tuple[Point, ...]:
    """Every point of the grid, in its order; `done` gets how many were finished since its last call.

    Raises:
        BadInputError: the scenario cannot be placed, a draft tree, or a points file of another sweep or that cannot be read or written.

    """
    if job.asked.tree is not None:
        raise BadInputError("a sweep compares draft lengths of chains; leave --tree out")
    if job.simulation is not None:
        need_seats(max(job.grid.concurrencies), job.simulation)
    scenario(job.asked)  # what cannot be placed fails here, before any worker starts
    file = _points_file(out)
    keys = {each: _key(job, each) for each in job.grid.settings()}
    known = _known(file)
    found = {each: _point(each, known[key]) for each, key in keys.items() if key in known}
    if not found and file is not None and _has_lines(file):
        raise BadInputError(
            f"{printable(str(file))} holds nothing of this sweep, but another one or other lines; choose another folder for --out, "
            "or move it away"
        )
    done(len(found))
    for points in _computed(_missing(job, found), workers=workers):
        _append(file, [(keys[each.setting], each) for each in points])
        found |= {each.setting: each for each in points}
        done(len(points))
    return tuple(found[each] for each in keys)


def _key(job: Sweep, setting: Setting) -> str:
    """A hash of all that a point's figures depend on."""
    depends = {
        "version": paceline.__version__,
        "asked": asdict(replace(job.asked, draft_tokens=setting.draft_tokens)),
        "setting": asdict(setting),
        "reference": job.grid.reference_draft_tokens,
        "output_tokens": job.output_tokens,
        "simulation": None if job.simulation is None else asdict(job.simulation),
    }
    if job.calibration is not None:
        depends["calibration"] = asdict(job.calibration)
    return hashlib.sha256(json.dumps(depends, sort_keys=True, default=str).encode()).hexdigest()[:24]


def _points_file(out: Path | None) -> Path | None:
    if out is None:
        return None
    make_folder(out)
    return out / POINTS


def _known(file: Path | None) -> dict[str, dict[str, Any]]:
    """Figures by key; a last line that was cut by a crash is no point, and is left as it is."""
    if file is None or not file.exists():
        return {}
    known = {}
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as fault:
        raise BadInputError(f"{printable(str(file))} cannot be read: {fault}; choose another folder for --out") from None
    for line in lines:
        try:
            row = json.loads(line)
            known[str(row["key"])] = dict(row["figures"])
        except (ValueError, KeyError, TypeError):
            continue
    return known


def _has_lines(file: Path) -> bool:
    """Whether the file has a whole line; half of one is what a crash leaves of the first."""
    return file.exists() and b"\n" in file.read_bytes()


def _point(setting: Setting, figures: dict[str, Any]) -> Point:
    try:
        return Point(setting=setting, **figures)
    except TypeError as fault:
        raise BadInputError(f"{POINTS} holds a point of another shape ({fault}); choose another folder for --out") from None


def _append(file: Path | None, points: list[tuple[str, Point]]) -> None:
    if file is None:
        return
    rows = []
    for key, point in points:
        figures = asdict(point)
        rows.append(json.dumps({"key": key, "setting": figures.pop("setting"), "figures": figures}))
    try:
        with file.open("ab+") as log:
            log.seek(0, os.SEEK_END)
            ends_in_mid_line = log.tell() > 0 and (log.seek(-1, os.SEEK_END), log.read(1))[1] != b"\n"
            log.write(("\n" if ends_in_mid_line else "").encode() + "".join(f"{row}\n" for row in rows).encode())
    except OSError as fault:
        raise BadInputError(f"{printable(str(file))} cannot be written: {fault.strerror}; choose another folder for --out") from None


def _missing(job: Sweep, found: dict[Setting, Point]) -> list[_Block]:
    missing: dict[tuple[Corner, int], list[float]] = {}
    for each in job.grid.settings():
        if each not in found:
            missing.setdefault((each.corner, each.draft_tokens), []).append(each.alpha)
    return [_Block(job, corner, K, tuple(alphas)) for (corner, K), alphas in missing.items()]


def _computed(blocks: list[_Block], *, workers: int) -> Iterator[tuple[Point, ...]]:
    """Each block's points as they are finished: here, or with several workers in processes of their own."""
    if workers == 1 or len(blocks) < 2:
        yield from map(_compute, blocks)
        return
    pool = ProcessPoolExecutor(min(workers, len(blocks)), mp_context=get_context("spawn"), initializer=_leave_interrupts)
    try:
        # The largest loads first, so that no worker is left alone with one at the end.
        waiting = {pool.submit(_compute, each) for each in sorted(blocks, key=lambda each: -each.corner.concurrency)}
        while waiting:
            finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (each.result() for each in finished)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _leave_interrupts() -> None:
    """Ctrl-C is the parent's to answer: it stops handing out work, and workers end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _compute(block: _Block) -> tuple[Point, ...]:
    job, corner = block.job, block.corner
    found = _scenario(replace(job.asked, draft_tokens=block.draft_tokens))
    stated = [Acceptance.from_alpha(alpha, draft_tokens=job.grid.reference_draft_tokens).at(block.draft_tokens) for alpha in block.alphas]
    (row,) = forecast(
        target=found.target,
        where=found.where,
        speculation=found.speculation,
        draft=found.draft,
        acceptance=exactly(stated[0]),
        concurrencies=(corner.concurrency,),
        lengths=_lengths(job, corner),
        draft_lengths=(block.draft_tokens,),
        utilisation=found.utilisation,
        calibration=job.calibration,
    )
    ratio, even = row.step_time_ratio, row.break_even_alpha
    assert even is not None, "acceptance stated as α has full coverage"
    assert None not in (ratio.low, ratio.high, even.low, even.high)
    return tuple(
        Point(
            setting=Setting(corner=corner, draft_tokens=block.draft_tokens, alpha=alpha),
            tokens_per_step=each.tokens_per_step,
            step_time_ratio=ratio.value,
            step_time_low=float(ratio.low or 0),
            step_time_high=float(ratio.high or 0),
            break_even_alpha=even.value,
            break_even_low=float(even.low or 0),
            break_even_high=float(even.high or 0),
            speedup=each.tokens_per_step / ratio.value,
            **_simulated(job, corner, found, each),
        )
        for alpha, each in zip(block.alphas, stated, strict=True)
    )


def _lengths(job: Sweep, corner: Corner) -> Lengths:
    """A prompt such that halfway through its output a request has the context."""
    prompt = max(SHORTEST_PROMPT, corner.context_tokens - job.output_tokens // 2)
    return Lengths(prompt_tokens=prompt, output_tokens=job.output_tokens, context_tokens=corner.context_tokens)


def _simulated(job: Sweep, corner: Corner, found: Scenario, acceptance: Acceptance) -> dict[str, float | None]:
    if job.simulation is None:
        return dict.fromkeys(("simulated_speedup", "simulated_step_time_ratio", "simulated_tpot_p99_ratio"))
    plain = _plain_arm(replace(job, grid=replace(job.grid, alphas=(), draft_lengths=())), corner)
    drafting = Drafting(
        speculation=found.speculation, acceptance={ALL: acceptance}, spread=job.simulation.spread, rejection=job.simulation.rejection
    )
    ours = _arm(job, corner, found, drafting)
    both = np.isfinite(plain.tpot_s) & np.isfinite(ours.tpot_s)
    return {
        "simulated_speedup": float(plain.tpot_s[both].mean() / ours.tpot_s[both].mean()),
        "simulated_step_time_ratio": ours.step_s / plain.step_s,
        "simulated_tpot_p99_ratio": float(np.quantile(ours.tpot_s[both], 0.99) / np.quantile(plain.tpot_s[both], 0.99)),
    }


@lru_cache(maxsize=64)
def _scenario(asked: Asked) -> Scenario:
    return scenario(asked)


@lru_cache(maxsize=64)
def _cost(asked: Asked, plan: SimulationPlan, draft_tokens: int) -> StepCost:
    return cost_of(_scenario(asked), plan, draft_tokens=draft_tokens)


@lru_cache(maxsize=64)
def _plain_arm(job: Sweep, corner: Corner) -> ArmTimes:
    return _arm(job, corner, _scenario(job.asked), None)


@lru_cache(maxsize=64)
def _workload(job: Sweep, corner: Corner) -> Workload:
    assert job.simulation is not None
    count, lengths = job.simulation.requests + 2 * corner.concurrency, _lengths(job, corner)
    half = job.output_tokens // 2
    outputs = np.random.default_rng(job.simulation.seed).integers(job.output_tokens - half, job.output_tokens + half + 1, count)
    requests = (
        Request(id=str(i), arrived_at_s=0.0, prompt_tokens=lengths.prompt_tokens, output_tokens=tokens, segment=ALL)
        for i, tokens in enumerate(outputs.tolist())
    )
    return Workload(requests=tuple(requests), source="sweep", seed=job.simulation.seed)


def _plain_cost(job: Sweep, plan: SimulationPlan) -> StepCost:
    return _cost(job.asked, plan, 0)


def _drafted_cost(job: Sweep, plan: SimulationPlan, draft_tokens: int) -> StepCost:
    return _cost(replace(job.asked, draft_tokens=draft_tokens), plan, draft_tokens)


def _arm(job: Sweep, corner: Corner, found: Scenario, drafting: Drafting | None) -> ArmTimes:
    plan = job.simulation
    assert plan is not None
    room = found.memory(context_tokens=1)
    tokens = room.plain_kv_tokens if drafting is None else room.speculative_kv_tokens
    return arm_times(
        _workload(replace(job, grid=replace(job.grid, alphas=(), draft_lengths=())), corner),
        replica=replica_of(tokens, plan),
        step_cost=_plain_cost(job, plan) if drafting is None else _drafted_cost(job, plan, found.speculation.draft_tokens),
        drafting=drafting,
        load=Load(concurrency=corner.concurrency, rate_per_s=None),
        seed=plan.seed,
    )
