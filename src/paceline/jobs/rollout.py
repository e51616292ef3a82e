"""The whole job: traffic, acceptance, forecast, both arms at each concurrency, verdict, plan, report.

Everything is written as soon as it is known, each file whole or not at all, and `journal.jsonl` gets a line per step: after Ctrl-C or a
crash what was finished is there. No file holds a clock, so that the same inputs give the same bytes.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

import paceline
from paceline.decide.gate import Policy, production_verdict
from paceline.decide.losslessness import Losslessness
from paceline.errors import BadInputError
from paceline.files.runfile import run_to_json
from paceline.files.whole import make_folder, write_text
from paceline.forecast.speedup import ForecastRow, Lengths, forecast
from paceline.forecast.when_not import Condition, when_not
from paceline.jobs.acceptance import AskedAcceptance, KnownAcceptance, choose, pairing_of
from paceline.jobs.arm_commands import Launching
from paceline.jobs.asking import Asking
from paceline.jobs.bench_asked import BenchAsked
from paceline.jobs.labels import described, labelled, model_range, with_arguments
from paceline.jobs.launch import Commands, launch_commands
from paceline.jobs.launching import commands_of, engine_of, launch_dict, launch_notes, launched_pairs
from paceline.jobs.measuring import Measured, losslessness_at_loads, measured_pairs, rehearsed
from paceline.jobs.planning import Circumstances, across_loads, compared, output_shares, planned
from paceline.jobs.scenario import Asked, Scenario, config_hashes, scenario
from paceline.jobs.simulation import SimulationPlan, limits_of, need_seats, simulated_arms
from paceline.jobs.traffic import Reading, Traffic, load_traffic
from paceline.plan import Plan
from paceline.report.evidence import replayed_dict
from paceline.report.html import report_html
from paceline.report.json_view import plan_dict, verdict_dict
from paceline.report.operations import answers_dict
from paceline.report.page import Comparison
from paceline.report.predictions import forecast_dict
from paceline.report.skill import SkillFacts, skill_markdown
from paceline.report.text import plan_markdown
from paceline.run import Evidence, Load, Run
from paceline.servers.vllm.versions import Version
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method
from paceline.verdict import Verdict

__all__ = ["Job", "Rollout", "roll_out", "skill_name"]

DRAFT_LENGTHS = tuple(range(1, 9))
CURVE = (1, 2, 4, 8, 16, 32, 64, 128, 256)
ARMS_WORDS = {
    Evidence.SIMULATED: "both arms are simulated, no server was measured",
    Evidence.MEASURED: "both arms were measured on servers",
}
RUN_NAME = re.compile(r"c\d{4,}-(baseline|speculative)\.json")


@dataclass(frozen=True, slots=True)
class Job:
    """What was asked for. `servers` None: both arms are simulated, and with `rehearse` measured on fake servers too. `policy_inputs`: the
    policy file's SHA-256 by its name, empty where none was given. `launching`: the servers are started here, one after the other; without
    `hardware_told` nobody said what they run on.
    """

    traffic: tuple[str, ...]
    asked: Asked
    acceptance: AskedAcceptance
    reading: Reading
    simulation: SimulationPlan
    policy: Policy
    policy_inputs: Mapping[str, str]
    concurrencies: tuple[int, ...]
    requests_per_s: float | None
    version: Version
    ngram: tuple[int, int]
    servers: BenchAsked | None
    launching: Launching | None
    hardware_told: bool
    resume: bool
    rehearse: bool
    arguments: Mapping[str, Any]
    command: tuple[str, ...]

    @property
    def asking(self) -> Asking:
        """The traffic as requests to send; a rehearsal sets how many and how long."""
        return Asking(
            paths=self.traffic,
            segment_rule=self.reading.segment_rule,
            segment_field=self.reading.segment_field,
            requests=1,
            spare=0,
            max_tokens=1,
            temperature=0.0,
            ignore_eos=True,
            api="chat",
            seed=self.simulation.seed,
        )


@dataclass(frozen=True, slots=True)
class Rollout:
    """What came out; the same is in the files. `losslessness`: what the answers at each load say, empty where no server was measured."""

    scenario: Scenario
    traffic: Traffic
    known: KnownAcceptance
    rows: tuple[ForecastRow, ...]
    conditions: tuple[Condition, ...]
    comparisons: tuple[Comparison, ...]
    losslessness: Mapping[int, Losslessness]
    plan: Plan
    commands: Commands
    rehearsal: Measured | None

    @property
    def verdict(self) -> Verdict:
        """The verdict at the production concurrency."""
        return production_verdict(self.verdicts)

    @property
    def arms_evidence(self) -> Evidence:
        """What the runs that decide rest on."""
        return self.decisive.speculative.provenance.evidence

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdict at each concurrency."""
        return tuple(each.verdict for each in self.comparisons)

    @property
    def decisive(self) -> Comparison:
        """The comparison at the production concurrency."""
        return next(each for each in self.comparisons if each.verdict is self.verdict)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of any figure must know: about the traffic, what could not be read of it, and the commands."""
        why_not = () if self.traffic.why_not is None else (self.traffic.why_not,)
        return (*why_not, *self.traffic.notes, *self.traffic.warnings, *self.commands.notes)


DECISIONS = ("replay.json", "forecast.json", "launch.json", "verdict.json", "plan.md", "plan.json", "report.html")
SKILLS = "skill-*-rollout.md"


class _Folder:
    """The job's folder: writes each file whole, and a line in the journal."""

    def __init__(self, path: Path) -> None:
        self._path = path
        make_folder(path)
        # Runs of an earlier job at other loads would be taken for this one's.
        for stale in (path / "runs").glob("c*.json"):
            if RUN_NAME.fullmatch(stale.name):
                stale.unlink()
        # So would its decision beside this one's runs, should this job not reach its end.
        for stale_name in ("journal.jsonl", *DECISIONS):
            (path / stale_name).unlink(missing_ok=True)
        for stale in path.glob(SKILLS):
            stale.unlink()

    def write(self, name: str, text: str) -> None:
        target = self._path / name
        make_folder(target.parent)
        write_text(target, text)
        digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
        with (self._path / "journal.jsonl").open("a", encoding="utf-8") as journal:
            journal.write(json.dumps({"written": name, "sha256": digest}) + "\n")


