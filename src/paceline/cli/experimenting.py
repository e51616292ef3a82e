"""What the verbs of `experiment` do once they are asked."""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from paceline.cli.options import reading
from paceline.cli.output import answer, progress
from paceline.decide.claims import parse_claim
from paceline.decide.gate import DEFAULT_POLICY, Policy, default_claims, production_verdict
from paceline.errors import BadInputError, NoEvidenceError
from paceline.files.benchfile.speculation_profile import write_speculation_profile
from paceline.files.dump import measure_dumps, read_head
from paceline.files.evidence import read_evidence
from paceline.files.policy import read_policy
from paceline.files.runfile import write_run
from paceline.jobs.diagnosing import losslessness_beside
from paceline.jobs.planning import compared_at_loads, read_pairs
from paceline.jobs.traffic import file_bytes, load_traffic
from paceline.live.scrape import Watch, measure_server
from paceline.report.diagnosis import losslessness_dict, losslessness_text
from paceline.report.evidence import measured_dict, measured_text, replayed_dict, replayed_text
from paceline.report.json_view import verdict_dict
from paceline.report.operations import lesson_verdict_text
from paceline.report.text import verdict_text
from paceline.run import Arm, Run
from paceline.verdict import Decision

__all__ = ["policy_inputs", "policy_of", "run_gate", "run_measure", "run_replay", "stated_policy"]

CONFIDENCE = 0.95
WINDOW_S = 60.0
EVERY_S = 2.0
TIMEOUT_S = 10.0
DRAFTS = {"ngram": "n-gram", "suffix": "suffix"}
POLICY_OPTIONS = {"margin": "margin", "confidence": "confidence", "alpha_floor": "alpha_floor", "felt_ttft": "felt_ttft_s"}
EXIT_CODES = {Decision.SHIP: 0, Decision.SHIP_SEGMENTS: 0, Decision.KEEP: 1, Decision.CANNOT_TELL: 4}


def run_replay(options: argparse.Namespace) -> int:
    """`replay`: acceptance of n-gram or suffix drafts on logged answers, by segment."""
    with progress("replaying", total=file_bytes(options.logs)) as bar:
        traffic = load_traffic(tuple(options.logs), reading(options), progress=bar)
    if traffic.replayed is None:
        raise NoEvidenceError(f"{traffic.why_not}; replay needs logs with answers")
    rng = np.random.default_rng(options.seed)
    body = replayed_dict(traffic.replayed.groups, confidence=CONFIDENCE, rng=rng)
    notes = [*traffic.notes, *traffic.warnings]
    drafts = DRAFTS[options.method]
    text = replayed_text(body, drafts=drafts, exchanges=traffic.replayed.requests, notes=notes)
    answer(options, body={"exchanges": traffic.replayed.requests, **body, "notes": notes}, text=text, inputs=traffic.inputs)
    return 0


def run_measure(options: argparse.Namespace) -> int:
    """`measure`: what a running server, a dump, the difference of two, or a run file says."""
    pair = options.before is not None or options.after is not None
    if [pair, options.file is not None, options.url is not None].count(True) != 1 or (options.before is not None and options.after is None):
        raise BadInputError("give one FILE, --after with --before for a window, or --url of a running server")
    if options.url is None and (options.window is not None or options.every is not None):
        raise BadInputError("--window and --every are for --url; two dumps are their own window")
    arm = None if options.arm is None else Arm(options.arm)
    run = _measured(options.before, options.after or options.file, options.model, arm) if options.url is None else _watched(options)
    if arm is not None and run.arm is not arm:
        raise BadInputError(f"the source itself says that it is the {run.arm.value} arm; leave --arm {options.arm} out")
    if options.out is not None:
        write_run(run, options.out)
    if options.profile_out is not None:
        write_speculation_profile(run, options.profile_out)
    body = measured_dict(run, confidence=CONFIDENCE)
    answer(options, body=body, text=measured_text(run), inputs=run.provenance.inputs)
    return 0


