"""Shapes from config.json: sizes that models are named for, and what a config may leave out."""

from typing import Any

import pytest

from paceline.errors import BadInputError
from paceline.forecast.config_json import model_from_config
from paceline.forecast.shapes import model

PLAIN = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 8, "intermediate_size": 128, "vocab_size": 1000}
QWEN3_30B = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_hidden_layers": 48,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "num_hidden_layers": 61,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "tie_word_embeddings": False,
}
LLAMA4_MAVERICK = {
    "text_config": {
        "model_type": "llama4_text",
        "hidden_size": 5120,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "num_hidden_layers": 48,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16384,
        "num_local_experts": 128,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 2,
        "vocab_size": 202048,
    }
}
QWEN3_NEXT = {
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "num_hidden_layers": 48,
    "intermediate_size": 5120,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "full_attention_interval": 4,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "vocab_size": 151936,
}


@pytest.mark.parametrize(
    ("config", "name", "billions", "active"),
    [
        (QWEN3_30B, "qwen3-30b-a3b", 30.5, 3.35),
        (DEEPSEEK_V3, "deepseek-v3", 671.0, 37.5),
        (LLAMA4_MAVERICK, "llama-4-maverick", 400.7, 17.2),
        (QWEN3_NEXT, "qwen3-next-80b-a3b", 79.0, 3.24),
    ],
)
def test_a_published_config_gives_the_size_the_model_is_known_for(
    config: dict[str, Any], name: str, billions: float, active: float
) -> None:
    """A field read wrongly misprices every step of the models most people serve."""
    shape = model_from_config(config)
    assert shape.parameters / 1e9 == pytest.approx(billions, rel=0.003)
    assert shape.active_parameters / 1e9 == pytest.approx(active, rel=0.01)
    known = model(name)
    assert (shape.experts, shape.latent, shape.kv_layers, shape.state_elements) == (
        known.experts,
        known.latent,
        known.kv_layers,
        known.state_elements,
    )
    assert shape.kv_elements_per_token == known.kv_elements_per_token


def test_latent_attention_keeps_70272_bytes_per_token_of_deepseek() -> None:
    """Priced as 128 heads it would keep 57 times as much, and nothing would fit."""
    assert model_from_config(DEEPSEEK_V3).kv_elements_per_token * 2 == 70_272
    uncompressed = model_from_config({**DEEPSEEK_V3, "q_lora_rank": None})
    assert uncompressed.attention_parameters > model_from_config(DEEPSEEK_V3).attention_parameters


@pytest.mark.parametrize(
    ("extra", "dense"),
    [
        ({"decoder_sparse_step": 2}, 24),
        ({"mlp_only_layers": [0, 1, 2]}, 3),
        ({"moe_layer_freq": [0] + [1] * 47, "decoder_sparse_step": None}, 1),
    ],
)
def test_layers_without_experts_are_counted(extra: dict[str, Any], dense: int) -> None:
    """Each family says in its own way which layers have none."""
    experts = model_from_config({**QWEN3_30B, **extra}).experts
    assert experts is not None
    assert experts.dense_layers == dense


def test_a_hybrid_keeps_keys_and_values_in_some_layers_only() -> None:
    """Priced with a cache in every layer, long contexts would look four times as expensive."""
    kinds = ["linear_attention"] * 6 + ["full_attention"] * 2
    shape = model_from_config({**PLAIN, "layer_types": kinds})
    assert (shape.kv_layers, shape.state_elements) == (2, 0)
    assert shape.kv_elements_per_token == 2 * 2 * 4 * 16


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"layer_types": ["linear_attention"] * 8}, "no layer with a KV cache"),
        ({"layer_types": ["full_attention"]}, "one per layer"),
        ({"num_experts": 8, "num_experts_per_tok": 2, "mlp_only_layers": 7}, "no list"),
        ({"num_experts": 8, "num_experts_per_tok": 9}, "more than the 8"),
        ({"num_experts": 8, "num_experts_per_tok": 2, "first_k_dense_replace": 8}, "leave none for experts"),
    ],
)
def test_a_config_that_contradicts_itself_is_refused(extra: dict[str, Any], said: str) -> None:
    """Better no forecast than one of a model that cannot exist."""
    with pytest.raises(BadInputError, match=said):
        model_from_config({**PLAIN, **extra})
