"""Causes in what a step with drafts costs: verification, experts, full batches, the draft's own passes, drafting that is switched off."""

import re
from collections.abc import Iterator

from paceline.decide.diagnosis.case import Case
from paceline.decide.diagnosis.cause import Cause, Surely, Unchecked
from paceline.decide.diagnosis.usual import shortfall
from paceline.speculation.method import Method
from paceline.verdict import Estimate

__all__ = ["cost_causes"]

DEARER = 1.25  # times the usual before it is called dear: engines differ by less
FULL = 200  # tokens per step from which dense layers stop being free on data-centre GPUs (measured 1.2 to 1.45 times at 256)
EXPERTS_IN_NAME = re.compile(
    r"(?:\bA|-A)\d+(?:\.\d+)?B\b|\bMoE\b|\d+x\d+B|\d+B-\d+E\b|gpt-oss|DeepSeek-V|Mixtral|GLM-[45]|Kimi-K", re.IGNORECASE
)
DEAR_PASS = 0.2  # of a plain step, per drafted token
NOT_FREE = 1.01
A_REASON = 0.9  # ranks behind what it is a reason for
CAPTURED = {"cuda_graph_max_bs": False, "max_cudagraph_capture_size": True}  # by name: whether it counts tokens, not requests
COMPARE = "a baseline run under the same load"


def cost_causes(case: Case) -> Iterator[Cause | Unchecked]:
    """All of them."""
    yield from _disabled(case)
    yield from _graphs(case)
    yield from _verification(case)
    yield from _full_batch(case)
    yield from _forecast(case)


def _verification(case: Case) -> Iterator[Cause | Unchecked]:
    ratio, tokens, k, short = case.figures.step_time_ratio, case.figures.tokens_per_step, case.draft_tokens, shortfall(case)
    if ratio is None or tokens is None or k is None or short is None:
        yield Unchecked("verification_cost", _missing(case))
        return
    if case.pays is not False or (short.dearer <= DEARER and short.fewer > short.dearer):
        return
    usual = short.usual_ratio
    yield Cause(
        "verification_cost",
        f"a step with drafts takes {ratio.value:.3g} plain steps, so {ratio.value:.3g} tokens per step are needed to break even and "
        f"{tokens.value:.3g} come; {usual:.2g} plain steps are usual at K = {k}",
        {"step_time_ratio": ratio.value, "break_even_tokens_per_step": ratio.value, "tokens_per_step": tokens.value, "usual_ratio": usual}
        | ({} if case.figures.alpha is None else {"alpha": case.figures.alpha.value})
        | ({} if case.figures.break_even_alpha is None else {"break_even_alpha": case.figures.break_even_alpha.value}),
        "keep speculation off at this load, or draft fewer tokens and measure again; a better draft alone would have to be accepted "
        f"{_needed(ratio.value, k)}",
        Surely.SURE if ratio.low is not None and ratio.low > DEARER * usual else Surely.LIKELY,
        max(0.0, 1 - usual / ratio.value),
    )
    yield from _why_dear(case, ratio, k, usual)


def _needed(ratio: float, k: int) -> str:
    return "more often than always" if ratio > k + 1 else f"at {(ratio - 1) / k:.0%} of its tokens"


def _missing(case: Case) -> str:
    if case.plain is None:
        return f"{COMPARE} (bench --baseline, or its files as the first argument)"
    if case.figures.tokens_per_step is None or case.draft_tokens is None:
        return "the draft length K and tokens per step (acceptance counts with steps)"
    return "seconds per step of both arms at equal load"


def _why_dear(case: Case, ratio: Estimate, k: int, usual: float) -> Iterator[Cause | Unchecked]:
    yield from _experts(case, ratio, loss=A_REASON * max(0.0, 1 - usual / ratio.value))
    yield from _all_reduces(case, ratio)
    if case.method is not None and case.method.method is Method.DRAFT_MODEL:
        each = (ratio.value - 1) / k
        if each > DEAR_PASS:
            yield Cause(
                "draft_model_cost",
                f"each drafted token costs {each:.2g} plain steps, drafting and verification together",
                {"plain_steps_per_drafted_token": each, "step_time_ratio": ratio.value},
                "take a smaller draft model, or a head (EAGLE-3, MTP) that reads the target's own states; a draft costs about its share of "
                "the target's weights, and never less than its layers' launches",
                Surely.POSSIBLE,
                0.3,
            )


def _full_batch(case: Case) -> Iterator[Cause | Unchecked]:
    """Steps that are dear at full batch cost something even where drafting pays on average: the tail has them too."""
    ratio, short, concurrency = case.figures.step_time_ratio, shortfall(case), case.speculative.load.concurrency
    if ratio is None or short is None or short.dearer <= DEARER:
        return
    if concurrency is None:
        yield Unchecked("large_batch", "the requests in flight (concurrency)")
        return
    verified = concurrency * ((case.draft_tokens or 0) + 1 if case.method is None else case.method.verified_tokens)
    if verified >= FULL:
        yield Cause(
            "large_batch",
            f"{concurrency} requests verify {verified} tokens per step, and a step takes {ratio.value:.3g} plain ones; from about {FULL} "
            "tokens on, dense layers have no idle compute",
            {"concurrency": concurrency, "tokens_verified_per_step": verified, "step_time_ratio": ratio.value},
            "draft fewer tokens at this load (vLLM: num_speculative_tokens_per_batch_size), or keep speculation for smaller batches",
            Surely.LIKELY,
            A_REASON * (1 - 1 / short.dearer),
        )


