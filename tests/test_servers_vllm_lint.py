"""What is found in a vLLM configuration, by version. Facts: the releases compared; 0.32.0 was run beside this (`tests/real`)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.checkpoint import Checkpoint
from paceline.data.tables import table
from paceline.errors import BadInputError
from paceline.servers.lint import ConfigFinding, Severity
from paceline.servers.served_config import ServedConfig
from paceline.servers.vllm.lint import drafting_of, lint
from paceline.servers.vllm.lint_combinations import request_features
from paceline.servers.vllm.lint_values import NOT_TAKEN, taken_for
from paceline.servers.vllm.versions import compatibilities, vllm_version

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_attention_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
HEAD: dict[str, Any] = {**LLAMA, "architectures": ["LlamaForCausalLMEagle3"]}
MTP_LAYERS: dict[str, Any] = {**LLAMA, "model_type": "deepseek_v3", "architectures": ["DeepseekV3"], "num_nextn_predict_layers": 2}
NGRAM: dict[str, Any] = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 2, "prompt_lookup_max": 4}
EAGLE3: dict[str, Any] = {"method": "eagle3", "model": "org/head", "num_speculative_tokens": 3}
DRAFT: dict[str, Any] = {"method": "draft_model", "model": "org/small-1B", "num_speculative_tokens": 3}
MTP: dict[str, Any] = {"method": "mtp", "num_speculative_tokens": 1}
DFLASH: dict[str, Any] = {"method": "dflash", "model": "org/x-dflash", "num_speculative_tokens": 8}
SYNTHETIC = NGRAM | {"rejection_sample_method": "synthetic"}


def checkpoint(config: Mapping[str, Any], name: str = "folder") -> Checkpoint:
    """A folder that holds this config.json and no weights."""
    return Checkpoint(name=name, config=config, tensors=None, target_ids=None, tokens=None)


def served(speculative: Mapping[str, Any] | None, flags: Mapping[str, Any], environment: Mapping[str, str]) -> ServedConfig:
    return ServedConfig(
        engine="vllm",
        target="org/large-70B",
        flags=flags,
        speculative=speculative,
        environment=environment,
        image=None,
        others=(),
        where="here",
    )


def found(
    speculative: Mapping[str, Any] | None,
    version: str = "0.32.0",
    *,
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    target: Mapping[str, Any] | None = None,
    draft: Mapping[str, Any] | None = None,
    uses: Sequence[str] = (),
) -> dict[str, ConfigFinding]:
    """The findings by code; a code that is found twice counts with its worst."""
    config = served(speculative, flags or {}, environment or {})
    checkpoints = [None if each is None else checkpoint(each) for each in (target, draft)]
    findings = lint(config, vllm_version(version), target=checkpoints[0], draft=checkpoints[1], requests_use=frozenset(uses))
    return {each.code: each for each in reversed(findings)}


def errors(*arguments: Any, **more: Any) -> set[str]:
    return {code for code, each in found(*arguments, **more).items() if each.severity is Severity.ERROR}


@pytest.mark.parametrize("speculative", [NGRAM, EAGLE3, DRAFT, MTP, DFLASH], ids=lambda each: each["method"])
def test_a_configuration_as_documented_has_no_error(speculative: dict[str, Any]) -> None:
    """Whoever did everything right: an error that is none stops a good rollout."""
    assert errors(speculative) == set()


@pytest.mark.parametrize(
    ("speculative", "version", "expected"),
    [
        (NGRAM | {"num_spec_tokens": 3}, "0.32.0", {"unknown_key"}),
        (NGRAM | {"num_spec_tokens": 3}, "0.9.0", {"unknown_key"}),
        (NGRAM | {"num_spec_tokens": 3}, "0.12.0", set()),
        (NGRAM | {"disable_by_batch_size": 8}, "0.17.0", {"key_of_another_version"}),
        (NGRAM | {"disable_by_batch_size": 8}, "0.16.0", set()),
        (NGRAM | {"disable_by_batch_size": 1}, "0.16.0", {"out_of_range"}),
        ({"method": "ngram", "num-speculative-tokens": 4}, "0.26.0", set()),
        ({"method": "ngram", "num-speculative-tokens": 4}, "0.25.0", {"unknown_key", "missing_draft_tokens"}),
        (NGRAM | {"num_speculative_tokens": 0}, "0.32.0", {"out_of_range"}),
        (NGRAM | {"num_speculative_tokens": "four"}, "0.32.0", {"wrong_type"}),
        (NGRAM | {"num_speculative_tokens": None}, "0.32.0", {"wrong_type", "missing_draft_tokens"}),
        (NGRAM | {"num_speculative_tokens": "4"}, "0.32.0", set()),
        (NGRAM | {"num_speculative_tokens": "four"}, "0.9.0", set()),
        (NGRAM | {"revision": None}, "0.32.0", set()),
        (NGRAM | {"draft_load_config": "dummy"}, "0.32.0", {"wrong_type"}),
        (NGRAM | {"rejection_sample_method": "strict"}, "0.32.0", {"unknown_choice"}),
        (NGRAM | {"rejection_sample_method": "strict"}, "0.18.0", set()),
        (NGRAM | {"rejection_sample_method": "no-such"}, "0.32.0", {"unknown_choice"}),
        (NGRAM | {"attention_backend": "flash_attn"}, "0.32.0", set()),
        (NGRAM | {"attention_backend": "no-such"}, "0.32.0", {"unknown_choice"}),
        (NGRAM | {"quantization": "no-such"}, "0.32.0", set()),
        (EAGLE3 | {"quantization": "no-such"}, "0.32.0", {"unknown_choice"}),
        (EAGLE3 | {"quantization": "fbgemm_fp8"}, "0.32.0", {"unknown_choice"}),
        (EAGLE3 | {"quantization": "AWQ"}, "0.32.0", set()),
        (NGRAM | {"suffix_decoding_min_token_prob": 2}, "0.32.0", set()),
        ({"method": "suffix", "suffix_decoding_min_token_prob": 2}, "0.32.0", {"out_of_range"}),
        (NGRAM | {"tensor_parallel_size": 1}, "0.32.0", {"wrong_key"}),
        (NGRAM | {"target_model_config": {}}, "0.32.0", set()),
        (NGRAM, "0.8.1", {"flag_refused"}),
    ],
)
def test_keys_and_their_values_are_taken_as_the_version_takes_them(speculative: dict[str, Any], version: str, expected: set[str]) -> None:
    """Whoever mistypes a key: vLLM 0.9.1 to 0.15 says nothing, later ones stop, and neither says what was meant."""
    assert errors(speculative, version) == expected


def test_an_ignored_key_is_told_where_vllm_says_nothing() -> None:
    """Whoever runs 0.12: the draft length that was typed is not the one that is used."""
    told = found({"method": "ngram", "num_speculative_tokens": 4, "num_spec_tokens": 8}, "0.12.0")["unknown_key"]
    assert (told.severity, told.since, told.until) == (Severity.WARNING, "0.9.1", "0.15.1")
    assert told.remedy == "write num_speculative_tokens"
    dead = found(NGRAM | {"disable_by_batch_size": 8}, "0.12.0")["dead_key"]
    assert (dead.severity, dead.since, dead.until) == (Severity.WARNING, "0.10.0", "0.16.0")
    assert found(EAGLE3 | {"prompt_lookup_max": 4})["ignored_key"].field == "prompt_lookup_max"
    assert found(NGRAM | {"target_model_config": {}})["internal_key"].severity is Severity.WARNING
    layers = {"method": "extract_hidden_states", "num_speculative_tokens": 1, "draft_model_config": {"hf_config": {}}}
    assert found(layers)["internal_key"].severity is Severity.INFO


@pytest.mark.parametrize(
    ("speculative", "version", "method"),
    [
        ({"model": "org/some-eagle3-head"}, "0.32.0", "eagle3"),
        ({"model": "org/EAGLE-llama"}, "0.32.0", "eagle"),
        ({"model": "org/x-dflash"}, "0.19.0", "draft_model"),
        ({"model": "org/x-dflash"}, "0.20.0", "dflash"),
        ({"model": "package.module.Proposer"}, "0.26.0", "custom_class"),
        ({"model": "package.module.Proposer"}, "0.25.0", "draft_model"),
        ({"model": "[ngram]"}, "0.32.0", "ngram"),
        ({"model": "org/small"}, "0.32.0", "draft_model"),
        ({}, "0.32.0", "draft_model"),
        ({"method": "ernie_mtp"}, "0.32.0", "mtp"),
        ({"method": "ernie_mtp"}, "0.10.2", "ernie_mtp"),
        ({"method": "draft_model", "model": "org/eagle3-head"}, "0.32.0", "eagle3"),
        ({"method": "ngram", "model": "org/eagle3-head"}, "0.32.0", "ngram"),
    ],
)
def test_the_method_is_the_one_that_vllm_takes(speculative: dict[str, Any], version: str, method: str) -> None:
    """Whoever leaves the method out, or renames a folder: what is drafted with is not what was meant."""
    drafting = drafting_of(served(speculative, {}, {}), vllm_version(version), target=None, draft=None)
    assert drafting is not None
    assert drafting.method == method


@pytest.mark.parametrize(
    ("config", "method"),
    [
        ({"model_type": "medusa"}, "medusa"),
        ({"model_type": "deepseek_v3", "architectures": ["X"]}, "mtp"),
        ({"model_type": "qwen2", "architectures": ["MiMoForCausalLM"]}, "mtp"),
        ({"model_type": "qwen3", "architectures": ["Qwen3DSparkModel"]}, "dspark"),
        (LLAMA, "draft_model"),
    ],
)
def test_the_draft_s_checkpoint_decides_the_method_where_none_is_stated(config: dict[str, Any], method: str) -> None:
    """Whoever leaves the method out: vLLM looks into the folder."""
    stated = {"model": "org/small", "num_speculative_tokens": 4}
    drafting = drafting_of(served(stated, {}, {}), vllm_version("0.32.0"), target=None, draft=checkpoint(config))
    assert drafting is not None
    assert (drafting.method, drafting.chosen.sure) == (method, True)


@pytest.mark.parametrize(
    ("speculative", "version", "code", "severity"),
    [
        ({"method": "eagle-3", "model": "m", "num_speculative_tokens": 3}, "0.32.0", "unknown_method", "error"),
        ({"method": "zzz", "model": "m", "num_speculative_tokens": 3}, "0.32.0", "unknown_method", "error"),
        (DFLASH, "0.19.0", "unknown_method", "error"),
        (DRAFT, "0.14.1", "method_does_not_work", "error"),
        ({"model": "[gram]", "num_speculative_tokens": 3}, "0.32.0", "method_typo", "error"),
        ({"method": "ernie_mtp", "num_speculative_tokens": 1}, "0.32.0", "renamed_method", "info"),
        (DRAFT | {"model": "org/eagle3-head"}, "0.32.0", "overruled_method", "warning"),
        ({"model": "org/small", "num_speculative_tokens": 3}, "0.32.0", "implied_method", "warning"),
        ({"model": "org/eagle3-head", "num_speculative_tokens": 3}, "0.9.2", "implied_method", "warning"),
        ({"method": "draft_model", "num_speculative_tokens": 3}, "0.32.0", "missing_model", "error"),
        ({"method": "custom_class", "num_speculative_tokens": 3}, "0.32.0", "missing_model", "error"),
        (EAGLE3 | {"model": ""}, "0.32.0", "missing_model", "error"),
        (MTP | {"model": ""}, "0.32.0", "missing_model", "error"),
        ({"method": "mtp"}, "0.32.0", "missing_draft_tokens", "error"),
        ({"method": "suffix"}, "0.32.0", "default_draft_tokens", "info"),
        ({"method": "dspark", "model": "org/head"}, "0.32.0", "default_draft_tokens", "info"),
        ({"method": "ngram", "num_speculative_tokens": 4}, "0.32.0", "default_ngram_window", "info"),
        (NGRAM | {"model": "org/head"}, "0.32.0", "ignored_key", "warning"),
        (NGRAM | {"prompt_lookup_min": 5}, "0.32.0", "ngram_window", "error"),
        (NGRAM | {"num_speculative_tokens": 129}, "0.32.0", "draft_too_long", "error"),
        (NGRAM | {"num_speculative_tokens": 33}, "0.10.2", "draft_too_long", "error"),
        ({"method": "suffix", "num_speculative_tokens": 8}, "0.32.0", "suffix_needs_a_package", "info"),
        (EAGLE3 | {"use_heterogeneous_vocab": True}, "0.32.0", "vocabularies_translated_for_draft_models_only", "error"),
        (EAGLE3 | {"parallel_drafting": True}, "0.32.0", "model_runner_v1", "info"),
        (DRAFT | {"use_heterogeneous_vocab": True}, "0.32.0", "model_runner_v1", "info"),
        (EAGLE3 | {"num_speculative_tokens": "{{ tokens }}"}, "0.32.0", "left_open", "info"),
    ],
)
def test_methods_and_lengths_are_judged(speculative: dict[str, Any], version: str, code: str, severity: str) -> None:
    """Whoever starts a server on it: what it refuses, guesses and defaults to is said beforehand."""
    assert found(speculative, version)[code].severity.value == severity


def test_a_missing_draft_length_is_proposed_by_the_checkpoint() -> None:
    """Whoever leaves it out: the number that the head was trained for is in its folder."""
    proposed = {"speculators_config": {"proposal_methods": [{"speculative_tokens": 5}]}}
    stated = {"method": "eagle3", "model": "org/head"}
    assert '"num_speculative_tokens": 5' in found(stated, draft=HEAD | proposed)["missing_draft_tokens"].remedy
    assert '"num_speculative_tokens": 3' in found(stated, draft=HEAD)["missing_draft_tokens"].remedy
    block = {"architectures": ["Qwen3DSparkModel"], "block_size": 7}
    assert "7" in found({"method": "dspark", "model": "org/head"}, draft=block)["default_draft_tokens"].message


@pytest.mark.parametrize(
    ("rows", "code", "severity"),
    [
        ([], "schedule", "error"),
        ([[2, 4, 2]], "schedule", "error"),
        ([[1, 4, 2], [3, 8, 1]], "schedule", "error"),
        ([[4, 1, 2]], "schedule", "error"),
        ([[1, 4, -1]], "schedule", "error"),
        ({"1-4": 2}, "schedule_form", "error"),
        ({"1": 2}, "schedule_form", "error"),
        ([[1, 4]], "schedule_form", "error"),
        ([[1, "x", 2]], "schedule_form", "error"),
        ([[1, 4, 2], [9, 16, 1]], "schedule_gap", "info"),
        ([[1, 4, 9]], "schedule_cut", "warning"),
        ([[1, 4, 2], [5, 9, 0]], "dynamic_k_collapse", "warning"),
    ],
)
def test_a_table_by_batch_size_is_judged_before_the_scheduler_is_built(rows: Any, code: str, severity: str) -> None:
    """Whoever writes one: vLLM takes it with the configuration and dies of it later, or stalls where it switches drafts off."""
    assert found(NGRAM | {"num_speculative_tokens_per_batch_size": rows})[code].severity.value == severity


def test_a_table_beside_suffix_decoding_or_data_parallelism_does_nothing() -> None:
    """Whoever combines them: the table is dropped without a word that anybody reads."""
    rows = [[1, 4, 2], [5, 9, 1]]
    stated = {"num_speculative_tokens_per_batch_size": rows}
    assert found({"method": "suffix", "num_speculative_tokens": 4} | stated)["ignored_key"].severity is Severity.WARNING
    assert "dynamic_k_reset" in found(NGRAM | stated, flags={"--data-parallel-size": "2"})
    assert "dynamic_k_reset" not in found(NGRAM | stated, flags={"--data-parallel-size": "1"})


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"synthetic_acceptance_length": 2.5}, set()),
        ({"synthetic_acceptance_rates": [0.9, 0.5, 0.5, 0.1]}, set()),
        ({}, {"synthetic_acceptance"}),
        ({"synthetic_acceptance_length": 6}, {"synthetic_acceptance"}),
        ({"synthetic_acceptance_length": 2, "synthetic_acceptance_rates": [1, 1, 1, 1]}, {"synthetic_acceptance"}),
        ({"synthetic_acceptance_rates": [0.9]}, {"synthetic_acceptance"}),
        ({"synthetic_acceptance_rates": [0.5, 0.6, 0.1, 0]}, {"synthetic_acceptance"}),
        ({"synthetic_acceptance_rates": [1.5, 0.6, 0.1, 0]}, {"synthetic_acceptance"}),
        ({"synthetic_acceptance_rates": ["x"]}, {"wrong_type", "synthetic_acceptance"}),
        ({"synthetic_acceptance_length": 2, "num_speculative_tokens": -1}, {"out_of_range"}),
        ({"synthetic_acceptance_length": 2, "rejection_sample_method": "standard"}, {"acceptance_without_synthetic"}),
    ],
)
def test_invented_acceptance_is_lossy_and_has_to_be_whole(more: dict[str, Any], expected: set[str]) -> None:
    """Whoever load-tests with it: users must never get its answers, and half a statement stops the server."""
    told = found(SYNTHETIC | more)
    assert {code for code, each in told.items() if each.severity is Severity.ERROR} == expected
    assert ("lossy" in told) == ((SYNTHETIC | more)["rejection_sample_method"] == "synthetic")


def test_fly_needs_a_window_below_the_draft_length() -> None:
    """Whoever tries 0.33's lossy method: it is refused without a window, and lossy with one."""
    assert errors(NGRAM | {"rejection_sample_method": "fly"}, "0.33.0") == {"fly_window"}
    assert found(NGRAM | {"rejection_sample_method": "fly", "fly_window_size": 2}, "0.33.0")["lossy"].severity is Severity.WARNING


