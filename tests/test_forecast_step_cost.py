"""Seconds per step: held against break-even figures computed by hand from measured kernels, then laws."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError
from paceline.forecast.draft_memory import DEFAULT_DRAFT_VOCAB, draft_model, draft_shape
from paceline.forecast.kernels import all_reduce_seconds, has_measured_kernels, kv_efficiency, linear_seconds
from paceline.forecast.roofline import forward, placed
from paceline.forecast.shapes import gpu, known_gpus, known_models, model
from paceline.forecast.step_cost import StepCost, step_cost, step_seconds
from paceline.hardware import DraftShape, Dtype, Gpu, ModelShape
from paceline.speculation.method import Method, Speculation, Tree

CHAIN_3 = Speculation(Method.EAGLE3, 3, None)
UNMEASURED = replace(gpu("h100"), name="somebody's own")
LLAMA_8B, LLAMA_70B = model("llama-3.1-8b"), model("llama-3.3-70b")


def head(target: ModelShape, method: Method = Method.EAGLE3) -> DraftShape | None:
    """The head of `method`, with the usual draft vocabulary."""
    return draft_shape(method, target=target, draft=None, draft_vocab=min(DEFAULT_DRAFT_VOCAB, target.vocab))


def cost(
    target: ModelShape,
    on: Gpu,
    gpus: int,
    dtype: Dtype,
    speculation: Speculation | None,
    *,
    draft: DraftShape | None = None,
    max_requests: int = 256,
) -> StepCost:
    """A step cost with room for `max_requests` requests; the head belongs to the method where no draft is given."""
    drafts = None if speculation is None or not speculation.method.drafts_every_step else draft or head(target, speculation.method)
    verified = 1 if speculation is None else speculation.verified_tokens
    return step_cost(
        target=target,
        gpu=on,
        gpus=gpus,
        dtype=dtype,
        speculation=speculation,
        draft=drafts,
        max_tokens=max_requests * verified,
        max_requests=max_requests,
    )


def ratio(
    target: ModelShape,
    on: Gpu,
    gpus: int,
    dtype: Dtype,
    *,
    requests: int,
    context: int,
    speculation: Speculation = CHAIN_3,
    draft: DraftShape | None = None,
) -> float:
    """ρ with full coverage."""
    plain = cost(target, on, gpus, dtype, None, max_requests=requests)
    drafted = cost(target, on, gpus, dtype, speculation, draft=draft, max_requests=requests)
    plain_s = step_seconds(plain, requests=requests, context_tokens=context, speculation=None, coverage=0.0)
    return step_seconds(drafted, requests=requests, context_tokens=context, speculation=speculation, coverage=1.0) / plain_s


# Break-even α = (ρ − 1) / 3 by concurrency, computed by hand from the kernels of aiconfigurator @095f58a51 with the overheads in
# data/step_cost.toml (per-step overhead 1.2 or 1.5 ms, .6 or .8 ms per speculative step, .7 to 1.4 ms per pass of the head).
WORKED = [
    ("llama-3.1-8b", "h100", 1, Dtype.BF16, 200, (0.16, 0.14, 0.14, 0.17, 0.28, 0.50)),
    ("llama-3.1-8b", "h100", 1, Dtype.BF16, 700, (0.16, 0.14, 0.12, 0.15, 0.21, 0.33)),
    ("llama-3.1-8b", "h100", 1, Dtype.BF16, 2000, (0.15, 0.13, 0.10, 0.11, 0.13, 0.17)),
    ("llama-3.3-70b", "h100", 4, Dtype.FP8, 200, (0.11, 0.14, 0.16, 0.31, 0.52, 0.68)),
    ("llama-3.3-70b", "h100", 4, Dtype.FP8, 700, (0.11, 0.14, 0.15, 0.29, 0.47, 0.59)),
    ("llama-3.3-70b", "h100", 4, Dtype.FP8, 2000, (0.11, 0.13, 0.14, 0.25, 0.37, 0.43)),
    ("llama-3.3-70b", "h100", 4, Dtype.FP8, 8000, (0.11, 0.12, 0.10, 0.15, 0.19, 0.20)),
    ("llama-3.1-8b", "l40s", 1, Dtype.BF16, 700, (0.09, 0.08, 0.08, 0.09, 0.11, 0.23)),
]


@pytest.mark.parametrize(("target", "on", "gpus", "dtype", "context", "break_even"), WORKED)
def test_break_even_agrees_with_the_figures_worked_from_measured_kernels(
    target: str, on: str, gpus: int, dtype: Dtype, context: int, break_even: tuple[float, ...]
) -> None:
    """A forecast that leaves its own sources tells people to ship what slows them down."""
    for requests, expected in zip((1, 8, 32, 64, 128, 256), break_even, strict=True):
        found = (ratio(model(target), gpu(on), gpus, dtype, requests=requests, context=context) - 1) / 3
        assert found == pytest.approx(expected, abs=0.04 if requests <= 128 else 0.08), requests


def test_one_token_through_the_8b_model_takes_what_was_measured() -> None:
    """4.98 to 5.02 ms measured, plus .38 ms for the LM head (1.05 GB at 2.78 TB/s) and 1.2 ms of engine."""
    assert cost(LLAMA_8B, gpu("h100"), 1, Dtype.BF16, None).token_s[1] == pytest.approx(6.6e-3, abs=0.05e-3)


def test_a_kv_token_takes_its_bytes_over_the_bandwidth() -> None:
    """131,072 bytes at 92 % of 3.35 TB/s; on 4 GPUs a quarter; on 8 GPUs of a model with 2 KV heads still half."""
    assert cost(LLAMA_8B, gpu("h100"), 1, Dtype.BF16, None).kv_token_s == pytest.approx(131_072 / (3.35e12 * 0.92))
    assert cost(LLAMA_8B, gpu("h100"), 4, Dtype.FP8, None).kv_token_s == pytest.approx(131_072 / 4 / (3.35e12 * 0.92))
    two_heads = replace(LLAMA_8B, kv_heads=2)
    assert cost(two_heads, gpu("h100"), 8, Dtype.BF16, None).kv_token_s == pytest.approx(32_768 / 2 / (3.35e12 * 0.92))


def test_the_kv_cache_is_bf16_whatever_the_weights_are() -> None:
    """Quantised weights would seem to halve the cost of long contexts."""
    by_dtype = {dtype: cost(LLAMA_8B, gpu("h100"), 1, dtype, None).kv_token_s for dtype in Dtype}
    assert len(set(by_dtype.values())) == 1


def test_tensor_parallelism_over_pcie_is_bound_by_its_all_reduces() -> None:
    """About 35 ms per step on 4 L40S at 32 tokens of a 70B model: 160 all-reduces of 262,144 numbers, .219 ms each."""
    where = placed(LLAMA_70B, gpu=gpu("l40s"), gpus=4, dtype=Dtype.FP8)
    assert forward(LLAMA_70B, where, max_tokens=32, per_request=1).all_reduces_s[32] == pytest.approx(35e-3, rel=0.02)
    on_nvlink = placed(LLAMA_70B, gpu=gpu("h100"), gpus=4, dtype=Dtype.FP8)
    assert forward(LLAMA_70B, on_nvlink, max_tokens=64, per_request=1).all_reduces_s[64] == pytest.approx(2.05e-3, rel=0.02)


def test_an_all_reduce_needs_no_time_on_one_gpu_and_grows_with_size_beyond_the_table() -> None:
    """Prefills of long prompts send more than was measured."""
    sizes = np.array([1e3, 33_554_432.0, 67_108_864.0])
    assert all_reduce_seconds(elements=sizes, gpu=gpu("h100"), gpus=1).tolist() == [0, 0, 0]
    four = all_reduce_seconds(elements=sizes, gpu=gpu("h100"), gpus=4)
    assert four[2] == pytest.approx(2 * four[1])
    assert all_reduce_seconds(elements=sizes, gpu=UNMEASURED, gpus=3).tolist() == four.tolist()
    with pytest.raises(BadInputError, match="9 GPUs"):
        all_reduce_seconds(elements=sizes, gpu=gpu("h100"), gpus=9)


def test_a_gpu_of_ones_own_is_priced_by_a_roofline() -> None:
    """Hardware that was never measured would have no forecast."""
    assert not has_measured_kernels(UNMEASURED, Dtype.BF16)
    assert kv_efficiency(UNMEASURED) == 0.92
    # 1e9 weights: 2e9 bytes at 75 % of 3.35 TB/s for one token; 2e12 FLOP at 76 % of 989 TF for a thousand; the cube root of both cubed
    one, many = linear_seconds(weights=1e9, tokens=np.array([1.0, 1000.0]), gpu=UNMEASURED, dtype=Dtype.BF16)
    memory_s, compute_s = 2e9 / (0.75 * 3.35e12), 2e12 / (0.76 * 989e12)
    assert one == pytest.approx(memory_s, rel=1e-3)
    assert many == pytest.approx((memory_s**3 + compute_s**3) ** (1 / 3))


def test_the_roofline_is_near_the_curves_where_both_exist() -> None:
    """A stand-in that is far from what was measured would be no stand-in."""
    tokens = np.array([1.0, 16, 64, 128, 256, 512, 1024])
    for on in ("a100", "h100", "h200"):
        measured = linear_seconds(weights=6.98e9, tokens=tokens, gpu=gpu(on), dtype=Dtype.BF16)
        stand_in = linear_seconds(weights=6.98e9, tokens=tokens, gpu=replace(gpu(on), name="x"), dtype=Dtype.BF16)
        assert np.abs(stand_in / measured - 1).max() < 0.3


def test_a_lookup_costs_its_share_of_the_verifying_forward() -> None:
    """n-gram drafting is nearly free: .6 % of verifying."""
    speculation = Speculation(Method.NGRAM, 3, None)
    found = cost(LLAMA_8B, gpu("h100"), 1, Dtype.BF16, speculation, max_requests=8)
    where = placed(LLAMA_8B, gpu=gpu("h100"), gpus=1, dtype=Dtype.BF16)
    verify = forward(LLAMA_8B, where, max_tokens=32, per_request=4)
    beside_lookup_s = verify.head_s[4] - verify.head_s[4]
    assert found.draft_s[1] == pytest.approx(0.0059 * (verify.linears_s[4] + verify.head_s[4]) + beside_lookup_s)
    assert found.kv_token_s == verify.kv_token_s(4)


def test_only_sampled_rows_go_through_the_lm_head() -> None:
    """A prefill of 2,048 tokens would pay for 2,048 rows of logits that nobody reads."""
    few = step_cost(
        target=LLAMA_8B, gpu=gpu("h100"), gpus=1, dtype=Dtype.BF16, speculation=None, draft=None, max_tokens=2048, max_requests=1
    )
    where = placed(LLAMA_8B, gpu=gpu("h100"), gpus=1, dtype=Dtype.BF16)
    terms = forward(LLAMA_8B, where, max_tokens=2048, per_request=1)
    assert few.token_s[2048] == pytest.approx(terms.linears_s[2048] + terms.head_s[1] + 1.2e-3)


def test_a_draft_model_reads_its_own_kv_cache_once_per_drafted_token() -> None:
    """Long contexts make a separate draft model dear: 32,768 bytes per token for 1B beside the target's 131,072."""
    drafted = cost(LLAMA_8B, gpu("h100"), 1, Dtype.BF16, Speculation(Method.DRAFT_MODEL, 3, None), draft=draft_model(model("llama-3.2-1b")))
    plain = cost(LLAMA_8B, gpu("h100"), 1, Dtype.BF16, None)
    assert drafted.kv_token_s == pytest.approx(plain.kv_token_s * (131_072 + 3 * 32_768) / 131_072)


