"""`servers/per_request`: what four dialects say of one request's drafts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.servers.per_request import OwnDrafts, own_drafts
from paceline.speculation.counts import AcceptanceCounts

VLLM = {  # measured: vLLM 0.32.0 on CPU, n-gram drafts, K = 4; tests/data/streams has the whole answer
    "mean_acceptance_length": 4.0,
    "draft_acceptance_rate": 0.75,
    "acceptance_histogram": [0, 0, 0, 2, 0],
    "num_spec_steps": 2,
    "num_accepted_draft_tokens": 6,
    "num_draft_tokens": 8,
    "num_spec_tokens": 4,
}
SGLANG = {
    "spec_verify_ct": 3,
    "spec_num_correct_drafts": 4,
    "spec_num_proposed_drafts": 9,
    "spec_correct_drafts_histogram": [1, 0, 2],
}


def vllm(*, output_tokens: int = 10, messages: int = 6, **changes: object) -> OwnDrafts:
    """What is read of a vLLM answer."""
    said = {"metrics": {"speculative_decoding": VLLM | changes}}
    return own_drafts(said, output_tokens=output_tokens, messages=messages)


def codes(drafts: OwnDrafts) -> list[str]:
    """The cautions' codes."""
    return [each.code for each in drafts.cautions]


def test_vllm_s_histogram_becomes_acceptance_by_position() -> None:
    """Two drafted steps of three accepted each: positions 1 to 3 held twice, position 4 never."""
    counts = AcceptanceCounts(steps=5, drafts=2, drafted_tokens=8, accepted_tokens=6, accepted_per_position=(2, 2, 2, 0))
    assert vllm() == OwnDrafts("vllm", counts, None, ())


@pytest.mark.parametrize(
    ("output_tokens", "messages", "steps"),
    [
        (12, 6, 5),  # 12 − 1 − 6 = 5 steps, no stop inside a draft
        (10, 6, 5),  # two accepted tokens fell behind the stop: 3 by the tokens, 5 by the messages
        (12, 4, 5),  # messages merged on the way: the tokens decide
        (12, 13, 5),  # one message per token: the tokens decide
        (3, 0, 2),  # never fewer than the drafted steps
    ],
)
def test_steps_without_a_draft_follow_from_tokens_and_messages(output_tokens: int, messages: int, steps: int) -> None:
    """n-gram drafting skips most steps; tokens per step without them is that of the lucky ones."""
    counts = vllm(output_tokens=output_tokens, messages=messages).counts
    assert counts is not None
    assert counts.steps == steps


def test_sglang_verifies_in_every_step() -> None:
    """Three steps, two of which accepted two drafts."""
    counts = AcceptanceCounts(steps=3, drafts=3, drafted_tokens=9, accepted_tokens=4, accepted_per_position=(2, 2))
    said = {"sglext": {"spec_tokens_details": SGLANG}}
    assert own_drafts(said, output_tokens=8, messages=4) == OwnDrafts("sglang", counts, None, ())


def test_without_a_histogram_positions_are_not_known() -> None:
    """None is not zero."""
    counts = vllm(acceptance_histogram=None).counts
    assert counts is not None
    assert counts.accepted_per_position is None


def test_llamacpp_s_steps_follow_from_its_tokens() -> None:
    """200 tokens, 143 of them accepted drafts: 56 decode steps, as its own counter said; that each had a draft is assumed, and said."""
    said = {"timings": {"predicted_n": 200, "draft_n": 224, "draft_n_accepted": 143}}
    drafts = own_drafts(said, output_tokens=200, messages=200)
    assert drafts.counts == AcceptanceCounts(steps=56, drafts=56, drafted_tokens=224, accepted_tokens=143, accepted_per_position=None)
    assert codes(drafts) == ["drafted_steps_assumed"]


def test_llamacpp_leaves_its_counts_out_where_nothing_was_drafted() -> None:
    """Requests without a draft vanish, and tokens per step becomes that of the others."""
    drafts = own_drafts({"timings": {"predicted_n": 5}}, output_tokens=5, messages=5)
    assert drafts.counts == AcceptanceCounts(steps=4, drafts=0, drafted_tokens=0, accepted_tokens=0, accepted_per_position=None)
    assert codes(drafts) == []
    one = own_drafts({"timings": {"predicted_n": 2, "draft_n": 4, "draft_n_accepted": 3}}, output_tokens=2, messages=2)
    assert one.counts is not None
    assert one.counts.steps == 1


def test_tensorrt_llm_gives_a_ratio_and_no_counts() -> None:
    """A ratio that is taken for counts pools wrongly."""
    drafts = own_drafts({"avg_decoded_tokens_per_iter": 2.5}, output_tokens=9, messages=4)
    assert drafts == OwnDrafts("tensorrt_llm", None, 2.5, ())


