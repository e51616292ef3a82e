"""A trained EAGLE-3 head in a real vLLM: where drafting stops paying, and whether replay, texts and a calibrated forecast said so before.

    python benchmarks/head_in_vllm.py --target DIR --head DIR --traffic test.jsonl --vllm-python PATH --out DIR

Runs `paceline rollout --launch vllm` at each concurrency and lays beside it
- α as the server's counters have it around the block, as the counted requests' own counts have it, and as neural replay has it on the very
  prompts that were counted, which the rollout's answers name;
- how often the texts of both arms differ, how often the baseline's own do, and how far the two tokens lie apart where texts part: the
  target's best logit less the lower one of theirs, in float32. Rounding flips what lies close together;
- the forecast that is calibrated on the first concurrencies only (all but the largest), and where it puts the crossing.

With --read nothing is served: an earlier run's folder is read again. Prints a table, and one JSON object into OUT/head-in-vllm.json. Needs
the extra `engine`; vLLM has an environment of its own, and serves in float32: bf16 takes several times as long on a CPU without units for
it. On a machine with other work ratios are right and absolutes are not.
"""

import argparse
import contextlib
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import exp, log
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch

from paceline.cli.main import main
from paceline.engine.rows import Row
from paceline.files.answers import REPEAT, read_answers
from paceline.files.chatlog import read_chat_logs
from paceline.files.dump import measure_dumps
from paceline.files.found import sha256_of
from paceline.files.runfile import read_run
from paceline.jobs.generating import Engine, load_engine
from paceline.report.text import columns
from paceline.run import Arm
from paceline.traffic.exchange import Message
from paceline.traffic.segments import segment_rule

