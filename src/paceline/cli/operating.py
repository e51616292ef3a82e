"""What the verbs of `operate` do once they are asked."""

import argparse
import json
import sys

from paceline.cli.acceptance_options import asked_acceptance
from paceline.cli.experimenting import EXIT_CODES, policy_inputs, policy_of
from paceline.cli.launch_options import END_S, launch_program
from paceline.cli.options import reading, scenario_asked
from paceline.cli.output import answer, arguments, envelope, progress, say
from paceline.cli.predicting import simulation_plan
from paceline.errors import BadInputError
from paceline.files.whole import make_folder, write_text
from paceline.jobs.arm_commands import Launching
from paceline.jobs.asking import Asking
from paceline.jobs.bench_asked import BenchAsked
from paceline.jobs.labels import described, without_folders
from paceline.jobs.launch import checkpoints, launch_commands, replica_arguments
from paceline.jobs.planning import Circumstances, as_measured, compared_at_loads, need_same, need_told, output_shares, planned, read_pairs
from paceline.jobs.rollout import Job, roll_out, skill_name
from paceline.jobs.scenario import Asked, config_hashes, own_tokenizer, scenario
from paceline.jobs.simulation import limits_of
from paceline.jobs.traffic import file_bytes
from paceline.live.openai import is_same_server
from paceline.report.json_view import plan_dict, verdict_dict
from paceline.report.operations import answers_dict, rehearsal_text, rollout_text
from paceline.report.text import plan_markdown
from paceline.run import Arm
from paceline.servers.vllm.versions import Version, vllm_version
from paceline.speculation.method import Speculation

__all__ = ["run_plan", "run_rollout"]

FIRST_BYTE_S, GAP_S = 300.0, 60.0


def job_of(options: argparse.Namespace) -> Job:
    """The job that was typed.

    Raises:
        BadInputError: what was typed does not go together.

    """
    if options.tokenizer is None:
        options.tokenizer = own_tokenizer(options.target)  # so that provenance states it
    version = vllm_version(options.engine_version)
    launching = _launching(options, version)
    if launching is not None:
        _state_engine(options)
    return Job(
        traffic=tuple(options.traffic),
        asked=scenario_asked(options),
        acceptance=asked_acceptance(options),
        reading=reading(options),
        simulation=simulation_plan(options),
        policy=policy_of(options),
        policy_inputs=policy_inputs(options.policy),
        concurrencies=options.concurrency,
        requests_per_s=options.requests_per_s,
        version=version,
        ngram=(options.ngram_min, options.ngram_max),
        servers=_servers(options),
        launching=launching,
        hardware_told=options.launch is None or "gpu" in options.given,
        resume=options.resume,
        rehearse=not options.no_rehearsal,
        arguments=arguments(options),
        command=("paceline", *without_folders(sys.argv[1:])),
    )


def _servers(options: argparse.Namespace) -> BenchAsked | None:
    """What is measured on servers, the user's own or those that are started here; None where there are none.

    Raises:
        BadInputError: only one was.

    """
    urls = {} if options.launch is not None else {Arm.BASELINE: options.baseline, Arm.SPECULATIVE: options.speculative}
    if options.launch is None and not any(urls.values()):
        return None
    if options.launch is None and (not all(urls.values()) or is_same_server(options.baseline, options.speculative)):
        raise BadInputError(
            "a rollout measures two servers, --baseline URL and --speculative URL; with one GPU run `bench` twice, then `plan`"
        )
    untold = [name for name in ("target", "method") if name not in options.given]
    if untold:
        raise BadInputError(f"servers are measured, so say what they run: --{' and --'.join(untold)}")
    asked = scenario_asked(options)
    return BenchAsked(
        urls=urls,
        model=options.model,
        asking=Asking(
            paths=tuple(options.traffic),
            segment_rule=options.segment_rule,
            segment_field=options.segment_field,
            requests=options.measured_requests,
            spare=0,
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            ignore_eos=False,
            api="chat",
            seed=options.seed,
        ),
        concurrencies=options.concurrency,
        open_load=None,
        pairs=None,
        noise_floor=(options.noise_floor or None) if options.temperature == 0 else None,
        stop_when=None,
        first_byte_s=FIRST_BYTE_S,
        gap_s=GAP_S,
        speculation=Speculation(method=asked.method, draft_tokens=asked.draft_tokens, tree=asked.tree),
        tokenizer=options.tokenizer,
    )


