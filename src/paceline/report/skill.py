"""The rollout plan as a skill an agent can follow: one Markdown file in the open agent-skill format, filled in for one job."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.errors import ascii_controls
from paceline.plan import Plan
from paceline.report.figures import decision_reason, decision_words
from paceline.report.text import markdown_text, plan_markdown
from paceline.verdict import Verdict

__all__ = ["SkillFacts", "skill_markdown"]


@dataclass(frozen=True, slots=True)
class SkillFacts:
    """What the skill is filled in with.

    Attributes:
        method: how it drafts, as `--method` names it.
        target: the model, as a title names it.
        hardware: GPUs and weights, as a title names them.
        traffic: one sentence about the traffic.
        concurrency: requests in flight in production.
        command: the command that made this plan, as an argument list.
        rests_on: what acceptance and both arms rest on, one sentence.

    """

    method: str
    target: str
    hardware: str
    traffic: str
    concurrency: int
    command: Sequence[str]
    rests_on: str


def skill_markdown(facts: SkillFacts, plan: Plan, verdicts: tuple[Verdict, ...], decisive: Verdict, *, files: Mapping[str, str]) -> str:
    """The skill: when to use it, what was found, what to run, the plan, and what never to claim. `files` says what each written file is."""
    target = ascii_controls(facts.target)
    description = f"Rolls out speculative decoding for {target} at {facts.concurrency} requests in flight, stage by stage, and back."
    listed = "\n".join(f"- `{name}`: {what}" for name, what in files.items())
    parts = [
        f"---\nname: {ascii_controls(facts.method)}-rollout\ndescription: {_yaml(description)}\n---",
        f"# {markdown_text(f'{facts.target} on {facts.hardware}')}",
        f"Traffic: {markdown_text(facts.traffic)} Production concurrency: {facts.concurrency} requests in flight.",
        f"**{decision_words(decisive.decision)}.** {markdown_text(decision_reason(decisive))}",
        f"What this rests on: {markdown_text(facts.rests_on)}",
        "## Make it again",
        f"```bash\n{ascii_controls(shlex.join(facts.command))}\n```",
        listed,
        "## How to follow it",
        HOW,
        re.sub(r"^(?=#+ )", "#", plan_markdown(plan, verdicts), flags=re.MULTILINE),
    ]
    return "\n\n".join(parts).rstrip("\n") + "\n"


HOW = """1. Do the stages in order. A stage is passed when every box under it is ticked by a figure, never by its absence.
2. Where a stage says to measure, measure real servers: `paceline measure` reads their counters, `paceline gate BASELINE SPECULATIVE` holds
   both arms against the claims: exit code 0 goes on, 1 stops, 4 needs more evidence.
3. Gate on the break-even that was measured at this concurrency. The textbook's floor of .55 is for comparison only.
4. Watch the guards from the first exposed stage on. On a breach do what the last section says, first, and look for the cause afterwards.
5. Never report a simulated or published figure as measured, and never carry a verdict over to another load, GPU, version or traffic."""


def _yaml(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
