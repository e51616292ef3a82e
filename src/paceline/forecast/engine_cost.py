"""What an engine adds to the kernels: three numbers, per engine family or from a calibration.

    plain step        kernels / efficiency + engine overhead
    speculative step  kernels of verifying / efficiency + engine overhead + speculation overhead + draft scale · K draft passes

The engine overhead stays the coefficient of data/step_cost.toml; the triple is what differs between engines and versions. On hardware
that is in no table a calibration also finds the arithmetic: the stated peak is seldom what is reached, and how it compares with the
bandwidth says from how many tokens on a step grows.
"""

from dataclasses import dataclass
from math import isfinite

from paceline.data.tables import table
from paceline.errors import BadInputError, UnknownNameError
from paceline.forecast.kernels import coefficient

__all__ = ["EngineCost", "engine_of_family", "known_families", "published_error", "uncalibrated"]


@dataclass(frozen=True, slots=True)
class EngineCost:
    """One triple.

    Attributes:
        overhead_s: seconds per speculative step beside verifying and drafting.
        draft_scale: draft passes take this many times as long as priced from their kernels.
        efficiency: kernels reach this share of the speed they were measured at.
        arithmetic: beside that, multiplications run at this many times the hardware's peak.

    """

    overhead_s: float
    draft_scale: float
    efficiency: float
    arithmetic: float

    def __post_init__(self) -> None:
        """Reject a negative overhead and a scale, efficiency or arithmetic that is not above 0.

        Raises:
            BadInputError: with the value.

        """
        if not (isfinite(self.overhead_s) and self.overhead_s >= 0):
            raise BadInputError(f"speculation overhead {self.overhead_s!r} s is not a number from 0 on")
        for name in ("draft_scale", "efficiency", "arithmetic"):
            value = getattr(self, name)
            if not (isfinite(value) and value > 0):
                raise BadInputError(f"{name} = {value!r} is not a number above 0")


def uncalibrated(gpus: int) -> EngineCost:
    """The triple of data/step_cost.toml for one GPU or several: kernels as measured, draft passes as priced."""
    overhead_s = coefficient("speculation_overhead_s" if gpus == 1 else "speculation_overhead_tp_s")
    return EngineCost(overhead_s=overhead_s, draft_scale=1.0, efficiency=1.0, arithmetic=1.0)


def published_error() -> float:
    """Root mean square of ln(forecast / published ρ) over all usable published points, each source forecast from the others.

    It is what a forecast without a calibration has to be believed with (docs/concepts/accuracy.md), and stands in the row of
    data/calibrations.toml that rests on the most points.
    """
    return float(max(table("calibrations")["family"], key=lambda row: row["n"])["error"])


def known_families() -> tuple[str, ...]:
    """Engine families with a fitted triple."""
    return tuple(row["engine"] for row in table("calibrations")["family"])


def engine_of_family(name: str) -> EngineCost:
    """The triple fitted to published measurements of one engine family (data/calibrations.toml, fitted by benchmarks/accuracy.py).

    Raises:
        UnknownNameError: no such family.

    """
    for row in table("calibrations")["family"]:
        if row["engine"] == name:
            return EngineCost(overhead_s=row["overhead_s"], draft_scale=row["draft_scale"], efficiency=row["efficiency"], arithmetic=1.0)
    raise UnknownNameError("engine", name, known_families())
