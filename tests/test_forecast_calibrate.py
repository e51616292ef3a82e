"""Fitting an engine's triple: what went in comes out, two points are enough, and nothing is extrapolated in silence."""

from dataclasses import replace
from math import exp, hypot, log, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError, NoEvidenceError, UnknownNameError
from paceline.forecast.acceptance_model import exactly
from paceline.forecast.calibrate import (
    Calibration,
    Observation,
    Prior,
    Setting,
    Terms,
    calibrate,
    informed,
    predicted_ratio,
    priced,
    step_times,
)
from paceline.forecast.draft_memory import eagle_head
from paceline.forecast.engine_cost import EngineCost, engine_of_family, known_families, uncalibrated
from paceline.forecast.roofline import Placement
from paceline.forecast.shapes import gpu, model
from paceline.forecast.speedup import ForecastRow, Lengths, forecast
from paceline.forecast.step_cost import step_cost, step_seconds
from paceline.hardware import Dtype
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.method import Method, Speculation

TARGET = model("llama-3.1-8b")
H100 = Placement(gpu=gpu("h100"), gpus=1, dtype=Dtype.BF16)
HEAD = eagle_head(TARGET)
HAND = Terms(plain_s=0.006, verify_s=0.007, engine_s=0.001, draft_s=0.002, prefill_s=0.0, output_tokens=0, requests=4, draft_tokens=3)
ENGINE = EngineCost(overhead_s=0.001, draft_scale=1.5, efficiency=0.5, arithmetic=1.0)
WIDE = Prior(uncalibrated(1), 2.0, 2.0, 2.0)


def setting(requests: int, draft_tokens: int) -> Setting:
    """EAGLE on one H100."""
    return Setting(
        target=TARGET,
        where=H100,
        speculation=Speculation(Method.EAGLE, draft_tokens, None),
        draft=HEAD,
        requests=requests,
        context_tokens=700,
        prompt_tokens=None,
        output_tokens=None,
    )


def seen(terms: Terms, engine: EngineCost) -> Observation:
    """A server that behaves exactly like `engine`, its two step times measured."""
    plain_s, speculative_s = step_times(terms, engine)
    return Observation(terms=terms, ratio=None, tokens_per_step=1.0, plain_step_s=plain_s, speculative_step_s=speculative_s, weight=1.0)


def test_the_ratio_by_hand() -> None:
    """(7 / .5 + 1 + 1 + 1.5 · 2) / (6 / .5 + 1) = 19 / 13."""
    assert predicted_ratio(HAND, ENGINE, tokens_per_step=1.0, prefill_slowdown=0.3) == pytest.approx(19 / 13)


def test_the_ratio_of_whole_requests_by_hand() -> None:
    """Prefill of 26 ms at half speed is 52; ten tokens of 13 ms; E = 2: (2 · 52 · 1.25 + 10 · 19) / (52 + 130)."""
    whole = replace(HAND, prefill_s=0.026, output_tokens=10)
    found = predicted_ratio(whole, ENGINE, tokens_per_step=2.0, prefill_slowdown=0.25)
    assert found == pytest.approx((2 * 52 * 1.25 + 190) / 182)


def test_a_setting_is_priced_as_the_forecast_prices_it() -> None:
    """Two prices for one step would make every calibration wrong by their difference."""
    terms = priced(setting(8, 3))
    for engine in (uncalibrated(1), ENGINE):
        for speculation, own in zip((None, Speculation(Method.EAGLE, 3, None)), step_times(terms, engine), strict=True):
            cost = step_cost(
                target=TARGET,
                gpu=H100.gpu,
                gpus=1,
                dtype=H100.dtype,
                speculation=speculation,
                draft=HEAD,
                max_tokens=64,
                max_requests=8,
                engine=engine,
            )
            said = step_seconds(cost, requests=8, context_tokens=700, speculation=speculation, coverage=1.0)
            assert own == pytest.approx(said)


def test_whole_requests_have_a_prefill() -> None:
    """Throughput of short answers to long prompts is mostly prefill."""
    assert priced(setting(2, 3)).prefill_s == 0
    whole = priced(replace(setting(2, 3), prompt_tokens=1000, output_tokens=100))
    assert whole.prefill_s > 0.02
    assert whole.output_tokens == 100


@given(overhead=st.floats(0.0002, 0.004), draft=st.floats(0.5, 3), efficiency=st.floats(0.6, 1.2), requests=st.sampled_from([16, 64, 128]))
@settings(max_examples=15, deadline=None)
def test_a_triple_comes_back_from_what_it_produced(overhead: float, draft: float, efficiency: float, requests: int) -> None:
    """Then the fit answers for a concurrency and a K that it never saw, within 3 %."""
    truth = EngineCost(overhead_s=overhead, draft_scale=draft, efficiency=efficiency, arithmetic=1.0)
    points = [seen(priced(setting(*each)), truth) for each in ((1, 2), (requests, 2), (1, 5))]
    found = calibrate(points, prior=WIDE, spread=0.01, prefill_slowdown=0.0)
    assert found.error < 0.02
    unseen = priced(setting(32, 4))
    assert step_times(unseen, found.engine) == pytest.approx(step_times(unseen, truth), rel=0.03)


