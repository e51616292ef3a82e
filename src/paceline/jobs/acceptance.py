"""Which acceptance a job goes on with, and what that figure rests on.

In this order: what the user typed or measured elsewhere; acceptance replayed on the user's own log, where the method looks tokens
up (n-gram, suffix); a published profile of the method. Whatever it is, its label travels with every figure made from it.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paceline.decide.comparability import synthetic_cautions
from paceline.errors import BadInputError, NoEvidenceError, UnknownNameError, is_count, printable
from paceline.files.bounded import read_bounded
from paceline.files.runfile import read_run
from paceline.forecast.acceptance_model import RangedAcceptance, exactly, extrapolated
from paceline.forecast.profiles import Profile, known_profiles, profile
from paceline.run import Evidence
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.blend import blend_by_generated_tokens
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method

__all__ = ["AskedAcceptance", "KnownAcceptance", "choose", "from_profile", "from_replay", "read_acceptance", "stated"]

ANY_SEGMENT = "all"
# What benchmarks call the kinds of traffic that profiles name; Spec-Bench and MT-bench categories among them.
SAME_KIND = {
    "coding": "code",
    "programming": "code",
    "math_reasoning": "math",
    "mathematics": "math",
    "reasoning": "math",
    "summarization": "summarisation",
    "qa": "question_answering",
    "conversation": "chat",
}
STAND_IN = "chat"
REPLAYED = {Method.NGRAM: "n-gram drafts", Method.SUFFIX: "suffix drafts (shorter ones are charged as K long)"}
MOST_BYTES = 64 << 20
PRINTED = "give what replay or measure printed with --json, or a run file"
PRINTED_BY = {"paceline.replay": Evidence.REPLAYED, "paceline.measure": Evidence.MEASURED, "paceline.simulate": Evidence.SIMULATED}


@dataclass(frozen=True, slots=True)
class KnownAcceptance:
    """Acceptance by segment at the draft length in question, what it rests on, and a label for people.

    `ranges` holds the segments whose acceptance was modelled beyond what was measured, with the range of the model.
    """

    by_segment: Mapping[str, Acceptance]
    evidence: Evidence
    label: str
    ranges: Mapping[str, RangedAcceptance] = field(default_factory=dict)

    def ranged(self, segment: str) -> RangedAcceptance:
        """A segment's acceptance with its range, which is the figure alone where nothing was modelled; the label stays with this record."""
        return self.ranges.get(segment, exactly(self.by_segment[segment]))

    def blended(self, shares: Mapping[str, float]) -> Acceptance:
        """The acceptance of the whole mix, from each segment's share of generated tokens.

        Raises:
            NoEvidenceError: all shares are 0.

        """
        return blend_by_generated_tokens({name: self.by_segment[name] for name in shares}, shares)


@dataclass(frozen=True, slots=True)
class AskedAcceptance:
    """What the user said about acceptance: one figure with its label, a file, and α of single segments. None and {} where nothing."""

    typed: tuple[Acceptance, str] | None
    file: Path | None
    segment_alphas: Mapping[str, float]


def choose(
    asked: AskedAcceptance,
    *,
    replayed: Mapping[str, AcceptanceCounts] | None,
    method: Method,
    segments: Iterable[str],
    draft_tokens: int,
    target: str,
) -> KnownAcceptance:
    """The acceptance to go on with, in the order that this module opens with.

    Raises:
        NoEvidenceError: nothing was stated or measured, and there is no profile.
        BadInputError: the file cannot be used, or α is given for a segment that the traffic lacks.

    """
    names = tuple(segments)
    unknown = sorted(set(asked.segment_alphas) - set(names))
    if unknown:
        raise UnknownNameError("segment", unknown[0], names)
    own = {name: Acceptance.from_alpha(alpha, draft_tokens=draft_tokens) for name, alpha in asked.segment_alphas.items()}
    told = ", ".join(f"α = {alpha:g} for {printable(name)}" for name, alpha in sorted(asked.segment_alphas.items()))
    rest = tuple(name for name in names if name not in own)
    if not rest:
        return KnownAcceptance(own, Evidence.STATED, f"stated: {told}")
    found = _without_overrides(asked, replayed, method, rest, draft_tokens=draft_tokens, target=target)
    if not own:
        return found
    return KnownAcceptance({**found.by_segment, **own}, Evidence.STATED, f"stated: {told}; others {found.label}", found.ranges)


def _without_overrides(
    asked: AskedAcceptance,
    replayed: Mapping[str, AcceptanceCounts] | None,
    method: Method,
    segments: tuple[str, ...],
    *,
    draft_tokens: int,
    target: str,
) -> KnownAcceptance:
    if asked.typed is not None:
        return stated(*asked.typed, segments)
    if asked.file is not None:
        return read_acceptance(asked.file, segments, draft_tokens=draft_tokens, method=method)
    if replayed is not None and not method.drafts_every_step:
        return from_replay(replayed, segments, method=method, draft_tokens=draft_tokens)
    return from_profile(method, segments, draft_tokens=draft_tokens, target=target)