SERVED = "--dtype float32 --max-model-len 1024 --enforce-eager --no-enable-prefix-caching"
FORECAST_AT = (1, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64)


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--head", type=Path, required=True)
    parser.add_argument("--traffic", type=Path, required=True, help="a chat log; --requests of it are counted, and replayed")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--vllm-python", type=Path, default=None)
    parser.add_argument("--read", action="store_true", help="serve nothing; OUT/rollout is there")
    parser.add_argument("--gpu", type=Path, default=None, help="hardware in TOML (default: this machine, as it is found)")
    parser.add_argument("--concurrency", default="1,8,32")
    parser.add_argument("--requests", type=int, default=64, help="counted per arm and concurrency")
    parser.add_argument("--max-tokens", type=int, default=160)
    parser.add_argument("--draft-tokens", type=int, default=3)
    parser.add_argument("--noise-floor", type=float, default=0.5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--vllm-arg", default=SERVED)
    parser.add_argument("--claim", action="append", default=None, help="what must hold (default: speedup >= 1.05)")
    return parser.parse_args()


def ran(*words: object) -> dict[str, Any]:
    """What a verb prints with --json."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = main([*map(str, words), "--json"])
    assert code == 0, (words, code)
    found: dict[str, Any] = json.loads(printed.getvalue())
    return found


def on_cpu(python: Path, threads: int) -> dict[str, str]:
    """What vLLM needs on a CPU, where the user has not said so."""
    wanted = {
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": str(threads),
        "KMP_BLOCKTIME": "0",  # the load-test and the server's front are on the same cores
        "LD_PRELOAD": str(python.parent.parent / "lib" / "libiomp5.so"),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    return {name: value for name, value in wanted.items() if name not in os.environ}


def as_found(file: Path) -> Path:
    """The machine as hardware: its memory, how fast it reads, and how fast it multiplies. A calibration corrects what is off."""
    size, rows = 4096, 256
    matrix, vector, several = torch.ones(size, size), torch.ones(size, 1), torch.ones(size, rows)
    read_s, multiply_s = (min(_seconds(matrix, each) for _ in range(5)) for each in (vector, several))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    stated = {
        "name": f'"CPU, {torch.get_num_threads()} threads"',
        "memory_bytes": f"{memory:.3g}",
        "bandwidth_bytes_per_s": f"{4 * size * size / read_s:.3g}",
        "flops_per_s": f"{{ bf16 = {2 * size * size * rows / multiply_s:.3g} }}",
        "roofline_norm": "1.5",
        "source": '"a float32 matrix of 64 MiB times one vector, and times 256"',
    }
    file.write_text("".join(f"{key} = {value}\n" for key, value in stated.items()), encoding="utf-8")
    return file


def _seconds(matrix: torch.Tensor, other: torch.Tensor) -> float:
    began_s = perf_counter()
    torch.mm(matrix, other)
    return perf_counter() - began_s


def scenario(options: argparse.Namespace, hardware: Path) -> tuple[object, ...]:
    """The words that say what runs on what."""
    drafts = ("--method", "eagle3", "--draft-tokens", options.draft_tokens, "--draft", options.head)
    return ("--target", options.target, "--gpu", hardware, "--gpus", 1, *drafts)


def serve(options: argparse.Namespace, hardware: Path) -> None:
    """The rollout, on servers that it starts."""
    os.environ.update(on_cpu(options.vllm_python, options.threads))
    claims = [word for each in options.claim or ("speedup >= 1.05",) for word in ("--claim", each)]
    most = max(map(int, options.concurrency.split(",")))
    load = ("--concurrency", options.concurrency, "--measured-requests", options.requests, "--max-tokens", options.max_tokens)
    launch = ("--launch", "vllm", "--launch-python", options.vllm_python, f"--launch-arg={options.vllm_arg}", "--max-requests", most)
    sent = ("--noise-floor", options.noise_floor, "--token-budget", max(1024, 8 * most))
    ran(
        "rollout",
        "--traffic",
        options.traffic,
        *scenario(options, hardware),
        *sent,
        *launch,
        *load,
        *claims,
        "--out",
        options.out / "rollout",
    )


def counted_prompts(traffic: Path, answers: Path, log: Path) -> Path:
    """The prompts that a rollout's answers name, in their order, as a log of their own; what was sent twice stands there twice."""
    messages = messages_of(traffic)
    asked_for = [messages[name.partition("#")[0]] for name in read_answers(answers)]
    lines = [json.dumps({"messages": [{"role": each.role, "content": each.content} for each in turns]}) for turns in asked_for]
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("".join(f"{each}\n" for each in lines), encoding="utf-8")
    return log


def messages_of(traffic: Path) -> dict[str, Sequence[Message]]:
    """Each exchange's messages by its id."""
    rule = segment_rule(name=None, field=None)
    return {each.id: each.messages for each in read_chat_logs((traffic,), segment=rule, progress=lambda _: None)}


def replayed(options: argparse.Namespace, concurrency: int) -> dict[str, Any]:
    """Neural replay of the head on the prompts that were counted at that load; loads that counted the same prompts share the work."""
    answers = options.out / "rollout" / "bench" / "answers" / f"c{concurrency:04d}-{Arm.SPECULATIVE.value}.jsonl"
    log = counted_prompts(options.traffic, answers, options.out / "replayed" / f"c{concurrency:04d}.jsonl")
    states = log.parent / sha256_of(log)[:16]
    models = ("--target", options.target, "--draft", options.head, "--method", "eagle3", "--states", states)
    found = ran("replay", log, *models, "--draft-tokens", options.draft_tokens, "--max-tokens", options.max_tokens)
    return {"alpha": found["alpha"], "survival": [each["value"] for each in found["survival"]], "steps": found["steps"]}


def counted(rollout: Path, concurrency: int) -> dict[str, Any]:
    """Acceptance by the server's counters around its block, and by the counted requests' own counts."""
    (before,) = (rollout / "bench" / "scrapes" / f"c{concurrency:04d}").glob("*-speculative-before.prom")
    counters = measure_dumps(before, before.with_name(before.name.replace("before", "after")), model=None).acceptance
    own = read_run(rollout / "runs" / f"c{concurrency:04d}-speculative.json").acceptance
    return {"alpha": counters.alpha, "survival": list(counters.survival), "drafts": counters.drafts, "alpha_of_counted": own.alpha}


def gaps(engine: Engine, messages: Mapping[str, Sequence[Message]], one: Mapping[str, str], other: Mapping[str, str]) -> list[float]:
    """How far the two tokens lie apart where texts part, one figure for each pair that does, in logits."""
    found = []
    for name, text in one.items():
        ours, theirs = (_ended(engine, each) for each in (text, other.get(name, text)))
        place = next((at for at, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
        if text == other.get(name, text) or place is None:
            continue
        prompt = engine.chat.prompt(messages[name.partition("#")[0]])
        row = Row(torch.tensor((*prompt, *ours[:place])), engine.target.new_cache(), None, 1)
        logits = engine.target.forward([row], hidden_layers=())[0].logits[0]
        found.append(float(logits.max() - torch.minimum(logits[ours[place]], logits[theirs[place]])))
    return sorted(found)


def _ended(engine: Engine, text: str) -> list[int]:
    """An answer's tokens and what ends it, as far as the text tells them."""
    return [*engine.chat.answer(text), min(engine.chat.end_ids)]


def texts(options: argparse.Namespace, engine: Engine, concurrency: int) -> dict[str, Any]:
    """Gaps where the arms' texts part, and where the baseline's own do."""
    folder = options.out / "rollout" / "bench" / "answers"
    messages = messages_of(options.traffic)
    plain, drafted, again = (
        dict(read_answers(file)) if (file := folder / f"c{concurrency:04d}-{who}.jsonl").is_file() else {}
        for who in (*(arm.value for arm in Arm), REPEAT)
    )
    return {"gaps_of_arms": gaps(engine, messages, plain, drafted), "gaps_of_baseline_twice": gaps(engine, messages, again, plain)}


def crossing(rows: Sequence[tuple[float, float]]) -> float | None:
    """The concurrency at which a speed-up falls through 1, on a straight line over its logarithm; None where it does not."""
    for (at, above), (then, below) in pairwise(rows):
        if above >= 1 > below:
            return exp(log(at) + (above - 1) / (above - below) * (log(then) - log(at)))
    return None


def forecast_of(options: argparse.Namespace, hardware: Path, concurrencies: Sequence[int]) -> dict[str, Any]:
    """The forecast that knows all measured concurrencies but the largest."""
    runs = options.out / "rollout" / "runs"
    known = [runs / f"c{each:04d}-{arm.value}.json" for each in concurrencies[:-1] for arm in Arm]
    done = read_run(known[-1]).finished
    prompt, output = (round(np.mean(each)) for each in zip(*((one.prompt_tokens, one.output_tokens) for one in done), strict=True))
    lengths = ("--prompt-tokens", prompt, "--output-tokens", output)
    at = ",".join(map(str, sorted({*FORECAST_AT, *concurrencies})))
    found = ran(
        *("forecast", *scenario(options, hardware), "--acceptance-from", known[-1], *lengths),
        *("--concurrency", at, "--calibrate", *known),
    )
    curves = {
        "crossing": [(row["concurrency"], row["speedup"]["value"]) for row in found["rows"]],
        "crossing_at_the_earliest": [(row["concurrency"], row["speedup"]["low"]) for row in found["rows"]],
        "crossing_at_the_latest": [(row["concurrency"], row["speedup"]["high"]) for row in found["rows"]],
        "crossing_of_whole_requests": [(row["concurrency"], row["end_to_end_speedup"]["value"]) for row in found["rows"]],
    }
    return {name: crossing(each) for name, each in curves.items()} | {
        "calibration": found["calibration"],
        "rows": [
            {"concurrency": row["concurrency"], "speedup": row["speedup"]} for row in found["rows"] if row["concurrency"] in concurrencies
        ],
    }


def speedups(rollout: Path) -> dict[int, dict[str, Any]]:
    """Verdict, speed-up and what the texts say, by concurrency."""
    verdict = json.loads((rollout / "verdict.json").read_text(encoding="utf-8"))
    said = {each["concurrency"]: each for each in verdict["losslessness_by_concurrency"]}
    found = {}
    for each in verdict["by_concurrency"]:
        speedup = next(finding["estimate"] for finding in each["findings"] if finding["claim"].startswith("speedup"))
        lossless = said[each["concurrency"]]
        found[each["concurrency"]] = {
            "verdict": each["verdict"],
            "speedup": speedup,
            "break_even_alpha": each["break_even_alpha"],
            "lossless": lossless["lossless"],
            "why": lossless["why"],
            "differing": lossless["divergence"]["share"],
            "noise_floor": None if lossless["noise_floor"] is None else lossless["noise_floor"]["share"],
        }
    return found


HEAD = ("in flight", "speed-up", "verdict", "texts differ", "gap (median)", "baseline twice", "gap (median)")
ALPHAS = ("in flight", "α of counters", "of counted requests", "of their replay", "steps")


def table(found: dict[str, Any]) -> Iterator[str]:
    """What a person reads."""
    rows = []
    for name, each in found["by_concurrency"].items():
        told = [share(each["differing"]), gap(each["gaps_of_arms"]), share(each["noise_floor"]), gap(each["gaps_of_baseline_twice"])]
        rows.append((str(name), ranged(each["speedup"]), each["verdict"], *told))
    yield columns(HEAD, rows)
    yield columns(ALPHAS, [accepted(str(name), each) for name, each in found["by_concurrency"].items()])
    forecast = found["forecast"]
    yield columns(("in flight", "forecast"), [(str(row["concurrency"]), ranged(row["speedup"])) for row in forecast["rows"]])
    yield "\n".join(f"{name.replace('_', ' ')} {plain(each)}" for name, each in forecast.items() if name.startswith("crossing"))
    yield f"measured crossing {plain(found['measured_crossing'])}"


def accepted(name: str, each: dict[str, Any]) -> tuple[str, ...]:
    """α of one load, three ways."""
    counters, replay = each["acceptance"], each["replay"]
    return (name, f"{counters['alpha']:.4f}", f"{counters['alpha_of_counted']:.4f}", ranged(replay["alpha"]), f"{replay['steps']:,}")


def ranged(estimate: dict[str, Any]) -> str:
    return f"{estimate['value']:.2f} ({plain(estimate['low'])} to {plain(estimate['high'])})"


def share(estimate: dict[str, Any] | None) -> str:
    return "-" if estimate is None else f"{100 * estimate['value']:.0f}% of {estimate['n']}"


def gap(found: Sequence[float]) -> str:
    return f"{max(found):.3f} ({median(found):.3f})" if found else "-"


def plain(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"


def run() -> None:
    options = asked()
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    hardware = options.out / "hardware.toml" if options.gpu is None else options.gpu
    if options.gpu is None and not options.read:
        as_found(hardware)
    if not options.read:
        serve(options, hardware)
    by_concurrency = speedups(options.out / "rollout")
    engine = load_engine(options.target, dtype="float32", device="cpu")
    for concurrency, each in by_concurrency.items():
        each["acceptance"] = counted(options.out / "rollout", concurrency)
        each["replay"] = replayed(options, concurrency)
        each |= texts(options, engine, concurrency)
    found = {
        "by_concurrency": by_concurrency,
        "forecast": forecast_of(options, hardware, list(by_concurrency)),
        "measured_crossing": crossing([(name, each["speedup"]["value"]) for name, each in by_concurrency.items()]),
        "hardware": hardware.read_text(encoding="utf-8"),
    }
    (options.out / "head-in-vllm.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print("\n".join(table(found)))


if __name__ == "__main__":
    run()
