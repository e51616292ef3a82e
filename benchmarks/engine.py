"""Tokens per second of the drafting engine, by drafter, beside plain decoding and transformers' own generation, in one run.

    python benchmarks/engine.py MODEL --head HEAD --traffic LOG --prompts 20 --threads 2

Every prompt is written by every arm before the next prompt begins, in an order that rotates, so that a slow minute of the machine falls on
all of them alike. An arm's ratio is the median over prompts or batches of its tokens per second over plain decoding's; greedy
throughout. Texts that differ from plain decoding's are counted, with the margin between the two best logits where they part: a margin of a
thousandth is rounding. Needs the extra `engine`.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from paceline.data.tables import demo_traffic_lines
from paceline.engine.drafters.drafter import Drafter
from paceline.engine.generate import Generation, acceptance_of, generate
from paceline.engine.rows import Row
from paceline.engine.sampling import GREEDY
from paceline.engine.speculative_sampling import Generated
from paceline.engine.target import Target
from paceline.jobs.generating import Engine, Generating, load_drafter, load_engine
from paceline.replay.ngram import NgramRule
from paceline.replay.suffix import SuffixRule
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method, Tree

NGRAM = NgramRule(min_tokens=2, max_tokens=4, draft_tokens=3)
SUFFIX = SuffixRule(depth=24, cached_requests=10_000, factor=1.0, least_probability=0.1, draft_tokens=24)
PLAIN = "plain"


@dataclass(slots=True)
class Arm:
    """One way of writing, and what it did: seconds and tokens by prompt, texts, acceptance."""

    run: Callable[[Sequence[tuple[int, ...]]], tuple[list[list[int]], AcceptanceCounts | None]]
    rates: list[float] = field(default_factory=list)
    texts: list[list[int]] = field(default_factory=list)
    counts: AcceptanceCounts = field(default_factory=AcceptanceCounts.none)

    def write(self, prompts: Sequence[tuple[int, ...]]) -> None:
        """Write a text for each, and time them together."""
        started_at = perf_counter()
        texts, counts = self.run(prompts)
        self.rates.append(sum(map(len, texts)) / (perf_counter() - started_at))
        self.texts += texts
        self.counts += counts or AcceptanceCounts.none()


def asked(traffic: str, count: int) -> list[str]:
    """The first user message of so many exchanges."""
    lines: Sequence[bytes | str] = demo_traffic_lines() if traffic == "demo" else Path(traffic).read_text(encoding="utf-8").splitlines()
    exchanges = (json.loads(line)["messages"] for line in lines)
    return [next(each["content"] for each in messages if each["role"] == "user") for messages in exchanges][:count]


def ours(engine: Engine, drafter: Drafter | None, *, tokens: int, positions: int) -> Arm:
    """Our engine with a drafter, or plain."""

    def run(prompts: Sequence[tuple[int, ...]]) -> tuple[list[list[int]], AcceptanceCounts | None]:
        made = [Generation(prompt) for prompt in prompts]
        stops, chances = engine.chat.end_ids, [Generated(1) for _ in prompts]
        for _ in generate(engine.target, drafter, made, sampling=GREEDY, most_tokens=tokens, stops=stops, chances=chances):
            pass
        counts = sum((acceptance_of(each, positions=positions) for each in made), AcceptanceCounts.none())
        return [each.output for each in made], counts

    return Arm(run)


def theirs(model: Any, engine: Engine, *, tokens: int, **settings: Any) -> Arm:
    """Transformers' generation."""

    def one(prompt: tuple[int, ...]) -> list[int]:
        ids = torch.tensor([prompt])
        end = sorted(engine.chat.end_ids)
        mask = torch.ones_like(ids)
        with torch.no_grad():
            made = model.generate(
                ids, attention_mask=mask, do_sample=False, max_new_tokens=tokens, eos_token_id=end, pad_token_id=end[0], **settings
            )
        text: list[int] = made[0, len(prompt) :].tolist()
        return text

    return Arm(lambda prompts: ([one(each) for each in prompts], None))


