"""From files to diagnoses: the runs, the answers that lie beside them, and what target and hardware lead one to expect."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

import numpy as np

from paceline.decide.diagnose import Asked, Diagnosis, across_loads, diagnose
from paceline.decide.losslessness import Answers, Losslessness, losslessness
from paceline.errors import BadInputError, NoEvidenceError
from paceline.files.answers import REPEAT, answers_beside, read_answers
from paceline.files.evidence import read_evidence
from paceline.files.tokens import load_tokenizer
from paceline.forecast.acceptance_model import exactly
from paceline.forecast.speedup import Lengths, forecast
from paceline.hardware import Dtype
from paceline.jobs.planning import read_pairs
from paceline.jobs.scenario import Asked as Named
from paceline.jobs.scenario import Scenario, resolved_model, scenario
from paceline.run import Arm, Run
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.method import Method, Speculation

__all__ = ["Expected", "ToDiagnose", "answers_of", "diagnosed", "losslessness_beside", "losslessness_of"]

UTILISATION = 0.9
PROMPT_TOKENS, OUTPUT_TOKENS = 512, 256
MOST_COMPARED_TOKENS = 1_000_000


@dataclass(frozen=True, slots=True)
class Expected:
    """Target and hardware, where they were stated."""

    target: str
    gpu: str
    gpus: int | None
    dtype: Dtype
    draft: str | None


@dataclass(frozen=True, slots=True)
class ToDiagnose:
    """What was asked.

    Attributes:
        evidence: BASELINE and SPECULATIVE, or SPECULATIVE alone, or one folder with both.
        answers: files of texts of baseline and speculative arm; None: those beside the runs, where there are.
        speculation: how the speculative server drafts, where its evidence does not say; None where nobody said.
        expected: target and hardware, None where not stated.
        tokenizer: the target's, None to compare characters alone.
        margin: the gain worth having.
        confidence: of every interval.
        seed: of the resampling.

    """

    evidence: tuple[Path, ...]
    answers: tuple[Path | None, Path | None]
    speculation: Speculation | None
    expected: Expected | None
    tokenizer: Path | None
    margin: float
    confidence: float
    seed: int


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two runs, or one, and their answers."""

    baseline: Run | None
    speculative: Run
    answers: Answers | None


def diagnosed(asked: ToDiagnose) -> tuple[tuple[Diagnosis, ...], dict[str, str]]:
    """The diagnosis of each load, by rising concurrency, and the hashes of what was read.

    Raises:
        BadInputError: a file or a combination of files that is no evidence.
        NoEvidenceError: nothing was measured in it.

    """
    pairs = [_stated(each, asked.speculation) for each in _pairs(asked)]
    found = []
    for each in pairs:
        rng = np.random.default_rng((asked.seed, each.speculative.load.concurrency or 0))
        known = Asked(
            answers=each.answers,
            losslessness=_losslessness(each, asked),
            forecast_ratio=_forecast_ratio(each, asked.expected),
            is_moe=None if asked.expected is None else resolved_model(asked.expected.target).experts is not None,
            gpus=None if asked.expected is None else asked.expected.gpus,
            margin=asked.margin,
            confidence=asked.confidence,
        )
        found.append(diagnose(each.baseline, each.speculative, asked=known, rng=rng))
    runs = [run for each in pairs for run in (each.baseline, each.speculative) if run is not None]
    return across_loads(found), {name: sha for run in runs for name, sha in run.provenance.inputs.items()}


def _pairs(asked: ToDiagnose) -> list[_Pair]:
    paths = asked.evidence
    if len(paths) == 1 and not _holds_pairs(paths[0]):
        ours, theirs = asked.answers
        texts = Answers(_read(ours), _read(theirs or answers_beside(paths[0], Arm.SPECULATIVE.value)), {})
        return [_Pair(None, read_evidence(paths[0], Arm.SPECULATIVE), texts if texts.speculative else None)]
    if len(paths) == 1:
        folder = _runs_folder(paths[0])
        files = [(each, each.with_name(each.name.replace("baseline.json", "speculative.json"))) for each in folder.glob("*baseline.json")]
        return [_Pair(*read_pairs(both)[0], answers_of(both, asked.answers)) for both in sorted(files)]
    if len(paths) != 2:
        raise BadInputError("give BASELINE and SPECULATIVE, SPECULATIVE alone, or one folder that bench or rollout wrote")
    both = (paths[0], paths[1])
    found = read_pairs(both)
    texts_of_pair = answers_of(both, asked.answers) if len(found) == 1 else None
    return [_Pair(_plain_arm(baseline), speculative, texts_of_pair) for baseline, speculative in found]


def _runs_folder(path: Path) -> Path:
    return path / "runs" if (path / "runs").is_dir() else path


def _holds_pairs(path: Path) -> bool:
    return path.is_dir() and any(_runs_folder(path).glob("*baseline.json"))


