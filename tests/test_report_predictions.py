"""The lesson, the forecast and the memory answer as JSON and as text."""

from dataclasses import replace

import pytest

from paceline.forecast.activations import ActivationAnswer, LargestStep, activation_answer, step_activations
from paceline.forecast.draft_memory import MemoryAnswer, draft_shape, memory
from paceline.forecast.lesson import lesson
from paceline.forecast.roofline import placed
from paceline.forecast.shapes import gpu, model
from paceline.forecast.speedup import Bound, ForecastRow
from paceline.forecast.when_not import Condition
from paceline.hardware import DraftShape, Dtype
from paceline.report.predictions import (
    activations_dict,
    blend_dict,
    blend_text,
    forecast_dict,
    forecast_text,
    lesson_dict,
    lesson_text,
    memory_dict,
    memory_text,
)
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.blend import blend_by_generated_tokens
from paceline.speculation.method import Method, Speculation, Tree
from paceline.verdict import Estimate

HOSTILE = "ch\x1b[2Jat\n\u202e"
ESCAPED = "ch\\x1b[2Jat\\n\\u202e"


def estimate(value: float) -> Estimate:
    """A forecast's figure with a tenth around it."""
    return Estimate(value=value, low=value * 0.9, high=value * 1.1, confidence=0.95, n=0)


def row(concurrency: int, *, fit: int = 500, best: int | None = 2) -> ForecastRow:
    """One hand-made row."""
    return ForecastRow(
        concurrency=concurrency,
        context_tokens=625,
        step_time_ratio=estimate(1.5),
        tokens_per_step=2.5,
        speedup=estimate(2.5 / 1.5),
        break_even_alpha=estimate(0.5 / 3),
        best_draft_tokens=best,
        best_speedup=None if best is None else 1.7,
        bound=Bound.MEMORY,
        prefill_share=0.05,
        end_to_end_speedup=estimate(1.6),
        requests_that_fit=fit,
        plain_step_s=0.0105,
        speculative_step_s=0.01575,
    )


def lines_of(text: str) -> list[str]:
    """The text's lines, each free of what steers a terminal."""
    found = text.split("\n")
    assert all(each.isprintable() for each in found)
    return found


def test_the_lesson_has_both_models_and_says_where_the_textbook_stops() -> None:
    """1 + 5 · .7 = 4.5 tokens; over 1.1 that is 4.09; (2 · 1.1 − 1) / 5 = .24."""
    said = lesson(alpha=0.7, draft_tokens=5, overhead=0.1)
    body, lines = lesson_dict(said), lines_of(lesson_text(said))
    assert body["expected_tokens"] == pytest.approx(4.5)
    assert body["alpha_for"] == {"2": pytest.approx(0.24), "3": pytest.approx(0.46)}
    assert body["clears_floor"] is True
    assert [each["code"] for each in body["deviations"]] == [each.code for each in said.deviations]
    assert lines[2].split() == ["tokens", "per", "step", "4.50", "2.94"]
    assert lines[3].split()[-2:] == ["4.09×", "2.67×"]
    assert "textbook floor α ≥ 0.55: cleared" in lines
    assert any(each.startswith("! alpha_is_not_beta: ") for each in lines)
    assert any(each.startswith("· batch_one_is_best: ") for each in lines)


def test_what_no_acceptance_reaches_says_so() -> None:
    """A number above 1 or a blank would be read as an α to train for."""
    said = lesson(alpha=0.5, draft_tokens=1, overhead=0.5)
    assert lesson_dict(said)["alpha_for"]["3"] is None
    text = lesson_text(said)
    assert text.count("out of reach") >= 2
    assert "textbook floor α ≥ 0.55: not cleared" in text


def test_a_blend_shows_the_common_mistake_beside_the_pooled_rate() -> None:
    """K = 5: E = 1 / (.7/4.5 + .3/3) = 3.913, α = .583; averaged by tokens it would be .61."""
    segments = {"chat": Acceptance.from_alpha(0.7, draft_tokens=5), HOSTILE: Acceptance.from_alpha(0.4, draft_tokens=5)}
    shares = {"chat": 0.7, HOSTILE: 0.3}
    blended = blend_by_generated_tokens(segments, shares)
    body = blend_dict(blended, segments, shares, ratio=3.5)
    assert body["tokens_per_step"] == pytest.approx(1 / (0.7 / 4.5 + 0.3 / 3))
    assert body["alpha"] == pytest.approx((body["tokens_per_step"] - 1) / 5)
    assert body["alpha_weighted_by_generated_tokens"] == pytest.approx(0.61)
    assert [each["pays"] for each in body["segments"].values()] == [True, False]
    assert body["segments"]["chat"]["speedup"] == pytest.approx(4.5 / 3.5)
    lines = lines_of(blend_text(blended, segments, shares, ratio=3.5))
    assert lines[2].split() == ["chat", "70", "%", "0.700", "4.50", "1.29×", "yes"]
    assert lines[3].split() == [ESCAPED, "30", "%", "0.400", "3.00", "0.86×", "no"]
    assert lines[4].split() == ["all", "traffic", "100", "%", "0.583", "3.91", "1.12×", "yes"]
    assert lines[-1].endswith("0.583, not 0.610 (α averaged by generated tokens)")