def _state_engine(options: argparse.Namespace) -> None:
    """Let the files state the engine that is started, not the default of those that are not.

    Raises:
        BadInputError: another one was typed, or a version of an engine whose options do not differ by it.

    """
    if "engine" in options.given and options.engine != options.launch:
        raise BadInputError(f"--engine {options.engine} and --launch {options.launch} are two engines; leave --engine out")
    options.engine = options.launch
    if options.launch != "vllm":
        if "engine_version" in options.given:
            raise BadInputError(f"--engine-version does nothing with --launch {options.launch}, which tells its own; leave it out")
        options.engine_version = None


def _launching(options: argparse.Namespace, version: Version) -> Launching | None:
    """How the servers are started, None where they are not.

    Raises:
        BadInputError: llama-server without a GGUF file, or an argument that is set here.

    """
    if options.launch is None:
        return None
    asked = scenario_asked(options)
    found = scenario(asked)
    target, draft, _ = checkpoints(asked)
    program = launch_program(options)
    if options.launch == "llamacpp" and options.launch_model is None:
        raise BadInputError("llama-server loads a GGUF file; give --launch-model FILE")
    return Launching(
        engine=options.launch,
        program=program,
        model=options.launch_model or target,
        name=found.target.name,
        method=asked.method,
        draft=options.launch_draft or draft,
        draft_tokens=found.speculation.draft_tokens,
        ngram=(options.ngram_min, options.ngram_max),
        gpus=found.where.gpus,
        version=version,
        extra=(*_replica_arguments(options, asked), *options.launch_arg),
        synthetic_length=None,
        ready_s=options.launch_timeout,
        end_s=END_S,
    )


def _replica_arguments(options: argparse.Namespace, asked: Asked) -> tuple[str, ...]:
    """What both arms are started with, so that they run what was analysed; for engines other than vLLM only what was typed."""
    if options.launch == "vllm":
        return replica_arguments(asked, limits_of(options.max_requests, options.token_budget))
    if "max_requests" not in options.given:
        return ()
    return ({"llamacpp": "--parallel", "sglang": "--max-running-requests"}[options.launch], str(options.max_requests))


def run_rollout(options: argparse.Namespace) -> int:
    """`rollout`: the whole job; its files are the result, the verdict is printed."""
    job = job_of(options)
    with progress("reading traffic", total=file_bytes(options.traffic)) as bar:
        done = roll_out(job, options.out, reading=bar, step=say)
    body = verdict_dict(done.verdict, lesson=done.decisive.lesson, by_concurrency=done.verdicts)
    text = rollout_text(
        done.comparisons,
        done.losslessness,
        label=done.known.label,
        notes=done.notes,
        out=str(options.out),
        skill=skill_name(options.method),
    )
    if done.rehearsal is not None:
        text = f"{text}\n{rehearsal_text(done.rehearsal.baseline, done.rehearsal.speculative)}"
    rests_on = {"acceptance": done.known.evidence.value, "acceptance_label": done.known.label, "notes": list(done.notes)}
    answers = answers_dict(done.losslessness, deciding=done.verdict)
    answer(
        options,
        body=body | rests_on | answers,
        text=text,
        inputs={**config_hashes(job.asked), **done.traffic.inputs, **job.policy_inputs},
    )
    return EXIT_CODES[done.verdict.decision] if options.exit_verdict else 0


def run_plan(options: argparse.Namespace) -> int:
    """`plan`: verdicts from run files, and the stages that follow."""
    asked, policy, version = scenario_asked(options), policy_of(options), vllm_version(options.engine_version)
    found = scenario(asked)
    commands = launch_commands(
        asked, found, version, ngram=(options.ngram_min, options.ngram_max), limits=limits_of(options.max_requests, options.token_budget)
    )
    pairs = read_pairs(tuple(options.evidence))
    need_told(pairs, options.given)
    need_same(pairs, described(found), found.speculation)
    comparisons = compared_at_loads(pairs, policy=policy, seed=options.seed)
    where = Circumstances(found, commands, f"vllm {version}", output_shares(pairs[-1][0]), options.requests_per_s)
    if not options.given & {"engine", "engine_version"}:
        where = as_measured(where, *pairs[-1])
    plan = planned(where, comparisons, policy=policy)
    text = plan_markdown(plan, tuple(each.verdict for each in comparisons))
    inputs = (
        config_hashes(asked)
        | {name: sha for pair in pairs for run in pair for name, sha in run.provenance.inputs.items()}
        | policy_inputs(options.policy)
    )
    if options.out is not None:
        make_folder(options.out)
        document = json.dumps(envelope(options, plan_dict(plan), inputs=inputs), indent=2, ensure_ascii=False, allow_nan=False)
        write_text(options.out / "plan.md", text)
        write_text(options.out / "plan.json", document + "\n")
    answer(options, body=plan_dict(plan), text=text, inputs=inputs)
    return 0