def test_the_small_model_in_front_of_the_8b_takes_half_the_step() -> None:
    """Measured: 47 % of the step at batch 1 with a .6B draft on H100 (arXiv 2601.11580)."""
    drafted = cost(
        model("qwen3-8b"), gpu("h100"), 1, Dtype.BF16, Speculation(Method.DRAFT_MODEL, 3, None), draft=draft_model(model("qwen3-0.6b"))
    )
    assert drafted.draft_s[1] / (drafted.draft_s[1] + drafted.token_s[4]) == pytest.approx(0.47, abs=0.06)


def test_a_tree_costs_more_than_a_chain_of_its_depth() -> None:
    """Trees win at batch 1 and lose at batch 64; a tree priced as a chain would never lose."""
    tree = Speculation(Method.EAGLE3, 3, Tree(depth=3, topk=4, nodes=20))
    assert ratio(LLAMA_8B, gpu("h100"), 1, Dtype.BF16, requests=64, context=500, speculation=tree) > 2 * ratio(
        LLAMA_8B, gpu("h100"), 1, Dtype.BF16, requests=64, context=500
    )


def test_heads_that_share_the_targets_lm_head_read_it_in_every_pass() -> None:
    """EAGLE-1 and MTP have no small vocabulary of their own: 128,256 rows are read per drafted token."""
    small = cost(LLAMA_8B, gpu("h100"), 1, Dtype.BF16, CHAIN_3).draft_s[1]
    for method in (Method.EAGLE, Method.EAGLE2, Method.MTP):
        assert cost(LLAMA_8B, gpu("h100"), 1, Dtype.BF16, Speculation(method, 3, None)).draft_s[1] > small


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gpus": 3}, "do not divide"),
        ({"gpus": 16}, "16 GPUs"),
        ({"gpus": 0}, "0 GPUs"),
        ({"max_requests": 0}, "max_requests"),
        ({"max_tokens": 0, "speculation": None}, None),
        ({"draft": None}, "--draft"),
        ({"gpu": gpu("a100"), "dtype": Dtype.FP8}, "fp8"),
    ],
)
def test_what_cannot_run_is_refused(change: dict[str, object], said: str | None) -> None:
    """A forecast for a placement that no server accepts would waste a day."""
    asked: dict[str, object] = {
        "target": LLAMA_8B,
        "gpu": gpu("h100"),
        "gpus": 1,
        "dtype": Dtype.BF16,
        "speculation": CHAIN_3,
        "draft": head(LLAMA_8B),
        "max_tokens": 64,
        "max_requests": 4,
        **change,
    }
    if said is None:
        assert step_cost(**asked).token_s.tolist() == [0.0]  # type: ignore[arg-type]  # a table of arguments
        return
    with pytest.raises(BadInputError, match=said):
        step_cost(**asked)  # type: ignore[arg-type]  # a table of arguments


