"""Counts that costs are made of, held against the published sizes of two models, and what is refused."""

from dataclasses import replace
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError
from paceline.hardware import DraftShape, Dtype, Gpu, ModelShape

LLAMA_8B = ModelShape(
    name="Llama-3.1-8B",
    layers=32,
    hidden=4096,
    intermediate=14336,
    heads=32,
    kv_heads=8,
    head_dim=128,
    vocab=128256,
    tied_embeddings=False,
    source="its config.json",
)
LLAMA_70B = replace(LLAMA_8B, name="Llama-3.1-70B", layers=80, hidden=8192, intermediate=28672, heads=64)
H100 = Gpu(
    name="h100",
    memory_bytes=80e9,
    bandwidth_bytes_per_s=3.35e12,
    flops_per_s={Dtype.BF16: 989e12, Dtype.FP8: 1979e12},
    source="data sheet, dense",
)


def test_one_layer_of_the_8b_model_by_hand() -> None:
    """The bytes read per step, and with them every forecast, are off."""
    # q and o 4096·4096 each, k and v 4096·1024 each, three MLP matrices of 4096·14336, two norms of 4096
    assert LLAMA_8B.layer_parameters == 2 * 16_777_216 + 2 * 4_194_304 + 3 * 58_720_256 + 8_192
    assert LLAMA_8B.head_parameters == 525_336_576


@pytest.mark.parametrize(("model", "billions", "kv_bytes"), [(LLAMA_8B, 8.03, 131_072), (LLAMA_70B, 70.55, 327_680)])
def test_two_models_have_their_published_size_and_cache(model: ModelShape, billions: float, kv_bytes: int) -> None:
    """A 70B target is said to fit where it does not, or its cache to hold twice the requests."""
    assert round(model.parameters / 1e9, 2) == billions
    assert model.kv_elements_per_token * Dtype.BF16.weight_bytes == kv_bytes


def test_the_8b_model_has_exactly_the_checkpoint_s_parameters() -> None:
    """A norm or an embedding is forgotten, which two digits do not show."""
    assert LLAMA_8B.parameters == 8_030_261_248
    assert LLAMA_8B.kv_elements_per_token == 65_536


def test_tied_embeddings_are_counted_once() -> None:
    """A small draft with tied embeddings is charged for its vocabulary twice."""
    tied = replace(LLAMA_8B, tied_embeddings=True)
    assert LLAMA_8B.parameters - tied.parameters == LLAMA_8B.head_parameters


@pytest.mark.parametrize("field", ["layers", "hidden", "intermediate", "heads", "kv_heads", "head_dim", "vocab"])
@pytest.mark.parametrize("value", [0, -1, 1.5, nan, True])
def test_a_model_s_sizes_are_whole_numbers_from_one_on(field: str, value: Any) -> None:
    """A broken config.json gives a model that weighs nothing and a speed-up that is infinite."""
    with pytest.raises(BadInputError, match=rf"model 'Llama-3.1-8B': {field} = .* is not a whole number from 1 on"):
        replace(LLAMA_8B, **{field: value})


def test_numpy_integers_are_sizes() -> None:
    """Sizes read from an array are refused."""
    assert replace(LLAMA_8B, layers=np.int64(32)).parameters == LLAMA_8B.parameters  # type: ignore[arg-type]  # numpy's integers are meant to pass


def test_heads_are_a_multiple_of_kv_heads() -> None:
    """Swapped fields of a config.json give a cache of the wrong size."""
    with pytest.raises(BadInputError, match="32 heads are not a multiple of 5 KV heads"):
        replace(LLAMA_8B, kv_heads=5)


@settings(max_examples=50)
@given(st.integers(1, 100), st.integers(1, 100))
def test_parameters_and_cache_grow_layer_by_layer(fewer: int, more: int) -> None:
    """A draft of few layers is priced as if it had the target's fixed parts per layer."""
    small, large = replace(LLAMA_8B, layers=fewer), replace(LLAMA_8B, layers=fewer + more)
    assert large.parameters - small.parameters == more * LLAMA_8B.layer_parameters
    assert large.kv_elements_per_token * fewer == small.kv_elements_per_token * (fewer + more)


@pytest.mark.parametrize(("dtype", "weight_bytes", "compute"), [("bf16", 2.0, "bf16"), ("fp8", 1.0, "fp8"), ("int4", 0.5, "bf16")])
def test_int4_weights_are_multiplied_in_bf16(dtype: str, weight_bytes: float, compute: str) -> None:
    """An int4 model is priced with arithmetic that no GPU here has."""
    assert Dtype(dtype).weight_bytes == weight_bytes
    assert Dtype(dtype).compute == compute


def test_a_gpu_s_peak_is_that_of_the_compute_dtype() -> None:
    """The roofline's ridge, and with it the batch at which drafting stops paying, moves by two."""
    assert H100.peak_flops_per_s(Dtype.FP8) == 1979e12
    assert H100.peak_flops_per_s(Dtype.INT4) == H100.peak_flops_per_s(Dtype.BF16) == 989e12


def test_a_dtype_the_gpu_lacks_is_refused_with_those_it_has() -> None:
    """An A100 is forecast with fp8 arithmetic it does not have."""
    a100 = replace(H100, name="a100", flops_per_s={Dtype.BF16: 312e12})
    with pytest.raises(BadInputError, match="a100 does not compute in fp8; it computes in bf16"):
        a100.peak_flops_per_s(Dtype.FP8)


@pytest.mark.parametrize("value", [0.0, -1.0, nan, inf])
@pytest.mark.parametrize("field", ["memory_bytes", "bandwidth_bytes_per_s", "flops_per_s"])
def test_a_gpu_has_memory_bandwidth_and_arithmetic(field: str, value: Any) -> None:
    """A typing error in a table divides by zero, or makes steps free."""
    broken: dict[str, Any] = {field: {Dtype.BF16: value} if field == "flops_per_s" else value}
    with pytest.raises(BadInputError, match=r"GPU 'h100': .* is not a number above 0"):
        replace(H100, **broken)


def test_a_gpu_computes_in_some_dtype() -> None:
    """A row without peaks is found out only when somebody asks for that GPU."""
    with pytest.raises(BadInputError, match="computes in no dtype"):
        replace(H100, flops_per_s={})


def test_a_draft_may_have_no_weights_and_no_cache_of_its_own() -> None:
    """An n-gram draft cannot be described."""
    assert DraftShape(name="ngram", parameters=0, integer_bytes=0, kv_elements_per_token=0).parameters == 0


@pytest.mark.parametrize("field", ["parameters", "integer_bytes", "kv_elements_per_token"])
@pytest.mark.parametrize("value", [-1, 0.5, nan, False])
def test_a_draft_s_counts_are_whole_numbers_from_zero_on(field: str, value: Any) -> None:
    """A draft gives memory back."""
    draft = DraftShape(name="head", parameters=1, integer_bytes=1, kv_elements_per_token=1)
    with pytest.raises(BadInputError, match=rf"draft 'head': {field} = .* is not a whole number from 0 on"):
        replace(draft, **{field: value})
