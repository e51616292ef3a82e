"""What a replay or a server's counters say of acceptance."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paceline.report.evidence import measured_dict, measured_text, replayed_dict, replayed_text
from paceline.run import Arm, Run, Summary
from paceline.speculation.counts import AcceptanceCounts
from paceline.verdict import Caution
from tests.conftest import Answer
from tests.strategies_runs import summaries_only

DUMPS = Path(__file__).parent / "data" / "dumps"
HOSTILE = "ch\x1b[2Jat\n\u202e"
ESCAPED = "ch\\x1b[2Jat\\n\\u202e"
CAUTION = Caution("since_start", "one scrape alone counts from the start")


def counts(steps: int | None, positions: tuple[int, ...] | None, *, drafts: int, accepted: int = 0) -> AcceptanceCounts:
    """Counts at K = 2, or at as many positions as are given."""
    longest = max(2, len(positions or ()))
    total = accepted if positions is None else sum(positions)
    return AcceptanceCounts(
        steps=steps, drafts=drafts, drafted_tokens=longest * drafts, accepted_tokens=total, accepted_per_position=positions
    )


GROUPS = {
    "chat": (counts(20, (6, 2), drafts=10), counts(20, (4, 0), drafts=10)),
    HOSTILE: (counts(10, (5, 5), drafts=10),),
}


def summary(value: float, statistic: str = "mean") -> Summary:
    """One aggregate."""
    return Summary(value=value, statistic=statistic, n=None, low=None, high=None)


def dump(acceptance: AcceptanceCounts | None, **summaries: Summary) -> Run:
    """What a metrics dump knows."""
    return summaries_only(Arm.SPECULATIVE, step_s=0.0189, counts=acceptance, summaries=summaries)


def cells(text: str, first: str) -> str:
    """The rest of the line that starts so."""
    return next(line for line in text.splitlines() if line.startswith(first)).removeprefix(first).strip()


def test_a_replay_pools_by_drafted_tokens_in_all_and_by_segment() -> None:
    """chat: 12 of 40 drafted tokens; the other 10 of 20; together 22 of 60, and not the mean of .3 and .5."""
    body = replayed_dict(GROUPS, confidence=0.9, rng=np.random.default_rng(1))
    assert body["segments"]["chat"]["alpha"]["value"] == pytest.approx(0.3)
    assert body["alpha"]["value"] == pytest.approx(22 / 60)
    assert (body["steps"], body["drafts"], body["accepted_tokens"]) == (50, 30, 22)
    assert body["alpha"]["confidence"] == 0.9
    assert (body["alpha"]["n"], body["segments"]["chat"]["alpha"]["n"]) == (3, 2)
    assert body["tokens_per_step"]["value"] == pytest.approx(1 + 22 / 50)


def test_the_replays_table_has_a_line_per_segment_and_one_for_all() -> None:
    """A segment's name from a log must neither steer the terminal nor break the table."""
    body = replayed_dict(GROUPS, confidence=0.95, rng=np.random.default_rng(1))
    text = replayed_text(body, drafts="n-gram", exchanges=1234, notes=(f"tokens by {HOSTILE}",))
    assert text.splitlines()[0] == "n-gram acceptance on 1,234 answers"
    assert all(each.isprintable() for each in text.splitlines())
    assert cells(text, "chat").startswith("40 ")
    assert cells(text, ESCAPED).startswith("10 ")
    assert cells(text, "all traffic").startswith("50 ")
    assert cells(text, "all traffic").endswith("0.500, 0.233")
    assert text.splitlines()[-1] == f"note: tokens by {ESCAPED}"
    assert len(set(map(len, text.splitlines()[3:7]))) == 1, "columns line up"


