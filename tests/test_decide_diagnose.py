"""Causes in acceptance, cost and lengths: each from figures that give it, and not from those that do not."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from paceline.decide.diagnose import Asked, Diagnosis, across_loads, diagnose
from paceline.decide.diagnosis.cause import CODES, Cause, Kind, Surely, Unchecked, ranked
from paceline.errors import BadInputError
from paceline.run import Arm, Load, RequestRecord, Run, Summary
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method, Speculation, Tree
from tests.strategies_runs import pair, run, summaries_only, timing

KNOWN = Asked(answers=None, losslessness=None, forecast_ratio=None, is_moe=None, gpus=None, margin=0.05, confidence=0.95)


def seen(baseline: Run | None, speculative: Run, known: Asked = KNOWN) -> Diagnosis:
    return diagnose(baseline, speculative, asked=known, rng=np.random.default_rng(1))


def causes(baseline: Run | None, speculative: Run, known: Asked = KNOWN) -> dict[str, Cause]:
    return {each.code: each for each in seen(baseline, speculative, known).causes}


def unchecked(baseline: Run | None, speculative: Run, known: Asked = KNOWN) -> dict[str, str]:
    return {each.code: each.needs for each in seen(baseline, speculative, known).unchecked}


def counts(
    drafts: int, accepted: int, *, k: int = 3, positions: tuple[int, ...] | None = None, steps: int | None = None
) -> AcceptanceCounts:
    return AcceptanceCounts(
        steps=steps, drafts=drafts, drafted_tokens=drafts * k, accepted_tokens=accepted, accepted_per_position=positions
    )


def server(total: AcceptanceCounts | None, *, step_s: float | None = None, **changes: Any) -> Run:
    """A speculative server of which only totals are known."""
    return replace(summaries_only(Arm.SPECULATIVE, step_s=step_s, counts=total), **changes)


def plain(step_s: float = 0.010, **changes: Any) -> Run:
    """Its baseline."""
    summaries = {"tpot_s": mean(step_s)}
    return replace(summaries_only(Arm.BASELINE, step_s=step_s, counts=None, summaries=summaries), **changes)


def mean(value: float) -> Summary:
    return Summary(value=value, statistic="mean", n=None, low=None, high=None)


def told(base: Run, **arguments: str) -> Run:
    return replace(base, provenance=replace(base.provenance, arguments={**base.provenance.arguments, **arguments}))


def drafting(method: Method, k: int, tree: Tree | None = None) -> Speculation:
    return Speculation(method=method, draft_tokens=k, tree=tree)


def compared(ratio: float, total: AcceptanceCounts, **changes: Any) -> tuple[Run, Run]:
    """Two servers whose steps have that ratio."""
    length = total.acceptance_length
    return plain(), server(total, step_s=0.010 * ratio, summaries={"tpot_s": mean(0.010 * ratio / length)}, **changes)


@pytest.mark.parametrize(("drafts", "surely"), [(40, Surely.SURE), (10, Surely.LIKELY)])
def test_a_draft_that_is_never_accepted_is_broken_whatever_the_output(drafts: int, surely: Surely) -> None:
    """Correct answers hide it: it only costs, and nobody looks."""
    found = causes(None, server(counts(drafts, 0)))
    assert next(iter(found)) == "nothing_accepted"
    assert found["nothing_accepted"].surely is surely
    assert found["nothing_accepted"].kind is Kind.BROKEN
    assert "too_few_drafts" not in found
    assert "draft_too_long" not in found


def test_a_lookup_without_a_match_is_no_broken_draft() -> None:
    """Prompt lookup on prose accepts nothing, and there is no head to reload."""
    lookup = server(counts(400, 10, steps=4000), speculation=drafting(Method.NGRAM, 3))
    assert "nothing_accepted" not in causes(None, lookup)
    found = causes(*slower(lookup))["lookup_seldom_matches"]
    assert found.figures["coverage"] == 0.1


def slower(speculative: Run) -> tuple[Run, Run]:
    """Against a baseline that is a tenth faster."""
    return plain(0.010), replace(speculative, summaries={**speculative.summaries, "tpot_s": mean(0.011)})


@pytest.mark.parametrize("steps", [None, 1000])
def test_a_lookup_s_coverage_needs_steps_and_a_low_one(steps: int | None) -> None:
    """Counters of drafts leave out the steps without a match."""
    lookup = server(counts(800, 800, steps=steps), speculation=drafting(Method.SUFFIX, 3))
    assert "lookup_seldom_matches" not in causes(*slower(lookup))
    assert ("lookup_seldom_matches" in unchecked(*slower(lookup))) is (steps is None)
    seldom = server(counts(100, 290, steps=1000), speculation=drafting(Method.SUFFIX, 3))
    assert "lookup_seldom_matches" not in causes(plain(0.012), replace(seldom, summaries={"tpot_s": mean(0.010)}))


@pytest.mark.parametrize(
    ("positions", "is_fault", "surely"),
    [
        ((100, 0, 0), True, Surely.SURE),
        ((100, 9, 0), True, Surely.SURE),
        ((12, 0, 0), True, Surely.LIKELY),
        ((100, 40, 10), False, None),
        ((9, 0, 0), False, None),
        (None, False, None),
    ],
)
def test_nothing_after_the_first_position_is_a_fault_and_a_slow_fall_is_not(
    positions: tuple[int, ...] | None, is_fault: bool, surely: Surely | None
) -> None:
    """A weak head is retrained for weeks where the block positions were fed wrongly."""
    total = counts(150, sum(positions or (200,)), positions=positions)
    found = causes(None, server(total)).get("draft_faulty_after_first")
    assert (found is not None) is is_fault
    if found is not None:
        assert found.surely is surely
    assert ("draft_faulty_after_first" in unchecked(None, server(total))) is (positions is None)


def test_weak_acceptance_is_a_cause_only_where_it_does_not_pay() -> None:
    """A floor on acceptance rejects what pays: α = .2 at a step-time ratio of 1.17 is a gain."""
    weak = counts(1000, 400)
    assert "low_acceptance" not in causes(*compared(1.17, weak))
    found = causes(*compared(1.6, weak))["low_acceptance"]
    assert found.surely is Surely.LIKELY
    assert found.figures["conditional"] == pytest.approx(0.2908, abs=0.0001)
    assert "low_acceptance" not in causes(*compared(3.6, counts(1000, 2200)))
    assert "low_acceptance" in unchecked(None, server(weak))


def test_weak_acceptance_without_a_length_is_possible_at_most() -> None:
    """α = .4 of an unknown K may be a good draft of seven tokens."""
    unknown = server(None, summaries={"tpot_s": mean(0.06), "alpha": mean(0.4)}, speculation=None)
    found = causes(plain(0.045), unknown)
    assert found["low_acceptance"].surely is Surely.POSSIBLE
    needs = unchecked(plain(0.045), unknown)
    assert "draft length K" in needs["verification_cost"]
    assert "chain" in needs["draft_too_long"]


@pytest.mark.parametrize(
    ("temperature", "accepted", "is_cause"),
    [("1.0", 600, True), ("0", 600, False), ("1", 2500, False), ("hot", 600, False), ("inf", 600, False)],
)
def test_greedy_drafts_at_a_temperature_are_named_and_never_sure(temperature: str, accepted: int, is_cause: bool) -> None:
    """A benchmark at 0 ships a draft that loses at production's temperature."""
    found = causes(None, told(server(counts(1000, accepted)), temperature=temperature)).get("temperature")
    assert (found is not None) is is_cause
    assert found is None or found.surely is Surely.POSSIBLE
    assert "temperature" in unchecked(None, server(counts(1000, accepted)))


