"""Any causal language model as the target, or as a draft: rows of tokens in, logits and hidden states out, a cache that rolls back exactly.

The Llama family runs on a lean forward of our own (`llama`), everything else through transformers' AutoModelForCausalLM. Weights come from
safetensors, and a model's own code is never run.

    target = load_target(folder, dtype=torch.float32, device=torch.device("cpu"))
    cache = target.new_cache()
    [prefill] = target.forward([Row(prompt, cache, None, logits=1)], hidden_layers=(2, 15, 27))

Layers are numbered as vLLM numbers them: index k is the residual stream after k decoder layers, 0 the embeddings. `features` are the last
layer's output behind the final norm: `unembed(features)` are the logits.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from transformers import AutoModelForCausalLM, DynamicCache

from paceline.engine.checkpoint import Checkpoint, open_checkpoint
from paceline.engine.kv_cache import Cache
from paceline.engine.llama import LlamaTarget, is_llama_like
from paceline.engine.rows import Answered, Row, chain_mask, need_numbers, wide
from paceline.engine.sharding import shard
from paceline.engine.shared_cache import CacheBlock
from paceline.errors import BadInputError, printable
from paceline.files.modeldir import need_readable_folder

__all__ = ["LibraryTarget", "Target", "load_target"]


class Target(Protocol):
    """A causal language model."""

    layers: int
    vocab: int
    hidden: int
    dtype: torch.dtype
    device: torch.device
    embedding: Tensor  # [vocab, hidden]
    head: Tensor  # [vocab, hidden]

    def new_cache(self) -> Any:
        """A cache that remembers nothing yet; only this target's own fit its rows."""

    def new_block(self, *, slots: int, room_tokens: int) -> CacheBlock | None:
        """Room for the caches of `slots` sequences of up to `room_tokens` tokens, which then attend together; None where they cannot."""

    def unembed(self, features: Tensor) -> Tensor:
        """Logits [..., vocab] of features [..., hidden], float32 or wider."""

    def forward(self, rows: Sequence[Row[Any]], *, hidden_layers: Sequence[int]) -> list[Answered]:
        """Run the rows; `hidden_layers` are those whose residual stream is wanted. No gradients."""


def load_target(folder: Path, *, dtype: torch.dtype, device: torch.device) -> Target:
    """The model in `folder`.

    Raises:
        BadInputError: no config, no safetensors, a tensor is missing, or transformers does not know the model.

    """
    checkpoint = open_checkpoint(folder)
    if is_llama_like(checkpoint.config):
        return LlamaTarget(checkpoint, dtype=dtype, device=device, mesh=None)
    return LibraryTarget(checkpoint, dtype=dtype, device=device, mesh=None)


class LibraryCache:
    """transformers' cache of one sequence."""

    def __init__(self) -> None:
        self.held = DynamicCache()

    @property
    def length(self) -> int:
        """Tokens remembered."""
        return int(self.held.get_seq_length())

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens."""
        if length < self.length:
            self.held.crop(length - self.length)

    def keep(self, start: int, offsets: Sequence[int]) -> None:
        """Of the tokens from `start` on keep those at `offsets` (ascending), moved together; forget the others."""
        if list(offsets) == list(range(len(offsets))):
            self.rollback(start + len(offsets))
            return
        kept = [*range(start), *(start + each for each in offsets)]
        for layer in self.held.layers:
            places = torch.tensor(kept, device=layer.keys.device)
            layer.keys, layer.values = layer.keys[:, :, places], layer.values[:, :, places]


class LibraryTarget:
    """A causal language model as transformers runs it, one row at a time."""

    def __init__(self, checkpoint: Checkpoint, *, dtype: torch.dtype, device: torch.device, mesh: DeviceMesh | None) -> None:
        """Load the model into host memory, and from there to `device`: of the layers only this process's part where `mesh` shares them.

        Raises:
            BadInputError: transformers cannot load it.

        """
        need_readable_folder(checkpoint.folder)
        try:
            loaded, report = AutoModelForCausalLM.from_pretrained(
                checkpoint.folder,
                dtype=dtype,
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                attn_implementation="sdpa",
                output_loading_info=True,
            )
        except Exception as fault:  # the library raises whatever a configuration makes it trip over
            raise BadInputError(f"transformers cannot load {printable(str(checkpoint.folder))}: {printable(str(fault))}") from None
        if missing := sorted(report["missing_keys"]):
            raise BadInputError(f"{printable(str(checkpoint.folder))} lacks the tensor {missing[0]}; it is incomplete")
        if mesh is not None:
            for layer in loaded.get_decoder().layers:
                shard(layer.to(device), mesh)
        self._model = loaded.to(device).eval()
        config = self._model.config.get_text_config()
        self.layers, self.vocab, self.hidden = int(config.num_hidden_layers), int(config.vocab_size), int(config.hidden_size)
        self.dtype, self.device = dtype, device
        self.embedding: Tensor = self._model.get_input_embeddings().weight.detach()
        self.head: Tensor = self._model.get_output_embeddings().weight.detach()

    def new_cache(self) -> LibraryCache:
        """A cache that remembers nothing yet."""
        return LibraryCache()

    def new_block(self, *, slots: int, room_tokens: int) -> None:
        """None: the library's caches stand alone."""

    def unembed(self, features: Tensor) -> Tensor:
        """Logits [..., vocab] of features [..., hidden], float32 or wider."""
        with torch.no_grad():
            logits: Tensor = self._model.get_output_embeddings()(features)
        return wide(logits)

    def forward(self, rows: Sequence[Row[LibraryCache]], *, hidden_layers: Sequence[int]) -> list[Answered]:
        """Run the rows one after the other; `hidden_layers` are those whose residual stream is wanted."""
        return [self._run(row, hidden_layers) for row in rows]

    def _run(self, row: Row[LibraryCache], hidden_layers: Sequence[int]) -> Answered:
        tokens, length = row.tokens.shape[0], row.cache.length
        depths = torch.arange(tokens, device=self.device) if row.layout is None else row.layout.depths
        mask = chain_mask(tokens, length, row.layout, device=self.device)
        streams: dict[int, Tensor] = {}
        hooks = self._watch(streams, hidden_layers)
        try:
            with torch.no_grad():
                answer = self._model(
                    input_ids=row.tokens[None],
                    attention_mask=None if mask is None else mask[None, None],
                    position_ids=(depths + length)[None],
                    cache=row.cache.held,
                    use_cache=True,
                    output_hidden_states=True,
                    logits_to_keep=max(row.logits, 1),
                )
        finally:
            for hook in hooks:
                hook.remove()
        logits = wide(answer.logits[0])
        need_numbers(logits)
        return Answered(logits[logits.shape[0] - row.logits :], answer.hidden_states[-1][0], tuple(streams[each] for each in hidden_layers))

    def _watch(self, streams: dict[int, Tensor], hidden_layers: Sequence[int]) -> list[Any]:
        """Hooks that note the residual stream: transformers' own list has the final norm in its last entry."""

        def after(number: int) -> Any:
            def note(_module: Any, _given: Any, made: Any) -> None:
                streams[number] = (made[0] if isinstance(made, tuple) else made)[0]

            return note

        decoder = self._model.get_decoder()
        hooks = [decoder.layers[number - 1].register_forward_hook(after(number)) for number in hidden_layers if number > 0]
        if 0 in hidden_layers:
            hooks.append(self._model.get_input_embeddings().register_forward_hook(after(0)))
        return hooks


_: type[Cache] = LibraryCache