@pytest.mark.parametrize(
    ("speculative", "flags", "version", "severity"),
    [
        (DFLASH, {"--max-num-batched-tokens": "2048", "--max-num-seqs": "256"}, "0.26.0", "error"),
        (DFLASH, {"--max-num-batched-tokens": "2048"}, "0.26.0", "warning"),
        (DFLASH, {}, "0.26.0", "warning"),
        (DRAFT, {}, "0.26.0", "info"),
        (DRAFT, {"--max-num-batched-tokens": "64", "--max-num-seqs": "64"}, "0.17.0", "error"),
        (DFLASH, {"--max-num-batched-tokens": "8", "--max-num-seqs": "4"}, "0.32.0", "error"),
        (DFLASH, {}, "0.32.0", None),
        (NGRAM, {"--max-num-batched-tokens": "8", "--max-num-seqs": "4"}, "0.26.0", None),
        (DRAFT, {}, "0.15.0", None),
        (DRAFT | {"parallel_drafting": True}, {"--max-num-batched-tokens": "3"}, "0.32.0", "error"),
        (EAGLE3 | {"parallel_drafting": True}, {"--max-num-batched-tokens": "2"}, "0.32.0", "error"),
    ],
)
def test_what_drafting_takes_of_the_token_budget_is_reckoned(
    speculative: dict[str, Any], flags: dict[str, str], version: str, severity: str | None
) -> None:
    """Whoever drafts in parallel with defaults: the budget goes below zero, and the server's message names neither flag."""
    told = found(speculative, version, flags=flags).get("token_budget")
    assert (None if told is None else told.severity.value) == severity