def of_prompts(alphas: list[float], *, prompts: list[int] | None = None, step_s: float = 0.012, tpots: bool = True) -> Run:
    """A speculative run of one request per α, 300 drafts each, on prompts of those lengths."""
    records = []
    for i, alpha in enumerate(alphas):
        own = counts(300, round(900 * alpha), steps=300 if tpots else None)
        tokens = 1 + own.drafts + own.accepted_tokens
        steps = [1.0 * step_s] * 300
        sizes = np.full(300, (tokens - 1) // 300)
        sizes[: (tokens - 1) % 300] += 1
        base = run(Arm.SPECULATIVE, n=1, step_s=step_s, alphas={"chat": 0.5}).finished[0]
        when = timing(sent_at_s=10.0 * i, ttft_s=0.1, gaps_s=steps, tokens=[1, *sizes.tolist()])
        length = 100 if prompts is None else prompts[i]
        records.append(replace(base, id=str(i), timing=when, prompt_tokens=length, output_tokens=tokens, acceptance=own))
    pooled = AcceptanceCounts.pooled(each.acceptance for each in records if each.acceptance)
    return replace(
        run(Arm.SPECULATIVE, n=1, step_s=step_s, alphas={"chat": 0.5}), requests=tuple(records), acceptance_by_segment={"all": pooled}
    )


def test_prompts_that_differ_say_how_little_they_say() -> None:
    """Three drafts of one prompt are no measurement of a product."""
    wide = causes(None, of_prompts([0.9, 0.5, 0.3, 0.6, 0.75]))["too_few_prompts"]
    assert wide.figures["prompts"] == 5
    assert "half_width" in wide.figures
    assert "half_width" not in causes(None, of_prompts([0.5]))["too_few_prompts"].figures
    assert "too_few_prompts" not in causes(None, of_prompts([0.5, 0.51, 0.52, 0.5]))
    assert causes(None, server(counts(199, 300)))["too_few_drafts"].figures == {"drafts": 199}
    assert "too_few_drafts" not in causes(None, server(counts(200, 300)))


def test_acceptance_that_falls_in_the_course_of_a_run_is_told() -> None:
    """It falls over hours, and a benchmark of minutes never shows it."""
    found = causes(None, of_prompts([0.60, 0.61] * 6 + [0.55] * 12 + [0.40, 0.41] * 6))["acceptance_decays"]
    assert found.figures["alpha_first"] == pytest.approx(0.605, abs=0.003)
    assert found.figures["alpha_last"] == pytest.approx(0.405, abs=0.003)
    assert "acceptance_decays" in causes(None, of_prompts([0.6] * 12 + [0.4] * 12))
    assert "acceptance_decays" not in causes(None, of_prompts([0.60, 0.61] * 18))
    assert "acceptance_decays" not in causes(None, of_prompts([0.9, 0.1] * 12))
    assert "acceptance_decays" in unchecked(None, of_prompts([0.6] * 5))


def test_a_changing_mix_of_segments_is_no_decay() -> None:
    """Chat in the morning and code at night is traffic, not a fault."""
    mixed = of_prompts([0.6, 0.61] * 12 + [0.3, 0.31] * 12)
    records = tuple(replace(each, segment="day" if i < 24 else "night") for i, each in enumerate(mixed.requests or ()))
    assert "acceptance_decays" in causes(None, mixed)
    assert "acceptance_decays" not in causes(None, replace(mixed, requests=records))


def test_verification_that_costs_more_than_drafts_can_yield_is_the_first_cause() -> None:
    """A head is retrained for weeks where no head could pay: α = .74 at a step-time ratio of 3.66."""
    found = causes(*compared(3.66, counts(21706, 48171)))
    assert next(iter(found)) == "verification_cost"
    assert found["verification_cost"].figures["break_even_tokens_per_step"] == pytest.approx(3.66)
    assert found["verification_cost"].surely is Surely.LIKELY
    assert "more often than always" in causes(*compared(4.5, counts(1000, 2200)))["verification_cost"].remedy
    assert not {"verification_cost", "low_acceptance"} & set(causes(*compared(1.5, counts(1000, 2200))))


def test_with_requests_the_cost_is_sure() -> None:
    """An interval that lies above every usual cost leaves nothing to doubt."""
    found = causes(*pair(n=60, step_s=0.030, alphas={"chat": 0.7}))
    assert found["verification_cost"].surely is Surely.SURE
    assert "break_even_alpha" in found["verification_cost"].figures


def test_where_nothing_is_out_of_the_ordinary_the_larger_shortfall_is_named() -> None:
    """Slow and no cause given is the one answer that helps nobody."""
    ordinary = counts(1000, 950)
    found = causes(*compared(1.95, ordinary))
    assert found["low_acceptance"].surely is Surely.POSSIBLE
    assert "verification_cost" not in found
    assert "verification_cost" in causes(*compared(1.99, counts(1000, 1050)))


def test_what_is_not_measured_is_asked_for() -> None:
    """A cause claimed without its figure is a guess with a code."""
    total = counts(1000, 2000)
    assert "baseline" in unchecked(None, server(total))["verification_cost"]
    assert "seconds per step" in unchecked(replace(plain(), step_seconds=None, summaries={}), server(total))["verification_cost"]
    assert "nothing_accepted" in unchecked(None, server(None))


@pytest.mark.parametrize(
    ("model", "is_moe", "expected"),
    [
        ("Qwen3-30B-A3B", None, "cause"),
        ("qwen3-30b-a3b-instruct", None, "cause"),
        ("mixtral-8x7B", None, "cause"),
        ("gpt-oss-120b", None, "cause"),
        ("", True, "cause"),
        ("Llama-3.1-8B", None, "asked"),
        ("Qwen3-30B-A3B", False, "no"),
    ],
)
def test_experts_are_known_by_the_target_or_its_name(model: str, is_moe: bool | None, expected: str) -> None:
    """On a dense target the same step time has another remedy."""
    baseline, speculative = compared(3.2, counts(1000, 2000))
    run_told, known = told(speculative, **({"model": model} if model else {})), replace(KNOWN, is_moe=is_moe)
    assert ("moe_verification" in causes(baseline, run_told, known)) is (expected == "cause")
    assert ("moe_verification" in unchecked(baseline, run_told, known)) is (expected == "asked")


@pytest.mark.parametrize(("tree", "verified"), [(None, 256), (Tree(depth=3, topk=4, nodes=15), 1024)])
def test_a_full_batch_is_counted_in_verified_tokens(tree: Tree | None, verified: int) -> None:
    """64 requests are a small batch until each of them brings sixteen tokens."""
    baseline, speculative = compared(3.2, counts(1000, 2000), speculation=drafting(Method.EAGLE3, 3, tree))
    busy = [replace(each, load=Load(concurrency=64, rate_per_s=None)) for each in (baseline, speculative)]
    assert causes(busy[0], busy[1])["large_batch"].figures["tokens_verified_per_step"] == verified
    assert causes(busy[0], replace(busy[1], speculation=None))["large_batch"].figures["tokens_verified_per_step"] == 256
    idle = [replace(each, load=Load(concurrency=2, rate_per_s=None)) for each in (baseline, speculative)]
    assert "large_batch" not in causes(idle[0], idle[1])
    assert "large_batch" in unchecked(baseline, speculative)


def test_a_draft_model_s_passes_are_named_where_each_is_dear() -> None:
    """A draft of half the target's size is right often and never fast."""
    baseline, speculative = compared(3.2, counts(1000, 2000), speculation=drafting(Method.DRAFT_MODEL, 3))
    assert causes(baseline, speculative)["draft_model_cost"].figures["plain_steps_per_drafted_token"] == pytest.approx(2.2 / 3)
    cheap = compared(2.1, counts(1000, 800, k=7), speculation=drafting(Method.DRAFT_MODEL, 7))
    found = causes(*cheap, replace(KNOWN, forecast_ratio=1.2))
    assert "verification_cost" in found
    assert "draft_model_cost" not in found


@pytest.mark.parametrize(("gpus", "argument", "expected"), [(8, "", "cause"), (None, "4", "cause"), (1, "", "no"), (None, "", "asked")])
def test_gpus_that_share_the_target_are_a_possible_reason(gpus: int | None, argument: str, expected: str) -> None:
    """All-reduces grow with every verified token, and no formula of the textbook has them."""
    baseline, speculative = compared(3.2, counts(1000, 2000))
    run_told = told(speculative, tensor_parallel_size=argument)
    known = replace(KNOWN, gpus=gpus)
    assert ("tensor_parallel_verification" in causes(baseline, run_told, known)) is (expected == "cause")
    assert ("tensor_parallel_verification" in unchecked(baseline, run_told, known)) is (expected == "asked")


def test_steps_are_held_against_the_forecast_where_target_and_hardware_are_known() -> None:
    """What the hardware explains is no reason to search the engine for a week."""
    runs = compared(2.6, counts(1000, 1200))
    assert "slower_than_forecast" in causes(*runs, replace(KNOWN, forecast_ratio=1.5))
    assert "slower_than_forecast" not in causes(*runs, replace(KNOWN, forecast_ratio=2.5))
    assert "slower_than_forecast" in unchecked(*runs)
    assert "slower_than_forecast" not in causes(None, runs[1], replace(KNOWN, forecast_ratio=1.5))


def test_drafting_that_is_switched_off_and_slow_is_no_rollback() -> None:
    """A threshold that stops drafting leaves its bookkeeping on every step."""
    off = server(counts(0, 0), summaries={"e2e_s": mean(5.8)})
    before = plain(summaries={"e2e_s": mean(5.4)}, step_seconds=None)
    assert causes(before, off)["disabled_drafting_not_free"].figures["e2e_ratio"] == pytest.approx(1.074, abs=0.001)
    by_pace = causes(plain(0.010), replace(off, summaries={"tpot_s": mean(0.011)}))["disabled_drafting_not_free"]
    assert by_pace.figures["time_ratio"] == pytest.approx(1.1)
    assert "disabled_drafting_not_free" not in causes(before, replace(off, summaries={"e2e_s": mean(5.4)}))
    assert "disabled_drafting_not_free" in unchecked(None, off)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"cuda_graph_max_bs": "4"}, {"captured_batch": 4, "concurrency": 8, "needed": 8}),
        ({"cuda_graph_max_bs": "8"}, None),
        ({"max_cudagraph_capture_size": "16"}, {"captured_batch": 16, "concurrency": 8, "needed": 32}),
        ({"max_cudagraph_capture_size": "many"}, None),
    ],
)
def test_graphs_smaller_than_the_batch_are_told(arguments: Mapping[str, str], found: dict[str, int] | None) -> None:
    """Eager steps look like a bad draft."""
    busy = told(server(counts(1000, 2000), load=Load(concurrency=8, rate_per_s=None)), **arguments)
    cause = causes(None, busy).get("batch_beyond_cuda_graphs")
    assert (None if cause is None else cause.figures) == found
    without = replace(busy, speculation=None)
    assert "batch_beyond_cuda_graphs" in unchecked(None, told(server(counts(1000, 2000))))
    assert without.speculation is None
    assert (causes(None, without).get("batch_beyond_cuda_graphs") is not None) is (arguments == {"cuda_graph_max_bs": "4"})


