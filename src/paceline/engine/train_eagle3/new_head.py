"""A head to begin with: shaped like one of the target's layers, and knowing what the target's own weights can tell it."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from paceline.engine.config_sizes import stated_size
from paceline.engine.decoder_layer import AttentionParts
from paceline.engine.eagle3 import Eagle3Config, Eagle3Head
from paceline.engine.llama import llama_shape
from paceline.engine.states import Conversation
from paceline.engine.target import Target
from paceline.engine.train_eagle3.training import Trainee
from paceline.engine.train_eagle3.vocabulary import DraftVocabulary

__all__ = ["head_config", "layer_scales", "new_trainee"]

ROPE_KEYS = ("rope_", "max_position")
SPREAD = 0.02


def head_config(target: Mapping[str, Any], *, aux_layers: Sequence[int], draft_vocab: int, intermediate: int | None) -> Eagle3Config:
    """The head for a target's config.json: its layer's sizes, but for another `intermediate` size where one is given."""
    shape = llama_shape(target)
    return Eagle3Config(
        shape=shape if intermediate is None else replace(shape, intermediate=intermediate),
        target_hidden=shape.hidden,
        vocab=stated_size(target, "vocab_size"),
        draft_vocab=draft_vocab,
        aux_layers=tuple(aux_layers),
        norm_before_residual=False,
        norm_before_fc=False,
        fc_norm=False,
        fc_bias=False,
        norm_output=False,
        attention=AttentionParts(bias=False, out_bias=False, head_norms=False),
        logit_scale=1.0,
        rope={name: value for name, value in target.items() if name.startswith(ROPE_KEYS)},
    )


def layer_scales(conversations: Sequence[Conversation], layers: int) -> Tensor:
    """What brings each auxiliary layer's states to a root mean square of 1 [layers], over the conversations' answers."""
    squares, rows = torch.zeros(layers), 0
    for each in conversations:
        answer = each.aux[each.prompt_tokens - 1 :].float().unflatten(-1, (layers, -1))
        squares += answer.square().mean(-1).sum(0)
        rows += answer.shape[0]
    return (squares / rows).rsqrt()


def new_trainee(config: Eagle3Config, target: Target, vocabulary: DraftVocabulary, scales: Tensor, *, seed: int) -> Trainee:
    """A head whose output is the target's for the draft vocabulary, and whose `fc` passes the last auxiliary layer on."""
    generator = torch.Generator().manual_seed(seed)
    head = Eagle3Head(config)
    hidden, layers = config.shape.hidden, len(config.aux_layers)
    with torch.no_grad():
        for parameter in head.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, SPREAD, generator=generator)
        head.midlayer.self_attn.o_proj.weight.mul_(0.5)
        head.midlayer.mlp.down_proj.weight.mul_(0.5)
        head.fc.weight.mul_(0.5)
        head.fc.weight[:, (layers - 1) * hidden :] += torch.eye(hidden, config.target_hidden)
        head.lm_head.weight.copy_(target.head[vocabulary.ids].float())
        head.d2t.copy_(vocabulary.d2t)
    head = head.to(target.device)
    averaged = deepcopy(head).requires_grad_(requires_grad=False)
    return Trainee(head=head, averaged=averaged, scales=scales)
