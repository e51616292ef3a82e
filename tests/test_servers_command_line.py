"""A server's command line, read as a shell would split it."""

import shlex
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError
from paceline.servers.command_line import image_engine, image_version, long_spelling, served_command, served_script
from paceline.servers.served_config import ServedConfig


def read(text: str, engine: str | None = None) -> ServedConfig:
    """The one server that the text starts."""
    (config,) = served_script(text, engine=engine, where="here")
    return config


@pytest.mark.parametrize(
    ("text", "engine", "target"),
    [
        ("vllm serve meta/M --port 80", "vllm", "meta/M"),
        ("python -m vllm.entrypoints.openai.api_server --model=m", "vllm", "m"),
        ("python3 /opt/vllm/entrypoints/openai/api_server.py --model m", "vllm", "m"),
        ("python3 -m sglang.launch_server --model m", "sglang", "m"),
        ("sglang serve --model-path m", "sglang", "m"),
        ("./build/bin/llama-server -m m.gguf", "llamacpp", "m.gguf"),
        (r"C:\bin\llama-server.exe -m m.gguf".replace("\\", "\\\\"), "llamacpp", "m.gguf"),
        ("llama-cpp-server -- -hf a/b", "llamacpp", "a/b"),
        ("trtllm-serve serve meta/M --backend pytorch", "tensorrt_llm", "meta/M"),
        ("trtllm-serve meta/M", "tensorrt_llm", "meta/M"),
        ("nohup numactl -N 0 vllm serve m &", "vllm", "m"),
        ("docker run --gpus all -p 80:80 vllm/vllm-openai:v0.11.0 --model m", "vllm", "m"),
        ("podman run images.example/ggml-org/llama.cpp:server -m m", "llamacpp", "m"),
        ("docker run lmsysorg/sglang:latest python3 -m sglang.launch_server --model-path m", "sglang", "m"),
        ("sh -c 'exec vllm serve m'", "vllm", "m"),
        ("sh -c 'cd /models && export A=1 && vllm serve m'", "vllm", "m"),
        ("bash -lc \"sh -c 'vllm serve m'\"", "vllm", "m"),
        ("--speculative-algorithm EAGLE --model-path m", "sglang", "m"),
        ("-m m -md d", "llamacpp", "m"),
        ("--model m --speculative_config '{}'", "vllm", "m"),
    ],
)
def test_the_server_is_known_by_what_starts_it(text: str, engine: str, target: str) -> None:
    """Whoever lints a line copied from somewhere: another engine's rules would be applied, or none."""
    config = read(text)
    assert (config.engine, config.target) == (engine, target)


@pytest.mark.parametrize(
    "text", ["", "ls -la", "echo vllm", "vllm bench serve --model m", "docker run nginx:1 -v a:b", "sh -c", "sh x", "A=1"]
)
def test_what_starts_no_server_is_passed_over(text: str) -> None:
    """A start script has other lines too."""
    assert served_script(text, engine=None, where="here") == ()


def test_options_alone_are_the_named_engines() -> None:
    """Whoever gives only the options that matter says whose they are."""
    assert read("--max-running-requests 4", "sglang").flags == {"--max-running-requests": "4"}
    assert served_script("echo --a", engine="sglang", where="here") == ()


def test_options_are_kept_under_their_long_spelling() -> None:
    """A rule knows one name for each option."""
    config = read("llama-server -m a -md b --draft-max 3 -np 2 --spec_draft_n_max 4 -fa")
    assert config.flags == {
        "--model": "a",
        "--spec-draft-model": "b",
        "--draft": "3",
        "--parallel": "2",
        "--spec-draft-n-max": "4",
        "--flash-attn": True,
    }
    assert read("vllm serve m -tp 8 --max_num_seqs=4 --lora-modules a b").flags == {
        "--tensor-parallel-size": "8",
        "--max-num-seqs": "4",
        "--lora-modules": ("a", "b"),
    }
    assert read("trtllm-serve m --tp-size 2").flags == {"--tensor_parallel_size": "2"}
    assert long_spelling("-xyz", "vllm") == "--xyz"
    assert long_spelling("-xyz", "tensorrt_llm") == "--xyz"


def test_a_switch_takes_no_word_that_is_not_its_own() -> None:
    """`vllm serve --enable-lora MODEL` would be a server without a model."""
    config = read("vllm serve --enable-prefix-caching m --enable-chunked-prefill false --trust-remote-code")
    assert config.target == "m"
    assert config.flags == {"--enable-prefix-caching": True, "--enable-chunked-prefill": "false", "--trust-remote-code": True}


def test_an_option_given_again_keeps_both_values() -> None:
    """Servers take the last one, and whoever reads the line sees the first."""
    assert read("sglang serve --port 1 --port 2 --a --a 3").flags == {"--port": ("1", "2"), "--a": "3"}


def test_llama_server_takes_no_equals_sign() -> None:
    """It does not start with --option=value, so that may not be read as if it did."""
    assert read("llama-server --spec-draft-n-max=8").flags == {"--spec-draft-n-max=8": True}


