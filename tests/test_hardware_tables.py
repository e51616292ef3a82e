"""GPUs and models as the packaged tables and a config.json give them."""

from math import inf, nan
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.data.tables import table
from paceline.errors import BadInputError, UnknownNameError
from paceline.forecast.config_json import model_from_config
from paceline.forecast.shapes import gpu, known_gpus, known_models, model
from paceline.hardware import Dtype

LLAMA_1B: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 16,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 128256,
    "tie_word_embeddings": True,
}


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Llama-3.1-8B", 8.03),
        ("Llama-3.2-1B", 1.236),
        ("Llama-3.2-3B", 3.213),
        ("Llama-3.3-70B", 70.55),
        ("Qwen2.5-7B", 7.62),
        ("Qwen2.5-72B", 72.71),
        ("Qwen3-0.6B", 0.596),
        ("Qwen3-4B", 4.02),
        ("Qwen3-8B", 8.19),
        ("Qwen3-14B", 14.77),
        ("Qwen3-32B", 32.76),
        ("Mistral-7B-v0.3", 7.25),
        ("Vicuna-7B-v1.5", 6.74),
        ("Vicuna-13B-v1.5", 13.02),
        ("SmolLM2-135M-Instruct", 0.1345),
    ],
)
def test_a_model_in_the_table_has_the_size_its_card_states(name: str, billions: float) -> None:
    """A typing error in the table would misprice every step of that model."""
    assert model(name).parameters / 1e9 == pytest.approx(billions, rel=2e-3)


def test_kv_bytes_per_token_are_the_published_ones() -> None:
    """Capacity planned from a wrong KV size preempts in production. Source: 2 · layers · KV heads · head dimension · 2 bytes."""
    expected = {"Llama-3.1-8B": 131_072, "Llama-3.3-70B": 327_680, "Qwen3-8B": 147_456, "Qwen3-32B": 262_144}
    assert {name: 2 * model(name).kv_elements_per_token for name in expected} == expected


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("llama-3.3-70b", "Llama-3.3-70B"),
        ("meta-llama/Llama-3.3-70B-Instruct", "Llama-3.3-70B"),
        ("QWEN/qwen3_8b", "Qwen3-8B"),
        ("smollm2-135m", "SmolLM2-135M-Instruct"),
        ("vicuna-7b", "Vicuna-7B-v1.5"),
    ],
)
def test_a_model_is_found_however_people_write_its_name(typed: str, name: str) -> None:
    """Somebody copies the name from the hub and is told that it does not exist."""
    assert model(typed).name == name


def test_every_name_in_the_tables_finds_its_own_row() -> None:
    """Two rows whose names fold to one would shadow each other."""
    assert tuple(model(name).name for name in known_models()) == known_models()
    assert tuple(gpu(name).name for name in known_gpus()) == known_gpus()
    rows = table("models")["model"]
    assert {model(alias).name for row in rows for alias in row["aliases"]} <= set(known_models())
    for row in table("gpus")["gpu"]:
        assert {gpu(alias).name for alias in row["aliases"]} <= {row["name"]}


def test_every_row_says_where_it_comes_from_and_is_positive() -> None:
    """A figure without a source cannot be checked by the person who doubts it."""
    for name, rows in (("gpus", "gpu"), ("models", "model"), ("step_cost", "gemm"), ("step_cost", "all_reduce")):
        assert all(row["source"] for row in table(name)[rows])
    for name in known_gpus():
        each = gpu(name)
        assert min(each.memory_bytes, each.bandwidth_bytes_per_s, *each.flops_per_s.values()) > 0
        assert Dtype.BF16 in each.flops_per_s
    coefficients = [value for value in table("step_cost").values() if isinstance(value, dict) and "value" in value]
    assert len(coefficients) > 10
    assert all(each["source"] and each["value"] > 0 for each in coefficients)


def test_the_h100_is_the_datasheets() -> None:
    """Every forecast for the most common GPU would be off."""
    found = gpu("H100-SXM")
    assert (found.name, found.memory_bytes, found.bandwidth_bytes_per_s) == ("h100", 80e9, 3.35e12)
    assert found.flops_per_s == {Dtype.BF16: 989e12, Dtype.FP8: 1979e12}


def test_an_a100_has_no_fp8() -> None:
    """Speeds that the hardware cannot reach would be promised."""
    with pytest.raises(BadInputError, match="fp8"):
        gpu("a100").peak_flops_per_s(Dtype.FP8)


def test_the_l40s_computes_at_its_dense_rate() -> None:
    """The sparse peak (1466) seen elsewhere would halve the cost of verifying."""
    assert gpu("l40s").flops_per_s[Dtype.FP8] == 733e12


