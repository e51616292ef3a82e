"""NVIDIA's `speculation_profile.json`, version 1: how good a draft is, as it travels with its checkpoint. Read and written.

    acceptance_length_histogram   steps by tokens emitted, the target's own included: length 1 accepted nothing
    marginal_accept_rates         P(first i + 1 drafts all accepted), per position: our survival
    conditional_accept_rates      the ratio of consecutive marginals: our conditional acceptance
    mean_accept_length            tokens per step of that histogram: our acceptance length
    measured                      false in a stub that stands for "not measured yet"

A profile knows neither load nor latency, and describes other traffic: its evidence is PROFILE. Source: NVIDIA Model Optimizer,
examples/specdec_bench/specdec_bench/speculation_profile.py.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from paceline import __version__
from paceline.decide.comparability import synthetic_cautions
from paceline.errors import BadInputError, NoEvidenceError, printable
from paceline.files.benchfile.acceptance import histogram_counts
from paceline.files.benchfile.assemble import Told, found_of, method_named, plain_name, summary
from paceline.files.benchfile.documents import whole_document
from paceline.files.benchfile.fields import Fields, as_object, finite, numbers
from paceline.files.found import Found, sha256_of
from paceline.files.whole import write_text
from paceline.run import Arm, Evidence, Run
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import MOST_DRAFT_TOKENS, Method, Speculation

__all__ = ["is_speculation_profile", "profile_of", "read_speculation_profile", "write_speculation_profile"]

SCHEMA_VERSION = "1.0"
TOLERANCE = 0.02  # how far the stated mean may lie from 1 + Σ marginals, as the tool that defines the format has it
DIGITS = 6
CHAIN_METHODS = (Method.EAGLE, Method.EAGLE2, Method.EAGLE3, Method.DRAFT_MODEL)
NAMES = {Method.DRAFT_MODEL: "draft_model"}


def is_speculation_profile(head: str) -> bool:
    """Whether the file begins as one."""
    return '"schema_version":' in head and any(
        f'"{key}":' in head for key in ("marginal_accept_rates", "conditional_accept_rates", "measured")
    )


def read_speculation_profile(path: Path) -> tuple[Found, ...]:
    """The profile as a run without requests and load.

    Raises:
        BadInputError: another version, or figures that are none.
        NoEvidenceError: a stub, of which nothing was measured.

    """
    fields = Fields(as_object(whole_document(path), printable(path.name)), "")
    version = fields.text("schema_version") or ""
    if version.partition(".")[0] != "1":
        raise BadInputError(f"{printable(path.name)} is a speculation profile of version {printable(version)}; version 1 is read")
    if fields.values.get("measured") is not True:
        raise NoEvidenceError(f"{printable(path.name)} is a stub of a speculation profile (measured: false): nothing was measured yet")
    told = Told(arm=Arm.SPECULATIVE, evidence=Evidence.PROFILE)
    _identity(fields, told)
    _acceptance(fields, told)
    conditions = fields.object("validation").object("mean_consistency")
    if conditions.values.get("passed") is False:
        told.note("profile_inconsistent", "the profile itself says that its vectors do not give its mean: it was cut to fewer positions")
    if fields.text("verification_method") not in (None, "longest_prefix"):
        told.note(
            "other_verification", f"drafts were verified by {printable(fields.text('verification_method'))}: positions are no prefixes"
        )
    return (found_of(told, made_by=f"speculation_profile.json {version}", inputs={path.name: sha256_of(path)}),)


def _identity(fields: Fields, told: Told) -> None:
    method, length = method_named(fields.text("method")), fields.count("num_speculative_tokens")
    if method is not None and length and length <= MOST_DRAFT_TOKENS:
        told.speculation = Speculation(method=method, draft_tokens=length, tree=None)
    for key, ours in (("target_model", "target"), ("draft_checkpoint", "draft")):
        value = fields.values.get(key)
        name = value.get("id") or value.get("name") or value.get("path") if isinstance(value, dict) else value
        if isinstance(name, str):
            told.arguments[ours] = plain_name(name)


def _acceptance(fields: Fields, told: Told) -> None:
    rates = numbers(fields.list("marginal_accept_rates") or [], "marginal_accept_rates")
    if len(rates) > MOST_DRAFT_TOKENS or any(not 0 <= each <= 1 for each in rates):
        raise BadInputError("marginal_accept_rates are not at most 256 fractions of 1")
    for i, each in enumerate(rates, 1):
        told.summaries[f"survival_{i}"] = summary(each, "pooled", None)
    length = fields.positive("mean_accept_length")
    if length is not None:
        told.summaries["acceptance_length"] = summary(length, "pooled", None)
        if abs(1 + sum(rates) - length) > TOLERANCE and "mean_accept_length_per_request" not in fields.values:
            told.note("mean_is_per_request", "the stated mean length weighs every request alike, not every step: the positions are used")
    for name, each in fields.object("per_category").values.items():
        mean = Fields(each, f"per_category.{name}.").positive("mean_accept_length") if isinstance(each, dict) else finite(each, name)
        if mean is not None:
            told.summaries[f"acceptance_length [{name}]"] = summary(mean, "mean", None)
    histogram = fields.object("acceptance_length_histogram")
    if histogram.values:
        _counts(histogram, fields, told)
    told.note("profile_acceptance", "the profile describes the traffic it was measured on, not yours")


def _counts(histogram: Fields, fields: Fields, told: Told) -> None:
    try:
        steps = {int(length) - 1: histogram.count(length) or 0 for length in histogram.values}
    except ValueError:
        raise BadInputError("acceptance_length_histogram has a key that is no number of tokens") from None
    width = fields.count("num_speculative_tokens") or 0
    if max(steps, default=0) > width:
        told.note("profile_truncated", "steps accepted more drafts than num_speculative_tokens: the profile's own vectors are cut short")
    width = max([width, *steps])
    every_step = told.speculation is None or told.speculation.method.drafts_every_step
    drafts = sum(steps.values())
    counts = histogram_counts(steps, drafted_tokens=drafts * width, width=width, steps=drafts if every_step else None)
    told.acceptance = {"all": counts}
    if not every_step:
        told.note("coverage_unknown", "steps without a draft and steps that accepted none look alike in a profile: coverage is not known")


def write_speculation_profile(run: Run, path: Path) -> None:
    """Write the run's acceptance as a profile.

    Raises:
        NoEvidenceError: as `profile_of`.
        BadInputError: the place cannot be written to.

    """
    write_text(path, json.dumps(profile_of(run), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def profile_of(run: Run) -> dict[str, Any]:
    """The run's acceptance in the profile's own terms: over drafted steps, by position, all segments and each.

    Raises:
        NoEvidenceError: acceptance was not measured or replayed, was made up, or is not known by position.

    """
    for caution in synthetic_cautions(run):
        raise NoEvidenceError(f"a profile holds the acceptance of a draft: {caution.message}")
    if run.provenance.evidence not in (Evidence.MEASURED, Evidence.REPLAYED):
        raise NoEvidenceError(
            f"the acceptance of this run is {run.provenance.evidence.value}; a profile holds what was measured or replayed"
        )
    counts = run.acceptance
    if counts.accepted_per_position is None:
        raise NoEvidenceError("a profile needs acceptance by position, and this source has totals only")
    survival, length = [round(each, DIGITS) for each in counts.survival], round(counts.acceptance_length, DIGITS)
    width = max(run.speculation.draft_tokens if run.speculation else 0, len(survival))
    survival += [0.0] * (width - len(survival))
    method = run.speculation.method if run.speculation else None
    return {
        "schema_version": SCHEMA_VERSION,
        "measured": True,
        "method": None if method is None else NAMES.get(method, method.value),
        "draft_checkpoint": _named(run, "draft"),
        "target_model": _named(run, "target") or _named(run, "model"),
        "num_speculative_tokens": width,
        "block_size": None,
        "max_supported_k": width,
        "verification_method": "longest_prefix",
        "conditional_accept_rates": _conditional(survival),
        "marginal_accept_rates": survival,
        "mean_accept_length": length,
        "mean_accept_length_per_request": _per_request(run),
        "accept_length_model": "chain_analytic" if method in CHAIN_METHODS else "measured_per_k",
        "accept_length_by_k": {str(width): length},
        "acceptance_length_histogram": _histogram(counts),
        "per_category": {name: {"mean_accept_length": round(each.acceptance_length, DIGITS)} for name, each in _segments(run).items()}
        or None,
        "measurement_conditions": _conditions(run, counts),
        "validation": _validation(survival, length),
    }


def _named(run: Run, key: str) -> dict[str, str] | None:
    name = run.provenance.arguments.get(key)
    return None if name is None else {"id": name}


def _conditional(survival: list[float]) -> list[float]:
    before, found = 1.0, []
    for each in survival:
        found.append(round(each / before, DIGITS) if before > 0 else 0.0)
        before = each
    return found


def _per_request(run: Run) -> float | None:
    lengths = [each.acceptance.acceptance_length for each in run.requests or () if each.acceptance is not None and each.acceptance.drafts]
    return round(sum(lengths) / len(lengths), DIGITS) if lengths else None


def _histogram(counts: AcceptanceCounts) -> dict[str, int]:
    """Drafted steps by tokens emitted: those that accepted exactly j emitted j + 1."""
    reached = [counts.drafts, *(counts.accepted_per_position or ()), 0]
    return {str(j + 1): here - there for j, (here, there) in enumerate(pairwise(reached)) if here > there}


def _segments(run: Run) -> dict[str, AcceptanceCounts]:
    segments = run.acceptance_by_segment or {}
    return {name: each for name, each in segments.items() if each.drafts} if set(segments) != {"all"} else {}


def _conditions(run: Run, counts: AcceptanceCounts) -> dict[str, Any]:
    """What the figures rest on, and what the format has no place for: drafted steps only, and the share of steps that these are."""
    return {
        "tool": f"paceline {__version__}",
        "made_by": run.provenance.made_by,
        "evidence": run.provenance.evidence.value,
        "concurrency": run.load.concurrency,
        "rate_per_s": run.load.rate_per_s,
        "steps_counted": "drafted",
        "coverage": round(counts.coverage, DIGITS) if counts.steps else None,
        "warnings": [each.code for each in run.cautions],
    }


def _validation(survival: list[float], length: float) -> dict[str, Any]:
    implied = round(1 + sum(survival), DIGITS)
    return {
        "mean_consistency": {
            "implied_mean_accept_length": implied,
            "reported_mean_accept_length": length,
            "abs_delta": round(abs(implied - length), DIGITS),
            "tolerance": TOLERANCE,
            "passed": abs(implied - length) <= TOLERANCE,
        },
        "marginal_monotonicity": {"passed": True, "violations": []},
    }
