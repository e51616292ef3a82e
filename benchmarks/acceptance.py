"""How well acceptance length at K = 4 … 8 is predicted from K <= 3, each curve with the parameters of the others.

    python benchmarks/acceptance.py [CSV] [--json]

CSV has the columns file, K and AL; without one, the published curves in tests/data/al_curves.csv. A curve counts as monotone if no length
is more than .03 below the one before: the lengths are measured on samples, and smaller falls are noise.
"""

import argparse
import csv
import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from paceline.forecast.acceptance_fit import Predicted, fit_tail, leave_one_out
from paceline.forecast.acceptance_model import packaged_tail

CURVES = Path(__file__).parent.parent / "tests" / "data" / "al_curves.csv"
NOISE_TOKENS = 0.03


def read_curves(path: Path) -> dict[str, dict[int, float]]:
    """Acceptance length by K, by curve."""
    curves: dict[str, dict[int, float]] = {}
    with path.open(encoding="utf-8", newline="") as source:
        for row in csv.DictReader(source):
            curves.setdefault(row["file"], {})[int(row["K"])] = float(row["AL"])
    return curves


def monotone(curve: Mapping[int, float]) -> bool:
    """Whether the curve falls nowhere by more than noise."""
    lengths = [curve[K] for K in sorted(curve)]
    return all(after >= before - NOISE_TOKENS for before, after in pairwise(lengths))


def summary(curves: Mapping[str, Mapping[int, float]], scored: tuple[Predicted, ...]) -> dict[str, object]:
    """The leave-one-out scores, by curve and in all."""
    errors = [abs(each.relative_error) for each in scored]
    fitted, packaged = fit_tail(list(curves.values())), packaged_tail()
    return {
        "mean_error": sum(errors) / len(errors),
        "worst_error_monotone": max(abs(each.relative_error) for each in scored if monotone(curves[each.curve])),
        "worst_error": max(errors),
        "range_coverage": sum(each.covered for each in scored) / len(scored),
        "points": len(scored),
        "fitted": {"curvature": fitted.curvature, "most_gain": fitted.most_gain},
        "packaged": {"curvature": packaged.curvature, "most_gain": packaged.most_gain},
        "by_curve": {name: by_curve(name, curve, scored) for name, curve in curves.items()},
    }


def by_curve(name: str, curve: Mapping[int, float], scored: tuple[Predicted, ...]) -> dict[str, object]:
    """One curve's errors by K and how many of its lengths lie in the range."""
    own = [each for each in scored if each.curve == name]
    return {
        "monotone": monotone(curve),
        "errors": {each.draft_tokens: each.relative_error for each in own},
        "covered": sum(each.covered for each in own),
        "points": len(own),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("csv", nargs="?", type=Path, default=CURVES)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    curves = read_curves(given.csv)
    scored = leave_one_out(curves)
    said = summary(curves, scored)
    if given.json:
        print(json.dumps(said, indent=2))
        return
    print("| curve | K = 4 | 5 | 6 | 7 | 8 | in range |\n|---|---|---|---|---|---|---|")
    for name in curves:
        own = [each for each in scored if each.curve == name]
        cells = " | ".join(f"{each.relative_error:+.1%}" for each in own)
        print(f"| {name} | {cells} | {sum(each.covered for each in own)} of {len(own)} |")
    print(
        f"\nmean error {said['mean_error']:.1%}, worst {said['worst_error_monotone']:.1%} on monotone curves and "
        f"{said['worst_error']:.1%} on all; {said['range_coverage']:.0%} of {said['points']} points in range"
    )
    print(f"fitted {said['fitted']}, packaged {said['packaged']}")


if __name__ == "__main__":
    main()
