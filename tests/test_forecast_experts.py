"""Mixtures of experts, latent attention, recurrent state and steps past the captured size: worked numbers, then trends."""

from dataclasses import replace
from itertools import pairwise
from math import exp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError
from paceline.forecast.acceptance_model import exactly
from paceline.forecast.draft_memory import block_drafter, draft_model, draft_shape, eagle3_head, head_intermediate, mtp_layer
from paceline.forecast.drafting import drafting
from paceline.forecast.engine_cost import published_error, uncalibrated
from paceline.forecast.kernels import captured_tokens, coefficient, expert_seconds
from paceline.forecast.roofline import Placement, forward, placed
from paceline.forecast.shapes import gpu, known_models, model
from paceline.forecast.speedup import Bound, ForecastRow, Lengths, forecast
from paceline.forecast.step_cost import step_cost, step_seconds
from paceline.hardware import DraftShape, Dtype, Experts, Gpu, LatentAttention, ModelShape, Routed
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.method import Method, Speculation

H200 = gpu("h200")
DEEPSEEK = model("deepseek-v3")
QWEN_MOE = model("qwen3-30b-a3b")


@pytest.mark.parametrize(
    ("count", "per_token", "tokens", "over_k"),
    [(8, 2, 4, 2.73), (8, 2, 8, 3.60), (128, 8, 2, 1.94), (128, 8, 32, 13.97), (256, 8, 4, 3.82), (32, 4, 4, 3.31), (512, 10, 4, 3.88)],
)
def test_independent_tokens_reach_the_published_number_of_experts(count: int, per_token: int, tokens: int, over_k: float) -> None:
    """N(t) = E(1 − (1 − k/E)^t), over k: the whole MoE cost rests on it."""
    found = Routed(count, per_token, 1).distinct(np.array([float(tokens)]), novelty=1.0)[0]
    assert found / per_token == pytest.approx(over_k, abs=0.005)


def test_four_neighbouring_tokens_activate_two_and_a_half_times_the_experts() -> None:
    """128 experts, top-8: Cohere measured 2.5 times; independent tokens would make it 3.6 and drafting look hopeless."""
    own = 1 + coefficient("expert_own_novelty") * 3
    found = Routed(128, 8, 1).distinct(np.array([own]), novelty=coefficient("expert_novelty"))[0]
    assert found / 8 == pytest.approx(2.5, abs=0.05)


def test_one_token_through_the_experts_of_a_layer_by_hand() -> None:
    """20 us, and 8 experts of 3 · 2048 · 768 bf16 weights at 79 % of 4.8 TB/s."""
    pool = QWEN_MOE.routed
    assert pool is not None
    found = expert_seconds(pool, tokens=np.ones(1), per_request=1, gpu=H200, gpus=1, dtype=Dtype.BF16)[0]
    assert found == pytest.approx(20e-6 + 8 * 3 * 2048 * 768 * 2 / (0.79 * 4.8e12), rel=0.001)


def test_the_forward_of_a_mixture_adds_its_experts_and_reads_the_rest_like_a_dense_model() -> None:
    """Experts priced twice, or as one dense block, are off by their sparsity."""
    where = placed(QWEN_MOE, gpu=H200, gpus=1, dtype=Dtype.BF16)
    terms = forward(QWEN_MOE, where, max_tokens=16, per_request=4)
    assert terms.decoder_s == pytest.approx(terms.linears_s + terms.experts_s)
    assert terms.experts_s[4] > 1.3 * terms.experts_s[1]
    dense = forward(model("qwen3-8b"), where, max_tokens=4, per_request=1)
    assert not dense.experts_s.any()


