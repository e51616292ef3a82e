"""GPUs and model shapes from the packaged tables, and shapes from a Hugging Face config.json.

Names are looked up without regard to case, organisation ("meta-llama/") and a trailing "-Instruct". This version prices dense decoders:
a mixture of experts or multi-head latent attention is refused by name, because its step costs follow other laws.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from paceline.data.tables import table
from paceline.errors import BadInputError, UnknownNameError, printable
from paceline.hardware import Dtype, Gpu, ModelShape

__all__ = ["gpu", "known_gpus", "known_models", "model", "model_from_config"]

LARGEST_SIZE = 10_000_000
EXPERT_FIELDS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", "num_moe_experts")
LATENT_FIELDS = ("kv_lora_rank", "q_lora_rank")
ATTENTION_LAYERS = ("full_attention", "sliding_attention", "chunked_attention")
DRESSING = ("-instruct", "-chat", "-hf", "-it")


def known_gpus() -> tuple[str, ...]:
    """The names of the GPUs in the table, in its order."""
    return tuple(row["name"] for row in table("gpus")["gpu"])


def gpu(name: str) -> Gpu:
    """The GPU called `name`; case and aliases ("h100-sxm") do not matter.

    Raises:
        UnknownNameError: it is not in the table; the message lists the nearest names.

    """
    rows = _by_alias("gpus", "gpu")
    row = rows.get(_folded(name))
    if row is None:
        raise UnknownNameError("GPU", name, known_gpus())
    return Gpu(
        name=row["name"],
        memory_bytes=row["memory_bytes"],
        bandwidth_bytes_per_s=row["bandwidth_bytes_per_s"],
        flops_per_s={Dtype(dtype): rate for dtype, rate in row["flops_per_s"].items()},
        source=row["source"],
    )


def known_models() -> tuple[str, ...]:
    """The names of the models in the table, in its order."""
    return tuple(row["name"] for row in table("models")["model"])


def model(name: str) -> ModelShape:
    """The shape of the model called `name` ("llama-3.3-70b", "meta-llama/Llama-3.3-70B-Instruct").

    Raises:
        UnknownNameError: it is not in the table; the message lists the nearest names.

    """
    row = _by_alias("models", "model").get(_folded(name))
    if row is None:
        raise UnknownNameError("model", name, known_models())
    return ModelShape(**{field: value for field, value in row.items() if field != "aliases"})


@cache
def _by_alias(table_name: str, rows: str) -> dict[str, dict[str, Any]]:
    return {_folded(alias): row for row in table(table_name)[rows] for alias in (row["name"], *row["aliases"])}


def _folded(name: str) -> str:
    folded = name.strip().rstrip("/").rsplit("/", 1)[-1].casefold().replace("_", "-").replace(" ", "-")
    for suffix in DRESSING:
        folded = folded.removesuffix(suffix)
    return folded


def model_from_config(config: Mapping[str, Any]) -> ModelShape:
    """The shape a Hugging Face config.json describes, for any dense decoder with a gated MLP.

    A nested `text_config` (multimodal models) is followed. Missing `num_key_value_heads` means one per head, missing `head_dim` means
    hidden / heads, missing `tie_word_embeddings` means untied (tied for Gemma), the defaults of transformers.

    Raises:
        BadInputError: a field is missing or no count between 1 and 10 million, or the model is not dense.

    """
    if not isinstance(config, Mapping):
        raise BadInputError(f"config.json holds {printable(config)}, not an object")
    inner = config.get("text_config", config)
    if not isinstance(inner, Mapping):
        raise BadInputError(f"text_config is {printable(inner)}, not an object")
    _need_dense(inner)
    hidden, heads = _size(inner, "hidden_size"), _size(inner, "num_attention_heads")
    return ModelShape(
        name=_name(config, inner),
        layers=_size(inner, "num_hidden_layers"),
        hidden=hidden,
        intermediate=_size(inner, "intermediate_size"),
        heads=heads,
        kv_heads=heads if inner.get("num_key_value_heads") is None else _size(inner, "num_key_value_heads"),
        head_dim=_size(inner, "head_dim") if inner.get("head_dim") is not None else _head_dim(hidden, heads),
        vocab=_size(inner, "vocab_size"),
        tied_embeddings=_tied(config, inner),
        source="config.json",
    )


def _name(config: Mapping[str, Any], inner: Mapping[str, Any]) -> str:
    for value in (config.get("_name_or_path"), config.get("model_type"), inner.get("model_type")):
        if isinstance(value, str) and value:
            return value
    return "model"


def _need_dense(config: Mapping[str, Any]) -> None:
    for field in EXPERT_FIELDS:
        if config.get(field) is not None and (_count(field, config[field], least=0)) > 1:
            raise BadInputError(f"{field} = {config[field]} is a mixture of experts; this version is dense only. Measure both arms instead")
    for field in LATENT_FIELDS:
        if config.get(field) is not None:
            raise BadInputError(
                f"{field} = {printable(config[field])} is multi-head latent attention; this version is dense only, with ordinary "
                "(grouped-query) attention only. Measure both arms instead"
            )
    kinds = config.get("layer_types") or ()
    if not isinstance(kinds, Sequence) or any(each not in ATTENTION_LAYERS for each in kinds):
        raise BadInputError(
            f"layer_types = {printable(kinds)} has layers without a KV cache per token; this version prices dense attention decoders only"
        )


def _tied(config: Mapping[str, Any], inner: Mapping[str, Any]) -> bool:
    by_default = str(inner.get("model_type", "")).startswith("gemma")
    value = inner.get("tie_word_embeddings", config.get("tie_word_embeddings", by_default))
    if not isinstance(value, bool):
        raise BadInputError(f"tie_word_embeddings = {printable(value)} is neither true nor false")
    return value


def _head_dim(hidden: int, heads: int) -> int:
    if hidden % heads:
        raise BadInputError(f"hidden_size {hidden} is not a multiple of {heads} heads, and there is no head_dim")
    return hidden // heads


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
