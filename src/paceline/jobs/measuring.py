"""A rollout's servers measured: the user's own, or two fake ones that stand for the scenario.

The user's own servers give the runs that decide. Fake servers rehearse: the same requests go over real HTTP, and what the load-tester sees
is laid beside what was simulated. They decide nothing, because nothing but the simulator is behind them.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paceline.decide.losslessness import Losslessness
from paceline.errors import NoEvidenceError
from paceline.files.benchfolder import BenchFolder
from paceline.jobs.acceptance import KnownAcceptance
from paceline.jobs.asking import Asking
from paceline.jobs.bench import Watcher, measure_servers
from paceline.jobs.bench_asked import BenchAsked, prepared
from paceline.jobs.diagnosing import losslessness_beside
from paceline.jobs.fake_server import Rehearsal, fake_server
from paceline.jobs.scenario import Scenario
from paceline.jobs.simulation import SimulationPlan
from paceline.live.fake_pair import fake_servers
from paceline.live.fake_server_faults import NO_FAULTS
from paceline.run import Arm, Evidence, Run

__all__ = ["Measured", "Quiet", "losslessness_at_loads", "measured_pairs", "plan_of", "rehearsed"]

MOST_IN_FLIGHT = 16
REHEARSED_TOKENS = 64
FIRST_BYTE_S, GAP_S = 60.0, 30.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Both arms' runs at one concurrency."""

    concurrency: int
    baseline: Run
    speculative: Run


@dataclass(frozen=True, slots=True)
class Quiet:
    """Who tells only what begins."""

    tell: Callable[[str], None]

    def step(self, text: str) -> None:
        """Something begins."""
        self.tell(text)

    def answered(self) -> None:
        """A request ended."""


def measured_pairs(asked: BenchAsked, folder: Path, *, resume: bool, step: Callable[[str], None]) -> tuple[Measured, ...]:
    """Both arms of the user's servers at each concurrency, measured into `folder`; with `resume` what is there already counts.

    Raises:
        BadInputError: the folder holds another test, or this one without `resume`, or something that was asked for cannot be measured.
        ServerFaultError: a server does not answer.
        KeyboardInterrupt: it was stopped; what was finished is in the folder.

    """
    return _measured(asked, BenchFolder(folder), Quiet(step), resume=resume and (folder / "bench.json").is_file())


def _measured(asked: BenchAsked, folder: BenchFolder, watcher: Watcher, *, resume: bool) -> tuple[Measured, ...]:
    bench = prepared(asked, progress=lambda _: None)
    folder.open({**plan_of(asked), "inputs": dict(bench.to_ask.inputs)}, arms=tuple(bench.servers), resume=resume)
    try:
        if not measure_servers(bench, folder, watcher):
            raise KeyboardInterrupt
    finally:
        folder.close()
    found = []
    for load in bench.loads:
        arms = [folder.joined(load.name, arm) for arm in (Arm.BASELINE, Arm.SPECULATIVE)]
        if arms[0] is None or arms[1] is None:
            raise NoEvidenceError(f"no request was measured at {load.load.concurrency} in flight")
        found.append(Measured(concurrency=load.load.concurrency or 1, baseline=arms[0], speculative=arms[1]))
    return tuple(found)


def plan_of(asked: BenchAsked) -> Mapping[str, object]:
    """What a measurement's folder holds it to."""
    return {
        "requests": asked.asking.requests,
        "concurrency": list(asked.concurrencies),
        "max_tokens": asked.asking.max_tokens,
        "temperature": asked.asking.temperature,
        "seed": asked.asking.seed,
        "noise_floor": asked.noise_floor,
    }


def losslessness_at_loads(pairs: Sequence[Measured], folder: Path, *, confidence: float, seed: int) -> dict[int, Losslessness]:
    """What the answers in the load-test's folder say, by concurrency; a load without answers of both arms is left out."""
    found = {}
    for each in pairs:
        base, twin = (folder / "runs" / f"c{each.concurrency:04d}-{arm.value}.json" for arm in Arm)
        said = losslessness_beside((base, twin), (each.baseline, each.speculative), confidence=confidence, seed=seed)
        if said is not None:
            found[each.concurrency] = said
    return found


def rehearsed(
    found: Scenario,
    known: KnownAcceptance,
    plan: SimulationPlan,
    asking: Asking,
    folder: Path,
    *,
    concurrency: int,
    step: Callable[[str], None],
) -> Measured:
    """Both arms as the load-tester sees two fake servers of the scenario, at most 16 in flight; what an earlier rehearsal left in `folder`
    is overwritten.

    Raises:
        ServerFaultError: a fake server did not start.
        KeyboardInterrupt: it was stopped.

    """
    if (folder / "bench.json").is_file():
        shutil.rmtree(folder)
    in_flight = min(concurrency, MOST_IN_FLIGHT)
    settings = [
        fake_server(
            found,
            acceptance,
            plan,
            Rehearsal(
                first_seed=asking.seed,
                speed=1.0,
                grace_s=0.0,
                default_output_tokens=REHEARSED_TOKENS,
                faults=NO_FAULTS,
                record=None,
            ),
            model=found.target.name,
        )
        for acceptance in (None, known.by_segment)
    ]
    short = replace(asking, requests=2 * in_flight, max_tokens=REHEARSED_TOKENS, ignore_eos=True)
    with fake_servers(settings) as (baseline, speculative):
        asked = BenchAsked(
            urls={Arm.BASELINE: baseline, Arm.SPECULATIVE: speculative},
            model=found.target.name,
            asking=short,
            concurrencies=(in_flight,),
            open_load=None,
            pairs=None,
            noise_floor=None,
            stop_when=None,
            first_byte_s=FIRST_BYTE_S,
            gap_s=GAP_S,
            speculation=found.speculation,
            tokenizer=None,
        )
        (seen,) = _measured(asked, BenchFolder(folder), Quiet(step), resume=False)
    return replace(seen, baseline=_as_simulated(seen.baseline), speculative=_as_simulated(seen.speculative))


def _as_simulated(run: Run) -> Run:
    """A run of a fake server rests on the simulator, however it was measured."""
    return replace(run, provenance=replace(run.provenance, evidence=Evidence.SIMULATED))
