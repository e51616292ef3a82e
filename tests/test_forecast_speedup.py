"""What drafting would buy: identities, then trends that measurements show."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import exp, hypot, log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError
from paceline.forecast.acceptance_model import RangedAcceptance, exactly
from paceline.forecast.draft_memory import draft_shape
from paceline.forecast.engine_cost import published_error
from paceline.forecast.roofline import Placement
from paceline.forecast.shapes import gpu, model
from paceline.forecast.speedup import Bound, ForecastRow, Lengths, forecast
from paceline.hardware import Dtype
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.method import Method, Speculation, Tree
from tests.strategies import acceptances

LENGTHS = Lengths(prompt_tokens=500, output_tokens=400, context_tokens=700)
H100 = Placement(gpu=gpu("h100"), gpus=1, dtype=Dtype.BF16)
UNMEASURED = replace(H100, gpu=replace(gpu("h100"), name="somebody's own"))
LOADS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def rows(
    acceptance: Acceptance | RangedAcceptance,
    *,
    target: str = "llama-3.1-8b",
    where: Placement = H100,
    method: Method = Method.EAGLE3,
    tree: Tree | None = None,
    lengths: Lengths = LENGTHS,
    concurrencies: Sequence[int] = LOADS,
    draft_lengths: Sequence[int] = range(1, 9),
) -> tuple[ForecastRow, ...]:
    """A forecast with the head that belongs to the method."""
    shape = model(target)
    K = (acceptance.value if isinstance(acceptance, RangedAcceptance) else acceptance).draft_tokens
    return forecast(
        target=shape,
        where=where,
        speculation=Speculation(method, K, tree),
        draft=draft_shape(method, target=shape, draft=model("llama-3.2-1b"), draft_vocab=32_000),
        acceptance=acceptance if isinstance(acceptance, RangedAcceptance) else exactly(acceptance),
        concurrencies=concurrencies,
        lengths=lengths,
        draft_lengths=draft_lengths,
        utilisation=0.9,
    )


def test_the_8b_model_on_an_h100_at_batch_1() -> None:
    """With 2.39 tokens per step vLLM measured 1.73 times (arXiv 2601.11580, EAGLE, GSM8K), so ρ = 1.38; an EAGLE-3 head is no dearer."""
    (row,) = rows(Acceptance.from_acceptance_length(2.394, draft_tokens=3), concurrencies=[1])
    assert row.step_time_ratio.value == pytest.approx(1.38, abs=0.03)
    assert row.speedup.value == pytest.approx(1.73, abs=0.04)
    assert row.tokens_per_step == pytest.approx(2.394)
    assert row.bound is Bound.MEMORY
    assert row.plain_step_s == pytest.approx(6.6e-3, abs=0.1e-3)


def test_break_even_falls_where_the_speedup_is_one() -> None:
    """An α just at the break-even must neither gain nor lose."""
    (row,) = rows(Acceptance.from_alpha(0.5, draft_tokens=3), concurrencies=[64])
    assert row.break_even_alpha is not None
    (even,) = rows(Acceptance.from_alpha(row.break_even_alpha.value, draft_tokens=3), concurrencies=[64])
    assert even.speedup.value == pytest.approx(1.0)


def test_a_range_of_the_step_time_gives_the_ranges_of_the_rest() -> None:
    """1.28 times the error of published points in ln ρ, a quarter more where kernels were not measured; n is 0."""
    for where, widening in ((H100, 1.0), (UNMEASURED, 1.25)):
        (row,) = rows(Acceptance.from_alpha(0.6, draft_tokens=3), where=where, concurrencies=[32])
        ratio, speedup = row.step_time_ratio, row.speedup
        assert ratio.low is not None
        assert ratio.high is not None
        width = exp(1.28 * widening * published_error())
        assert ratio.high == pytest.approx(ratio.value * width)
        assert ratio.low == pytest.approx(max(1.0, ratio.value / width))
        assert (speedup.low, speedup.high) == pytest.approx((2.8 / ratio.high, 2.8 / ratio.low))
        assert ratio.n == 0


def test_at_256_requests_of_the_70b_model_only_high_acceptance_pays() -> None:
    """Break-even .68 at 200 tokens of context, .59 at 700, on 4 H100 in fp8."""
    where = Placement(gpu=gpu("h100"), gpus=4, dtype=Dtype.FP8)
    lengths = replace(LENGTHS, context_tokens=200)
    (row,) = rows(Acceptance.from_alpha(0.5, draft_tokens=3), target="llama-3.3-70b", where=where, concurrencies=[256], lengths=lengths)
    assert row.break_even_alpha is not None
    assert row.break_even_alpha.value == pytest.approx(0.68, abs=0.08)
    assert row.speedup.value < 1
    assert row.bound is Bound.COMPUTE


def test_over_pcie_the_all_reduces_bind() -> None:
    """Four L40S spend their step on the bus at 32 requests."""
    where = Placement(gpu=gpu("l40s"), gpus=4, dtype=Dtype.FP8)
    (row,) = rows(Acceptance.from_alpha(0.5, draft_tokens=3), target="llama-3.3-70b", where=where, concurrencies=[32])
    assert row.bound is Bound.COMMUNICATION


def test_a_tiny_target_is_bound_by_overhead() -> None:
    """135 M weights take .1 ms, the engine and the head's passes 2.6 ms: of 2.5 tokens per step little is left on a large GPU."""
    (row,) = rows(Acceptance.from_alpha(0.5, draft_tokens=3), target="smollm2-135m", concurrencies=[1])
    assert row.bound is Bound.OVERHEAD
    assert row.speedup.value < 1.25


