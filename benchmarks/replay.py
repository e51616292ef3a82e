"""Steps per second of the n-gram replay, beside its oracle and vLLM's own proposer.

    python benchmarks/replay.py [--repeats 5] [--streams 200] [--seed 1] [--json]

One step is one decode step of the walk: look the context's suffix up, judge the draft, go on. Each context length gets made-up streams:
prompt tokens with Zipf frequencies, and an output of 257 tokens, half of it passages of the prompt, so that the context is 128 tokens
shorter than named at the first step and 128 longer at the last. n-gram lengths 2 to 4, K = 5. All contenders walk with the same rule;
steps and accepted tokens have to be equal on the same streams, or the benchmark ends with an error.

ours          `replay_streams` as a caller sees it: from streams to counts, prompts entered
ours, steps   the same streams without their prompts: output entered, steps walked
ours, prompt  what the prompts add to that, in prompt tokens per second
oracle        `replay_obviously` on the first 17 output tokens of one stream
vllm          a compiled walk that calls vLLM's compiled proposer at each step, on 8 streams; skipped where vllm cannot be imported

The two that scan their context at each step have no prompt to enter. Contenders take turns within one process; all use one thread, and
time is this process's processor time, which other load on the machine disturbs less than the clock's. Medians over the repeats with
their range; the first call, which compiles or loads what was compiled, is reported apart.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
from numba import njit

from paceline.replay.ngram import NgramRule, replay_streams
from paceline.replay.ngram_oracle import replay_obviously
from paceline.speculation.counts import AcceptanceCounts
from paceline.traffic.exchange import TokenStream

CONTEXT_TOKENS = (512, 2048, 8192, 32768, 131072)
OUTPUT_TOKENS = 257
ORACLE_OUTPUT_TOKENS = 17
VLLM_STREAMS = 8
RULE = NgramRule(min_tokens=2, max_tokens=4, draft_tokens=5)

Tally = tuple[int, int]  # steps, accepted tokens
Walk = Callable[[list[TokenStream]], Tally]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Steps per second (of the prompts: tokens) of one contender at one context length, over the repeats."""

    contender: str
    context_tokens: int
    unit: str
    count: int
    median_per_s: float
    low_per_s: float
    high_per_s: float


