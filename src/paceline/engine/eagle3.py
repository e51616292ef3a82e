"""The EAGLE-3 head (Li et al., arXiv 2503.01840): one decoder layer that drafts from the target's low, middle and high hidden states.

At position i it reads the embedding of token i + 1 and a hidden state of token i: the target's, fused from several layers by `fc`, or its
own output where the target has not been there yet. It gives the next hidden state and, over a draft vocabulary, the logits of token i + 2.

    fused   = fc([low, middle, high])                                  [..., hidden]
    x       = [input_layernorm(embedding), hidden_norm(hidden)]        [..., 2 hidden]
    hidden' = hidden + attention(x);  hidden' += mlp(post_attention_layernorm(hidden'))
    logits  = lm_head(norm(hidden'))                                   [..., draft vocab]

Draft id i is the target's id i + d2t[i]. The head attends over whatever its caller says (a cache, a whole text, a text unrolled for
training), so `forward` takes attention as a function.

Variants: the residual may start behind `hidden_norm`; what `fc` reads may be normed, as one vector (`input_norm`) or layer by layer
(`fc_norm`); the next hidden state may be the normed one (`norm_output`); the head's hidden size may be another than the target's, and then
it has embeddings of its own.

Published checkpoints differ in spelling (`head_tensors`) and in how they number the target's layers. Here index k is the residual stream
after k layers, as vLLM and the speculators format mean `eagle_aux_hidden_state_layer_ids` beside the sizes. Within `eagle_config` the key
is SGLang's and SpecForge's and counts the layers' outputs from 0, k − 1. Where nothing is named, all read 2, L // 2 and L − 3. In the
speculators format norm_before_residual is true unless said otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from paceline.engine.checkpoint import open_checkpoint
from paceline.engine.config_sizes import positive_number, stated_size
from paceline.engine.decoder_layer import Attend, Attention, AttentionParts, Mlp, Norm, Projection
from paceline.engine.head_tensors import HeadTensors, attention_parts, layer_config, telling_the_kind
from paceline.engine.llama import LlamaShape, llama_shape
from paceline.engine.rotary import Rotary
from paceline.engine.rows import Answered
from paceline.engine.target import Target
from paceline.errors import BadInputError, is_count, printable
from paceline.servers.draft_kind import EAGLE3
from paceline.servers.eagle_head import default_auxiliary_layers

__all__ = ["Eagle3Config", "Eagle3Head", "LoadedEagle3", "eagle3_config", "load_eagle3"]

AUXILIARY = "eagle_aux_hidden_state_layer_ids"


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagle3Config:
    """What an EAGLE-3 head is made of.

    Attributes:
        shape: of its decoder layer.
        target_hidden: hidden size of the target.
        vocab: the target's vocabulary.
        draft_vocab: tokens that the head can draft.
        aux_layers: layers of the target that it reads, index k after k layers.
        norm_before_residual: whether the residual starts behind `hidden_norm`.
        norm_before_fc: whether what `fc` reads is normed before, as one vector.
        fc_norm: whether it is normed before, layer by layer.
        fc_bias: whether `fc` has a bias.
        norm_output: whether the next hidden state is the normed one.
        attention: which tensors its attention has.
        logit_scale: what the logits are multiplied with.
        rope: the configuration's keys that say how positions are embedded, as in config.json.

    """

    shape: LlamaShape
    target_hidden: int
    vocab: int
    draft_vocab: int
    aux_layers: tuple[int, ...]
    norm_before_residual: bool
    norm_before_fc: bool
    fc_norm: bool
    fc_bias: bool
    norm_output: bool
    attention: AttentionParts
    logit_scale: float
    rope: Mapping[str, Any]


def eagle3_config(config: Mapping[str, Any], *, target_layers: int) -> Eagle3Config:
    """A head's config.json in either layout, for a target of `target_layers` layers.

    Raises:
        BadInputError: it describes no EAGLE-3 head, or one with parts that are not supported here.

    """
    is_speculators = "speculators_model_type" in config
    if is_speculators and config["speculators_model_type"] != "eagle3":
        raise BadInputError(f"the checkpoint is of kind {printable(config['speculators_model_type'])}, not eagle3")
    layer, nested = layer_config(config), config.get("eagle_config") or {}
    try:
        _need_supported(config, layer, nested)
        shape = llama_shape(layer)
        vocab = stated_size(layer, "vocab_size")
        bias = bool(layer.get("attention_bias", False))
        return Eagle3Config(
            shape=shape,
            target_hidden=shape.hidden if config.get("target_hidden_size") is None else stated_size(config, "target_hidden_size"),
            vocab=vocab,
            draft_vocab=vocab if config.get("draft_vocab_size") is None else stated_size(config, "draft_vocab_size"),
            aux_layers=_aux_layers(config, nested) or default_auxiliary_layers(target_layers),
            norm_before_residual=bool(config.get("norm_before_residual", is_speculators)),
            norm_before_fc=bool(nested.get("norm_before_fc", config.get("norm_before_fc", False))),
            fc_norm=bool(config.get("fc_norm", False)),
            fc_bias=bool(config.get("bias", False)),
            norm_output=bool(config.get("norm_output", False)),
            attention=AttentionParts(bias=bias, out_bias=bias, head_norms=False),
            logit_scale=positive_number(layer, "logit_scale", unstated=1.0),
            rope={name: value for name, value in layer.items() if name.startswith(("rope_", "max_position", "num_attention_heads"))},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as fault:
        raise BadInputError(f"the configuration of the head lacks or misstates {printable(str(fault))}; it is no EAGLE-3 head's") from None


def _need_supported(config: Mapping[str, Any], layer: Mapping[str, Any], nested: Mapping[str, Any]) -> None:
    if config.get("parallel_drafting"):
        raise BadInputError("the head's configuration asks for parallel_drafting, which is not supported here")
    if not nested.get("use_aux_hidden_state", True):
        raise BadInputError(
            "the head reads the target's last hidden state only (use_aux_hidden_state is false), which is not supported here"
        )
    if layer.get("num_hidden_layers", 1) != 1:
        raise BadInputError(f"the head has {printable(layer['num_hidden_layers'])} layers; one is supported here")


def _aux_layers(config: Mapping[str, Any], nested: Mapping[str, Any]) -> tuple[int, ...]:
    """The target's layers that the configuration names, by the number of layers done; empty where it names none."""
    own, within = config.get(AUXILIARY) or (), nested.get(AUXILIARY) or ()
    for each in (*own, *within):
        if not is_count(each, least=-1):
            raise BadInputError(f"{AUXILIARY} has {printable(each)}, which is no layer's number; give the head's own config.json")
    return tuple(own) or tuple(each + 1 for each in within)


