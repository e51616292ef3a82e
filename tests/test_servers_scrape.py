"""Which server a scrape is of, and that damaged scrapes give no silent figure."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError, PacelineError, UnknownNameError
from paceline.run import Run
from paceline.servers.measured_run import to_run
from paceline.servers.scrape import Dialect, read_scrape, window_of

DUMPS = Path(__file__).parent / "data" / "dumps"
NAMES = sorted(each.name for each in DUMPS.iterdir() if each.suffix in (".prom", ".json") and each.name != "author-results.json")
OF = {
    "vllm": Dialect.VLLM,
    "sglang": Dialect.SGLANG,
    "llamacpp": Dialect.LLAMACPP,
    "lmdeploy": Dialect.LMDEPLOY,
    "tensorrt": Dialect.TENSORRT_LLM,
}
READERS = {"metrics.py", "gauges.py", "iterations.py", "v0.py", "counters.py", "window.py", "scrape.py", "dump.py"}
TEXTS = {name: (DUMPS / name).read_text(encoding="utf-8") for name in NAMES}


def run_of(*texts: str) -> Run:
    return to_run(window_of([read_scrape(each, model=None) for each in texts]), arm=None, inputs={}, window_s=None)


@pytest.mark.parametrize("name", NAMES)
def test_every_dump_is_told_by_what_is_in_it(name: str) -> None:
    """Whoever saves scrapes under any name: the dialect is in the text, and every one gives a run."""
    assert read_scrape(TEXTS[name], model=None).dialect is OF[name.partition("-")[0]]
    assert run_of(TEXTS[name]).provenance.made_by.endswith("/metrics")


def test_two_servers_in_one_text_are_refused() -> None:
    """Whoever scrapes a federation: a figure of both is a figure of none."""
    with pytest.raises(BadInputError, match="vllm and lmdeploy"):
        read_scrape("vllm:generation_tokens_total 1\nlmdeploy:generation_tokens_total 1\n", model=None)
    with pytest.raises(BadInputError, match="not of one kind"):
        run_of("vllm:generation_tokens_total 1\n", "lmdeploy:generation_tokens_total 1\n")
    with pytest.raises(BadInputError, match="not of one kind"):
        run_of("[]", "trtllm_generation_tokens_total 1\n")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("up 1\n", "without series of vLLM"),
        ("<html>", "no line is"),
        ("vllm:generation_tokens_total 1", "cut off"),
        ('[{"iter": 1', "cut off"),
        ("[{}]", "no line"),
    ],
)
def test_what_is_no_whole_scrape_of_ours_is_refused(text: str, why: str) -> None:
    """Whoever gives something else, or half of it: a message, no figure."""
    with pytest.raises(BadInputError, match=why):
        read_scrape(text, model=None)
    with pytest.raises(UnknownNameError):
        read_scrape("vllm:generation_tokens_total 1\n", model="other")


def test_every_caution_of_a_metrics_reader_is_in_the_reference() -> None:
    """Whoever looks a warning's code up: it is there."""
    root = Path(__file__).parent.parent
    sources = [
        *(root / "src/paceline/servers").rglob("*.py"),
        *(root / "src/paceline/live").glob("scrape.py"),
        root / "src/paceline/files/dump.py",
    ]
    texts = [each.read_text(encoding="utf-8") for each in sources if each.name in READERS]
    codes = {code for text in texts for code in re.findall(r"Caution\(\s*\"([a-z0-9_]+)\"", text)}
    assert len(codes) > 20
    reference = (root / "docs/reference/measure.md").read_text(encoding="utf-8")
    assert [code for code in sorted(codes) if f"`{code}`" not in reference] == []