def test_short_outputs_gain_less_because_of_prefill() -> None:
    """A user who asks for 20 tokens after 4,000 of prompt sees the prefill, not the drafts."""
    acceptance = Acceptance.from_alpha(0.6, draft_tokens=3)
    (short,) = rows(acceptance, lengths=Lengths(prompt_tokens=4000, output_tokens=20, context_tokens=4010), concurrencies=[8])
    (long,) = rows(acceptance, lengths=Lengths(prompt_tokens=4000, output_tokens=2000, context_tokens=5000), concurrencies=[8])
    assert short.prefill_share > 0.75
    assert long.prefill_share < 0.3
    assert short.end_to_end_speedup.value < 1.1
    assert long.end_to_end_speedup.value > 1.5
    assert long.end_to_end_speedup.value < long.speedup.value


def test_one_output_token_is_all_prefill_and_gains_nothing() -> None:
    """The draft's own prefill even costs a little."""
    (row,) = rows(
        Acceptance.from_alpha(0.9, draft_tokens=3),
        lengths=Lengths(prompt_tokens=1000, output_tokens=1, context_tokens=1000),
        concurrencies=[4],
    )
    assert row.prefill_share == 1.0
    assert 0.9 < row.end_to_end_speedup.value < 1.0


def test_a_lookup_that_rarely_matches_costs_and_gains_little() -> None:
    """Coverage .1 at 60 %: E = 1 + .1 · 3 · .6 = 1.18, and ρ stays near 1."""
    (row,) = rows(replace(Acceptance.from_alpha(0.6, draft_tokens=3), coverage=0.1), method=Method.NGRAM, concurrencies=[1])
    assert row.tokens_per_step == pytest.approx(1.18)
    assert row.step_time_ratio.value == pytest.approx(1.01, abs=0.01)
    assert row.break_even_alpha is not None
    assert row.break_even_alpha.value == pytest.approx((row.step_time_ratio.value - 1) / (0.1 * 3))


def test_drafts_that_never_happen_have_no_break_even() -> None:
    """α is accepted over drafted; with nothing drafted there is none."""
    (row,) = rows(replace(Acceptance.from_alpha(0.6, draft_tokens=3), coverage=0.0), method=Method.NGRAM, concurrencies=[4])
    assert row.break_even_alpha is None
    assert row.speedup.value <= 1


def test_a_tree_has_no_best_chain_length() -> None:
    """Lengths of chains are no answer to somebody who drafts a tree."""
    tree = Tree(depth=3, topk=4, nodes=20)
    (row,) = rows(Acceptance.from_alpha(0.6, draft_tokens=3), tree=tree, concurrencies=[1])
    assert (row.best_draft_tokens, row.best_speedup) == (None, None)


def test_requests_that_fit_are_those_of_the_memory_answer() -> None:
    """A forecast at a concurrency that cannot be held must be recognisable."""
    (row,) = rows(Acceptance.from_alpha(0.6, draft_tokens=3), concurrencies=[1], lengths=replace(LENGTHS, context_tokens=2000))
    assert row.requests_that_fit == 203


@pytest.mark.parametrize(
    "change",
    [
        {"concurrencies": []},
        {"concurrencies": [0]},
        {"concurrencies": [5000]},
        {"draft_lengths": []},
        {"draft_lengths": [0]},
        {"draft_lengths": [65]},
        {"target": "llama-3.3-70b"},
    ],
)
def test_what_cannot_be_forecast_is_refused(change: dict[str, object]) -> None:
    """A batch of none, drafts of none, and 141 GB on one H100."""
    with pytest.raises(BadInputError):
        rows(Acceptance.from_alpha(0.6, draft_tokens=3), **change)  # type: ignore[arg-type]  # a table of arguments


