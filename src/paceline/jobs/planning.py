"""From pairs of runs to verdicts and a staged plan; the runs may have just been made or come from files."""

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from paceline.decide.comparability import draft_lengths_caution
from paceline.decide.gate import Policy, gate, production_verdict
from paceline.decide.lesson_gate import lesson_verdict
from paceline.decide.measured import segments_of
from paceline.decide.rollout import RolloutSetup, rollout_plan
from paceline.errors import BadInputError, NoEvidenceError, UnknownNameError, printable
from paceline.files.evidence import read_all, read_evidence
from paceline.files.found import Found
from paceline.jobs.launch import Commands
from paceline.jobs.scenario import Scenario
from paceline.plan import Plan
from paceline.report.page import Comparison
from paceline.run import Arm, Run
from paceline.servers.server_start import ServerStart
from paceline.speculation.method import Speculation
from paceline.stats.paired import speedup_spread, two_arms

__all__ = [
    "Circumstances",
    "across_loads",
    "as_measured",
    "compared",
    "compared_at_loads",
    "need_same",
    "need_told",
    "output_shares",
    "planned",
    "read_pairs",
]

DEFAULT_SPREAD = 0.3
SHORTEST_STAGE_S = 3600.0
PATIENCE_S = 300.0
CHUNK_GAP_P99_S = 0.25
ERROR_RATE = 0.01


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Where a plan is for: the scenario, its launch commands, the engine with its version, segments' shares of tokens, and traffic."""

    scenario: Scenario
    commands: Commands
    engine: str
    shares: Mapping[str, float]
    requests_per_s: float | None


def as_measured(where: Circumstances, baseline: Run, speculative: Run) -> Circumstances:
    """The same with the engine and the commands that both runs say they were measured on; itself where one of them says none.

    Raises:
        BadInputError: a command that no shell takes.

    """
    told = {each.arm: each.provenance.arguments for each in (baseline, speculative)}
    if any("engine" not in each or "server_command" not in each for each in told.values()):
        return where
    starts = {arm: ServerStart(engine=each["engine"], command=_command(each["server_command"]), files={}) for arm, each in told.items()}
    label = " ".join(told[Arm.SPECULATIVE][each] for each in ("engine", "engine_version") if each in told[Arm.SPECULATIVE])
    return replace(where, commands=replace(where.commands, starts=starts), engine=label)


