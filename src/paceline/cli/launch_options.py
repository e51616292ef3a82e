"""Options of servers that paceline starts itself, and what they come to."""

import argparse
import shlex
from pathlib import Path
from typing import Any

from paceline.cli.options import duration, positive
from paceline.errors import BadInputError, printable

__all__ = ["END_S", "LAUNCH_OPTIONS", "add_launch", "launch_program", "lengths"]

LAUNCH_OPTIONS = ("launch_python", "launch_binary", "launch_model", "launch_draft", "launch_arg", "launch_timeout")
PROGRAMS = {"vllm": ("vllm", "serve"), "sglang": ("python3", "-m", "sglang.launch_server"), "llamacpp": ("llama-server",)}
MODULES = {"vllm": ("vllm.entrypoints.openai.api_server", "--model"), "sglang": ("sglang.launch_server",)}
READY_S = 900.0
END_S = 30.0


def add_launch(parser: argparse.ArgumentParser, *, title: str) -> Any:
    """Which engine is started, and how; its environment is this process's. The group, for options of one verb alone."""
    group = parser.add_argument_group(title)
    group.add_argument("--launch", choices=list(PROGRAMS), default=None, help="start this engine's servers, one arm after the other")
    group.add_argument("--launch-python", metavar="PATH", default=None, help="the Python of the environment that has vLLM or SGLang")
    group.add_argument("--launch-binary", metavar="PATH", default=None, help="the program itself, such as llama-server (default: on PATH)")
    group.add_argument("--launch-model", metavar="NAME|PATH", default=None, help="what is loaded (default: --target; llama-server: a GGUF)")
    group.add_argument("--launch-draft", metavar="NAME|PATH", default=None, help="the draft that is loaded (default: --draft)")
    group.add_argument(
        "--launch-arg",
        action="extend",
        type=_words,
        default=[],
        metavar="WORDS",
        help="more arguments of both arms, as in --launch-arg '--ctx-size 4096' or --launch-arg=--enforce-eager",
    )
    group.add_argument("--launch-timeout", type=duration, default=READY_S, metavar="TIME", help="until a server is ready (default 15m)")
    return group


def lengths(text: str) -> tuple[float, ...]:
    """Tokens per step, separated by commas, each once, sorted."""
    return tuple(sorted({positive(each) for each in text.split(",")}))


def _words(text: str) -> list[str]:
    """Words as a shell would split them."""
    try:
        return shlex.split(text)
    except ValueError as fault:
        raise argparse.ArgumentTypeError(f"{printable(text)} cannot be split into words: {fault}") from None


def launch_program(options: argparse.Namespace) -> tuple[str, ...]:
    """What stands for the engine's program.

    Raises:
        BadInputError: a Python for llama-server, or both.

    """
    if options.launch_python is not None and options.launch_binary is not None:
        raise BadInputError("--launch-python and --launch-binary are two ways to name one program; give one")
    if options.launch_binary is not None:
        return (_absolute(options.launch_binary), *(("serve",) if options.launch == "vllm" else ()))
    if options.launch_python is None:
        return PROGRAMS[options.launch]
    if options.launch not in MODULES:
        raise BadInputError("--launch-python runs vLLM or SGLang; name llama-server with --launch-binary")
    return (_absolute(options.launch_python), "-m", *MODULES[options.launch])


def _absolute(path: str) -> str:
    """A path that stays right in whatever folder; a bare name is looked up in PATH."""
    return str(Path(path).absolute()) if "/" in path else path