def test_latent_attention_pays_for_each_verified_token_and_grouped_queries_do_not() -> None:
    """242 FLOP per byte and token lie at the ridge: three more tokens take about four times the arithmetic."""
    terms = forward(DEEPSEEK, placed(DEEPSEEK, gpu=H200, gpus=8, dtype=Dtype.FP8), max_tokens=4, per_request=4)
    assert DEEPSEEK.attention_flops == 61 * 2 * 128 * (576 + 512)
    assert DEEPSEEK.prefill_attention_flops == 61 * 2 * 128 * (192 + 128)
    assert terms.kv_read_s == pytest.approx(70_272 / (4.8e12 * 0.92))
    alone = forward(DEEPSEEK, Placement(gpu=H200, gpus=1, dtype=Dtype.FP8), max_tokens=4, per_request=4)
    assert alone.kv_token_s(8) == pytest.approx(2 * alone.kv_token_s(4))
    grouped = model("llama-3.1-8b")
    few = forward(grouped, placed(grouped, gpu=H200, gpus=1, dtype=Dtype.BF16), max_tokens=4, per_request=4)
    assert few.kv_token_s(4) == few.kv_token_s(1) == few.kv_read_s
    assert grouped.prefill_attention_flops == grouped.attention_flops


def test_a_recurrent_state_is_written_once_per_verified_token() -> None:
    """One read and K + 1 writes, against one and one: what makes hybrids dear to verify."""
    hybrid, K = model("qwen3.6-27b"), 3
    speculation = Speculation(Method.MTP, K, None)
    draft = mtp_layer(hybrid)

    def seconds(shape: ModelShape, each: Speculation | None) -> float:
        cost = step_cost(target=shape, gpu=H200, gpus=1, dtype=Dtype.BF16, speculation=each, draft=draft, max_tokens=64, max_requests=4)
        return step_seconds(cost, requests=4, context_tokens=100, speculation=each, coverage=1.0)

    state_s = 37_748_736 * 4 / (4.8e12 * 0.16)
    without = replace(hybrid, state_elements=0)
    assert seconds(hybrid, None) - seconds(without, None) == pytest.approx(4 * 2 * state_s)
    assert seconds(hybrid, speculation) - seconds(without, speculation) == pytest.approx(4 * (1 + 1 + K) * state_s)


@pytest.mark.parametrize(("requests", "measured_ms"), [(1, 21.2), (8, 24.7), (32, 37.1)])
def test_a_plain_step_of_a_hybrid_takes_what_was_measured(requests: int, measured_ms: float) -> None:
    """Qwen3.6-27B in bf16 on 2 A100, plain arms of the Domino model card: each request's state costs .4 ms a step, its KV cache .01 ms."""
    cost = step_cost(
        target=model("qwen3.6-27b"),
        gpu=gpu("a100"),
        gpus=2,
        dtype=Dtype.BF16,
        speculation=None,
        draft=None,
        max_tokens=requests,
        max_requests=requests,
    )
    found = 1e3 * step_seconds(cost, requests=requests, context_tokens=700, speculation=None, coverage=0.0)
    assert found == pytest.approx(measured_ms, rel=0.03)


def test_a_mixture_of_experts_in_fp4_reads_the_rest_in_bf16() -> None:
    """Attention priced at a quarter of its bytes makes a plain step look short and every draft dear. A dense model is fp4 throughout."""
    where = {dtype: Placement(gpu=gpu("gb200"), gpus=4, dtype=dtype) for dtype in (Dtype.FP4, Dtype.BF16)}
    mixed = {dtype: forward(DEEPSEEK, each, max_tokens=1, per_request=1) for dtype, each in where.items()}
    assert mixed[Dtype.FP4].linears_s[1] == mixed[Dtype.BF16].linears_s[1]
    assert mixed[Dtype.FP4].experts_s[1] < mixed[Dtype.BF16].experts_s[1]
    dense = {dtype: forward(model("qwen3-32b"), each, max_tokens=1, per_request=1).linears_s[1] for dtype, each in where.items()}
    assert dense[Dtype.FP4] < dense[Dtype.BF16] / 2


def test_a_step_past_the_captured_size_waits_for_its_launches() -> None:
    """512 tokens on Hopper, 1024 on Blackwell; a graph replayed past its size does not exist."""
    assert (captured_tokens(H200), captured_tokens(gpu("b300")), captured_tokens(replace(H200, name="own"))) == (512, 1024, 512)
    shape = model("llama-3.2-1b")
    terms = forward(shape, placed(shape, gpu=H200, gpus=1, dtype=Dtype.BF16), max_tokens=513, per_request=1)
    assert terms.decoder_s[513] == pytest.approx(16 * 0.0004)
    assert terms.decoder_s[512] < terms.decoder_s[513]


