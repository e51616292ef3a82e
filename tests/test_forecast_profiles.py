"""Published acceptance profiles: that they say what their sources say."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import UnknownNameError
from paceline.forecast.profiles import known_profiles, profile, survival_from_lengths
from paceline.speculation.method import Method

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden_vectors.json").read_text(encoding="utf-8"))


def test_the_default_eagle3_profile_gives_back_the_published_lengths() -> None:
    """Source: SpecForge SpecBundle dashboard, Llama-3.1-8B, chain: MT-bench 2.898, 3.516 and 3.856 at K = 3, 5 and 7."""
    chat = profile("eagle3").segment("chat").acceptance
    assert [chat.at(K).acceptance_length for K in (3, 5, 7)] == pytest.approx([2.898, 3.516, 3.856])
    assert profile("eagle3").segment("code").acceptance.at(3).alpha == pytest.approx((3.34 - 1) / 3)


def test_every_segment_is_labelled_and_possible() -> None:
    """A figure without a source or an evidence label would be taken for a measurement of one's own."""
    for name in known_profiles():
        found = profile(name)
        assert found.label
        assert found.segments
        for segment in found.segments.values():
            assert segment.source
            assert segment.evidence in ("measured", "scaled", "stand-in")
            assert segment.measured_draft_tokens == segment.acceptance.draft_tokens >= 3


def test_each_method_that_has_a_profile_has_one_of_its_own_name() -> None:
    """The command line looks up the method's name."""
    assert {Method.EAGLE3.value, Method.EAGLE.value, Method.DRAFT_MODEL.value, Method.NGRAM.value, Method.MTP.value} <= set(
        known_profiles()
    )
    assert all(profile(method).method == method for method in ("eagle3", "eagle", "ngram", "draft-model", "mtp"))


def test_an_unknown_profile_or_segment_lists_the_known_ones() -> None:
    """Whoever mistypes a segment would get the default without noticing."""
    with pytest.raises(UnknownNameError, match="eagle3"):
        profile("eagle-3")
    with pytest.raises(UnknownNameError, match="chat"):
        profile("eagle3").segment("chats")


def test_one_length_gives_the_iid_shape() -> None:
    """τ = 2.533 at K = 3 is β = .7 throughout."""
    assert survival_from_lengths({3: 2.533}) == pytest.approx((0.7, 0.49, 0.343))


def test_lengths_no_survival_can_give_are_met_as_nearly_as_possible() -> None:
    """A published curve that falls with K (3.77 at 6, 3.73 at 7) must not end in a traceback."""
    falling = survival_from_lengths({1: 1.8, 2: 1.7, 3: 1.9})
    assert falling == pytest.approx((0.8, 0.0, 0.0))
    assert survival_from_lengths({1: 1.2, 2: 2.9}) == pytest.approx((0.2, 0.2))


@given(betas=st.lists(st.floats(0.05, 1.0), min_size=2, max_size=8))
def test_lengths_at_every_position_give_survival_back(betas: list[float]) -> None:
    """The curve of a profile is the one that was published."""
    survival, lengths, last = [], {}, 1.0
    for K, beta in enumerate(betas, 1):
        last *= beta
        survival.append(last)
        lengths[K] = 1 + sum(survival)
    assert survival_from_lengths(lengths) == pytest.approx(survival, abs=1e-9)


def test_the_mtp_profile_is_the_published_table() -> None:
    """Source: vllm-project/vllm#48892, per-position rates on GSM8K."""
    published = next(each for each in GOLDEN["per_position_survival"] if "48892" in each["name"])
    assert profile("mtp").segment("math").acceptance.survival == tuple(published["pos"])
