"""What SGLang does with a configuration, by version."""

import pytest

from paceline.servers.command_line import served_script
from paceline.servers.lint import ConfigFinding, Severity
from paceline.servers.sglang.lint import lint, sglang_version

PLAIN = "--max-running-requests 32 --enable-metrics --speculative-draft-model-path d"
EAGLE = f"{PLAIN} --speculative-algorithm EAGLE3"
CHAIN = f"{EAGLE} --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
TREE = f"{EAGLE} --speculative-num-steps 8 --speculative-eagle-topk 4 --speculative-num-draft-tokens 32"


def found(options: str, version: str, *, before: str = "") -> dict[str, ConfigFinding]:
    """What is found by code, the last of each."""
    (config,) = served_script(f"{before} sglang serve --model-path Qwen/Qwen3-8B {options}", engine="sglang", where="here")
    return {each.code: each for each in lint(config, sglang_version(version))}


@pytest.mark.parametrize("version", ["0.5.11", "0.5.14", "0.5.23"])
@pytest.mark.parametrize("options", [CHAIN, EAGLE, TREE])
def test_a_good_configuration_is_clean(options: str, version: str) -> None:
    """Whoever lints before each deployment stops reading warnings that are none."""
    assert found(options, version) == {}


def test_a_plain_server_is_told_that_it_is_one() -> None:
    """Whoever lints the baseline."""
    (each,) = found("", "0.5.23").values()
    assert (each.code, each.severity) == ("no_speculation", Severity.INFO)


def test_options_without_an_algorithm_are_an_error() -> None:
    """The server starts, is healthy, and drafts nothing."""
    told = found("--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4", "0.5.23")
    assert told["not_switched_on"].severity is Severity.ERROR
    assert list(told) == ["not_switched_on"]
    assert "no_speculation" not in found("--speculative-algorithm $A", "0.5.23")


