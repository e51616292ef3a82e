"""Tiny checkpoints, written byte by byte: the safetensors format is a length, a JSON header and the tensors."""

import json
import struct
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from paceline.checkpoint import BITS_OF_DTYPE

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 12,
    "vocab_size": 32,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
HEAD: dict[str, Any] = LLAMA | {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": 10}
BODY = {
    "model.embed_tokens.weight": ("BF16", (32, 8)),
    "model.layers.0.mlp.up_proj.weight": ("BF16", (16, 8)),
    "model.norm.weight": ("BF16", (8,)),
    "lm_head.weight": ("BF16", (32, 8)),
}
HEAD_BODY = {
    "fc.weight": ("BF16", (8, 24)),
    "midlayer.self_attn.q_proj.weight": ("BF16", (8, 16)),
    "norm.weight": ("BF16", (8,)),
    "lm_head.weight": ("BF16", (10, 8)),
}
Tensors = Mapping[str, tuple[str, tuple[int, ...]]]


def safetensors(path: Path, tensors: Tensors, *, d2t: Sequence[int] | None = None) -> Path:
    """A file of those tensors, all of them zero, and of the offsets `d2t` as 64 bit integers."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, (dtype, shape) in tensors.items():
        content = bytes(prod(shape) * BITS_OF_DTYPE[dtype] // 8)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    if d2t is not None:
        content = struct.pack(f"<{len(d2t)}q", *d2t)
        header["d2t"] = {"dtype": "I64", "shape": [len(d2t)], "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def folder(path: Path, config: Mapping[str, Any], tensors: Tensors | None, *, d2t: Sequence[int] | None = None) -> Path:
    """A model's folder with a configuration and, unless `tensors` is None, one file of weights."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config), "utf-8")
    if tensors is not None:
        safetensors(path / "model.safetensors", tensors, d2t=d2t)
    return path


def tokenizer(path: Path, words: Sequence[str]) -> None:
    """A tokenizer.json of these words, ids in their order, in a model's folder."""
    content = {"model": {"type": "BPE", "vocab": {word: at for at, word in enumerate(words)}, "merges": []}, "added_tokens": []}
    (path / "tokenizer.json").write_text(json.dumps(content), "utf-8")
