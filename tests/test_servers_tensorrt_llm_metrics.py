"""What TensorRT-LLM says in its two places: counters by request, and a list of iterations."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import BadInputError, NoEvidenceError, PacelineError
from paceline.run import Arm
from paceline.servers.measured_run import to_run
from paceline.servers.prometheus_text import parse_exposition
from paceline.servers.tensorrt_llm import iterations
from paceline.servers.tensorrt_llm.iterations import Iterations, is_iterations, read_iterations
from paceline.servers.tensorrt_llm.metrics import is_tensorrt_llm, read_counters, window
from paceline.servers.window import Window

DUMPS = Path(__file__).parent / "data" / "dumps"
LISTED = (DUMPS / "tensorrt-llm-iterations.json").read_text(encoding="utf-8")


def counted(text: str) -> Window:
    return window([read_counters(parse_exposition(text).samples, model=None)])


def codes(of: Window) -> list[str]:
    return [each.code for each in of.cautions]


def one(number: int, *, drafted: int = 6, accepted: int = 4, drafts: int = 2, **more: Any) -> dict[str, Any]:
    spec = {"numDraftTokens": drafted, "numAcceptedTokens": accepted, "numRequestsWithDraftTokens": drafts}
    return {"iter": number, "iterLatencyMS": 20.0, "inflightBatchingStats": {"numGenRequests": 2}, "specDecodingStats": spec} | more


def reading(*listed: object) -> Iterations:
    return read_iterations(json.dumps(listed))


def test_counters_by_position_give_whole_counts_over_workers() -> None:
    """Whoever serves on two workers: 30 drafts, 60 of 90 accepted, one worker never accepted a second token."""
    both = counted((DUMPS / "tensorrt-llm-two-workers.prom").read_text(encoding="utf-8"))
    counts = both.acceptance
    assert counts is not None
    assert (counts.drafts, counts.drafted_tokens, counts.accepted_tokens) == (30, 90, 60)
    assert counts.accepted_per_position == (30, 20, 10)
    assert counts.steps is None
    run = to_run(both, arm=None, inputs={}, window_s=None)
    assert run.summaries["tokens_per_step_emitted"].value == (102 - 2) / (102 - 2 - 60)
    assert run.summaries["tpot_s"].value == pytest.approx(0.015)
    assert run.arm is Arm.SPECULATIVE
    assert run.cautions == ()


def test_drafts_of_which_none_was_accepted_are_an_acceptance_of_zero() -> None:
    """Whoever has a broken draft head: no accepted series exists yet, and 0 of 20 was measured."""
    text = "".join(f'trtllm_spec_decode_drafted_tokens_total{{token_position="{i}"}} 10\n' for i in range(2))
    counts = counted(text).acceptance
    assert counts is not None
    assert (counts.alpha, counts.accepted_per_position) == (0.0, (0, 0))


def test_iteration_counters_give_a_rate_and_no_length() -> None:
    """Whoever runs without return_perf_metrics: drafts are not counted, so τ is not, and the gauge of the last iteration is no stand-in."""
    text = (
        "trtllm_spec_decode_num_draft_tokens_total 90\ntrtllm_spec_decode_num_accepted_tokens_total 60\n"
        "trtllm_spec_decode_acceptance_length 2.9\ntrtllm_generation_tokens_total 100\n"
    )
    live = counted(text)
    run = to_run(live, arm=None, inputs={}, window_s=None)
    assert run.acceptance_by_segment is None
    assert run.summaries["alpha"].value == pytest.approx(2 / 3)
    assert {"acceptance_length", "tokens_per_step_emitted"} & run.summaries.keys() == set()
    assert codes(live) == ["counted_live", "counters_missing"]
    assert "return_perf_metrics" in live.cautions[1].message


def test_a_plain_server_has_no_acceptance() -> None:
    """Whoever measures the baseline: nothing but its latencies."""
    plain = counted("trtllm_generation_tokens_total 100\ntrtllm_num_requests_running 3\n")
    assert (plain.speculates, plain.acceptance, codes(plain)) == (False, None, [])
    assert plain.gauges["requests_running"].value == 3
    assert not is_tensorrt_llm(parse_exposition("vllm:x 1\n").samples)


def test_iterations_give_counts_steps_and_their_time() -> None:
    """Whoever has no Prometheus: (15 + 14) / 14 tokens per drafted step, 16 steps of which two had no draft, 20 and 30 ms by 8 requests."""
    told = iterations.window([read_iterations(LISTED)])
    counts = told.acceptance
    assert counts is not None
    assert (counts.steps, counts.drafts, counts.drafted_tokens, counts.accepted_tokens) == (16, 14, 42, 15)
    assert counts.acceptance_length == pytest.approx((15 + 14) / 14)
    assert told.step_seconds == pytest.approx(0.025)
    assert told.gauges["requests_running"].value == 8
    assert codes(told) == []


def test_a_reading_before_the_window_is_not_in_it() -> None:
    """Whoever polls: the first list holds what was before, and an iteration that comes twice counts once."""
    told = iterations.window([reading(one(1), one(2)), reading(one(2), one(3)), reading(one(3), one(4))])
    assert told.drafts == 4
    assert codes(told) == []


def test_each_rank_numbers_its_own_iterations() -> None:
    """Whoever serves with attention data parallelism: two ranks say 'iteration 3', and both count."""
    told = iterations.window([reading(one(3, attentionDpRank=0), one(3, attentionDpRank=1, accepted=1))])
    assert (told.drafts, told.accepted_tokens, codes(told)) == (4, 5, [])


def test_numbers_that_go_back_are_a_restart() -> None:
    """Whoever's server restarts: what came before stands, and the gap is said."""
    told = iterations.window([reading(one(7)), reading(one(8)), reading(one(1, accepted=0), one(2))])
    assert (told.drafts, codes(told)) == (6, ["counter_reset"])
    assert codes(iterations.window([reading(one(7), one(1, accepted=0)), reading(one(2))])) == []