def test_two_points_are_enough_and_their_reach_is_kept() -> None:
    """What two short runs say, at two concurrencies."""
    truth = EngineCost(overhead_s=0.002, draft_scale=1.6, efficiency=0.9, arithmetic=1.0)
    found = calibrate(
        [seen(priced(setting(1, 3)), truth), seen(priced(setting(32, 3)), truth)], prior=WIDE, spread=0.02, prefill_slowdown=0.0
    )
    assert (found.n, found.requests, found.draft_tokens) == (2, (1, 32), (3, 3))
    assert found.error < 0.02
    assert found.extrapolations(requests=16, draft_tokens=3) == ()
    assert len(found.extrapolations(requests=64, draft_tokens=5)) == 2
    assert "1 to 32" in found.extrapolations(requests=64, draft_tokens=3)[0]
    assert "the calibrated 3;" in found.extrapolations(requests=1, draft_tokens=5)[0]


def test_a_calibrated_forecast_takes_the_triple_and_the_range_of_the_fit() -> None:
    """A range of its own server's error, wider at a concurrency that was not calibrated."""
    rows = forecast_with(OWN, concurrencies=(8, 9))
    inside, outside = rows
    plain_s, speculative_s = step_times(priced(setting(8, 3)), ENGINE)
    assert [inside.plain_step_s, inside.speculative_step_s] == pytest.approx([plain_s, speculative_s])
    assert inside.step_time_ratio.n == 4
    assert (inside.step_time_ratio.high or 0) / inside.step_time_ratio.value == pytest.approx(exp(1.28 * 0.05))
    assert (outside.step_time_ratio.high or 0) / outside.step_time_ratio.value > 1.0661
    assert (inside.warnings, len(outside.warnings)) == ((), 1)


OWN = Calibration(engine=ENGINE, error=0.05, n=4, requests=(1, 8), draft_tokens=(3, 3), freed=("efficiency",), measured=((1, 3), (8, 3)))


def forecast_with(calibration: Calibration | None, *, concurrencies: tuple[int, ...]) -> tuple[ForecastRow, ...]:
    """EAGLE on one H100, three drafts."""
    return forecast(
        target=TARGET,
        where=H100,
        speculation=Speculation(Method.EAGLE, 3, None),
        draft=HEAD,
        acceptance=exactly(Acceptance.from_alpha(0.5, draft_tokens=3)),
        concurrencies=concurrencies,
        lengths=Lengths(prompt_tokens=500, output_tokens=400, context_tokens=700),
        draft_lengths=(1, 3),
        utilisation=0.9,
        calibration=calibration,
    )


def width(calibration: Calibration, requests: int, draft_tokens: int) -> float:
    """Half of the range of ln ρ, beside published points that err by .2."""
    return calibration.half_width(requests=requests, draft_tokens=draft_tokens, published_error=0.2, warnings=0)


def test_a_range_by_hand() -> None:
    """At 64 requests, eight times the most that was measured: one unit beyond the box, and half of it to the nearest point."""
    assert width(OWN, 8, 3) == pytest.approx(1.28 * 0.05)
    assert width(OWN, 64, 3) == pytest.approx(1.28 * sqrt(0.05**2 + (1 - exp(-(1.5**2) / 2)) * 0.2**2))
    assert width(OWN, 8, 7) == pytest.approx(width(OWN, 64, 3)), "twice the verified tokens are as far as eight times the requests"
    assert OWN.half_width(requests=8, draft_tokens=3, published_error=0.2, warnings=2) == pytest.approx(1.28 * 0.05 * 1.5**2)


def test_a_familys_range_is_that_of_its_published_points_and_wider_beyond_their_reach() -> None:
    """Half as wide again past their concurrency, and again past their draft length."""
    family = replace(OWN, measured=None, error=0.19)
    assert width(family, 8, 3) == pytest.approx(1.28 * 0.19)
    assert width(family, 9, 4) == pytest.approx(1.28 * 0.19 * 1.5**2)


@given(requests=st.lists(st.integers(8, 4000), min_size=2, max_size=2), draft_tokens=st.integers(1, 8))
@settings(max_examples=40, deadline=None)
def test_a_range_never_narrows_away_from_what_was_measured(requests: list[int], draft_tokens: int) -> None:
    """A calibration at eight in flight would vouch for a thousand."""
    near, far = sorted(requests)
    assert width(OWN, near, draft_tokens) <= width(OWN, far, draft_tokens) <= 1.28 * hypot(0.05, 0.2) + 1e-12