def test_heads_of_mixtures_have_sizes_of_their_own() -> None:
    """An EAGLE-3 head of DeepSeek-V3 is 1.448 billion weights, of Qwen3-30B-A3B .183, of gpt-oss .308."""
    for name, billions in (("deepseek-v3", 1.448), ("qwen3-30b-a3b", 0.183), ("gpt-oss-120b", 0.308), ("llama-3.1-8b", 0.425)):
        shape = model(name)
        head = eagle3_head(shape, draft_vocab=32_000, intermediate=head_intermediate(shape))
        assert head.parameters / 1e9 == pytest.approx(billions, abs=0.001)
    unknown = replace(QWEN_MOE, name="somebody's own")
    assert head_intermediate(unknown) == 6 * 2048


def test_a_layer_of_experts_that_drafts_reads_only_some_of_them() -> None:
    """An MTP layer of DeepSeek-V3 holds 11.6 billion weights and reads about half a billion for one request."""
    layer = mtp_layer(DEEPSEEK)
    assert layer.parameters / 1e9 == pytest.approx(11.6, abs=0.1)
    assert layer.expert_layers == 1
    assert layer.active_parameters - layer.pass_parameters == 8 * 3 * 7168 * 2048
    whole = draft_model(QWEN_MOE)
    assert whole.active_parameters == QWEN_MOE.active_parameters
    assert (whole.expert_layers, draft_model(model("qwen3-0.6b")).expert_layers) == (48, 0)
    head = draft_shape(Method.EAGLE3, target=DEEPSEEK, draft=None, draft_vocab=32_000)
    assert head is not None
    assert head.active_parameters == head.parameters
    assert head.pass_parameters == head.parameters - 3 * 7168**2


def test_a_parallel_drafter_drafts_all_its_tokens_in_one_pass() -> None:
    """Priced pass by pass, DFlash at K = 15 would look slower than plain decoding."""
    target = model("llama-3.1-8b")

    def ratio(K: int, draft: DraftShape) -> float:
        speculation = Speculation(Method.MTP, K, None)
        cost = step_cost(
            target=target, gpu=H200, gpus=1, dtype=Dtype.BF16, speculation=speculation, draft=draft, max_tokens=64, max_requests=1
        )
        return step_seconds(cost, requests=1, context_tokens=700, speculation=speculation, coverage=1.0)

    block = block_drafter(target)
    assert ratio(15, block) < 1.1 * ratio(3, block)
    assert ratio(15, mtp_layer(target)) > 1.5 * ratio(3, mtp_layer(target))


