"""What a draft adds to memory, and how many requests that costs.

Shapes of drafts (h hidden, I intermediate, q = heads · head dimension, kv = KV heads · head dimension, V vocabulary, Vd draft vocabulary):

    EAGLE, EAGLE-2  2h·h + h·q + 2h·kv + q·h + 3h·I + h                            embedding and LM head are the target's
    EAGLE-3         3h·h + 2h·q + 2·(2h·kv) + q·h + 3h·I + 4h  + Vd·h (LM head)    + d2t Vd · 8 bytes + t2d V · 1 byte
    MTP             one decoder layer of the target + 2h·h + 3h                    embedding and LM head are the target's
    draft model     the whole model
    n-gram, suffix  nothing on the GPU

Sources: SpecForge configurations @a6b6b02 and the checkpoints named in the tests; the MTP layer follows DeepSeek-V3's module (projection of
the normalised hidden state and embedding, then one layer), put on a dense layer, which is an assumption.
"""

from dataclasses import dataclass

from paceline.data.tables import table
from paceline.errors import BadInputError, printable
from paceline.forecast.kernels import coefficient
from paceline.forecast.roofline import Placement, fixed_dtype, kv_bytes_per_token, placed
from paceline.forecast.what_fits import what_fits
from paceline.hardware import DraftShape, Dtype, ModelShape
from paceline.speculation.method import Method, Speculation

__all__ = [
    "DEFAULT_DRAFT_VOCAB",
    "MemoryAnswer",
    "block_drafter",
    "draft_model",
    "draft_shape",
    "eagle3_head",
    "eagle_head",
    "head_intermediate",
    "memory",
    "mtp_layer",
]

AUXILIARY_LAYERS = 3
D2T_BYTES, T2D_BYTES = 8, 1
LATENT_HEAD_KV = 8 * 128
DEFAULT_DRAFT_VOCAB = 32_000


def head_intermediate(target: ModelShape) -> int:
    """Intermediate size of an EAGLE head's MLP: the target's where that is dense; heads of mixtures of experts have their own.

    Source: SpecForge configurations @a6b6b02 (data/models.toml, eagle3_intermediate), else a stated multiple of the hidden size.
    """
    published = {row["name"]: row["eagle3_intermediate"] for row in table("models")["model"] if "eagle3_intermediate" in row}
    if target.name in published:
        return int(published[target.name])
    return target.intermediate if target.experts is None else int(coefficient("moe_head_intermediate_ratio")) * target.hidden


def _head_attention(target: ModelShape) -> tuple[int, int]:
    """Query and KV width of an EAGLE head: the target's; ordinary heads of 128 with 8 KV heads for a target with latent attention."""
    if target.latent is None:
        return target.heads * target.head_dim, target.kv_heads * target.head_dim
    return target.hidden, LATENT_HEAD_KV


def eagle_head(target: ModelShape) -> DraftShape:
    """The one-layer head of EAGLE and EAGLE-2 for `target`: it fuses the last feature with the next token's embedding."""
    h, (q, kv) = target.hidden, _head_attention(target)
    weights = 2 * h * h + h * q + 2 * h * kv + q * h + 3 * h * head_intermediate(target) + h
    return DraftShape(name=f"EAGLE head of {target.name}", parameters=weights, integer_bytes=0, kv_elements_per_token=2 * kv)


def eagle3_head(target: ModelShape, *, draft_vocab: int, intermediate: int) -> DraftShape:
    """The one-layer head of EAGLE-3 for `target`: three fused features, a vocabulary of its own and the two tables that translate it.

    `intermediate` is the head's own (`head_intermediate`).

    Raises:
        BadInputError: the draft vocabulary is larger than the target's or below 1, or intermediate is below 1.

    """
    if not 1 <= draft_vocab <= target.vocab:
        raise BadInputError(f"draft vocabulary {draft_vocab!r} is not between 1 and the target's {target.vocab}")
    if intermediate < 1:
        raise BadInputError(f"intermediate size {intermediate!r} of the head is below 1")
    h, (q, kv) = target.hidden, _head_attention(target)
    core = AUXILIARY_LAYERS * h * h + 2 * h * q + 2 * (2 * h * kv) + q * h + 3 * h * intermediate + 4 * h
    return DraftShape(
        name=f"EAGLE-3 head of {target.name}",
        parameters=core + draft_vocab * h,
        integer_bytes=draft_vocab * D2T_BYTES + target.vocab * T2D_BYTES,
        kv_elements_per_token=2 * kv,
        once_parameters=AUXILIARY_LAYERS * h * h,
    )


