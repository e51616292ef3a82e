"""The rollout plan as a skill: one Markdown file that an agent can follow."""

import re
from dataclasses import replace

import pytest

from paceline.decide.gate import DEFAULT_POLICY
from paceline.decide.rollout import rollout_plan
from paceline.report.skill import SkillFacts, skill_markdown
from paceline.verdict import Holds, Verdict
from tests.test_decide_rollout import SETUP, verdict

FACTS = SkillFacts(
    method="eagle3",
    target="Llama-3.3-70B",
    hardware="4 h100, fp8",
    traffic="log.jsonl: 10 requests.",
    concurrency=64,
    command=("paceline", "rollout", "--traffic", "my log.jsonl"),
    rests_on="acceptance is replayed; both arms are simulated.",
)
HOSTILE = 'a"\\b\x1b[2J\n# own heading\n<script>x</script> [l](http://x) *b* \u202e'


def skill(facts: SkillFacts = FACTS, found: Verdict | None = None) -> str:
    """The skill for a verdict."""
    decisive = found or verdict(Holds.YES)
    plan = rollout_plan(SETUP, (decisive,), policy=DEFAULT_POLICY)
    return skill_markdown(facts, plan, (decisive,), decisive, files={"report.html": "the page to show"})


def test_the_skill_opens_with_its_name_and_when_to_use_it() -> None:
    """Without a front matter that parses, no agent ever finds the skill."""
    front = skill().split("---\n")[1]
    description = "Rolls out speculative decoding for Llama-3.3-70B at 64 requests in flight, stage by stage, and back."
    assert front == f'name: eagle3-rollout\ndescription: "{description}"\n'
    assert skill(replace(FACTS, method="ngram")).startswith("---\nname: ngram-rollout\n"), "two skills of one name hide each other"


def test_the_skill_says_what_was_found_what_it_rests_on_and_how_to_make_it_again() -> None:
    """A plan that cannot be made again cannot be checked."""
    text = skill()
    assert "\n# Llama-3.3-70B on 4 h100, fp8\n" in text
    assert "Traffic: log.jsonl: 10 requests. Production concurrency: 64 requests in flight." in text
    assert "**Ship it.** At 64 in flight: speed-up 1.20 (1.20 to 1.20) is at least 1.05." in text
    assert "What this rests on: acceptance is replayed; both arms are simulated." in text
    assert "```bash\npaceline rollout --traffic 'my log.jsonl'\n```" in text
    assert "- `report.html`: the page to show" in text
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


def test_the_plans_headings_stand_one_level_below_the_skills() -> None:
    """A stage beside the heading 'Stages' instead of under it is read as a chapter of its own."""
    headings = re.findall(r"^(#+) (.*)$", skill(), flags=re.MULTILINE)
    levels = {title: len(marks) for marks, title in headings}
    assert levels["Stages"] == 3
    assert {level for title, level in levels.items() if title[0].isdigit()} == {4}
    assert [title for title, level in levels.items() if level == 1] == ["Llama-3.3-70B on 4 h100, fp8"]
    assert [title for title, level in levels.items() if level == 2][:2] == ["Make it again", "How to follow it"]


@pytest.mark.parametrize(
    "facts",
    [
        replace(FACTS, target=HOSTILE),
        replace(FACTS, hardware=HOSTILE),
        replace(FACTS, traffic=HOSTILE),
        replace(FACTS, rests_on=HOSTILE),
        replace(FACTS, command=("paceline", HOSTILE)),
    ],
    ids=["target", "hardware", "traffic", "rests_on", "command"],
)
def test_nothing_that_was_named_by_somebody_else_becomes_markdown_or_markup(facts: SkillFacts) -> None:
    """A log's file name that turns into an instruction would be followed by whatever reads the skill."""
    text = skill(facts)
    assert all(line.isprintable() for line in text.split("\n"))
    outside = re.sub(r"```bash\n.*?\n```", "", text, flags=re.DOTALL).split("---\n", 2)[2]
    assert "<script" not in outside
    assert "[l](" not in outside
    assert "\n# own heading" not in text


def test_a_quote_in_a_models_name_leaves_the_front_matter_whole() -> None:
    """A name with a quote would end the description and open a key of its own."""
    front = skill(replace(FACTS, target='a"\nname: other\\')).split("---\n")[1]
    assert front.count("\n") == 2
    assert 'for a\\"\\\\nname: other\\\\ at 64' in front
