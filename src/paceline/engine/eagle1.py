"""The EAGLE head (Li et al., arXiv 2401.15077), with which EAGLE-2 drafts too: one decoder layer that predicts the target's next feature.

At position i it reads the target's feature of token i (the last layer's output behind the final norm, which the output head reads) and the
embedding of token i + 1, and gives the feature of token i + 1; the target's own output head turns it into logits.

    x        = fc([embedding, feature])                 [..., hidden]
    x       += attention(x);  x += mlp(post_attention_layernorm(x))

Published checkpoints have `layers.0.` without an input norm, `fc` with a bias or without, and sometimes their own embeddings. A head of
another architecture (with a draft vocabulary, or norms of its own) is refused.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from paceline.engine.checkpoint import open_checkpoint
from paceline.engine.decoder_layer import Attend, Attention, Mlp, Norm
from paceline.engine.linear import linear
from paceline.engine.llama import LlamaShape, llama_shape
from paceline.engine.rotary import Rotary
from paceline.engine.rows import Answered
from paceline.engine.target import Target
from paceline.errors import BadInputError, printable

__all__ = ["LoadedEagle1"]


class _Layer(nn.Module):
    """A decoder layer without an input norm."""

    def __init__(self, shape: LlamaShape, *, bias: bool) -> None:
        super().__init__()
        self.self_attn = Attention(shape, inputs=shape.hidden, bias=bias)
        self.mlp = Mlp(shape)
        self.post_attention_layernorm = Norm(shape.hidden, shape.norm_eps)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        x = x + self.self_attn(x, turn, attend)
        made: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return made


class LoadedEagle1:
    """An EAGLE head with its target's output head. Drafts as a `FeatureHead`."""

    hidden_layers: tuple[int, ...] = ()

    def __init__(self, folder: Path, target: Target) -> None:
        """Read the weights, in the target's dtype and onto its device.

        Raises:
            BadInputError: a tensor is missing or has another shape, or the head is made for another target.

        """
        checkpoint = open_checkpoint(folder)
        config = checkpoint.config
        try:
            self.shape = llama_shape(config)
            layers, self.vocab = int(config.get("num_hidden_layers", 1)), int(config["vocab_size"])
        except (KeyError, TypeError, ValueError) as fault:
            raise BadInputError(f"{printable(str(folder))}: the configuration lacks or misstates {printable(str(fault))}") from None
        self.dtype, self.device, self._target = target.dtype, target.device, target
        if layers != 1 or checkpoint.find("d2t", "midlayer.hidden_norm.weight", "layers.0.hidden_norm.weight") is not None:
            raise BadInputError(f"{printable(str(folder))} is no EAGLE head of one layer; for an EAGLE-3 head say --method eagle3")
        if (self.shape.hidden, self.vocab) != (target.hidden, target.vocab):
            raise BadInputError(
                f"{printable(str(folder))} is made for a target with hidden size {self.shape.hidden} and vocabulary {self.vocab}, "
                f"here {target.hidden} and {target.vocab}"
            )
        hidden, where = self.shape.hidden, {"dtype": target.dtype, "device": target.device}
        self._fc = checkpoint.read("fc.weight", "model.fc.weight", shape=(hidden, 2 * hidden), **where)
        self._fc_bias = checkpoint.read_optional("fc.bias", "model.fc.bias", shape=(hidden,), **where)
        own = checkpoint.read_optional("embed_tokens.weight", "model.embed_tokens.weight", shape=(self.vocab, hidden), **where)
        self._embedding = target.embedding if own is None else own
        with torch.device("meta"):
            layer = _Layer(self.shape, bias=bool(config.get("attention_bias", False)))
        state = {
            name: checkpoint.read(f"layers.0.{name}", f"model.layers.0.{name}", shape=tensor.shape, **where)
            for name, tensor in layer.state_dict().items()
        }
        layer.load_state_dict(state, assign=True)
        self._layer = layer.eval().requires_grad_(requires_grad=False)
        self._rotary = Rotary(config, head_dim=self.shape.head_dim, device=target.device)

    def read(self, answered: Answered) -> Tensor:
        """The target's features [tokens, hidden]."""
        return answered.features

    def embed(self, tokens: Tensor) -> Tensor:
        """Embeddings [tokens, hidden]."""
        return self._embedding[tokens]

    def run(self, embeddings: Tensor, hidden: Tensor, *, positions: Tensor, attend: Attend) -> Tensor:
        """The next features [tokens, hidden]."""
        cos, sin = self._rotary.at(positions, hidden.dtype)
        x = linear(torch.cat((embeddings, hidden), dim=-1), self._fc, self._fc_bias)
        made: Tensor = self._layer(x, (cos, sin), attend)
        return made

    def logits(self, hidden: Tensor) -> Tensor:
        """The target's logits of features [tokens, vocab]."""
        return self._target.unembed(hidden)

    def target_ids(self, draft_ids: Tensor) -> Tensor:
        """Drafts are in the target's vocabulary."""
        return draft_ids
