"""Options that say which server, in any of the dialects, and what of its configuration is printed."""

import argparse

from paceline.cli.replica_options import add_length_table

__all__ = ["add_any_engine", "add_emitted"]


def add_any_engine(parser: argparse.ArgumentParser) -> None:
    """Which server, in which version, and the files it loads."""
    group = parser.add_argument_group("server")
    group.add_argument(
        "--engine", choices=["vllm", "sglang", "llamacpp", "tensorrt_llm"], default="vllm", help="server dialect (default vllm)"
    )
    group.add_argument(
        "--engine-version", default=None, metavar="V", help="its version (default 0.32.0, 0.5.23, b11434 or 1.2.1: what was read last)"
    )
    group.add_argument(
        "--image", default=None, metavar="NAME", help="container image (default: the engine's own, where it has a short name)"
    )
    group.add_argument("--gguf", default=None, metavar="FILE", help="the target as llama.cpp loads it")
    group.add_argument("--draft-gguf", default=None, metavar="FILE", help="the draft as llama.cpp loads it")


def add_emitted(parser: argparse.ArgumentParser) -> None:
    """What is printed, and a draft length that depends on the load."""
    parser.add_argument(
        "--emit",
        choices=["command", "json", "compose", "kubernetes"],
        default="command",
        help="both arms' commands with what they combine with (default), what switches speculation on (JSON, of TensorRT-LLM YAML), "
        "a compose file, or Kubernetes manifests",
    )
    add_length_table(parser)
