"""A sweep: its points, that it goes on where it stopped, and what it tells servers."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from paceline.cli.sweeping import swept_by_default
from paceline.decide.surface import Point
from paceline.errors import BadInputError
from paceline.hardware import Dtype
from paceline.jobs.scenario import Asked
from paceline.jobs.simulation import SimulationPlan
from paceline.jobs.sweep import Grid, Sweep, sweep
from paceline.report.sweeps import sweep_csv, sweep_dict, sweep_html, sweep_text
from paceline.simulate.replica import Rejection
from paceline.speculation.method import Method, Tree

ASKED = Asked(
    target="llama-3.1-8b",
    gpu="h100",
    gpus=1,
    dtype=Dtype.BF16,
    utilisation=0.9,
    method=Method.EAGLE3,
    draft=None,
    draft_tokens=3,
    draft_vocab=None,
    tree=None,
)
GRID = Grid(alphas=(0.3, 0.7), draft_lengths=(1, 3), concurrencies=(1, 8), contexts=(200,), reference_draft_tokens=3)
PLAN = SimulationPlan(requests=30, max_requests=16, token_budget=2048, spread=0.0, rejection=Rejection.IN_PASS, seed=1)
JOB = Sweep(asked=ASKED, grid=GRID, output_tokens=40, simulation=None, calibration=None)


def swept(job: Sweep, out: Path | None, *, workers: int = 1) -> tuple[tuple[Point, ...], list[float]]:
    """The points, and how progress was told."""
    told: list[float] = []
    return sweep(job, out, workers=workers, done=told.append), told


def test_break_even_is_where_the_speedup_is_one() -> None:
    """With α at its own K the point has S = E / ρ, and α_be = (ρ − 1) / K gives exactly 1."""
    points, told = swept(JOB, None)
    assert len(points) == 8
    assert sum(told) == 8
    for each in points:
        K = each.setting.draft_tokens
        assert 1 + K * each.break_even_alpha == pytest.approx(each.step_time_ratio)
        assert each.break_even_low <= each.break_even_alpha <= each.break_even_high
        assert each.speedup == pytest.approx(each.tokens_per_step / each.step_time_ratio)
        assert each.simulated_speedup is None
    three = [each for each in points if each.setting.draft_tokens == 3]
    assert [each.tokens_per_step for each in three] == pytest.approx([1.9, 3.1, 1.9, 3.1])


def test_a_rerun_computes_only_what_is_missing(tmp_path: Path) -> None:
    """Ctrl-C at the ninetieth minute would cost ninety minutes; a wrong key would hand out another grid's figures."""
    first, _ = swept(replace(JOB, grid=replace(GRID, alphas=(0.3,))), tmp_path)
    with (tmp_path / "points.jsonl").open("a") as cut:
        cut.write('{"key": "half')
    points, told = swept(JOB, tmp_path)
    assert told == [4, 1, 1, 1, 1]
    assert [each for each in points if each.setting.alpha == 0.3] == list(first)
    again, told = swept(JOB, tmp_path)
    assert (again, told) == (points, [8])
    assert swept(JOB, None)[0] == points


def test_points_of_another_sweep_are_not_mixed_with_these(tmp_path: Path) -> None:
    """A folder with two GPUs' points in it, or somebody's own log, with ours at its end."""
    swept(JOB, tmp_path)
    kept = (tmp_path / "points.jsonl").read_bytes()
    with pytest.raises(BadInputError, match="holds nothing of this sweep"):
        swept(replace(JOB, asked=replace(ASKED, gpu="l40s")), tmp_path)
    assert (tmp_path / "points.jsonl").read_bytes() == kept
    (tmp_path / "points.jsonl").write_text('{"mine": 1}\n', encoding="utf-8")
    with pytest.raises(BadInputError, match="holds nothing of this sweep"):
        swept(JOB, tmp_path)
    (tmp_path / "points.jsonl").write_text('{"key": "half', encoding="utf-8")
    assert len(swept(JOB, tmp_path)[0]) == 8


def test_workers_change_nothing_but_the_time(tmp_path: Path) -> None:
    """Figures that depend on who computed them cannot be made again."""
    job = replace(JOB, simulation=PLAN)
    alone, _ = swept(job, None)
    together, told = swept(job, tmp_path, workers=2)
    assert together == alone
    assert sum(told) == 8
    assert all(each.simulated_speedup is not None and 0.5 < each.simulated_speedup < 4 for each in alone)
    assert all(each.simulated_speedup == pytest.approx(each.speedup, rel=0.2) for each in alone)
    rows = [json.loads(line) for line in (tmp_path / "points.jsonl").read_text().splitlines()]
    assert len({row["key"] for row in rows}) == 8


