"""Which acceptance a job goes on with, and what that figure rests on.

In this order: what the user typed or measured elsewhere; acceptance replayed on the user's own log, where the method looks tokens
up (n-gram, suffix); a published profile of the method. Whatever it is, its label travels with every figure made from it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from paceline.errors import BadInputError, NoEvidenceError, UnknownNameError, printable
from paceline.files.modeldir import weights_fingerprint
from paceline.forecast.acceptance_model import RangedAcceptance, blended, exactly, extended, extrapolated, measured
from paceline.forecast.profiles import Profile, known_profiles, profile
from paceline.forecast.when_not import Pairing
from paceline.jobs.acceptance_file import ANY_SEGMENT, Told, read_acceptance_file
from paceline.jobs.scenario import Asked, on_disk
from paceline.run import Evidence
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method

__all__ = ["AskedAcceptance", "KnownAcceptance", "choose", "from_profile", "from_replay", "pairing_of", "read_acceptance", "stated"]

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


@dataclass(frozen=True, slots=True)
class KnownAcceptance:
    """Acceptance by segment at the draft length in question, what it rests on, and a label for people.

    `ranges` holds the segments whose acceptance has an interval, or was modelled beyond what was measured, with that range; `inputs` the
    SHA-256 by name of what a replay was made from.
    """

    by_segment: Mapping[str, Acceptance]
    evidence: Evidence
    label: str
    ranges: Mapping[str, RangedAcceptance] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)

    def ranged(self, segment: str) -> RangedAcceptance:
        """A segment's acceptance with its range, which is the figure alone where nothing is in doubt."""
        return self.ranges.get(segment, exactly(self.by_segment[segment]))

    def blended(self, shares: Mapping[str, float]) -> RangedAcceptance:
        """The acceptance of the whole mix with its range, from each segment's share of generated tokens.

        Raises:
            NoEvidenceError: all shares are 0.

        """
        return blended({name: self.ranged(name) for name in shares}, shares)


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
    label = f"stated: {told}; others {found.label}"
    return replace(found, by_segment={**found.by_segment, **own}, evidence=Evidence.STATED, label=label)


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


def pairing_of(known: KnownAcceptance, asked: Asked, *, traffic: Mapping[str, str]) -> Pairing:
    """What is known of the draft and of where its acceptance is from; `traffic` holds the SHA-256 by name of logs, {} where none are read.

    A replay knows what it was made from: of the same weights and logs, its acceptance is that of this very draft.
    """
    if known.evidence is Evidence.PROFILE:
        return Pairing(trained_for=None, draft_vocab=None, profile_label=known.label, replayed=None)
    folders = [None if each is None else on_disk(each) for each in (asked.target, asked.draft)]
    made_from = set(known.inputs.values())
    same = (
        known.evidence is Evidence.REPLAYED and set(traffic.values()) <= made_from and all(_weights(each) in made_from for each in folders)
    )
    return Pairing(trained_for=None, draft_vocab=None, profile_label=None, replayed=known.label if same else None)


def _weights(folder: Path | None) -> str | None:
    """Which weights these are, None where none are there or they cannot be read."""
    try:
        return None if folder is None or not folder.is_dir() else weights_fingerprint(folder)
    except BadInputError:
        return None


def _known(ranged: Mapping[str, RangedAcceptance], evidence: Evidence, label: str) -> KnownAcceptance:
    doubtful = {name: each for name, each in ranged.items() if not each.is_exact}
    return KnownAcceptance({name: each.value for name, each in ranged.items()}, evidence, label, doubtful)


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

    Intervals that the file tells are the range. The label tells which segments took the total, and which were measured with shorter drafts
    and extrapolated. The evidence is what the file says of itself; a file that does not say was stated.

    Raises:
        BadInputError: the file holds no acceptance counts, or those of another method's replay.
        NoEvidenceError: acceptance was not measured, or nothing was drafted.

    """
    file = read_acceptance_file(path, method)
    ranged = {name: _at_length(file.by_segment.get(name, file.total), draft_tokens=draft_tokens, method=method) for name in segments}
    borrowed = [printable(name) for name in ranged if name not in file.by_segment]
    alike = any(each.counts.drafts and each.counts.accepted_per_position is None for each in file.by_segment.values())
    told = "; positions were not counted, so each is taken to be accepted as often as the one before it" if alike else ""
    told += f"; {', '.join(borrowed)} taken from its total" if borrowed and set(file.by_segment) != {ANY_SEGMENT} else ""
    label = f"{file.evidence.value}, from {path.name}{told}{_stretched(ranged)}"
    return replace(_known(ranged, file.evidence, label), inputs=file.inputs)


def _at_length(told: Told, *, draft_tokens: int, method: Method) -> RangedAcceptance:
    """What was told at K, extrapolated where the drafts were shorter. Positions that were drafted and never reached have survival 0."""
    counts = told.counts if told.counts.steps is not None else _every_step_drafted(told.counts)
    if counts.drafts and counts.accepted_per_position is None:
        return exactly(_of_totals(counts, draft_tokens))
    positions = len(counts.survival) if counts.drafts else 0
    if not 0 < positions < draft_tokens or counts.drafted_tokens > positions * counts.drafts:
        positions = draft_tokens
    value = _acceptance(counts, positions)
    if len(told.survival) != positions:
        return extended(exactly(value), draft_tokens=draft_tokens, method=method)
    coverage = None if method.drafts_every_step else told.coverage
    return extended(measured(value, survival=told.survival, coverage=coverage), draft_tokens=draft_tokens, method=method)


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
