"""The accuracy benchmark: its targets hold on the published points, its documents are its own, and no row makes it stumble."""

import csv
import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from benchmarks.accuracy import documented, main, triples
from benchmarks.published_rows import ExcludedError, price_row
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).parent.parent
POINTS = ROOT / "tests" / "data" / "published_points.csv"
WITH_COLUMNS = POINTS.read_text(encoding="utf-8").splitlines()[0].split(",")
ROWS = list(csv.DictReader(POINTS.read_text(encoding="utf-8").splitlines()))
GOOD = {
    **dict.fromkeys(WITH_COLUMNS, ""),
    "source": "me",
    "hardware": "1x H100",
    "target": "Llama-3.1-8B-Instruct",
    "dtype": "bf16",
    "method": "eagle3",
    "K_or_tree": "3",
    "batch_or_concurrency": "8",
    "alpha_def": "tau_incl_bonus",
    "alpha_or_tau": "2.4",
    "speedup": "1.7",
    "engine": "vllm",
}


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run of the benchmark over the packaged points."""
    out = tmp_path_factory.mktemp("accuracy")
    (out / "accuracy.md").write_text((ROOT / "docs" / "concepts" / "accuracy.md").read_text(encoding="utf-8"), encoding="utf-8")
    said = StringIO()
    with redirect_stdout(said):
        asked = ["--fit", str(POINTS), "--score", str(POINTS), "--json", "--write-docs", str(out / "accuracy.md")]
        assert main([*asked, "--write-triples", str(out / "calibrations.toml"), "--verbose"]) == 0
    found: dict[str, Any] = json.loads(said.getvalue())
    found["document"] = (out / "accuracy.md").read_text(encoding="utf-8")
    found["triples"] = (out / "calibrations.toml").read_text(encoding="utf-8")
    return found


def test_the_forecast_beats_the_best_constant_by_a_third(figures: dict[str, Any]) -> None:
    """Else one number on a napkin would do."""
    assert figures["rows"] >= 60
    assert figures["rho_median_error"] <= figures["constant_rho_median_error"] * 2 / 3
    assert figures["rho_median_error"] <= figures["constant_in_sample_rho_median_error"] * 2 / 3


def test_the_side_of_one_is_right_for_both_sides(figures: dict[str, Any]) -> None:
    """Saying faster every time is right nine times in ten and useless the tenth."""
    assert figures["balanced_sign_accuracy"] >= 0.75


def test_the_stated_range_holds_what_was_measured(figures: dict[str, Any]) -> None:
    """An 80 % range that holds less is a false promise."""
    assert figures["range_coverage"] >= 0.8


def test_every_row_is_scored_or_left_out_with_a_reason(figures: dict[str, Any]) -> None:
    """A row that vanishes is a row that was picked."""
    assert figures["rows"] + sum(figures["excluded"].values()) == len(ROWS)
    assert len(figures["excluded_rows"]) == sum(figures["excluded"].values())
    assert sum(of["rows"] for of in figures["by_source"].values()) == figures["rows"] == len(figures["each"])


def test_the_document_and_the_packaged_triples_are_what_the_benchmark_writes(figures: dict[str, Any]) -> None:
    """Figures copied by hand drift from the model that they speak of."""
    assert figures["document"] == (ROOT / "docs" / "concepts" / "accuracy.md").read_text(encoding="utf-8")
    assert figures["triples"] == (ROOT / "src" / "paceline" / "data" / "calibrations.toml").read_text(encoding="utf-8")


def test_points_nobody_has_seen_are_scored_from_the_fitted_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same command on another file; with one side of 1 only there is no balanced accuracy."""
    other = tmp_path / "other.csv"
    with other.open("w", encoding="utf-8", newline="") as file:
        rows = csv.DictWriter(file, WITH_COLUMNS)
        rows.writeheader()
        rows.writerows([GOOD, {**GOOD, "hardware": "somewhere"}])
    assert main(["--fit", str(POINTS), "--score", str(other), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rows"], found["balanced_sign_accuracy"]) == (1, None)
    assert found["by_source"]["me"]["rows"] == 1
    other.write_text(",".join(WITH_COLUMNS) + "\n", encoding="utf-8")
    assert main(["--fit", str(POINTS), "--score", str(other), "--json"]) == 4


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"hardware": ""}, "hardware not stated"),
        ({"hardware": "8 GPU (type not stated)"}, "hardware not stated"),
        ({"hardware": "TPUv4"}, "GPU table"),
        ({"tp": "16"}, "more than 8"),
        ({"K_or_tree": "tree"}, "draft tree"),
        ({"K_or_tree": "1-4"}, "draft length"),
        ({"batch_or_concurrency": "QPS=2"}, "batch"),
        ({"alpha_or_tau": ""}, "no acceptance"),
        ({"alpha_or_tau": "5"}, "outside 1 to K"),
        ({"speedup": ""}, "no speed-up"),
        ({"speedup": "2.5"}, "not comparable"),
        ({"method": "medusa"}, "not priced as a chain"),
        ({"method": "draft_model"}, "draft model not stated"),
        ({"target": "Somebody's own"}, "shape of the target"),
    ],
)
def test_a_row_that_lacks_something_says_what(change: dict[str, str], reason: str) -> None:
    """The list of exclusions is only as honest as its reasons."""
    with pytest.raises(ExcludedError, match=reason):
        price_row({**GOOD, **change}, trees=False)


