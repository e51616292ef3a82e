"""A domain's head from logs to acceptance: trains it, replays it and the lookups on traffic it has not seen, and times every part.

    python benchmarks/domain_head.py --target DIR --train train.jsonl --test test.jsonl other.jsonl --out DIR

Needs the extra `engine`. The lookups are replayed on the target's own tokens, as the head is. Prints one JSON object.
"""

import argparse
import contextlib
import io
import json
from pathlib import Path
from time import perf_counter
from typing import Any

from paceline.cli.main import main

DRAFT_TOKENS = (1, 3, 5)
LOOKUPS = ("ngram", "suffix")


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--train", type=Path, nargs="+", required=True)
    parser.add_argument("--test", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--max-tokens", type=int, default=160)
    parser.add_argument("--training", nargs=argparse.REMAINDER, default=[], help="what follows goes to train-eagle3")
    return parser.parse_args()


def ran(*words: object) -> tuple[dict[str, Any], float]:
    """What a verb prints with --json, and the seconds it took."""
    began_s, printed = perf_counter(), io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = main([*map(str, words), "--json"])
    assert code == 0, (words, code)
    return json.loads(printed.getvalue()), perf_counter() - began_s


def figures(replayed: dict[str, Any]) -> dict[str, Any]:
    survival = [round(each["value"], 4) for each in replayed["survival"]]
    return {
        "alpha": replayed["alpha"],
        "acceptance_length": replayed["acceptance_length"],
        "tokens_per_step": replayed["tokens_per_step"],
        "survival": survival,
        "steps": replayed["steps"],
    }


def replays(options: argparse.Namespace, test: Path) -> dict[str, Any]:
    """Acceptance of the head and of the lookups on one file."""
    states = options.out / "test" / test.stem
    models = ("--target", options.target, "--draft", options.out / "head", "--method", "eagle3", "--states", states)
    found: dict[str, Any] = {}
    for draft_tokens in DRAFT_TOKENS:
        made, seconds = ran("replay", test, *models, "--draft-tokens", draft_tokens, "--max-tokens", options.max_tokens)
        found[f"eagle3 K={draft_tokens}"] = figures(made) | {"seconds": round(seconds, 1)}
        for method in LOOKUPS:
            looked_up, _ = ran("replay", states / "answers.jsonl", "--method", method, "--draft-tokens", draft_tokens)
            found[f"{method} K={draft_tokens}"] = figures(looked_up)
    return found


def run() -> None:
    options = asked()
    out = options.out / "head"
    words = ("--target", options.target, "--out", out, "--max-tokens", options.max_tokens, *options.training)
    resume = ("--resume",) if out.exists() else ()
    head, seconds = ran("train-eagle3", *options.train, *words, *resume)
    tests = {each.stem: replays(options, each) for each in options.test}
    print(json.dumps({"minutes_from_logs_to_head": round(seconds / 60, 2), "head": head, "tests": tests}, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    run()
