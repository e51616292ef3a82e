"""What LMDeploy's counters say: vLLM's, under another prefix and another rule for off."""

from pathlib import Path

import pytest

from paceline.errors import BadInputError
from paceline.run import Arm
from paceline.servers.lmdeploy.metrics import is_lmdeploy, read_counters, window
from paceline.servers.measured_run import to_run
from paceline.servers.prometheus_text import parse_exposition

DUMPS = Path(__file__).parent / "data" / "dumps"


def test_the_counters_give_what_the_server_s_own_gauges_say() -> None:
    """Whoever compares with its dashboard: 3 of 6 accepted, 2.5 tokens per draft, and 2.0 per step because one step had no draft."""
    text = (DUMPS / "lmdeploy-two-drafts.prom").read_text(encoding="utf-8")
    run = to_run(window([read_counters(parse_exposition(text).samples, model="test-model")]), arm=None, inputs={}, window_s=None)
    counts = run.acceptance
    assert (counts.steps, counts.drafts, counts.drafted_tokens, counts.accepted_tokens) == (3, 2, 6, 3)
    assert (counts.alpha, counts.acceptance_length, counts.tokens_per_step) == (0.5, 2.5, 2.0)
    assert counts.survival == (1.0, 0.5, 0.0)
    assert run.summaries["tokens_per_step_emitted"].value == (7 - 1) / 3
    assert run.step_seconds == pytest.approx(0.04)
    assert "tpot_s" not in run.summaries
    assert run.arm is Arm.SPECULATIVE
    assert run.cautions == ()


def test_counters_of_zero_are_speculation_off() -> None:
    """Whoever gates a plain LMDeploy: its counters exist and are 0, which is not an acceptance of 0."""
    lines = [f"lmdeploy:spec_decode_num_{name}_total 0\n" for name in ("drafts", "draft_tokens", "accepted_tokens")]
    off = window([read_counters(parse_exposition("".join(lines) + "lmdeploy:generation_tokens_total 9\n").samples, model=None)])
    assert to_run(off, arm=None, inputs={}, window_s=None).arm is Arm.BASELINE
    assert [each.code for each in off.cautions] == ["speculation_off"]


def test_a_version_without_the_counters_is_a_plain_server() -> None:
    """Whoever runs an older version: nothing is said of acceptance."""
    old = window([read_counters(parse_exposition("lmdeploy:generation_tokens_total 9\n").samples, model=None)])
    assert (old.speculates, old.acceptance, old.cautions, old.gauges) == (False, None, (), {})


def test_other_servers_series_are_none_of_lmdeploy_s() -> None:
    """Whoever points it at something else: recognised by content."""
    samples = parse_exposition("vllm:generation_tokens_total 1\n").samples
    assert not is_lmdeploy(samples)
    with pytest.raises(BadInputError, match="no LMDeploy series"):
        read_counters(samples, model=None)
