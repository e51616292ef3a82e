"""A draft's shape as its checkpoint states it, tensor by tensor, instead of as its method implies.

Weights of 16 bits and more are served in 16 bits. Everything else (8 bits and less, packed integers, index tables) keeps its bytes. A
head's own embedding is memory too, though a server may share the target's; no pass reads more than a row of it per token, so it counts
among what is not multiplied.
"""

from paceline.checkpoint import Checkpoint
from paceline.errors import BadInputError, printable
from paceline.hardware import DraftShape, ModelShape
from paceline.speculation.method import Method

__all__ = ["stored_draft"]

WHOLE_FLOATS = ("F64", "F32", "F16", "BF16")
EMBEDDING, FUSING = "embed_tokens.weight", "fc.weight"


def stored_draft(checkpoint: Checkpoint, *, method: Method, model: ModelShape | None) -> DraftShape:
    """What the folder's draft adds to the target's memory.

    `model` is the shape of a draft model, whose KV cache it states; a head's follows from its config.json.

    Raises:
        BadInputError: the folder has no weights, or a head's config.json lacks its attention's sizes.

    """
    if checkpoint.tensors is None:
        raise BadInputError(f"{printable(checkpoint.name)} has no weights to read the headers of; give the folder with its safetensors")
    embedding = checkpoint.tensor(EMBEDDING) if model is None else None
    parameters, kept = 0, 0
    for tensor in checkpoint.tensors.values():
        whole = tensor.dtype in WHOLE_FLOATS
        parameters += tensor.elements if whole and tensor is not embedding else 0
        kept += 0 if whole else tensor.stored_bytes
    kept += 0 if embedding is None or embedding.dtype not in WHOLE_FLOATS else 2 * embedding.elements
    fusing = checkpoint.tensor(FUSING) if method is Method.EAGLE3 else None
    return DraftShape(
        name=checkpoint.name,
        parameters=parameters,
        integer_bytes=kept,
        kv_elements_per_token=_kv_elements(checkpoint) if model is None else model.kv_elements_per_token,
        once_parameters=0 if fusing is None or fusing.dtype not in WHOLE_FLOATS else fusing.elements,
    )


def _kv_elements(head: Checkpoint) -> int:
    """Numbers a head keeps per token: layers · 2 · KV heads · head dimension."""
    layers, heads, hidden = head.size("num_hidden_layers") or 1, head.size("num_attention_heads"), head.size("hidden_size")
    kv_heads = head.size("num_key_value_heads") or heads
    if heads is None or hidden is None or kv_heads is None:
        raise BadInputError(f"the config.json of {printable(head.name)} lacks num_attention_heads or hidden_size")
    return layers * 2 * kv_heads * (head.size("head_dim") or hidden // heads)