def test_one_segment_needs_no_total_and_one_never_drafted_has_dashes() -> None:
    """0 in the place of a dash would be an acceptance that nobody measured."""
    body = replayed_dict({"chat": (counts(7, (), drafts=0),)}, confidence=0.95, rng=np.random.default_rng(1))
    assert body["alpha"] is None
    text = replayed_text(body, drafts="n-gram", exchanges=1, notes=())
    assert "all traffic" not in text
    assert cells(text, "chat").startswith("7 ")
    assert cells(text, "chat").split().count("–") == 3, "α, τ and survival"


def test_an_interval_with_an_unknown_end_shows_it() -> None:
    """One request has no spread, and an end that is left out looks certain."""
    body = replayed_dict({"chat": GROUPS["chat"]}, confidence=0.95, rng=np.random.default_rng(1))
    body["segments"]["chat"]["alpha"] = {"value": 0.3, "low": None, "high": 0.5, "confidence": 0.95, "n": 1}
    assert "0.300 (? to 0.500)" in replayed_text(body, drafts="n-gram", exchanges=1, notes=())


def test_many_positions_are_cut_and_counted() -> None:
    """A suffix tree drafts 32 tokens; all of them would push the table off the screen."""
    long = counts(10, (9, 9, 8, 7, 6, 5, 4, 3, 2, 1), drafts=9)
    text = measured_text(dump(long))
    assert cells(text, "all").endswith("1.00, 1.00, 0.889, 0.778, 0.667, 0.556, 0.444, 0.333, … (10 positions)")


def test_each_summary_has_the_unit_of_what_it_measures() -> None:
    """78.9 tokens per second shown as 78,900 ms, or 7.67e+04 tokens, is read wrongly by everybody."""
    text = measured_text(
        dump(
            counts(100, (60, 30), drafts=100),
            ttft_s=summary(0.0398),
            decode_tokens_per_s=summary(78.9, "pooled"),
            tokens_per_step_emitted=summary(3.15, "pooled"),
            generation_tokens=summary(76700, "total"),
            requests_running=summary(3, "last"),
            unheard_of_s=summary(1.5, "p99"),
        ),
    )
    assert cells(text, "time per decode step") == "18.9 ms"
    assert cells(text, "time to first token (mean)") == "39.8 ms"
    assert cells(text, "one request's tokens per second (pooled)") == "78.9"
    assert cells(text, "tokens per step, emitted (pooled)") == "3.15"
    assert cells(text, "tokens generated (total)") == "76,700"
    assert cells(text, "requests running (last)") == "3"
    assert cells(text, "unheard_of_s (p99)") == "1,500 ms"
    assert cells(text, "all").split()[:3] == ["100", "1.00", "0.450"]
    assert "warning" not in text


def test_a_summary_with_a_range_shows_it() -> None:
    """Tokens per step of at least 3.51 and at most 3.55 shown as 3.51 is a figure that nobody measured."""
    bounded = dump(None, tokens_per_step_emitted=Summary(value=3.509, statistic="at least", n=None, low=3.509, high=3.554))
    assert cells(measured_text(bounded), "tokens per step, emitted (at least)") == "3.51 (3.51 to 3.55)"
    half = dump(None, alpha=Summary(value=0.5, statistic="last", n=None, low=None, high=0.6))
    assert cells(measured_text(half), "acceptance rate α (last)") == "0.500 (? to 0.600)"


def test_why_there_is_no_interval_is_said() -> None:
    """A ratio without an interval looks certain; totals cannot tell requests apart."""
    run = dump(counts(100, (60, 30), drafts=100))
    body = measured_dict(run, confidence=0.95)
    assert (body["acceptance"]["alpha"]["low"], body["acceptance"]["alpha"]["high"]) == (None, None)
    assert "no interval" in body["no_interval"]
    assert f"note: {body['no_interval']}" in measured_text(run)
    by_request = replace(run, requests=())
    assert measured_dict(by_request, confidence=0.95)["no_interval"] is None


