"""What rollout, gate and config print."""

from dataclasses import replace

import numpy as np
import pytest

from paceline.decide.lesson_gate import LessonVerdict
from paceline.decide.losslessness import Answers, losslessness
from paceline.report.operations import answers_dict, compatibility_dict, config_text, lesson_verdict_text, rollout_text
from paceline.report.page import Comparison
from paceline.servers.vllm.versions import Compatibility, Status
from paceline.verdict import Claim, Finding, Holds, Verdict
from tests.strategies_runs import pair
from tests.test_decide_rollout import point, verdict

HOSTILE = "ch\x1b[2Jat\n\u202e"
ESCAPED = "ch\\x1b[2Jat\\n\\u202e"
MISLED = LessonVerdict(alpha_clears_floor=True, chunk_gap_not_worse=False, disagreements=(HOSTILE,))


def comparison(found: Verdict, lesson: LessonVerdict | None = MISLED) -> Comparison:
    """A verdict on two small runs."""
    baseline, speculative = pair(n=2)
    return Comparison(baseline=baseline, speculative=speculative, verdict=found, lesson=lesson)


def lines_of(text: str) -> list[str]:
    """The text's lines, each free of what steers a terminal."""
    found = text.split("\n")
    assert all(each.isprintable() for each in found)
    return found


@pytest.mark.parametrize(
    ("alpha", "gap", "words"),
    [
        (True, True, "gate passes: α floor passes, P99 chunk gap no worse passes"),
        (True, False, "gate fails: α floor passes, P99 chunk gap no worse fails"),
        (None, True, "gate cannot be told: α floor cannot be told, P99 chunk gap no worse passes"),
    ],
)
def test_the_textbooks_gate_has_three_answers(alpha: bool | None, gap: bool | None, words: str) -> None:
    """What was not measured must not read as failed, nor as passed."""
    said = lesson_verdict_text(LessonVerdict(alpha_clears_floor=alpha, chunk_gap_not_worse=gap, disagreements=("one", HOSTILE)))
    assert lines_of(said) == [f"the textbook's {words}", "  one", f"  {ESCAPED}"]


def test_a_rollout_has_a_line_per_load_and_the_largest_decides() -> None:
    """The verdict in full is production's; that of batch 1 flatters."""
    one, many = verdict(Holds.YES, concurrency=1), verdict(Holds.NO, concurrency=64, alpha=None, even=None)
    text = rollout_text(
        (comparison(one), comparison(many)), {}, label=HOSTILE, notes=(HOSTILE,), out=HOSTILE, skill="skill-eagle3-rollout.md"
    )
    lines = lines_of(text)
    assert lines[0] == f"acceptance {ESCAPED}"
    table = lines[2:6]
    assert table[2].split("  ")[0] == "1"
    assert "Ship it" in table[2]
    assert table[2].endswith("0.500 (0.500 to 0.500)  0.200 (0.200 to 0.200)")
    assert "1.20 (1.20 to 1.20)" in table[3]
    assert table[3].split()[-4:] == ["–", "–", "–", "–"], "two tails, α and break-even were not measured"
    assert len({len(each) for each in table[1:]}) == 1, "columns line up"
    assert any(each.startswith("Keep plain decoding: At 64 in flight") for each in lines)
    assert f"note: {ESCAPED}" in lines
    assert lines[-1].startswith(f"written to {ESCAPED}: report.html, ")
    assert "the textbook's gate fails" in text


def test_claims_on_one_segment_do_not_pass_for_all_traffic() -> None:
    """A segment's speed-up in the column of the whole would ship on the best tenth of the traffic."""
    claim = Claim(metric="speedup", at_most=None, at_least=1.05, segment="code")
    found = replace(verdict(Holds.YES), findings=(Finding(claim=claim, estimate=point(9.0), holds=Holds.YES, why=""),), concurrency=None)
    text = rollout_text((comparison(found, lesson=None),), {}, label="stated", notes=(), out="out", skill="skill-ngram-rollout.md")
    assert text.split("\n")[4].split()[:5] == ["–", "Ship", "it", "–", "–"]
    assert "textbook" not in text


def test_the_answers_at_each_load_stand_beside_the_baselines_own() -> None:
    """One figure for all loads would be batch 1's, where everything is the same text."""
    plain = {str(i): f"text {i}" for i in range(4)}
    drafted = plain | {"0": "another"}
    said = {
        load: losslessness(Answers(plain, each, plain), temperature=0.0, encode=None, confidence=0.95, rng=np.random.default_rng(1))
        for load, each in ((1, plain), (64, drafted))
    }
    deciding = verdict(Holds.NO, concurrency=64)
    found = answers_dict(said, deciding=deciding)
    assert found["losslessness"]["divergence"]["share"]["value"] == 0.25
    assert [(each["concurrency"], each["divergence"]["share"]["value"]) for each in found["losslessness_by_concurrency"]] == [
        (1, 0),
        (64, 0.25),
    ]
    text = rollout_text((comparison(deciding),), said, label="stated", notes=(), out="out", skill="skill-ngram-rollout.md")
    assert "\n\n1 in flight: lossless: cannot tell; all 4 answers are the same text in both arms" in text
    assert "\n\n64 in flight: lossless: cannot tell; 25.0% of 4 answers differ against 0.0% of 4 when the baseline is asked twice" in text
    assert answers_dict({}, deciding=deciding) == {"losslessness": None, "losslessness_by_concurrency": []}


ROWS = (
    Compatibility(feature="prefix caching", status=Status.COSTS, note="a block per hit", source="scheduler.py", since=None, until=None),
    Compatibility(feature="LoRA", status=Status.INCOMPATIBLE, note=HOSTILE, source="docs", since=None, until="0.11.0"),
)


def test_a_configuration_shows_both_commands_and_what_they_combine_with() -> None:
    """An operator copies the command as it stands; nothing from a file name may hide in it."""
    text = config_text({"baseline": "vllm serve m", "speculative": HOSTILE}, ROWS, files={"a.yaml": "a: 1\nb: \x1b\n"}, notes=(HOSTILE,))
    assert lines_of(text) == [
        "# baseline",
        "vllm serve m",
        "",
        "# speculative",
        ESCAPED,
        "",
        "# a.yaml",
        "a: 1",
        "b: \\x1b",
        "",
        "prefix caching  costs         a block per hit",
        f"LoRA            incompatible  {ESCAPED}",
        "",
        f"note: {ESCAPED}",
    ]


def test_each_combination_names_its_source() -> None:
    """Whoever doubts a line must be able to look it up."""
    assert compatibility_dict(ROWS)[0] == {
        "feature": "prefix caching",
        "status": "costs",
        "note": "a block per hit",
        "source": "scheduler.py",
    }
