"""Calibration points from CSV, JSON and run files."""

from dataclasses import replace
from pathlib import Path

import pytest

from paceline.errors import PacelineError
from paceline.files.calibration import CalibrationPoint, read_calibration
from paceline.files.runfile import write_run
from paceline.run import Arm, Load
from tests.test_files_runfile import whole

POINT = CalibrationPoint(
    concurrency=8,
    draft_tokens=3,
    context=700,
    plain_step_s=0.007,
    speculative_step_s=0.011,
    step_time_ratio=None,
    measured_on={},
    mixed=None,
    coverage=None,
    method=None,
)


def written(folder: Path, text: str) -> Path:
    """A file with that text."""
    path = folder / "points"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        "concurrency,draft_tokens,context,plain_step_s,speculative_step_s,step_time_ratio\n8,3,700,0.007,0.011,\n",
        "\ufeffconcurrency;draft_tokens;context;plain_step_s;speculative_step_s\n8;3;700;0,007;0,011\n",
        "concurrency\tdraft_tokens\tcontext\tplain_step_s\tspeculative_step_s\r\n8\t3\t700\t0.007\t0.011\r\n",
        "concurrency, draft_tokens, context, plain_step_s, speculative_step_s\n8, 3, 700, 0.007, 0.011\n",
        '\ufeff[{"concurrency": 8, "draft_tokens": 3, "context": 700, "plain_step_s": 0.007, "speculative_step_s": 0.011}]',
        '{"concurrency": 8, "draft_tokens": 3, "context": 700, "plain_step_s": 0.007, "speculative_step_s": 0.011}',
    ],
)
def test_all_ways_to_write_a_point_give_the_same(tmp_path: Path, text: str) -> None:
    """A spreadsheet and a script must not be read differently."""
    assert read_calibration(written(tmp_path, text)) == (POINT,)


def test_a_run_file_is_a_point_of_its_arm(tmp_path: Path) -> None:
    """Two measured runs are what most people have."""
    path = tmp_path / "run.json"
    for arm in Arm:
        write_run(replace(whole(), arm=arm, load=Load(concurrency=8, rate_per_s=None), step_seconds=0.01, speculation=None), path)
        (point,) = read_calibration(path)
        assert (point.concurrency, point.draft_tokens) == (8, None)
        assert (point.plain_step_s, point.speculative_step_s) == ((0.01, None) if arm is Arm.BASELINE else (None, 0.01))
    made = replace(whole().provenance, arguments={"target": "Qwen3-8B", "seed": "1"})
    write_run(replace(whole(), provenance=made, load=Load(concurrency=8, rate_per_s=None), step_seconds=0.01), path)
    assert read_calibration(path)[0].measured_on == {"target": "Qwen3-8B"}
    write_run(replace(whole(), load=Load(concurrency=None, rate_per_s=1.0), step_seconds=0.01), path)
    with pytest.raises(PacelineError, match="closed loop"):
        read_calibration(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no points"),
        ("[]", "no points"),
        ("[7]", "not an object"),
        ("[{", "not JSON"),
        ('[{"plain_step_s": 1}]', "no concurrency"),
        ("concurrency,plain_step\n1,2\n", "plain_step_s"),
        ("concurrency,context\n1,2\n", "misses the column one of plain_step_s, speculative_step_s, step_time_ratio"),
        ("plain_step_s\n2\n", "misses the column concurrency; its header names plain_step_s"),
        ("context\n2\n", "column concurrency and one of plain_step_s"),
        ("concurrency,plain_step_s\n1,2,3\n", "more fields than the header's 2"),
        ("concurrency,plain_step_s\n1,\n", "point 1 states none of"),
        ("concurrency,plain_step_s\n1\n", "point 1 states none of"),
        ("concurrency,plain_step_s\n1.5,2\n", "whole number"),
        ("concurrency,plain_step_s\n1,fast\n", "not a number above 0"),
        ("concurrency,plain_step_s\n1,-2\n", "not a number above 0"),
    ],
)
def test_a_file_of_no_points_says_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    """Whoever typed it has to be able to mend it."""
    with pytest.raises(PacelineError, match=said):
        read_calibration(written(tmp_path, text))


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    """A path mistyped, or a picture."""
    with pytest.raises(PacelineError, match="cannot be read"):
        read_calibration(tmp_path / "none")
    (tmp_path / "points").write_bytes(b"\xff\xfe")
    with pytest.raises(PacelineError, match="UTF-8"):
        read_calibration(tmp_path / "points")


def test_a_folder_of_runs_gives_the_points_of_both_arms(tmp_path: Path) -> None:
    """What simulate and rollout write is a folder."""
    runs = tmp_path / "runs"
    runs.mkdir()
    for arm in Arm:
        write_run(replace(whole(), arm=arm, load=Load(concurrency=8, rate_per_s=None), step_seconds=0.01), runs / f"c8-{arm.value}.json")
    for folder in (tmp_path, runs):
        plain, speculative = read_calibration(folder)
        assert (plain.plain_step_s, speculative.speculative_step_s) == (0.01, 0.01)
    with pytest.raises(PacelineError, match="no run file whose name ends in baseline"):
        read_calibration(Path(__file__).parent / "data")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("concurrency,concurrency,plain_step_s\n1,2,3\n", "names the column concurrency 2 times"),
        ('[{"concurrency": true, "plain_step_s": 0.01}]', "concurrency = True is not a number above 0"),
        ('[{"concurrency": 1, "plain_step_s": true}]', "plain_step_s = True is not a number above 0"),
        ('[{"concurrency": 1, "plain_step_s": 1' + "0" * 400 + "}]", "is not a number above 0"),
    ],
)
def test_a_column_given_twice_and_what_is_no_number_are_refused(tmp_path: Path, text: str, why: str) -> None:
    """A spreadsheet's second column silently replaces the first, and true is one second."""
    with pytest.raises(PacelineError, match=why):
        read_calibration(written(tmp_path, text))


def test_a_point_without_drafts_needs_no_draft_length(tmp_path: Path) -> None:
    """A baseline's point is typed with 0 drafts by whoever fills in every column; with drafts 0 is a mistake."""
    (point,) = read_calibration(written(tmp_path, "concurrency,draft_tokens,plain_step_s\n8,0,0.007\n"))
    assert (point.draft_tokens, point.plain_step_s) == (None, 0.007)
    with pytest.raises(PacelineError, match="where nothing is drafted leave it empty and state plain_step_s alone"):
        read_calibration(written(tmp_path, "concurrency,draft_tokens,step_time_ratio\n8,0,1.4\n"))


def test_a_load_testers_file_is_a_point_where_it_says_which_arm_it_is() -> None:
    """Whoever has vllm bench's results need not type them off; taken for the wrong arm they would be a mistake of half a step."""
    results = Path(__file__).parent / "data" / "benchfiles"
    (point,) = read_calibration(results / "vllm-mock-spec-detailed.json")
    assert point.concurrency == 4
    assert point.speculative_step_s is not None
    with pytest.raises(PacelineError, match="does not say whether drafts were on; say so with `paceline measure"):
        read_calibration(results / "vllm-0.10-conc128.json")
    with pytest.raises(PacelineError, match=r"paceline measure FILE --out run\.json"):
        read_calibration(results / "aiperf-docs-records.jsonl")
