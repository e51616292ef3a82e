"""What `config` writes is taken by the real servers: llama-server's parser, and vLLM's up to its engine configuration.

llama-server reads its options before it looks for a model, and refuses an unknown one by name; so a file that is not there is enough.
vLLM builds its engine configuration from configurations alone: heads and targets here have no weights. Suffix decoding needs a package
that vLLM asks for by name, which is as far as it goes.
"""

import json
import shlex
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Answer
from tests.real.servers import free_port, running

SCRIPT = Path(__file__).with_name("vllm_engine_configs.py")
LLAMA_METHODS = ("draft-model", "eagle3", "mtp", "ngram")
TARGET_METHODS = ("draft-model", "eagle3", "ngram", "suffix")
END_S = 60.0
BUILD_S = 600.0
READY_S = 120.0
UNKNOWN = "invalid argument"
HEAD = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "num_hidden_layers": 1,
    "vocab_size": 49152,
    "draft_vocab_size": 1000,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def config(paceline: Callable[[Sequence[str]], Answer]) -> Callable[..., list[list[str]]]:
    """Both arms' words, as `config` prints them."""

    def ask(*options: str) -> list[list[str]]:
        answer = paceline(["config", *options, "--gpus", "1", "--max-requests", "4", "--token-budget", "2048", "--json"])
        assert answer.code == 0, answer.err
        said: dict[str, Any] = json.loads(answer.out)
        return [shlex.split(said["commands"][arm]) for arm in ("baseline", "speculative")]

    return ask


def refused(server: Path, words: Sequence[str]) -> str:
    """What llama-server says of its options, empty where it only misses the model's file."""
    done = subprocess.run([server, *words], capture_output=True, text=True, timeout=END_S, check=False)
    return "\n".join(line for line in (done.stdout + done.stderr).splitlines() if UNKNOWN in line or line.startswith("error"))


@pytest.mark.parametrize("method", LLAMA_METHODS)
def test_llama_server_takes_every_option(method: str, llama_server: Path, model_dir: Path, config: Callable[..., list[list[str]]]) -> None:
    """Whoever pastes the command: llama.cpp renames its options often, and an unknown one stops it at once."""
    draft = () if method == "ngram" else ("--draft-gguf", "missing.gguf")
    named = ("--draft", str(model_dir)) if method == "draft-model" else ()
    arms = config("--engine", "llamacpp", "--target", str(model_dir), "--method", method, "--gguf", "missing.gguf", *draft, *named)
    assert [refused(llama_server, words[1:]) for words in arms] == ["", ""]
    assert UNKNOWN in refused(llama_server, [*arms[1][1:], "--spec-draft-no-such"])


def test_llama_server_serves_what_config_writes(
    llama_server: Path, llama_gguf: Path, model_dir: Path, config: Callable[..., list[list[str]]], tmp_path: Path
) -> None:
    """Whoever pastes the command: taken options are not yet a server that answers."""
    arms = config("--engine", "llamacpp", "--target", str(model_dir), "--method", "ngram", "--gguf", str(llama_gguf))
    port = free_port()
    words = [str(llama_server), *arms[1][1:], "--host", "127.0.0.1", "--port", str(port), "--threads", "1", "--ctx-size", "512"]
    with running(words, port=port, log=tmp_path / "log", ready_s=READY_S, env={}) as url:
        assert url.endswith(str(port))


@pytest.fixture
def vllm_says(vllm_python: Path) -> Callable[[list[list[str]]], list[str | None]]:
    """What vLLM says of each command line: None where it takes it."""

    def ask(lines: list[list[str]]) -> list[str | None]:
        done = subprocess.run([vllm_python, SCRIPT], input=json.dumps(lines), capture_output=True, text=True, timeout=BUILD_S, check=True)
        answers: list[str | None] = json.loads(done.stdout.splitlines()[-1])
        return answers

    return ask


def test_vllm_builds_its_configuration_from_every_command(
    vllm_says: Callable[[list[list[str]]], list[str | None]],
    model_dir: Path,
    config: Callable[..., list[list[str]]],
    tmp_path: Path,
) -> None:
    """Whoever pastes the command: vLLM checks options, fields of the JSON, and draft against target before it loads anything."""
    head = tmp_path / "head"
    head.mkdir()
    (head / "config.json").write_text(json.dumps(HEAD), "utf-8")
    drafts = {"draft-model": model_dir, "eagle3": head}
    common = ("--engine", "vllm", "--engine-version", "0.32.0", "--target", str(model_dir))
    lines = []
    for method in TARGET_METHODS:
        draft = ("--draft", str(drafts[method])) if method in drafts else ()
        lines += config(*common, "--method", method, *draft)
    lines += config(*common, "--method", "eagle3", "--draft", str(head), "--draft-tokens-by-batch", "1-1:3,2-2:2,3-4:0")
    said = vllm_says([words[2:] for words in lines])
    suffix = 2 * TARGET_METHODS.index("suffix") + 1
    assert "arctic" in str(said.pop(suffix)).casefold()
    assert said == [None] * (len(lines) - 1)
    broken = [word.replace("num_speculative_tokens", "num_spec_tokens") for word in lines[1][2:]]
    assert vllm_says([broken])[0] is not None
