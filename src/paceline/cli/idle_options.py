"""Refuses options that would do nothing: what was typed and has no effect is taken for what the answer rests on.

Only what stands on the command line is looked at; a default is not asked for. What depends on a file's content is judged where it is read.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from paceline.cli.launch_options import LAUNCH_OPTIONS
from paceline.errors import BadInputError
from paceline.speculation.method import Method

__all__ = ["METHODS_OF", "given_options", "refuse_idle"]

HEADS = frozenset({Method.EAGLE, Method.EAGLE2, Method.EAGLE3, Method.MTP})
DRAFT_MODEL = frozenset({Method.DRAFT_MODEL})
EVERY_STEP = HEADS | DRAFT_MODEL
METHODS_OF: Mapping[str, frozenset[Method]] = MappingProxyType(
    {
        "suffix_depth": frozenset({Method.SUFFIX}),
        "suffix_cached_requests": frozenset({Method.SUFFIX}),
        "suffix_factor": frozenset({Method.SUFFIX}),
        "suffix_least_probability": frozenset({Method.SUFFIX}),
        "ngram_min": frozenset({Method.NGRAM}),
        "ngram_max": frozenset({Method.NGRAM}),
        "draft": EVERY_STEP - {Method.MTP},
        "draft_vocab": frozenset({Method.EAGLE3}),
        "draft_context": EVERY_STEP,
        "draft_temperature": EVERY_STEP - {Method.MTP},
        "tree": EVERY_STEP - {Method.MTP},
        "rank_acceptance": EVERY_STEP - {Method.MTP},
    }
)
PREDICTING = frozenset({"forecast", "simulate", "sweep"})  # they price a head from its target, but for what an EAGLE-3 head states
ONLY_MEASURED = ("resume", "model", "measured_requests", "max_tokens", "temperature", "noise_floor")
ONLY_SIMULATED = ("requests", "spread", "rejection", "token_budget")
STATES_ACCEPTANCE = ("alpha", "conditional", "survival", "acceptance_length", "rank_acceptance", "acceptance_from", "segment_alpha")
ONLY_DRAFTING = (*STATES_ACCEPTANCE, "segments", "draft_tokens", "spread", "rejection", "persistence", "draft_tokens_by_batch", "adaptive")
OF_MODELS = ("target", "draft_temperature", "states", "logged_answers", "max_tokens")
DRAWS = ("spread", "rejection")
DEMO = "demo"


def given_options(options: argparse.Namespace, words: Sequence[str]) -> frozenset[str]:
    """The destinations of the options that stand among `words`."""
    stems = {word.partition("=")[0] for word in words}
    return frozenset(dest for dest in vars(options) if _shown(dest) in stems)


def refuse_idle(options: argparse.Namespace, given: frozenset[str]) -> None:
    """Nothing, where everything that was typed is used.

    Raises:
        BadInputError: an option without effect beside the others; the message says which and what to do.

    """
    if "method" in options:
        _refuse_of_other_methods(options, given)
    for dest, idle, why in _conditions(options):
        if dest in given and idle:
            raise BadInputError(f"{_shown(dest)} {why}")


def _refuse_of_other_methods(options: argparse.Namespace, given: frozenset[str]) -> None:
    for dest, methods in METHODS_OF.items():
        if options.verb in PREDICTING and dest == "draft":
            methods &= DRAFT_MODEL | {Method.EAGLE3}
        if dest in given and options.method not in methods:
            named = " or ".join(sorted(each.value for each in methods))
            raise BadInputError(f"{_shown(dest)} does nothing with --method {options.method!s}; leave it out, or draft with {named}")


def _conditions(options: argparse.Namespace) -> list[tuple[str, bool, str]]:
    """Options that depend on another one: whether they are idle, and what to say."""
    found = _of_unread_heads(options) if options.verb in PREDICTING else []
    if options.verb == "sweep":
        found += [(dest, not options.simulate, "shapes what is simulated; give --simulate too") for dest in ONLY_SIMULATED]
        found.append(
            ("assume_output_tokens", True, "is for logs without answers, and a sweep reads none; leave it out, see --output-tokens")
        )
    if options.verb == "simulate":
        found += [
            ("burstiness", options.rate is None, "shapes arrivals at a rate; give --rate too"),
            ("time_scale", not options.own_times, "speeds a trace's own times up; give --own-times too"),
            ("requests", options.own_times, "does nothing with --own-times, which sends the trace as it is; leave it out"),
        ]
    if options.verb == "rollout":
        idle = options.baseline is None and options.launch is None
        found = [(dest, idle, "is for measured servers; give --baseline and --speculative, or --launch, too") for dest in ONLY_MEASURED]
        drawn = "tells how often greedy answers differ, and drawn ones do anyway; leave it or --temperature out"
        found.append(("noise_floor", options.temperature > 0, drawn))
        found += _of_launched_servers(options)
        found += _of_measured_servers(options)
    if options.verb == "memory":
        head = options.method in HEADS and (options.draft is None or not Path(options.draft).is_dir())
        found = [
            ("draft", head, "is no folder, and a head without its files is counted from its target; give the folder of its safetensors")
        ]
    if options.verb == "bench":
        found = _of_synthetic_servers(options)
    if options.verb == "replay":
        looks_up = options.method not in EVERY_STEP
        found = [(dest, looks_up, "is for drafts of a model; leave it out, or give --method eagle3") for dest in OF_MODELS]
        found.append(("tokenizer", not looks_up, "does nothing where a model drafts: the target's folder has its own; leave it out"))
    if options.verb == "generate":
        found = [
            ("draft_tokens", options.method == "none", "does nothing with --method none, which drafts nothing; leave it out"),
            ("tree", options.method not in HEADS, f"does nothing with --method {options.method!s}, which drafts a chain; leave it out"),
            (
                "draft_temperature",
                options.tree is not None,
                "does nothing with --tree, whose tokens are named; leave it out",
            ),
            ("threads", not options.device.startswith("cpu"), "is for a CPU; leave it out, or give --device cpu"),
        ]
    if options.verb == "fake-server":
        found = [
            (dest, options.method == "none", "does nothing with --method none, which drafts nothing; leave it out")
            for dest in ONLY_DRAFTING
        ]
    if _logs(options) == [DEMO]:
        found += [(dest, True, "is for your own logs; the demo traffic has its segments") for dest in ("segment_field", "segment_rule")]
    shape = getattr(options, "tree", None)
    if shape is not None:
        depth = f"{options.draft_tokens} is not the depth {shape.depth} of --tree, which is what is drafted; leave it out"
        found.append(("draft_tokens", options.draft_tokens != shape.depth, depth))
    return found


def _of_unread_heads(options: argparse.Namespace) -> list[tuple[str, bool, str]]:
    """A head that is only named: without its files nothing of it is known."""
    from paceline.jobs.scenario import on_disk

    named = options.method in HEADS and options.draft is not None and on_disk(options.draft) is None
    return [("draft", named, "is no folder, and a head without its files is counted from its target; give the folder of its config.json")]


def _of_measured_servers(options: argparse.Namespace) -> list[tuple[str, bool, str]]:
    """What a rollout has no use for where it measures servers: rehearsals, and what shapes a simulation."""
    measured = options.baseline is not None or options.launch is not None
    found = [(dest, measured, "does nothing where servers are measured; leave it out") for dest in ("no_rehearsal", *DRAWS)]
    found.append(("requests", measured, "is of a simulation; --measured-requests says how many are sent to each server"))
    # No profile of suffix decoding is published, so a forecast may need it where the servers export no counts.
    known = measured and options.method is not Method.SUFFIX
    return found + [(dest, known, "states what is measured; leave it out") for dest in STATES_ACCEPTANCE]


def _of_launched_servers(options: argparse.Namespace) -> list[tuple[str, bool, str]]:
    """What is for servers that are started here, and what is not."""
    found = [(dest, options.launch is None, "is for servers that are started here; give --launch too") for dest in LAUNCH_OPTIONS]
    theirs = ("baseline", "speculative", "model")
    return found + [(dest, options.launch is not None, "is for servers that run already; leave it or --launch out") for dest in theirs]


def _of_synthetic_servers(options: argparse.Namespace) -> list[tuple[str, bool, str]]:
    """What a load-test has no use for unless it starts its servers, and what it has none for then."""
    synthetic = options.synthetic_acceptance is not None
    found = [
        (dest, not synthetic, "is for servers that are started here and told what to accept; give --synthetic-acceptance too")
        for dest in ("launch", *LAUNCH_OPTIONS, "gpus", "engine_version")
    ]
    theirs = ("baseline", "speculative", "pairs", "noise_floor")
    return found + [(dest, synthetic, "does nothing with --synthetic-acceptance; leave it out") for dest in theirs]


def _logs(options: argparse.Namespace) -> list[str]:
    """The traffic that is read, however the verb calls it."""
    logs = getattr(options, "traffic", getattr(options, "logs", []))
    return [logs] if isinstance(logs, str) else list(logs)


def _shown(dest: str) -> str:
    return f"--{dest.replace('_', '-')}"
