"""A diagnosis and the answers' verdict as text and as JSON."""

import numpy as np

from paceline.decide.diagnose import Diagnosis
from paceline.decide.diagnosis.case import Measured
from paceline.decide.diagnosis.cause import Cause, Surely
from paceline.decide.losslessness import Answers, losslessness
from paceline.report.diagnosis import diagnosis_dict, diagnosis_text, losslessness_dict, losslessness_text

NOTHING = Measured(
    speedup=None,
    throughput_ratio=None,
    e2e_ratio=None,
    tpot_p99_ratio=None,
    ttft_ratio=None,
    step_time_ratio=None,
    tokens_per_step=None,
    alpha=None,
    break_even_alpha=None,
)
CAUSE = Cause(
    code="harmed_segment",
    message="'code\x1b[2J' takes 1.5 times as long",
    figures={"tpot_ratio_by_segment": {"code": 1.5}, "segments_that_gain": 1},
    remedy="route it",
    surely=Surely.SURE,
    loss=0.3,
)


def test_a_cause_is_shown_with_its_code_and_steers_no_terminal() -> None:
    """A segment's name comes from a log; it may not clear the screen of whoever reads the diagnosis."""
    one = Diagnosis(concurrency=8, figures=NOTHING, causes=(CAUSE,), unchecked=(), losslessness=None, warnings=())
    text = diagnosis_text([one])
    assert text.splitlines()[0] == "1. a segment gets slower while others gain [harmed_segment, sure]"
    assert "\x1b" not in text
    assert "not checked" not in text
    assert diagnosis_dict([one])["causes"][0]["figures"] == {"tpot_ratio_by_segment": {"code": 1.5}, "segments_that_gain": 1}
    assert diagnosis_text([one, one]).startswith("8 in flight:")


def test_what_the_answers_say_is_three_lines_at_most_without_differences() -> None:
    """Whoever reads that all is well should not have to read far."""
    same = {str(i): f'{{"n": {i}}}' for i in range(50)}
    found = losslessness(Answers(same, same, {}), temperature=0, encode=None, confidence=0.95, rng=np.random.default_rng(1))
    assert losslessness_text(found).splitlines() == [
        "lossless: yes; all 50 answers are the same text in both arms",
        "  length with drafts over without: 1.00 (1.00 to 1.00)",
        "  valid JSON without drafts: 50 answers; broken with them: 0 (0 %), mended: 0",
    ]
    cut = losslessness(Answers({"a": "[1"}, {"a": "[1]"}, {}), temperature=1, encode=None, confidence=0.95, rng=np.random.default_rng(1))
    assert losslessness_text(cut).endswith("0 answers; broken with them: 0 (–), mended: 1")
    assert losslessness_dict(None) is None
    plain = losslessness(Answers({"a": "x"}, {"a": "y"}, {}), temperature=0, encode=None, confidence=0.95, rng=np.random.default_rng(1))
    assert (losslessness_dict(plain) or {})["noise_floor"] is None
    assert len(losslessness_text(plain).splitlines()) == 3
