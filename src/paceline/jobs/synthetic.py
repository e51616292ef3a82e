"""A load-test with made-up acceptance: the plain server once, then a speculative one for each length, all started here.

    plain/              the baseline's load-test
    length-1.5/ …       the speculative server that was told to give 1.5 tokens per step
    break-even.json     what they come to

The runs carry `synthetic_acceptance` in their provenance and a warning of that name, so that nothing takes them for a draft's acceptance.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paceline.errors import BadInputError
from paceline.files.whole import make_folder, write_text
from paceline.jobs.arm_commands import Launching
from paceline.jobs.bench_asked import BenchAsked
from paceline.jobs.launching import measured_arm
from paceline.run import Arm, Run

__all__ = ["SyntheticRuns", "keep_break_even", "measured_lengths"]


@dataclass(frozen=True, slots=True)
class SyntheticRuns:
    """At one concurrency: the plain run, and the speculative one of each length."""

    baseline: Run
    speculative: Mapping[float, Run]


def measured_lengths(
    asked: BenchAsked, launching: Launching, lengths: Sequence[float], out: Path, *, resume: bool, step: Callable[[str], None]
) -> dict[int, SyntheticRuns]:
    """Every length at each concurrency. Answers are asked for at their full length: what the server writes is no text that ends somewhere.

    Raises:
        BadInputError: the method drafts in some steps only, a length that the draft length does not have, or as `launched_pairs`.
        ServerFaultError: as `launched_pairs`.
        KeyboardInterrupt: it was stopped; what was finished is kept.

    """
    if not launching.method.drafts_every_step:
        raise BadInputError(
            f"{launching.method.value} drafts where it finds a match, which made-up acceptance does not change; take a method with a draft"
        )
    full = replace(asked, asking=replace(asked.asking, ignore_eos=True))
    each_length = {length: replace(launching, synthetic_length=length) for length in lengths}
    plain = measured_arm(full, launching, Arm.BASELINE, out / "plain", resume=resume, step=step)
    found = {
        length: measured_arm(full, told, Arm.SPECULATIVE, out / f"length-{length:g}", resume=resume, step=step)
        for length, told in each_length.items()
    }
    return {
        run.load.concurrency or 1: SyntheticRuns(baseline=run, speculative={length: runs[place] for length, runs in found.items()})
        for place, run in enumerate(plain)
    }


def keep_break_even(document: Mapping[str, object], out: Path) -> None:
    """Write what it came to beside the runs."""
    make_folder(out)
    write_text(out / "break-even.json", json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