def test_a_forward_of_no_tokens_is_refused() -> None:
    """An empty array would be indexed later, far from the mistake."""
    with pytest.raises(BadInputError, match="max_tokens"):
        forward(LLAMA_8B, placed(LLAMA_8B, gpu=gpu("h100"), gpus=1, dtype=Dtype.BF16), max_tokens=0, per_request=1)


placements = st.tuples(st.sampled_from(known_gpus()), st.sampled_from([1, 3]), st.sampled_from([Dtype.BF16, Dtype.INT4]))
targets = st.sampled_from([name for name in known_models() if model(name).heads % 3 == 0] + ["llama-3.1-8b", "qwen3-32b"])


def fitting(target: str, where: tuple[str, int, Dtype]) -> tuple[ModelShape, Gpu, int, Dtype]:
    """A placement that divides the heads."""
    shape = model(target)
    return shape, gpu(where[0]), where[1] if shape.heads % where[1] == 0 else 1, where[2]


@given(target=targets, where=placements, draft_tokens=st.integers(1, 8), method=st.sampled_from(Method), requests=st.integers(1, 64))
@settings(max_examples=60, deadline=None)
def test_a_speculative_step_is_never_cheaper_than_a_plain_one(
    target: str, where: tuple[str, int, Dtype], draft_tokens: int, method: Method, requests: int
) -> None:
    """ρ below 1 would give speed-ups above the tokens per step, which no server shows."""
    shape, on, gpus, dtype = fitting(target, where)
    speculation = Speculation(method, draft_tokens, None)
    draft = draft_model(model("smollm2-135m")) if method is Method.DRAFT_MODEL else None
    assert ratio(shape, on, gpus, dtype, requests=requests, context=700, speculation=speculation, draft=draft) >= 1
    found = cost(shape, on, gpus, dtype, speculation, draft=draft, max_requests=requests)
    assert (np.diff(found.token_s) >= -1e-15).all()
    assert (np.diff(found.draft_s) >= -1e-15).all()
    assert (found.token_s[0], found.draft_s[0]) == (0.0, 0.0)


