"""Sizes of draft heads, held against published checkpoints, and what they cost in requests."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError
from paceline.forecast.draft_memory import MemoryAnswer, draft_model, draft_shape, eagle3_head, eagle_head, memory, mtp_layer
from paceline.forecast.roofline import Placement
from paceline.forecast.shapes import gpu, model
from paceline.hardware import Dtype
from paceline.speculation.method import Method, Speculation, Tree

CHAIN_3 = Speculation(Method.EAGLE3, 3, None)
LLAMA_8B = model("llama-3.1-8b")
ONE_H100 = Placement(gpu=gpu("h100"), gpus=1, dtype=Dtype.BF16)


def answer(
    context_tokens: int, *, utilisation: float = 0.9, speculation: Speculation = CHAIN_3, where: Placement = ONE_H100
) -> MemoryAnswer:
    """The 8B model with its EAGLE-3 head."""
    head = eagle3_head(LLAMA_8B, draft_vocab=32_000, intermediate=14_336)
    return memory(target=LLAMA_8B, draft=head, speculation=speculation, where=where, context_tokens=context_tokens, utilisation=utilisation)


@pytest.mark.parametrize(
    ("target", "billions", "gigabytes"),
    [("llama-3.1-8b", 0.425, 0.85), ("llama-3.3-70b", 1.403, 2.81), ("qwen3-8b", 0.400, 0.80), ("qwen3-32b", 0.783, 1.57)],
)
def test_an_eagle3_head_has_the_size_of_its_checkpoint(target: str, billions: float, gigabytes: float) -> None:
    """Source: SpecForge configurations @a6b6b02, draft vocabulary 32,000, bf16."""
    shape = model(target)
    head = eagle3_head(shape, draft_vocab=32_000, intermediate=shape.intermediate)
    assert head.parameters / 1e9 == pytest.approx(billions, abs=0.0006)
    assert (2 * head.parameters + head.integer_bytes) / 1e9 == pytest.approx(gigabytes, abs=0.006)
    assert head.integer_bytes == 32_000 * 8 + shape.vocab


def test_the_70b_head_with_a_full_vocabulary_and_its_own_embedding_is_the_published_card() -> None:
    """nvidia/Llama-3.3-70B-Instruct-Eagle3 states 3.2 B parameters; the embedding (V · h) is not part of our head."""
    shape = model("llama-3.3-70b")
    head = eagle3_head(shape, draft_vocab=shape.vocab, intermediate=shape.intermediate)
    assert (head.parameters + shape.head_parameters) / 1e9 == pytest.approx(3.242, abs=0.001)


@pytest.mark.parametrize(("target", "billions"), [("vicuna-7b", 0.236), ("vicuna-13b", 0.370), ("llama-3.3-70b", 0.990)])
def test_an_eagle_head_has_the_size_its_readme_states(target: str, billions: float) -> None:
    """EAGLE's README: .24, .37 and .99 B."""
    assert eagle_head(model(target)).parameters / 1e9 == pytest.approx(billions, abs=0.0006)


def test_a_draft_model_is_a_whole_model() -> None:
    """Llama-3.2-1B: 1.236 B parameters, 2.47 GB in bf16, 32,768 bytes of KV per token."""
    draft = draft_model(model("llama-3.2-1b"))
    assert draft.parameters / 1e9 == pytest.approx(1.236, abs=0.0005)
    assert 2 * draft.kv_elements_per_token == 32_768


def test_an_mtp_layer_is_one_layer_and_its_projection() -> None:
    """218,112,000 weights per layer of the 8B model, 2h·h of projection and three norms."""
    assert mtp_layer(LLAMA_8B).parameters == LLAMA_8B.layer_parameters + 2 * 4096 * 4096 + 3 * 4096


@pytest.mark.parametrize("method", Method)
def test_each_method_has_its_shape(method: Method) -> None:
    """A lookup takes no memory; everything else does."""
    shape = draft_shape(method, target=LLAMA_8B, draft=model("llama-3.2-1b"), draft_vocab=32_000)
    assert (shape is None) == (method in (Method.NGRAM, Method.SUFFIX))
    if shape is not None:
        assert shape.parameters > 1e8


@pytest.mark.parametrize("draft_vocab", [0, -1, 128_257])
def test_a_draft_vocabulary_the_target_does_not_have_is_refused(draft_vocab: int) -> None:
    """d2t would point outside the target's vocabulary."""
    with pytest.raises(BadInputError, match="draft vocabulary"):
        draft_shape(Method.EAGLE3, target=LLAMA_8B, draft=None, draft_vocab=draft_vocab)


def test_a_head_without_an_mlp_and_a_method_without_its_model_are_refused() -> None:
    """The message must name the missing option."""
    with pytest.raises(BadInputError, match="intermediate"):
        eagle3_head(LLAMA_8B, draft_vocab=100, intermediate=0)
    with pytest.raises(BadInputError, match="--draft"):
        draft_shape(Method.DRAFT_MODEL, target=LLAMA_8B, draft=None, draft_vocab=100)