def test_a_budget_below_the_sequences_or_their_drafts_is_refused() -> None:
    """Whoever lowers it for latency: the server does not start."""
    assert errors(NGRAM, flags={"--max-num-batched-tokens": "4", "--max-num-seqs": "8"}) == {"budget_below_sequences"}
    lora = {"--max-num-batched-tokens": "16", "--max-num-seqs": "8", "--enable-lora": True}
    assert errors(NGRAM, flags=lora) == {"budget_below_drafts"}
    assert errors(NGRAM, flags=lora | {"--max-num-batched-tokens": "40"}) == set()


@pytest.mark.parametrize(
    ("speculative", "target", "draft", "more", "expected"),
    [
        (DRAFT, LLAMA, LLAMA, {}, set()),
        (DRAFT, LLAMA, LLAMA | {"vocab_size": 32002}, {}, {"vocabulary_sizes_differ"}),
        (DRAFT | {"use_heterogeneous_vocab": True}, LLAMA, LLAMA | {"vocab_size": 32002}, {}, set()),
        (DRAFT | {"max_model_len": 5000}, LLAMA, LLAMA, {}, {"draft_longer_than_allowed"}),
        (DRAFT | {"max_model_len": 5000}, None, LLAMA, {"environment": {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}}, set()),
        (DRAFT | {"max_model_len": 2000}, LLAMA, LLAMA, {"flags": {"--max-model-len": "1024"}}, {"draft_longer_than_allowed"}),
        (DRAFT | {"max_model_len": 2000}, LLAMA, LLAMA, {}, set()),
        (DRAFT, LLAMA, LLAMA, {"flags": {"--tensor-parallel-size": "3"}}, {"heads_do_not_divide"}),
        (DRAFT, LLAMA, LLAMA | {"num_attention_heads": 6}, {"flags": {"--tensor-parallel-size": "4"}}, {"heads_do_not_divide"}),
        (
            DRAFT | {"draft_tensor_parallel_size": 1},
            LLAMA,
            LLAMA | {"num_attention_heads": 6},
            {"flags": {"--tensor-parallel-size": "4"}},
            {"draft_tensor_parallel_differs"},
        ),
        (EAGLE3 | {"draft_tensor_parallel_size": 2}, LLAMA, HEAD, {"flags": {"--tensor-parallel-size": "4"}}, {"draft_tensor_parallel"}),
        (EAGLE3, LLAMA, HEAD, {}, set()),
        (EAGLE3, LLAMA, LLAMA | {"architectures": ["Qwen2ForCausalLM"]}, {}, {"unknown_draft_class"}),
        (EAGLE3, LLAMA, LLAMA | {"architectures": ["Qwen2ForCausalLM"], "speculators_model_type": "eagle3"}, {}, set()),
        (EAGLE3, LLAMA | {"model_type": "gemma3"}, HEAD, {"version": "0.21.0"}, {"target_without_eagle3"}),
        (EAGLE3, LLAMA | {"model_type": "gemma3"}, HEAD, {"version": "0.22.0"}, set()),
        (EAGLE3, {}, HEAD, {"version": "0.21.0"}, set()),
        (MTP, LLAMA, None, {}, {"no_mtp_layers"}),
        (MTP, LLAMA, None, {"version": "0.14.0"}, set()),
        (MTP, MTP_LAYERS, None, {}, set()),
        (MTP | {"num_speculative_tokens": 3}, MTP_LAYERS, None, {}, {"not_a_multiple"}),
        (MTP | {"num_speculative_tokens": 4}, MTP_LAYERS, None, {}, set()),
        (DRAFT | {"method": "medusa", "num_speculative_tokens": 3}, LLAMA, MTP_LAYERS, {}, set()),
        (DRAFT | {"parallel_drafting": True}, LLAMA, LLAMA, {}, {"no_mask_token"}),
        (DRAFT | {"parallel_drafting": True}, LLAMA, LLAMA | {"pard_token": 7}, {}, set()),
        (
            {"method": "dspark", "model": "m", "num_speculative_tokens": 4},
            None,
            {"block_size": 7},
            {"version": "0.26.0"},
            {"below_the_block"},
        ),
        ({"method": "dspark", "model": "m", "num_speculative_tokens": 4}, None, {"block_size": 7}, {"version": "0.28.0"}, set()),
    ],
)
def test_folders_are_held_against_what_the_version_refuses(
    speculative: dict[str, Any], target: Any, draft: Any, more: dict[str, Any], expected: set[str]
) -> None:
    """Whoever downloads a draft: what does not fit is told before a GPU is taken for it."""
    assert errors(speculative, target=target, draft=draft, **more) == expected