def test_the_speculative_json_is_parsed_and_dotted_keys_take_its_place() -> None:
    """Whoever adds a dotted key to the JSON: vLLM 0.32's parser appends one more value of the dotted keys, and the last value wins."""
    assert read("""vllm serve m --speculative-config '{"method": "ngram"}'""").speculative == {"method": "ngram"}
    config = read("""vllm serve m --speculative-config '{"method": "ngram"}' --speculative-config.num-speculative-tokens 3 -sc.model d""")
    assert config.speculative == {"num_speculative_tokens": 3, "model": "d"}
    assert config.flags["--speculative-config"] == ('{"method": "ngram"}', '{"num_speculative_tokens": 3, "model": "d"}')
    alone = read("vllm serve m --speculative-config.method=mtp --speculative-config.x")
    assert alone.speculative == {"method": "mtp", "x": True}
    assert "--speculative-config" not in alone.flags


@pytest.mark.parametrize("text", ["{'method': 1}", "[1]", '"$SPEC"', "{" * 100])
def test_a_speculative_value_that_is_no_json_object_stays_as_it_is_written(text: str) -> None:
    """The linter must be able to quote it."""
    config = read(f"vllm serve m --speculative-config {shlex.quote(text)}")
    assert config.speculative is None
    assert config.flags == {"--speculative-config": text}


def test_a_script_is_read_command_by_command() -> None:
    """A start script: comments, continued lines, variables set before, what is logged where."""
    text = """#!/bin/bash
# vllm serve old
export A=1 B=2
C=3
D=4 vllm serve m \\
   --speculative-config '{"method": "ngram"}' > log.txt 2>&1 &
sleep 5; E=5 sglang serve --model-path n | tee log
"""
    first, second = served_script(text, engine=None, where="here")
    assert (first.environment, first.speculative, first.flags) == ({"A": "1", "B": "2", "C": "3", "D": "4"}, {"method": "ngram"}, {})
    assert second.environment == {"A": "1", "B": "2", "C": "3", "E": "5"}
    assert second.target == "n"


def test_a_container_s_image_and_environment_are_kept() -> None:
    """A variable that changes everything may stand in front of the image."""
    config = read("docker run -e A=1 --env B=2 --env=C=3 -e D vllm/vllm-openai:v1 vllm serve m")
    assert config.image == "vllm/vllm-openai:v1"
    assert config.environment == {"A": "1", "B": "2", "C": "3"}
    config = read("docker run vllm/vllm-openai:v1 sh -c 'A=1 vllm serve m'")
    assert (config.image, config.environment) == ("vllm/vllm-openai:v1", {"A": "1"})


@pytest.mark.parametrize(
    ("image", "engine"),
    [
        ("vllm/vllm-openai:v0.11.0", "vllm"),
        ("my.registry:5000/team/vllm-openai", "vllm"),
        ("lmsysorg/sglang:v0.5.10", "sglang"),
        ("images.example/ggml-org/llama.cpp:server-cuda", "llamacpp"),
        ("images.example/nvidia/tensorrt-llm/release:1.2.0", "tensorrt_llm"),
        ("nginx:1", None),
    ],
)
def test_an_image_tells_its_engine(image: str, engine: str | None) -> None:
    """A manifest that leaves the command to the image still says which server it is."""
    assert image_engine(image) == engine


def test_a_container_without_words_is_its_image_s_server() -> None:
    """The image's own command is the server."""
    config = served_command([], engine=None, environment={"A": "1"}, image="vllm/vllm-openai", where="w")
    assert config is not None
    assert (config.engine, config.flags, config.environment, config.where) == ("vllm", {}, {"A": "1"}, "w")
    assert served_command([], engine="vllm", environment={}, image="nginx", where="w") is None


@pytest.mark.parametrize(
    ("text", "said"), [("vllm serve 'x", "quotation that does not end"), ("vllm serve \0", "NUL byte"), ('sh -c "a \'b"', "quotation")]
)
def test_text_that_no_shell_would_take_is_refused(text: str, said: str) -> None:
    """A half line is half a configuration."""
    with pytest.raises(BadInputError, match=said):
        served_script(text, engine=None, where="here")


def test_nothing_is_evaluated() -> None:
    """Whoever lints a stranger's script."""
    config = read('vllm serve "$(touch owned)" --port ${PORT} --x `id` --y $(A)')
    assert config.target == "$(touch owned)"
    assert config.flags == {"--port": "${PORT}", "--x": "`id`", "--y": "$(A)"}


@settings(max_examples=60, deadline=None)
@given(words=st.lists(st.text(string.printable.replace("\r", ""), min_size=1, max_size=12), max_size=6))
def test_words_that_were_quoted_come_back_as_they_were(words: list[str]) -> None:
    """Whoever gives the line after `--`: a value with a space, a quote or a semicolon stays one value."""
    line = "sglang serve " + " ".join(f"--option={shlex.quote(each)}" for each in words)
    found = read(line).flags.get("--option", ())
    assert (found if isinstance(found, tuple) else (found,)) == tuple(words)


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.18.0", "0.18.0"),
        ("mirror.local:5000/vllm/vllm-openai:v0.20.1.post1-cu130@sha256:abc", "0.20.1.post1"),
        ("lmsysorg/sglang:v0.5.5-cu126", "0.5.5"),
        ("images.example/nvidia/tensorrt-llm/release:1.3.0rc2", "1.3.0rc2"),
        ("images.example/ggml-org/llama.cpp:server-cuda-b11434", "b11434"),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai:nightly-0f3e", None),
        ("team/vllm-openai:v2.1.0", None),
        ("vllm/vllm-openai", None),
        ("images.example/ggml-org/llama.cpp:server", None),
    ],
)
def test_a_projects_own_image_tells_its_version(image: str, version: str | None) -> None:
    """A tag of somebody's own numbering, taken for the engine's, warns about every such manifest."""
    assert image_version(image) == version
