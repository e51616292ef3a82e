"""What vLLM counted, against figures that the dumps' authors computed, and the traps of its counters."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError, NoEvidenceError, UnknownNameError
from paceline.run import Arm, Evidence
from paceline.servers.counters import Counters
from paceline.servers.measured_run import to_run
from paceline.servers.prometheus_text import Sample, parse_exposition
from paceline.servers.vllm.metrics import difference, is_vllm, read_counters
from paceline.servers.vllm.v0 import is_v0
from paceline.servers.window import Observed, Window

DUMPS = Path(__file__).parent / "data" / "dumps"


def counters(name: str) -> Counters:
    return read_counters(parse_exposition((DUMPS / name).read_text(encoding="utf-8")).samples, model=None)


def since_start(name: str) -> Window:
    return difference(None, counters(name))


def scrape(values: Mapping[str, float], *, engine: str = "0", model: str = "m", started_at_s: float | None = None) -> list[Sample]:
    samples = []
    for name, value in values.items():
        series, _, position = name.partition("/")
        labels = {"engine": engine, "model_name": model} | ({"position": position} if position else {})
        samples.append(Sample(name=f"vllm:{series}", labels=labels, value=value))
    if started_at_s is not None:
        samples.append(Sample(name="process_start_time_seconds", labels={}, value=started_at_s))
    return samples


def of(values: Mapping[str, float], *, model: str = "m") -> Counters:
    return read_counters(scrape(values, model=model), model=None)


def codes(of_window: Window) -> list[str]:
    return [each.code for each in of_window.cautions]


D, T, A = "spec_decode_num_drafts_total", "spec_decode_num_draft_tokens_total", "spec_decode_num_accepted_tokens_total"
P = "spec_decode_num_accepted_tokens_per_pos_total"
G, GAPS, GAP_SUM = "generation_tokens_total", "inter_token_latency_seconds_count", "inter_token_latency_seconds_sum"
FIRST, FIRST_SUM = "time_to_first_token_seconds_count", "time_to_first_token_seconds_sum"
PLAIN: dict[str, float] = {
    D: 10,
    T: 30,
    A: 18,
    f"{P}/0": 9,
    f"{P}/1": 6,
    f"{P}/2": 3,
    G: 30,
    GAPS: 10,
    GAP_SUM: 0.5,
    FIRST: 2,
    FIRST_SUM: 0.4,
}


def test_the_moe_accepts_74_percent_and_its_steps_take_3_66_times_as_long() -> None:
    """Whoever gates on acceptance alone would ship this: α .74, acceptance length 3.22, and slower than without drafts."""
    with_drafts, without = since_start("vllm-0.12.0-qwen3-30b-a3b-eagle3.prom"), since_start("vllm-0.12.0-qwen3-30b-a3b-baseline.prom")
    counts = with_drafts.acceptance
    assert counts is not None
    assert (counts.drafts, counts.drafted_tokens, counts.accepted_tokens, counts.steps) == (21706, 65118, 48171, 21706)
    assert counts.alpha == pytest.approx(0.7397, abs=5e-5)
    assert counts.acceptance_length == pytest.approx(3.219, abs=5e-4)
    assert counts.conditional == pytest.approx((0.867, 0.854, 0.826), abs=5e-4)
    assert with_drafts.step_seconds is not None
    assert without.step_seconds is not None
    assert with_drafts.step_seconds == pytest.approx(0.04573, abs=5e-6)
    assert without.step_seconds == pytest.approx(0.01249, abs=5e-6)
    assert with_drafts.step_seconds / without.step_seconds == pytest.approx(3.66, abs=5e-3)
    assert with_drafts.decode_tokens_per_s == pytest.approx(70.19909328688237)
    assert without.decode_tokens_per_s == pytest.approx(80.28, abs=5e-3)


def test_the_dense_model_keeps_its_three_ratios_apart() -> None:
    """Whoever compares papers: pooled α, conditional acceptance and length are three numbers of the same counters."""
    dense = since_start("vllm-0.12.0-llama-3.1-8b-eagle3.prom")
    counts = dense.acceptance
    assert counts is not None
    assert counts.alpha == pytest.approx(52994 / 73011)
    assert counts.accepted_per_position == (20594, 17551, 14849)
    assert counts.conditional == pytest.approx((0.8462012573447837, 0.8522385160726426, 0.8460486581961142))
    assert counts.acceptance_length == pytest.approx(1 + 2.177507498870033)
    assert dense.decode_tokens_per_s == pytest.approx(166.95050997432136)
    assert codes(dense) == []


def test_the_gap_is_per_step_and_tpot_is_per_token() -> None:
    """Whoever alerts on inter-token latency would roll back a server that got twice as fast."""
    fast, plain = since_start("vllm-0.12.0-llama-3.1-8b-eagle3.prom"), since_start("vllm-0.12.0-llama-3.1-8b-baseline.prom")
    assert fast.step_gap is not None
    assert fast.step_gap.count == fast.drafts == 24337
    assert fast.step_seconds == pytest.approx(0.01894, abs=5e-6)
    assert plain.step_seconds == pytest.approx(0.01271, abs=5e-6)
    assert fast.tpot is not None
    assert plain.tpot is not None
    assert fast.tpot.mean == pytest.approx(0.006046, abs=5e-6)
    assert plain.tpot.mean == pytest.approx(0.012693, abs=5e-6)
    assert fast.tokens_per_step_counted == pytest.approx(3.1775, abs=5e-5)
    assert fast.tokens_per_step_emitted == pytest.approx((76959 - 210) / 24337)


AUTHORS = json.loads((DUMPS / "author-results.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("author", AUTHORS, ids=[each["dump"] for each in AUTHORS])
def test_what_the_dumps_authors_computed_comes_out_again(author: dict[str, Any]) -> None:
    """Whoever checks us against somebody else: their eight results, their acceptance length without the target's own token."""
    ours = since_start(author["dump"])
    assert ours.decode_tokens_per_s == pytest.approx(author["tps"], rel=1e-12)
    assert ours.request_tokens is not None
    assert ours.request_tokens.total == author["generation_tokens"]
    assert ours.decode is not None
    assert ours.decode.total == pytest.approx(author["decode_seconds"], rel=1e-12)
    assert ours.accepted_tokens == author["accepted_tokens"]
    assert ours.drafts == author["drafts"]
    counts = ours.acceptance
    assert (counts is not None) == (author["mean_accept_length"] is not None)
    if counts is not None:
        assert counts.acceptance_length - 1 == pytest.approx(author["mean_accept_length"], rel=1e-12)
        assert counts.accepted_per_position is not None
        theirs = [author["accepted_by_pos"].get(str(i), 0.0) for i in range(len(counts.accepted_per_position))]
        assert list(counts.accepted_per_position)[: len(author["accepted_by_pos"])] == theirs[: len(author["accepted_by_pos"])]
        for i, conditional in author["n_alpha"].items():
            assert counts.conditional[int(i)] == pytest.approx(conditional, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "alpha", "per_draft", "per_step", "decode_tokens_per_s"),
    [("ngram", 48202 / 60106, 1 + 48202 / 12022, 2.709, 161.741511), ("suffix", 60541 / 84487, 1 + 3.5368931471636387, 4.340, 228.631976)],
)
def test_lookup_drafts_skip_steps(name: str, alpha: float, per_draft: float, per_step: float, decode_tokens_per_s: float) -> None:
    """Whoever reads vLLM's acceptance length of n-gram drafts as a speed-up: 5.01 per draft is 2.71 per step."""
    lookup = since_start(f"vllm-0.12.0-llama-3.1-8b-{name}.prom")
    counts = lookup.acceptance
    assert counts is not None
    assert counts.alpha == pytest.approx(alpha)
    assert counts.acceptance_length == pytest.approx(per_draft)
    assert counts.tokens_per_step == lookup.tokens_per_step_counted == pytest.approx(per_step, abs=5e-4)
    assert lookup.tokens_per_step_emitted == pytest.approx(per_step, rel=0.01)
    assert lookup.decode_tokens_per_s == pytest.approx(decode_tokens_per_s)
    assert codes(lookup) == []