@given(target=targets, where=placements, requests=st.integers(1, 64), named=st.booleans())
@settings(max_examples=40, deadline=None)
def test_twice_the_bandwidth_never_slows_a_step(target: str, where: tuple[str, int, Dtype], requests: int, named: bool) -> None:
    """A faster GPU that forecasts slower would send people to the wrong one."""
    shape, on, gpus, dtype = fitting(target, where)
    slow = on if named else replace(on, name="x")
    fast = replace(slow, bandwidth_bytes_per_s=2 * slow.bandwidth_bytes_per_s)
    for speculation in (None, CHAIN_3):
        before, after = (
            step_seconds(
                cost(shape, each, gpus, dtype, speculation, max_requests=requests),
                requests=requests,
                context_tokens=1000,
                speculation=speculation,
                coverage=1.0,
            )
            for each in (slow, fast)
        )
        assert after <= before


@given(context=st.integers(100, 20_000), more=st.integers(100, 20_000), requests=st.sampled_from([128, 192, 256]))
@settings(max_examples=30, deadline=None)
def test_break_even_falls_with_context_at_large_batch(context: int, more: int, requests: int) -> None:
    """The reason why long contexts keep drafting worthwhile at high concurrency."""
    for target, on, gpus, dtype in (
        (LLAMA_8B, gpu("h100"), 1, Dtype.BF16),
        (LLAMA_70B, gpu("h100"), 4, Dtype.FP8),
        (LLAMA_8B, UNMEASURED, 1, Dtype.BF16),
    ):
        assert ratio(target, on, gpus, dtype, requests=requests, context=context + more) <= ratio(
            target, on, gpus, dtype, requests=requests, context=context
        )


