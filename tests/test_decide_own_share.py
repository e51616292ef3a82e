"""The client's own lateness, as a share of what it is to show."""

from math import inf

import pytest

from paceline.decide.own_share import client_caution, own_share
from paceline.errors import BadInputError


def test_lateness_counts_against_the_effect() -> None:
    """Two milliseconds of our own are nothing beside a difference of 100 and everything beside one of 4."""
    assert own_share(0.002, baseline_s=0.2, speculative_s=0.1) == pytest.approx(0.02)
    assert own_share(0.002, baseline_s=0.040, speculative_s=0.036) == pytest.approx(0.5)


def test_where_there_is_no_effect_the_smallest_one_that_matters_counts() -> None:
    """Equal arms are an answer, not a fault of the client."""
    assert own_share(0.001, baseline_s=1.0, speculative_s=1.0) == pytest.approx(0.02)
    assert own_share(0.0, baseline_s=0.0, speculative_s=0.0) == 0.0
    assert own_share(0.001, baseline_s=0.0, speculative_s=0.0) == inf


def test_a_busy_or_late_client_is_said() -> None:
    """A saturated client shows both arms alike, and the faster server loses."""
    late = client_caution("ttft_s", 0.01, baseline_s=0.1, speculative_s=0.1, cpu_share=0.2)
    assert late is not None
    assert late.code == "client_saturated"
    assert "10.00 ms) is 200% of the effect on ttft_s" in late.message
    busy = client_caution("ttft_s", 0.0, baseline_s=0.1, speculative_s=0.05, cpu_share=0.97)
    assert busy is not None
    assert "busy 97%" in busy.message
    assert client_caution("ttft_s", 0.0001, baseline_s=0.1, speculative_s=0.05, cpu_share=0.5) is None
    assert client_caution("ttft_s", 0.0001, baseline_s=0.1, speculative_s=0.05, cpu_share=None) is None


def test_negative_times_are_refused() -> None:
    """A clock that goes back is a fault, not a fast client."""
    with pytest.raises(BadInputError, match="below 0"):
        own_share(-0.1, baseline_s=1, speculative_s=1)
