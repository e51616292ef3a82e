"""The shape that a Hugging Face config.json describes: dense, mixture of experts, latent attention, and hybrids with linear attention.

Families name one thing differently, so each size has a list of fields, first found first served. What a config leaves out takes the
default of transformers. Linear-attention layers keep no keys and values per token; their weights are priced as those of the attention
they replace, which is an assumption. Their recurrent state is priced where its sizes are stated.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.errors import BadInputError, printable
from paceline.hardware import Experts, LatentAttention, ModelShape

__all__ = ["model_from_config"]

LARGEST_SIZE = 10_000_000
EXPERT_COUNT = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", "num_moe_experts")
EXPERTS_PER_TOKEN = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_k", "top_k_experts")
EXPERT_INTERMEDIATE = ("moe_intermediate_size", "expert_intermediate_size", "intermediate_size")
SHARED_EXPERTS = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
DENSE_FIRST = ("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers")
EXPERT_STEP = ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq", "moe_layer_interval")
ATTENTION_LAYERS = ("full_attention", "sliding_attention", "chunked_attention", "attention")


def model_from_config(config: Mapping[str, Any]) -> ModelShape:
    """The shape a Hugging Face config.json describes, for any decoder with gated MLPs or experts.

    A nested `text_config` (multimodal models) is followed. Missing `num_key_value_heads` means one per head, missing `head_dim` means
    hidden / heads, missing `tie_word_embeddings` means untied (tied for Gemma), the defaults of transformers.

    Raises:
        BadInputError: a field is missing or no count between 1 and 10 million, or no layer keeps keys and values.

    """
    if not isinstance(config, Mapping):
        raise BadInputError(f"config.json holds {printable(config)}, not an object")
    inner = config.get("text_config", config)
    if not isinstance(inner, Mapping):
        raise BadInputError(f"text_config is {printable(inner)}, not an object")
    hidden, heads, layers = _size(inner, "hidden_size"), _size(inner, "num_attention_heads"), _size(inner, "num_hidden_layers")
    latent, experts, kv_layers = _latent(inner), _experts(inner, layers), _kv_layers(inner, layers)
    return ModelShape(
        name=_name(config, inner),
        layers=layers,
        hidden=hidden,
        intermediate=_dense_intermediate(inner),
        heads=heads,
        kv_heads=1 if latent is not None else heads if inner.get("num_key_value_heads") is None else _size(inner, "num_key_value_heads"),
        head_dim=_head_dim(inner, hidden, heads, latent),
        vocab=_size(inner, "vocab_size"),
        tied_embeddings=_tied(config, inner),
        source="config.json",
        experts=experts,
        latent=latent,
        kv_layers=kv_layers,
        state_elements=0 if kv_layers is None else (layers - kv_layers) * _state(inner),
    )


def _name(config: Mapping[str, Any], inner: Mapping[str, Any]) -> str:
    for value in (config.get("_name_or_path"), config.get("model_type"), inner.get("model_type")):
        if isinstance(value, str) and value:
            return value
    return "model"


def _dense_intermediate(config: Mapping[str, Any]) -> int:
    """Of layers with an ordinary MLP; Llama 4 keeps it apart, and a model of experts alone may state only theirs."""
    fields = ("intermediate_size_mlp", "intermediate_size", "moe_intermediate_size")
    return _size(config, _first(config, fields) or "intermediate_size")


def _experts(config: Mapping[str, Any], layers: int) -> Experts | None:
    counted = _first(config, EXPERT_COUNT)
    if counted is None or _count(counted, config[counted], least=0) <= 1:
        return None
    per_token = _first(config, EXPERTS_PER_TOKEN)
    if per_token is None:
        raise BadInputError(f"{counted} = {config[counted]} is a mixture of experts, but none of {', '.join(EXPERTS_PER_TOKEN)} is given")
    intermediate = _size(config, _first(config, EXPERT_INTERMEDIATE) or EXPERT_INTERMEDIATE[0])
    return Experts(
        count=_size(config, counted),
        per_token=_size(config, per_token),
        intermediate=intermediate,
        shared_intermediate=_shared(config, intermediate),
        dense_layers=_dense_layers(config, layers),
    )


def _shared(config: Mapping[str, Any], intermediate: int) -> int:
    if config.get("shared_expert_intermediate_size") is not None:
        return _count("shared_expert_intermediate_size", config["shared_expert_intermediate_size"], least=0)
    shared = _first(config, SHARED_EXPERTS)
    if shared is not None:
        return intermediate * _count(shared, config[shared], least=0)
    return intermediate if str(config.get("model_type", "")).startswith("llama4") else 0  # always one, never stated


def _dense_layers(config: Mapping[str, Any], layers: int) -> int:
    first, step, only = _first(config, DENSE_FIRST), _first(config, EXPERT_STEP), config.get("mlp_only_layers") or ()
    dense_first = 0 if first is None else _count(first, config[first], least=0)
    # moe_layer_freq is a list of zeros and ones in some families
    if step is not None and isinstance(config[step], Sequence) and not isinstance(config[step], str):
        return sum(1 for each in config[step] if not each)
    every = 1 if step is None else _count(step, config[step], least=1)
    if not isinstance(only, Sequence):
        raise BadInputError(f"mlp_only_layers = {printable(only)} is no list")
    return layers - (layers - dense_first) // every + len(only)


def _latent(config: Mapping[str, Any]) -> LatentAttention | None:
    if config.get("kv_lora_rank") is None:
        return None
    return LatentAttention(
        kv_rank=_size(config, "kv_lora_rank"),
        query_rank=None if config.get("q_lora_rank") is None else _size(config, "q_lora_rank"),
        rope_dim=_size(config, "qk_rope_head_dim"),
        nope_dim=_size(config, "qk_nope_head_dim"),
        value_dim=_size(config, "v_head_dim"),
    )


def _kv_layers(config: Mapping[str, Any], layers: int) -> int | None:
    """Layers with keys and values per token, None where all have them."""
    kinds = config.get("layer_types")
    if kinds is None:
        every = config.get("full_attention_interval")
        return None if every is None else layers // _count("full_attention_interval", every, least=1) or None
    if not isinstance(kinds, Sequence) or isinstance(kinds, str) or len(kinds) != layers:
        raise BadInputError(f"layer_types = {printable(kinds)} is no list of {layers} kinds, one per layer")
    attending = sum(1 for each in kinds if each in ATTENTION_LAYERS)
    if attending == 0:
        raise BadInputError(f"layer_types = {printable(kinds)} has no layer with a KV cache; a step of such a model is not priced")
    return None if attending == layers else attending


def _state(config: Mapping[str, Any]) -> int:
    """Numbers in the state of one linear-attention layer: value heads · key dimension · value dimension; 0 where they are not stated."""
    fields = ("linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim")
    if any(config.get(field) is None for field in fields):
        return 0
    heads, key_dim, value_dim = (_size(config, field) for field in fields)
    return heads * key_dim * value_dim


def _tied(config: Mapping[str, Any], inner: Mapping[str, Any]) -> bool:
    by_default = str(inner.get("model_type", "")).startswith("gemma")
    value = inner.get("tie_word_embeddings", config.get("tie_word_embeddings", by_default))
    if not isinstance(value, bool):
        raise BadInputError(f"tie_word_embeddings = {printable(value)} is neither true nor false")
    return value


def _head_dim(config: Mapping[str, Any], hidden: int, heads: int, latent: LatentAttention | None) -> int:
    if latent is not None:
        return latent.nope_dim + latent.rope_dim
    if config.get("head_dim") is not None:
        return _size(config, "head_dim")
    if hidden % heads:
        raise BadInputError(f"hidden_size {hidden} is not a multiple of {heads} heads, and there is no head_dim")
    return hidden // heads


def _first(config: Mapping[str, Any], fields: Sequence[str]) -> str | None:
    return next((field for field in fields if config.get(field) is not None), None)


def _size(config: Mapping[str, Any], field: str) -> int:
    if field not in config:
        raise BadInputError(f"config.json has no {field}; it is needed to price a step")
    return _count(field, config[field], least=1)


def _count(field: str, value: object, *, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadInputError(f"{field} = {printable(value)} is not a number")
    if not least <= value <= LARGEST_SIZE or value != int(value):
        raise BadInputError(f"{field} = {printable(value)} is not a whole number between {least} and {LARGEST_SIZE}")
    return int(value)