def test_positions_that_are_never_accepted_are_cut_off_for_nothing() -> None:
    """α = .09 at K = 15 is asked about as a fault, and K = 5 has the same tokens."""
    total = counts(65, 89, k=15, positions=(39, 25, 14, 7, 4, *[0] * 10))
    found = causes(None, server(total, speculation=None))["draft_too_long"]
    assert (found.figures["draft_tokens"], found.figures["useful_draft_tokens"]) == (15, 5)
    assert found.surely is Surely.SURE


@pytest.mark.parametrize(
    ("ratio", "k", "positions", "best", "surely"),
    [
        (1.615, 4, None, 2, Surely.POSSIBLE),
        (2.5, 4, (700, 300, 60, 20), 1, Surely.LIKELY),
        (1.2, 4, (700, 500, 400, 300), None, None),
        (1.2, 1, (700,), None, None),
    ],
)
def test_the_best_draft_length_follows_from_survival_and_step_times(
    ratio: float, k: int, positions: tuple[int, ...] | None, best: int | None, surely: Surely | None
) -> None:
    """The last positions cost a forward each and are seldom reached; two that were dropped gave 6 % (vLLM pull request 16035)."""
    total = counts(1000, sum(positions) if positions else 1080, k=k, positions=positions)
    found = causes(*compared(ratio, total, speculation=drafting(Method.EAGLE, k))).get("draft_too_long")
    assert (None if found is None else found.figures["best_draft_tokens"]) == best
    assert (None if found is None else found.surely) is surely