def lawful(run: Run) -> bool:
    """Whether every figure is one that a server can have: the counts hold their own laws, the rest is finite and from 0 on."""
    figures = [each.value for each in run.summaries.values()]
    alpha, length = run.summaries.get("alpha"), run.summaries.get("acceptance_length")
    if run.acceptance_by_segment:
        counts = run.acceptance
        figures += [counts.alpha, counts.acceptance_length]
        assert counts.accepted_tokens <= counts.drafted_tokens
        assert counts.steps is None or counts.steps >= counts.drafts
    assert alpha is None or 0 <= alpha.value <= 1
    assert length is None or length.value >= 1
    return all(each >= 0 for each in figures)


lines = st.lists(
    st.tuples(st.integers(0, 400), st.sampled_from(["drop", "twice", "digit", "letter", "cut", "swap"]), st.integers(0, 400)), max_size=4
)


def mutated(text: str, edits: list[tuple[int, str, int]]) -> str:
    """The scrape damaged in a few places."""
    rows = text.splitlines(keepends=True)
    for at, how, other in edits:
        i, j = at % len(rows), other % len(rows)
        row = rows[i]
        if how == "drop":
            rows[i] = ""
        elif how == "twice":
            rows[i] = row + row
        elif how == "digit":
            rows[i] = re.sub(r"\d(?!.*\d)", str(other % 10), row)
        elif how == "letter":
            rows[i] = row[: other % (len(row) + 1)] + "x" + row[other % (len(row) + 1) :]
        elif how == "cut":
            rows[i] = row[: other % (len(row) + 1)]
        else:
            rows[i], rows[j] = rows[j], rows[i]
    return "".join(rows)


def count_lines(text: str) -> dict[str, float]:
    """Each sample's text up to its value, and the value."""
    found = {}
    for row in text.splitlines():
        name, _, value = row.rpartition(" ")
        if name and not row.startswith("#") and re.fullmatch(r"[0-9.e+]+", value):
            found[name] = float(value)
    return found


@settings(max_examples=300)
@given(st.sampled_from(NAMES), lines)
def test_a_damaged_scrape_is_refused_or_lawful(name: str, edits: list[tuple[int, str, int]]) -> None:
    """Whoever scrapes through anything: a refusal, or figures that a server can have; never a crash."""
    try:
        assert lawful(run_of(mutated(TEXTS[name], edits)))
    except PacelineError:
        return


@settings(max_examples=300)
@given(st.sampled_from(NAMES), st.integers(0, 10_000))
def test_a_scrape_cut_anywhere_gives_no_other_acceptance(name: str, at: int) -> None:
    """Whoever's connection broke: beside an earlier whole scrape, half a scrape is refused or gives the same acceptance or none."""
    text = TEXTS[name]
    cut = text[: at % len(text)]
    try:
        half = run_of(cut)
    except PacelineError:
        return
    assert lawful(half)
    whole = run_of(text)
    if half.acceptance_by_segment and not half.cautions and whole.acceptance_by_segment and half.acceptance.accepted_per_position:
        assert half.acceptance.accepted_tokens == whole.acceptance.accepted_tokens


@settings(max_examples=200)
@given(st.sampled_from([name for name in NAMES if name.endswith(".prom")]), st.floats(0, 3), st.integers(0, 10_000))
def test_two_scrapes_give_lawful_figures_or_cautions(name: str, factor: float, at: int) -> None:
    """Whoever measures a window with a restart, a cut or a jump in it: lawful figures, and a counter that fell is said."""
    first = TEXTS[name]
    rows = [
        re.sub(r" [0-9.e+]+$", lambda found: f" {float(found[0]) * factor:.0f}", row)
        if not row.startswith("#") and "_created" not in row
        else row
        for row in first.splitlines()
    ]
    later = "\n".join(rows[: max(1, at % (len(rows) + 40))]) + "\n"
    try:
        run = run_of(first, later)
    except PacelineError:
        return
    assert lawful(run)
    said = {each.code for each in run.cautions}
    if factor < 1 and not name.startswith("sglang-speculation") and any(value > 1 for value in count_lines(first).values()):
        assert said & {"counter_reset", "gauge_of_last_batches", "gauges_held", "v0_metrics"}
    assert json.dumps(sorted(said))