def mtp_layer(target: ModelShape) -> DraftShape:
    """One multi-token-prediction layer for `target`, reused for every drafted token: a decoder layer and the projection in front of it."""
    projection = 2 * target.hidden * target.hidden + 3 * target.hidden
    return DraftShape(
        name=f"MTP layer of {target.name}",
        parameters=target.layer_parameters + projection,
        integer_bytes=0,
        kv_elements_per_token=2 * target.kv_heads * target.head_dim if target.latent is None else target.latent.cached,
        routed=target.routed,
        fixed_parameters=target.fixed_layer_parameters + projection,
    )


def block_drafter(target: ModelShape) -> DraftShape:
    """A parallel drafter for `target` (DFlash and its kind): a few decoder layers that draft all K tokens in one pass."""
    layers = int(coefficient("block_draft_layers"))
    return DraftShape(
        name=f"block drafter of {target.name}",
        parameters=layers * target.dense_layer_parameters,
        integer_bytes=0,
        kv_elements_per_token=layers * 2 * target.kv_heads * target.head_dim,
        whole_block=True,
    )


def draft_model(model: ModelShape) -> DraftShape:
    """A whole model as draft: all its weights, embeddings included, and its own KV cache."""
    return DraftShape(
        name=model.name,
        parameters=model.parameters,
        integer_bytes=0,
        kv_elements_per_token=model.kv_elements_per_token,
        routed=model.routed,
        fixed_parameters=model.parameters - (model.decoder_parameters - model.fixed_decoder_parameters),
    )


def draft_shape(method: Method, *, target: ModelShape, draft: ModelShape | None, draft_vocab: int) -> DraftShape | None:
    """What `method` adds for `target`; None for a lookup (n-gram, suffix), which adds nothing on the GPU.

    `draft` is the model that drafts, where the method is a draft model; `draft_vocab` the head's, where it is EAGLE-3.

    Raises:
        BadInputError: the draft model is missing, or the draft vocabulary is larger than the target's.

    """
    match method:
        case Method.NGRAM | Method.SUFFIX:
            return None
        case Method.EAGLE | Method.EAGLE2:
            return eagle_head(target)
        case Method.EAGLE3:
            return eagle3_head(target, draft_vocab=draft_vocab, intermediate=head_intermediate(target))
        case Method.MTP:
            return mtp_layer(target)
        case _:  # a draft model
            return draft_model(_needed(draft))


def _needed(draft: ModelShape | None) -> ModelShape:
    if draft is None:
        raise BadInputError("method draft-model needs a draft: name it with --draft, a model of the target's family and vocabulary")
    return draft


@dataclass(frozen=True, slots=True)
class MemoryAnswer:
    """What a draft costs in memory, per GPU, and in requests, per replica.

    Attributes:
        target_weight_bytes: the target's weights on each GPU.
        draft_weight_bytes: the draft's weights and index tables on each GPU.
        target_kv_bytes_per_token: on each GPU.
        draft_kv_bytes_per_token: on each GPU.
        plain_pool_bytes: KV pool on each GPU without the draft.
        speculative_pool_bytes: KV pool on each GPU with it.
        plain_kv_tokens: tokens of context that fit without it.
        speculative_kv_tokens: tokens of context that fit with it.
        lookahead_tokens: KV slots each request holds for drafts not yet verified.
        plain_requests: requests at the given context that fit without it.
        speculative_requests: requests that fit with it.
        usable_bytes: what the engine may use on each GPU.
        above_bytes: what is left on each GPU above that.

    """

    target_weight_bytes: float
    draft_weight_bytes: float
    target_kv_bytes_per_token: float
    draft_kv_bytes_per_token: float
    plain_pool_bytes: float
    speculative_pool_bytes: float
    plain_kv_tokens: int
    speculative_kv_tokens: int
    lookahead_tokens: int
    plain_requests: int
    speculative_requests: int
    usable_bytes: float
    above_bytes: float

    @property
    def requests_lost(self) -> int:
        """Requests that no longer fit because of the draft."""
        return self.plain_requests - self.speculative_requests