@pytest.mark.parametrize(
    ("change", "ratio", "guessed"),
    [
        ({}, 2.4 / 1.7, ("context",)),
        ({"hardware": "H100"}, 2.4 / 1.7, ("placement", "context")),
        ({"tp": "1", "context_tokens": "2000"}, 2.4 / 1.7, ()),
        ({"alpha_def": "accepted_per_drafted", "alpha_or_tau": "0.5"}, 2.5 / 1.7, ("context",)),
        ({"alpha_def": "beta_E[beta]", "alpha_or_tau": "0.5"}, 1.875 / 1.7, ("context",)),
        ({"target": "Big-2.4T-A95B", "hardware": "8x B300", "dtype": "nvfp4"}, 2.4 / 1.7, ("shape", "context")),
        ({"hardware": "2x A100", "method": "dflash", "K_or_tree": "block8", "dataset": "1K/1K"}, 2.4 / 1.7, ()),
        ({"method": "draft_model", "draft": "Qwama-0.5B", "tp": "1"}, 2.4 / 1.7, ("shape", "context")),
    ],
)
def test_a_row_is_read_as_its_columns_say(change: dict[str, str], ratio: float, guessed: tuple[str, ...]) -> None:
    """An acceptance of another kind, or a guess that widens nothing, would be scored as if it were known."""
    row = price_row({**GOOD, **change}, trees=False)
    assert row.ratio == pytest.approx(ratio)
    assert row.guessed == guessed
    assert len(row.elsewhere) == (2 if "context" in guessed else 0)


@given(
    change=st.dictionaries(
        st.sampled_from(WITH_COLUMNS),
        st.one_of(st.text(max_size=12), st.sampled_from([each for row in ROWS for each in row.values()])),
        max_size=4,
    )
)
@settings(max_examples=100, deadline=None)
def test_no_row_ends_in_anything_but_a_price_or_a_reason(change: dict[str, str]) -> None:
    """One odd cell in a file nobody has seen must not end the whole benchmark."""
    try:
        row = price_row({**GOOD, **change}, trees=False)
    except ExcludedError:
        return
    assert row.ratio >= 1


@pytest.mark.parametrize(
    ("hardware", "gpus"), [("RTX3090", 1), ("2x RTX3090", 2), ("H100 x4", 4), ("8xH100", 8), ("A100-80G", 1), ("H200 (TP4)", 4)]
)
def test_the_number_of_gpus_is_read_from_the_hardware(hardware: str, gpus: int) -> None:
    """The x in a GPU's name is no multiplication sign."""
    assert price_row({**GOOD, "hardware": hardware}, trees=False).gpus == gpus


def test_a_tree_of_known_shape_is_priced_for_fitting_and_never_scored() -> None:
    """HF's code was published with trees only; an unknown tree has no price."""
    tree = {**GOOD, "K_or_tree": "dyn tree 60 tok depth~8", "alpha_or_tau": "6", "speedup": "4"}
    assert price_row(tree, trees=True).terms.draft_tokens == 8
    with pytest.raises(ExcludedError, match="draft tree"):
        price_row(tree, trees=False)
    with pytest.raises(ExcludedError, match="known shape"):
        price_row(GOOD, trees=True)


def test_a_family_without_rows_takes_the_triple_of_all() -> None:
    """It says so in its source."""
    every = {"overhead_s": 1e-3, "draft_scale": 1.0, "efficiency": 1.0, "error": 0.2, "n": 9, "requests": [1, 8], "draft_tokens": [3, 3]}
    said = triples({"all": every, "vllm": {**every, "n": 3, "error": 0.01}})
    assert said.count("no usable row of its own") == 3
    assert "error = 0.01" not in said
    with pytest.raises(ValueError, match="unpack"):
        documented("a document without its marks", {})