def stated(acceptance: Acceptance, label: str, segments: Iterable[str]) -> KnownAcceptance:
    """What the user typed, for every segment alike."""
    return KnownAcceptance(dict.fromkeys(segments, acceptance), Evidence.STATED, label)


def from_replay(counts: Mapping[str, AcceptanceCounts], segments: Iterable[str], *, method: Method, draft_tokens: int) -> KnownAcceptance:
    """What replaying the method measured on the log itself; a segment in which nothing was ever drafted drafts in no step.

    Raises:
        NoEvidenceError: a segment was not replayed.

    """
    by_segment = {}
    for name in segments:
        if name not in counts:
            raise NoEvidenceError(f"segment {printable(name)} has no answer in the log, so its acceptance was not replayed")
        by_segment[name] = _acceptance(counts[name], draft_tokens)
    return KnownAcceptance(by_segment, Evidence.REPLAYED, f"replayed: {REPLAYED[method]} on this log's own tokens")


def _acceptance(counts: AcceptanceCounts, draft_tokens: int) -> Acceptance:
    """The counts as acceptance; where nothing was ever drafted, no step drafts."""
    if counts.drafts:
        return Acceptance.from_counts(counts, draft_tokens=draft_tokens)
    return Acceptance(survival=(0.0,) * draft_tokens, coverage=0.0)


def from_profile(method: Method, segments: Iterable[str], *, draft_tokens: int, target: str) -> KnownAcceptance:
    """A published profile of the method, never of the user's own traffic; a segment that it lacks takes the chat figure, and says so.

    Raises:
        NoEvidenceError: there is no profile of that method.

    """
    found = _profile_for(method, target)
    taken = {name: _profile_segment(found, name) for name in segments}
    missing = sorted(name for name, own in taken.items() if own is None)
    ranged = {
        name: extrapolated(found.segment(own or _stand_in(found)).acceptance, draft_tokens=draft_tokens, method=method)
        for name, own in taken.items()
    }
    borrowed = f"; {', '.join(printable(each) for each in missing)} taken from its {_stand_in(found)} figure" if missing else ""
    label = f"profile {found.name}, not your traffic: {found.label} ({found.target}){borrowed}{_stretched(ranged)}"
    return _known(ranged, Evidence.PROFILE, label)


def _known(ranged: Mapping[str, RangedAcceptance], evidence: Evidence, label: str) -> KnownAcceptance:
    modelled = {name: replace(each, label="") for name, each in ranged.items() if each.label}
    return KnownAcceptance({name: each.value for name, each in ranged.items()}, evidence, label, modelled)


def _stretched(ranged: Mapping[str, RangedAcceptance]) -> str:
    """The part of a label that names what was extrapolated."""
    return "".join(f"; {printable(name)} {each.label}{_span(each)}" for name, each in ranged.items() if each.label)


def _span(ranged: RangedAcceptance) -> str:
    tokens = ranged.tokens_per_step
    return f" ({tokens.low:.2f} to {tokens.high:.2f} tokens per step)"


def _profile_segment(found: Profile, name: str) -> str | None:
    """The profile's name for this kind of traffic, None where it has none."""
    wanted = SAME_KIND.get(name.casefold(), name)
    return wanted if wanted in found.segments else None


def _stand_in(found: Profile) -> str:
    return STAND_IN if STAND_IN in found.segments else next(iter(found.segments))


def _profile_for(method: Method, target: str) -> Profile:
    names = known_profiles()
    sized = f"{method.value}-70b"
    if sized in names and "70b" in target.casefold():
        return profile(sized)
    if method.value not in names:
        raise NoEvidenceError(
            f"there is no published profile for method {method.value}; state acceptance with --alpha, --survival or --acceptance-length"
        )
    return profile(method.value)


def read_acceptance(path: Path, segments: Iterable[str], *, draft_tokens: int, method: Method) -> KnownAcceptance:
    """Acceptance from a file that `replay` or `measure` printed with --json, or from a run file; its segments by name, else its total.

    The label tells which segments took the total, and which were measured with shorter drafts and extrapolated. The evidence is what the
    file says of itself; a file that does not say was stated.

    Raises:
        BadInputError: the file holds no acceptance counts, or those of another method's replay.
        NoEvidenceError: acceptance was not measured, or nothing was drafted.

    """
    counts, evidence = _counts_in(path, method)
    total = AcceptanceCounts.pooled(counts.values())
    ranged = {}
    for name in segments:
        known = counts.get(name, total)
        drafted = known if known.steps is not None else _every_step_drafted(known)
        ranged[name] = _at_length(drafted, draft_tokens=draft_tokens, method=method)
    borrowed = [printable(name) for name in ranged if name not in counts]
    alike = any(each.drafts and each.accepted_per_position is None for each in counts.values())
    told = "; positions were not counted, so each is taken to be accepted as often as the one before it" if alike else ""
    told += f"; {', '.join(borrowed)} taken from its total" if borrowed and set(counts) != {ANY_SEGMENT} else ""
    return _known(ranged, evidence, f"{evidence.value}, from {path.name}{told}{_stretched(ranged)}")