def test_a_tree_and_a_lookup_have_no_such_length() -> None:
    """Accepted over drafted nodes says nothing across shapes."""
    total = counts(1000, 1500, k=15)
    tree = drafting(Method.EAGLE2, 4, Tree(depth=4, topk=4, nodes=15))
    assert "draft_too_long" in unchecked(*compared(2.0, total, speculation=tree))
    lookup = counts(1000, 1500, positions=(700, 500, 300), steps=1000)
    assert "draft_too_long" in unchecked(*compared(2.0, lookup, speculation=drafting(Method.NGRAM, 3)))


def test_acceptance_that_falls_on_long_prompts_is_told_with_where_it_ends() -> None:
    """A head trained on 4k looks fine on average and is dead weight on every long prompt."""
    lengths = [1000 * i for i in (2, 2, 4, 4, 6, 8, 10, 12, 14, 16, 18, 20)]
    alphas = [0.45, 0.44, 0.40, 0.41, 0.3, 0.2, 0.12, 0.03, 0.02, 0.02, 0.02, 0.02]
    found = causes(None, of_prompts(alphas, prompts=lengths))
    assert found["acceptance_falls_with_context"].figures["useless_from_prompt_tokens"] == 12000
    assert found["draft_context_exceeded"].surely is Surely.POSSIBLE
    mild = causes(None, of_prompts([0.45, 0.44, 0.43, 0.44, 0.40, 0.35, 0.3, 0.3, 0.26, 0.25, 0.26, 0.25], prompts=lengths))
    assert "useless_from_prompt_tokens" not in mild["acceptance_falls_with_context"].figures
    assert "draft_context_exceeded" not in mild
    assert "acceptance_falls_with_context" not in causes(None, of_prompts([0.4, 0.41] * 6, prompts=lengths))


