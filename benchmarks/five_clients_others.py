"""How other load-testers are run and which figure of theirs is their P99 of inter-token latency, for `benchmarks/five_clients.py`.

vllm            gap between two messages
sglang          gap / tokens of the message, once per token
inference-perf  gap between two messages, and zero for each further token of a message
guidellm        mean per request, weighted by tokens
aiperf          mean per request
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# `vllm bench serve` without the command itself, which the CPU build does not have.
VLLM_BENCH_SERVE = """
import argparse
from vllm.benchmarks.serve import add_cli_args, main
parser = argparse.ArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""

__all__ = ["CLIENTS", "Asked", "Client"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One measurement: of which server, how much, with which tokenizer, in which folder."""

    url: str
    model: str
    requests: int
    concurrency: int
    output_tokens: int
    prompt_tokens: int
    tokenizer: Path
    folder: Path
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A load-tester: the module that its Python must have, its command, and its own P99 in milliseconds.

    Attributes:
        module: what must be importable.
        figure: what it calls what is read.
        command: arguments after the Python's own folder.
        read: the figure, from its folder.

    """

    module: str
    figure: str
    command: Callable[[Path, Asked], list[str]]
    read: Callable[[Path], float]


def _vllm(python: Path, asked: Asked) -> list[str]:
    return [
        *(str(python), "-c", VLLM_BENCH_SERVE),
        *("--backend", "openai-chat", "--endpoint", "/v1/chat/completions", "--base-url", asked.url, "--model", asked.model),
        *("--tokenizer", str(asked.tokenizer), "--dataset-name", "random", "--random-input-len", str(asked.prompt_tokens)),
        *("--random-output-len", str(asked.output_tokens), "--num-prompts", str(asked.requests), "--ignore-eos"),
        *("--max-concurrency", str(asked.concurrency), "--seed", str(asked.seed), "--disable-tqdm"),
        *("--save-result", "--result-dir", str(asked.folder), "--result-filename", "vllm.json"),
    ]


def _sglang(python: Path, asked: Asked) -> list[str]:
    return [
        *(str(python), "-m", "sglang.bench_serving", "--backend", "sglang-oai-chat", "--base-url", asked.url, "--model", asked.model),
        *("--tokenizer", str(asked.tokenizer), "--dataset-name", "random-ids", "--random-input-len", str(asked.prompt_tokens)),
        *("--random-output-len", str(asked.output_tokens), "--random-range-ratio", "1", "--num-prompts", str(asked.requests)),
        *("--max-concurrency", str(asked.concurrency), "--seed", str(asked.seed), "--disable-tqdm", "--warmup-requests", "0"),
        *("--output-file", str(asked.folder / "sglang.jsonl")),
    ]


def _guidellm(python: Path, asked: Asked) -> list[str]:
    return [
        *(str(python), "-c", "from guidellm.__main__ import cli; cli()", "run", "--disable-console"),
        *("--backend", f"kind=openai_http,target={asked.url},request_format=/v1/chat/completions,model={asked.model}"),
        *("--profile", f"kind=concurrent,streams={asked.concurrency}", "--constraint", f"kind=max_requests,count={asked.requests}"),
        *("--tokenizer", f"kind=huggingface_auto,model={asked.tokenizer}", "--seed", f"kind=static,value={asked.seed}"),
        *("--data", f"kind=synthetic_text,prompt_tokens={asked.prompt_tokens},output_tokens={asked.output_tokens}"),
        *("--output", f"kind=json,path={asked.folder / 'guidellm.json'}"),
    ]


def _aiperf(python: Path, asked: Asked) -> list[str]:
    return [
        *(str(python), "-c", "from aiperf.cli import app; app()", "profile", "--model", asked.model, "--url", asked.url),
        *("--endpoint-type", "chat", "--streaming", "--tokenizer", str(asked.tokenizer), "--ui", "none"),
        *("--concurrency", str(asked.concurrency), "--request-count", str(asked.requests), "--random-seed", str(asked.seed)),
        *("--synthetic-input-tokens-mean", str(asked.prompt_tokens), "--output-tokens-mean", str(asked.output_tokens)),
        *("--output-artifact-dir", str(asked.folder / "aiperf")),
    ]


def _inference_perf(python: Path, asked: Asked) -> list[str]:
    stage = {"concurrency_level": asked.concurrency, "num_requests": asked.requests}
    lengths = {
        "min": asked.output_tokens,
        "max": asked.output_tokens,
        "mean": asked.output_tokens,
        "std_dev": 0,
        "total_count": asked.requests,
    }
    config = {
        "load": {"type": "concurrent", "stages": [stage], "num_workers": 1, "worker_max_concurrency": asked.concurrency},
        "api": {"type": "chat", "streaming": True},
        "server": {"type": "vllm", "model_name": asked.model, "base_url": asked.url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": str(asked.tokenizer)},
        "data": {
            "type": "random",
            "input_distribution": {**lengths, "min": asked.prompt_tokens, "max": asked.prompt_tokens, "mean": asked.prompt_tokens},
            "output_distribution": lengths,
        },
        "report": {"request_lifecycle": {"summary": True, "per_stage": True, "per_request": False}},
        "storage": {"local_storage": {"path": str(asked.folder / "inference_perf")}},
    }
    file = asked.folder / "inference_perf.json"
    file.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    return [str(python), "-c", "from inference_perf.main import main_cli; main_cli()", "-c", str(file)]


def _found(folder: Path, pattern: str) -> Any:
    """The last of the JSON files that match."""
    (*_, file) = sorted(folder.rglob(pattern))
    return json.loads(file.read_text(encoding="utf-8").splitlines()[-1] if file.suffix == ".jsonl" else file.read_text(encoding="utf-8"))


def _read_vllm(folder: Path) -> float:
    return float(_found(folder, "vllm.json")["p99_itl_ms"])


def _read_sglang(folder: Path) -> float:
    return float(_found(folder, "sglang.jsonl")["p99_itl_ms"])


def _read_guidellm(folder: Path) -> float:
    metrics = _found(folder, "guidellm.json")["benchmarks"][0]["metrics"]
    return float(metrics["inter_token_latency_ms"]["successful"]["percentiles"]["p99"])


def _read_aiperf(folder: Path) -> float:
    return float(_found(folder, "profile_export_aiperf.json")["inter_token_latency"]["p99"])


def _read_inference_perf(folder: Path) -> float:
    return float(_found(folder, "summary_lifecycle_metrics.json")["successes"]["latency"]["inter_token_latency"]["p99"]) * 1e3


CLIENTS: Mapping[str, Client] = {
    "vllm": Client(module="vllm", figure="P99 ITL: gap between messages", command=_vllm, read=_read_vllm),
    "inference-perf": Client(
        module="inference_perf",
        figure="p99 inter_token_latency: zeros inside a message",
        command=_inference_perf,
        read=_read_inference_perf,
    ),
    "sglang": Client(module="sglang", figure="P99 ITL: gap / tokens, repeated", command=_sglang, read=_read_sglang),
    "guidellm": Client(module="guidellm", figure="p99 inter_token_latency: mean per request", command=_guidellm, read=_read_guidellm),
    "aiperf": Client(module="aiperf", figure="p99 inter_token_latency: mean per request", command=_aiperf, read=_read_aiperf),
}