def test_a_draft_as_large_as_its_target_is_told_by_the_names() -> None:
    """Whoever takes the target for its own draft: no acceptance makes up for it."""
    told = found(DRAFT | {"model": "org/other-70B"})
    assert told["draft_as_large_as_target"].severity is Severity.WARNING
    assert "draft_as_large_as_target" not in found(DRAFT)


@pytest.mark.parametrize(
    ("speculative", "flags", "version", "code", "severity"),
    [
        (EAGLE3, {"--enable-chunked-prefill": True}, "0.18.0", "chunked_prefill", "info"),
        (EAGLE3, {"--enable-chunked-prefill": True}, "0.9.2", "chunked_prefill", "warning"),
        (DRAFT, {"--enable-chunked-prefill": True, "--tensor-parallel-size": "2"}, "0.9.2", "chunked_prefill_with_draft_tp", "error"),
        (EAGLE3 | {"method": "eagle"}, {"--enable-chunked-prefill": True}, "0.8.2", "chunked_prefill_with_eagle", "error"),
        (EAGLE3, {"--enable-prefix-caching": True}, "0.18.0", "prefix_caching", "warning"),
        (EAGLE3, {"--enable-lora": True}, "0.11.0", "lora", "error"),
        (EAGLE3, {"--enable-lora": True}, "0.11.1", "lora", "warning"),
        (EAGLE3, {"--pipeline-parallel-size": "2"}, "0.15.0", "pipeline_parallel", "error"),
        (EAGLE3, {"--pipeline-parallel-size": "2"}, "0.18.0", "pipeline_parallel", "warning"),
        (EAGLE3, {"--data-parallel-size": "2"}, "0.11.2", "data_parallel", "error"),
        (EAGLE3, {"--data-parallel-size": "2"}, "0.32.0", "data_parallel", "info"),
        (NGRAM, {"--async-scheduling": True}, "0.32.0", "async_scheduling", "error"),
        (EAGLE3, {"--async-scheduling": True}, "0.32.0", "async_scheduling", "info"),
        (EAGLE3 | {"disable_padded_drafter_batch": True}, {"--async-scheduling": True}, "0.32.0", "async_scheduling_refused", "error"),
        (EAGLE3, {"--kv-transfer-config": "{}"}, "0.20.0", "disaggregated_prefill", "warning"),
        (EAGLE3, {"--kv-sharing-fast-prefill": True}, "0.32.0", "fast_prefill_refused", "error"),
        (EAGLE3, {"--disable-log-stats": True}, "0.32.0", "no_acceptance_counters", "warning"),
        (EAGLE3, {"--per-request-spec-decode-metrics": "summary"}, "0.28.0", "flag_refused", "error"),
        (EAGLE3 | {"enable_adaptive_verification": True}, {"--enable-lora": True}, "0.32.0", "adaptive_verification_refused", "error"),
        (EAGLE3, {"--logits-processors": "mine"}, "0.31.0", "custom_logits_processors_refused", "error"),
        (EAGLE3, {"--device": "cpu"}, "0.19.0", "no_speculation_on_cpu", "error"),
        (EAGLE3, {"--spec-tokens": "3"}, "0.32.0", "stated_twice", "error"),
        (EAGLE3, {"--spec-tokens": "3"}, "0.21.0", "flag_refused", "error"),
        (EAGLE3, {"--speculative-model": "m"}, "0.8.3", "flag_refused", "error"),
        (None, {"--speculative-config": "{method"}, "0.32.0", "flag_refused", "error"),
        (None, {"--per-request-spec-decode-metrics": "summary"}, "0.32.0", "per_request_metrics_refused", "error"),
        (
            None,
            {"--enable-per-request-metrics": True, "--disable-log-stats": True},
            "0.32.0",
            "per_request_metrics_without_statistics",
            "error",
        ),
        (None, {"--tensor-parallel-size": True}, "0.32.0", "no_speculation", "info"),
    ],
)
def test_flags_beside_speculation_are_judged(speculative: Any, flags: dict[str, Any], version: str, code: str, severity: str) -> None:
    """Whoever adds a flag: 0.18.0 and chunked prefill go together, whatever is said of V0 (docs/features/README.md:44 of 0.18.0)."""
    assert found(speculative, version, flags=flags)[code].severity.value == severity