def test_an_unknown_name_lists_the_nearest() -> None:
    """Whoever mistypes a name would have to look through the table."""
    with pytest.raises(UnknownNameError, match=r"nearest: .*h100"):
        gpu("h10")
    with pytest.raises(UnknownNameError, match=r"Qwen3-8B"):
        model("qwen3-9b")


def test_a_config_gives_the_same_shape_as_the_table() -> None:
    """The answer would depend on whether the model was named or its file was given."""
    shape, known = model_from_config(LLAMA_1B), model("llama-3.2-1b")
    assert (shape.parameters, shape.kv_elements_per_token) == (known.parameters, known.kv_elements_per_token)
    assert shape.parameters * 2 / 1e9 == pytest.approx(2.47, abs=0.005)


def test_what_a_config_leaves_out_is_what_transformers_takes() -> None:
    """Old Llama configs have neither KV heads nor head dimension; Gemma ties its embeddings without saying so."""
    old = {field: value for field, value in LLAMA_1B.items() if field not in ("num_key_value_heads", "head_dim", "tie_word_embeddings")}
    shape = model_from_config(old)
    assert (shape.kv_heads, shape.head_dim, shape.tied_embeddings) == (32, 64, False)
    assert model_from_config({**old, "num_key_value_heads": None, "head_dim": None}).kv_heads == 32
    assert model_from_config({**old, "model_type": "gemma3_text"}).tied_embeddings


def test_a_nested_text_config_is_followed_and_named_after_the_whole() -> None:
    """Multimodal models keep their decoder one level down."""
    shape = model_from_config({"model_type": "mistral3", "text_config": LLAMA_1B})
    assert (shape.layers, shape.name) == (16, "mistral3")
    assert model_from_config({"_name_or_path": "me/mine", **LLAMA_1B}).name == "me/mine"
    nameless = {field: value for field, value in LLAMA_1B.items() if field != "model_type"}
    assert model_from_config(nameless).name == "model"


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"num_experts": 128}, "mixture of experts"),
        ({"n_routed_experts": 256}, "mixture of experts"),
        ({"num_local_experts": 8}, "mixture of experts"),
        ({"kv_lora_rank": 512}, "qk_rope_head_dim"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "layer_types"),
        ({"layer_types": 7}, "layer_types"),
        ({"num_experts": "many"}, "num_experts"),
    ],
)
def test_a_config_that_leaves_out_what_its_kind_needs_is_refused_by_name(extra: dict[str, Any], said: str) -> None:
    """A mixture of experts priced as dense for want of one field is off by its sparsity, several times over."""
    with pytest.raises(BadInputError, match=said):
        model_from_config({**LLAMA_1B, **extra})


def test_one_expert_and_full_attention_layers_are_dense() -> None:
    """Dense models whose config carries empty expert fields would be turned away."""
    shape = model_from_config({**LLAMA_1B, "num_experts": 0, "num_local_experts": None, "layer_types": ["full_attention"] * 16})
    assert shape.layers == 16


@pytest.mark.parametrize(
    "field", ["num_hidden_layers", "hidden_size", "intermediate_size", "vocab_size", "num_key_value_heads", "head_dim"]
)
@pytest.mark.parametrize("value", ["32", -1, 0, nan, inf, True, 2e7, 10**400, [], {}, 1.5])
def test_a_field_that_is_no_size_is_refused(field: str, value: object) -> None:
    """A damaged config would give a forecast with a straight face."""
    with pytest.raises(BadInputError, match=field):
        model_from_config({**LLAMA_1B, field: value})


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"text_config": 3}, "text_config"),
        ({}, "num"),
        ({**LLAMA_1B, "tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({**LLAMA_1B, "num_key_value_heads": 5}, "KV heads"),
        ({**LLAMA_1B, "head_dim": None, "num_attention_heads": 48, "num_key_value_heads": 8}, "not a multiple"),
        ([], "not an object"),
    ],
)
def test_a_config_that_describes_no_decoder_is_refused(config: Any, said: str) -> None:
    """The message must name the field, or nobody can mend the file."""
    with pytest.raises(BadInputError, match=said if config else "hidden_size|not an object"):
        model_from_config(config)


@given(
    config=st.dictionaries(
        st.sampled_from([*LLAMA_1B, "text_config", "num_experts", "layer_types", "kv_lora_rank"]),
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(),
            st.floats(),
            st.text(max_size=5),
            st.lists(st.integers(), max_size=2),
            st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
        ),
    )
)
@settings(max_examples=100, deadline=None)
def test_no_config_ends_in_anything_but_a_shape_or_a_refusal(config: dict[str, Any]) -> None:
    """A config from the internet would end in a traceback."""
    try:
        shape = model_from_config({**LLAMA_1B, **config})
    except BadInputError:
        return
    assert shape.parameters > 0