def test_lengths_that_do_not_differ_or_are_few_are_asked_for() -> None:
    """Four requests do not show a trend, and equal prompts show none at all."""
    assert "acceptance_falls_with_context" in unchecked(None, of_prompts([0.5] * 12))
    few = of_prompts([0.5, 0.4, 0.3, 0.2], prompts=[1000, 2000, 4000, 8000])
    assert "eight requests" in unchecked(None, few)["acceptance_falls_with_context"]
    untimed = of_prompts([0.4] * 8, prompts=[1000] * 4 + [9000] * 4, tpots=False)
    assert "decode steps" in unchecked(None, untimed)["step_cost_rises_with_context"]


def test_steps_that_get_dearer_on_long_prompts_are_held_against_the_baseline_s() -> None:
    """The same acceptance gains 44 % at 34K and nothing at 86K."""
    lengths = [1000] * 6 + [9000] * 6
    drafted = of_prompts([0.5] * 12, prompts=lengths)
    slow = replace(drafted, requests=tuple(stretched(each, 2.0) if each.prompt_tokens > 1000 else each for each in drafted.finished))
    alone = causes(None, slow)["step_cost_rises_with_context"]
    assert alone.surely is Surely.POSSIBLE
    assert alone.figures["step_s_long"] == pytest.approx(0.024)
    even = replace(drafted, arm=Arm.BASELINE, requests=tuple(replace(each, acceptance=None) for each in drafted.finished))
    both = causes(replace(even, acceptance_by_segment=None, speculation=None), slow)["step_cost_rises_with_context"]
    assert both.surely is Surely.LIKELY
    assert float(str(both.figures["step_time_ratio_long"])) == pytest.approx(2 * float(str(both.figures["step_time_ratio_short"])))
    alike = replace(
        even, acceptance_by_segment=None, speculation=None, requests=tuple(replace(each, acceptance=None) for each in slow.finished)
    )
    assert "step_cost_rises_with_context" not in causes(alike, slow)
    assert "step_cost_rises_with_context" not in causes(None, drafted)
    other = replace(alike, requests=tuple(replace(each, prompt_tokens=5) for each in alike.finished))
    assert causes(other, slow)["step_cost_rises_with_context"].surely is Surely.POSSIBLE


