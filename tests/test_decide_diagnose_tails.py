"""Causes in tails, first tokens, how it was measured, the answers, and between two speculative runs."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from paceline.decide.diagnose import Asked, diagnose
from paceline.decide.diagnosis.cause import Cause, Surely
from paceline.decide.losslessness import Answers, losslessness
from paceline.latency import Detail, RequestTiming
from paceline.run import Arm, Outcome, RequestRecord, Run, Summary
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method, Speculation
from paceline.verdict import Caution
from tests.strategies_runs import pair, run, summaries_only, timing

KNOWN = Asked(answers=None, losslessness=None, forecast_ratio=None, is_moe=None, gpus=None, margin=0.05, confidence=0.95)


def seen(baseline: Run | None, speculative: Run, known: Asked = KNOWN) -> tuple[dict[str, Cause], dict[str, str]]:
    found = diagnose(baseline, speculative, asked=known, rng=np.random.default_rng(1))
    return {each.code: each for each in found.causes}, {each.code: each.needs for each in found.unchecked}


def mean(value: float) -> Summary:
    return Summary(value=value, statistic="mean", n=None, low=None, high=None)


def totals(arm: Arm, **summaries: float) -> Run:
    return summaries_only(arm, step_s=None, counts=None, summaries={name: mean(each) for name, each in summaries.items()})


def drafted(i: int, *, sent_at_s: float, gaps_s: list[float], per_step: int, ttft_s: float = 0.1, prompt: int = 100) -> RequestRecord:
    """A request of as many steps as gaps, each of that many tokens."""
    n = len(gaps_s)
    accepted = n * (per_step - 1)
    counts = AcceptanceCounts(steps=n, drafts=n, drafted_tokens=n * 3, accepted_tokens=accepted, accepted_per_position=None)
    when = timing(sent_at_s=sent_at_s, ttft_s=ttft_s, gaps_s=gaps_s, tokens=[1, *[per_step] * n])
    return RequestRecord(
        id=str(i),
        segment="all",
        prompt_tokens=prompt,
        output_tokens=1 + n * per_step,
        timing=when,
        acceptance=counts,
        outcome=Outcome.FINISHED,
    )


def speculative(records: list[RequestRecord], step_s: float = 0.012) -> Run:
    base = run(Arm.SPECULATIVE, n=1, step_s=step_s, alphas={"all": 0.5})
    pooled = AcceptanceCounts.pooled(each.acceptance for each in records if each.acceptance)
    return replace(base, requests=tuple(records), acceptance_by_segment={"all": pooled}, window_s=10.0)


def plainly(records: list[RequestRecord], gap_s: float, *, ttft_s: float = 0.1) -> Run:
    """The baseline of the same requests, a token a gap."""
    made = [
        replace(
            each,
            acceptance=None,
            timing=timing(
                sent_at_s=each.timing.sent_at_s,
                ttft_s=ttft_s,
                gaps_s=[gap_s] * (each.output_tokens - 1),
                tokens=[1] * each.output_tokens,
            ),
        )
        for each in records
    ]
    base = run(Arm.BASELINE, n=1, step_s=gap_s, alphas={"all": 0.5})
    return replace(base, requests=tuple(made), window_s=10.0)


def test_the_slowest_requests_are_those_whose_drafts_are_rejected() -> None:
    """The mean doubles, and the users of one kind of prompt write to support."""
    records = [drafted(i, sent_at_s=i, gaps_s=[0.012] * 60, per_step=1 if i % 20 == 0 else 3) for i in range(60)]
    causes, needs = seen(plainly(records, 0.010), speculative(records))
    assert causes["mean_better_tail_worse"].surely is Surely.POSSIBLE
    assert causes["uneven_acceptance"].figures == {"tokens_per_step_slowest": 1.0, "tokens_per_step_others": 3.0}
    assert "long_steps_at_full_batch" not in causes
    assert "prefill_interference" not in {**causes, **needs}


def test_the_slowest_requests_ran_in_the_fullest_batches() -> None:
    """Drafting less everywhere would take from the many what a cap gives the few."""
    alone = [drafted(i, sent_at_s=10.0 * i, gaps_s=[0.012] * 60, per_step=3) for i in range(45)]
    crowd = [drafted(100 + i, sent_at_s=1000.0, gaps_s=[0.050] * 60, per_step=3) for i in range(4)]
    causes, _ = seen(plainly([*alone, *crowd], 0.012), speculative([*alone, *crowd]))
    assert causes["long_steps_at_full_batch"].figures["in_flight_slowest_over_others"] == pytest.approx(4, rel=0.05)
    assert "uneven_acceptance" not in causes
    spread = [drafted(100 + i, sent_at_s=1000.0 + 100 * i, gaps_s=[0.050] * 60, per_step=3) for i in range(4)]
    assert "long_steps_at_full_batch" not in seen(plainly([*alone, *spread], 0.012), speculative([*alone, *spread]))[0]


def test_a_tail_of_few_or_uncounted_requests_is_not_explained() -> None:
    """Of ten requests the slowest is one, and it has a reason of its own."""
    records = [drafted(i, sent_at_s=i, gaps_s=[0.012] * 30, per_step=1 if i == 0 else 3) for i in range(10)]
    assert "of 20 or more" in seen(plainly(records, 0.010), speculative(records))[1]["uneven_acceptance"]
    causes, needs = seen(totals(Arm.BASELINE, tpot_s=0.01), totals(Arm.SPECULATIVE, tpot_s=0.008))
    assert "requests of both arms" in needs["mean_better_tail_worse"]
    assert "ttft_worse" in needs
    assert not causes


def test_equal_requests_have_no_slowest_ones() -> None:
    """Where only the baseline's mean is off by one outlier, nobody in the other arm is slow."""
    records = [drafted(i, sent_at_s=i, gaps_s=[0.012] * 10, per_step=3) for i in range(200)]
    baseline = plainly(records, 0.0037)
    outlier = replace(baseline.finished[0], timing=stalled(baseline.finished[0].timing, 3, by=50.0))
    causes, _ = seen(replace(baseline, requests=(outlier, *baseline.finished[1:])), speculative(records))
    assert "mean_better_tail_worse" in causes
    assert not {"uneven_acceptance", "long_steps_at_full_batch"} & set(causes)


