"""Percentiles of a server's histograms, from the dump to the verdict."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from paceline.errors import BadInputError
from paceline.files.dump import measure_dumps
from paceline.verdict import Holds
from tests.conftest import Answer

EDGES = ("0.1", "0.25", "0.5", "+Inf")
EMPTY = (0, 0, 0, 0)


def histogram(name: str, counts: Sequence[int], *, mean_s: float, engine: str = "0", edges: Sequence[str] = EDGES) -> str:
    labels = f'engine="{engine}",model_name="m"'
    lines = [f'vllm:{name}_bucket{{{labels},le="{edge}"}} {count}' for edge, count in zip(edges, counts, strict=True)]
    return "\n".join([*lines, f"vllm:{name}_count{{{labels}}} {counts[-1]}", f"vllm:{name}_sum{{{labels}}} {counts[-1] * mean_s}", ""])


def dump(
    tmp_path: Path, name: str, *, ttft: Sequence[int], gaps: Sequence[int], engine: str = "0", edges: Sequence[str] = EDGES, drafts: bool
) -> Path:
    """A dump of so many requests of 50 tokens, and so many steps."""
    labels = f'engine="{engine}",model_name="m"'
    counted = {"generation_tokens_total": 50 * ttft[-1], "prompt_tokens_total": 100 * ttft[-1]}
    if drafts:
        counted |= {
            "spec_decode_num_drafts_total": gaps[-1],
            "spec_decode_num_draft_tokens_total": 3 * gaps[-1],
            "spec_decode_num_accepted_tokens_total": 2 * gaps[-1],
        }
    text = "".join(f"vllm:{each}{{{labels}}} {value}\n" for each, value in counted.items())
    text += histogram("time_to_first_token_seconds", ttft, mean_s=0.2, engine=engine, edges=edges)
    text += histogram("inter_token_latency_seconds", gaps, mean_s=0.15, engine=engine, edges=edges)
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return file


def test_a_window_s_percentiles_are_those_of_what_was_counted_in_it(tmp_path: Path) -> None:
    """1,000 slow requests of the warm-up must not be in the window's percentile: 950 of its 1,000 lie at most at 250 ms."""
    before = dump(tmp_path, "before.prom", ttft=(0, 0, 0, 1000), gaps=EMPTY, drafts=True)
    after = dump(tmp_path, "after.prom", ttft=(100, 950, 1000, 2000), gaps=(0, 20_000, 20_000, 20_000), drafts=True)
    run = measure_dumps(before, after, model=None)
    middle, tail = run.summaries["ttft_p50_s"], run.summaries["ttft_p99_s"]
    assert (middle.low, middle.high, middle.statistic, middle.n) == (0.1, 0.25, "p50", 1000)
    assert middle.value == pytest.approx(0.1 + 0.15 * 400 / 850)
    assert (tail.low, tail.high) == (0.25, 0.5)
    assert (run.summaries["chunk_gap_p99_s"].low, run.summaries["chunk_gap_p99_s"].high) == (0.1, 0.25)
    assert "e2e_p50_s" not in run.summaries


def test_engines_with_other_edges_have_no_common_histogram_and_half_of_one_is_none(tmp_path: Path) -> None:
    """The sum of two engines' counts at an edge that one of them lacks is no count of anything."""
    one = dump(tmp_path, "one.prom", ttft=(100, 950, 1000, 1000), gaps=EMPTY, drafts=True)
    two = dump(tmp_path, "two.prom", ttft=(100, 950, 1000, 1000), gaps=EMPTY, engine="1", edges=("0.1", "0.3", "0.5", "+Inf"), drafts=True)
    both = tmp_path / "both.prom"
    both.write_text(one.read_text("utf-8") + two.read_text("utf-8"), "utf-8")
    assert "ttft_p50_s" not in measure_dumps(None, both, model=None).summaries
    for old, new in (('le="+Inf"} 1000', 'le="+Inf"} 999'), ('le="0.5"} 1000', 'le="0.5"} 90')):
        broken = tmp_path / "broken.prom"
        broken.write_text(one.read_text("utf-8").replace(old, new), "utf-8")
        assert "ttft_p50_s" not in measure_dumps(None, broken, model=None).summaries
    broken.write_text(one.read_text("utf-8").replace('le="0.5"', 'le="half"'), "utf-8")
    with pytest.raises(BadInputError, match="edge 'half'"):
        measure_dumps(None, broken, model=None)


def test_steps_of_requests_that_nobody_counted_have_no_percentile(tmp_path: Path) -> None:
    """Steps of one request are alike: without their number the steps bound nothing."""
    file = dump(tmp_path, "x.prom", ttft=EMPTY, gaps=(0, 20_000, 20_000, 20_000), drafts=True)
    assert "chunk_gap_p99_s" not in measure_dumps(None, file, model=None).summaries


def test_buckets_decide_what_lies_apart_from_them_and_cannot_tell_the_rest(
    tmp_path: Path, paceline: Callable[[Sequence[str]], Answer]
) -> None:
    """A P99 between 250 and 500 ms is at most a second, not at most a tenth, and may or may not be 400 ms: more requests do not tell."""
    plain = dump(tmp_path, "plain.prom", ttft=(1000, 1000, 1000, 1000), gaps=(0, 50_000, 50_000, 50_000), drafts=False)
    drafted = dump(tmp_path, "drafted.prom", ttft=(100, 950, 1000, 1000), gaps=(0, 20_000, 20_000, 20_000), drafts=True)
    claims = ("ttft_p99_s <= 1", "ttft_p99_s <= 0.1", "ttft_p99_s <= 0.4", "ttft_p99.ratio <= 1.1", "ttft_p50_s <= 0.25")
    answer = paceline(["gate", str(plain), str(drafted), "--json", *(word for each in claims for word in ("--claim", each))])
    findings = {each["claim"]: each for each in json.loads(answer.out)["findings"]}
    assert [findings[each]["holds"] for each in claims] == [Holds.YES, Holds.NO, Holds.CANNOT_TELL, Holds.NO, Holds.YES]
    assert (answer.code, "a histogram's buckets are no finer than that" in findings["ttft_p99_s <= 0.4"]["why"]) == (1, True)
    ratio = findings["ttft_p99.ratio <= 1.1"]["estimate"]
    assert (ratio["low"], ratio["high"]) == (0.25 / 0.1, None)
    assert "(250 ms to 500 ms)" in paceline(["measure", str(drafted)]).out
