"""What TensorRT-LLM does with a configuration: its fields, its trees, its schedule."""

from typing import Any

import pytest

from paceline.servers.lint import ConfigFinding, Severity
from paceline.servers.served_config import ServedConfig
from paceline.servers.tensorrt_llm.lint import lint, tensorrt_llm_version

EAGLE: dict[str, Any] = {"decoding_type": "Eagle3", "max_draft_len": 3, "speculative_model": "d", "enable_penalty": True}
STATS = {"--enable_iter_perf_stats": True}


def found(block: Any, *, version: str = "1.3.0", **flags: Any) -> dict[str, ConfigFinding]:
    """What is found by code, the last of each."""
    named = {f"--{name}": value for name, value in flags.items()}
    config = ServedConfig(
        engine="tensorrt_llm", target=None, flags=STATS | named, speculative=block, environment={}, image=None, others=(), where="here"
    )
    return {each.code: each for each in lint(config, tensorrt_llm_version(version))}


@pytest.mark.parametrize(
    "over",
    [
        {},
        {"use_dynamic_tree": True, "dynamic_tree_max_topK": 4, "max_total_draft_tokens": 12},
        {"draft_len_schedule": {4: 3, 8: 2, 32: 0}},
        {"draft_len_schedule": {"4": 3}},
        {"speculative_model": None, "speculative_model_dir": "d"},
        {"load_format": "${F}", "max_draft_len": "3"},
        {"sa_config": {"threshold": 4}},
    ],
)
def test_a_good_configuration_is_clean(over: dict[str, Any]) -> None:
    """Whoever lints before each deployment stops reading warnings that are none."""
    assert {code for code in found(EAGLE | over) if code != "left_open"} == set()


def test_a_configuration_without_the_block_is_told_apart() -> None:
    """A plain server, a file that was not read, and a block that is none are three things."""
    assert set(found(None)) == {"no_speculation"}
    assert found(None, config="x.yaml")["config_elsewhere"].severity is Severity.INFO
    assert found(None, speculative_config="5")["bad_value"].severity is Severity.ERROR


@pytest.mark.parametrize(
    ("over", "code", "severity"),
    [
        ({"decoding_type": "eagle3"}, "unknown_method", "error"),
        ({"decoding_type": None}, "method_missing", "error"),
        ({"decoding_type": 5}, "method_missing", "error"),
        ({"decoding_type": "Eagle"}, "old_weights", "warning"),
        ({"decoding_type": "Draft_Target"}, "spelling", "info"),
        ({"decoding_type": "Medusa"}, "backend", "error"),
        ({"decoding_type": "SaveState"}, "drafts_nothing", "error"),
        ({"decoding_type": "NGram"}, "ignored", "warning"),
        ({"decoding_type": "PARD"}, "wide_verification", "info"),
        ({"speculative_model": None}, "draft_missing", "error"),
        ({"max_draft_len": None}, "draft_length_missing", "error"),
        ({"max_draft_len": 0}, "no_drafts", "error"),
        ({"max_draft_len": "x"}, "bad_value", "error"),
        ({"max_draft_len": -1}, "bad_value", "error"),
        ({"use_dynamic_tree": "maybe"}, "bad_value", "error"),
        ({"num_draft_tokens": 3}, "unknown_key", "error"),
        ({"relaxed_topk": 3}, "unknown_key", "error"),
        ({"max_draft_length": 3}, "unknown_key", "error"),
        ({"use_dynamic_tree": True}, "tree_topk_missing", "error"),
        ({"use_dynamic_tree": True, "dynamic_tree_max_topK": 2, "max_total_draft_tokens": 7}, "tree_out_of_bounds", "error"),
        ({"use_dynamic_tree": True, "dynamic_tree_max_topK": 2, "max_total_draft_tokens": 2}, "tree_out_of_bounds", "error"),
        ({"use_dynamic_tree": True, "dynamic_tree_max_topK": 2, "eagle_choices": [[0]]}, "tree_conflict", "error"),
        ({"eagle_choices": [[0]]}, "deprecated", "warning"),
        ({"eagle3_one_model": False}, "overlap_scheduler", "warning"),
        ({"max_concurrency": 8}, "off_when_crowded", "info"),
        ({"max_concurrency": 8, "draft_len_schedule": {4: 3}}, "schedule_and_concurrency", "error"),
        ({"draft_len_schedule": {4: 2}}, "bad_schedule", "error"),
        ({"draft_len_schedule": {4: 3, 8: 5}}, "bad_schedule", "error"),
        ({"draft_len_schedule": {0: 3}}, "bad_schedule", "error"),
        ({"draft_len_schedule": {"x": 3}}, "bad_schedule", "error"),
        ({"draft_len_schedule": {4: -1}}, "bad_schedule", "error"),
        ({"draft_len_schedule": {}}, "bad_schedule", "error"),
        ({"draft_len_schedule": 5}, "bad_value", "error"),
        ({"acceptance_length_threshold": 1.5}, "ignored", "warning"),
        ({"acceptance_rate_threshold": 0.5}, "switches_off_for_good", "warning"),
        ({"greedy_sampling": False}, "lossy", "warning"),
        ({"use_rejection_sampling": True, "sa_config": {}}, "ignored", "warning"),
    ],
)  # fmt: skip
def test_what_is_refused_ignored_or_lost_is_told(over: dict[str, Any], code: str, severity: str) -> None:
    """Whoever deploys it: an hour of loading before the refusal, or a server that drafts no more after its first bad minute."""
    told = found(EAGLE | over)
    assert code in told, list(told)
    assert told[code].severity == severity


def test_what_stands_beside_the_block_is_judged_with_it() -> None:
    """The file has more than one block."""
    assert found(EAGLE, pipeline_parallel_size="2")["pipeline_parallel"].severity is Severity.ERROR
    ngram = {"decoding_type": "NGram", "max_draft_len": 3, "enable_penalty": True}
    assert found(ngram)["overlap_scheduler"].severity is Severity.WARNING
    assert found(ngram, disable_overlap_scheduler=True) == {}
    assert found({"decoding_type": "AUTO", "speculative_model": "d", "enable_penalty": True}) == {}
    assert found({"decoding_type": "${T}", "max_draft_len": 3}).keys() == {"left_open"}


def test_a_static_tree_is_gone_from_1_4_on() -> None:
    """Whoever upgrades."""
    assert found(EAGLE | {"eagle_choices": [[0]]}, version="1.4.0")["removed"].since == "1.4"
    assert tensorrt_llm_version("1.2.1").caution is not None