def test_acceptance_that_was_not_counted_is_none_and_said() -> None:
    """The V0 engine has ratios and no counts; a table of zeros would hide that."""
    run = dump(None, alpha=summary(0.0183, "pooled"))
    body = measured_dict(run, confidence=0.95)
    assert body["acceptance"] is None
    assert body["summaries"]["alpha"] == {"value": 0.0183, "statistic": "pooled", "n": None, "low": None, "high": None}
    text = measured_text(run)
    assert "acceptance was not counted by this source" in text
    assert cells(text, "acceptance rate α (pooled)") == "0.0183"


def test_totals_without_steps_or_positions_leave_gaps() -> None:
    """Tokens per step from a source that counts no steps would be invented."""
    body = measured_dict(dump(counts(None, None, drafts=10, accepted=12)), confidence=0.95)
    assert body["acceptance"]["alpha"]["value"] == pytest.approx(0.6)
    assert (body["acceptance"]["coverage"], body["acceptance"]["survival"], body["acceptance"]["steps"]) == (None, None, None)
    assert cells(measured_text(dump(counts(None, None, drafts=10, accepted=12))), "all").split() == [
        "–",
        "–",
        "0.600",
        "2.20",
        "–",
        "–",
    ]


def test_cautions_are_told_with_their_sentence() -> None:
    """A code alone sends the reader to the source code."""
    run = replace(dump(counts(100, (60, 30), drafts=100)), cautions=(CAUTION,))
    assert measured_dict(run, confidence=0.95)["warnings"] == [{"code": "since_start", "message": CAUTION.message}]
    assert measured_text(run).endswith(f"warning [since_start]: {CAUTION.message}")


def test_nothing_that_a_dump_or_a_run_file_names_steers_the_terminal() -> None:
    """A served model's name and a run file's fields come from somebody else."""
    run = dump(None, **{HOSTILE: summary(1.0, f"me{HOSTILE}an")})
    hostile = replace(
        run, cautions=(Caution(HOSTILE, HOSTILE),), provenance=replace(run.provenance, made_by=HOSTILE, arguments={"model": HOSTILE})
    )
    text = measured_text(hostile)
    assert all(each.isprintable() for each in text.splitlines())
    assert text.splitlines()[0] == f"{ESCAPED}, speculative arm, model {ESCAPED}"
    assert text.splitlines()[-1] == f"warning [{ESCAPED}]: {ESCAPED}"


def test_measure_tells_the_sentences_of_a_dump_and_keeps_them_in_its_file(
    tmp_path: Path, paceline: Callable[[Sequence[str]], Answer]
) -> None:
    """The warm-up that is in the counters is said where the figures are read, and not forgotten when they are passed on."""
    dump, file = str(DUMPS / "vllm-0.9.2-v0-llama-3.1-70b-mlp.prom"), tmp_path / "run.json"
    printed = paceline(["measure", dump, "--out", str(file)]).out
    assert "warning [since_start]: one scrape alone counts from the server's start on" in printed
    assert "warning [v0_metrics]: these are the V0 engine's counters" in printed
    first, second = (json.loads(paceline(["measure", each, "--json"]).out) for each in (dump, str(file)))
    assert [set(each) for each in first["warnings"]] == [{"code", "message"}] * 2
    assert all(each["message"] for each in first["warnings"])
    assert second["warnings"] == first["warnings"]


def test_measure_takes_a_window_and_the_model_that_is_named(paceline: Callable[[Sequence[str]], Answer]) -> None:
    """A window leaves the warm-up out; a server with two models has no acceptance of its own."""
    ends = [str(DUMPS / f"vllm-0.32.0-smollm2-ngram-{end}.prom") for end in ("before", "after")]
    window = json.loads(paceline(["measure", "--before", ends[0], "--after", ends[1], "--json"]).out)
    assert "since_start" not in [each["code"] for each in window["warnings"]]
    assert paceline(["measure", ends[1], "--model", "no-such-model"]).code == 2
