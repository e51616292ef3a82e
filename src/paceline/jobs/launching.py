"""Both arms of a measurement on servers that paceline starts itself, one after the other on one machine, with the same traffic and seeds.

One start of a server serves all loads. An arm that is measured whole in the folder is not started again, so that `--resume` goes on where
it was stopped. `servers/` in the folder holds each arm's command and log.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from paceline.decide.comparability import synthetic_caution
from paceline.errors import NoEvidenceError
from paceline.files.answers import REPEAT
from paceline.files.benchfolder import BenchFolder
from paceline.jobs.arm_commands import ArmCommand, Launching, arm_command
from paceline.jobs.bench import measure_servers
from paceline.jobs.bench_asked import BenchAsked, prepared
from paceline.jobs.bench_course import Bench
from paceline.jobs.bench_runs import lacks_segments
from paceline.jobs.labels import without_folders
from paceline.jobs.launch import Commands
from paceline.jobs.measuring import Measured, Quiet, plan_of
from paceline.live.launch import Launch, launched
from paceline.run import Arm, Run
from paceline.servers.server_start import ServerStart, rendered

__all__ = ["commands_of", "engine_of", "launch_dict", "launch_notes", "launched_pairs", "measured_arm"]

NOT_YET = "http://127.0.0.1"  # an arm's address is known once it runs


def launched_pairs(
    asked: BenchAsked, launching: Launching, folder: Path, *, resume: bool, step: Callable[[str], None]
) -> tuple[Measured, ...]:
    """Both arms at each concurrency, measured into `folder`.

    Raises:
        BadInputError: as `measured_pairs`.
        ServerFaultError: a server did not start, drafts or does not as its arm must, or was gone in the middle; what came is kept.
        KeyboardInterrupt: it was stopped; what was finished is in the folder, and no server runs.

    """
    baselines, speculatives = (measured_arm(asked, launching, arm, folder, resume=resume, step=step) for arm in Arm)
    return tuple(Measured(one.load.concurrency or 1, one, other) for one, other in zip(baselines, speculatives, strict=True))


def measured_arm(
    asked: BenchAsked, launching: Launching, arm: Arm, folder: Path, *, resume: bool, step: Callable[[str], None]
) -> tuple[Run, ...]:
    """One arm's runs, load by load; its server is started where something is not yet measured.

    Raises:
        as `launched_pairs`.

    """
    command = arm_command(launching, arm)
    bench = _bench(asked, launching, arm, command)
    kept = BenchFolder(folder)
    kept.open(
        {**plan_of(asked), "engine": launching.engine, "inputs": dict(bench.to_ask.inputs)},
        arms=(arm,),
        resume=resume and (folder / "bench.json").is_file(),
    )
    try:
        kept.need_server(arm, bench.identity[arm])  # of an arm that is measured whole too: what is said of it later is this command
        if not _is_measured(bench, kept, arm):
            _measure(bench, kept, _launch(launching, arm, command, folder), step)
        return tuple(_whole(kept.joined(each.name, arm), each.name) for each in bench.loads)
    finally:
        kept.close()


def _measure(bench: Bench, kept: BenchFolder, launch: Launch, step: Callable[[str], None]) -> None:
    with launched(launch, step=step) as running:
        told = {**bench.settings.arguments, **({"engine_version": running.version} if running.version else {})}
        server = replace(running.server, api=bench.servers[launch.arm].api)
        there = replace(bench, servers={launch.arm: server}, settings=replace(bench.settings, arguments=told))
        if not measure_servers(there, kept, Quiet(step)):
            raise KeyboardInterrupt


def _bench(asked: BenchAsked, launching: Launching, arm: Arm, command: ArmCommand) -> Bench:
    """What is measured of that arm, with what is known before it runs."""
    bench = prepared(replace(asked, urls={arm: NOT_YET}, model=launching.name), progress=lambda _: None)
    shown = rendered([*(f"{name}={value}" for name, value in command.environment.items()), *command.words])
    told = {**bench.settings.arguments, "engine": launching.engine, "server_command": rendered(without_folders(command.words))}
    cautions = bench.settings.cautions
    if launching.synthetic_length is not None and arm is Arm.SPECULATIVE:
        told["synthetic_acceptance"] = f"{launching.synthetic_length:g}"
        cautions = (*cautions, synthetic_caution("synthetic_acceptance", told["synthetic_acceptance"]))
    identity = {"command": shown, "model": launching.name}
    return replace(bench, identity={arm: identity}, settings=replace(bench.settings, arguments=told, cautions=cautions))


def _launch(launching: Launching, arm: Arm, command: ArmCommand, folder: Path) -> Launch:
    return Launch(
        arm=arm,
        engine=launching.engine,
        command=command.words,
        environment=command.environment,
        model=launching.name,
        log=folder / "servers" / f"{arm.value}.log",
        ready_s=launching.ready_s,
        end_s=launching.end_s,
    )


def _is_measured(bench: Bench, kept: BenchFolder, arm: Arm) -> bool:
    """Whether nothing is left to send for this arm."""
    asked = {each.id for each in bench.to_ask.counted}
    several = len({each.segment for each in bench.to_ask.counted}) > 1
    repeats = arm is Arm.BASELINE and bench.noise_floor is not None
    if repeats and not all(kept.is_finished(each.name, REPEAT) for each in bench.loads):
        return False
    runs = [kept.joined(each.name, arm) for each in bench.loads]
    return all(
        run is not None
        and {each.id for each in run.requests or ()} == asked
        and not (arm is Arm.SPECULATIVE and several and lacks_segments(run))
        for run in runs
    )


def _whole(run: Run | None, load: str) -> Run:
    if run is None:
        raise NoEvidenceError(f"no request was measured at {load}")
    return run


def commands_of(launching: Launching) -> Commands:
    """Both arms' commands as they are started here."""
    starts = {arm: ServerStart(engine=launching.engine, command=tuple(arm_command(launching, arm).words), files={}) for arm in Arm}
    draft = None if launching.draft is None else without_folders([launching.draft])[0]
    return Commands(starts=starts, config={}, draft=draft, notes=())