def arms(engine: Engine, options: argparse.Namespace) -> dict[str, Arm]:
    """All that is compared."""
    target, tokens = engine.target, options.max_tokens

    def drafting(method: Method, draft: Path | None, *, tree: Tree | None = None) -> Arm:
        depth = options.draft_tokens if tree is None else tree.depth
        rule = SUFFIX if method is Method.SUFFIX else NGRAM
        how = Generating(method=method, draft=draft, draft_tokens=depth, tree=tree, draft_temperature=0.0, rule=rule)
        return ours(engine, load_drafter(how, target), tokens=tokens, positions=rule.draft_tokens if draft is None else depth)

    found = {PLAIN: ours(engine, None, tokens=tokens, positions=0)}
    found["n-gram"] = drafting(Method.NGRAM, None)
    found["suffix"] = drafting(Method.SUFFIX, None)
    if options.head is not None:
        found[f"EAGLE-3, chain of {options.draft_tokens}"] = drafting(Method.EAGLE3, options.head)
        found["EAGLE-3, tree 4,2,7"] = drafting(Method.EAGLE3, options.head, tree=Tree(4, 2, 7))
    if options.eagle1 is not None:
        found[f"EAGLE-1, chain of {options.draft_tokens}"] = drafting(Method.EAGLE, options.eagle1)
        found["EAGLE-2, tree 4,2,7"] = drafting(Method.EAGLE2, options.eagle1, tree=Tree(4, 2, 7))
    if options.draft is not None:
        found["draft model"] = drafting(Method.DRAFT_MODEL, options.draft)
    if not options.without_transformers:
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).eval()
        found["transformers, plain"] = theirs(model, engine, tokens=tokens)
        found["transformers, prompt lookup"] = theirs(model, engine, tokens=tokens, prompt_lookup_num_tokens=options.draft_tokens)
        if options.draft is not None:
            assistant = AutoModelForCausalLM.from_pretrained(options.draft, dtype=torch.float32).eval()
            found["transformers, assisted"] = theirs(model, engine, tokens=tokens, assistant_model=assistant)
    return found


def margins(target: Target, prompts: Sequence[tuple[int, ...]], plain: Arm, arm: Arm) -> list[float]:
    """Where a text parts from plain decoding's: how far apart the target's two best logits lie there."""
    found = []
    for prompt, one, other in zip(prompts, plain.texts, arm.texts, strict=True):
        place = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
        if place is not None:
            row = Row(torch.tensor((*prompt, *one[:place])), target.new_cache(), None, 1)
            best = target.forward([row], hidden_layers=())[0].logits[0].topk(2).values
            found.append(float(best[0] - best[1]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="the target's folder")
    parser.add_argument("--head", type=Path, default=None, help="an EAGLE-3 head's folder")
    parser.add_argument("--eagle1", type=Path, default=None, help="a head in EAGLE-1's layout: a chain, and EAGLE-2's tree")
    parser.add_argument("--draft", type=Path, default=None, help="a draft model's folder")
    parser.add_argument("--traffic", default="demo", help="a chat log (JSON lines), or demo")
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--batch", type=int, default=1, help="prompts written together by our arms, and timed together")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--draft-tokens", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--without-transformers", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    engine = load_engine(options.model, dtype="float32", device="cpu")
    prompts = [engine.prompt_tokens(each, raw=False) for each in asked(options.traffic, options.prompts)]
    compared = arms(engine, options)
    for arm in compared.values():
        arm.run(prompts[:1])  # kernels are compiled, caches filled
    order = list(compared.values())
    for number, begin in enumerate(range(0, len(prompts), options.batch)):
        for arm in (*order[number % len(order) :], *order[: number % len(order)]):
            arm.write(prompts[begin : begin + options.batch])
    plain = compared[PLAIN]
    print(f"{options.model.name}, float32, {options.threads} threads, {len(prompts)} prompts, up to {options.max_tokens} tokens, greedy\n")
    print(f"{'arm':30} {'tokens/s':>9} {'x plain':>8} {'τ':>6} {'α':>6}  texts that differ (largest margin)")
    for name, arm in compared.items():
        ratio = median(a / b for a, b in zip(arm.rates, plain.rates, strict=True))
        drafted = arm.counts.drafts > 0
        tau, alpha = (f"{arm.counts.tokens_per_step:.2f}", f"{arm.counts.alpha:.3f}") if drafted else ("", "")
        apart = margins(engine.target, prompts, plain, arm)
        differ = f"{len(apart)} ({max(apart):.5f})" if apart else "0"
        print(f"{name:30} {median(arm.rates):9.1f} {ratio:8.2f} {tau:>6} {alpha:>6}  {differ}")


if __name__ == "__main__":
    main()
