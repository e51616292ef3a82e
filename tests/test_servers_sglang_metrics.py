"""What SGLang's gauges and its one speculation counter allow to say."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import BadInputError
from paceline.run import Arm
from paceline.servers.counters import Counters
from paceline.servers.measured_run import to_run
from paceline.servers.prometheus_text import parse_exposition
from paceline.servers.sglang.accept_rate import rate_meaning
from paceline.servers.sglang.metrics import is_sglang, read_counters, window
from paceline.servers.window import Window

DUMPS = Path(__file__).parent / "data" / "dumps"
BY_ENGINE = """\
sglang:spec_accept_length{engine_type="draft",model_name="draft-model",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 2.7
sglang:spec_accept_length{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 2.8
sglang:spec_accept_length{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="1"} 2.8
sglang:spec_accept_rate{engine_type="draft",model_name="draft-model",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 0.5
sglang:spec_accept_rate{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 0.6
"""


def read(text: str) -> Counters:
    return read_counters(parse_exposition(text).samples, model=None)


def gauges(length: float, rate: float | None = None, *, dp_rank: int = 0, generated: int | None = None, running: int = 1) -> str:
    labels = f'{{dp_rank="{dp_rank}",model_name="m",tp_rank="0"}}'
    lines = [f"sglang:spec_accept_length{labels} {length}", f"sglang:num_running_reqs{labels} {running}"]
    lines += [] if rate is None else [f"sglang:spec_accept_rate{labels} {rate!r}"]
    lines += [] if generated is None else [f'sglang:generation_tokens_total{{model_name="m"}} {generated}']
    return "\n".join(lines) + "\n"


def counters(*, verified: int, generated: int, requests: int, width: int | None = 4, steps: int = 3) -> str:
    lines = [
        f'sglang:spec_verify_calls_total{{model_name="m"}} {verified}',
        f'sglang:generation_tokens_total{{model_name="m"}} {generated}',
        f'sglang:num_requests_total{{model_name="m"}} {requests}',
    ]
    if width is not None:
        lines += [f'sglang:spec_num_draft_tokens{{model_name="m",tp_rank="0"}} {width}']
        lines += [f'sglang:spec_num_steps{{model_name="m",tp_rank="0"}} {steps}']
    return "\n".join(lines) + "\n"


def codes(of: Window) -> list[str]:
    return [each.code for each in of.cautions]


def test_the_leading_rank_of_the_serving_engine_is_read() -> None:
    """Whoever sums over ranks and engines: 2.7 + 2.8 + 2.8 is no acceptance length. (2.8 − 1) / .6 = 3 drafts per step."""
    run = to_run(window([read(BY_ENGINE)]), arm=None, inputs={}, window_s=None)
    figures = {name: (each.value, each.statistic) for name, each in run.summaries.items()}
    assert figures["acceptance_length"] == (2.8, "last")
    assert figures["draft_tokens"] == (3.0, "configured")
    assert run.summaries["alpha"].value == pytest.approx(0.6)
    assert run.acceptance_by_segment is None
    assert run.arm is Arm.SPECULATIVE
    assert run.provenance.arguments["model"] == "m"
    assert [each.code for each in run.cautions] == ["gauge_of_last_batches"]


def test_gauges_of_zero_are_speculation_off() -> None:
    """Whoever gates a server without drafts: not active is not an acceptance of 0, and the arm is the baseline."""
    off = window([read((DUMPS / "sglang-speculation-off.prom").read_text(encoding="utf-8"))])
    run = to_run(off, arm=None, inputs={}, window_s=None)
    assert run.arm is Arm.BASELINE
    assert run.acceptance_by_segment is None
    assert list(run.summaries) == ["requests_running"]
    assert codes(off) == ["speculation_off"]


def test_a_server_without_speculation_s_series_is_a_plain_one() -> None:
    """Whoever scrapes an older server: its tokens are there, and nothing of acceptance."""
    plain = window([read((DUMPS / "sglang-production.prom").read_text(encoding="utf-8"))])
    assert (plain.generation_tokens, plain.prompt_tokens, plain.speculates) == (7557572, 8128902, False)
    assert (plain.acceptance, plain.alpha, plain.step_seconds, codes(plain)) == (None, None, None, [])


def test_verify_calls_make_a_window_of_the_counters() -> None:
    """Whoever compares SGLang with vLLM: (109 − 9) / 40 = 2.5 tokens per verify call, 60 accepted of 40 · 3 drafted."""
    counted = window([read((DUMPS / "sglang-verify-calls.prom").read_text(encoding="utf-8"))])
    counts = counted.acceptance
    assert counts is not None
    assert (counts.drafts, counts.drafted_tokens, counts.accepted_tokens) == (40, 120, 60)
    assert (counts.steps, counts.accepted_per_position) == (None, None)
    run = to_run(counted, arm=None, inputs={}, window_s=None)
    assert run.summaries["tokens_per_step_emitted"].value == pytest.approx(2.5)
    assert run.summaries["token_gap_s"].value == pytest.approx(0.015)
    assert run.summaries["ttft_s"].value == pytest.approx(0.1)
    assert run.step_seconds is None
    assert codes(counted) == ["derived_acceptance"]


def test_the_difference_of_two_scrapes_leaves_the_warm_up_out() -> None:
    """Whoever warmed the server up: 100 verify calls before do not count; (250 − 10 − 80) of 80 · 3 after."""
    before, after = counters(verified=100, generated=150, requests=50), counters(verified=180, generated=400, requests=60)
    counts = window([read(before), read(after)]).acceptance
    assert counts is not None
    assert (counts.drafts, counts.accepted_tokens, counts.drafted_tokens) == (80, 160, 240)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (counters(verified=40, generated=109, requests=9, width=None), "states no draft width"),
        (counters(verified=40, generated=109, requests=9, width=8, steps=3), "a tree"),
        (counters(verified=40, generated=309, requests=9), "more was accepted"),
        (counters(verified=40, generated=109, requests=9, width=1, steps=0), "states no draft width"),
    ],
)
def test_what_is_no_chain_of_known_width_has_a_length_and_no_rate(text: str, why: str) -> None:
    """Whoever runs a tree: 60 accepted of 40 · 7 nodes verified is no acceptance rate of a chain."""
    counted = window([read(text)])
    assert counted.acceptance is None
    assert counted.alpha is None
    assert counted.stated["acceptance_length"].n == 40
    assert counted.stated["acceptance_length"].value == pytest.approx((counted.generation_tokens or 0) / 40 - 9 / 40)
    assert codes(counted) == ["no_alpha"]
    assert why in counted.cautions[0].message


def test_requests_under_way_leave_no_negative_acceptance() -> None:
    """Whoever scrapes a busy server for a second: verify calls of long requests end in the window, their tokens are from before."""
    assert window([read(counters(verified=40, generated=30, requests=9))]).acceptance is None


@pytest.mark.parametrize(
    ("length", "rate", "width", "alpha", "rate_is_alpha"),
    [(2.17, 2.17 / 4, 4, 0.39, False), (1.95, 1.95 / 4, 4, 0.317, False), (2.8, 0.6, 4, 0.6, True), (1.0, 0.2, 5, 0.0, False)],
)
def test_the_rate_is_read_by_its_own_version_s_definition(
    length: float, rate: float, width: int, alpha: float, *, rate_is_alpha: bool
) -> None:
    """Whoever upgrades past 0.5.11: a rate of .54 becomes .39 at the same acceptance."""
    meaning = rate_meaning([(length, rate)])
    assert meaning is not None
    assert (meaning.width, meaning.rate_is_alpha) == (width, rate_is_alpha)
    assert meaning.alpha(length) == pytest.approx(alpha, abs=5e-4)


@pytest.mark.parametrize(("length", "rate"), [(2.0, 0.5), (2.17, 0.531), (0.5, 0.1), (2.0, 0.0), (2.0, -1.0), (3.0, 1e-9)])
def test_a_rate_that_fits_both_definitions_or_none_is_not_used(length: float, rate: float) -> None:
    """Whoever runs a tree or hits a round number: no rate rather than one that may be another."""
    assert rate_meaning([(length, rate)]) is None


def test_several_readings_together_have_one_meaning() -> None:
    """Whoever samples for a minute: 2.5 at .5 may be width 4 or 5, but 3.0 at 2/3 only 4; contradicting ones have none."""
    meaning = rate_meaning([(2.5, 0.5), (3.0, 2 / 3)])
    assert meaning is not None
    assert (meaning.width, meaning.rate_is_alpha) == (4, True)
    assert rate_meaning([(2.8, 0.6), (2.17, 2.17 / 4)]) is None
    assert rate_meaning([]) is None


@given(st.integers(2, 64), st.floats(0.001, 0.999))
def test_what_a_version_prints_is_read_back_or_refused(width: int, alpha: float) -> None:
    """Whoever runs any width: the acceptance rate that comes out is the one that went in."""
    length = 1 + alpha * (width - 1)
    for rate in (length / width, alpha):
        meaning = rate_meaning([(length, rate)])
        assert meaning is None or meaning.alpha(length) == pytest.approx(alpha, rel=1e-4) or meaning.width != width


def test_an_older_rate_is_corrected_and_said() -> None:
    """Whoever watches 0.5.8: its rate never falls below 1 / 4."""
    old = window([read(gauges(2.17, 2.17 / 4))])
    assert old.alpha == pytest.approx(0.39)
    assert codes(old) == ["gauge_of_last_batches", "rate_was_length"]


def test_a_rate_without_a_meaning_leaves_the_length() -> None:
    """Whoever runs a tree on gauges only: the length stands, the rate does not."""
    tree = window([read(gauges(3.1, 0.29))])
    assert tree.stated["acceptance_length"].value == 3.1
    assert tree.alpha is None
    assert codes(tree) == ["gauge_of_last_batches", "rate_meaning_unknown"]


def test_a_length_alone_has_no_rate() -> None:
    """Whoever runs 0.4: there is no rate gauge, so none is made up."""
    alone = window([read(gauges(2.5))])
    assert list(alone.stated) == ["acceptance_length"]


def test_a_gauge_that_did_not_change_is_from_before_the_window() -> None:
    """Whoever measures an idle server: the value of yesterday's traffic is not today's acceptance."""
    held = window([read(gauges(2.5, 0.5, generated=100)), read(gauges(2.5, 0.5, generated=100))])
    assert held.stated == {}
    assert codes(held) == ["gauges_held"]


def test_values_set_in_the_window_are_sampled_once_each() -> None:
    """Whoever polls every second a gauge that is set every ten: 2.5 held for three scrapes weighs as much as 3.0 seen once."""
    texts = [gauges(2.0, 1 / 3), gauges(2.5, 0.5), gauges(2.5, 0.5), gauges(2.5, 0.5), gauges(3.0, 2 / 3), gauges(1.6, 0.2)]
    sampled = window([read(each) for each in texts])
    length = sampled.stated["acceptance_length"]
    assert (length.value, length.low, length.high, length.n) == (2.5, 1.6, 3.0, 3)
    assert length.statistic == "median of values set"
    assert sampled.alpha == pytest.approx(0.5)
    assert sampled.gauges["requests_running"].n == 6


def test_data_parallel_ranks_keep_their_own_gauges() -> None:
    """Whoever serves on two ranks: 2.2 and 2.8 are a range around 2.5, not 5.0."""
    two = window([read(gauges(2.2, 0.4) + gauges(2.8, 0.6, dp_rank=1))])
    length = two.stated["acceptance_length"]
    assert (length.value, length.low, length.high) == (2.5, 2.2, 2.8)
    assert two.gauges["requests_running"].value == 2


def test_a_length_between_zero_and_one_is_unlawful() -> None:
    """Whoever reads a damaged exporter: every verify call emits a token, so .4 is nothing."""
    odd = window([read(gauges(0.4, 0.1))])
    assert odd.stated == {}
    assert odd.speculates
    assert codes(odd) == ["gauge_unlawful"]


def test_a_prefill_engine_alone_is_read_as_it_is() -> None:
    """Whoever scrapes the prefill side of a disaggregated pair: what it counts is there."""
    assert window([read('sglang:prompt_tokens_total{engine_type="prefill",model_name="m"} 7\n')]).prompt_tokens == 7


@pytest.mark.parametrize("rank", ["x", "-1", "٣", "1234567"])
def test_a_rank_that_is_none_is_refused(rank: str) -> None:
    """Whoever is served hostile labels: they lead nothing."""
    with pytest.raises(BadInputError, match="tp_rank"):
        read(f'sglang:spec_accept_length{{model_name="m",tp_rank="{rank}"}} 2.0\n')


def test_other_servers_series_are_none_of_sglang_s() -> None:
    """Whoever points it at something else: recognised by content."""
    assert not is_sglang(parse_exposition("vllm:generation_tokens_total 1\n").samples)
    with pytest.raises(BadInputError, match="no SGLang series"):
        read("vllm:generation_tokens_total 1\n")