@given(coverage=st.floats(0, 1), requests=st.integers(1, 40))
@settings(max_examples=40, deadline=None)
def test_steps_that_draft_now_and_then_cost_between_never_and_always(coverage: float, requests: int) -> None:
    """Undrafted steps of an n-gram lookup cost a plain step plus the lookup."""
    speculation = Speculation(Method.NGRAM, 4, None)
    found = cost(LLAMA_8B, gpu("h100"), 1, Dtype.BF16, speculation, max_requests=40)

    def seconds(share: float) -> float:
        return step_seconds(found, requests=requests, context_tokens=500, speculation=speculation, coverage=share)

    plain = step_seconds(found, requests=requests, context_tokens=500, speculation=None, coverage=0.0)
    read_s = requests * 500 * found.kv_token_s
    assert seconds(0.0) == pytest.approx(plain + 0.0059 * (plain - read_s))
    assert seconds(1.0) == pytest.approx(found.token_s[5 * requests] + found.draft_s[requests] + read_s)
    assert seconds(coverage) <= seconds(1.0) * 1.006  # at most one lookup more
    assert seconds(coverage) >= plain * (1 - 1e-9)


def test_a_binomial_number_of_drafts_is_averaged_by_hand() -> None:
    """Two requests, half of them drafting: a quarter none, a half one, a quarter both."""
    speculation = Speculation(Method.EAGLE3, 3, None)
    found = cost(LLAMA_8B, gpu("h100"), 1, Dtype.BF16, speculation, max_requests=2)
    t, d = found.token_s, found.draft_s
    expected = 0.25 * t[2] + 0.5 * (t[5] + d[1]) + 0.25 * (t[8] + d[2]) + 2 * 100 * found.kv_token_s
    assert step_seconds(found, requests=2, context_tokens=100, speculation=speculation, coverage=0.5) == pytest.approx(expected)