def stalled(when: RequestTiming, at: int, *, by: float) -> RequestTiming:
    """The same chunks, all behind number `at` later."""
    instants = when.chunk_at_s.copy()
    instants[at + 1 :] += by
    return replace(when, chunk_at_s=instants)


def interfered(*, sees_chunks: bool = True, every: int = 1) -> tuple[Run, Run]:
    """Twenty-four requests in pairs: the second's prompt stops the first's eleventh gap for 40 ms, with drafts only,
    and its first token comes out of the step that ends that gap.
    """
    records, slow = [], []
    for i in range(24):
        start = 10.0 * (i // 2)
        first = drafted(i, sent_at_s=start, gaps_s=[0.012] * 60, per_step=3 if i % 12 else 1)
        if i % 2 == 0 and (i // 2) % every == 0:
            first = replace(first, timing=stalled(first.timing, 10, by=0.040))
        second = drafted(i, sent_at_s=start + 0.13, gaps_s=[0.012] * 60, per_step=3, ttft_s=0.142)
        records.append(first if i % 2 == 0 else second)
        slow.append(records[-1])
    if not sees_chunks:
        records = [replace(each, timing=replace(each.timing, detail=Detail.ENDS)) for each in records]
    return plainly(records, 0.0105), speculative(records)


def test_long_gaps_in_which_another_prompt_was_read_are_prefills() -> None:
    """Drafts are blamed for stalls that chunked prefill ends."""
    causes, _ = seen(*interfered())
    found = causes["prefill_interference"]
    assert float(str(found.figures["long_gaps_with_prefill"])) == 1
    assert float(str(found.figures["long_gap_time_share_baseline"])) == 0
    assert "prefill_interference" in seen(*interfered(sees_chunks=False))[1]
    baseline, ours = interfered()
    worse = [replace(each, timing=stalled(each.timing, 30, by=0.5)) for each in baseline.finished]
    assert "prefill_interference" not in seen(replace(baseline, requests=tuple(worse)), ours)[0]


def test_a_server_that_counts_preemptions_is_believed() -> None:
    """A draft's cache takes blocks from the target's, and requests are computed twice."""
    speculative_run, baseline = totals(Arm.SPECULATIVE, preemptions=12), totals(Arm.BASELINE, preemptions=1)
    found = seen(baseline, speculative_run)[0]["preemption"]
    assert (found.surely, found.figures) == (Surely.SURE, {"preemptions": 12, "preemptions_baseline": 1})
    assert seen(None, speculative_run)[0]["preemption"].figures == {"preemptions": 12}
    assert "preemption" not in seen(baseline, totals(Arm.SPECULATIVE, preemptions=1))[0]
    assert "preemption" in seen(baseline, totals(Arm.SPECULATIVE, tpot_s=1.0))[1]


def test_requests_that_stand_still_may_have_been_preempted() -> None:
    """Without the counter a gap of a second in which nobody's prompt was read is all there is to see."""
    records = [drafted(i, sent_at_s=10.0 * i, gaps_s=[0.012] * 20, per_step=3) for i in range(20)]
    still = [replace(each, timing=stalled(each.timing, 5, by=1.0)) if i == 3 else each for i, each in enumerate(records)]
    found = seen(plainly(records, 0.01), speculative(still))[0]["preemption"]
    assert (found.surely, found.figures["requests_stalled_share"]) == (Surely.POSSIBLE, 0.05)
    assert "requests_stalled_share_baseline" not in seen(None, speculative(still))[0]["preemption"].figures
    assert "preemption" not in seen(plainly(records, 0.01), speculative(records))[0]
    ends = [replace(each, timing=replace(each.timing, detail=Detail.ENDS)) for each in records]
    assert "preemption" in seen(None, speculative(ends))[1]


def test_a_segment_that_gets_slower_is_named_with_its_ratio() -> None:
    """Code gains a third, creative writing loses a tenth, and the mean says ship."""
    baseline, ours = pair(n=80, step_s=0.014, alphas={"code": 0.8, "prose": 0.05})
    found = seen(baseline, ours)[0]["harmed_segment"]
    assert found.surely is Surely.SURE
    assert found.figures["segments_that_gain"] == 1
    assert list(dict(found.figures)["tpot_ratio_by_segment"]) == ["prose"]  # type: ignore[arg-type]  # a mapping by its name
    assert "harmed_segment" not in seen(*pair(n=40))[0]
    assert "segment" in seen(*pair(n=40, alphas={"all": 0.7}))[1]["harmed_segment"]
    three = pair(n=90, step_s=0.014, alphas={"code": 0.8, "prose": 0.05, "chat": 0.6})
    gone = replace(three[1], requests=tuple(replace(each, segment="new") if each.segment == "chat" else each for each in three[1].finished))
    assert "harmed_segment" in seen(three[0], gone)[0]
    assert "harmed_segment" not in seen(*pair(n=80, step_s=0.03, alphas={"code": 0.3, "prose": 0.05}))[0]


def late(rise_s: Callable[[int], float], *, n: int = 30, step_s: float = 0.012) -> tuple[Run, Run]:
    """Both arms of the same requests on prompts of 100, 200, … tokens, the first token later by a rise of the prompt's length."""
    rng = np.random.default_rng(3)
    prompts = [100 * (1 + i) for i in range(n)]
    noise = rng.normal(0, 0.0005, n)
    plain = [drafted(i, sent_at_s=i, gaps_s=[0.01] * 9, per_step=1, prompt=each) for i, each in enumerate(prompts)]
    ours = [
        drafted(i, sent_at_s=i, gaps_s=[step_s] * 9, per_step=1, prompt=each, ttft_s=0.1 + rise_s(each) + float(noise[i]))
        for i, each in enumerate(prompts)
    ]
    return plainly(plain, 0.01), speculative(ours, step_s)


def test_a_rise_that_grows_with_the_prompt_is_the_draft_s_own_prefill() -> None:
    """Long prompts have the promise that breaks, and a constant would not be felt."""
    causes, _ = seen(*late(lambda prompt: prompt * 20e-6))
    assert causes["ttft_worse"].surely is Surely.SURE
    assert float(str(causes["draft_prefill"].figures["rise_s_per_1000_prompt_tokens"])) == pytest.approx(0.02, rel=0.05)
    assert "ttft_of_longer_steps" not in causes


def test_a_rise_of_a_step_is_the_wait_for_a_running_one() -> None:
    """From 100 to 117 ms nobody notices; a bound on the ratio alone stops the rollout."""
    causes, _ = seen(*late(lambda _: 0.017))
    assert "draft_prefill" not in causes
    assert causes["ttft_of_longer_steps"].figures["step_s_baseline"] == 0.01
    assert "ttft_of_longer_steps" not in seen(*late(lambda _: 0.3))[0]
    assert "ttft_worse" not in seen(*late(lambda _: 0.0))[0]


def test_a_first_token_without_pairs_or_step_times_is_not_explained() -> None:
    """An explanation that cannot be told apart from another is none."""
    baseline, ours = late(lambda _: 0.017)
    assert "ttft_of_longer_steps" in seen(replace(baseline, step_seconds=None), ours)[1]
    assert "twelve or more" in seen(*late(lambda _: 0.05, n=9))[1]["draft_prefill"]
    same = [replace(run_, requests=tuple(replace(each, prompt_tokens=100) for each in run_.finished)) for run_ in (baseline, ours)]
    assert "ttft_of_longer_steps" in seen(same[0], same[1])[0]
    assert "draft_prefill" in seen(totals(Arm.BASELINE, ttft_s=0.01), totals(Arm.SPECULATIVE, ttft_s=0.02))[1]


def told(base: Run, **arguments: str) -> Run:
    return replace(base, provenance=replace(base.provenance, arguments={**base.provenance.arguments, **arguments}))


def test_what_makes_the_figures_untrustworthy_comes_first() -> None:
    """Acceptance on random tokens is published, compared, and true of nothing."""
    random = told(totals(Arm.SPECULATIVE), dataset_name="random", ignore_eos="true")
    causes, _ = seen(None, random)
    assert list(causes) == ["random_prompts", "forced_length"]
    noted = replace(totals(Arm.SPECULATIVE), cautions=(Caution("random_dataset", "random tokens"), Caution("degenerate_answers", "loops")))
    assert {"random_prompts", "degenerate_answers"} <= set(seen(None, noted)[0])
    assert "random_prompts" not in seen(None, told(totals(Arm.SPECULATIVE), dataset="sharegpt"))[0]


def test_answers_that_loop_make_acceptance_that_of_the_loop() -> None:
    """A probe without the chat template measured .67 on a text that said one thing for ever."""
    loop, real = "The the the and the and, " * 14, " ".join(f"Sentence {i} is number {i * i}." for i in range(20))
    known = replace(KNOWN, answers=Answers({}, {"0": loop, "1": loop, "x": real}, {}))
    records = [drafted(0, sent_at_s=0, gaps_s=[0.01] * 100, per_step=2)]
    found = seen(None, speculative(records), known)[0]["degenerate_answers"]
    assert found.figures == {"answers": 3, "looping": 2, "characters_per_token": pytest.approx(350 / 201)}
    assert "characters_per_token" not in seen(None, totals(Arm.SPECULATIVE), known)[0]["degenerate_answers"].figures
    assert "degenerate_answers" not in seen(None, totals(Arm.SPECULATIVE), replace(KNOWN, answers=Answers({}, {"x": real}, {})))[0]


def answered(theirs: dict[str, str], repeat: dict[str, str], *, ours: dict[str, str] | None = None) -> Asked:
    answers = Answers(ours or {str(i): f"answer number {i}" for i in range(200)}, theirs, repeat)
    found = losslessness(answers, temperature=0, encode=None, confidence=0.95, rng=np.random.default_rng(1))
    return replace(KNOWN, answers=answers, losslessness=found)


def test_answers_that_differ_beyond_the_floor_are_a_cause_and_noise_is_none() -> None:
    """A verification that accepts what it should not is fast, and nobody sees it in a latency."""
    plain = {str(i): f"answer number {i}" for i in range(200)}
    half = {name: text.replace("answer", "reply") if int(name) % 2 else text for name, text in plain.items()}
    runs = totals(Arm.BASELINE, tpot_s=0.01), totals(Arm.SPECULATIVE, tpot_s=0.008)
    found = seen(*runs, answered(half, plain))[0]["answers_differ"]
    assert (found.surely, found.figures["differing"], found.figures["noise_floor"]) == (Surely.LIKELY, 0.5, 0)
    assert found.figures["median_first_character"] == 0
    causes, needs = seen(*runs, answered(half, half))
    assert "answers_differ" not in {**causes, **needs}
    assert "--noise-floor" in seen(*runs, answered(half, {}))[1]["answers_differ"]
    assert "answers_differ" not in seen(*runs, answered(plain, {}))[1]


def test_answers_of_another_length_are_another_fault() -> None:
    """A missed stop token makes throughput look splendid."""
    plain = {str(i): f"answer number {i}" for i in range(200)}
    longer = {name: f"{text} and so on" for name, text in plain.items()}
    runs = totals(Arm.BASELINE, tpot_s=0.01), totals(Arm.SPECULATIVE, tpot_s=0.008)
    for theirs, ours in ((longer, plain), (plain, longer)):
        found = seen(*runs, answered(theirs, {}, ours=ours))[0]["output_lengths_differ"]
        assert 0 < found.loss < 1
    assert "output_lengths_differ" not in seen(*runs, answered(plain, {}))[0]


@pytest.mark.parametrize(("broken", "surely"), [(12, Surely.SURE), (3, Surely.POSSIBLE)])
def test_json_that_breaks_is_broken_whatever_the_speed(broken: int, surely: Surely) -> None:
    """Drafts after the end of reasoning that the grammar never saw."""
    good = {str(i): f'{{"n": {i}}}' for i in range(20)}
    bad = {name: text[:-1] if int(name) < broken else text for name, text in good.items()}
    causes, _ = seen(totals(Arm.BASELINE, tpot_s=0.01), totals(Arm.SPECULATIVE, tpot_s=0.008), answered(bad, {}, ours=good))
    assert causes["structured_output_breaks"].surely is surely
    assert causes["structured_output_breaks"].figures["broken"] == broken


def version(k: int | None, *, length: float | None, tokens_per_s: float | None, counted: bool = True) -> Run:
    """A speculative run that states K, tokens per step and throughput."""
    how = None if k is None else Speculation(method=Method.EAGLE3, draft_tokens=k, tree=None)
    stated = {} if tokens_per_s is None else {"output_tokens_per_s": mean(tokens_per_s)}
    counts = None
    if length is not None and counted:
        drafts = 1000 * (k or 1)
        counts = AcceptanceCounts(
            steps=None, drafts=1000, drafted_tokens=drafts, accepted_tokens=round(1000 * (length - 1)), accepted_per_position=None
        )
    elif length is not None:
        stated["acceptance_length"] = mean(length)
    return replace(summaries_only(Arm.SPECULATIVE, step_s=None, counts=counts, summaries=stated), speculation=how)


@pytest.mark.parametrize(("first", "second"), [(2, 4), (4, 2)])
def test_the_longer_of_two_drafts_is_named_where_it_is_slower(first: int, second: int) -> None:
    """K = 4 accepts more than K = 2 and is 6 % slower."""
    speed, length = {2: 175.49, 4: 165.65}, {2: 1.89, 4: 2.08}
    runs = [version(k, length=length[k], tokens_per_s=speed[k]) for k in (first, second)]
    found = seen(runs[0], runs[1])[0]["longer_draft_slower"]
    assert found.figures["better_draft_tokens"] == 2
    assert found.figures["throughput_ratio"] == pytest.approx(0.944, abs=0.001)
    assert found.figures["tokens_per_step_gained"] == pytest.approx(0.19)
    bare = [version(k, length=None, tokens_per_s=speed[k]) for k in (first, second)]
    assert "tokens_per_step_gained" not in seen(bare[0], bare[1])[0]["longer_draft_slower"].figures
    assert "longer_draft_slower" in seen(version(first, length=2, tokens_per_s=None), version(second, length=2, tokens_per_s=None))[1]
    even = [version(k, length=length[k], tokens_per_s=100) for k in (first, second)]
    assert "longer_draft_slower" not in seen(even[0], even[1])[0]


def test_two_versions_of_one_length_are_compared_by_acceptance_then_by_speed() -> None:
    """The draft is blamed for what the engine's new scheduler lost, or the other way round."""
    old = version(3, length=2.96, tokens_per_s=129.26)
    slower = seen(old, version(3, length=2.96, tokens_per_s=113.59))[0]
    assert slower["slower_at_equal_acceptance"].figures["speedup"] == pytest.approx(0.8788, abs=1e-4)
    fell = seen(old, version(3, length=2.0, tokens_per_s=90))[0]
    assert {"alpha_before", "alpha_after", "speedup"} <= set(fell["acceptance_fell"].figures)
    assert "slower_at_equal_acceptance" not in fell
    stated = seen(version(3, length=2.96, tokens_per_s=1, counted=False), version(3, length=2.0, tokens_per_s=None, counted=False))[0]
    assert not {"alpha_before", "speedup"} & set(stated["acceptance_fell"].figures)
    assert not {"acceptance_fell", "slower_at_equal_acceptance"} & set(seen(old, old)[0])
    assert "slower_at_equal_acceptance" in seen(old, version(3, length=2.96, tokens_per_s=None))[1]
    assert "acceptance_fell" in seen(old, version(3, length=None, tokens_per_s=100))[1]


def test_with_requests_of_both_versions_the_answer_is_sure() -> None:
    """A rerun is spared where the interval already lies below 1."""
    new = run(Arm.SPECULATIVE, n=60, step_s=0.015, alphas={"chat": 0.7})
    old = run(Arm.SPECULATIVE, n=60, step_s=0.012, alphas={"chat": 0.7})
    assert seen(old, new)[0]["slower_at_equal_acceptance"].surely is Surely.SURE
    longer = run(Arm.SPECULATIVE, n=60, step_s=0.030, alphas={"chat": 0.7}, draft_tokens=7)
    assert seen(old, longer)[0]["longer_draft_slower"].surely is Surely.SURE