def test_flags_state_the_keys_where_the_version_has_them_as_flags() -> None:
    """Whoever starts a server of 2024, or by the short flags of 0.22: it speculates all the same."""
    old = {"--speculative-model": "[ngram]", "--num-speculative-tokens": "5", "--ngram-prompt-lookup-max": "4"}
    assert errors(None, "0.7.3", flags=old) == set()
    short = {"--spec-method": "ngram", "--spec-tokens": "3"}
    assert errors(None, "0.32.0", flags=short) == set()
    typo = found(None, "0.7.3", flags=old | {"--speculative-model": "[gram]"})["method_typo"]
    assert "--speculative-model" in typo.remedy


@pytest.mark.parametrize(
    ("speculative", "version", "value", "code", "severity"),
    [
        (NGRAM, "0.29.0", "1", "model_runner_v2", "error"),
        (NGRAM, "0.32.0", "1", "model_runner_v2", None),
        (NGRAM, "0.29.0", None, "model_runner_v1", "info"),
        (NGRAM, "0.29.0", "0", "model_runner_v1", None),
        (NGRAM, "0.28.0", None, "model_runner_v1", None),
        (NGRAM, "0.11.0", "1", "model_runner_v2", None),
        ({"method": "dspark", "model": "m", "num_speculative_tokens": 4}, "0.32.0", "0", "model_runner_v2", "error"),
        (DFLASH, "0.32.0", "1", "model_runner_v2", None),
    ],
)
def test_the_model_runner_is_told_where_it_does_not_draft(
    speculative: dict[str, Any], version: str, value: str | None, code: str, severity: str | None
) -> None:
    """Whoever forces Model Runner V2, or loses it without noticing: both arms have to run on the same one."""
    environment = {} if value is None else {"VLLM_USE_V2_MODEL_RUNNER": value}
    told = found(speculative, version, environment=environment).get(code)
    assert (None if told is None else told.severity.value) == severity


