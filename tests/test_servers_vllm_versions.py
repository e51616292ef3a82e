"""What vLLM can do by version, against facts read from its releases."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.data.tables import table
from paceline.errors import BadInputError, UnknownNameError
from paceline.servers.vllm.versions import (
    Compatibility,
    Status,
    combines,
    has_flag,
    max_draft_tokens,
    metric_names,
    need_method,
    oldest_launchable,
    parse_version,
    usable_methods,
    vllm_version,
)

TABLE = table("servers/vllm")
KNOWN = tuple(TABLE["versions"])


def feature(name: str, method: str, version: str) -> Compatibility:
    return next(each for each in combines(method, vllm_version(version)) if each.feature == name)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("0.18.0", (0, 18, 0)),
        ("v0.18", (0, 18, 0)),
        (" 0.8.5.post1 ", (0, 8, 5)),
        ("0.32.0rc2", (0, 32, 0)),
        ("0.33.1.dev17+gabc123.cu129", (0, 33, 1)),
        ("0.32.0+cpu", (0, 32, 0)),
    ],
)
def test_a_version_is_read_as_pip_writes_it(text: str, parts: tuple[int, int, int]) -> None:
    """Whoever pastes `pip show vllm`: the build's tail changes nothing."""
    assert parse_version(text) == parts


@pytest.mark.parametrize("text", ["", "latest", "1", "0.18.x", "0.18.0; rm -rf", "0.18.0.1", "٠.١.٢", "0.99999.0"])
def test_what_is_no_version_is_refused(text: str) -> None:
    """Whoever mistypes: no silent answer for another version."""
    with pytest.raises(BadInputError, match=r"write it like 0\.32\.0"):
        parse_version(text)


def test_versions_compare_as_numbers() -> None:
    """Whoever runs 0.9: it is older than 0.10."""
    assert parse_version("0.9.2") < parse_version("0.10.0")


@pytest.mark.parametrize(("asked", "answers"), [("0.99.0", "0.33.0"), ("0.20.1", "0.20.0"), ("0.8.5.post1", "0.8.5"), ("0.6.0", "0.7.3")])
def test_an_unread_version_is_answered_as_the_one_before_with_a_caution(asked: str, answers: str) -> None:
    """Whoever upgrades first: an answer, marked as not about that version (a post release counts as its release)."""
    version = vllm_version(asked)
    assert str(version) == answers
    assert (version.caution is None) == (asked == "0.8.5.post1")
    if version.caution:
        assert version.caution.code == "unknown_version"
        assert asked in version.caution.message


@pytest.mark.parametrize(
    ("version", "method", "works"),
    [
        ("0.9.2", "draft_model", True),
        ("0.10.0", "draft_model", False),
        ("0.14.1", "draft_model", False),
        ("0.15.0", "draft_model", True),
        ("0.8.4", "eagle3", False),
        ("0.8.5", "eagle3", True),
        ("0.11.0", "suffix", False),
        ("0.11.1", "suffix", True),
        ("0.10.2", "mtp", False),
        ("0.11.0", "mtp", True),
        ("0.32.0", "medusa", True),
        ("0.33.0", "medusa", False),
        ("0.10.0", "mlp_speculator", False),
        ("0.33.0", "ngram", True),
        ("0.8.1", "ngram", False),
    ],
)
def test_a_method_works_in_the_versions_that_run_it(version: str, method: str, works: bool) -> None:
    """Whoever copies a command: accepted by the configuration is not served by the runner."""
    at = vllm_version(version)
    assert (method in usable_methods(at)) == works
    if works:
        assert need_method(method, at)
    else:
        with pytest.raises(BadInputError, match=f"{method} does not work in vLLM {version}; it does from "):
            need_method(method, at)


def test_the_message_says_since_when_and_until_when() -> None:
    """Whoever must choose an upgrade: both spans of draft models are named."""
    with pytest.raises(BadInputError, match=r"from 0\.8\.2 to 0\.9\.2 and from 0\.15\.0 on .*NotImplementedError"):
        need_method("draft_model", vllm_version("0.12.0"))
    with pytest.raises(UnknownNameError, match="nearest: eagle3"):
        need_method("eagel3", vllm_version("0.12.0"))


def test_in_0_18_0_chunked_prefill_combines_with_every_method() -> None:
    """Whoever turns chunked prefill off because of an old page: the incompatibility was the V0 engine's."""
    at = vllm_version("0.18.0")
    for method in usable_methods(at):
        found = feature("chunked prefill", method, "0.18.0")
        assert found.status is Status.COMPATIBLE
        assert "V0" in found.note
        assert "0.18.0 docs/features/README.md:44" in found.source
    assert feature("chunked prefill", "eagle", "0.9.2").status is Status.PARTIAL