def _measured(before: Path | None, file: Path, model: str | None, arm: Arm | None) -> Run:
    """What a file, or the difference of two dumps, says."""
    if before is None and model is not None and (file.is_dir() or read_head(file).lstrip().startswith("{")):
        raise BadInputError("--model picks one of the models in a /metrics dump, and a run file holds one run; leave it out")
    return read_evidence(file, arm) if before is None and model is None else measure_dumps(before, file, model=model)


def _watched(options: argparse.Namespace) -> Run:
    """What a running server does from now on."""
    watch = Watch(
        url=options.url,
        model=options.model,
        window_s=WINDOW_S if options.window is None else options.window,
        every_s=EVERY_S if options.every is None else options.every,
        timeout_s=TIMEOUT_S,
    )
    with progress("measuring (Ctrl-C ends it early)", total=watch.window_s) as bar:
        return measure_server(watch, progress=bar)


def policy_of(options: argparse.Namespace) -> Policy:
    """The policy that was typed, else what its file says, else the default one; provenance then names what was taken."""
    stated = None if options.policy is None else read_policy(options.policy)
    numbers = {}
    for option, key in POLICY_OPTIONS.items():
        told = getattr(options, option), None if stated is None else getattr(stated, key), getattr(DEFAULT_POLICY, key)
        numbers[key] = next(each for each in told if each is not None)
        setattr(options, option, numbers[key])
    typed = tuple(parse_claim(each) for each in options.claim)
    claims = typed or (stated.claims if stated is not None else ()) or default_claims(numbers["margin"])
    return Policy(claims=claims, slo=None if stated is None else stated.slo, **numbers)


def stated_policy(file: Path | None) -> Policy:
    """The policy that a file states, None the default one."""
    return policy_of(argparse.Namespace(policy=file, claim=[], **dict.fromkeys(POLICY_OPTIONS)))


def policy_inputs(file: Path | None) -> dict[str, str]:
    """The policy file's SHA-256 by its name, empty where there is none."""
    return {} if file is None else {file.name: read_policy(file).sha256}


def run_gate(options: argparse.Namespace) -> int:
    """`gate`: the verdict on two files, and the textbook's beside it; of several loads the largest decides."""
    policy = policy_of(options)
    pairs = read_pairs((options.baseline, options.speculative))
    comparisons = compared_at_loads([(_plain_arm(*pair), pair[1]) for pair in pairs], policy=policy, seed=options.seed)
    verdicts = tuple(each.verdict for each in comparisons)
    decisive = next(each for each in comparisons if each.verdict is production_verdict(verdicts))
    assert decisive.lesson is not None
    body = verdict_dict(decisive.verdict, lesson=decisive.lesson, by_concurrency=verdicts if len(verdicts) > 1 else ())
    said = None
    if len(pairs) == 1:
        said = losslessness_beside((options.baseline, options.speculative), pairs[0], confidence=options.confidence, seed=options.seed)
    inputs = {name: sha for pair in pairs for run in pair for name, sha in run.provenance.inputs.items()} | policy_inputs(options.policy)
    texts = [*(verdict_text(each) for each in verdicts), lesson_verdict_text(decisive.lesson)]
    texts += [] if said is None else [losslessness_text(said)]
    answer(options, body=body | {"losslessness": losslessness_dict(said)}, text="\n".join(texts), inputs=inputs)
    return EXIT_CODES[decisive.verdict.decision]


def _plain_arm(baseline: Run, speculative: Run) -> Run:
    """A server whose /metrics export speculation's series and that drafted nothing is the plain arm, if it is given as such."""
    if speculative.arm is Arm.SPECULATIVE and baseline.arm is Arm.SPECULATIVE and _drafted_nothing(baseline):
        return replace(baseline, arm=Arm.BASELINE)
    return baseline


def _drafted_nothing(run: Run) -> bool:
    """Whether a server's own counters say that it drafted nothing; a run that leaves acceptance out says nothing of the kind."""
    drafted = run.summaries.get("drafted_tokens")
    said = (drafted is not None and drafted.value == 0) or any(each.code == "nothing_drafted" for each in run.cautions)
    return said and run.provenance.made_by.endswith("/metrics") and run.acceptance_by_segment is None