def test_the_v0_engine_does_not_speculate_any_more() -> None:
    """Whoever keeps an old variable: from 0.10.0 on it stops the server."""
    assert errors(NGRAM, "0.10.0", environment={"VLLM_USE_V1": "0"}) == {"engine_v0"}
    assert errors(NGRAM, "0.10.0", environment={"VLLM_USE_V1": "1"}) == set()


@pytest.mark.parametrize(
    ("uses", "version", "code", "severity"),
    [
        ((), "0.32.0", "min_p", "info"),
        (("min-p",), "0.32.0", "min_p", "error"),
        (("min-p",), "0.13.0", "min_p", "warning"),
        (("logit-bias",), "0.14.0", "logit_bias", "error"),
        (("structured-output",), "0.11.0", "structured_output", "error"),
        (("structured-output",), "0.32.0", "structured_output", "info"),
        (("n",), "0.32.0", "several_answers", "info"),
        (("images",), "0.18.0", "multimodal", "warning"),
        (("penalties",), "0.11.0", "penalties", "error"),
    ],
)
def test_what_requests_use_is_judged_where_it_is_said_and_mentioned_elsewhere(
    uses: tuple[str, ...], version: str, code: str, severity: str
) -> None:
    """Whoever's clients send min_p: the server answers 400 to them from 0.14.0 on, and only with speculation."""
    assert found(EAGLE3, version, uses=uses)[code].severity.value == severity