def roll_out(job: Job, out: Path, *, reading: Callable[[int], None], step: Callable[[str], None]) -> Rollout:
    """Do the job and write its files. `reading` gets bytes of traffic as they are read, `step` each step's name before it starts.

    Raises:
        BadInputError: something that was asked for cannot be.
        NoEvidenceError: acceptance is neither stated, measured nor published for the method.

    """
    found = scenario(job.asked)
    need_seats(job.concurrencies[-1], job.simulation)
    commands = _commands(job, found)
    step("reading traffic and replaying drafts")
    traffic = load_traffic(job.traffic, job.reading, progress=reading)
    measured = _measured(job, out, step)
    if job.launching is not None:
        commands = replace(commands, notes=launch_notes(job.launching, measured, hardware_told=job.hardware_told))
    _need_length(measured, found.speculation.draft_tokens)
    known = _acceptance(job, found, traffic, _accepted_in(measured, out))
    folder = _Folder(out)
    rng = np.random.default_rng(job.simulation.seed)
    if traffic.replayed is not None:
        replayed = replayed_dict(traffic.replayed.groups, confidence=job.policy.confidence, rng=rng)
        folder.write("replay.json", _json("replay", job, traffic, {"notes": list(traffic.notes), **replayed}))
    step("forecasting")
    rows, conditions = _forecast(job, found, traffic, known)
    folder.write("forecast.json", _json("forecast", job, traffic, forecast_dict(rows, conditions) | {"acceptance_label": known.label}))
    comparisons = []
    for concurrency in job.concurrencies:
        pair = next((each for each in measured if each.concurrency == concurrency), None)
        if pair is None:
            step(f"simulating both arms at {concurrency} in flight")
            range_ = model_range(next(row for row in rows if row.concurrency == concurrency))
            arms = _simulated(job, found, traffic, known, concurrency, range_=range_)
        else:
            arms = _described(job, pair, found)
        for run in arms:
            folder.write(f"runs/c{concurrency:04d}-{run.arm.value}.json", run_to_json(run))
        comparisons.append(compared(*arms, policy=job.policy, seed=job.simulation.seed))
    rehearsal = _rehearsal(job, found, known, out, step) if job.rehearse and job.servers is None else None
    step("deciding, planning and writing the report")
    shares = output_shares(comparisons[-1].baseline)  # of the runs and not of the log, so that `plan` makes the same plan of the folder
    circumstances = Circumstances(found, commands, _engine(job, measured), shares, job.requests_per_s)
    compared_all = across_loads(tuple(comparisons))
    plan = planned(circumstances, compared_all, policy=job.policy)
    lossless = losslessness_at_loads(measured, out / "bench", confidence=job.policy.confidence, seed=job.simulation.seed)
    done = Rollout(found, traffic, known, rows, conditions, compared_all, lossless, plan, commands, rehearsal)
    _write_decision(job, done, folder, rng)
    return done