def test_what_cannot_be_swept_is_refused_before_any_work(tmp_path: Path) -> None:
    """An hour of workers that all fail."""
    with pytest.raises(BadInputError, match="compares draft lengths of chains"):
        swept(replace(JOB, asked=replace(ASKED, tree=Tree(depth=3, topk=2, nodes=8))), None)
    with pytest.raises(BadInputError, match="raise --max-requests"):
        swept(replace(JOB, grid=replace(GRID, concurrencies=(17,)), simulation=PLAN), None)
    swept(JOB, tmp_path)
    file = tmp_path / "points.jsonl"
    file.write_text(file.read_text().replace('"speedup"', '"faster"'))
    with pytest.raises(BadInputError, match="a point of another shape"):
        swept(JOB, tmp_path)
    file.write_bytes(b"\xff")
    with pytest.raises(BadInputError, match="cannot be read"):
        swept(JOB, tmp_path)
    (tmp_path / "folder" / "points.jsonl").mkdir(parents=True)
    with pytest.raises(BadInputError, match="cannot be read"):
        swept(JOB, tmp_path / "folder")


def test_the_report_shows_break_even_best_lengths_and_every_servers_table() -> None:
    """Each server reads its own words, and a table in another's is ignored in silence."""
    points, _ = swept(JOB, None)
    text = sweep_text(points, reference_draft_tokens=3, most_requests=256)
    for words in (
        "break-even α",
        "best K",
        "num_speculative_tokens_per_batch_size [[1, ",
        'draft_len_schedule {"',
        '{"1": {"candidate_steps": [',
    ):
        assert words in text
    body = sweep_dict(points, most_requests=256)
    assert len(body["points"]) == 8
    assert body["servers"][0]["by_alpha"][1]["vllm"]["num_speculative_tokens"] == 3
    assert sweep_csv(points).splitlines()[0].startswith("context_tokens,concurrency,draft_tokens,alpha,tokens_per_step")
    assert len(sweep_csv(points).splitlines()) == 9
    assert [each["code"] for each in body["servers"][0]["by_alpha"][1]["warnings"]] == ["batches_not_looked_at"]
    assert "batches of 9 to 256 were not looked at: the K of 8 in flight goes on there" in text
    assert "not looked at" not in sweep_text(points, reference_draft_tokens=3, most_requests=8)
    page = sweep_html(points, title="<8b>")
    assert page.count("<svg") == 2
    assert "&lt;8b&gt;" in page


def test_a_simulated_break_even_is_of_the_simulated_points() -> None:
    """E = 2.5 at K = 3 with a speed-up of .5 is a step five times as long: (5 − 1) / 3 is above 1; of two α the nearer to 1 decides."""
    points = tuple(
        replace(each, tokens_per_step=2.5, simulated_speedup=0.5 if each.setting.alpha < 0.5 else 1.25) for each in swept(JOB, None)[0]
    )
    assert points[0].simulated_break_even_alpha == pytest.approx(4 / points[0].setting.draft_tokens)
    text = sweep_text(points, reference_draft_tokens=3, most_requests=256)
    assert "break-even α (simulated;" in text
    assert "0.333" in text, "(2.5 / 1.25 − 1) / 3"
    slow = tuple(replace(each, simulated_speedup=0.1) for each in points)
    assert "never pays" in sweep_text(slow, reference_draft_tokens=3, most_requests=256)
    assert "break-even α (closed form;" in sweep_text(swept(JOB, None)[0], reference_draft_tokens=3, most_requests=256)


def test_where_nothing_pays_no_server_is_told_to_draft() -> None:
    """A config with num_speculative_tokens 0 does not start."""
    points = tuple(replace(each, speedup=0.9) for each in swept(JOB, None)[0])
    (options,) = sweep_dict(points, most_requests=256)["servers"]
    assert all(each["vllm"] is None and each["tensorrt_llm"] is None and not each["warnings"] for each in options["by_alpha"])
    text = sweep_text(points, reference_draft_tokens=3, most_requests=256)
    assert "none: no draft length pays" in text
    assert "off" in text
    assert "svg" in sweep_html(points, title="t")


def test_a_sweep_goes_up_to_the_largest_batch_unless_told_otherwise() -> None:
    """A table for batches up to 256 that rests on 64 is a guess at the load where a guess costs most."""
    assert swept_by_default(256) == (1, 8, 64, 256)
    assert swept_by_default(8) == (1, 8)
