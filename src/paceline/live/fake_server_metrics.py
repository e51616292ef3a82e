"""What the fake server counts, as vLLM's V1 engine exports it (names, labels, buckets and `_created` series of 0.32).

Rules that readers rely on: inter-token latency has one observation per request and step, however many tokens the step gave; a draft is
counted only where a step had one; accepted tokens are counted before the end of the output cuts them; speculation's series are absent from
a server that does not draft. Seconds are those of the schedule, on the wall's clock.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

from paceline.simulate.online import Chunk, Gauges

__all__ = ["Counters", "Histogram", "exposition"]

FIRST_TOKEN_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560)
STEP_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
REQUEST_S = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)
STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
REASONS = ("stop", "length", "abort", "error", "repetition")


class Histogram:
    """Observations by bucket, their sum and how many there were."""

    def __init__(self, buckets: tuple[float, ...]) -> None:
        self.buckets = buckets
        self.counts = [0] * (len(buckets) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one observation."""
        self.counts[bisect_left(self.buckets, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """How many observations there were."""
        return sum(self.counts)


def _histograms() -> dict[str, Histogram]:
    return {
        "request_prompt_tokens": Histogram(TOKENS),
        "request_generation_tokens": Histogram(TOKENS),
        "iteration_tokens_total": Histogram(STEP_TOKENS),
        "time_to_first_token_seconds": Histogram(FIRST_TOKEN_S),
        "inter_token_latency_seconds": Histogram(STEP_S),
        "request_time_per_output_token_seconds": Histogram(STEP_S),
        "e2e_request_latency_seconds": Histogram(REQUEST_S),
        "request_decode_time_seconds": Histogram(REQUEST_S),
    }


@dataclass(slots=True)
class Counters:
    """Everything counted since the start, or the last reset, of a server that drafts up to `draft_tokens` (0: it does not)."""

    draft_tokens: int
    created_s: float
    preemptions_before: int = 0
    drafts: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    prompt_tokens: int = 0
    generation_tokens: int = 0
    success: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    histograms: dict[str, Histogram] = field(default_factory=_histograms)

    def __post_init__(self) -> None:
        """One counter per position."""
        self.accepted_per_position = [0] * self.draft_tokens

    def step(self, chunks: Iterable[Chunk]) -> None:
        """Count what a step drafted and gave."""
        tokens = 0
        for chunk in chunks:
            tokens += chunk.tokens
            if chunk.drafted_tokens:
                self.drafts += 1
                self.drafted_tokens += chunk.drafted_tokens
                self.accepted_tokens += chunk.accepted_tokens
                for position in range(chunk.accepted_tokens):
                    self.accepted_per_position[position] += 1
        self.generation_tokens += tokens
        if tokens:
            self.histograms["iteration_tokens_total"].observe(tokens)

    def first_token(self, *, waited_s: float, prompt_tokens: int) -> None:
        """A request got its first token."""
        self.prompt_tokens += prompt_tokens
        self.histograms["time_to_first_token_seconds"].observe(waited_s)

    def gap(self, gap_s: float) -> None:
        """A request got a chunk so long after the one before."""
        self.histograms["inter_token_latency_seconds"].observe(gap_s)

    def finished(self, *, reason: str, prompt_tokens: int, tokens: int, e2e_s: float, decode_s: float) -> None:
        """A request got its last token."""
        self.success[reason] += 1
        for name, value in {
            "request_prompt_tokens": prompt_tokens,
            "request_generation_tokens": tokens,
            "request_time_per_output_token_seconds": decode_s / (tokens - 1) if tokens > 1 else 0.0,
            "e2e_request_latency_seconds": e2e_s,
            "request_decode_time_seconds": decode_s,
        }.items():
            self.histograms[name].observe(value)

    def aborted(self) -> None:
        """A request left before its last token."""
        self.success["abort"] += 1


def exposition(counters: Counters, gauges: Gauges, *, model: str, started_s: float, kv_blocks: int, block_tokens: int) -> str:
    """The text of /metrics."""
    escaped = model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    lines: list[str] = []
    labels = f'engine="0",model_name="{escaped}"'
    if counters.draft_tokens:
        _counter(lines, "spec_decode_num_drafts", {labels: counters.drafts}, counters.created_s)
        _counter(lines, "spec_decode_num_draft_tokens", {labels: counters.drafted_tokens}, counters.created_s)
        _counter(lines, "spec_decode_num_accepted_tokens", {labels: counters.accepted_tokens}, counters.created_s)
        by_position = {f'{labels},position="{i}"': count for i, count in enumerate(counters.accepted_per_position)}
        _counter(lines, "spec_decode_num_accepted_tokens_per_pos", by_position, counters.created_s)
    for name, value in {
        "num_requests_running": float(gauges.running),
        "num_requests_waiting": float(gauges.waiting),
        "kv_cache_usage_perc": gauges.kv_usage,
    }.items():
        lines += [f"# HELP vllm:{name} {name}", f"# TYPE vllm:{name} gauge", f"vllm:{name}{{{labels}}} {value}"]
    _counter(lines, "num_preemptions", {labels: gauges.preemptions - counters.preemptions_before}, counters.created_s)
    _counter(lines, "prompt_tokens", {labels: counters.prompt_tokens}, counters.created_s)
    _counter(lines, "generation_tokens", {labels: counters.generation_tokens}, counters.created_s)
    success = {f'engine="0",finished_reason="{reason}",model_name="{escaped}"': n for reason, n in counters.success.items()}
    _counter(lines, "request_success", success, counters.created_s)
    for name, histogram in counters.histograms.items():
        _histogram(lines, name, histogram, model=escaped, created_s=counters.created_s)
    lines += ["# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig", "# TYPE vllm:cache_config_info gauge"]
    lines.append(f'vllm:cache_config_info{{block_size="{block_tokens}",engine="0",num_gpu_blocks="{kv_blocks}"}} 1.0')
    lines += ["# HELP process_start_time_seconds Start time of the process since unix epoch in seconds."]
    lines += ["# TYPE process_start_time_seconds gauge", f"process_start_time_seconds {started_s}"]
    return "\n".join(lines) + "\n"


def _counter(lines: list[str], name: str, by_labels: dict[str, int], created_s: float) -> None:
    for suffix, kind in (("total", "counter"), ("created", "gauge")):
        lines += [f"# HELP vllm:{name}_{suffix} {name}", f"# TYPE vllm:{name}_{suffix} {kind}"]
        lines += [f"vllm:{name}_{suffix}{{{labels}}} {float(n) if kind == 'counter' else created_s}" for labels, n in by_labels.items()]


def _histogram(lines: list[str], name: str, histogram: Histogram, *, model: str, created_s: float) -> None:
    lines += [f"# HELP vllm:{name} {name}", f"# TYPE vllm:{name} histogram"]
    below = 0
    for bucket, count in zip((*map(float, histogram.buckets), "+Inf"), histogram.counts, strict=True):
        below += count
        lines.append(f'vllm:{name}_bucket{{engine="0",le="{bucket}",model_name="{model}"}} {float(below)}')
    labels = f'engine="0",model_name="{model}"'
    lines += [f"vllm:{name}_count{{{labels}}} {float(below)}", f"vllm:{name}_sum{{{labels}}} {histogram.total!r}"]
    lines += [f"# HELP vllm:{name}_created {name}", f"# TYPE vllm:{name}_created gauge", f"vllm:{name}_created{{{labels}}} {created_s}"]
