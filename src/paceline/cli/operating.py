"""What the verbs of `operate` do once they are asked."""

import argparse
import json
import sys
from pathlib import Path

from paceline.cli.experimenting import EXIT_CODES, policy_inputs, policy_of
from paceline.cli.options import asked_acceptance, reading, scenario_asked
from paceline.cli.output import answer, arguments, envelope, progress, say
from paceline.cli.predicting import simulation_plan
from paceline.errors import BadInputError
from paceline.files.whole import make_folder, write_text
from paceline.jobs.asking import Asking
from paceline.jobs.bench_asked import BenchAsked
from paceline.jobs.labels import described
from paceline.jobs.launch import launch_commands
from paceline.jobs.planning import Circumstances, compared, need_same, need_told, output_shares, planned, read_pairs
from paceline.jobs.rollout import Job, roll_out, skill_name
from paceline.jobs.scenario import config_hashes, scenario
from paceline.jobs.simulation import limits_of
from paceline.jobs.traffic import file_bytes
from paceline.live.openai import is_same_server
from paceline.report.json_view import plan_dict, verdict_dict
from paceline.report.operations import rehearsal_text, rollout_text
from paceline.report.text import plan_markdown
from paceline.run import Arm
from paceline.servers.vllm.versions import vllm_version
from paceline.speculation.method import Speculation

__all__ = ["run_plan", "run_rollout"]

FIRST_BYTE_S, GAP_S = 300.0, 60.0


def job_of(options: argparse.Namespace) -> Job:
    """The job that was typed."""
    return Job(
        traffic=tuple(options.traffic),
        asked=scenario_asked(options),
        acceptance=asked_acceptance(options),
        reading=reading(options),
        simulation=simulation_plan(options),
        policy=policy_of(options),
        concurrencies=options.concurrency,
        requests_per_s=options.requests_per_s,
        version=vllm_version(options.engine_version),
        ngram=(options.ngram_min, options.ngram_max),
        servers=_servers(options),
        resume=options.resume,
        rehearse=not options.no_rehearsal,
        arguments=arguments(options),
        command=("paceline", *(_without_folder(each) for each in sys.argv[1:])),
    )


def _servers(options: argparse.Namespace) -> BenchAsked | None:
    """The user's own servers, None where none was named.

    Raises:
        BadInputError: only one was.

    """
    urls = {Arm.BASELINE: options.baseline, Arm.SPECULATIVE: options.speculative}
    if not any(urls.values()):
        return None
    if not all(urls.values()) or is_same_server(options.baseline, options.speculative):
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
        noise_floor=None,
        first_byte_s=FIRST_BYTE_S,
        gap_s=GAP_S,
        speculation=Speculation(method=asked.method, draft_tokens=asked.draft_tokens, tree=asked.tree),
        tokenizer=options.tokenizer,
    )


def _without_folder(word: str) -> str:
    """A word of the command line, an absolute path in it (also behind an option's equals sign) cut to its last name."""
    option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    return f"{option}{equals}{Path(value).name if Path(value).is_absolute() else value}"


def run_rollout(options: argparse.Namespace) -> int:
    """`rollout`: the whole job; its files are the result, the verdict is printed."""
    job = job_of(options)
    with progress("reading traffic", total=file_bytes(options.traffic)) as bar:
        done = roll_out(job, options.out, reading=bar, step=say)
    body = verdict_dict(done.verdict, lesson=done.decisive.lesson, by_concurrency=done.verdicts)
    text = rollout_text(done.comparisons, label=done.known.label, notes=done.notes, out=str(options.out), skill=skill_name(options.method))
    if done.rehearsal is not None:
        text = f"{text}\n{rehearsal_text(done.rehearsal.baseline, done.rehearsal.speculative)}"
    rests_on = {"acceptance": done.known.evidence.value, "acceptance_label": done.known.label, "notes": list(done.notes)}
    answer(
        options,
        body=body | rests_on,
        text=text,
        inputs={**config_hashes(job.asked), **done.traffic.inputs, **policy_inputs(options)},
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
    comparisons = tuple(compared(*pair, policy=policy, seed=options.seed) for pair in pairs)
    where = Circumstances(found, commands, version, output_shares(pairs[-1][0]), options.requests_per_s)
    plan = planned(where, comparisons, policy=policy)
    text = plan_markdown(plan, tuple(each.verdict for each in comparisons))
    inputs = (
        config_hashes(asked)
        | {name: sha for pair in pairs for run in pair for name, sha in run.provenance.inputs.items()}
        | policy_inputs(options)
    )
    if options.out is not None:
        make_folder(options.out)
        document = json.dumps(envelope(options, plan_dict(plan), inputs=inputs), indent=2, ensure_ascii=False, allow_nan=False)
        write_text(options.out / "plan.md", text)
        write_text(options.out / "plan.json", document + "\n")
    answer(options, body=plan_dict(plan), text=text, inputs=inputs)
    return 0
