"""The trained head as vLLM and SGLang load it: `config.json` and `model.safetensors`.

The same key names the auxiliary layers in two ways. vLLM reads `eagle_aux_hidden_state_layer_ids` beside the sizes and counts layers done:
index k is the residual stream after k layers. SGLang, SpecForge and TensorRT-LLM read it within `eagle_config` and number the layers from 0
whose output is meant: k − 1. Both are written, so that one checkpoint serves everywhere. A head that reads other layers than it was
trained on loads without a word and drafts at random.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paceline.engine.eagle3 import Eagle3Config
from paceline.engine.states import save_whole
from paceline.engine.train_eagle3.vocabulary import DraftVocabulary
from paceline.errors import BadInputError
from paceline.files.whole import make_folder, write_text

__all__ = ["export_head", "published_config"]

FROM_TARGET = ("bos_token_id", "eos_token_id", "hidden_act", "max_position_embeddings", "rope_parameters", "rope_scaling", "rope_theta")


def published_config(config: Eagle3Config, target: Mapping[str, Any], *, dtype: torch.dtype) -> dict[str, Any]:
    """The head's config.json, for a target with the config.json `target`.

    Raises:
        BadInputError: an auxiliary layer is 0, the embeddings, which SGLang's numbering cannot name.

    """
    if min(config.aux_layers) < 1:
        raise BadInputError(f"auxiliary layers {list(config.aux_layers)}: layer 0, the embeddings, cannot be named in SGLang's numbering")
    shape = config.shape
    own = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "target_hidden_size": config.target_hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": 1,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": shape.norm_eps,
        "vocab_size": config.vocab,
        "draft_vocab_size": config.draft_vocab,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": str(dtype).removeprefix("torch."),
        "norm_before_residual": config.norm_before_residual,
        "eagle_aux_hidden_state_layer_ids": list(config.aux_layers),
        "eagle_config": {
            "use_aux_hidden_state": True,
            "eagle_aux_hidden_state_layer_ids": [each - 1 for each in config.aux_layers],
        },
    }
    return {name: target[name] for name in FROM_TARGET if target.get(name) is not None} | own


def export_head(
    weights: Mapping[str, Tensor],
    vocabulary: DraftVocabulary,
    config: Eagle3Config,
    *,
    target: Mapping[str, Any],
    dtype: torch.dtype,
    folder: Path,
) -> None:
    """Write the head to `folder`, weights first, so that a folder with a config is a whole one. The target's embeddings are not repeated.

    Raises:
        BadInputError: the place cannot be written to.

    """
    make_folder(folder)
    document = published_config(config, target, dtype=dtype)
    tensors = {name: each.to(dtype) for name, each in weights.items() if name != "d2t"}
    tensors |= {"d2t": vocabulary.d2t, "t2d": vocabulary.t2d(config.vocab)}
    save_whole(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    write_text(folder / "config.json", json.dumps(document, indent=2) + "\n")
