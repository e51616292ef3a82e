"""What a simulated run was given, written into its provenance, so that whoever reads the run reads that too."""

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
    """How far the model itself may be off at this concurrency, as a sentence's end: a factor on whatever speed-up a verdict states.

    The forecast's speed-up is of decode steps alone, and a verdict's has others' prefills in it: only the error carries over, and a factor
    of decoding is the wider one.
    """
    value, low, high = row.speedup.value, row.speedup.low, row.speedup.high
    assert low is not None
    assert high is not None
    return f"their intervals hold chance only, and the cost model itself may be off by a factor of {low / value:.2f} to {high / value:.2f}"


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
    """Words of a command line, an absolute path in each (also behind an option's equals sign) cut to its last name."""
    return [_without_folder(each) for each in words]


def _without_folder(word: str) -> str:
    option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    return f"{option}{equals}{Path(value).name if Path(value).is_absolute() else value}"