def test_two_scrapes_give_what_happened_in_between() -> None:
    """Whoever measures a window: warm-up before it must not count (97 − 3 drafts, 375 − 12 tokens, 94 − 6 accepted)."""
    between = difference(counters("vllm-0.32.0-smollm2-ngram-before.prom"), counters("vllm-0.32.0-smollm2-ngram-after.prom"))
    counts = between.acceptance
    assert counts is not None
    assert (counts.steps, counts.drafts, counts.drafted_tokens, counts.accepted_tokens) == (1243, 94, 363, 88)
    assert counts.accepted_per_position == (40, 19, 15, 14)
    assert (between.generation_tokens, between.prompt_tokens, between.preemptions) == (1353, 1594, 0)
    assert between.gauges["requests_running"].value == 0
    assert between.first_token is not None
    assert between.first_token.count == 30
    assert between.tokens_per_step_counted == pytest.approx(1 + 88 / 1243)
    assert between.tokens_per_step_emitted == pytest.approx(1323 / 1243)
    assert codes(between) == []


def test_created_times_and_positions_are_no_totals() -> None:
    """Whoever matches names by prefix: 900 of 1500, not 900 + 900 + a Unix time; impossible positions are left out and said."""
    trap = since_start("vllm-created-and-positions.prom")
    assert trap.alpha == pytest.approx(0.6)
    assert trap.acceptance is not None
    assert trap.acceptance.accepted_per_position is None
    assert codes(trap) == ["positions_do_not_add_up"]