@pytest.mark.parametrize(
    ("version", "options", "code", "severity"),
    [
        ("0.5.23", EAGLE.replace("EAGLE3", "EAGEL3"), "unknown_method", "error"),
        ("0.5.3", EAGLE.replace("EAGLE3", "eagle3"), "unknown_method", "error"),
        ("0.5.2", "--speculative-algorithm NGRAM", "not_yet", "error"),
        ("0.4.3", EAGLE, "not_yet", "error"),
        ("0.5.23", "--speculative-algorithm EAGLE3", "draft_missing", "error"),
        ("0.5.23", "--speculative-algorithm EAGLE", "draft_from_target", "warning"),
        ("0.5.23", "--model $M --speculative-algorithm EAGLE", "draft_from_target", "info"),
        ("0.5.23", f"{EAGLE} --speculative-num-step 3", "draft_numbers_partial", "error"),
        ("0.5.23", f"{EAGLE} --speculative_num_steps 3", "unknown_flag", "error"),
        ("0.5.23", f"{EAGLE} --speculative-quux 3", "unknown_flag", "error"),
        ("0.5.10", f"{EAGLE} --speculative-ngram-branch-length 3", "removed", "error"),
        ("0.5.23", f"{EAGLE} --speculative-skip-dp-mlp-sync", "removed", "error"),
        ("0.5.13", f"{EAGLE} --speculative-use-rejection-sampling", "not_yet", "error"),
        ("0.5.23", f"{EAGLE} --speculative-eagle-topk 1", "draft_numbers_partial", "error"),
        ("0.5.23", f"{EAGLE} --speculative-num-steps 3", "draft_numbers_partial", "error"),
        ("0.5.23", f"{EAGLE} --speculative-num-steps x", "draft_numbers_partial", "error"),
        ("0.5.23", TREE.replace("tokens 32", "tokens 120"), "tree_too_small", "error"),
        ("0.5.23", TREE.replace("tokens 32", "tokens 8"), "depth_wasted", "warning"),
        ("0.5.23", TREE.replace("steps 8", "steps 5"), "shallow_tree", "info"),
        ("0.5.0", f"{TREE} --page-size 64", "page_size", "warning"),
        ("0.5.4", f"{TREE} --page-size 64 --attention-backend fa3", "page_size", "error"),
        ("0.5.12", f"{TREE} --page-size 64 --attention-backend triton", "page_size", "error"),
        ("0.5.23", f"{TREE} --page-size 64 --attention-backend fa4", "page_size", "error"),
        ("0.5.23", f"{TREE} --page-size 64", "page_size", "warning"),
        ("0.5.23", f"{TREE} --attention-backend trtllm_mha", "tree_backend", "error"),
        ("0.5.23", EAGLE.replace("--max-running-requests 32", ""), "running_requests_lowered", "warning"),
        ("0.5.23", EAGLE.replace("requests 32", "requests 96"), "crowded", "warning"),
        ("0.5.23", f"{EAGLE} --cuda-graph-max-bs 16", "beyond_graphs", "warning"),
        ("0.5.23", f"{EAGLE} --disable-cuda-graph", "graphs_off", "warning"),
        ("0.5.23", f"{EAGLE} --mem-fraction-static 0.95", "little_memory", "warning"),
        ("0.5.23", EAGLE.replace("--enable-metrics", ""), "no_metrics", "info"),
        ("0.5.23", f"{EAGLE} --speculative-accept-threshold-single 0.9", "lossy", "warning"),
        ("0.5.23", f"{EAGLE} --speculative-accept-threshold-acc 1.5", "bad_value", "error"),
        ("0.5.22", f"{EAGLE} --pp-size 2", "pipeline_parallel", "error"),
        ("0.5.23", f"{EAGLE} --pp 2", "pipeline_parallel", "error"),
        ("0.5.23", f"{EAGLE.replace('EAGLE3', 'EAGLE')} --pp 2", "pipeline_parallel", "error"),
        ("0.5.10", f"{EAGLE} --enable-lora", "lora", "error"),
        ("0.5.10", f"{EAGLE} --lora-paths a b", "lora", "error"),
        ("0.5.20", f"{EAGLE} --enable-lora", "lora_lowers_acceptance", "info"),
        ("0.5.20", f"{EAGLE.replace('EAGLE3', 'STANDALONE')} --enable-lora", "lora", "error"),
        ("0.5.23", f"{EAGLE.replace('EAGLE3', 'STANDALONE')} --enable-dp-attention", "dp_attention", "error"),
        ("0.5.23", f"{EAGLE.replace('EAGLE3', 'DFLASH')} --enable-dp-attention", "dp_attention", "error"),
        ("0.5.23", f"{EAGLE} --enable-dp-attention --speculative-adaptive", "adaptive_off", "warning"),
        ("0.5.23", f"{TREE} --speculative-adaptive", "adaptive_tree", "error"),
        ("0.5.23", "--speculative-algorithm NGRAM --speculative-adaptive", "adaptive_method", "error"),
        ("0.5.10", f"{EAGLE} --enable-mixed-chunk", "mixed_chunk_off", "warning"),
        ("0.5.23", f"{EAGLE} --speculative-token-map t", "ignored", "warning"),
        ("0.5.23", f"{PLAIN} --speculative-algorithm NGRAM", "ignored", "warning"),
        ("0.5.23", f"{EAGLE} --speculative-draft-sink-size 4", "sink_without_window", "error"),
        ("0.5.23", "--speculative-algorithm UNO --tp 2", "uno_parallel", "error"),
        ("0.5.14", "--speculative-algorithm NGRAM --device cpu", "device", "error"),
    ],
)  # fmt: skip
def test_what_a_version_refuses_ignores_or_loses_is_told(version: str, options: str, code: str, severity: str) -> None:
    """Whoever deploys it finds out in production, from a slow server or none."""
    told = found(options, version)
    assert code in told, list(told)
    assert told[code].severity == severity