def test_acceptance_for_another_draft_length_is_refused() -> None:
    """α at K = 5 read at K = 3 overstates nothing and understates everything."""
    shape = model("llama-3.1-8b")
    with pytest.raises(BadInputError, match="draft length 5"):
        forecast(
            target=shape,
            where=H100,
            speculation=Speculation(Method.NGRAM, 3, None),
            draft=None,
            acceptance=exactly(Acceptance.from_alpha(0.5, draft_tokens=5)),
            concurrencies=[1],
            lengths=LENGTHS,
            draft_lengths=[3],
            utilisation=0.9,
        )


@pytest.mark.parametrize("field", ["prompt_tokens", "output_tokens", "context_tokens"])
@pytest.mark.parametrize("value", [0, -5, 1_000_001])
def test_lengths_out_of_range_are_refused(field: str, value: int) -> None:
    """A prompt of ten million tokens would exhaust memory, not answer."""
    with pytest.raises(BadInputError, match=field):
        replace(LENGTHS, **{field: value})


methods = st.sampled_from([Method.EAGLE3, Method.EAGLE, Method.DRAFT_MODEL, Method.NGRAM, Method.MTP])


@given(acceptance=acceptances(), method=methods, requests=st.integers(1, 300), where=st.sampled_from([H100, UNMEASURED]))
@settings(max_examples=60, deadline=None)
def test_no_speedup_exceeds_the_tokens_per_step(acceptance: Acceptance, method: Method, requests: int, where: Placement) -> None:
    """A forecast above E promises what no server can show."""
    (row,) = rows(acceptance, method=method, where=where, concurrencies=[requests])
    for each in (row.speedup, row.end_to_end_speedup):
        assert each.high is not None
        assert each.high <= row.tokens_per_step * (1 + 1e-12)
    assert row.best_speedup is not None
    if acceptance.draft_tokens <= 8:
        assert row.best_speedup >= row.speedup.value * (1 - 1e-12)
    assert 0 < row.prefill_share <= 1


@given(beta=st.floats(0.2, 0.9), context=st.integers(100, 3000))
@settings(max_examples=25, deadline=None)
def test_past_the_ridge_the_speedup_falls_and_so_does_the_best_length(beta: float, context: int) -> None:
    """The reason to switch drafting off, or shorten it, when a server fills up."""
    found = rows(Acceptance.from_conditional(beta, draft_tokens=3), where=UNMEASURED, lengths=replace(LENGTHS, context_tokens=context))
    full = [row for row in found if row.concurrency * 4 >= 256]  # below it a longer context spreads the draft's own cost, and K may rise
    speedups = [row.speedup.value for row in full]
    assert speedups == sorted(speedups, reverse=True)
    best = [row.best_draft_tokens for row in full]
    assert all(after is not None and before is not None and after <= before for before, after in pairwise(best))


@given(beta=st.floats(0.2, 0.9))
@settings(max_examples=10, deadline=None)
def test_on_measured_kernels_a_best_length_that_rises_with_batch_is_a_tie(beta: float) -> None:
    """Kernel timings are noisy by a few percent; nobody should read more into a longer draft at a larger batch."""
    acceptance = Acceptance.from_conditional(beta, draft_tokens=3)
    found = rows(acceptance)
    for before, after in pairwise(found):
        assert before.best_draft_tokens is not None
        assert after.best_draft_tokens is not None
        assert after.best_speedup is not None
        if after.best_draft_tokens > before.best_draft_tokens:
            (kept,) = rows(acceptance.at(before.best_draft_tokens), concurrencies=[after.concurrency])
            assert after.best_speedup <= kept.speedup.value * 1.03
    assert (found[-1].best_draft_tokens or 0) <= (found[0].best_draft_tokens or 0)


def test_the_range_of_a_speed_up_holds_that_of_acceptance() -> None:
    """α of a replay is an interval: the forecast of it must not be surer than both its causes, which err independently."""
    value, low, high = (Acceptance.from_alpha(alpha, draft_tokens=3) for alpha in (0.5, 0.4, 0.62))
    given = RangedAcceptance(value=value, low=low, high=high, label="", confidence=0.95, n=20)
    (sure,), (doubtful,) = rows(value, concurrencies=[8]), rows(given, concurrencies=[8])
    assert (doubtful.step_time_ratio, doubtful.tokens_per_step) == (sure.step_time_ratio, sure.tokens_per_step)
    ours, plain = doubtful.speedup, sure.speedup
    assert ours.value == plain.value
    assert None not in (ours.low, ours.high, plain.low, plain.high)
    assert log(ours.value / (ours.low or 0)) == pytest.approx(hypot(log(plain.value / (plain.low or 0)), log(2.5 / 2.2)))
    assert log((ours.high or 0) / ours.value) == pytest.approx(hypot(log((plain.high or 0) / plain.value), log(2.86 / 2.5)))
    whole, alone = doubtful.end_to_end_speedup, sure.end_to_end_speedup
    assert (whole.low or 0) < (alone.low or 0) < (alone.high or 0) < (whole.high or 0)
