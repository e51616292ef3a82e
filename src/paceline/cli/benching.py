"""What `bench` does once it is asked."""

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from paceline.cli.output import Progress, answer, arguments, progress, say
from paceline.cli.synthesising import run_synthetic
from paceline.decide.losslessness import Answers, Losslessness
from paceline.errors import BadInputError, NoEvidenceError, printable
from paceline.files.answers import REPEAT
from paceline.files.benchfolder import BenchFolder
from paceline.jobs.asking import Asking
from paceline.jobs.bench import Bench, measure_servers
from paceline.jobs.bench_asked import BenchAsked, OpenLoad, prepared
from paceline.jobs.diagnosing import losslessness_of
from paceline.live.openai import is_same_server
from paceline.report.benches import bench_dict, bench_text, saturated
from paceline.report.diagnosis import losslessness_dict, losslessness_text
from paceline.run import Arm, Run
from paceline.speculation.method import Speculation

__all__ = ["run_bench", "watching"]

CONFIDENCE = 0.95
INTERRUPTED = 130
NOT_IN_PLAN = frozenset({"baseline", "speculative", "resume", "model"})


def run_bench(options: argparse.Namespace) -> int:
    """`bench`: measure, keep, and say what was measured. Exit code 4 where the client itself is a visible share of the effect."""
    if options.synthetic_acceptance is not None:
        _need_sense_of_launch(options)
        return run_synthetic(options, _asked(options))
    _need_sense(options)
    with progress("reading traffic", total=None) as bar:
        bench = prepared(_asked(options), progress=bar)
    folder = BenchFolder(options.out)
    plan = {name: value for name, value in arguments(options).items() if name not in NOT_IN_PLAN} | {
        "inputs": dict(bench.to_ask.inputs),
        "seed": options.seed,
    }
    try:
        folder.open(plan, arms=tuple(bench.servers), resume=options.resume)
        with watching(bench) as watcher:
            whole = measure_servers(bench, folder, watcher)
    finally:
        folder.close()
    made = {load.name: {arm: run for arm in Arm if (run := folder.joined(load.name, arm)) is not None} for load in bench.loads}
    said = {name: _losslessness(options, folder, name, arms) for name, arms in made.items()}
    return _tell(options, made, said, whole=whole, inputs=bench.to_ask.inputs)


def _need_sense(options: argparse.Namespace) -> None:
    """Nothing, where the options go together.

    Raises:
        BadInputError: naming those that do not.

    """
    if options.baseline is None and options.speculative is None:
        raise BadInputError("give --baseline URL, --speculative URL, or both")
    if options.baseline is not None and options.speculative is not None and is_same_server(options.baseline, options.speculative):
        raise BadInputError(
            f"both arms are {printable(options.baseline)}: one server does not run with and without drafts; start two, or one at a time"
        )
    _need_one_load(options)
    if options.noise_floor is not None and (options.noise_floor == 0 or options.temperature > 0):
        raise BadInputError(
            "--noise-floor is a share above 0 of greedy requests; drawn answers differ anyway: leave it out, or --temperature"
        )
    if options.pairs is not None and (options.baseline is None or options.speculative is None):
        raise BadInputError("--pairs are blocks of two arms that take turns; give both --baseline and --speculative")


def _need_sense_of_launch(options: argparse.Namespace) -> None:
    """Nothing, where the options go together for servers that are started here.

    Raises:
        BadInputError: naming those that do not.

    """
    if options.launch is None:
        raise BadInputError("--synthetic-acceptance is for servers that are told what to accept, so they are started here; give --launch")
    _need_one_load(options)


def _need_one_load(options: argparse.Namespace) -> None:
    """Nothing, where one load is asked for, and a method with its draft length or neither.

    Raises:
        BadInputError: naming the options that do not go together.

    """
    loads = [name for name in ("concurrency", "rate", "trace") if getattr(options, name) is not None]
    if len(loads) > 1:
        raise BadInputError(f"--{' and --'.join(loads)}: give one load")
    if options.burstiness != 1 and options.rate is None:
        raise BadInputError("--burstiness shapes arrivals at a rate; give --rate too")
    if options.time_scale != 1 and options.trace is None:
        raise BadInputError("--time-scale speeds a trace's own times up; give --trace too")
    if (options.method is None) != (options.draft_tokens is None):
        raise BadInputError("--method and --draft-tokens say together how the speculative server drafts; give both or neither")


