"""The EAGLE head (Li et al., arXiv 2401.15077), with which EAGLE-2 drafts too: decoder layers that predict the target's next feature.

At position i it reads the target's feature of token i (the last layer's output behind the final norm, which the output head reads) and the
embedding of token i + 1, and gives the feature of token i + 1; the target's output head turns it into logits.

    x        = fc([embedding, feature])                             [..., hidden]
    x       += attention(x);  x += mlp(post_attention_layernorm(x))

Mostly there is one layer, and it has no input norm; those behind it read input_layernorm(x). Published checkpoints have `fc` with a bias
or without, and sometimes embeddings or an output head of their own.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from paceline.engine.checkpoint import open_checkpoint
from paceline.engine.config_sizes import stated_size
from paceline.engine.decoder_layer import Attend, Attention, AttentionParts, Mlp, Norm
from paceline.engine.head_tensors import HeadTensors, attention_parts, layer_config, telling_the_kind
from paceline.engine.linear import linear
from paceline.engine.llama import LlamaShape, llama_shape
from paceline.engine.rotary import Rotary
from paceline.engine.rows import Answered, wide
from paceline.engine.target import Target
from paceline.errors import BadInputError, printable
from paceline.servers.draft_kind import EAGLE

__all__ = ["LoadedEagle1"]


class _Layer(nn.Module):
    """A decoder layer, the first one without an input norm."""

    def __init__(self, shape: LlamaShape, parts: AttentionParts, *, first: bool) -> None:
        super().__init__()
        self.input_layernorm = None if first else Norm(shape.hidden, shape.norm_eps)
        self.self_attn = Attention(shape, inputs=shape.hidden, parts=parts)
        self.mlp = Mlp(shape)
        self.post_attention_layernorm = Norm(shape.hidden, shape.norm_eps)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        x = x + self.self_attn(x if self.input_layernorm is None else self.input_layernorm(x), turn, attend)
        made: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return made


class LoadedEagle1:
    """An EAGLE head with the output head that it has or is lent. Drafts as a `FeatureHead`."""

    hidden_layers: tuple[int, ...] = ()

    def __init__(self, folder: Path, target: Target) -> None:
        """Read the weights, in the target's dtype and onto its device.

        Raises:
            BadInputError: a tensor is missing, has another shape or no place in the head, or the head is made for another target or is
                another kind of draft.

        """
        self.dtype, self.device = target.dtype, target.device
        checkpoint = open_checkpoint(folder)
        with telling_the_kind(checkpoint, EAGLE):
            config = layer_config(checkpoint.config)
            try:
                self.shape, self.vocab = llama_shape(config), stated_size(config, "vocab_size")
                self.layers = 1 if config.get("num_hidden_layers") is None else stated_size(config, "num_hidden_layers")
                self._rotary = Rotary(config, head_dim=self.shape.head_dim, device=target.device)
            except (KeyError, TypeError, ValueError) as fault:
                raise BadInputError(f"{printable(str(folder))}: the configuration lacks or misstates {printable(str(fault))}") from None
            if (self.shape.hidden, self.vocab) != (target.hidden, target.vocab):
                raise BadInputError(
                    f"{printable(str(folder))} is made for a target with hidden size {self.shape.hidden} and vocabulary {self.vocab}, "
                    f"here {target.hidden} and {target.vocab}"
                )
            tensors = HeadTensors(checkpoint, dtype=target.dtype, device=target.device)
            self._read(tensors, target, attention_parts(tensors, config), fc_bias=bool(config.get("bias") or config.get("fusion_bias")))
            tensors.need_none_left()

    def _read(self, tensors: HeadTensors, target: Target, parts: AttentionParts, *, fc_bias: bool) -> None:
        hidden, table = self.shape.hidden, (self.vocab, self.shape.hidden)
        self._fc = tensors.read("fc.weight", shape=(hidden, 2 * hidden))
        self._fc_bias = tensors.read("fc.bias", shape=(hidden,)) if fc_bias or tensors.has("fc.bias") else None
        embedding, output_head = (tensors.read_optional(f"{each}.weight", shape=table) for each in ("embed_tokens", "lm_head"))
        self._embedding = target.embedding if embedding is None else embedding
        self._target, self._output_head = target, output_head
        with torch.device("meta"):
            layers = nn.ModuleList(_Layer(self.shape, parts, first=number == 0) for number in range(self.layers))
        state = {name: tensors.read(f"layers.{name}", shape=tensor.shape) for name, tensor in layers.state_dict().items()}
        layers.load_state_dict(state, assign=True)
        self._layers = layers.eval().requires_grad_(requires_grad=False)

    def read(self, answered: Answered) -> Tensor:
        """The target's features [tokens, hidden]."""
        return answered.features

    def embed(self, tokens: Tensor) -> Tensor:
        """Embeddings [tokens, hidden]."""
        return self._embedding[tokens]

    def run(self, embeddings: Tensor, hidden: Tensor, *, positions: Tensor, attends: Sequence[Attend]) -> Tensor:
        """The next features [tokens, hidden]."""
        turn = self._rotary.at(positions, hidden.dtype)
        x = linear(torch.cat((embeddings, hidden), dim=-1), self._fc, self._fc_bias)
        for layer, attend in zip(self._layers, attends, strict=True):
            x = layer(x, turn, attend)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """The logits of features [tokens, vocab]."""
        return self._target.unembed(hidden) if self._output_head is None else wide(linear(hidden, self._output_head))

    def target_ids(self, draft_ids: Tensor) -> Tensor:
        """Drafts are in the target's vocabulary."""
        return draft_ids