def _at_length(counts: AcceptanceCounts, *, draft_tokens: int, method: Method) -> RangedAcceptance:
    """Counts at K, extrapolated where the drafts were shorter. Positions that were drafted and never reached have survival 0."""
    if counts.drafts and counts.accepted_per_position is None:
        return exactly(_of_totals(counts, draft_tokens))
    positions = len(counts.survival) if counts.drafts else 0
    if not 0 < positions < draft_tokens or counts.drafted_tokens > positions * counts.drafts:
        return exactly(_acceptance(counts, draft_tokens))
    return extrapolated(_acceptance(counts, positions), draft_tokens=draft_tokens, method=method)


def _of_totals(counts: AcceptanceCounts, draft_tokens: int) -> Acceptance:
    """Totals as acceptance: the one conditional acceptance that accepts as many per draft."""
    length = min(1 + counts.accepted_tokens / counts.drafts, 1.0 + draft_tokens)
    return replace(Acceptance.from_acceptance_length(length, draft_tokens=draft_tokens), coverage=counts.coverage)


def _every_step_drafted(counts: AcceptanceCounts) -> AcceptanceCounts:
    """Counts of a source that does not count steps: taken for a method that drafts in every step."""
    return AcceptanceCounts(
        steps=counts.drafts,
        drafts=counts.drafts,
        drafted_tokens=counts.drafted_tokens,
        accepted_tokens=counts.accepted_tokens,
        accepted_per_position=counts.accepted_per_position,
    )


def _counts_in(path: Path, method: Method) -> tuple[dict[str, AcceptanceCounts], Evidence]:
    """Counts by segment, and what they rest on."""
    document = _document(path)
    kind = str(document.get("schema", "")).rpartition("/")[0]
    if kind == "paceline.replay":
        _need_method(path, document, method)
    if kind == "paceline.run":
        run = read_run(path)
        if not run.acceptance_by_segment:
            raise NoEvidenceError(f"{printable(path.name)}: acceptance was not measured in this run")
        for caution in synthetic_cautions(run):
            raise BadInputError(f"{printable(path.name)} is no acceptance to go on with: {caution.message}")
        return dict(run.acceptance_by_segment), run.provenance.evidence
    whole = document.get("acceptance", document)
    if whole is None:
        raise NoEvidenceError(f"{printable(path.name)}: acceptance was not measured there")
    parts = whole.get("segments") if isinstance(whole, dict) else None
    rows = parts if isinstance(parts, dict) and parts else {ANY_SEGMENT: whole}
    return {str(name): _counts(path, row) for name, row in rows.items()}, PRINTED_BY.get(kind, Evidence.STATED)


def _need_method(path: Path, document: Mapping[str, Any], method: Method) -> None:
    """Refuse what was replayed with another method: what a head's drafts reach says nothing of a lookup's."""
    provenance = document.get("provenance")
    arguments = provenance.get("arguments") if isinstance(provenance, dict) else None
    replayed = arguments.get("method") if isinstance(arguments, dict) else None
    if isinstance(replayed, str) and replayed != method.value:
        raise BadInputError(
            f"{printable(path.name)} is acceptance of {printable(replayed)} drafts, not of {method.value}; give --method to match, or a "
            f"replay of {method.value}"
        )


def _document(path: Path) -> dict[str, Any]:
    content = read_bounded(path, what="acceptance in", most_bytes=MOST_BYTES, remedy=PRINTED)
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as fault:
        raise BadInputError(f"acceptance cannot be read from {printable(str(path))}: {printable(str(fault))}") from None
    if not isinstance(document, dict):
        raise BadInputError(f"{printable(str(path))} is no JSON object; {PRINTED}")
    return document


def _counts(path: Path, row: object) -> AcceptanceCounts:
    try:
        return _parsed(row)
    except (BadInputError, KeyError, OverflowError, TypeError, ValueError) as fault:
        raise BadInputError(
            f"{printable(str(path))} holds no acceptance counts (drafts, drafted_tokens, accepted_tokens, survival): "
            f"{printable(str(fault))}"
        ) from None


def _parsed(row: object) -> AcceptanceCounts:
    """Counts and survival as `report.json_view` writes them; positions are survival times drafts."""
    if not isinstance(row, dict):
        raise TypeError(f"{type(row).__name__} where an object is needed")
    drafts = _count(row["drafts"])
    survival = None if row["survival"] is None else [each["value"] if isinstance(each, dict) else each for each in row["survival"]]
    positions = None if survival is None else tuple(round(float(each) * drafts) for each in survival)
    return AcceptanceCounts(
        steps=None if row.get("steps") is None else _count(row["steps"]),
        drafts=drafts,
        drafted_tokens=_count(row["drafted_tokens"]),
        accepted_tokens=_count(row["accepted_tokens"]),
        accepted_per_position=positions if drafts else (),
    )


def _count(value: Any) -> int:
    if not is_count(value, least=0):
        raise TypeError(f"{printable(value)} is no whole number from 0 on")
    return int(value)