def _asked(options: argparse.Namespace) -> BenchAsked:
    is_open = options.rate is not None or options.trace is not None
    urls = {Arm.BASELINE: options.baseline, Arm.SPECULATIVE: options.speculative}
    return BenchAsked(
        urls={arm: url for arm, url in urls.items() if url is not None},
        model=options.model,
        asking=Asking(
            paths=tuple(options.traffic),
            segment_rule=options.segment_rule,
            segment_field=options.segment_field,
            requests=options.requests,
            spare=0,
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            ignore_eos=options.ignore_eos,
            api=options.api,
            seed=options.seed,
        ),
        concurrencies=() if is_open else options.concurrency or (8,),
        open_load=OpenLoad(options.rate, options.burstiness, options.trace, options.time_scale) if is_open else None,
        pairs=options.pairs,
        noise_floor=options.noise_floor,
        first_byte_s=options.first_byte_timeout,
        gap_s=options.gap_timeout,
        speculation=None if options.method is None else Speculation(method=options.method, draft_tokens=options.draft_tokens, tree=None),
        tokenizer=options.tokenizer,
    )


@dataclass(frozen=True, slots=True)
class _Told:
    """A person told how far it is."""

    bar: Progress

    def step(self, text: str) -> None:
        """Something begins."""
        say(text)

    def answered(self) -> None:
        """A request ended."""
        self.bar(1)


@contextmanager
def watching(bench: Bench) -> Iterator[_Told]:
    """A bar over all requests."""
    arms = len(bench.servers)
    total = sum(arms * (len(bench.to_ask.counted) + 2 * each.edge * bench.pairs[each.name]) for each in bench.loads)
    total += (
        sum(ceil(bench.noise_floor * len(bench.to_ask.counted)) for _ in bench.loads)
        if bench.noise_floor and Arm.BASELINE in bench.servers
        else 0
    )
    with progress("measuring", total=total) as bar:
        yield _Told(bar)


def _losslessness(options: argparse.Namespace, folder: BenchFolder, load: str, arms: Mapping[Arm, Run]) -> Losslessness | None:
    """What the answers at one load say, None without both arms."""
    if len(arms) < 2:
        return None
    answers = Answers(*(folder.answers(load, each) for each in (*(arm.value for arm in Arm), REPEAT)))
    runs = (arms[Arm.BASELINE], arms[Arm.SPECULATIVE])
    return losslessness_of(answers, runs, options.tokenizer, confidence=CONFIDENCE, seed=options.seed)


def _tell(
    options: argparse.Namespace,
    made: Mapping[str, Mapping[Arm, Run]],
    said: Mapping[str, Losslessness | None],
    *,
    whole: bool,
    inputs: Mapping[str, str],
) -> int:
    """Print what is there; the exit code."""
    if not any(made.values()):
        raise NoEvidenceError("stopped before a request was finished: nothing was measured")
    rng = np.random.default_rng(options.seed)
    bodies: dict[str, dict[str, Any]] = {
        name: bench_dict(arms.get(Arm.BASELINE), arms.get(Arm.SPECULATIVE), confidence=CONFIDENCE, rng=rng)
        | {"losslessness": losslessness_dict(said[name])}
        for name, arms in made.items()
        if arms
    }
    last = bodies[list(bodies)[-1]]
    body = {**last, "by_load": bodies, "complete": whole}
    texts = [
        f"{name}:\n\n{bench_text(made[name].get(Arm.BASELINE), made[name].get(Arm.SPECULATIVE), each)}" for name, each in bodies.items()
    ]
    texts += [f"{name}: {losslessness_text(each)}" for name, each in said.items() if each is not None]
    end = f"run files: {printable(str(options.out / 'runs'))}"
    if not whole:
        end = f"stopped: what was finished is above and kept; go on with --resume\n{end}"
    answer(options, body=body, text="\n\n".join([*texts, end]), inputs=inputs)
    if not whole:
        return INTERRUPTED
    return NoEvidenceError.exit_code if any(saturated(each) for each in bodies.values()) else 0