def test_iterations_that_were_lost_are_counted() -> None:
    """Whoever polls too rarely: the server keeps a bounded list, and what it dropped is not in the figures."""
    told = iterations.window([reading(one(1)), reading(one(5), one(9))])
    assert codes(told) == ["iterations_lost"]
    assert told.cautions[0].message.startswith("6 iterations")


def test_an_empty_list_says_what_may_be_wrong() -> None:
    """Whoever did not enable the statistics: an empty list is no window without drafts."""
    empty = iterations.window([reading()])
    assert codes(empty) == ["no_iterations"]
    with pytest.raises(NoEvidenceError, match="enable_iter_perf_stats"):
        to_run(empty, arm=None, inputs={}, window_s=None)


def test_iterations_without_speculation_are_a_plain_arm() -> None:
    """Whoever measures the baseline: steps and their time, no acceptance."""
    plain = iterations.window([reading({"iter": 1, "iterLatencyMS": 10, "inflightBatchingStats": {"numGenRequests": 4.0}}, {"iter": 2})])
    assert (plain.speculates, plain.steps, plain.step_seconds, plain.acceptance) == (False, 4, 0.01, None)


def test_an_iteration_kept_as_its_line_is_read() -> None:
    """Whoever's client keeps strings: the same iteration."""
    assert reading(json.dumps(one(1))) == reading(one(1))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[1", "damaged or cut off"),
        ("[" * 100_000, "damaged or cut off"),
        ("{}", "no JSON list"),
        ("[1]", "is no iteration"),
        ('["{"]', "is no iteration"),
        ('[{"iterLatencyMS": 1}]', "has no iter"),
        ('[{"iter": -1}]', "not a count"),
        ('[{"iter": true}]', "not a count"),
        ('[{"iter": 1.5}]', "not a count"),
        ('[{"iter": 1, "iterLatencyMS": -1}]', "not a number"),
        ('[{"iter": 1, "iterLatencyMS": NaN}]', "not a number"),
        ('[{"iter": 1, "iterLatencyMS": true}]', "not a number"),
        ('[{"iter": 1, "specDecodingStats": 3}]', "no JSON object"),
        ('[{"iter": 1, "specDecodingStats": {"numDraftTokens": 1e300}}]', "not a count"),
    ],
)
def test_a_list_that_is_none_is_refused(text: str, why: str) -> None:
    """Whoever reads a damaged answer: a message, no figure."""
    with pytest.raises(BadInputError, match=why):
        read_iterations(text)


def test_a_list_of_iterations_is_told_from_other_json() -> None:
    """Whoever gives a chat log that is a JSON array: it is not TensorRT-LLM's."""
    assert is_iterations(LISTED)
    assert is_iterations("[]")
    assert is_iterations(json.dumps([json.dumps(one(1))]))
    assert not is_iterations('[{"messages": []}]')
    assert not is_iterations("up 1\n")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["iter", "iterLatencyMS", "specDecodingStats", "inflightBatchingStats", "numDraftTokens", "numGenRequests"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_no_json_crashes_the_reader(value: object) -> None:
    """Whoever reads an untrusted endpoint: figures or a message."""
    try:
        to_run(iterations.window([read_iterations(json.dumps([value]))]), arm=None, inputs={}, window_s=None)
    except PacelineError:
        return