def _plain_arm(run: Run) -> Run:
    """A server that exports speculation's series and drafted nothing is the plain arm, if it is given as such."""
    told = run.acceptance_by_segment is not None or run.speculation is not None or {"alpha", "acceptance_length"} & set(run.summaries)
    return run if told else replace(run, arm=Arm.BASELINE)


def answers_of(runs: tuple[Path, Path], named: tuple[Path | None, Path | None]) -> Answers | None:
    """The texts of both arms: as named, else those that lie beside the run files; None where there are none."""
    ours, theirs = (
        name or answers_beside(run, arm.value) for run, name, arm in zip(runs, named, (Arm.BASELINE, Arm.SPECULATIVE), strict=True)
    )
    found = Answers(_read(ours), _read(theirs), _read(answers_beside(runs[0], REPEAT)))
    return found if found.baseline or found.speculative else None


def losslessness_beside(runs: tuple[Path, Path], pair: tuple[Run, Run], *, confidence: float, seed: int) -> Losslessness | None:
    """What the answers that lie beside two run files of a load-test say; None where there are none."""
    answers = answers_of(runs, (None, None))
    return None if answers is None else losslessness_of(answers, pair, None, confidence=confidence, seed=seed)


def _read(path: Path | None) -> dict[str, str]:
    return {} if path is None else dict(read_answers(path))


def _stated(pair: _Pair, speculation: Speculation | None) -> _Pair:
    run = pair.speculative
    if speculation is None:
        return pair
    if run.speculation not in (None, speculation):
        raise BadInputError("the evidence itself says how it drafted, and it is not --method and --draft-tokens; leave them out")
    return replace(pair, speculative=replace(run, speculation=speculation))


def _losslessness(pair: _Pair, asked: ToDiagnose) -> Losslessness | None:
    if pair.baseline is None or pair.answers is None:
        return None
    return losslessness_of(pair.answers, (pair.baseline, pair.speculative), asked.tokenizer, confidence=asked.confidence, seed=asked.seed)


def losslessness_of(
    answers: Answers, runs: tuple[Run, Run], tokenizer: Path | None, *, confidence: float, seed: int
) -> Losslessness | None:
    """What the answers say, the same for the same answers whoever asks; None where no request has one in both arms."""
    temperatures = {_temperature(each) for each in runs}
    hottest = None if None in temperatures else max(each for each in temperatures if each is not None)
    encode: Callable[[str], Sequence[int]] | None = None
    if tokenizer is not None:
        known = load_tokenizer(tokenizer)
        encode = lambda text: known.encode(text).tolist()  # noqa: E731  # a closure over one tokenizer
    try:
        return losslessness(answers, temperature=hottest, encode=encode, confidence=confidence, rng=np.random.default_rng(seed))
    except NoEvidenceError:
        return None


def _temperature(run: Run) -> float | None:
    try:
        return float(run.provenance.arguments["temperature"])
    except (KeyError, ValueError):
        return None


def _forecast_ratio(pair: _Pair, expected: Expected | None) -> float | None:
    """ρ of that target there; None where the runs say too little: how they draft, or how many ran at once."""
    run = pair.speculative
    how, concurrency = run.speculation, run.load.concurrency
    if expected is None or how is None or concurrency is None:
        return None
    found = _scenario(expected, how)
    acceptance = Acceptance.from_conditional(0.7, draft_tokens=how.draft_tokens)  # ρ hangs on it only where steps go without a draft
    if how.method in (Method.NGRAM, Method.SUFFIX) and run.acceptance_by_segment and run.acceptance.steps:
        acceptance = replace(acceptance, coverage=run.acceptance.coverage)
    rows = forecast(
        target=found.target,
        where=found.where,
        speculation=found.speculation,
        draft=found.draft,
        acceptance=exactly(acceptance),
        concurrencies=[concurrency],
        lengths=_lengths(run),
        draft_lengths=[how.draft_tokens],
        utilisation=found.utilisation,
    )
    return rows[0].step_time_ratio.value


def _scenario(expected: Expected, how: Speculation) -> Scenario:
    named = Named(
        target=expected.target,
        gpu=expected.gpu,
        gpus=expected.gpus,
        dtype=expected.dtype,
        utilisation=UTILISATION,
        method=how.method,
        draft=expected.draft,
        draft_tokens=how.draft_tokens,
        draft_vocab=None,
        tree=how.tree,
    )
    return scenario(named)


def _lengths(run: Run) -> Lengths:
    done = run.finished if run.requests is not None else ()
    prompt = ceil(np.mean([each.prompt_tokens for each in done])) if done else PROMPT_TOKENS
    output = ceil(np.mean([each.output_tokens for each in done])) if done else OUTPUT_TOKENS
    prompt, output = (min(max(1, each), MOST_COMPARED_TOKENS) for each in (prompt, output))
    return Lengths(prompt_tokens=prompt, output_tokens=output, context_tokens=min(prompt + ceil(output / 2), MOST_COMPARED_TOKENS))
