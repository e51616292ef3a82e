"""Causes that lie in how it was measured, and in the answers themselves."""

from collections.abc import Iterator

from paceline.decide.diagnosis.case import Case
from paceline.decide.diagnosis.cause import Cause, Surely, Unchecked
from paceline.traffic.loops import loop_share
from paceline.verdict import Holds

__all__ = ["loops", "validity_causes"]

RANDOM = frozenset({"random", "random-ids", "random-mm", "random-rerank", "prefix_repetition"})
MOSTLY = 0.5
WORDS, CHARACTERS = (20, 4), (100, 20)  # the shortest text in which a loop is looked for, and the n-gram that repeats in one
OTHER_LENGTHS = 0.05
CLEAR = 0.05


def validity_causes(case: Case) -> Iterator[Cause | Unchecked]:
    """All of them."""
    yield from _prompts(case)
    yield from _loops(case)
    yield from _answers(case)


def _prompts(case: Case) -> Iterator[Cause | Unchecked]:
    name = case.told.get("dataset_name") or case.told.get("dataset") or ""
    noted = any(each.code == "random_dataset" for each in case.speculative.cautions)
    if noted or name.casefold() in RANDOM:
        yield Cause(
            "random_prompts",
            f"prompts are random tokens ({name or 'said by the tool'}): no draft was trained on them, and answers to them are no real text",
            {"dataset": name or "random"},
            "measure on your own prompts (bench --traffic); for the shape of a load alone, fix the acceptance instead (vLLM: "
            "rejection_sample_method synthetic; SGLang: SGLANG_SIMULATE_ACC_LEN)",
            Surely.SURE,
            1.0,
        )
    if case.told.get("ignore_eos", "").casefold() == "true":
        yield Cause(
            "forced_length",
            "answers went on beyond their end (ignore_eos): what is written there is repetition, and acceptance on it is another one",
            {"ignore_eos": "true"},
            "let answers end by themselves, and bound them with max_tokens",
            Surely.SURE,
            0.5,
        )


def loops(text: str) -> bool:
    """Whether half of the answer, or more, says what it already said: in words, or in characters where it has few."""
    for parts, (least, n) in ((text.split(), WORDS), (text, CHARACTERS)):
        if len(parts) >= least:
            # The loop's share is of token ids; any hashable parts count alike, so each gets a number.
            numbers = {part: number for number, part in enumerate(dict.fromkeys(parts))}
            return loop_share([numbers[part] for part in parts], n=n) >= MOSTLY
    return False


def _loops(case: Case) -> Iterator[Cause | Unchecked]:
    texts = {} if case.answers is None else case.answers.speculative
    if not texts:
        noted = [each for each in case.speculative.cautions if each.code == "degenerate_answers"]
        if noted:
            yield _degenerate(noted[0].message, {"noted_by_reader": "degenerate_answers"})
        else:
            yield Unchecked("degenerate_answers", "the answers' texts (bench keeps them in answers/; --speculative-answers FILE)")
        return
    looping = [name for name, text in texts.items() if loops(text)]
    if len(looping) < MOSTLY * len(texts):
        return
    tokens = {each.id: each.output_tokens for each in case.speculative.requests or ()}
    counted = [name for name in looping if tokens.get(name)]
    pace = sum(len(texts[name]) for name in counted) / sum(tokens[name] for name in counted) if counted else None
    message = f"{len(looping)} of {len(texts)} answers end in a loop that is half of them or more"
    figures: dict[str, float | str] = {"answers": len(texts), "looping": len(looping)}
    yield _degenerate(message, figures | ({} if pace is None else {"characters_per_token": pace}))


def _degenerate(message: str, figures: dict[str, float | str]) -> Cause:
    return Cause(
        "degenerate_answers",
        f"{message}: acceptance was measured on the loop",
        figures,
        "send prompts through the chat API, so that they go through the target's template, and do not force answers on",
        Surely.SURE,
        0.9,
    )


def _answers(case: Case) -> Iterator[Cause | Unchecked]:
    found = case.losslessness
    if found is None:
        for code in ("answers_differ", "structured_output_breaks"):
            yield Unchecked(code, "the texts of both arms (bench keeps them in answers/; --baseline-answers, --speculative-answers)")
        return
    parts = found.structured
    if parts is not None and parts.broken > parts.mended:
        yield Cause(
            "structured_output_breaks",
            f"of {parts.answers} answers that hold valid JSON without drafts {parts.broken} do not with drafts ({parts.emptied} of them "
            f"parse and say less); the other way round it is {parts.mended}",
            {"answers": parts.answers, "broken": parts.broken, "emptied": parts.emptied, "mended": parts.mended, "chance": parts.chance},
            "do not ship to traffic with structured output or tools; look for a newer version (drafts after the end of reasoning that the "
            "grammar never saw, tool calls cut by chunks of several tokens), and gate on the share that parses",
            Surely.SURE if parts.chance < CLEAR else Surely.POSSIBLE,
            parts.broken / max(parts.answers, 1),
        )
    yield from _texts(case)


def _texts(case: Case) -> Iterator[Cause | Unchecked]:
    found = case.losslessness
    assert found is not None
    if found.divergence is None or (found.floor is None and found.lossless is not Holds.YES):
        yield Unchecked("answers_differ", found.why)
    elif found.lossless is Holds.NO and found.excess is not None and found.floor is not None:
        shares = {"differing": found.divergence.share.value, "noise_floor": found.floor.share.value, "excess": found.excess.value}
        yield Cause(
            "answers_differ",
            found.why,
            shares | {"median_first_character": float(found.divergence.first_character[len(found.divergence.first_character) // 2])},
            "look at the first differing tokens: near-ties that another batch shape flips are harmless; clear ones are a fault "
            "of verification, positions or the cache's rollback; task scores of both arms tell whether it matters",
            Surely.LIKELY,
            max(0.0, found.excess.value),
        )
    ratio = found.length_ratio
    low, high = ratio.low, ratio.high
    if low is not None and high is not None and (low > 1 + OTHER_LENGTHS or high < 1 - OTHER_LENGTHS):
        yield Cause(
            "output_lengths_differ",
            f"answers are {ratio.value:.3g} times as long with drafts [{low:.3g}, {high:.3g}]: times of whole requests do not compare, and "
            "something ends answers elsewhere",
            {"length_ratio": ratio.value},
            "check stop strings, the end token and max_tokens in both arms, and parsers that drop text",
            Surely.SURE,
            abs(ratio.value - 1) / max(ratio.value, 1),
        )
