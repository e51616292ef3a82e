"""Are the answers with drafts those without? Speculation loses nothing by construction; a server may.

1. At temperature 0 both arms should write the same text. They seldom all do: a batch of another size adds up in another order and flips
   near-ties, and a verified token is computed in a wider pass. So two runs of the *same* server differ too: the noise floor, measured by
   sending a share of the requests to the baseline twice.
2. Answers differ more than the floor allows where the interval of the difference of the two shares lies above 0. That is a reason to look,
   no proof: the same near-ties flip with drafts as well. Early first differences, shorter answers and broken JSON say more. They differ no
   more than the floor allows where that interval ends below a tenth; an interval that does neither cannot tell.
3. Without a floor only equality can be told, and only of enough answers that a tenth would have shown. At a temperature above 0 nothing
   can: both arms draw.
4. Lengths and JSON are looked at at any temperature: a server that drops the end of an answer does it there too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from paceline.decide.structured import leaves, structure
from paceline.errors import NoEvidenceError
from paceline.stats.intervals import ratio_of_sums, wilson
from paceline.stats.proportions import share_difference, sign_test
from paceline.verdict import Estimate, Holds

__all__ = ["Answers", "Divergence", "Losslessness", "Structured", "losslessness"]


TOLERATED = 0.1  # of the answers, beyond the floor


@dataclass(frozen=True, slots=True)
class Answers:
    """Texts by request id: of the two arms, and of the baseline asked a second time (empty where it was not)."""

    baseline: Mapping[str, str]
    speculative: Mapping[str, str]
    repeat: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Divergence:
    """Pairs of answers to the same request that are not the same text.

    Attributes:
        share: of the pairs, with Wilson's interval.
        first_character: where each that differs does so first, from 0 on, ascending.
        first_token: the same in tokens, None without a tokenizer.

    """

    share: Estimate
    first_character: tuple[int, ...]
    first_token: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Structured:
    """Answers that hold valid JSON without drafts.

    Attributes:
        answers: how many.
        broken: of these, with drafts none, invalid, or with fewer values in it (the last at temperature 0 only).
        emptied: of the broken ones, those that still parse.
        mended: invalid without drafts, valid with.
        chance: of at least so many more broken than mended ones, if drafts changed nothing.

    """

    answers: int
    broken: int
    emptied: int
    mended: int
    chance: float


@dataclass(frozen=True, slots=True)
class Losslessness:
    """What the answers say.

    Attributes:
        lossless: no where they differ more than the floor allows, yes where none differs or the floor explains it, else cannot tell.
        why: one sentence.
        divergence: speculative against baseline, None where both arms draw at random.
        floor: baseline against itself, None where it was asked once.
        excess: the share above the floor, None without one.
        length_ratio: mean length with drafts over without, in tokens where a tokenizer is there, else in characters.
        structured: None where no answer holds JSON.

    """

    lossless: Holds
    why: str
    divergence: Divergence | None
    floor: Divergence | None
    excess: Estimate | None
    length_ratio: Estimate
    structured: Structured | None


Encode = Callable[[str], Sequence[int]]


def losslessness(
    answers: Answers, *, temperature: float | None, encode: Encode | None, confidence: float, rng: np.random.Generator
) -> Losslessness:
    """What the texts of both arms say. `temperature` None (not recorded) is taken for one above 0.

    Raises:
        NoEvidenceError: no request was answered in both arms, or the baseline's answers are all empty.

    """
    pairs = _pairs(answers.baseline, answers.speculative)
    if not pairs:
        raise NoEvidenceError("no request has an answer in both arms, so answers cannot be compared")
    lengths = [np.array([_length(each[side], encode) for each in pairs], dtype=np.float64) for side in (1, 0)]
    ratio = ratio_of_sums(*lengths, largest=None, confidence=confidence, rng=rng)
    greedy = temperature == 0
    found = _structured(pairs, greedy=greedy)
    if not greedy:
        drawn = "the temperature was not recorded" if temperature is None else f"answers were drawn at temperature {temperature:g}"
        why = f"{drawn}: they differ anyway, so losslessness cannot be told this way; measure at temperature 0"
        return Losslessness(Holds.CANNOT_TELL, why, None, None, None, ratio, found)
    divergence = _divergence(pairs, encode, confidence)
    twice = _pairs(answers.baseline, answers.repeat)
    floor = _divergence(twice, encode, confidence) if twice else None
    excess = None if floor is None else share_difference(divergence.share, floor.share)
    lossless, why = _verdict(divergence, floor, excess)
    return Losslessness(lossless, why, divergence, floor, excess, ratio, found)


def _verdict(divergence: Divergence, floor: Divergence | None, excess: Estimate | None) -> tuple[Holds, str]:
    share = divergence.share
    assert share.high is not None
    if share.value == 0:
        few = share.high > TOLERATED
        said = f"all {share.n} answers are the same text in both arms"
        return (Holds.CANNOT_TELL, f"{said}, and they are few") if few else (Holds.YES, said)
    differs = f"{share.value:.1%} of {share.n} answers differ"
    if floor is None or excess is None:
        remedy = "measure the noise floor (bench --noise-floor)"
        return Holds.CANNOT_TELL, f"{differs}, and how many do when the baseline is asked twice is not known: {remedy}"
    noise = f"{floor.share.value:.1%} of {floor.share.n} when the baseline is asked twice"
    assert excess.low is not None
    assert excess.high is not None
    if excess.low > 0:
        return Holds.NO, f"{differs} against {noise}: more than noise"
    if excess.high <= TOLERATED:
        return Holds.YES, f"{differs} against {noise}: no more than noise"
    return Holds.CANNOT_TELL, f"{differs} against {noise}: too few answers to tell them apart"


def _pairs(left: Mapping[str, str], right: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(text, right[name]) for name, text in sorted(left.items()) if name in right]


def _length(text: str, encode: Encode | None) -> int:
    return len(text) if encode is None else len(encode(text))


def _divergence(pairs: Sequence[tuple[str, str]], encode: Encode | None, confidence: float) -> Divergence:
    differing = [each for each in pairs if each[0] != each[1]]
    tokens = None if encode is None else tuple(sorted(_first(encode(one), encode(other)) for one, other in differing))
    return Divergence(
        share=wilson(successes=len(differing), n=len(pairs), confidence=confidence),
        first_character=tuple(sorted(_first(one, other) for one, other in differing)),
        first_token=tokens,
    )


def _first(left: Sequence[object], right: Sequence[object]) -> int:
    return sum(1 for _ in takewhile(lambda each: each[0] == each[1], zip(left, right, strict=False)))


def _structured(pairs: Sequence[tuple[str, str]], *, greedy: bool) -> Structured | None:
    read = [(structure(one), structure(other)) for one, other in pairs]
    both = [each for each in read if each[0]]
    unparsed = sum(not other for _, other in both)
    emptied = sum(bool(other) and leaves(other) < leaves(one) for one, other in both) if greedy else 0
    mended = sum(one is None and bool(other) for one, other in read)
    if not both and not mended:
        return None
    broken = unparsed + emptied
    return Structured(answers=len(both), broken=broken, emptied=emptied, mended=mended, chance=sign_test(broken, mended))