def stretched(record: RequestRecord, by: float) -> RequestRecord:
    """The same request with every gap that many times as long."""
    when = record.timing
    return replace(record, timing=replace(when, chunk_at_s=when.chunk_at_s[0] + by * (when.chunk_at_s - when.chunk_at_s[0])))


def test_causes_are_ranked_by_kind_then_surely_then_loss_and_each_code_once() -> None:
    """Whoever reads one line reads the first."""
    names = [("draft_too_long", Surely.SURE, 0.1), ("low_acceptance", Surely.LIKELY, 0.9), ("temperature", Surely.LIKELY, 0.95)]
    names += [
        ("nothing_accepted", Surely.POSSIBLE, 0.0),
        ("random_prompts", Surely.POSSIBLE, 0.0),
        ("draft_too_long", Surely.POSSIBLE, 0.5),
    ]
    made = [Cause(code=code, message="", figures={}, remedy="", surely=surely, loss=loss) for code, surely, loss in names]
    found, left = ranked([Unchecked("temperature", "x"), Unchecked("preemption", "y"), *made, Unchecked("preemption", "z")])
    assert [each.code for each in found] == ["random_prompts", "nothing_accepted", "draft_too_long", "temperature", "low_acceptance"]
    assert left == (Unchecked("preemption", "y"),)
    assert found[2].surely is Surely.SURE