def _command(command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise BadInputError(f"server_command {printable(command)} of a run is no command ({error}); mend it in the run file") from error


def compared(baseline: Run, speculative: Run, *, policy: Policy, seed: int) -> Comparison:
    """Both arms at one load with the verdict on them and the textbook's beside it.

    The resampling has a generator per concurrency, so that a point's verdict does not depend on which others were asked for.

    Raises:
        BadInputError: the arms are swapped.
        UnknownNameError: a claim on a segment that the runs do not have; the message lists theirs.

    """
    _need_segments(policy, speculative)
    rng = np.random.default_rng((seed, speculative.load.concurrency or 0))
    verdict = gate(baseline, speculative, policy=policy, rng=rng)
    lesson = lesson_verdict(baseline, speculative, verdict, alpha_floor=policy.alpha_floor, confidence=policy.confidence, rng=rng)
    return Comparison(baseline=baseline, speculative=speculative, verdict=verdict, lesson=lesson)


def compared_at_loads(pairs: Iterable[tuple[Run, Run]], *, policy: Policy, seed: int) -> tuple[Comparison, ...]:
    """Each pair's comparison, and what shows between them.

    Raises:
        BadInputError: as `compared`.
        UnknownNameError: as `compared`.

    """
    return across_loads(tuple(compared(*pair, policy=policy, seed=seed) for pair in pairs))


def across_loads(comparisons: tuple[Comparison, ...]) -> tuple[Comparison, ...]:
    """The comparisons at several loads, each verdict saying what only shows between them."""
    varies = draft_lengths_caution([each.speculative for each in comparisons])
    if varies is None:
        return comparisons
    return tuple(replace(each, verdict=replace(each.verdict, warnings=(*each.verdict.warnings, varies))) for each in comparisons)


def _need_segments(policy: Policy, run: Run) -> None:
    named = segments_of(run)
    for claim in policy.claims:
        if named and claim.segment is not None and claim.segment not in named:
            raise UnknownNameError("segment in a claim", claim.segment, named)


def planned(where: Circumstances, comparisons: tuple[Comparison, ...], *, policy: Policy) -> Plan:
    """The staged plan that follows from the comparisons.

    Raises:
        NoEvidenceError: there is none.

    """
    verdicts = tuple(each.verdict for each in comparisons)
    deciding = production_verdict(verdicts)
    production = next(each for each in comparisons if each.verdict is deciding)
    points = tuple(sorted({each.verdict.concurrency or 1 for each in comparisons}))
    setup = RolloutSetup(
        target=where.scenario.target.name,
        speculation=where.scenario.speculation,
        draft=where.commands.draft,
        engine=where.engine,
        baseline_command=where.commands.baseline,
        speculative_command=where.commands.speculative,
        segments=where.shares,
        concurrency_points=points,
        production_concurrency=points[-1],
        requests_per_s=where.requests_per_s,
        spread=_spread(production),
        shortest_stage_s=SHORTEST_STAGE_S,
        patience_s=PATIENCE_S,
        chunk_gap_p99_s=CHUNK_GAP_P99_S,
        error_rate=ERROR_RATE,
    )
    return rollout_plan(setup, verdicts, policy=policy)


def _spread(comparison: Comparison) -> float:
    try:
        return speedup_spread(two_arms(comparison.baseline, comparison.speculative, latency="tpot_s", segment=None))
    except NoEvidenceError:
        return DEFAULT_SPREAD


def output_shares(run: Run) -> dict[str, float]:
    """Each segment's share of generated tokens; all of them one segment where the run has only aggregates."""
    if run.requests is None:
        return {"all": 1.0}
    tokens: dict[str, int] = {}
    for each in run.finished:
        tokens[each.segment] = tokens.get(each.segment, 0) + each.output_tokens
    total = sum(tokens.values())
    return {name: count / total for name, count in sorted(tokens.items())} if total else {"all": 1.0}


def read_pairs(paths: tuple[Path, ...]) -> tuple[tuple[Run, Run], ...]:
    """Pairs of baseline and speculative runs: two files or folders of any kind that is read, or the folder that `rollout` wrote (its
    `runs/c*-baseline.json` and their twins).

    Raises:
        BadInputError: neither, a run without its twin, or one with several.

    """
    if len(paths) == 2:
        return _by_load(read_all(paths[0], Arm.BASELINE), read_all(paths[1], Arm.SPECULATIVE))
    if len(paths) != 1 or not paths[0].is_dir():
        raise BadInputError("give BASELINE and SPECULATIVE, or the one folder that rollout or simulate wrote")
    folder = paths[0] / "runs" if (paths[0] / "runs").is_dir() else paths[0]
    baselines = sorted(folder.glob("*baseline.json"), key=lambda each: (len(each.name), each.name))
    if not baselines:
        raise BadInputError(f"{printable(str(folder))} holds no run file whose name ends in baseline.json")
    twins = [each.with_name(each.name.replace("baseline.json", "speculative.json")) for each in baselines]
    missing = [each.name for each in twins if not each.is_file()]
    if missing:
        raise BadInputError(f"{printable(missing[0])} is missing beside its baseline in {printable(str(folder))}")
    return tuple((read_evidence(base), read_evidence(twin)) for base, twin in zip(baselines, twins, strict=True))


def _by_load(baselines: Sequence[Found], speculatives: Sequence[Found]) -> tuple[tuple[Run, Run], ...]:
    """One run of each arm as they are; of several, those under the same load."""
    if len(baselines) == len(speculatives) == 1:
        return ((baselines[0].run, speculatives[0].run),)
    pairs = []
    for each in speculatives:
        twins = [other for other in baselines if other.run.load == each.run.load]
        rivals = [other for other in speculatives if other.run.load == each.run.load]
        if len(twins) != 1 or len(rivals) != 1:
            raise BadInputError(
                f"{len(twins)} plain and {len(rivals)} speculative runs are of {each.run.load} "
                f"(such as {printable(each.label)}); one of each is compared: ask for it as FILE#LABEL"
            )
        pairs.append((twins[0].run, each.run))
    return tuple(pairs)


def need_told(pairs: tuple[tuple[Run, Run], ...], given: Collection[str]) -> None:
    """Nothing, where measured runs say what was measured, or the user does.

    Raises:
        BadInputError: runs that name no target, or no method, for a plan that was asked for none.

    """
    runs = [run for pair in pairs for run in pair]
    lacking = {
        "target": not all("target" in each.provenance.arguments for each in runs),
        "method": not any(each.speculation for each in runs),
    }
    untold = [name for name, lacks in lacking.items() if lacks and name not in given]
    if untold:
        raise BadInputError(f"the runs do not say what was measured; name it with --{' and --'.join(untold)}")


def need_same(pairs: tuple[tuple[Run, Run], ...], described: Mapping[str, str], speculation: Speculation) -> None:
    """Nothing, where the runs say nothing about target, hardware and drafting, or the same as the plan is asked for.

    Raises:
        BadInputError: a plan for another target, hardware, method or draft length than the runs'.

    """
    for run in (run for pair in pairs for run in pair):
        for key, asked in described.items():
            found = run.provenance.arguments.get(key, asked)
            if found != asked:
                raise BadInputError(
                    f"the runs' {key} is {printable(found)}, but the plan is asked for {printable(asked)}; ask for the runs' own"
                )
        if run.speculation is not None and run.speculation != speculation:
            raise BadInputError(
                f"the runs draft with {_words(run.speculation)}, but the plan is asked for {_words(speculation)}; ask for the runs' own"
            )


def _words(speculation: Speculation) -> str:
    return f"{speculation.method.value}, K = {speculation.draft_tokens}"
