"""What a step needs beside weights and KV cache, worked by hand."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError
from paceline.forecast.activations import LargestStep, activation_answer, step_activations
from paceline.forecast.draft_memory import eagle3_head, memory
from paceline.forecast.roofline import Placement
from paceline.forecast.shapes import gpu, model
from paceline.hardware import Dtype
from paceline.speculation.method import Method, Speculation, Tree

LLAMA_8B = model("llama-3.1-8b")  # h 4096, I 14336, 32 heads and 8 KV heads of 128, V 128,256
CHAIN_3 = Speculation(Method.EAGLE3, 3, None)
STEP = LargestStep(requests=100, step_tokens=1000)
ONE_H100 = Placement(gpu=gpu("h100"), gpus=1, dtype=Dtype.BF16)


def test_a_plain_step_is_counted_by_hand() -> None:
    """1,000 tokens: 2 · 4096 · 2 bytes of stream, 3 · 14,336 · 2 of MLP; 100 rows of 128,256 logits in 16 and in 32 bits."""
    plain = step_activations(LLAMA_8B, speculation=None, draft_vocab=None, step=STEP, gpus=1)
    assert plain.residual_bytes == 1000 * 2 * 4096 * 2
    assert plain.layer_bytes == 1000 * 3 * 14_336 * 2
    assert plain.logits_bytes == 100 * 128_256 * 6
    assert (plain.kept_state_bytes, plain.draft_logits_bytes) == (0, 0)
    assert plain.peak_bytes == 16_384_000 + 86_016_000


def test_drafts_add_positions_states_and_logits_of_their_own() -> None:
    """K = 3 verifies 4 rows per request; EAGLE-3 keeps three of the target's states and has 32,000 logits of its own."""
    drafts = step_activations(LLAMA_8B, speculation=CHAIN_3, draft_vocab=32_000, step=STEP, gpus=1)
    assert drafts.logits_bytes == 4 * 100 * 128_256 * 6
    assert drafts.kept_state_bytes == 3 * 1000 * 4096 * 2
    assert drafts.draft_logits_bytes == 100 * 32_000 * 6
    assert drafts.peak_bytes == 16_384_000 + 24_576_000 + 307_814_400 + 19_200_000


@pytest.mark.parametrize(
    ("method", "states"),
    [(Method.EAGLE, 1), (Method.EAGLE2, 1), (Method.MTP, 1), (Method.EAGLE3, 3), (Method.DRAFT_MODEL, 0), (Method.NGRAM, 0)],
)
def test_each_method_keeps_its_own_states(method: Method, states: int) -> None:
    """Whoever sizes a server for EAGLE-3 by what EAGLE keeps is two hidden states per token short."""
    found = step_activations(LLAMA_8B, speculation=Speculation(method, 3, None), draft_vocab=None, step=STEP, gpus=1)
    assert found.kept_state_bytes == states * 1000 * 4096 * 2


def test_a_tree_verifies_a_row_of_logits_for_every_node() -> None:
    """63 nodes at 256 requests are 12.6 GB of logits, which no chain warns of."""
    tree = Speculation(Method.EAGLE3, 5, Tree(depth=5, topk=8, nodes=63))
    found = step_activations(LLAMA_8B, speculation=tree, draft_vocab=32_000, step=replace(STEP, requests=256), gpus=1)
    assert found.logits_bytes == 64 * 256 * 128_256 * 6


def test_what_is_split_over_gpus_is_the_layer_alone() -> None:
    """The residual stream and the gathered logits are whole on every GPU."""
    one, two = (step_activations(LLAMA_8B, speculation=None, draft_vocab=None, step=STEP, gpus=each) for each in (1, 2))
    assert two.layer_bytes == one.layer_bytes / 2
    assert (two.residual_bytes, two.logits_bytes) == (one.residual_bytes, one.logits_bytes)


def test_experts_need_room_for_each_token_s_own() -> None:
    """Qwen3-30B-A3B: 8 experts of 768 per token, each with a row of 2,048 to add up: more than its attention."""
    target = model("qwen3-30b-a3b")
    assert target.experts is not None
    found = step_activations(target, speculation=None, draft_vocab=None, step=STEP, gpus=1)
    assert found.layer_bytes == 1000 * 8 * (3 * target.experts.intermediate + target.hidden) * 2


def answered(utilisation: float = 0.9, *, requests: int = 100) -> tuple[int, int, bool]:
    head = eagle3_head(LLAMA_8B, draft_vocab=32_000, intermediate=14_336)
    fits = memory(target=LLAMA_8B, draft=head, speculation=CHAIN_3, where=ONE_H100, context_tokens=2000, utilisation=utilisation)
    plain, drafts = (
        step_activations(LLAMA_8B, speculation=each, draft_vocab=32_000, step=replace(STEP, requests=requests), gpus=1)
        for each in (None, CHAIN_3)
    )
    answer = activation_answer(fits, plain=plain, speculative=drafts, context_tokens=2000)
    assert answer.plain_requests <= fits.plain_requests
    assert answer.speculative_requests <= fits.speculative_requests
    return answer.plain_requests, answer.speculative_requests, answer.fits_above


def test_activations_cost_requests() -> None:
    """55.939 GB of pool less .102 GB are 213 requests of 2,000 tokens at 131,072 bytes; with drafts 55.090 less .368, 202 of 2,003."""
    assert answered()[:2] == (213, 202)


def test_no_pool_is_smaller_than_none() -> None:
    """A step that is larger than the pool leaves no request, not fewer than none."""
    assert answered(requests=1_000_000) == (0, 0, False)
    assert answered()[2]
    assert not answered(1.0)[2]


@pytest.mark.parametrize(
    "step", [{"requests": 0, "step_tokens": 1}, {"requests": 1, "step_tokens": 0}, {"requests": True, "step_tokens": 1}]
)
def test_a_step_without_requests_or_tokens_is_refused(step: dict[str, int]) -> None:
    """Nothing runs in such a replica."""
    with pytest.raises(BadInputError, match="whole number from 1 on"):
        LargestStep(**step)


@given(requests=st.integers(1, 500), tokens=st.integers(1, 20_000), K=st.integers(1, 16))
@settings(max_examples=30, deadline=None)
def test_drafts_never_need_less(requests: int, tokens: int, K: int) -> None:
    """A plan that gains room by drafting would be nonsense."""
    step = LargestStep(requests=requests, step_tokens=tokens)
    for method in Method:
        drafts = step_activations(LLAMA_8B, speculation=Speculation(method, K, None), draft_vocab=1000, step=step, gpus=1)
        assert drafts.peak_bytes >= step_activations(LLAMA_8B, speculation=None, draft_vocab=None, step=step, gpus=1).peak_bytes
