"""How a server is started, whatever its dialect: what is asked of it, and the words, files and container that follow.

Each dialect's `config` module turns a `Drafting` into its own options and makes both arms: the same words but for speculation. The address
is no part of a command: whoever starts a server chooses it. Text from a user stays one word of a list and is never read as an option.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.errors import BadInputError, printable
from paceline.servers.batch_ranges import BatchRange
from paceline.speculation.method import Method, Tree
from paceline.verdict import Caution

__all__ = [
    "CONTAINERS",
    "Container",
    "Drafting",
    "NgramLengths",
    "Release",
    "ServerStart",
    "need_draft",
    "need_name",
    "release",
    "rendered",
]

Parts = tuple[int, int, int]
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - inside a container, where nothing else could reach it
NEED_DRAFT = (Method.DRAFT_MODEL, Method.EAGLE, Method.EAGLE2, Method.EAGLE3)
LOOK_UP = (Method.NGRAM, Method.SUFFIX)
VERSION = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?:\.([0-9]{1,4}))?(?:\.?(?:rc|a|b|post|dev)[0-9]{1,4})*(?:\+[A-Za-z0-9.]{1,40})?")
BUILD = re.compile(r"b?([0-9]{4,6})(?:\.0\.0)?")
NAMES = {"sglang": "SGLang", "llamacpp": "llama.cpp", "tensorrt_llm": "TensorRT-LLM"}
READ = {"sglang": ((0, 4, 3), (0, 5, 23)), "llamacpp": ((11434, 0, 0), (11434, 0, 0)), "tensorrt_llm": ((1, 2, 0), (1, 3, 0))}


@dataclass(frozen=True, slots=True)
class NgramLengths:
    """The shortest and the longest n-gram that is looked up."""

    shortest: int
    longest: int

    def __post_init__(self) -> None:
        """Reject lengths below 1 and a shortest above the longest.

        Raises:
            BadInputError: with the lengths.

        """
        if not 1 <= self.shortest <= self.longest:
            raise BadInputError(f"n-gram lengths {self.shortest} to {self.longest} are not 1 <= shortest <= longest")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """What is asked of the speculative arm.

    Attributes:
        method: what drafts.
        draft: the draft as the server is told, None where the method needs none.
        draft_tokens: K.
        tree: the draft tree, None for a chain.
        ngram: what prompt lookup matches, None for other methods.
        by_batch: draft length by ranges of batch sizes, from 1 on without gaps, 0 for none; None for one K at all of them.

    """

    method: Method
    draft: str | None
    draft_tokens: int
    tree: Tree | None
    ngram: NgramLengths | None
    by_batch: tuple[BatchRange, ...] | None


@dataclass(frozen=True, slots=True)
class Release:
    """A server's version: `parts` to compare, of llama.cpp its build number first."""

    engine: str
    asked: str
    parts: Parts
    caution: Caution | None

    def __str__(self) -> str:
        """As the engine writes it."""
        return f"b{self.parts[0]}" if self.engine == "llamacpp" else ".".join(map(str, self.parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStart:
    """One arm of a server.

    Attributes:
        engine: the dialect.
        command: program and arguments, without the address.
        files: what the command reads, by the name that it gives: to be written beside it.

    """

    engine: str
    command: tuple[str, ...]
    files: Mapping[str, str]

    @property
    def shell(self) -> str:
        """The command as a POSIX shell takes it."""
        return rendered(self.command)


@dataclass(frozen=True, slots=True)
class Container:
    """How an engine is run in a container.

    Attributes:
        image: None where it has no name without a registry's host before it.
        port: that it listens to.
        health: the path that answers 200 once it serves.
        program: where the image keeps the command's program, None where it is found by its name.

    """

    image: str | None
    port: int
    health: str
    program: str | None = None

    @property
    def listen(self) -> tuple[str, ...]:
        """What makes a server listen to the container's address; most listen to loopback only."""
        return ("--host", ANY_ADDRESS, "--port", str(self.port))


CONTAINERS = {
    "vllm": Container("vllm/vllm-openai:v{version}", 8000, "/health"),
    "sglang": Container("lmsysorg/sglang:v{version}", 30000, "/health"),
    "llamacpp": Container(None, 8080, "/health", program="/app/llama-server"),
    "tensorrt_llm": Container(None, 8000, "/health"),
}


def release(engine: str, text: str) -> Release:
    """The version of SGLang, llama.cpp (a build such as b11434) or TensorRT-LLM; with a caution where that one was not read.

    Raises:
        BadInputError: `text` is no version of that engine.

    """
    name, (oldest, newest) = NAMES[engine], READ[engine]
    if engine == "llamacpp":
        build = BUILD.fullmatch(text.strip())
        if build is None:
            raise BadInputError(f"{printable(text)} is no build of llama.cpp; write it like b11434")
        parts = (int(build[1]), 0, 0)
    else:
        match = VERSION.fullmatch(text.strip())
        if match is None:
            raise BadInputError(f"{printable(text)} is no version of {name}; write it like {'.'.join(map(str, newest))}")
        parts = (int(match[1]), int(match[2]), int(match[3] or 0))
    made = Release(engine, text, parts, None)
    if oldest <= parts <= newest:
        return made
    first, last = (str(Release(engine, "", each, None)) for each in (oldest, newest))
    known = first if first == last else f"{first} to {last}"
    return Release(engine, text, parts, Caution("unknown_version", f"{name} {made} was not read (known: {known}); its options may differ"))


def need_name(kind: str, name: str) -> None:
    """Nothing, where a server takes `name` for a model and not for an option.

    Raises:
        BadInputError: it is empty, starts with a dash or holds what cannot be printed.

    """
    if not name.strip() or name.startswith("-") or not name.isprintable():
        raise BadInputError(f"{kind} {printable(name)} is not the name or folder of a model")


def need_draft(drafting: Drafting) -> None:
    """Nothing, where there is a draft for a method that needs one, none for a lookup, and n-gram lengths for n-gram alone.

    Raises:
        BadInputError: with the method.

    """
    method, draft = drafting.method, drafting.draft
    if draft is None and method in NEED_DRAFT:
        raise BadInputError(f"method {method.value} needs a draft: the name or folder of its checkpoint")
    if draft is not None and method in LOOK_UP:
        raise BadInputError(f"method {method.value} looks tokens up and takes no draft, not {printable(draft)}")
    if draft is not None:
        need_name("draft", draft)
    if (drafting.ngram is not None) != (method is Method.NGRAM):
        raise BadInputError(f"n-gram lengths belong to method ngram and only to it, not to {method.value}; vLLM's default is 5 for both")


def rendered(command: Sequence[str]) -> str:
    """The command as a POSIX shell takes it, quoted where needed."""
    return shlex.join(command)
