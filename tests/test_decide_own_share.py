"""The client's own lateness, as a share of what it is to show."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from paceline.decide.gate import DEFAULT_POLICY, gate
from paceline.decide.own_share import client_caution, client_cautions, own_share
from paceline.errors import BadInputError
from paceline.run import Run, Summary
from paceline.verdict import Decision
from tests.strategies_runs import pair


def test_lateness_counts_against_the_effect() -> None:
    """Two milliseconds of our own are nothing beside a difference of 100 and everything beside one of 4."""
    assert own_share(0.002, baseline_s=0.2, speculative_s=0.1) == pytest.approx(0.02)
    assert own_share(0.002, baseline_s=0.040, speculative_s=0.036) == pytest.approx(0.5)


def test_where_there_is_no_effect_the_smallest_one_that_matters_counts() -> None:
    """Equal arms are an answer, not a fault of the client."""
    assert own_share(0.001, baseline_s=1.0, speculative_s=1.0) == pytest.approx(0.01)
    assert own_share(0.0, baseline_s=0.0, speculative_s=0.0) == 0.0
    assert own_share(0.001, baseline_s=0.0, speculative_s=0.0) == inf


def test_a_busy_or_late_client_is_said() -> None:
    """A saturated client shows both arms alike, and the faster server loses."""
    late = client_caution("ttft_s", 0.01, baseline_s=0.1, speculative_s=0.1, cpu_share=0.2)
    assert late is not None
    assert late.code == "client_saturated"
    assert "10.00 ms) is 100% of the effect on ttft_s" in late.message
    busy = client_caution("ttft_s", 0.0, baseline_s=0.1, speculative_s=0.05, cpu_share=0.97)
    assert busy is not None
    assert "busy 97%" in busy.message
    assert client_caution("ttft_s", 0.0001, baseline_s=0.1, speculative_s=0.05, cpu_share=0.5) is None
    assert client_caution("ttft_s", 0.0001, baseline_s=0.1, speculative_s=0.05, cpu_share=None) is None


def test_negative_times_are_refused() -> None:
    """A clock that goes back is a fault, not a fast client."""
    with pytest.raises(BadInputError, match="below 0"):
        own_share(-0.1, baseline_s=1, speculative_s=1)


def test_a_run_s_own_figures_tell_whether_the_client_hid_the_tail() -> None:
    """A run file that was measured on a busy laptop is judged like any other."""
    quiet = pair(n=40)
    assert client_cautions(quiet) == ()

    def late(run: Run, mean_s: float, p99_s: float, busy: float) -> Run:
        figures = {"client_lag_mean_s": (mean_s, "mean"), "client_lag_s": (p99_s, "p99"), "client_cpu_share": (busy, "mean")}
        return replace(
            run, summaries={name: Summary(value=value, statistic=what, n=9, low=None, high=None) for name, (value, what) in figures.items()}
        )

    assert client_cautions([late(each, 1e-6, 1e-6, 0.1) for each in quiet]) == ()
    assert [each.code for each in client_cautions([late(each, 0.05, 0.05, 0.1) for each in quiet])][:1] == ["client_saturated"]
    assert client_cautions([late(each, 1e-6, 1.0, 0.1) for each in quiet])
    assert client_cautions([late(each, 1e-6, 1e-6, 0.95) for each in quiet])
    alone = late(quiet[0], 0.05, 0.05, 0.1)
    assert client_cautions([alone])
    assert client_cautions([replace(alone, requests=None)]) == ()
    assert client_cautions([replace(alone, requests=())]) == ()
    partly = replace(alone, summaries={"client_lag_mean_s": alone.summaries["client_lag_mean_s"]})
    assert client_cautions([partly])


def test_a_saturated_client_leaves_the_gate_without_an_answer() -> None:
    """Arms that were measured through a bottleneck look alike, and "no worse" ships."""
    arms = [
        replace(each, summaries={"client_lag_mean_s": Summary(value=0.5, statistic="mean", n=9, low=None, high=None)})
        for each in pair(n=40)
    ]
    verdict = gate(arms[0], arms[1], policy=DEFAULT_POLICY, rng=np.random.default_rng(1))
    assert verdict.decision is Decision.CANNOT_TELL


def test_of_one_arm_the_lateness_counts_against_the_latency_itself() -> None:
    """One arm has no effect to compare with, and "500% of the effect" is of nothing."""
    run = pair(n=40)[0]

    def late(mean_s: float, busy: float) -> Run:
        figures = {"client_lag_mean_s": (mean_s, "mean"), "client_cpu_share": (busy, "mean")}
        return replace(
            run, summaries={name: Summary(value=value, statistic=what, n=9, low=None, high=None) for name, (value, what) in figures.items()}
        )

    assert client_cautions([late(1e-6, 0.1)]) == ()
    assert "of the time to first token's tail" in client_cautions([late(1.0, 0.1)])[0].message
    assert ["busy" in each.message for each in client_cautions([late(1e-6, 0.95)])] == [True]