def launch_notes(launching: Launching, pairs: tuple[Measured, ...], *, hardware_told: bool) -> tuple[str, ...]:
    """What a reader must know of servers that were started here: one after the other, on what, and in which version."""
    notes = ["the arms were measured one after the other: whatever else the machine did meanwhile is in one of them"]
    if not hardware_told:
        notes.append(
            "nobody said what the servers ran on, so the forecast may be of another machine than the measurement; give --gpu, --gpus"
        )
    if launching.engine == "vllm":
        found = {_version(run) for each in pairs for run in (each.baseline, each.speculative)}
        notes += [
            f"the server is vLLM {each}, and its options were written for {launching.version}; give --engine-version"
            for each in sorted(each for each in found if each is not None)
            if each.partition("+")[0] != str(launching.version)
        ]
    return tuple(notes)


def engine_of(launching: Launching, pairs: tuple[Measured, ...]) -> str:
    """The engine with the version that its speculative server told."""
    version = _version(pairs[-1].speculative) if pairs else None
    return launching.engine if version is None else f"{launching.engine} {version}"


def launch_dict(launching: Launching, arms: tuple[Run, Run]) -> dict[str, Any]:
    """What was started, and where its log is."""
    return {
        "engine": launching.engine,
        "arms": {
            run.arm.value: {
                "command": list(arm_command(launching, run.arm).words),
                "environment": dict(arm_command(launching, run.arm).environment),
                "engine_version": _version(run),
                "log": f"bench/servers/{run.arm.value}.log",
            }
            for run in arms
        },
    }


def _version(run: Run) -> str | None:
    return run.provenance.arguments.get("engine_version")