def test_plain_steps_alone_leave_the_range_as_wide_as_without_them() -> None:
    """Nothing measured of drafting is no evidence about drafting."""
    plain = [replace(seen(priced(setting(each, 3)), ENGINE), speculative_step_s=None) for each in (1, 8)]
    found = calibrate(plain, prior=WIDE, spread=0.03, prefill_slowdown=0.0)
    assert found.measured == ()
    assert width(found, 8, 3) >= 1.28 * 0.2
    for own, without in zip(forecast_with(found, concurrencies=(1, 8)), forecast_with(None, concurrencies=(1, 8)), strict=True):
        ranges = [(each.step_time_ratio.high or 0) / each.step_time_ratio.value for each in (own, without)]
        assert ranges[0] >= ranges[1]


def test_a_ratio_is_measured_where_both_arms_are() -> None:
    """Run files hold one arm each."""
    plain, drafted = (priced(setting(each, 3)) for each in (1, 8))
    both = [
        replace(seen(plain, ENGINE), speculative_step_s=None),
        replace(seen(plain, ENGINE), plain_step_s=None),
        replace(seen(drafted, ENGINE), plain_step_s=None),
    ]
    assert calibrate(both, prior=WIDE, spread=0.03, prefill_slowdown=0.0).measured == ((1, 3),)


def test_the_error_is_that_of_the_ratio_where_two_steps_err_apart() -> None:
    """A plain step 3 % too short and a speculative one 3 % too long are 6 % of ρ."""
    stiff = Prior(ENGINE, 1e-4, 1e-4, 1e-4)
    off = replace(seen(HAND, ENGINE), plain_step_s=0.013 * 1.03, speculative_step_s=0.019 / 1.03)
    assert calibrate([off], prior=stiff, spread=1.0, prefill_slowdown=0.0).error == pytest.approx(2 * log(1.03), rel=1e-3)


@pytest.mark.parametrize(
    ("points", "told"),
    [
        ([("plain_step_s", 1, 3), ("plain_step_s", 32, 3)], ("efficiency",)),
        ([("both", 1, 3)], ("draft_scale", "efficiency")),
        ([("both", 1, 3), ("both", 32, 3)], ("draft_scale", "efficiency")),
        ([("both", 1, 1), ("both", 1, 2), ("both", 1, 8)], ("overhead_s", "draft_scale", "efficiency")),
        ([("ratio", 1, 3)], ("draft_scale",)),
    ],
)
def test_only_what_the_points_tell_is_moved(points: list[tuple[str, int, int]], told: tuple[str, ...]) -> None:
    """Three coefficients from two numbers are a guess that looks like a fit."""
    made = []
    for kind, requests, draft_tokens in points:
        one = seen(priced(setting(requests, draft_tokens)), ENGINE)
        if kind == "plain_step_s":
            one = replace(one, speculative_step_s=None)
        if kind == "ratio":
            one = replace(one, ratio=1.5, plain_step_s=None, speculative_step_s=None)
        made.append(one)
    assert informed(made, prior=Prior(uncalibrated(1), 1.0, 0.5, 0.3), spread=0.03) == told


def test_a_fit_of_nothing_is_refused() -> None:
    """A triple from no points would be the prior in disguise."""
    with pytest.raises(NoEvidenceError, match="nothing was measured"):
        calibrate([], prior=WIDE, spread=0.1, prefill_slowdown=0.0)


@pytest.mark.parametrize(
    ("change", "said"), [({"plain_step_s": None}, "neither"), ({"ratio": -1.0}, "above 0"), ({"weight": 0.0}, "above 0")]
)
def test_an_observation_of_nothing_possible_is_refused(change: dict[str, float | None], said: str) -> None:
    """One damaged point would bend the whole fit."""
    stated: dict[str, float | None] = {
        "ratio": None,
        "tokens_per_step": 1.0,
        "plain_step_s": 0.01,
        "speculative_step_s": None,
        "weight": 1.0,
        **change,
    }
    with pytest.raises(BadInputError, match=said):
        Observation(terms=HAND, **stated)  # type: ignore[arg-type]  # a table of arguments


@pytest.mark.parametrize("change", [{"overhead_s": -1.0}, {"draft_scale": 0.0}, {"efficiency": float("nan")}])
def test_a_triple_that_no_engine_has_is_refused(change: dict[str, float]) -> None:
    """An efficiency of nothing would divide by zero far away."""
    with pytest.raises(BadInputError, match=next(iter(change)).split("_")[0]):
        replace(ENGINE, **change)


def test_each_known_family_has_a_triple() -> None:
    """A family in the help that is not in the table would end in a traceback."""
    assert known_families() == ("vllm", "sglang", "hf", "llama.cpp")
    for name in known_families():
        assert 0 < engine_of_family(name).overhead_s < 0.01
    with pytest.raises(UnknownNameError, match="vllm"):
        engine_of_family("vlm")
    assert uncalibrated(4).overhead_s > uncalibrated(1).overhead_s
