"""What two arms of the same requests say about each other."""

from dataclasses import replace

import numpy as np
import pytest

from paceline.errors import NoEvidenceError
from paceline.latency import Ended, RequestTiming
from paceline.run import Arm, Evidence, Load, Outcome, Provenance, RequestRecord, Run
from paceline.simulate.compare import arm_figures, harmed_share, paired_tpots_s, speedup, step_time_ratio


def record(id_: str, *chunks: tuple[float, int], outcome: Outcome = Outcome.FINISHED) -> RequestRecord:
    """A request at 0 s with chunks of (instant, tokens)."""
    timing = RequestTiming(
        arrived_at_s=0.0,
        sent_at_s=0.0,
        chunk_at_s=np.array([at for at, _ in chunks]),
        chunk_tokens=np.array([tokens for _, tokens in chunks], dtype=np.int64),
        ended=Ended.LENGTH,
    )
    tokens = sum(each for _, each in chunks)
    return RequestRecord(id=id_, segment="chat", prompt_tokens=1, output_tokens=tokens, timing=timing, acceptance=None, outcome=outcome)


def run(*records: RequestRecord, step_seconds: float | None = 1.0, window_s: float | None = 10.0) -> Run:
    return Run(
        arm=Arm.BASELINE,
        speculation=None,
        load=Load(concurrency=1, rate_per_s=None),
        requests=records,
        acceptance_by_segment=None,
        step_seconds=step_seconds,
        summaries={},
        window_s=window_s,
        provenance=Provenance(made_by="test", version="0", evidence=Evidence.SIMULATED, arguments={}, inputs={}, seed=None),
        cautions=(),
    )


# TPOT 1 and 2 s without drafts; .5 and 2.5 s with drafts. r2 has a single token, r3 was refused in one arm, r4 is in one arm only.
BASELINE = run(
    record("r0", (1.0, 1), (2.0, 1), (3.0, 1)),
    record("r1", (1.0, 1), (3.0, 1)),
    record("r2", (1.0, 1)),
    record("r3", (1.0, 1), (9.0, 1)),
    record("r4", (1.0, 1), (9.0, 1)),
)
SPECULATIVE = run(
    record("r3", outcome=Outcome.REFUSED),
    record("r2", (1.0, 1)),
    record("r1", (1.0, 1), (3.5, 1)),
    record("r0", (1.0, 1), (2.0, 2)),
    step_seconds=1.5,
)


def test_requests_are_paired_by_id_and_only_where_both_arms_have_a_tpot() -> None:
    """Pairing by place would compare different requests as soon as one is refused."""
    ours, theirs = paired_tpots_s(BASELINE, SPECULATIVE)
    assert (ours.tolist(), theirs.tolist()) == ([1.0, 2.0], [0.5, 2.5])


def test_the_speed_up_is_a_ratio_of_means() -> None:
    """(1 + 2) / (.5 + 2.5) = 1, where a mean of ratios would say 1.4."""
    assert speedup(BASELINE, SPECULATIVE) == 1.0


def test_the_harmed_share_counts_who_got_slower() -> None:
    """r1 did, r0 did not; an equal TPOT is no harm."""
    assert harmed_share(BASELINE, SPECULATIVE) == 0.5
    assert harmed_share(BASELINE, BASELINE) == 0.0


def test_the_step_time_ratio_is_speculative_over_plain() -> None:
    """The other way round would make every break-even look easy."""
    assert step_time_ratio(BASELINE, SPECULATIVE) == 1.5


def test_figures_of_an_arm_come_from_its_finished_requests() -> None:
    """Tokens of refused requests are no throughput: 3 + 2 + 1 tokens in 10 s."""
    figures = arm_figures(SPECULATIVE)
    assert (figures.requests, figures.failed, figures.output_tokens_per_s) == (4, 1, 0.6)
    assert figures.ttft_s is not None
    assert (figures.ttft_s.mean, figures.ttft_s.n) == (1.0, 3)
    assert figures.tpot_s is not None
    assert (figures.tpot_s.p50, figures.tpot_s.n) == (1.5, 2)
    assert figures.chunk_gap_s is not None
    assert (figures.chunk_gap_s.mean, figures.chunk_gap_s.n) == (1.75, 2)
    assert figures.token_gap_s is not None
    assert figures.token_gap_s.mean == pytest.approx(3.5 / 3)
    assert figures.token_gap_s.n == 3
    assert figures.e2e_s is not None
    assert figures.e2e_s.n == 3


def test_what_was_not_measured_is_none() -> None:
    """A 0 s percentile of nothing would look like a very fast server."""
    figures = arm_figures(run(record("r0", (1.0, 1)), window_s=None))
    assert (figures.tpot_s, figures.chunk_gap_s, figures.token_gap_s, figures.output_tokens_per_s) == (None, None, None, None)


def test_no_evidence_is_said_and_not_guessed() -> None:
    """Nothing to pair, no decode step, no time: each has no ratio."""
    single = run(record("r0", (1.0, 1)))
    instant = run(record("r0", (1.0, 1), (1.0, 1)), step_seconds=0.0)
    with pytest.raises(NoEvidenceError, match="nothing can be paired"):
        speedup(BASELINE, single)
    with pytest.raises(NoEvidenceError, match="mean TPOT is 0"):
        speedup(BASELINE, instant)
    with pytest.raises(NoEvidenceError, match="no decode step"):
        step_time_ratio(BASELINE, run(step_seconds=None))
    with pytest.raises(NoEvidenceError, match="no decode step"):
        step_time_ratio(run(step_seconds=None), BASELINE)
    with pytest.raises(NoEvidenceError, match="step time is 0"):
        step_time_ratio(instant, BASELINE)
    with pytest.raises(NoEvidenceError, match="only summaries"):
        arm_figures(replace(BASELINE, requests=None))