@pytest.mark.parametrize(
    ("name", "method", "version", "status"),
    [
        ("pipeline parallel", "eagle3", "0.15.0", "incompatible"),
        ("pipeline parallel", "eagle3", "0.18.0", "partial"),
        ("pipeline parallel", "ngram", "0.32.0", "unknown"),
        ("LoRA", "eagle3", "0.11.0", "incompatible"),
        ("LoRA", "eagle3", "0.11.1", "costs"),
        ("prefix caching", "eagle3", "0.18.0", "costs"),
        ("prefix caching", "ngram", "0.18.0", "compatible"),
        ("structured output", "eagle3", "0.8.5", "incompatible"),
        ("structured output", "eagle3", "0.12.0", "partial"),
        ("structured output", "eagle3", "0.10.2", "compatible"),
        ("structured output", "eagle3", "0.11.0", "incompatible"),
        ("structured output", "eagle3", "0.11.1", "compatible"),
        ("structured output", "eagle3", "0.23.0", "partial"),
        ("structured output", "eagle3", "0.24.0", "compatible"),
        ("min_p", "eagle3", "0.13.0", "ignored"),
        ("min_p", "eagle3", "0.14.0", "incompatible"),
        ("async scheduling", "ngram", "0.32.0", "incompatible"),
        ("async scheduling", "eagle3", "0.18.0", "compatible"),
        ("async scheduling", "draft_model", "0.18.0", "partial"),
        ("data parallel", "eagle3", "0.11.2", "incompatible"),
        ("data parallel", "ngram", "0.10.2", "partial"),
        ("multimodal", "draft_model", "0.20.2", "incompatible"),
        ("draft tensor parallel", "draft_model", "0.15.0", "partial"),
        ("scheduled token budget", "draft_model", "0.18.0", "costs"),
        ("scheduled token budget", "draft_model", "0.28.0", "compatible"),
    ],
)
def test_features_combine_as_the_releases_say(name: str, method: str, version: str, status: str) -> None:
    """Whoever plans an upgrade: each boundary is where the release put it."""
    assert feature(name, method, version).status.value == status


@pytest.mark.parametrize("version", KNOWN)
def test_every_feature_has_an_answer_with_a_source_in_every_version(version: str) -> None:
    """Whoever asks: a gap in the table would read as "no problem"."""
    features = {row["feature"] for row in TABLE["features"]}
    at = vllm_version(version)
    for method in usable_methods(at):
        found = combines(method, at)
        assert {each.feature for each in found} == features
        assert all(each.source and each.note for each in found)


def test_every_row_of_the_table_has_a_source_and_known_versions() -> None:
    """Whoever checks a claim: each row says where it is from, and its boundaries are versions that were read."""
    for kind in ("methods", "unknown_keys", "flags", "limits", "metrics", "features"):
        for row in TABLE[kind]:
            assert row["source"]
            assert {row[end] for end in ("since", "until") if end in row} <= {*KNOWN}
            assert parse_version(row.get("since", "0.0.0")) <= parse_version(row.get("until", "9.0.0"))


def test_flags_and_limits_change_with_the_version() -> None:
    """Whoever writes a command for 0.28: the per-request flag would stop the server at its start."""
    flag = "--per-request-spec-decode-metrics"
    assert [has_flag(flag, vllm_version(each)) for each in ("0.28.0", "0.29.0", "0.33.0")] == [False, True, True]
    assert not has_flag("--no-such-flag", vllm_version("0.33.0"))
    assert [max_draft_tokens(vllm_version(each)) for each in ("0.7.3", "0.10.2", "0.11.0", "0.33.0")] == [32, 32, 128, 128]
    assert oldest_launchable() == (0, 8, 3)


def test_the_gap_metric_is_renamed_between_0_10_2_and_0_15_0() -> None:
    """Whoever writes dashboards: the old name disappears."""
    old, new = "vllm:time_per_output_token_seconds", "vllm:inter_token_latency_seconds"
    found = {version: {old, new} & set(metric_names(vllm_version(version))) for version in ("0.10.1", "0.12.0", "0.15.0")}
    assert found == {"0.10.1": {old}, "0.12.0": {old, new}, "0.15.0": {new}}


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=20))
def test_no_text_crashes_the_version_reader(text: str) -> None:
    """Whoever passes anything on the command line: an answer or a message."""
    try:
        assert str(vllm_version(text)) in KNOWN
    except BadInputError:
        return