@pytest.mark.parametrize(
    ("version", "options", "code"),
    [
        ("0.5.23", f"{EAGLE} --enable-mixed-chunk", "mixed_chunk_off"),
        ("0.5.23", f"{TREE} --page-size 64 --attention-backend triton", "page_size"),
        ("0.5.20", f"{EAGLE} --enable-lora", "lora"),
        ("0.5.16", "--speculative-algorithm NGRAM --device cpu", "device"),
        ("0.5.23", f"{EAGLE} --cuda-graph-max-bs 32", "beyond_graphs"),
        ("0.5.23", "--model deepseek-ai/DeepSeek-V3 --speculative-algorithm EAGLE", "draft_from_target"),
        ("0.4.5", f"{EAGLE} --speculative-eagle-topk 2", "draft_numbers_partial"),
        ("0.5.23", "--speculative-algorithm NGRAM --speculative-num-draft-tokens 8", "draft_numbers_partial"),
        ("0.5.23", f"{EAGLE} --speculative-num-steps 3 --speculative-eagle-topk 0 --speculative-num-draft-tokens 4", "tree_too_small"),
        ("0.5.23", f"{EAGLE} --speculative-num-steps $S --speculative-eagle-topk 1 --speculative-num-draft-tokens 4", "bad_value"),
    ],
)  # fmt: skip
def test_what_a_version_takes_is_not_told(version: str, options: str, code: str) -> None:
    """A warning of the wrong version keeps a good configuration back."""
    assert code not in found(options, version)


@pytest.mark.parametrize(("steps", "width", "right"), [(4, 24, 5), (2, 2, 3)])
def test_a_chain_s_width_is_its_depth_and_the_root(steps: int, width: int, right: int) -> None:
    """Two users whose acceptance was low for it: sgl-project/SpecForge#310, sgl-project/sglang#8228."""
    numbers = f"--speculative-num-steps {steps} --speculative-eagle-topk 1 --speculative-num-draft-tokens {width}"
    told = found(f"{EAGLE} {numbers}", "0.5.4")["draft_tokens_overridden"]
    assert (told.severity, told.remedy) == (Severity.WARNING, f"set --speculative-num-draft-tokens {right}")


def test_a_partial_chain_is_told_what_is_missing() -> None:
    """The three belong together, and two of them give the third."""
    told = found(f"{EAGLE} --speculative-eagle-topk 1 --speculative-num-draft-tokens 4", "0.5.10")["draft_numbers_partial"]
    assert "a chain of width 4 is --speculative-num-steps 3" in told.remedy
    told = found(f"{EAGLE} --speculative-num-steps 5", "0.5.10")["draft_numbers_partial"]
    assert "a chain of depth 5 is --speculative-eagle-topk 1 --speculative-num-draft-tokens 6" in told.remedy


@pytest.mark.parametrize(
    ("version", "before", "code", "severity"),
    [
        ("0.5.23", "SGLANG_SIMULATE_ACC_LEN=3", "synthetic_acceptance", "error"),
        ("0.5.14", "SGLANG_ENABLE_SPEC_V2=1", "ignored", "warning"),
        ("0.5.10", "SGLANG_ENABLE_SPEC_V2=1", "overlap_slower", "info"),
        ("0.5.10", "", "overlap_off", "info"),
        ("0.5.4", "", "overlap_off", "info"),
    ],
)
def test_variables_are_judged_too(version: str, before: str, code: str, severity: str) -> None:
    """A benchmark's variable left in a manifest makes every reply garbage."""
    assert found(EAGLE, version, before=before)[code].severity == severity


def test_a_plugin_could_bring_an_algorithm_from_0_5_12_on() -> None:
    """Somebody's own drafter is no typo, but nothing here knows it."""
    assert "only a plugin" in found(EAGLE.replace("EAGLE3", "MINE"), "0.5.12")["unknown_method"].message
    assert "only a plugin" not in found(EAGLE.replace("EAGLE3", "MINE"), "0.5.11")["unknown_method"].message
