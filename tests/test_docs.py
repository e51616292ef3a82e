"""Documents that cannot rot: what they run is run, what they list is looked up."""

import argparse
import json
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from paceline.cli.main import build_parser
from paceline.decide.claims import METRICS
from paceline.decide.comparability import CODES
from paceline.files.policy import policy_from_toml
from paceline.files.runfile import read_run
from paceline.report.svg import Series, line_chart
from paceline.verdict import Estimate
from tests.conftest import Answer

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
TUTORIAL = sorted((DOCS / "tutorial").glob("[0-9]*.md"))
SKILL = ROOT / "skills" / "eagle3-rollout" / "SKILL.md"

Paceline = Callable[[Sequence[str]], Answer]
Golden = Callable[[str, str], None]


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def console(file: Path) -> list[str]:
    """Every `$ paceline …` of a document, in order."""
    lines = [line for block in blocks(file.read_text(encoding="utf-8"), "console") for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


@pytest.mark.parametrize("file", TUTORIAL, ids=lambda file: file.stem)
def test_the_tutorials_commands_print_what_they_did_when_it_was_written(
    file: Path, paceline: Paceline, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader who types along and sees other figures stops believing the text around them."""
    monkeypatch.chdir(tmp_path)
    seen = []
    for command in console(file):
        verb, *arguments = shlex.split(command)
        assert verb == "paceline"
        answer = paceline(arguments)
        seen.append(f"$ {command}\n{answer.out}{answer.err}[exit code {answer.code}]\n")
    golden(f"tutorial/{file.stem}.txt", "\n".join(seen))


def verbs() -> dict[str, argparse.ArgumentParser]:
    """Each verb's parser."""
    actions = (each for each in build_parser()._actions if isinstance(each, argparse._SubParsersAction))
    return dict(next(actions).choices)


def test_the_command_line_reference_is_what_help_prints(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    """An option that the reference lacks is an option nobody finds."""
    monkeypatch.setenv("COLUMNS", "120")
    parts = ["# The command line\n\nWhat `--help` prints, verb by verb.\n"]
    parts += [f"## {name}\n\n```text\n{parser.format_help()}```\n" for name, parser in verbs().items()]
    golden("../../docs/reference/cli.md", "\n".join(parts))


def test_the_readmes_picture_is_what_the_forecast_says(paceline: Paceline, golden: Golden) -> None:
    """A picture drawn once shows an old model's promise beside a new model's figures."""
    target = ["--target", "llama-3.3-70b", "--gpu", "h100", "--gpus", "4", "--dtype", "fp8", "--context", "700"]
    answer = paceline(["forecast", *target, "--concurrency", "1,2,4,8,16,32,64,128,256", "--json"])
    rows = json.loads(answer.out)["rows"]
    points = tuple((float(row["concurrency"]), Estimate(**row["speedup"])) for row in rows)
    picture = line_chart(
        (Series(name="EAGLE-3, K = 3, published acceptance", points=points),),
        title="Speed-up of Llama-3.3-70B (fp8, four H100) by requests in flight",
        description="Forecast with its range; drafting stops paying where the line meets 1.",
        x_label="requests in flight",
        y_label="speed-up",
        reference=(1.0, "1: no gain"),
        doubling=True,
    )
    golden("../../docs/images/speedup.svg", picture + "\n")


@pytest.mark.parametrize(("figure", "label"), [("alpha", "accepted / drafted tokens"), ("loss", "loss")])
def test_the_worked_examples_curves_are_drawn_from_its_record(golden: Golden, figure: str, label: str) -> None:
    """A picture of another run than the one on record."""
    record = json.loads((DOCS / "worked-example" / "domain-head.json").read_text(encoding="utf-8"))
    points = tuple(
        (float(each["epoch"]), Estimate(value=each[figure], low=None, high=None, confidence=0.95, n=each["steps"]))
        for each in record["head"]["epochs"]
    )
    picture = line_chart(
        (Series(name="EAGLE-3 head of SmolLM2-135M, 760 conversations", points=points),),
        title=f"{figure} by epoch",
        description="From domain-head.json; acceptance on conversations held out, at K = 3.",
        x_label="epoch",
        y_label=label,
        reference=None,
        doubling=False,
    )
    golden(f"../../docs/worked-example/{figure}.svg", picture + "\n")


def test_the_readme_lists_every_verb() -> None:
    """A verb that the README leaves out does not exist for a new user."""
    table = re.findall(r"^\| `([a-z0-9-]+)` \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(table) == set(verbs())


def test_the_readmes_two_commands_are_the_ones_that_ci_runs() -> None:
    """CI proves the two commands of the README; were they others, it would prove nothing a user does."""
    (block,) = blocks((ROOT / "README.md").read_text(encoding="utf-8"), "bash")
    first, second = block.splitlines()
    assert first.startswith("scripts/install && .venv/bin/paceline rollout --traffic demo")
    assert second == "scripts/test"


def test_every_link_between_documents_leads_somewhere() -> None:
    """A dead link on the first page is the first thing a new user tries."""
    for file in [ROOT / "README.md", ROOT / "DESIGN.md", ROOT / "STYLE.md", *DOCS.rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", file.read_text(encoding="utf-8")):
            assert (file.parent / target).exists(), f"{file.name} links to {target}"


def test_every_metric_of_the_gate_is_in_its_reference() -> None:
    """A policy's author must find what may be claimed without reading the code."""
    text = (DOCS / "reference" / "gate.md").read_text(encoding="utf-8")
    missing = [name for name in METRICS if f"`{name}`" not in text]
    assert not missing


def test_every_code_of_the_gate_is_in_its_reference_with_what_it_takes_away() -> None:
    """Whoever reads a warning, or filters by its code: what it means and how much it takes away."""
    text = (DOCS / "reference" / "gate.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (refuses|some|warns) \|", text, flags=re.MULTILINE))
    assert rows == {code: reach.value for code, reach in CODES.items()}
    sources = [each.read_text(encoding="utf-8") for each in (ROOT / "src" / "paceline" / "decide").glob("*.py")]
    raised = {code for source in sources for code in re.findall(r'Caution\(\s*"(\w+)"', source)}
    assert raised
    assert raised <= set(CODES)


def test_the_policy_of_the_gates_reference_is_one() -> None:
    """Whoever copies it gets a policy, not a lesson in TOML."""
    (example,) = blocks((DOCS / "reference" / "gate.md").read_text(encoding="utf-8"), "toml")
    assert len(policy_from_toml(example.encode(), name="policy.toml").claims) == 6


def skill_commands() -> list[str]:
    """Every shell line of the skill that calls us."""
    return [
        line for block in blocks(SKILL.read_text(encoding="utf-8"), "bash") for line in block.splitlines() if line.startswith("paceline ")
    ]


def test_every_command_of_the_skill_runs(paceline: Paceline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent follows the skill to the letter: a command that fails leaves it to invent one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    (tmp_path / "out-skill").mkdir()
    assert len(skill_commands()) > 8
    for line in skill_commands():
        command, _, alternative = line.partition(" || ")
        command, _, target = command.partition(" > ")
        answer = paceline(shlex.split(command)[1:])
        allowed = (0, 1, 4) if alternative else (0,)
        assert answer.code in allowed, f"{line}\n{answer.err}"
        if target:
            (tmp_path / target).write_text(answer.out, encoding="utf-8")


def test_the_skill_is_in_the_open_format() -> None:
    """A host that cannot read the front matter does not load the skill."""
    text = SKILL.read_text(encoding="utf-8")
    front = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    assert front is not None
    fields = dict(re.findall(r"^([a-z-]+): (.+)$", front[1], re.MULTILINE))
    assert fields["name"] == SKILL.parent.name
    assert 50 < len(fields["description"]) <= 1024
    assert len(text.splitlines()) < 500


def test_the_run_file_of_the_reference_is_one(tmp_path: Path) -> None:
    """Somebody writes a converter from that page alone."""
    (example,) = blocks((DOCS / "reference" / "run-file.md").read_text(encoding="utf-8"), "json")
    file = tmp_path / "run.json"
    file.write_text(example, encoding="utf-8")
    run = read_run(file)
    assert run.acceptance.alpha == 0.5
    assert [each.timing.output_tokens for each in run.finished] == [11]