def made_up_stream(rng: np.random.Generator, context_tokens: int) -> TokenStream:
    prompt = (rng.zipf(1.3, context_tokens - OUTPUT_TOKENS // 2) % 32_000).astype(np.int32)
    parts: list[Any] = []
    while sum(len(part) for part in parts) < OUTPUT_TOKENS:
        start = int(rng.integers(0, prompt.size - 16))
        parts += [prompt[start : start + int(rng.integers(4, 16))], rng.zipf(1.3, 8) % 32_000]
    output = np.concatenate(parts)[:OUTPUT_TOKENS].astype(np.int32)
    return TokenStream("", "made up", prompt, output, stopped=False)


def cut(streams: list[TokenStream], output_tokens: int) -> list[TokenStream]:
    return [replace(each, output=each.output[:output_tokens]) for each in streams]


def tally(counts: list[AcceptanceCounts]) -> Tally:
    return sum(each.steps or 0 for each in counts), sum(each.accepted_tokens for each in counts)


def walk_ours(streams: list[TokenStream]) -> Tally:
    return tally([each.counts for each in replay_streams(streams, RULE)])


def walk_oracle(streams: list[TokenStream]) -> Tally:
    return tally([replay_obviously(each, RULE) for each in streams])


def vllm_walk() -> Walk | str:
    """A walk over vLLM's proposer, or the reason why there is none."""
    try:
        proposer: Any = import_module("vllm.v1.spec_decode.ngram_proposer")
        propose: Any = proposer._find_longest_matched_ngram_and_propose_tokens  # noqa: SLF001 - the public one needs an engine's configuration
    except (ImportError, AttributeError) as missing:
        return f"vLLM's proposer cannot be imported: {missing}"

    @njit
    def walk(tokens: Any, first: int, min_tokens: int, max_tokens: int, draft_tokens: int) -> Tally:
        steps, accepted, last = 0, 0, first
        while last + 1 < len(tokens):
            draft = propose(tokens[: last + 1], min_tokens, max_tokens, 1 << 30, draft_tokens)
            right = 0
            while right < len(draft) and last + 1 + right < len(tokens) and draft[right] == tokens[last + 1 + right]:
                right += 1
            steps, accepted, last = steps + 1, accepted + right, last + right + 1
        return steps, accepted

    def walk_vllm(streams: list[TokenStream]) -> Tally:
        lengths = RULE.min_tokens, RULE.max_tokens, RULE.draft_tokens
        tallies = [walk(np.concatenate((each.prompt, each.output)), each.prompt.size, *lengths) for each in streams]
        return sum(each[0] for each in tallies), sum(each[1] for each in tallies)

    return walk_vllm


def timed(walk: Walk, streams: list[TokenStream]) -> tuple[float, Tally]:
    start_s = time.process_time()
    steps = walk(streams)
    return time.process_time() - start_s, steps


def warm_up(walks: dict[str, Walk]) -> dict[str, float]:
    """Seconds that the first call of each takes: compiling, or loading what was compiled before."""
    streams = cut([made_up_stream(np.random.default_rng(0), CONTEXT_TOKENS[0])], ORACLE_OUTPUT_TOKENS)
    first = {name: timed(walk, streams) for name, walk in walks.items()}
    if len({counts for _, counts in first.values()}) != 1:
        raise SystemExit(f"the contenders count differently: {first}")
    return {name: spent_s for name, (spent_s, _) in first.items()}


def race(walks: dict[str, Walk], streams: list[TokenStream], *, context_tokens: int, repeats: int) -> list[Result]:
    """The contenders in turns on `streams`, each on as many as it can walk in reasonable time."""
    given = {"ours": streams, "vllm": streams[:VLLM_STREAMS], "oracle": cut(streams[:1], ORACLE_OUTPUT_TOKENS)}
    for name in walks:
        if walks[name](given[name]) != walk_ours(given[name]):
            raise SystemExit(f"{name} counts other steps or accepted tokens than ours at {context_tokens} tokens of context")
    bare = [replace(each, prompt=each.prompt[:0]) for each in streams]
    spent_s: dict[str, list[float]] = {name: [] for name in (*walks, "ours, steps", "ours, prompt")}
    counts = {name: walks[name](given[name])[0] for name in walks}
    counts |= {"ours, steps": walk_ours(bare)[0], "ours, prompt": sum(each.prompt.size for each in streams)}
    for _ in range(repeats):
        for name in walks:
            spent_s[name].append(timed(walks[name], given[name])[0])
        spent_s["ours, steps"].append(timed(walk_ours, bare)[0])
        spent_s["ours, prompt"].append(spent_s["ours"][-1] - spent_s["ours, steps"][-1])
    return [result(name, context_tokens, counts[name], spent_s[name]) for name in spent_s]


def result(name: str, context_tokens: int, count: int, spent_s: list[float]) -> Result:
    rates = [count / each for each in spent_s if each > 0]  # a difference of two times can be negative on a busy machine
    return Result(
        contender=name,
        context_tokens=context_tokens,
        unit="tokens" if name == "ours, prompt" else "steps",
        count=count,
        median_per_s=statistics.median(rates),
        low_per_s=min(rates),
        high_per_s=max(rates),
    )


def shown(results: list[Result], warm_up_s: dict[str, float], skipped: str | None) -> str:
    ours = {each.context_tokens: each.median_per_s for each in results if each.contender == "ours"}
    lines = [f"{'context':>8}  {'contender':<12} {'per second':>20}  {'lowest – highest':<31}  ours is"]
    for each in results:
        spread = f"{each.low_per_s:,.0f} – {each.high_per_s:,.0f}"
        ratio = "" if each.contender.startswith("ours") else f"{ours[each.context_tokens] / each.median_per_s:,.2f} ×"
        rate = f"{each.median_per_s:,.0f} {each.unit:<6}"
        lines.append(f"{each.context_tokens:>8}  {each.contender:<12} {rate:>20}  {spread:<31}  {ratio}".rstrip())
    lines += [f"first call: {name} {spent_s:.2f} s" for name, spent_s in warm_up_s.items()]
    return "\n".join([*lines, *([f"vllm skipped: {skipped}"] if skipped else [])])


def main() -> None:
    parser = argparse.ArgumentParser(description="Steps per second of the n-gram replay.")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    vllm = vllm_walk()
    walks: dict[str, Walk] = {"ours": walk_ours, "oracle": walk_oracle} | ({} if isinstance(vllm, str) else {"vllm": vllm})
    skipped = vllm if isinstance(vllm, str) else None
    warm_up_s = warm_up(walks)
    results: list[Result] = []
    for context_tokens in CONTEXT_TOKENS:
        rng = np.random.default_rng([options.seed, context_tokens])
        streams = [made_up_stream(rng, context_tokens) for _ in range(options.streams)]
        results += race(walks, streams, context_tokens=context_tokens, repeats=options.repeats)
    if options.json:
        records = [{name: getattr(each, name) for name in Result.__slots__} for each in results]
        print(json.dumps({"results": records, "first_call_s": warm_up_s, "vllm_skipped": skipped}, indent=2))
    else:
        print(shown(results, warm_up_s, skipped))


if __name__ == "__main__":
    main()