@pytest.mark.parametrize(
    "said", [{}, {"metrics": {}}, {"metrics": {"speculative_decoding": None}}, {"metrics": 3, "sglext": [], "timings": ""}]
)
def test_what_was_not_said_is_not_known(said: dict[str, object]) -> None:
    """A server without speculation passes for one with none accepted."""
    assert own_drafts(said, output_tokens=9, messages=9) == OwnDrafts(None, None, None, ())


def test_several_answers_are_not_told_apart() -> None:
    """The first answer's counts stand for all."""
    said = {"sglext": {"spec_tokens_details": [SGLANG, SGLANG]}}
    assert codes(own_drafts(said, output_tokens=8, messages=4)) == ["several_answers"]


@pytest.mark.parametrize(
    "drafts",
    [
        vllm(num_spec_steps=3),
        vllm(num_accepted_draft_tokens=9),
        vllm(num_accepted_draft_tokens=5),
        vllm(acceptance_histogram=[0, 0, 0, 2.0, 0]),
        vllm(acceptance_histogram="00020"),
        vllm(num_draft_tokens=-8),
        vllm(num_draft_tokens=True),
        vllm(num_draft_tokens=2**60),
        vllm(num_spec_tokens=None),
        own_drafts({"avg_decoded_tokens_per_iter": 0.5}, output_tokens=9, messages=4),
        own_drafts({"avg_decoded_tokens_per_iter": float("nan")}, output_tokens=9, messages=4),
        own_drafts({"avg_decoded_tokens_per_iter": True}, output_tokens=9, messages=4),
        own_drafts({"avg_decoded_tokens_per_iter": "2"}, output_tokens=9, messages=4),
        own_drafts({"timings": {"predicted_n": 9, "draft_n": 2, "draft_n_accepted": 3}}, output_tokens=9, messages=4),
    ],
)
def test_counts_that_contradict_each_other_are_dropped_with_a_caution(drafts: OwnDrafts) -> None:
    """A verdict rests on numbers that cannot be."""
    assert (drafts.counts, drafts.tokens_per_step) == (None, None)
    assert codes(drafts) == ["unlawful_acceptance"]


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 2**70), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=2), inner, max_size=2)),
    max_leaves=8,
)
SAID = st.fixed_dictionaries(
    {},
    optional={
        "metrics": st.one_of(
            VALUES, st.fixed_dictionaries({"speculative_decoding": st.fixed_dictionaries({}, optional=dict.fromkeys(VLLM, VALUES))})
        ),
        "sglext": st.one_of(
            VALUES, st.fixed_dictionaries({"spec_tokens_details": st.fixed_dictionaries({}, optional=dict.fromkeys(SGLANG, VALUES))})
        ),
        "timings": st.one_of(
            VALUES, st.fixed_dictionaries({"predicted_n": VALUES}, optional={"draft_n": VALUES, "draft_n_accepted": VALUES})
        ),
        "avg_decoded_tokens_per_iter": VALUES,
    },
)


@settings(max_examples=200, deadline=None)
@given(SAID, st.integers(0, 50), st.integers(0, 50))
def test_whatever_a_server_says_gives_lawful_counts_or_none(said: dict[str, object], output_tokens: int, messages: int) -> None:
    """One odd answer ends a run of an hour."""
    drafts = own_drafts(said, output_tokens=output_tokens, messages=messages)
    if drafts.counts is not None and drafts.counts.steps is not None:
        assert drafts.counts.drafts <= drafts.counts.steps


@pytest.mark.parametrize(
    ("said", "output_tokens"),
    [
        ({"metrics": {"speculative_decoding": VLLM}}, 1),  # 6 accepted, at most 4 of them behind the stop; and 2 drafted steps
        ({"sglext": {"spec_tokens_details": SGLANG}}, 2),  # 3 steps
        ({"timings": {"predicted_n": 500, "draft_n": 900, "draft_n_accepted": 300}}, 20),
        ({"metrics": {"speculative_decoding": {"num_spec_steps": 5, "num_accepted_draft_tokens": 40, "num_draft_tokens": 40}}}, 31),
    ],
)
def test_counts_that_do_not_fit_into_the_answer_are_dropped(said: dict[str, object], output_tokens: int) -> None:
    """One answer of 20 tokens that claims 5000 accepted drafts decides the whole run's acceptance."""
    fields = said.get("metrics")
    if isinstance(fields, dict):
        said = {"metrics": {"speculative_decoding": {"num_spec_tokens": 8} | fields["speculative_decoding"]}}
    found = own_drafts(said, output_tokens=output_tokens, messages=2)
    assert found.counts is None
    assert codes(found) == ["unlawful_acceptance"]


def test_a_stop_may_cut_off_one_draft() -> None:
    """Five drafts of 8, all accepted, in 32 tokens: the last draft fell behind the stop, so the counts hold."""
    said = {"num_spec_steps": 5, "num_accepted_draft_tokens": 40, "num_draft_tokens": 40, "num_spec_tokens": 8}
    assert own_drafts({"metrics": {"speculative_decoding": said}}, output_tokens=32, messages=5).counts is not None