def test_a_gain_that_swings_with_the_load_is_to_be_measured_again() -> None:
    """.85, .94, .99, .82, 1.06 is no break-even curve, and one good point of it ships nothing."""

    def at(gain: float, concurrency: int) -> Diagnosis:
        speculative = server(
            counts(1000, 2000), summaries={"tpot_s": mean(0.010 / gain)}, load=Load(concurrency=concurrency, rate_per_s=None)
        )
        return seen(plain(), speculative)

    swinging = [at(gain, load) for gain, load in zip((0.99, 0.85, 0.94, 0.82, 1.06), (8, 1, 4, 32, 64), strict=True)]
    found = across_loads(swinging)
    assert [each.concurrency for each in found] == [1, 4, 8, 32, 64]
    assert found[-1].causes[0].code == "gain_not_monotone"
    assert found[-1].causes[0].figures["turns"] == 2
    falling = across_loads([at(gain, load) for gain, load in ((1.8, 1), (1.4, 8), (0.9, 64))])
    assert all(each.code != "gain_not_monotone" for each in falling[-1].causes)
    with pytest.raises(BadInputError, match="no load"):
        across_loads([])


def test_a_diagnosis_is_of_a_run_with_drafts() -> None:
    """Swapped arms would blame the baseline for the draft."""
    with pytest.raises(BadInputError, match="run with drafts"):
        seen(plain(), plain())


def test_a_baseline_under_another_load_is_compared_with_nothing() -> None:
    """One request alone against a full batch is slow for another reason than drafts."""
    baseline, speculative = compared(3.66, counts(1000, 2200))
    alone, full = (replace(each, load=Load(concurrency=load, rate_per_s=None)) for each, load in ((baseline, 1), (speculative, 64)))
    found = seen(alone, full)
    assert found.figures.speedup is None
    assert "verification_cost" not in [each.code for each in found.causes]
    assert "different_loads" in [each.code for each in found.warnings]
    assert "under the same load" in unchecked(alone, full)["verification_cost"]


def test_every_code_has_a_kind_and_a_sentence() -> None:
    """The table is what the reference is checked against."""
    assert all(words and code == code.lower() for code, (_, words) in CODES.items())