def test_what_is_filled_in_later_is_not_judged() -> None:
    """Whoever lints a template: a placeholder is neither a wrong method nor a missing model."""
    told = found({"method": "${METHOD}", "model": "${MODEL}", "num_speculative_tokens": 3})
    assert [each.field for each in told.values() if each.code == "left_open"] == ["method"]
    assert not {"unknown_method", "implied_method", "missing_model"} & told.keys()


def test_a_target_that_sees_images_is_judged_as_one_that_is_sent_them() -> None:
    """Whoever drafts for one with a text model: 0.15 to 0.20 refuse it."""
    seeing = LLAMA | {"vision_config": {}}
    assert "multimodal" in errors(DRAFT, "0.18.0", target=seeing)
    assert "multimodal" not in errors(DRAFT, "0.18.0", target=LLAMA)


def test_every_feature_of_requests_is_known_for_every_version() -> None:
    """Whoever adds a feature: a version without a row would end in a stack trace."""
    for text in table("servers/vllm")["versions"]:
        known = {each.feature for each in compatibilities("ngram", vllm_version(text))}
        assert {row["feature"] for row in table("servers/vllm_lint")["requested"]} <= known


def test_worst_findings_come_first_and_each_says_what_to_do() -> None:
    """Whoever reads the first line only: it is the one that stops the server."""
    config = served({"num_spec_tokens": 3, "method": "ngram", "num_speculative_tokens": 4}, {"--enable-chunked-prefill": True}, {})
    findings = lint(config, vllm_version("0.32.0"), target=None, draft=None, requests_use=frozenset())
    order = [list(Severity).index(each.severity) for each in findings]
    assert order == sorted(order)
    assert all(each.remedy and each.message for each in findings)


