"""Tiny models with random weights, written as published ones are."""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, GPTNeoXConfig, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from paceline.engine.eagle3 import Eagle3Head, eagle3_config
from paceline.engine.target import Target, load_target

__all__ = [
    "CPU",
    "SIZES",
    "eagle1_folder",
    "eagle1_settings",
    "eagle1_tensors",
    "eagle3_folder",
    "eagle3_settings",
    "eagle3_tensors",
    "model_folder",
    "tiny_target",
]

CPU = torch.device("cpu")
SIZES: dict[str, Any] = {
    "vocab_size": 7,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "initializer_range": 0.6,
}
FAMILY = {
    "llama": lambda sizes: LlamaConfig(**sizes),
    "llama3-rope": lambda sizes: LlamaConfig(
        **sizes,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ),
    "llama-biased": lambda sizes: LlamaConfig(**sizes, attention_bias=True, tie_word_embeddings=True),
    "mistral": lambda sizes: MistralConfig(**sizes, sliding_window=None),
    "qwen2": lambda sizes: Qwen2Config(**{**sizes, "head_dim": 4}),
    "qwen3": lambda sizes: Qwen3Config(**sizes),
    "gpt-neox": lambda sizes: GPTNeoXConfig(**{**sizes, "num_key_value_heads": 4, "hidden_size": 16, "head_dim": 4}),
}


def model_folder(folder: Path, family: str = "llama", *, seed: int = 1, **changes: Any) -> Path:
    """A folder with a model of that family, its weights random in every tensor."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(FAMILY[family]({**SIZES, **changes}))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    model.save_pretrained(folder)
    return folder


@cache
def tiny_target(layers: int = 4) -> Target:
    """A tiny Llama, wide enough for exact sums."""
    with TemporaryDirectory() as folder:
        return load_target(model_folder(Path(folder), num_hidden_layers=layers), dtype=torch.float64, device=CPU)


def eagle3_settings(**changes: Any) -> dict[str, Any]:
    """A head's config.json in the layout of SGLang and vLLM."""
    return {
        **SIZES,
        "num_hidden_layers": 1,
        "draft_vocab_size": 5,
        "architectures": ["LlamaForCausalLMEagle3"],
        "rms_norm_eps": 1e-6,
        "eagle_aux_hidden_state_layer_ids": [0, 2, 4],
        **changes,
    }


def eagle3_tensors(settings: dict[str, Any]) -> dict[str, Tensor]:
    """Random weights for it, under the names of that layout."""
    torch.manual_seed(5)
    head = Eagle3Head(eagle3_config(settings, target_layers=4))
    state = {name: torch.randn_like(tensor) * 0.4 if tensor.is_floating_point() else tensor for name, tensor in head.state_dict().items()}
    drafted = settings["draft_vocab_size"]
    ids = torch.arange(drafted) if drafted == settings["vocab_size"] else torch.tensor([0, 2, 3, 5, 6])[:drafted]
    state["d2t"] = ids - torch.arange(drafted)
    return state


def eagle3_folder(folder: Path, **changes: Any) -> Path:
    """A folder with a head in the layout of SGLang and vLLM."""
    folder.mkdir(exist_ok=True)
    settings = eagle3_settings(**changes)
    (folder / "config.json").write_text(json.dumps(settings))
    save_file(eagle3_tensors(settings), folder / "model.safetensors")
    return folder


def eagle1_settings(**changes: Any) -> dict[str, Any]:
    """An EAGLE head's config.json as EAGLE's own repository has it."""
    return {**SIZES, "num_hidden_layers": 1, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "rms_norm_eps": 1e-6, **changes}


def eagle1_tensors(settings: dict[str, Any]) -> dict[str, Tensor]:
    """Random weights for it, under the names of that layout."""
    torch.manual_seed(6)
    hidden, intermediate = settings["hidden_size"], settings["intermediate_size"]
    q, kv = settings["num_attention_heads"] * settings["head_dim"], settings["num_key_value_heads"] * settings["head_dim"]
    shapes: dict[str, tuple[int, ...]] = {"fc.weight": (hidden, 2 * hidden), **({"fc.bias": (hidden,)} if settings.get("bias") else {})}
    for number in range(settings["num_hidden_layers"]):
        layer = {
            "self_attn.q_proj.weight": (q, hidden),
            "self_attn.k_proj.weight": (kv, hidden),
            "self_attn.v_proj.weight": (kv, hidden),
            "self_attn.o_proj.weight": (hidden, q),
            "mlp.gate_proj.weight": (intermediate, hidden),
            "mlp.up_proj.weight": (intermediate, hidden),
            "mlp.down_proj.weight": (hidden, intermediate),
            "post_attention_layernorm.weight": (hidden,),
            **({"input_layernorm.weight": (hidden,)} if number else {}),
        }
        shapes |= {f"layers.{number}.{name}": shape for name, shape in layer.items()}
    return {name: torch.randn(shape) * 0.4 for name, shape in shapes.items()}


def eagle1_folder(folder: Path, **changes: Any) -> Path:
    """A folder with an EAGLE head in EAGLE's own layout, `fc` with a bias."""
    folder.mkdir(exist_ok=True)
    settings = eagle1_settings(**{"bias": True, **changes})
    (folder / "config.json").write_text(json.dumps(settings))
    save_file(eagle1_tensors(settings), folder / "model.safetensors")
    return folder