def test_data_parallel_engines_are_summed() -> None:
    """Whoever serves on eight ranks: engine 0 alone has 22 of 188 drafts."""
    parallel = since_start("vllm-data-parallel.prom")
    assert parallel.drafts == 188
    assert len(parallel.engines) == 8
    assert parallel.acceptance is None
    assert codes(parallel) == ["counters_missing"]


def test_v0_counters_give_ratios_and_a_warning_only() -> None:
    """Whoever compares a V0 server: its 8.6 % is 1.8 % usable, and its counts are running totals."""
    old = since_start("vllm-0.9.2-v0-llama-3.1-70b-mlp.prom")
    figures = {name: each.value for name, each in old.stated.items()}
    assert figures["alpha_as_v0_counts"] == pytest.approx(0.0858, abs=5e-5)
    assert figures["draft_tokens"] == 4
    assert figures["acceptance_length"] == pytest.approx(1.073, abs=5e-4)
    assert old.alpha == pytest.approx(0.018, abs=5e-4)
    assert old.acceptance is None
    assert old.step_seconds is None
    assert old.decode_tokens_per_s == pytest.approx(20.91, abs=5e-3)
    assert codes(old) == ["v0_metrics"]
    assert to_run(old, arm=None, inputs={}, window_s=None).summaries["acceptance_length"].value == pytest.approx(1.073, abs=5e-4)