def _need_length(measured: tuple[Measured, ...], draft_tokens: int) -> None:
    """Nothing, where the server drafts at most as many tokens as the rollout is asked for.

    Raises:
        BadInputError: it drafts more; the message says how many.

    """
    for each in measured:
        counts = AcceptanceCounts.pooled((each.speculative.acceptance_by_segment or {}).values())
        length = len(counts.accepted_per_position or ())
        if length > draft_tokens:
            raise BadInputError(
                f"the speculative server drafts {length} tokens, but the rollout is asked for K = {draft_tokens}; give "
                f"--draft-tokens {length} --resume (what was measured is kept)"
            )


def _accepted_in(measured: tuple[Measured, ...], out: Path) -> Path | None:
    """The run file at the highest concurrency that knows what was accepted, None where none does."""
    known = [each.concurrency for each in measured if each.speculative.acceptance_by_segment]
    return out / "bench" / "runs" / f"c{max(known):04d}-speculative.json" if known else None


def _commands(job: Job, found: Scenario) -> Commands:
    """How both arms are started: here, or in production."""
    if job.launching is not None:
        return commands_of(job.launching)
    limits = limits_of(job.simulation.max_requests, job.simulation.token_budget)
    return launch_commands(job.asked, found, job.version, ngram=job.ngram, limits=limits)


def _measured(job: Job, out: Path, step: Callable[[str], None]) -> tuple[Measured, ...]:
    """Both arms of real servers, nothing where none was asked for."""
    if job.servers is None:
        return ()
    if job.launching is None:
        return measured_pairs(job.servers, out / "bench", resume=job.resume, step=step)
    return launched_pairs(job.servers, job.launching, out / "bench", resume=job.resume, step=step)


def _engine(job: Job, measured: tuple[Measured, ...]) -> str:
    return f"vllm {job.version}" if job.launching is None else engine_of(job.launching, measured)


def _described(job: Job, pair: Measured, found: Scenario) -> tuple[Run, Run]:
    """The measured runs, with the target and hardware that the user stated for them."""
    told = {name: each for name, each in described(found).items() if job.hardware_told or name != "hardware"}
    return with_arguments(pair.baseline, told), with_arguments(pair.speculative, told)


def _rehearsal(job: Job, found: Scenario, known: KnownAcceptance, out: Path, step: Callable[[str], None]) -> Measured | None:
    """The load-tester's view of two fake servers, where the traffic has texts to send."""
    try:
        return rehearsed(found, known, job.simulation, job.asking, out / "rehearsal", concurrency=job.concurrencies[-1], step=step)
    except BadInputError as error:
        step(f"not rehearsed: {error}")
        return None


def _acceptance(job: Job, found: Scenario, traffic: Traffic, measured: Path | None) -> KnownAcceptance:
    stated = job.acceptance.typed is not None or job.acceptance.file is not None or job.acceptance.segment_alphas
    return choose(
        job.acceptance if stated or measured is None else replace(job.acceptance, file=measured),
        replayed=traffic.pooled(job.asked.method),
        method=job.asked.method,
        segments=traffic.workload.segments,
        draft_tokens=found.speculation.draft_tokens,
        target=found.target.name,
    )


def _forecast(job: Job, found: Scenario, traffic: Traffic, known: KnownAcceptance) -> tuple[tuple[ForecastRow, ...], tuple[Condition, ...]]:
    """The curve over concurrency, and the list of when not to draft at the production point."""
    load = traffic.workload
    count = len(load.requests)
    lengths = Lengths(
        prompt_tokens=max(1, ceil(load.prompt_tokens / count)),
        output_tokens=max(1, ceil(load.output_tokens / count)),
        context_tokens=max(1, ceil(load.mean_context_tokens)),
    )
    points = sorted({*CURVE, *job.concurrencies})
    rows = forecast(
        target=found.target,
        where=found.where,
        speculation=found.speculation,
        draft=found.draft,
        acceptance=known.blended(load.output_shares()),
        concurrencies=points,
        lengths=lengths,
        draft_lengths=DRAFT_LENGTHS,
        utilisation=found.utilisation,
    )
    pairing = pairing_of(known, job.asked, traffic=traffic.inputs)
    production = rows[points.index(job.concurrencies[-1])]
    return rows, when_not(row=production, lengths=lengths, target=found.target, pairing=pairing)


