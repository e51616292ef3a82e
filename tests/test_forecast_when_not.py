"""The textbook's reasons not to draft, on numbers where each does and does not apply."""

from dataclasses import replace

import pytest

from paceline.forecast.acceptance_model import exactly as without_doubt
from paceline.forecast.roofline import Placement
from paceline.forecast.shapes import gpu, model
from paceline.forecast.speedup import Bound, ForecastRow, Lengths, forecast
from paceline.forecast.when_not import Condition, Pairing, when_not
from paceline.hardware import Dtype
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.method import Method, Speculation
from paceline.verdict import Estimate

TARGET = model("llama-3.1-8b")
LENGTHS = Lengths(prompt_tokens=500, output_tokens=400, context_tokens=700)
OWN = Pairing(trained_for=None, draft_vocab=None, profile_label=None, replayed=None)


def exactly(value: float) -> Estimate:
    """An estimate without a range."""
    return Estimate(value=value, low=value, high=value, confidence=0.8, n=0)


def forecast_row(*, alpha: float = 0.6, concurrency: int = 8, coverage: float = 1.0) -> ForecastRow:
    """An n-gram forecast on one H100."""
    return forecast(
        target=TARGET,
        where=Placement(gpu=gpu("h100"), gpus=1, dtype=Dtype.BF16),
        speculation=Speculation(Method.NGRAM, 3, None),
        draft=None,
        acceptance=without_doubt(replace(Acceptance.from_alpha(alpha, draft_tokens=3), coverage=coverage)),
        concurrencies=[concurrency],
        lengths=LENGTHS,
        draft_lengths=[3],
        utilisation=0.9,
    )[0]


ROW = forecast_row()


def found(row: ForecastRow = ROW, *, lengths: Lengths = LENGTHS, pairing: Pairing = OWN) -> dict[str, Condition]:
    """The conditions by code."""
    return {each.code: each for each in when_not(row=row, lengths=lengths, target=TARGET, pairing=pairing)}


def test_nothing_applies_to_a_case_that_pays() -> None:
    """A warning without reason keeps people from what would help them."""
    assert not [code for code, each in found().items() if each.applies]


def test_short_outputs_are_judged_by_their_prefill() -> None:
    """Below 50 tokens, or wherever prefill is most of the time; the message carries both speed-ups."""
    assert found(lengths=replace(LENGTHS, output_tokens=30))["short_outputs"].applies
    said = found(replace(ROW, prefill_share=0.62, end_to_end_speedup=exactly(1.21)))["short_outputs"]
    assert said.applies
    assert "62%" in said.message
    assert "1.21x" in said.message


def test_acceptance_from_a_profile_is_called_borrowed() -> None:
    """The commonest way to ship something that does not pay: the benchmark's α on one's own traffic."""
    said = found(pairing=replace(OWN, profile_label="general head"))["domain_without_its_own_head"]
    assert said.applies
    assert "general head" in said.message
    assert "Break-even α is" in said.message
    nothing = forecast_row(coverage=0.0)
    assert "Nothing is drafted" in found(nothing, pairing=replace(OWN, profile_label="x"))["domain_without_its_own_head"].message


def test_acceptance_replayed_with_this_very_draft_is_not_called_stated() -> None:
    """Whoever trained a head on this traffic and replayed it there: doubts about the head contradict what they measured."""
    said = found(pairing=replace(OWN, replayed="replayed, from head.json"))["domain_without_its_own_head"]
    assert not said.applies
    assert "replayed with this very draft ('replayed, from head.json')" in said.message


@pytest.mark.parametrize(
    ("pairing", "applies", "said"),
    [
        (replace(OWN, trained_for="Llama-3.3-70B"), True, "hidden states"),
        (replace(OWN, trained_for="LLAMA-3.1-8b"), False, "Nothing known"),
        (replace(OWN, draft_vocab=151_936), True, "tokenizer"),
        (replace(OWN, draft_vocab=128_256), False, "not stated"),
        (OWN, False, "not stated"),
        (replace(OWN, replayed="replayed, from head.json"), False, "belong together"),
    ],
)
def test_a_draft_of_another_target_is_found(pairing: Pairing, applies: bool, said: str) -> None:
    """A head of another target loads without error and accepts next to nothing."""
    answer = found(pairing=pairing)["draft_of_another_target"]
    assert answer.applies is applies
    assert said in answer.message


def test_batch_one_is_never_a_reason() -> None:
    """The textbook has this one backwards."""
    row = forecast_row(concurrency=1)
    assert not found(row)["offline_batch_one"].applies
    assert f"{row.speedup.value:.2f}x" in found(row)["offline_batch_one"].message


def test_high_concurrency_applies_where_compute_binds() -> None:
    """With the break-even at that batch, not a constant."""
    said = found(replace(ROW, bound=Bound.COMPUTE, break_even_alpha=exactly(0.44)))["high_concurrency"]
    assert said.applies
    assert "0.44" in said.message


def test_below_break_even_says_what_would_be_needed() -> None:
    """A slowdown must be said first and with its figures."""
    losing = replace(ROW, speedup=exactly(0.8), break_even_alpha=exactly(1.3))
    ordered = when_not(row=losing, lengths=LENGTHS, target=TARGET, pairing=OWN)
    assert ordered[0].code == "below_break_even"
    assert "drafting never pays here, at any acceptance" in ordered[0].message
    undrafted = forecast_row(coverage=0.0)
    assert "nothing is drafted" in found(undrafted)["below_break_even"].message


def test_memory_is_tight_before_it_is_short() -> None:
    """At 10 requests that fit, 8 are tight and 12 do not fit at all."""
    tight = found(replace(ROW, concurrency=8, requests_that_fit=9))["memory_tight"]
    short = found(replace(ROW, concurrency=12, requests_that_fit=9))["memory_tight"]
    assert tight.applies
    assert "preempted" not in tight.message
    assert short.applies
    assert "preempted" in short.message
