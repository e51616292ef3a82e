"""Calibrates a scenario: from a file of points, from run files, or with the triple of an engine family."""

from collections.abc import Sequence
from pathlib import Path

from paceline.data.tables import table
from paceline.errors import BadInputError, printable
from paceline.files.calibration import CalibrationPoint, read_calibration
from paceline.forecast.calibrate import Calibration, Observation, Prior, Setting, calibrate, priced
from paceline.forecast.engine_cost import EngineCost, engine_of_family, uncalibrated
from paceline.jobs.labels import described
from paceline.jobs.scenario import Scenario
from paceline.speculation.method import Speculation

__all__ = ["calibrated", "family_calibration"]

MOST_REQUESTS = 4096
MOST_DRAFT_TOKENS = 64
LEAST_POINTS = 2
OWN_SERVER_SPREAD = 0.03  # of ln seconds between two short runs of one server
WIDE = 1.5  # standard deviation of the prior's logarithms: own measurements decide


def family_calibration(name: str) -> Calibration:
    """The triple of an engine family, with the error and the reach of the published points behind it.

    Raises:
        UnknownNameError: no such family.

    """
    engine = engine_of_family(name)
    row = next(each for each in table("calibrations")["family"] if each["engine"] == name)
    return Calibration(
        engine=engine,
        error=row["error"],
        n=row["n"],
        requests=(row["requests"][0], row["requests"][1]),
        draft_tokens=(row["draft_tokens"][0], row["draft_tokens"][1]),
    )


def calibrated(files: Sequence[Path], asked: Scenario, *, context_tokens: int, engine: str | None) -> Calibration:
    """The calibration that the points of `files` give for `asked`, starting from the family `engine` or the packaged coefficients.

    Raises:
        BadInputError: fewer than two points, or one that is out of range.
        UnknownNameError: no such family, or a column that means nothing.

    """
    points = [point for file in files for point in read_calibration(file)]
    if len(points) < LEAST_POINTS:
        raise BadInputError(f"{len(points)} calibration point is too few for overhead, draft cost and efficiency; give two or more")
    start: EngineCost = uncalibrated(asked.where.gpus) if engine is None else engine_of_family(engine)
    seen = [_observation(point, asked, context_tokens) for point in points]
    return calibrate(seen, prior=Prior(start, WIDE, WIDE, WIDE), spread=OWN_SERVER_SPREAD, prefill_slowdown=0.0)


def _observation(point: CalibrationPoint, asked: Scenario, context_tokens: int) -> Observation:
    for key, wanted in described(asked).items():
        if point.measured_on.get(key, wanted) != wanted:
            found = printable(point.measured_on[key])
            raise BadInputError(
                f"a calibration run's {key} is {found}, not {printable(wanted)}; calibrate on the target and hardware asked for"
            )
    draft_tokens = asked.speculation.draft_tokens if point.draft_tokens is None else point.draft_tokens
    if point.concurrency > MOST_REQUESTS or draft_tokens > MOST_DRAFT_TOKENS:
        raise BadInputError(f"a calibration point of {point.concurrency} requests and {draft_tokens} drafts is larger than what is priced")
    tree = asked.speculation.tree if draft_tokens == asked.speculation.draft_tokens else None
    setting = Setting(
        target=asked.target,
        where=asked.where,
        speculation=Speculation(asked.speculation.method, draft_tokens, tree),
        draft=asked.draft,
        requests=point.concurrency,
        context_tokens=context_tokens if point.context is None else point.context,
        prompt_tokens=None,
        output_tokens=None,
    )
    return Observation(
        terms=priced(setting),
        ratio=point.step_time_ratio,
        tokens_per_step=1.0,
        plain_step_s=point.plain_step_s,
        speculative_step_s=point.speculative_step_s,
        weight=1.0,
    )
