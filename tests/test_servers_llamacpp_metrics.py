"""What llama-server's counters say, six digits at a time."""

from pathlib import Path

import pytest

from paceline.errors import BadInputError
from paceline.run import Arm
from paceline.servers.counters import Counters
from paceline.servers.llamacpp.metrics import is_llamacpp, read_counters, window
from paceline.servers.measured_run import to_run
from paceline.servers.prometheus_text import parse_exposition
from paceline.servers.window import Window

DUMPS = Path(__file__).parent / "data" / "dumps"
NAMES = {
    "drafts": "spec_decode_num_drafts_total",
    "drafted": "spec_decode_num_draft_tokens_total",
    "accepted": "spec_decode_num_accepted_tokens_total",
    "tokens": "tokens_predicted_total",
}


def read(text: str) -> Counters:
    return read_counters(parse_exposition(text).samples, model=None)


def scrape(positions: tuple[int, ...] = (), **values: float) -> Counters:
    lines = [f"llamacpp:{NAMES[name]} {value:g}" for name, value in values.items()]
    lines += [f'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{{position="{i}"}} {each}' for i, each in enumerate(positions)]
    return read("\n".join(lines) + "\n")


def codes(of: Window) -> list[str]:
    return [each.code for each in of.cautions]


def test_the_counters_give_acceptance_and_a_range_for_tokens_per_step() -> None:
    """Whoever reads `mean len` as tokens per step: 199 tokens in 199 − 143 steps is 3.55; /metrics knows 200 / 57 = 3.51 at least."""
    run = to_run(
        window([read((DUMPS / "llamacpp-b11434-synthetic-acceptance.prom").read_text(encoding="utf-8"))]),
        arm=None,
        inputs={},
        window_s=None,
    )
    counts = run.acceptance
    assert (counts.drafts, counts.drafted_tokens, counts.accepted_tokens, counts.steps) == (56, 221, 143, None)
    assert counts.alpha == pytest.approx(0.647, abs=5e-4)
    assert counts.acceptance_length == pytest.approx(3.55, abs=5e-3)
    assert counts.survival == pytest.approx((0.91, 0.77, 0.57, 0.30), abs=5e-3)
    emitted = run.summaries["tokens_per_step_emitted"]
    assert emitted.value == emitted.low == pytest.approx(200 / 57)
    assert emitted.high == pytest.approx(1 + 143 / 56)
    assert emitted.statistic == "at least"
    assert run.summaries["decode_tokens_per_s"].value == 50
    assert (run.step_seconds, "ttft_s" in run.summaries) == (None, False)
    assert run.arm is Arm.SPECULATIVE
    assert "model" not in run.provenance.arguments
    assert run.cautions == ()


def test_counters_of_zero_are_speculation_off() -> None:
    """Whoever forgot --spec-type: the draft model is loaded, nothing is drafted, and nothing else says so."""
    off = window([scrape(drafts=0, drafted=0, accepted=0, tokens=70)])
    run = to_run(off, arm=None, inputs={}, window_s=None)
    assert run.arm is Arm.BASELINE
    assert run.acceptance_by_segment is None
    assert codes(off) == ["speculation_off"]
    assert "--spec-type" in off.cautions[0].message
    assert run.summaries["tokens_per_step_emitted"].value == 1


def test_a_build_without_the_counters_says_nothing_of_acceptance() -> None:
    """Whoever runs a build from before August 2026: tokens, and no zero that looks measured."""
    old = window([scrape(tokens=70)])
    assert (old.drafts, old.acceptance, old.speculates, codes(old)) == (None, None, False, [])


def test_a_window_starts_before_the_first_position_is_exported() -> None:
    """Whoever scrapes before the first request: positions appear later and count from 0."""
    before, after = scrape(drafts=0, drafted=0, accepted=0, tokens=0), scrape((4, 2), drafts=5, drafted=10, accepted=6, tokens=20)
    counts = window([before, after]).acceptance
    assert counts is not None
    assert counts.accepted_per_position == (4, 2)


def test_more_accepted_than_generated_is_no_tokens_per_step() -> None:
    """Whoever's window cuts a stop in mid-draft: accepted beyond the stop is counted, and 5 tokens in -1 steps are nothing."""
    odd = window([scrape((6,), drafts=6, drafted=6, accepted=6, tokens=5)])
    assert odd.tokens_per_step_derived is None


def test_the_names_before_total_was_appended_are_read() -> None:
    """Whoever runs the build that had them first: the same counters."""
    text = "llamacpp:spec_decode_num_drafts 5\nllamacpp:spec_decode_num_draft_tokens 10\nllamacpp:spec_decode_num_accepted_tokens 6\n"
    counts = window([read(text)]).acceptance
    assert counts is not None
    assert (counts.drafts, counts.drafted_tokens, counts.accepted_tokens) == (5, 10, 6)


def test_rounded_counters_are_made_exact_by_the_positions() -> None:
    """Whoever's server runs for weeks: 1.23457e+06 is off by up to 5 at each end; the positions are whole."""
    before = scrape((1_000_100, 500_000), drafts=1_234_570, drafted=2_469_140, accepted=1_500_100, tokens=9_000_000)
    after = scrape((1_050_113, 520_005), drafts=1_294_570, drafted=2_589_140, accepted=1_570_120, tokens=9_200_000)
    rounded = window([before, after])
    counts = rounded.acceptance
    assert counts is not None
    assert (counts.drafts, counts.drafted_tokens, counts.accepted_tokens) == (60_000, 120_000, 50_013 + 20_005)
    assert codes(rounded) == ["counters_rounded"]
    assert "up to 10 here" in rounded.cautions[0].message
    assert "exact" in rounded.cautions[0].message


def test_a_difference_smaller_than_its_rounding_is_no_acceptance() -> None:
    """Whoever measures ten seconds on such a server: 40 drafted tokens ± 10 is not a rate."""
    before = scrape(drafts=1_234_570, drafted=2_469_140, accepted=1_500_100, tokens=9_000_000)
    after = scrape(drafts=1_234_590, drafted=2_469_180, accepted=1_500_120, tokens=9_000_100)
    short = window([before, after])
    assert short.acceptance is None
    assert short.alpha is None
    assert codes(short) == ["counters_rounded", "counters_missing"]
    assert "exact" not in short.cautions[0].message


def test_other_servers_series_are_none_of_llama_cpp_s() -> None:
    """Whoever points it at something else: recognised by content."""
    assert not is_llamacpp(parse_exposition("vllm:generation_tokens_total 1\n").samples)
    with pytest.raises(BadInputError, match=r"no llama\.cpp series"):
        read("vllm:generation_tokens_total 1\n")