def test_the_forecast_tells_given_from_predicted_and_who_does_not_fit() -> None:
    """A row for 256 in flight of which 100 fit is a row about a queue."""
    rows = (row(8), row(256, fit=100, best=None))
    told = (Condition(code="short_outputs", applies=True, message=HOSTILE), Condition(code="calm", applies=False, message="nothing"))
    body = forecast_dict(rows, told)
    assert body["rows"][0]["speedup"] == pytest.approx(
        {"value": 2.5 / 1.5, "low": 2.25 / 1.5, "high": 2.75 / 1.5, "confidence": 0.95, "n": 0}
    )
    assert body["rows"][0]["bound"] == "memory"
    assert (body["rows"][0]["tokens_per_step"], body["rows"][1]["best_draft_tokens"]) == (2.5, None)
    assert body["when_not"][1] == {"code": "calm", "applies": False, "message": "nothing"}
    lines = lines_of(forecast_text(rows, told))
    assert lines[2].split("  ")[0] == "8"
    assert "10.5 ms" in lines[2]
    assert lines[3].startswith("256 (only 100 fit)")
    assert " – " in lines[3]
    assert len({len(each) for each in lines[1:4]}) == 1, "columns line up"
    assert f"! short_outputs: {ESCAPED}" in lines
    assert "· calm: nothing" in lines


@pytest.mark.parametrize(
    ("low", "value", "high", "said"),
    [
        (0.5, 0.6, 0.9, "0.600 (0.500 to 0.900)"),
        (0.5, 0.6, 1.2, "0.600 (0.500 to never)"),
        (0.9, 1.3, 800.0, "never (0.900 to never)"),
        (1.1, 80.0, 800.0, "never pays"),
    ],
)
def test_a_break_even_above_one_is_said_in_words(low: float, value: float, high: float, said: str) -> None:
    """An α of 800 is a figure that nobody can train for."""
    even = Estimate(value=value, low=low, high=high, confidence=0.8, n=0)
    assert said in forecast_text([replace(row(8), break_even_alpha=even)], ())


def eagle() -> tuple[Speculation, DraftShape | None]:
    """EAGLE-3 heads for Llama-3.3-70B."""
    speculation = Speculation(method=Method.EAGLE3, draft_tokens=3, tree=None)
    return speculation, draft_shape(Method.EAGLE3, target=model("llama-3.3-70b"), draft=None, draft_vocab=32000)


def room(found: MemoryAnswer, speculation: Speculation) -> ActivationAnswer:
    """Activations of 256 requests and 8,192 tokens on two GPUs."""
    plain, speculative = (
        step_activations(
            model("llama-3.3-70b"),
            speculation=each,
            draft_vocab=32_000,
            step=LargestStep(requests=256, step_tokens=8192),
            gpus=2,
        )
        for each in (None, speculation)
    )
    return activation_answer(found, plain=plain, speculative=speculative, context_tokens=2000)


def test_the_memory_answer_counts_what_the_draft_costs() -> None:
    """A server sized without the head's 2.81 GB dies at its first long batch."""
    target = model("llama-3.3-70b")
    speculation, draft = eagle()
    assert draft is not None
    where = placed(target, gpu=gpu("h100"), gpus=2, dtype=Dtype.FP8)
    found = memory(target=target, draft=draft, speculation=speculation, where=where, context_tokens=2000, utilisation=0.9)
    body = memory_dict(found, draft)
    assert body["draft_bytes"] == 2 * draft.parameters + draft.integer_bytes
    assert body["requests_lost"] == body["plain_requests"] - body["speculative_requests"]
    lines = lines_of(memory_text(found, replace(draft, name=HOSTILE), room(found, speculation), context_tokens=2000, stored=False))
    assert lines[0] == f"{ESCAPED}: 1.403 B parameters, 2.81 GB in bf16"
    assert any(each.startswith("requests, activations taken out") for each in lines)
    assert any("they fit" in each for each in lines)
    assert lines[-1] == f"the draft costs {body['requests_lost']} of {body['plain_requests']} requests, 3 look-ahead slots each included"
    assert any(each.startswith("requests at 2,000 tokens") for each in lines)
    assert next(each for each in lines if each.startswith("target weights")).split()[-4:] == ["36.33", "GB", "36.33", "GB"]


def test_a_method_without_weights_costs_none() -> None:
    """n-gram drafting that is charged for a head would lose to one that needs it."""
    target = model("llama-3.3-70b")
    speculation = Speculation(method=Method.NGRAM, draft_tokens=3, tree=None)
    where = placed(target, gpu=gpu("h100"), gpus=2, dtype=Dtype.FP8)
    found = memory(target=target, draft=None, speculation=speculation, where=where, context_tokens=2000, utilisation=0.9)
    body = memory_dict(found, None)
    assert (body["draft"], body["draft_parameters"], body["draft_bytes"]) == (None, 0, 0)
    assert memory_text(found, None, room(found, speculation), context_tokens=2000, stored=False).startswith("nothing on the GPU\n")


def test_activations_are_shown_with_what_they_are_made_of() -> None:
    """A tree of 63 nodes verifies 64 rows of logits per request: 50 GB that nobody budgets for."""
    target = model("llama-3.3-70b")
    speculation, draft = eagle()
    tree = replace(speculation, draft_tokens=5, tree=Tree(depth=5, topk=8, nodes=63))
    where = placed(target, gpu=gpu("h100"), gpus=2, dtype=Dtype.FP8)
    found = memory(target=target, draft=draft, speculation=tree, where=where, context_tokens=2000, utilisation=0.9)
    answer = room(found, tree)
    body = activations_dict(answer)
    assert body["speculative"]["peak_bytes"] == answer.speculative.peak_bytes
    assert (body["fits_above"], body["above_bytes"]) == (False, found.above_bytes)
    assert "they do not fit" in memory_text(found, draft, answer, context_tokens=2000, stored=True)
    assert "as its files have it" in memory_text(found, draft, answer, context_tokens=2000, stored=True)