def test_every_rule_of_the_tables_names_a_key_a_flag_or_a_method_that_exists() -> None:
    """Whoever adds a row: a misspelt key would never be found."""
    rules = table("servers/vllm_lint")
    keys = {row["name"] for row in table("servers/vllm_fields")["fields"]}
    methods = {row["name"] for row in rules["names"]}
    features = {row["feature"] for row in table("servers/vllm")["features"]}
    for row in [*rules["combinations"], *rules["baseline"], *rules["either"]]:
        assert all(place[0] in "-$" or place == "method" or place in keys for place in row["when"]), row
        named = row["when"].get("method", "").removeprefix("is ").removeprefix("not ")
        assert set(filter(None, named.split("|"))) <= methods, row
    assert {row["feature"] for row in [*rules["watched"], *rules["requested"]]} <= features
    assert {row["field"] for row in table("servers/vllm_fields")["choices"]} <= keys
    assert request_features() == ("images", "logit-bias", "min-p", "n", "penalties", "structured-output")


def test_every_row_says_where_it_is_from_and_its_span_is_one_of_versions_that_were_read() -> None:
    """Whoever doubts a finding: its boundary is a release, and its source can be looked up."""
    known = table("servers/vllm")["versions"]
    for name in ("vllm_fields", "vllm_lint"):
        for rows in (each for each in table(f"servers/{name}").values() if isinstance(each, list)):
            for row in rows:
                assert "feature" in row or row["source"]  # a feature has its source where it is told by version
                span = [row.get("since", known[0]), row.get("until", known[-1])]
                assert set(span) <= set(known), row
                assert known.index(span[0]) <= known.index(span[1]), row


@pytest.mark.parametrize(
    ("kind", "value", "taken"),
    [
        ("integer", " 1_0 ", 10),
        ("integer", "4.0", 4),
        ("integer", 4.5, NOT_TAKEN),
        ("integer", float("inf"), NOT_TAKEN),
        ("integer", True, 1),
        ("integer", [], NOT_TAKEN),
        ("number", "0.5", 0.5),
        ("number", "much", NOT_TAKEN),
        ("number", [], NOT_TAKEN),
        ("number", 10**400, NOT_TAKEN),
        ("flag", "Yes", True),
        ("flag", 0, False),
        ("flag", 2, NOT_TAKEN),
        ("flag", "maybe", NOT_TAKEN),
        ("flag", [], NOT_TAKEN),
        ("text", 3, NOT_TAKEN),
        ("rates", [1, "0.5"], [1.0, 0.5]),
        ("rates", "0.5", NOT_TAKEN),
        ("schedule", [["1", 4, 2.0]], [(1, 4, 2)]),
        ("schedule", {}, NOT_TAKEN),
        ("object", {}, {}),
        ("object", "x", NOT_TAKEN),
    ],
)
def test_values_are_read_as_leniently_as_vllm_reads_them(kind: str, value: Any, taken: Any) -> None:
    """Whoever writes "4" for 4: vLLM takes it, so it is no error."""
    read = taken_for(kind, value)
    assert read is NOT_TAKEN if taken is NOT_TAKEN else read == taken


anything = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8), st.lists, max_leaves=4)


@settings(max_examples=60, deadline=None)
@given(
    speculative=st.dictionaries(
        st.sampled_from([row["name"] for row in table("servers/vllm_fields")["fields"]]) | st.text(max_size=12), anything, max_size=6
    ),
    version=st.sampled_from(table("servers/vllm")["versions"]),
)
def test_no_configuration_makes_it_fail(speculative: dict[str, Any], version: str) -> None:
    """Whoever lints other people's files: whatever stands in them is a finding, not a stack trace."""
    found(speculative, version, target=LLAMA, draft=HEAD)


def test_a_finding_without_a_remedy_is_refused() -> None:
    """Whoever writes a rule: a finding that does not say what to do helps nobody."""
    told = next(iter(found(NGRAM, "0.12.0").values()))
    with pytest.raises(BadInputError, match="remedy"):
        replace(told, remedy="")