def _simulated(job: Job, found: Scenario, traffic: Traffic, known: KnownAcceptance, concurrency: int, *, range_: str) -> tuple[Run, Run]:
    load = Load(concurrency=concurrency, rate_per_s=None)
    arms = simulated_arms(found, traffic.workload, known.by_segment, load, job.simulation, own_arrivals=False)
    return labelled(arms, found, known, traffic, range_=range_, slo=None)


def _write_decision(job: Job, done: Rollout, folder: _Folder, rng: np.random.Generator) -> None:
    verdicts, production = done.verdicts, done.decisive
    body = verdict_dict(production.verdict, lesson=production.lesson, by_concurrency=verdicts)
    rests_on = {"acceptance": done.known.evidence.value, "acceptance_label": done.known.label, "arms": done.arms_evidence.value}
    told = {"rests_on": rests_on, "notes": list(done.notes), **answers_dict(done.losslessness, deciding=production.verdict)}
    folder.write("verdict.json", _json("verdict", job, done.traffic, body | told))
    markdown = plan_markdown(done.plan, verdicts)
    folder.write("plan.md", markdown)
    folder.write("plan.json", _json("plan", job, done.traffic, plan_dict(done.plan)))
    if job.launching is not None:
        started = launch_dict(job.launching, (production.baseline, production.speculative))
        folder.write("launch.json", _json("launch", job, done.traffic, started))
    folder.write("manifests/baseline.sh", f"#!/bin/sh\nexec {done.commands.baseline}\n")
    folder.write("manifests/speculative.sh", f"#!/bin/sh\nexec {done.commands.speculative}\n")
    folder.write(
        skill_name(job.asked.method), skill_markdown(_skill_facts(job, done), done.plan, verdicts, production.verdict, files=FILES)
    )
    title = f"{done.scenario.target.name}: {job.asked.method.value}, K = {done.scenario.speculation.draft_tokens}"
    page = report_html(done.comparisons, title=title, policy=job.policy, plan=done.plan, version=paceline.__version__, rng=rng)
    folder.write("report.html", page)


def skill_name(method: Method) -> str:
    """The skill's file: each method's plan is a skill of its own."""
    return SKILLS.replace("*", method.value)


FILES = {
    "report.html": "the page to show: verdict, curves, latencies, provenance",
    "plan.md": "the staged plan; plan.json is the same for scripts",
    "verdict.json": "the verdict at each concurrency with its findings and warnings",
    "runs/": "both arms' runs, which `paceline gate` reads",
    "manifests/": "how both servers are started",
}


def _skill_facts(job: Job, done: Rollout) -> SkillFacts:
    where, load = done.scenario.where, done.traffic.workload
    shares = ", ".join(f"{name} {share:.0%}" for name, share in load.output_shares().items())
    count = len(load.requests)
    traffic = (
        f"{load.source}: {count} requests, {load.prompt_tokens / count:.0f} tokens in and {load.output_tokens / count:.0f} out on average; "
        f"generated tokens by segment: {shares}."
    )
    return SkillFacts(
        method=job.asked.method.value,
        target=done.scenario.target.name,
        hardware=f"{where.gpus} {where.gpu.name}, {where.dtype.value}",
        traffic=traffic,
        concurrency=job.concurrencies[-1],
        command=job.command,
        rests_on=f"acceptance is {done.known.evidence.value} ({done.known.label}); {ARMS_WORDS[done.arms_evidence]}.",
    )


def _json(kind: str, job: Job, traffic: Traffic, body: Mapping[str, Any]) -> str:
    made = {
        "made_by": "paceline rollout",
        "version": paceline.__version__,
        "arguments": dict(job.arguments),
        "inputs": {**config_hashes(job.asked), **traffic.inputs, **job.policy_inputs},
        "seed": job.simulation.seed,
    }
    document = {"schema": f"paceline.{kind}/1", "provenance": made, **body}
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