def test_requests_that_fit_are_counted_by_hand() -> None:
    """72 GB usable, 16.06 GB of target, .85 GB of head; 131,072 and 135,168 bytes per token; 3 look-ahead slots per request."""
    found = answer(2000)
    assert found.target_weight_bytes == LLAMA_8B.parameters * 2
    assert found.plain_kv_tokens == int((72e9 - 16_060_522_496) // 131_072) == 426_784
    assert found.plain_requests == 213
    head_bytes = 2 * 424_689_664 + 32_000 * 8 + 128_256
    assert found.draft_weight_bytes == head_bytes
    assert found.speculative_kv_tokens == int((72e9 - 16_060_522_496 - head_bytes) // 135_168)
    assert found.speculative_requests == found.speculative_kv_tokens // 2003
    assert (found.lookahead_tokens, found.requests_lost) == (3, 213 - found.speculative_requests)
    assert found.requests_lost == 10


def test_a_tree_holds_a_slot_for_every_node() -> None:
    """20 nodes are verified, not 3 positions."""
    tree = Speculation(Method.EAGLE3, 3, Tree(depth=3, topk=4, nodes=20))
    assert answer(2000, speculation=tree).lookahead_tokens == 20


def test_a_lookup_costs_slots_and_nothing_else() -> None:
    """n-gram drafts have no weights, but their tokens need room until they are verified."""
    found = memory(
        target=LLAMA_8B, draft=None, speculation=Speculation(Method.NGRAM, 5, None), where=ONE_H100, context_tokens=100, utilisation=0.9
    )
    assert (found.draft_weight_bytes, found.draft_kv_bytes_per_token, found.lookahead_tokens) == (0, 0, 5)
    assert found.speculative_kv_tokens == found.plain_kv_tokens
    assert found.speculative_requests == found.plain_kv_tokens // 105


def test_a_target_that_does_not_fit_is_refused_with_both_sizes() -> None:
    """Llama-3.3-70B in bf16 is 141 GB; one H100 has 80."""
    target = model("llama-3.3-70b")
    with pytest.raises(BadInputError, match=r"141\.1 GB .*72\.0 GB"):
        memory(target=target, draft=None, speculation=CHAIN_3, where=ONE_H100, context_tokens=100, utilisation=0.9)


def test_a_target_that_only_fits_without_its_draft_is_refused_by_the_drafts_name() -> None:
    """The server would start without speculation and die with it."""
    head = eagle3_head(LLAMA_8B, draft_vocab=32_000, intermediate=14_336)
    tight = replace(ONE_H100, gpu=replace(gpu("h100"), memory_bytes=16.5e9))
    with pytest.raises(BadInputError, match="EAGLE-3 head"):
        memory(target=LLAMA_8B, draft=head, speculation=CHAIN_3, where=tight, context_tokens=100, utilisation=1.0)


def test_a_mixture_of_experts_in_fp4_weighs_what_its_checkpoint_does() -> None:
    """1447 GB in NVFP4 (vllm-project/recipes @31dd9a4): only the routed experts are fp4. In the table 3 % of the attention is missing."""
    where = Placement(gpu=gpu("gb300"), gpus=8, dtype=Dtype.FP4)
    answer = memory(
        target=model("qwen3.8-2.4t-a95b"),
        draft=None,
        speculation=Speculation(Method.NGRAM, 3, None),
        where=where,
        context_tokens=9000,
        utilisation=0.9,
    )
    assert 8 * answer.target_weight_bytes == pytest.approx(1447.3e9, rel=0.04)


def test_fp8_halves_the_layers_but_not_the_embeddings() -> None:
    """Engines quantise the decoder's linears only: 70B in fp8 is 68.5 GB of layers and 4.2 GB of embeddings and head."""
    where = Placement(gpu=gpu("h100"), gpus=4, dtype=Dtype.FP8)
    found = memory(target=model("llama-3.3-70b"), draft=None, speculation=CHAIN_3, where=where, context_tokens=100, utilisation=0.9)
    assert found.target_weight_bytes * 4 / 1e9 == pytest.approx(68.45 + 4.20, abs=0.02)


@pytest.mark.parametrize(("context", "utilisation"), [(0, 0.9), (100, 0.0), (100, 1.1), (100, float("nan"))])
def test_a_context_or_utilisation_out_of_range_is_refused(context: int, utilisation: float) -> None:
    """90 in place of .9 would promise 90 GPUs' worth of memory."""
    with pytest.raises(BadInputError):
        answer(context, utilisation=utilisation)


@given(context=st.integers(1, 100_000), more=st.integers(1, 1000), gpus=st.sampled_from([1, 2, 4, 8]))
@settings(max_examples=50, deadline=None)
def test_a_draft_never_makes_room_and_longer_contexts_fit_fewer(context: int, more: int, gpus: int) -> None:
    """Capacity planning that gains room by adding a model would be nonsense."""
    where = replace(ONE_H100, gpus=gpus)
    found = answer(context, where=where)
    assert 0 <= found.requests_lost <= found.plain_requests
    assert answer(context + more, where=where).speculative_requests <= found.speculative_requests
    assert answer(context, where=replace(ONE_H100, gpus=1)).plain_kv_tokens <= found.plain_kv_tokens
