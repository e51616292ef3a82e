"""What a step needs beside weights and KV cache, on each GPU, without drafts and with them.

T tokens in the largest step, R requests that are sampled, h hidden, V vocabulary, b = 2 bytes, g GPUs:

    residual stream     2 · T · h · b                                   the stream and its normalised copy, whole on every GPU
    widest layer        T · max(3 · I / g, (2 · q + 2 · kv) / g) · b    gated MLP, or attention; of experts T · k · (3 · I_e / g + h) · b
    logits              R · positions · V · (b + 4)                     gathered, and once more in 32 bits; 1 position, or drafts and one
    hidden states       n · T · h · b                                   kept for the draft: 3 of EAGLE-3, 1 of EAGLE and MTP
    the draft's logits  R · V_draft · (b + 4)

A layer's tensors are gone when logits are made: the peak is residual + kept states + the larger of the two. Attention keeps no scores and
no kernel its own workspace, which is an assumption; so is that nothing is chunked.
Source: shapes of the models; that verification takes logits at every drafted position is in vLLM 0.32.0 v1/sample/rejection_sampler.py.
"""

from dataclasses import dataclass

from paceline.errors import BadInputError, is_count, printable
from paceline.forecast.draft_memory import MemoryAnswer
from paceline.hardware import ModelShape
from paceline.speculation.method import Method, Speculation

__all__ = ["ActivationAnswer", "Activations", "LargestStep", "activation_answer", "step_activations"]

ELEMENT_BYTES = 2
LOGIT_BYTES = ELEMENT_BYTES + 4
KEPT_STATES = {Method.EAGLE: 1, Method.EAGLE2: 1, Method.EAGLE3: 3, Method.MTP: 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestStep:
    """The largest step of a replica: requests at once, and tokens."""

    requests: int
    step_tokens: int

    def __post_init__(self) -> None:
        """Reject counts below 1.

        Raises:
            BadInputError: with the value.

        """
        for name in ("requests", "step_tokens"):
            if not is_count(getattr(self, name), least=1):
                raise BadInputError(f"{name} = {printable(getattr(self, name))} is not a whole number from 1 on")


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """Bytes on each GPU in the largest step.

    Attributes:
        residual_bytes: the residual stream.
        layer_bytes: the widest layer.
        logits_bytes: of all positions that are sampled or verified.
        kept_state_bytes: hidden states that the draft takes from the target.
        draft_logits_bytes: of the draft's output layer.

    """

    residual_bytes: float
    layer_bytes: float
    logits_bytes: float
    kept_state_bytes: float
    draft_logits_bytes: float

    @property
    def peak_bytes(self) -> float:
        """What has to be free at once."""
        return self.residual_bytes + self.kept_state_bytes + max(self.layer_bytes, self.logits_bytes + self.draft_logits_bytes)


def step_activations(
    target: ModelShape,
    *,
    speculation: Speculation | None,
    draft_vocab: int | None,
    step: LargestStep,
    gpus: int,
) -> Activations:
    """What the largest step needs; without drafts where `speculation` is None.

    `draft_vocab` is what the draft's output layer has rows for, None for a lookup.
    """
    positions = 1 if speculation is None else speculation.verified_tokens
    states = 0 if speculation is None else KEPT_STATES.get(speculation.method, 0)
    return Activations(
        residual_bytes=2 * step.step_tokens * target.hidden * ELEMENT_BYTES,
        layer_bytes=step.step_tokens * _widest(target, gpus) * ELEMENT_BYTES,
        logits_bytes=step.requests * positions * target.vocab * LOGIT_BYTES,
        kept_state_bytes=states * step.step_tokens * target.hidden * ELEMENT_BYTES,
        draft_logits_bytes=0 if speculation is None or draft_vocab is None else step.requests * draft_vocab * LOGIT_BYTES,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationAnswer:
    """What activations cost a replica.

    Attributes:
        plain: without drafts.
        speculative: with them.
        plain_requests: requests that fit without drafts where activations come out of the KV pool, as vLLM's do.
        speculative_requests: requests that fit with drafts, likewise.
        above_bytes: what SGLang leaves for them on each GPU, the memory above the engine's share.

    """

    plain: Activations
    speculative: Activations
    plain_requests: int
    speculative_requests: int
    above_bytes: float

    @property
    def fits_above(self) -> bool:
        """Whether the step with drafts fits beside the engine's share."""
        return self.speculative.peak_bytes <= self.above_bytes


def activation_answer(fits: MemoryAnswer, *, plain: Activations, speculative: Activations, context_tokens: int) -> ActivationAnswer:
    """What is left of `fits` for requests of so many tokens once activations have their room."""
    kv_bytes = fits.target_kv_bytes_per_token
    return ActivationAnswer(
        plain=plain,
        speculative=speculative,
        plain_requests=_requests(fits.plain_pool_bytes - plain.peak_bytes, kv_bytes, context_tokens),
        speculative_requests=_requests(
            fits.speculative_pool_bytes - speculative.peak_bytes,
            kv_bytes + fits.draft_kv_bytes_per_token,
            context_tokens + fits.lookahead_tokens,
        ),
        above_bytes=fits.above_bytes,
    )


def _requests(pool_bytes: float, token_bytes: float, request_tokens: int) -> int:
    return max(0, int(pool_bytes // token_bytes)) // request_tokens


def _widest(target: ModelShape, gpus: int) -> float:
    """Numbers per token in the widest part of a layer, on each GPU."""
    mlp = 3 * target.intermediate / gpus
    attention = 2 * (target.heads + target.kv_heads) * target.head_dim / gpus
    experts = target.experts
    routed = 0.0 if experts is None else experts.per_token * (3 * experts.intermediate / gpus + target.hidden)
    return max(mlp, attention, routed)
