"""A draft's memory as its own files have it, held against published checkpoints."""

from typing import Any

import pytest

from paceline.checkpoint import Checkpoint, TensorHeader
from paceline.errors import BadInputError
from paceline.forecast.draft_memory import eagle3_head
from paceline.forecast.shapes import model
from paceline.forecast.stored_draft import stored_draft
from paceline.speculation.method import Method
from tests.checkpoints import HEAD


def eagle3(h: int, intermediate: int, *, heads: int, vocab: int, dtype: str = "BF16", embed: bool = False) -> Checkpoint:
    """The tensors of an EAGLE-3 head with 8 KV heads of 128 for a vocabulary of 128,256, as SpecForge exports them (@a6b6b02)."""
    q, kv = heads * 128, 8 * 128
    shapes = {
        "fc.weight": (h, 3 * h),
        "midlayer.self_attn.q_proj.weight": (q, 2 * h),
        "midlayer.self_attn.k_proj.weight": (kv, 2 * h),
        "midlayer.self_attn.v_proj.weight": (kv, 2 * h),
        "midlayer.self_attn.o_proj.weight": (h, q),
        "midlayer.mlp.gate_proj.weight": (intermediate, h),
        "midlayer.mlp.up_proj.weight": (intermediate, h),
        "midlayer.mlp.down_proj.weight": (h, intermediate),
        "midlayer.input_layernorm.weight": (h,),
        "midlayer.hidden_norm.weight": (h,),
        "midlayer.post_attention_layernorm.weight": (h,),
        "norm.weight": (h,),
        "lm_head.weight": (vocab, h),
        **({"embed_tokens.weight": (128_256, h)} if embed else {}),
    }
    tensors = {name: TensorHeader(dtype, shape) for name, shape in shapes.items()}
    tensors |= {"d2t": TensorHeader("I64", (vocab,)), "t2d": TensorHeader("BOOL", (128_256,))}
    config = HEAD | {"hidden_size": h, "num_attention_heads": heads, "num_key_value_heads": 8, "head_dim": 128}
    return Checkpoint(name="head", config=config, tensors=tensors, target_ids=None, tokens=None)


def test_a_head_s_files_weigh_what_its_shape_says() -> None:
    """Llama-3.1-8B's head with 32,000 draft tokens: 0.425 B parameters, 0.85 GB (SpecForge configurations @a6b6b02)."""
    stored = stored_draft(eagle3(4096, 14_336, heads=32, vocab=32_000), method=Method.EAGLE3, model=None)
    implied = eagle3_head(model("llama-3.1-8b"), draft_vocab=32_000, intermediate=14_336)
    assert (stored.parameters, stored.integer_bytes) == (implied.parameters, implied.integer_bytes)
    assert (stored.kv_elements_per_token, stored.once_parameters) == (implied.kv_elements_per_token, implied.once_parameters)
    assert stored.parameters / 1e9 == pytest.approx(0.425, abs=0.0005)


def test_an_embedding_of_its_own_is_memory_too() -> None:
    """nvidia/Llama-3.3-70B-Instruct-Eagle3 states 3.2 B parameters: its vocabulary is whole and it keeps its own embedding."""
    stored = stored_draft(eagle3(8192, 28_672, heads=64, vocab=128_256, embed=True), method=Method.EAGLE3, model=None)
    embedding = 128_256 * 8192
    assert (stored.parameters + embedding) / 1e9 == pytest.approx(3.242, abs=0.001)
    assert stored.integer_bytes == 2 * embedding + 128_256 * 9


def test_weights_of_32_bits_are_served_in_16_and_those_of_8_stay() -> None:
    """Whoever has a quantised draft: it takes half of what its parameters say; one in float32 takes half of its file."""
    by_dtype = {
        dtype: stored_draft(eagle3(4096, 14_336, heads=32, vocab=32_000, dtype=dtype), method=Method.EAGLE3, model=None)
        for dtype in ("F32", "BF16", "F8_E4M3")
    }
    assert by_dtype["F32"] == by_dtype["BF16"]
    eight = by_dtype["F8_E4M3"]
    assert (eight.parameters, eight.once_parameters) == (0, 0)
    assert eight.integer_bytes == by_dtype["BF16"].parameters + by_dtype["BF16"].integer_bytes


def test_a_draft_model_is_counted_whole() -> None:
    """A whole model embeds by itself; its KV cache is its shape's."""
    tensors = {"model.embed_tokens.weight": TensorHeader("BF16", (100, 8)), "model.norm.weight": TensorHeader("BF16", (8,))}
    checkpoint = Checkpoint(name="small", config={}, tensors=tensors, target_ids=None, tokens=None)
    shape = model("llama-3.2-1b")
    stored = stored_draft(checkpoint, method=Method.DRAFT_MODEL, model=shape)
    assert (stored.parameters, stored.integer_bytes) == (808, 0)
    assert stored.kv_elements_per_token == shape.kv_elements_per_token


@pytest.mark.parametrize(
    ("config", "elements"),
    [
        ({"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}, 2 * 2 * 4 * 16),
        ({"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}, 2 * 2 * 32),
    ],
)
def test_a_head_s_cache_follows_from_its_configuration(config: dict[str, Any], elements: int) -> None:
    """Whoever has a head of two layers: it caches twice."""
    checkpoint = Checkpoint(name="h", config=config, tensors={}, target_ids=None, tokens=None)
    assert stored_draft(checkpoint, method=Method.EAGLE, model=None).kv_elements_per_token == elements


def test_what_cannot_be_counted_is_refused() -> None:
    """Whoever gives a folder without weights or sizes: no figure is made up."""
    with pytest.raises(BadInputError, match="no weights"):
        stored_draft(Checkpoint(name="h", config=HEAD, tensors=None, target_ids=None, tokens=None), method=Method.EAGLE3, model=None)
    with pytest.raises(BadInputError, match="lacks num_attention_heads"):
        stored_draft(Checkpoint(name="h", config={}, tensors={}, target_ids=None, tokens=None), method=Method.EAGLE3, model=None)
