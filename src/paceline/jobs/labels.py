"""What a simulated run was given, written into its provenance, so that whoever reads the run reads that too."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from paceline.forecast.speedup import ForecastRow
from paceline.jobs.acceptance import KnownAcceptance
from paceline.jobs.scenario import Scenario
from paceline.jobs.traffic import Traffic
from paceline.run import Run
from paceline.stats.goodput import Slo

__all__ = ["described", "labelled", "model_range", "with_arguments", "without_folders"]


def described(scenario: Scenario) -> dict[str, str]:
    """The target and what it runs on, as provenance states them; two runs that differ in these do not compare."""
    where = scenario.where
    return {"target": scenario.target.name, "hardware": f"{where.gpus} {where.gpu.name}, {where.dtype.value}"}


def model_range(row: ForecastRow) -> str:
    """How far the models themselves may be off at this concurrency, as a sentence's end: a factor on whatever speed-up a verdict states.

    The forecast's speed-up is of decode steps alone, and a verdict's has others' prefills in it: only the error carries over, and a factor
    of decoding is the wider one.
    """
    value, low, high = row.speedup.value, row.speedup.low, row.speedup.high
    assert low is not None
    assert high is not None
    factor = f"{low / value:.2f} to {high / value:.2f}"
    return f"their intervals hold chance only, and the models of cost and acceptance may be off by a factor of {factor}"


def labelled(
    runs: tuple[Run, Run], scenario: Scenario, known: KnownAcceptance, traffic: Traffic, *, range_: str | None, slo: Slo | None
) -> tuple[Run, Run]:
    """Both runs with what they were given: target, hardware, tokens, promised latencies, the inputs' hashes, and in the speculative arm its
    acceptance.
    """
    both = {**described(scenario), "tokens": traffic.tokens}
    if slo is not None:
        both["slo"] = str(slo)
    if range_ is not None:
        both["model_range"] = range_
    speculative = {**both, "acceptance": known.label, "acceptance_evidence": known.evidence.value}
    return _with(runs[0], both, traffic.inputs), _with(runs[1], speculative, traffic.inputs)


def with_arguments(run: Run, arguments: Mapping[str, str]) -> Run:
    """The run with more said of what it was given."""
    made = run.provenance
    return replace(run, provenance=replace(made, arguments={**made.arguments, **arguments}))


def _with(run: Run, arguments: Mapping[str, str], inputs: Mapping[str, str]) -> Run:
    told = with_arguments(run, arguments)
    return replace(told, provenance=replace(told.provenance, inputs=dict(inputs)))


def without_folders(words: Iterable[str]) -> list[str]:
    """Words of a command line, an absolute path in each (also behind an option's equals sign, or in an object) cut to its last name."""
    return [_without_folder(each) for each in words]


def _without_folder(word: str) -> str:
    option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    return f"{option}{equals}{_within_object(value) if value.startswith('{') else _last_name(value)}"


def _within_object(text: str) -> str:
    """A JSON object as an option has it, with its texts cut; the text itself where it is none, or has nothing to cut."""
    try:
        stated = json.loads(text)
    except ValueError:
        return text
    cut = {name: _last_name(each) if isinstance(each, str) else each for name, each in stated.items()}
    return text if cut == stated else json.dumps(cut)


def _last_name(text: str) -> str:
    return Path(text).name if Path(text).is_absolute() else text
