"""What `sweep` does once it is asked."""

import argparse

from paceline.cli.options import scenario_asked
from paceline.cli.output import answer, progress
from paceline.cli.predicting import asked_calibration, calibrated_plan, calibration_dict, calibration_lines
from paceline.errors import BadInputError
from paceline.files.whole import write_text
from paceline.jobs.scenario import config_hashes, scenario
from paceline.jobs.sweep import Grid, Sweep, sweep
from paceline.report.sweeps import sweep_csv, sweep_dict, sweep_html, sweep_text

__all__ = ["run_sweep"]


CONCURRENCIES = (1, 8, 64)


def swept_by_default(most_requests: int) -> tuple[int, ...]:
    """Concurrencies up to the largest batch that a replica runs, so that a server's table rests on points throughout."""
    return (*(each for each in CONCURRENCIES if each < most_requests), most_requests)


def run_sweep(options: argparse.Namespace) -> int:
    """`sweep`: the grid, its surface and what to tell each server; with --out also files, and a rerun goes on where it stopped."""
    grid = Grid(
        alphas=tuple(sorted(set(options.alphas))),
        draft_lengths=options.draft_lengths,
        concurrencies=options.concurrencies or swept_by_default(options.max_requests),
        contexts=options.contexts,
        reference_draft_tokens=options.draft_tokens,
    )
    if not all(0 < each < 1 for each in grid.alphas):
        raise BadInputError("a sweep's α lie between 0 and 1; at the ends there is nothing to decide")
    asked = scenario_asked(options)
    calibration = asked_calibration(options, scenario(asked), context_tokens=grid.contexts[0])
    job = Sweep(
        asked=asked,
        grid=grid,
        output_tokens=options.output_tokens,
        simulation=calibrated_plan(options, calibration) if options.simulate else None,
        calibration=calibration,
    )
    total = len(list(grid.settings()))
    with progress(f"sweeping {total} points", total=total) as bar:
        points = sweep(job, options.out, workers=options.workers, done=bar)
    if options.out is not None:
        write_text(options.out / "surface.csv", sweep_csv(points))
        write_text(options.out / "sweep.html", sweep_html(points, title=f"{options.target}: where {options.method.value} drafting pays"))
    text = sweep_text(points, reference_draft_tokens=options.draft_tokens, most_requests=options.max_requests)
    text = "\n\n".join([*calibration_lines(calibration), text])
    answer(
        options,
        body=sweep_dict(points, most_requests=options.max_requests) | calibration_dict(calibration),
        text=text,
        inputs=config_hashes(job.asked),
    )
    return 0