def test_each_layer_of_a_parallel_drafter_waits_to_be_launched() -> None:
    """Five layers launched as quickly as one made DFlash a third cheaper than it was (Qwen3.6-27B on 2 A100, Domino model card)."""
    target, where = model("llama-3.1-8b"), Placement(gpu=H200, gpus=1, dtype=Dtype.BF16)
    block = block_drafter(target)
    verify = forward(target, where, max_tokens=8, per_request=8)

    def draft_s(draft: DraftShape) -> float:
        found = drafting(
            Speculation(Method.MTP, 7, None), draft, target=target, where=where, verify=verify, max_requests=1, engine=uncalibrated(1)
        )
        return float(found.draft_s[1])

    read_s = (draft_s(block) - 0.0006) / (1 + 7 / 256) - 5 * 0.00025
    assert read_s == pytest.approx(2 * (5 * target.dense_layer_parameters + target.head_parameters) / 3.6e12, rel=0.1)
    assert draft_s(replace(block, whole_block=False)) == pytest.approx(0.0006 + 7 * (0.00025 + read_s) * (1 + 1 / 256))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Experts(count=8, per_token=9, intermediate=1, shared_intermediate=0, dense_layers=0), "more than"),
        (lambda: Experts(count=0, per_token=1, intermediate=1, shared_intermediate=0, dense_layers=0), "count"),
        (lambda: LatentAttention(kv_rank=0, query_rank=None, rope_dim=1, nope_dim=1, value_dim=1), "kv_rank"),
        (lambda: replace(QWEN_MOE, kv_layers=49), "KV layers"),
        (lambda: replace(QWEN_MOE, state_elements=-1), "no count"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(made: object, said: str) -> None:
    """A damaged table would be priced with a straight face."""
    with pytest.raises(BadInputError, match=said):
        made()  # type: ignore[operator]  # a table of calls


LENGTHS = Lengths(prompt_tokens=500, output_tokens=400, context_tokens=700)


def row(target: ModelShape, on: Gpu, gpus: int, dtype: Dtype, *, K: int, B: int, alpha: float = 0.6, context: int = 700) -> ForecastRow:
    """One forecast with an EAGLE-3 head, room for everything."""
    big = replace(on, memory_bytes=1e15)
    (found,) = forecast(
        target=target,
        where=Placement(gpu=big, gpus=gpus, dtype=dtype),
        speculation=Speculation(Method.EAGLE3, K, None),
        draft=draft_shape(Method.EAGLE3, target=target, draft=None, draft_vocab=32_000),
        acceptance=exactly(Acceptance.from_alpha(alpha, draft_tokens=K)),
        concurrencies=[B],
        lengths=replace(LENGTHS, context_tokens=context),
        draft_lengths=range(1, 9),
        utilisation=0.9,
    )
    return found


def test_a_mixture_says_that_its_experts_bind_and_carries_a_wider_range() -> None:
    """At batch 8 most of what a step reads is experts; who routes how is not published, so the range is half as wide again."""
    found = row(model("qwen3-235b-a22b"), H200, 8, Dtype.BF16, K=3, B=8)
    assert found.bound is Bound.EXPERTS
    ratio = found.step_time_ratio
    assert ratio.high is not None
    assert ratio.high / ratio.value == pytest.approx(exp(1.28 * 1.5 * published_error()))


def test_a_step_past_what_was_captured_or_measured_warns_and_widens() -> None:
    """Extrapolated in silence, 600 requests would be promised what nobody measured."""
    inside, past, far = (row(model("llama-3.1-8b"), H200, 1, Dtype.BF16, K=3, B=B) for B in (128, 129, 513))
    assert inside.warnings == ()
    assert [len(each.warnings) for each in (past, far)] == [1, 2]
    assert "CUDA graphs" in past.warnings[0]
    assert "measured" in far.warnings[1]
    widths = [(each.step_time_ratio.high or 0) - each.step_time_ratio.value for each in (inside, past, far)]
    assert widths == sorted(widths)


@given(K=st.integers(1, 6), name=st.sampled_from(["llama-3.1-8b", "qwen3-32b", "llama-3.3-70b"]))
@settings(max_examples=15, deadline=None)
def test_past_the_ridge_the_speed_up_of_a_dense_model_falls_with_the_batch(K: int, name: str) -> None:
    """Trend (e): at fixed context, once verifying is bound by arithmetic, every further request costs speed-up."""
    found = [row(model(name), H200, 1, Dtype.BF16, K=K, B=B).speedup.value for B in (128, 256, 512)]
    assert found == sorted(found, reverse=True)


@given(context=st.integers(500, 8000), K=st.integers(1, 5))
@settings(max_examples=15, deadline=None)
def test_at_a_large_batch_the_speed_up_rises_with_context(context: int, K: int) -> None:
    """Trend (e): reading the cache once per request is shared by all verified tokens."""
    short, long = (row(model("llama-3.1-8b"), H200, 1, Dtype.BF16, K=K, B=256, context=each) for each in (context, 2 * context))
    assert long.speedup.value >= short.speedup.value


@given(alpha=st.floats(0.2, 0.8))
@settings(max_examples=15, deadline=None)
def test_the_best_draft_length_never_rises_with_the_batch(alpha: float) -> None:
    """Trend (e): what is verified beyond the batch's ridge is paid in full."""
    found = [row(model("llama-3.1-8b"), H200, 1, Dtype.BF16, K=3, B=B, alpha=alpha).best_draft_tokens for B in (8, 64, 256)]
    assert all(each is not None for each in found)
    assert found == sorted(found, reverse=True)  # type: ignore[type-var]  # none is None


def test_the_speed_up_of_a_mixture_rises_with_concurrency_until_its_experts_are_all_read() -> None:
    """Trend (e): Hy3 went from 1.6 to 2.1 times between 4 and 64 requests; a dense model does not do that."""
    mixture = [row(model("qwen3-235b-a22b"), H200, 8, Dtype.BF16, K=3, B=B).speedup.value for B in (2, 16, 64)]
    assert mixture == sorted(mixture)
    assert mixture[-1] > 1.1 * mixture[0]


@given(
    count=st.integers(8, 512), share=st.floats(0.01, 0.25), K=st.integers(1, 8), tokens=st.lists(st.floats(1, 600), min_size=2, max_size=2)
)
@settings(max_examples=60, deadline=None)
def test_what_verifying_reads_beyond_plain_decoding_wears_off_with_the_batch(count: int, share: float, K: int, tokens: list[float]) -> None:
    """N(t) = E(1 − (1 − k/E)^t): N((K + 1)·t) / N(t) is near K + 1 for one request and sinks to 1 once all experts are read anyway."""
    pool = Routed(count, max(1, round(share * count)), 1)
    few, many = sorted(tokens)
    ratios = [
        float(pool.distinct(np.array([(K + 1) * each]), novelty=1.0)[0] / pool.distinct(np.array([each]), novelty=1.0)[0])
        for each in (few, many)
    ]
    assert 1 - 1e-12 <= ratios[1] <= ratios[0] + 1e-12 <= K + 1 + 1e-9
    assert pool.distinct(np.array([1e5]), novelty=1.0)[0] == pytest.approx(count)


SPARSE = [name for name in known_models() if (experts := model(name).experts) is not None and 12 * experts.per_token <= experts.count]


@given(name=st.sampled_from(SPARSE), K=st.integers(2, 5), dtype=st.sampled_from([Dtype.BF16, Dtype.FP8]))
@settings(max_examples=40, deadline=None)
def test_the_speed_up_of_a_sparse_mixture_falls_and_rises_again_with_concurrency(name: str, K: int, dtype: Dtype) -> None:
    """Trend (e), for every sparse mixture known: one valley, where drafts of a few requests read experts that plain decoding leaves alone.

    Up to the captured size: beyond it a step waits for its launches.
    """
    experts = model(name).experts
    assert experts is not None
    sizes = [2**i for i in range(10) if 2**i * (K + 1) <= captured_tokens(H200)]
    found = [row(model(name), H200, 8, dtype, K=K, B=B).speedup.value for B in sizes]
    valley = int(np.argmin(found))
    peak = valley + int(np.argmax(found[valley:]))
    assert 0 < valley < peak
    assert sizes[valley] <= experts.count / experts.per_token, "by then two thirds of the experts are read anyway"
    assert all(after <= before * 1.005 for before, after in pairwise(found[: valley + 1]))
    assert all(after >= before * 0.995 for before, after in pairwise(found[valley : peak + 1]))
    assert found[peak] > 1.04 * found[valley]


@given(name=st.sampled_from([each for each in known_models() if model(each).experts is not None]), requests=st.integers(1, 64))
@settings(max_examples=30, deadline=None)
def test_speculative_steps_of_a_mixture_are_never_cheaper_than_plain_ones(name: str, requests: int) -> None:
    """ρ below 1 would give speed-ups above the tokens per step."""
    shape = model(name)
    for method in (Method.MTP, Method.EAGLE3, Method.NGRAM):
        speculation = Speculation(method, 3, None)
        draft = draft_shape(method, target=shape, draft=None, draft_vocab=32_000)
        plain, ours = (
            step_cost(target=shape, gpu=H200, gpus=8, dtype=Dtype.FP8, speculation=each, draft=draft, max_tokens=256, max_requests=64)
            for each in (None, speculation)
        )
        assert (np.diff(ours.token_s) >= -1e-15).all()
        slow = step_seconds(ours, requests=requests, context_tokens=700, speculation=speculation, coverage=1.0)
        assert slow >= step_seconds(plain, requests=requests, context_tokens=700, speculation=None, coverage=1.0)
