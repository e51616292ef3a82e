"""What is typed about the whole replica, and what comes of it."""

import argparse
import json
from pathlib import Path

import pytest

from paceline.cli.main import build_parser, main
from paceline.cli.replica_options import asked_lengths, length_table, slo
from paceline.stats.goodput import Slo

TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(f"2023-11-16 18:15:{i:02d}.0,{300 + 10 * i},{20 + i}\n" for i in range(40))
HERE = ["--target", "llama-3.1-8b", "--gpus", "1", "--alpha", "0.5", "--json"]


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert main(["simulate", *arguments, *HERE]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_tables_are_read_as_they_are_written() -> None:
    """A batch size may stand alone."""
    assert length_table("1-16:5,17:4,18-64:0").entries == ((1, 16, 5), (17, 17, 4), (18, 64, 0))
    for wrong, told in {
        "": "FIRST-LAST:K",
        "1-16": "FIRST-LAST:K",
        "1-4:x": "FIRST-LAST:K",
        "1--4:2": "FIRST-LAST:K",
        "2-4:1": "after a batch of 0 comes 1, not 2",
        "1-4:2,3-5:1": "after a batch of 4 comes 5, not 3",
        "1-4:2,9-16:1": "leave no gap",
        "16-1:5": "16-1 runs backwards; write 1-16",
    }.items():
        with pytest.raises(argparse.ArgumentTypeError, match=told):
            length_table(wrong)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--draft-tokens-by-batch", "1-256:5"), "drafts up to 5 tokens, and --draft-tokens is 3; raise the latter"),
        (
            ("--draft-tokens-by-batch", "1-16:3", "--concurrency", "64"),
            "ends at a batch of 16, and up to 64 requests run at once; add 17-64:K",
        ),
        (("--draft-tokens-by-batch", "1-64:3", "--rate", "5"), "up to 256 requests run at once"),
    ],
)
def test_a_table_that_would_be_cut_or_stretched_is_refused(words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A draft length that the server never uses is simulated as if it did."""
    assert main(["simulate", *words, *HERE]) == 2
    assert told in capsys.readouterr().err


def test_a_fake_server_takes_a_table_up_to_all_that_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """It knows no load beforehand: asked about one, it fell over instead of starting."""
    options = build_parser().parse_args(["fake-server", "--draft-tokens-by-batch", "1-256:1"])
    assert asked_lengths(options) is not None
    assert main(["fake-server", "--gpus", "4", "--draft-tokens-by-batch", "1-16:1"]) == 2
    assert "up to 256 requests run at once" in capsys.readouterr().err


def test_objectives_are_read_with_their_units() -> None:
    """50 without a unit would be 50 seconds, and everybody would be well served."""
    assert slo("ttft=500ms,tpot=50ms") == Slo(ttft_s=0.5, tpot_s=0.05, e2e_s=None)
    for wrong in ("ttft", "ttft=1s,ttft=2s", "itl=50ms", "tpot=50", "tpot=0s"):
        with pytest.raises(argparse.ArgumentTypeError):
            slo(wrong)


def test_a_trace_at_its_own_times_names_who_is_harmed_and_what_was_promised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole answer of `simulate --own-times`: both arms, goodput, paired differences, the harmed; the same bytes twice."""
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE, encoding="utf-8")
    asked = ("--traffic", str(trace), "--own-times", "--slo", "ttft=1s,tpot=50ms")
    first, again = said(capsys, *asked), said(capsys, *asked)
    assert first == again
    arms = first["arms"]
    assert isinstance(arms, dict)
    assert all(each["goodput"]["share"]["value"] == 1.0 for each in arms.values())
    assert isinstance(first["paired_differences"], dict)
    assert first["paired_differences"]["tpot_s"]["p50"]["value"] < 0
    assert isinstance(first["harmed"], list)
    faster = said(capsys, *asked, "--time-scale", "1000")
    assert isinstance(faster["arms"], dict)
    assert faster["arms"]["baseline"]["ttft_s"]["p99"]["value"] > arms["baseline"]["ttft_s"]["p99"]["value"]


@pytest.mark.parametrize(
    "how",
    [
        ("--draft-tokens-by-batch", "1-4:3,5-8:1"),
        ("--adaptive", "--draft-tokens", "7"),
        ("--rate", "20", "--burstiness", "0.25"),
        ("--persistence", "0.4"),
    ],
)
def test_each_policy_changes_the_run(how: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """An option that is read and forgotten looks like a policy that makes no difference."""
    few = ("--requests", "60", "--concurrency", "8") if "--rate" not in how else ("--requests", "60")
    plain = ("--draft-tokens", "7") if "--adaptive" in how else ("--rate", "20") if "--rate" in how else ()
    assert said(capsys, *few, *how)["speedup"] != said(capsys, *few, *plain)["speedup"]


def test_a_ladder_above_the_draft_length_says_what_to_raise(capsys: pytest.CaptureFixture[str]) -> None:
    """The acceptance that was stated does not reach that far."""
    assert main(["simulate", "--adaptive", *HERE]) == 2
    assert "climbs to 7 drafts, but the draft length is 3" in capsys.readouterr().err


def test_a_server_that_cannot_keep_up_is_told_before_its_latencies(capsys: pytest.CaptureFixture[str]) -> None:
    """Its P99 says how long the trace was, and nobody would see."""
    overrun = said(capsys, "--rate", "500", "--requests", "300", "--max-requests", "16")
    assert isinstance(overrun["saturation"], dict)
    assert 0 < overrun["saturation"]["prefill_share"] < 1
    assert said(capsys, "--rate", "2", "--requests", "60")["saturation"] is None
    arguments = ["simulate", "--rate", "500", "--requests", "300", "--max-requests", "16", *(each for each in HERE if each != "--json")]
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith("! the server cannot keep up with arrivals")
