"""A policy file states the claims, and a typo in one is refused."""

from pathlib import Path

import pytest

from paceline.errors import BadInputError, UnknownNameError
from paceline.files.policy import LARGEST_BYTES, StatedPolicy, policy_from_toml, read_policy
from paceline.stats.goodput import Slo
from paceline.verdict import Claim

WHOLE = """
claims = ["tpot_mean.ratio <= 0.95", "alpha >= break_even + 0.05", "ttft_p99.ratio <= 1.1 [code]"]
margin = 0.1
confidence = 0.9
alpha_floor = 0.5
felt_ttft_s = 0
slo = "ttft_s=0.5,tpot_s=0.05"

[segments.chat]
claims = ["tpot_p99.ratio <= 1.02", "harmed_share <= 0.05 [chat]"]
"""


def policy(text: str) -> StatedPolicy:
    return policy_from_toml(text.encode(), name="policy.toml")


def test_every_key_is_read() -> None:
    """Whoever writes a policy: what stands there is what decides."""
    found = policy(WHOLE)
    assert [str(each) for each in found.claims] == [
        "tpot_mean.ratio <= 0.95",
        "alpha >= break_even + 0.05",
        "ttft_p99.ratio <= 1.1 [code]",
        "tpot_p99.ratio <= 1.02 [chat]",
        "harmed_share <= 0.05 [chat]",
    ]
    assert (found.margin, found.confidence, found.alpha_floor, found.felt_ttft_s) == (0.1, 0.9, 0.5, 0.0)
    assert found.slo == Slo(ttft_s=0.5, tpot_s=0.05, e2e_s=None)
    assert len(found.sha256) == 64


def test_an_empty_policy_states_nothing() -> None:
    """Defaults then hold; nothing is an empty list of claims that would ship anything."""
    found = policy("")
    assert found.claims == ()
    assert (found.margin, found.slo) == (None, None)


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ('claims = ["tpot_p99.ration <= 1"]', r"tpot_p99\.ratio"),
        ("margins = 0.1", "margin"),
        ('[segments.chat]\nclaim = ["speedup >= 1"]', "claims"),
    ],
)
def test_an_unknown_metric_or_key_names_the_nearest(text: str, nearest: str) -> None:
    """A typo in a policy must not be a claim that nobody asks."""
    with pytest.raises(UnknownNameError, match=f"nearest: .*{nearest}"):
        policy(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("claims = 3", "a list of texts"),
        ("claims = []", "a list of texts"),
        ("claims = [1]", "a list of texts"),
        ("margin = true", "no number"),
        ('margin = "5 %"', "no number"),
        ("slo = 5", "no text"),
        ('slo = "ttft=1"', "not of the form"),
        ("segments = 3", "a table"),
        ("[segments]\nchat = 3", "a table"),
        ('[segments.chat]\nclaims = ["speedup >= 1 [code]"]', "names another segment"),
        ('claims = ["speedup >= 1", "speedup >= 1"]', "states a claim twice: speedup >= 1"),
        ("claims = [", "not TOML"),
        ("x = " + "[" * 20_000, "not TOML"),
    ],
)
def test_what_is_no_policy_is_refused(text: str, why: str) -> None:
    """Half a policy would ship half a server."""
    with pytest.raises(BadInputError, match=why):
        policy(text)


def test_a_file_is_read_and_a_missing_large_or_binary_one_refused(tmp_path: Path) -> None:
    """A policy path that points elsewhere must not hang the gate."""
    path = tmp_path / "policy.toml"
    path.write_text(WHOLE, encoding="utf-8")
    assert read_policy(path) == policy(WHOLE)
    with pytest.raises(BadInputError, match="No such file"):
        read_policy(tmp_path / "none.toml")
    path.write_bytes(b"#" * (LARGEST_BYTES + 1))
    with pytest.raises(BadInputError, match="larger than 64 KiB"):
        read_policy(path)
    with pytest.raises(BadInputError, match="UTF-8"):
        policy_from_toml(b"\xff", name="x")


def test_a_claim_of_a_segment_is_that_segments() -> None:
    """A claim on chat must not stop code."""
    (claim,) = policy('[segments."long context"]\nclaims = ["speedup >= 1.1"]').claims
    assert claim == Claim(metric="speedup", at_most=None, at_least=1.1, segment="long context")