@pytest.mark.parametrize(
    ("drafted", "emitted", "efficiency", "alpha"),
    [(0, 0, 0.0, None), (40, 30, 1.0, None), (40, 50, 0.0, None), (40, 50, 1.0, 1.0), (4000, 4, 0.0005, None), (40, 16, 0.32, 0.15)],
)
def test_v0_ratios_are_given_only_where_a_draft_length_fits(drafted: int, emitted: int, efficiency: float, alpha: float | None) -> None:
    """Whoever has a V0 gauge that is reset or empty: no ratio is invented (40 drafted at K = 4, 16 emitted: 1.6 per draft, α .15)."""
    names = {T: drafted, A: drafted // 2, "spec_decode_num_emitted_tokens_total": emitted, "spec_decode_efficiency": efficiency}
    samples = [Sample(name=f"vllm:{name}", labels={"model_name": "m"}, value=value) for name, value in names.items()]
    old = difference(None, read_counters(samples, model=None))
    assert old.alpha == (None if alpha is None else pytest.approx(alpha))


def test_without_an_engine_label_and_drafts_the_counters_are_v0s() -> None:
    """Whoever trimmed the gauges away: two names are the same in V0 and V1 and mean different things."""
    samples = [Sample(name=f"vllm:{name}", labels={"model_name": "m"}, value=value) for name, value in {T: 40, A: 20}.items()]
    assert is_v0(read_counters(samples, model=None).engines)


def test_a_server_without_drafts_has_steps_and_no_acceptance() -> None:
    """Whoever measures the baseline: its step time is there, and no acceptance of 0 that a gate could fail."""
    run = to_run(since_start("vllm-0.12.0-qwen3-30b-a3b-baseline.prom"), arm=None, inputs={"baseline.prom": "00"}, window_s=None)
    assert run.arm is Arm.BASELINE
    assert run.step_seconds == pytest.approx(0.01249, abs=5e-6)
    assert run.summaries["tpot_s"].n == 210
    assert run.provenance.inputs == {"baseline.prom": "00"}
    with pytest.raises(NoEvidenceError):
        _ = run.acceptance


def test_speculation_that_drafts_nothing_is_not_an_acceptance_of_zero() -> None:
    """Whoever gates a server with idle n-gram drafts: not active is not rejected."""
    idle = difference(None, of(PLAIN | {D: 0, T: 0, A: 0, f"{P}/0": 0, f"{P}/1": 0, f"{P}/2": 0}))
    assert idle.acceptance is None
    assert idle.alpha is None
    assert codes(idle) == ["nothing_drafted"]
    assert to_run(idle, arm=None, inputs={}, window_s=None).arm is Arm.SPECULATIVE


def test_a_run_holds_what_was_measured_and_nothing_else() -> None:
    """Whoever reads the run file: medians, windows and loads that /metrics does not know are absent."""
    run = to_run(since_start("vllm-0.12.0-qwen3-30b-a3b-eagle3.prom"), arm=None, inputs={}, window_s=None)
    assert run.arm is Arm.SPECULATIVE
    assert run.acceptance.alpha == pytest.approx(0.7397, abs=5e-5)
    assert (run.requests, run.window_s, run.speculation, run.load.concurrency) == (None, None, None, None)
    assert run.provenance.evidence is Evidence.MEASURED
    assert run.cautions == ()
    assert run.summaries["tpot_s"].value == pytest.approx(3.004400577691255 / 210)
    assert run.summaries["tokens_per_step_emitted"].value == pytest.approx((69678 - 210) / 21706)
    assert "alpha" not in run.summaries
    assert to_run(since_start("vllm-0.12.0-qwen3-30b-a3b-eagle3.prom"), arm=Arm.BASELINE, inputs={}, window_s=None).arm is Arm.BASELINE


def test_nothing_generated_is_no_evidence() -> None:
    """Whoever scrapes twice without traffic: no figure, rather than a division by zero."""
    with pytest.raises(NoEvidenceError):
        to_run(difference(of(PLAIN), of(PLAIN)), arm=None, inputs={}, window_s=None)


def test_a_counter_that_fell_was_reset_and_never_gives_a_negative_rate() -> None:
    """Whoever watches through a restart: what is counted since then stands, with a caution; the other engine keeps its difference."""
    before = read_counters([*scrape(PLAIN), *scrape(PLAIN, engine="1")], model=None)
    restarted = {D: 4, T: 12, A: 6, f"{P}/0": 3, f"{P}/1": 2, f"{P}/2": 1, G: 11, GAPS: 4, GAP_SUM: 0.2, FIRST: 1, FIRST_SUM: 0.2}
    after = read_counters([*scrape(restarted), *scrape(PLAIN, engine="1")], model=None)
    between = difference(before, after)
    assert (between.drafts, between.drafted_tokens, between.accepted_tokens) == (4, 12, 6)
    assert codes(between) == ["counter_reset"]
    assert [each.code for each in to_run(between, arm=None, inputs={}, window_s=None).cautions] == ["counter_reset"]


def test_another_start_time_is_a_restart_even_where_counters_overtook() -> None:
    """Whoever leaves an hour between scrapes: the counters may be higher again, and their difference is meaningless."""
    before = read_counters(scrape(PLAIN, started_at_s=100.0), model=None)
    later = {name: value * 3 for name, value in PLAIN.items()}
    between = difference(before, read_counters(scrape(later, started_at_s=200.0), model=None))
    assert between.drafts == 30
    assert codes(between) == ["counter_reset"]
    assert difference(before, read_counters(scrape(later, started_at_s=100.0), model=None)).drafts == 20


def test_an_engine_that_left_is_missed_aloud() -> None:
    """Whoever scales down in the window: part of the traffic is gone from the counters."""
    before = read_counters([*scrape(PLAIN), *scrape(PLAIN, engine="1")], model=None)
    assert codes(difference(before, of({name: value * 2 for name, value in PLAIN.items()}))) == ["engine_gone"]


def test_engines_that_draft_at_other_lengths_are_said() -> None:
    """Whoever rolls out another K rank by rank: position 3 of one rank is no rejection of the other."""
    short = {name: value for name, value in PLAIN.items() if name != f"{P}/2"} | {A: 15, G: 27}
    both = difference(None, read_counters([*scrape(PLAIN), *scrape(short, engine="1")], model=None))
    assert both.accepted_per_position == (18, 12, 3)
    assert codes(both) == ["draft_lengths_differ"]


def test_v0_engines_are_solved_each_for_its_own_draft_length() -> None:
    """Whoever sums the efficiency gauge: K = 4 with 16 emitted of 40 drafted and K = 2 with 30 of 40 are 46 in 10 + 20 drafts."""
    names = {"spec_decode_num_draft_tokens_total": (40, 40), "spec_decode_num_emitted_tokens_total": (16, 30)}
    samples = [
        Sample(name=f"vllm:{name}", labels={"replica": str(i), "model_name": "m"}, value=value)
        for name, values in names.items()
        for i, value in enumerate(values)
    ]
    samples += [
        Sample(name="vllm:spec_decode_efficiency", labels={"replica": str(i), "model_name": "m"}, value=value)
        for i, value in enumerate((16 / 50, 30 / 60))
    ]
    figures = {name: each.value for name, each in difference(None, read_counters(samples, model=None)).stated.items()}
    assert figures == {"acceptance_length": pytest.approx(46 / 30), "alpha": pytest.approx(16 / 80)}


def test_tokens_per_second_need_the_window_s_length() -> None:
    """Whoever has two dumps without times: no throughput, rather than one per an hour that somebody remembers."""
    between = difference(None, of(PLAIN))
    assert "output_tokens_per_s" not in to_run(between, arm=None, inputs={}, window_s=None).summaries
    run = to_run(between, arm=None, inputs={}, window_s=10.0)
    assert (run.window_s, run.summaries["output_tokens_per_s"].value) == (10.0, 3.0)


def test_scrapes_that_do_not_belong_together_are_refused() -> None:
    """Whoever mixes up files: no difference between two models or two engine generations."""
    with pytest.raises(BadInputError, match="'other'"):
        difference(of(PLAIN, model="other"), of(PLAIN))
    with pytest.raises(BadInputError, match="V0"):
        difference(of({"spec_decode_efficiency": 0.5}), of(PLAIN))


def test_several_models_need_a_choice() -> None:
    """Whoever scrapes a gateway: two models' acceptance is never mixed."""
    both = [*scrape(PLAIN), *scrape(PLAIN | {D: 1}, model="other")]
    with pytest.raises(BadInputError, match="2 models"):
        read_counters(both, model=None)
    assert difference(None, read_counters(both, model="m")).drafts == 10
    with pytest.raises(UnknownNameError, match="nearest: other"):
        read_counters(both, model="othr")


@pytest.mark.parametrize("prefix", ["vllm:", "vllm_", "ray_vllm_"])
def test_ray_writes_the_prefix_otherwise(prefix: str) -> None:
    """Whoever serves on Ray: the same series under another name."""
    samples = [Sample(name=prefix + D, labels={"ReplicaId": replica, "model_name": "m"}, value=5) for replica in ("a", "b")]
    assert is_vllm(samples)
    assert difference(None, read_counters(samples, model=None)).drafts == 10


def test_a_dump_of_another_server_is_refused_with_what_is_in_it() -> None:
    """Whoever gives an SGLang scrape: its zeros are not read as vLLM's."""
    samples = parse_exposition((DUMPS / "sglang-speculation-off.prom").read_text(encoding="utf-8")).samples
    assert not is_vllm(samples)
    with pytest.raises(BadInputError, match="sglang:spec_accept_rate"):
        read_counters(samples, model=None)


@pytest.mark.parametrize("value", [None, -1.0, 0.5, float("inf"), 2.0**54])
def test_a_counter_that_is_no_count_is_refused(value: float | None) -> None:
    """Whoever reads a broken exporter: no acceptance is made of it."""
    with pytest.raises(BadInputError, match="is not a count"):
        read_counters([Sample(name=f"vllm:{D}", labels={}, value=value)], model=None)
    with pytest.raises(BadInputError, match="is not a total"):
        read_counters([Sample(name=f"vllm:{GAP_SUM}", labels={}, value=-1.0)], model=None)


def test_a_gauge_that_is_no_number_is_not_measured() -> None:
    """Whoever scrapes before the first request: NaN gauges do not spoil the counters."""
    samples = [*scrape(PLAIN), Sample(name="vllm:num_requests_running", labels={"engine": "0", "model_name": "m"}, value=None)]
    assert difference(None, read_counters(samples, model=None)).gauges == {}


def test_a_series_given_twice_is_refused() -> None:
    """Whoever concatenated scrapes: the sum of two totals is none."""
    with pytest.raises(BadInputError, match="one scrape per file"):
        read_counters([*scrape(PLAIN), *scrape({D: 12})], model=None)


@pytest.mark.parametrize("position", ["x", "-1", "128", "1234", "", "٣"])
def test_a_position_that_is_none_is_refused(position: str) -> None:
    """Whoever is served hostile labels: they index nothing."""
    with pytest.raises(BadInputError, match="position"):
        read_counters([Sample(name=f"vllm:{P}", labels={"position": position}, value=1)], model=None)


@pytest.mark.parametrize(
    ("changed", "caution"),
    [
        ({GAPS: 9}, "steps_below_drafts"),
        ({f"{P}/2": 2}, "positions_do_not_add_up"),
        ({f"{P}/1": 3, f"{P}/2": 6}, "positions_do_not_add_up"),
        ({G: 28}, "tokens_per_step_disagree"),
    ],
)
def test_counters_that_contradict_each_other_are_said(changed: dict[str, float], caution: str) -> None:
    """Whoever trusts the figure: (28 − 2) / 10 tokens per step is 7 % below 1 + 18 / 10 (27 would be 4 %, which a stop explains)."""
    assert codes(difference(None, of(PLAIN | changed))) == [caution]
    assert codes(difference(None, of(PLAIN))) == codes(difference(None, of(PLAIN | {G: 29}))) == []


def test_steps_are_unknown_where_there_are_fewer_than_drafts() -> None:
    """Whoever reads an old version: coverage above 1 is never reported."""
    odd = difference(None, of(PLAIN | {GAPS: 9}))
    assert odd.steps is None
    assert odd.tokens_per_step_counted is None
    assert odd.acceptance is not None
    assert odd.acceptance.steps is None


def test_what_is_not_exported_is_none() -> None:
    """Whoever scrapes a server with few series: no zero stands in for them."""
    bare = difference(None, of({G: 5}))
    assert (bare.steps, bare.step_seconds, bare.tokens_per_step_emitted, bare.decode_tokens_per_s, bare.alpha) == (None,) * 5
    assert Observed(total=0.0, count=0, buckets=None).mean is None
    assert difference(None, of(PLAIN | {FIRST: 40})).tokens_per_step_emitted is None
    totals = difference(None, of({D: 10, T: 30, A: 18, GAPS: 10, GAP_SUM: 1.0})).acceptance
    assert totals is not None
    assert (totals.accepted_per_position, totals.steps) == (None, 10)
    assert difference(None, of({T: 30, A: 18, G: 5})).alpha == pytest.approx(0.6)
    assert to_run(difference(None, of({T: 30, A: 18, G: 5})), arm=None, inputs={}, window_s=None).summaries["alpha"].n == 30


def test_the_prefix_caches_share_is_of_the_tokens_that_were_looked_up() -> None:
    """An arm whose prompts were cached has its first tokens sooner for that."""
    cached = {**PLAIN, "prefix_cache_queries_total": 400, "prefix_cache_hits_total": 100}
    assert difference(None, of(cached)).gauges["prefix_cache_hit_share"].value == 0.25
    assert "prefix_cache_hit_share" not in difference(of(cached), of(cached)).gauges
    assert "prefix_cache_hit_share" not in difference(None, of({**cached, "prefix_cache_hits_total": 401})).gauges


def test_before_0_10_2_the_step_gap_has_another_name() -> None:
    """Whoever runs an older V1 server: time_per_output_token is per step there."""
    old = difference(None, of({"time_per_output_token_seconds_count": 4, "time_per_output_token_seconds_sum": 2.0, G: 9}))
    assert old.step_seconds == 0.5


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=2, max_size=2), st.lists(st.integers(0, 50), min_size=2, max_size=2))
def test_any_split_of_a_window_adds_up(first: list[int], second: list[int]) -> None:
    """Whoever polls every minute: the minutes add up to the hour, per engine."""

    def at(totals: list[int]) -> Counters:
        return read_counters([each for rank, total in enumerate(totals) for each in scrape({G: total}, engine=str(rank))], model=None)

    middle, end = at(first), at([a + b for a, b in zip(first, second, strict=True)])
    whole = difference(None, end).generation_tokens
    assert whole == (difference(None, middle).generation_tokens or 0) + (difference(middle, end).generation_tokens or 0)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.sampled_from([D, T, A, f"{P}/0", G, GAPS, GAP_SUM, FIRST]), st.integers(0, 9)),
    st.dictionaries(st.sampled_from([D, T, A, f"{P}/0", G, GAPS, GAP_SUM, FIRST]), st.integers(0, 9), min_size=1),
)
def test_no_pair_of_scrapes_gives_a_negative_count_or_a_crash(before: dict[str, int], after: dict[str, int]) -> None:
    """Whoever watches a server through anything: a figure, a refusal, never a negative rate."""
    try:
        between = difference(of(before) if before else None, of(after))
        assert json.dumps([each.message for each in between.cautions])
        figures = (between.drafts, between.generation_tokens, between.step_seconds, between.alpha)
        assert all(value is None or value >= 0 for value in figures)
        to_run(between, arm=None, inputs={}, window_s=None)
    except (BadInputError, NoEvidenceError):
        return


def test_more_tokens_accepted_than_generated_is_no_acceptance() -> None:
    """Counters of two servers behind one address give an acceptance that neither has."""
    window = difference(None, of({D: 100, T: 300, A: 150, G: 10}))
    assert "accepted_exceed_generated" in codes(window)
    assert window.acceptance is None
    assert "alpha" not in to_run(window, arm=None, inputs={}, window_s=None).summaries


def test_answers_of_two_tokens_may_accept_more_than_they_show() -> None:
    """Fifty requests, each stopped inside its first draft of 3: 150 accepted, 100 generated, and nothing is wrong."""
    window = difference(None, of({D: 50, T: 150, A: 150, G: 100, FIRST: 50, FIRST_SUM: 1.0}))
    assert window.acceptance is not None
    assert difference(None, of({D: 50, T: 150, A: 150, G: 0, FIRST: 50, FIRST_SUM: 1.0})).acceptance is None