class _MidLayer(nn.Module):
    """The decoder layer, which reads embedding and hidden state beside each other."""

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        shape = config.shape
        self.self_attn = Attention(shape, inputs=2 * shape.hidden, parts=config.attention)
        self.mlp = Mlp(shape)
        self.input_layernorm = Norm(shape.hidden, shape.norm_eps)
        self.hidden_norm = Norm(shape.hidden, shape.norm_eps)
        self.post_attention_layernorm = Norm(shape.hidden, shape.norm_eps)
        self._norm_before_residual = config.norm_before_residual

    def forward(self, embeddings: Tensor, hidden: Tensor, turn: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        normed = self.hidden_norm(hidden)
        residual = normed if self._norm_before_residual else hidden
        hidden = residual + self.self_attn(torch.cat((self.input_layernorm(embeddings), normed), dim=-1), turn, attend)
        made: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return made


class Eagle3Head(nn.Module):
    """The head's weights, under the names that SGLang and vLLM load (`state_dict` is the published layout but for embeddings and t2d)."""

    d2t: Tensor  # [draft_vocab] int64, what to add to a draft id to get the target's

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        shape, inputs = config.shape, config.target_hidden * len(config.aux_layers)
        self.config = config
        self.input_norm = Norm(inputs, shape.norm_eps) if config.norm_before_fc else None
        self.fc_norm = nn.ModuleList(Norm(config.target_hidden, shape.norm_eps) for _ in config.aux_layers) if config.fc_norm else None
        self.fc = Projection(inputs, shape.hidden, bias=config.fc_bias)
        self.midlayer = _MidLayer(config)
        self.norm = Norm(shape.hidden, shape.norm_eps)
        self.lm_head = Projection(shape.hidden, config.draft_vocab, bias=False)
        self.register_buffer("d2t", torch.zeros(config.draft_vocab, dtype=torch.int64))
        rope = {"num_attention_heads": shape.heads, **config.rope}
        self._rotary = Rotary(rope, head_dim=shape.head_dim, device=torch.device("cpu"))

    def fuse(self, aux: Tensor) -> Tensor:
        """The target's hidden states at `aux_layers`, beside each other [..., layers · target hidden], as one [..., hidden]."""
        if self.input_norm is not None:
            aux = self.input_norm(aux)
        if self.fc_norm is not None:
            parts = aux.chunk(len(self.fc_norm), dim=-1)
            aux = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], dim=-1)
        fused: Tensor = self.fc(aux)
        return fused

    def forward(self, embeddings: Tensor, hidden: Tensor, *, positions: Tensor, attend: Attend) -> Tensor:
        """The next hidden states [..., tokens, hidden], which are also what the head reads where the target's are not known.

        `embeddings` and `hidden` are [..., tokens, hidden], `positions` [..., tokens] or [tokens].
        """
        made: Tensor = self.midlayer(embeddings, hidden, self.turn(positions, hidden), attend)
        output: Tensor = self.norm(made) if self.config.norm_output else made
        return output

    def turn(self, positions: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [..., 1, tokens, head_dim] that turn queries and keys at `positions`, of `like`'s dtype and on its device."""
        cos, sin = self._rotary.at(positions.to("cpu"), like.dtype)
        return cos.to(like.device).unsqueeze(-3), sin.to(like.device).unsqueeze(-3)

    def draft_logits(self, hidden: Tensor) -> Tensor:
        """Logits [..., draft_vocab] of what `forward` gave."""
        logits: Tensor = self.lm_head(hidden if self.config.norm_output else self.norm(hidden))
        return logits if self.config.logit_scale == 1 else logits * self.config.logit_scale

    def target_ids(self, draft_ids: Tensor) -> Tensor:
        """The target's ids of draft ids."""
        return draft_ids + self.d2t[draft_ids]


@dataclass(frozen=True, slots=True, eq=False)
class LoadedEagle3:
    """A head with the embeddings it reads: its own where the checkpoint has them, else the target's. Drafts as a `FeatureHead`."""

    head: Eagle3Head
    embedding: Tensor  # [vocab, hidden]

    @property
    def hidden_layers(self) -> tuple[int, ...]:
        """Which of the target's layers it reads."""
        return self.head.config.aux_layers

    @property
    def layers(self) -> int:
        """Its own decoder layers."""
        return 1

    @property
    def shape(self) -> LlamaShape:
        """Sizes of its decoder layer."""
        return self.head.config.shape

    @property
    def dtype(self) -> torch.dtype:
        """Of its weights."""
        return self.embedding.dtype

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return self.embedding.device

    @property
    def vocab(self) -> int:
        """The target's vocabulary."""
        return self.head.config.vocab

    def read(self, answered: Answered) -> Tensor:
        """The target's hidden states, fused [tokens, hidden]."""
        return self.head.fuse(torch.cat(answered.hidden, dim=-1))

    def embed(self, tokens: Tensor) -> Tensor:
        """Embeddings [tokens, hidden]."""
        return self.embedding[tokens]

    def run(self, embeddings: Tensor, hidden: Tensor, *, positions: Tensor, attends: Sequence[Attend]) -> Tensor:
        """The next hidden states [tokens, hidden]."""
        [attend] = attends
        made: Tensor = self.head(embeddings, hidden, positions=positions, attend=attend)
        return made

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits over draft ids [tokens, draft vocab]."""
        return self.head.draft_logits(hidden)

    def target_ids(self, draft_ids: Tensor) -> Tensor:
        """The target's ids of draft ids."""
        return self.head.target_ids(draft_ids)


def load_eagle3(folder: Path, target: Target) -> LoadedEagle3:
    """The head in `folder`, in the target's dtype and on its device.

    Raises:
        BadInputError: a tensor is missing, has another shape or no place in the head, the head is made for another target or is another
            kind of draft, or d2t leads outside the target's vocabulary.

    """
    checkpoint = open_checkpoint(folder)
    with telling_the_kind(checkpoint, EAGLE3):
        config = eagle3_config(checkpoint.config, target_layers=target.layers)
        tensors = HeadTensors(checkpoint, dtype=target.dtype, device=target.device)
        config = replace(
            config,
            fc_bias=config.fc_bias or tensors.has("fc.bias"),
            attention=attention_parts(tensors, layer_config(checkpoint.config)),
        )
        _need_match(config, target, folder)
        loaded = _loaded(tensors, config, target)
        tensors.need_none_left()
    return loaded


def _loaded(tensors: HeadTensors, config: Eagle3Config, target: Target) -> LoadedEagle3:
    with torch.device("meta"):
        head = Eagle3Head(config)
    shapes = {name: tensor.shape for name, tensor in head.state_dict().items()}
    state = {
        name: tensors.read(name.replace("midlayer.", "layers.0."), shape=shape)
        for name, shape in shapes.items()
        if name not in ("d2t", "lm_head.weight")
    }
    embedding = _embedding(tensors, config, target)
    state["d2t"] = _d2t(tensors, config, target)
    # Without an output layer of its own the head has the target's, in which row i is token i.
    is_target_s = not tensors.has("lm_head.weight") and not state["d2t"].any() and shapes["lm_head.weight"] == target.head.shape
    state["lm_head.weight"] = target.head if is_target_s else tensors.read("lm_head.weight", shape=shapes["lm_head.weight"])
    head.load_state_dict(state, assign=True)
    return LoadedEagle3(head.eval().requires_grad_(requires_grad=False), embedding)


def _embedding(tensors: HeadTensors, config: Eagle3Config, target: Target) -> Tensor:
    """The embeddings [vocab, hidden] that the head reads: its own, or the target's where these are as wide."""
    table = (config.vocab, config.shape.hidden)
    own = tensors.read_optional("embed_tokens.weight", shape=table)
    if own is None and target.embedding.shape != table:
        raise BadInputError(
            f"{tensors} lacks the tensor embed_tokens.weight, and the target's embeddings are {target.embedding.shape[1]} wide, "
            f"not {config.shape.hidden}"
        )
    return target.embedding if own is None else own


def _d2t(tensors: HeadTensors, config: Eagle3Config, target: Target) -> Tensor:
    """What to add to draft ids [draft_vocab]: nothing where the draft vocabulary is the target's and the checkpoint says nothing else."""
    if config.draft_vocab == config.vocab and not tensors.has("d2t"):
        return torch.zeros(config.draft_vocab, dtype=torch.int64, device=target.device)
    d2t = tensors.read("d2t", shape=(config.draft_vocab,)).to(torch.int64)
    ids = torch.arange(config.draft_vocab, device=d2t.device) + d2t
    if ids.min() < 0 or ids.max() >= config.vocab or ids.unique().shape[0] != config.draft_vocab:
        raise BadInputError(f"{tensors}: d2t does not lead to {config.draft_vocab} tokens of the vocabulary of {config.vocab}")
    return d2t


def _need_match(config: Eagle3Config, target: Target, folder: Path) -> None:
    ours = {"vocabulary": config.vocab, "target's hidden size": config.target_hidden}
    theirs = {"vocabulary": target.vocab, "target's hidden size": target.hidden}
    for name, value in ours.items():
        if value != theirs[name]:
            raise BadInputError(f"{printable(str(folder))} is made for another target: {name} {value}, here {theirs[name]}")
    if not all(0 <= each <= target.layers for each in config.aux_layers):
        raise BadInputError(f"{printable(str(folder))} reads the layers {list(config.aux_layers)} of a target with {target.layers}")