def memory(
    *,
    target: ModelShape,
    draft: DraftShape | None,
    speculation: Speculation,
    where: Placement,
    context_tokens: int,
    utilisation: float,
) -> MemoryAnswer:
    """Whether target and draft fit, and how many requests of `context_tokens` fit without and with the draft.

    `utilisation` is the share of memory the engine may use, weights included (vLLM: gpu_memory_utilization). The decoder layers are stored
    in the placement's dtype (of a mixture of experts in fp4 only the routed experts); embeddings, LM head, draft and KV cache stay bf16.
    All are split over the GPUs. Activations and CUDA graphs are not counted: SGLang keeps the room above `utilisation` for them. vLLM takes
    activations out of the pool: `forecast.activations`.

    Raises:
        BadInputError: the target, or the target with its draft, does not fit; or context or utilisation is out of range.

    """
    if context_tokens < 1:
        raise BadInputError(f"context of {context_tokens!r} tokens is below 1")
    if not 0 < utilisation <= 1:
        raise BadInputError(f"memory utilisation {utilisation!r} is not above 0 and at most 1")
    gpu, gpus, dtype = where.gpu, where.gpus, where.dtype
    placed(target, gpu=gpu, gpus=gpus, dtype=dtype)
    usable_bytes = gpu.memory_bytes * utilisation
    target_bytes = _target_bytes(target, dtype) / gpus
    draft_bytes = 0.0 if draft is None else (draft.parameters * Dtype.BF16.weight_bytes + draft.integer_bytes) / gpus
    need = _Need(target, draft_bytes * gpus, where, utilisation)
    _need_fit(f"{target.name} in {dtype.value}", target_bytes, need)
    kv_bytes = kv_bytes_per_token(target.kv_elements_per_token, kv_heads=target.kv_heads, gpus=gpus)
    draft_kv_bytes = 0.0 if draft is None else draft.kv_elements_per_token * coefficient("kv_bytes_per_element") / gpus
    lookahead = speculation.verified_tokens - 1
    plain_pool, speculative_pool = usable_bytes - target_bytes, usable_bytes - target_bytes - draft_bytes
    if draft is not None:
        _need_fit(f"{target.name} in {dtype.value} with {draft.name}", target_bytes + draft_bytes, need)
    plain_tokens, speculative_tokens = int(plain_pool // kv_bytes), int(speculative_pool // (kv_bytes + draft_kv_bytes))
    return MemoryAnswer(
        target_weight_bytes=target_bytes,
        draft_weight_bytes=draft_bytes,
        target_kv_bytes_per_token=kv_bytes,
        draft_kv_bytes_per_token=draft_kv_bytes,
        plain_pool_bytes=plain_pool,
        speculative_pool_bytes=speculative_pool,
        plain_kv_tokens=plain_tokens,
        speculative_kv_tokens=speculative_tokens,
        lookahead_tokens=lookahead,
        plain_requests=plain_tokens // context_tokens,
        speculative_requests=speculative_tokens // (context_tokens + lookahead),
        usable_bytes=usable_bytes,
        above_bytes=gpu.memory_bytes - usable_bytes,
    )


def _target_bytes(target: ModelShape, dtype: Dtype) -> float:
    layers, fixed = target.decoder_parameters, target.fixed_decoder_parameters
    decoder_bytes = fixed * fixed_dtype(target, dtype).weight_bytes + (layers - fixed) * dtype.weight_bytes
    return decoder_bytes + (target.parameters - layers) * Dtype.BF16.weight_bytes


@dataclass(frozen=True, slots=True)
class _Need:
    """What has to fit where: the target, and a draft of that many bytes in all."""

    target: ModelShape
    draft_bytes: float
    where: Placement
    utilisation: float

    def weight_bytes(self, dtype: Dtype) -> float:
        """Of target and draft, with the target in `dtype`."""
        return _target_bytes(self.target, dtype) + self.draft_bytes


def _need_fit(what: str, needed_bytes: float, need: _Need) -> None:
    """Nothing, where so many bytes on each GPU leave room."""
    where, usable_bytes = need.where, need.where.gpu.memory_bytes * need.utilisation
    if needed_bytes >= usable_bytes:
        remedy = what_fits(where, heads=need.target.heads, weight_bytes=need.weight_bytes, utilisation=need.utilisation)
        raise BadInputError(
            f"{printable(what)} needs {needed_bytes / 1e9:.1f} GB for weights on each of {where.gpus} {where.gpu.name}, where "
            f"{usable_bytes / 1e9:.1f} GB may be used, and leaves nothing for the KV cache; {remedy}"
        )