def _experts(case: Case, ratio: Estimate, *, loss: float) -> Iterator[Cause | Unchecked]:
    name = case.told.get("model", "")
    found = EXPERTS_IN_NAME.search(name)
    if case.is_moe is False:
        return
    if not case.is_moe and found is None:
        yield Unchecked("moe_verification", "whether the target has experts (--target)")
        return
    yield Cause(
        "moe_verification",
        "the target has experts, and drafted tokens wake experts of their own: a step of few requests reads the weights of many more "
        f"experts ({ratio.value:.3g} plain steps here); the penalty is worst at small batches",
        {"step_time_ratio": ratio.value} | ({"model": name} if name else {}),
        "draft fewer tokens, or try at higher concurrency, where the experts are read anyway; a better draft is worth more here "
        "than a longer one",
        Surely.LIKELY,
        loss,
    )


def _all_reduces(case: Case, ratio: Estimate) -> Iterator[Cause | Unchecked]:
    told = case.told.get("tensor_parallel_size", "")
    gpus = case.gpus or (int(told) if told.isdecimal() and len(told) < 6 else None)
    if gpus is None:
        yield Unchecked("tensor_parallel_verification", "over how many GPUs the target is split (--target with --gpus)")
    elif gpus > 1:
        yield Cause(
            "tensor_parallel_verification",
            f"the target is split over {gpus} GPUs, which add up every verified token's activations twice per layer",
            {"gpus": gpus, "step_time_ratio": ratio.value},
            "measure with fewer GPUs, or on ones with a faster link; run the draft on one GPU (vLLM: draft_tensor_parallel_size 1)",
            Surely.POSSIBLE,
            0.2,
        )


def _forecast(case: Case) -> Iterator[Cause | Unchecked]:
    ratio, expected = case.figures.step_time_ratio, case.forecast_ratio
    if expected is None:
        yield Unchecked("slower_than_forecast", "target and hardware (--target, --gpu, --gpus)")
        return
    if ratio is None or ratio.value <= DEARER * expected:
        return
    yield Cause(
        "slower_than_forecast",
        f"a step with drafts takes {ratio.value:.3g} plain steps where the forecast for this target and hardware says {expected:.3g}",
        {"step_time_ratio": ratio.value, "forecast_ratio": expected},
        "look at the engine before the draft: graphs that do not cover the batch, eager drafting, a scheduler that lost its overlap, the "
        "draft's tensor parallelism, sampling on the CPU",
        Surely.LIKELY,
        1 - expected / ratio.value,
    )


def _disabled(case: Case) -> Iterator[Cause | Unchecked]:
    """Speculation that is switched on and does not draft still costs something."""
    counts = case.speculative.acceptance_by_segment
    if counts is None or case.counts is not None:
        return
    gain = case.figures.gain
    if gain is None or case.plain is None:
        yield Unchecked("disabled_drafting_not_free", COMPARE)
        return
    if gain.value * NOT_FREE > 1:
        return
    by = "e2e_ratio" if case.figures.speedup is None and case.figures.throughput_ratio is None else "time_ratio"
    yield Cause(
        "disabled_drafting_not_free",
        f"not one draft was made, and it takes {1 / gain.value:.3g} times as long as the baseline",
        {by: 1 / gain.value},
        "drafting that a threshold switches off is no rollback: restart the server without speculation, or send the traffic "
        "to one that has none",
        Surely.LIKELY,
        1 - gain.value,
    )


def _graphs(case: Case) -> Iterator[Cause | Unchecked]:
    concurrency = case.speculative.load.concurrency
    known = {name: int(text) for name in CAPTURED if (text := case.told.get(name, "")).isdecimal() and len(text) < 10}
    if concurrency is None or not known:
        yield Unchecked(
            "batch_beyond_cuda_graphs", f"requests in flight, and the captured batch in the run's arguments ({', '.join(CAPTURED)})"
        )
        return
    for name, captured in known.items():
        verified = 1 if case.method is None else case.method.verified_tokens
        needed = concurrency * verified if CAPTURED[name] else concurrency
        if needed > captured:
            yield Cause(
                "batch_beyond_cuda_graphs",
                f"graphs are captured up to {captured} ({name}) and a step has {needed}: it runs eagerly, launch by launch",
                {"captured_batch": captured, "concurrency": concurrency, "needed": needed},
                f"raise {name} to cover the batch of production and measure again",
                Surely.LIKELY,
                0.5,
            )
