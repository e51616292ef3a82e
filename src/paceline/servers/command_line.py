"""A server's command line as a record: which server it starts, and each option under its long spelling. Nothing is evaluated.

Which server it is: by what is started (`vllm serve`, `python -m sglang.launch_server`, `llama-server`, `trtllm-serve`), else by the image
of the container, else by an option that only one of them has. Text is split as a POSIX shell splits it; variables, substitutions and
templates stay as they are written.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from paceline.data.tables import table
from paceline.errors import BadInputError, printable
from paceline.servers.served_config import ENGINES, ServedConfig

__all__ = [
    "image_engine",
    "image_version",
    "long_spelling",
    "served_command",
    "served_script",
    "speculation_options",
    "stated_block",
]

Flags = dict[str, str | bool | tuple[str, ...]]

IMAGES = (
    ("vllm", re.compile(r"(^|/)vllm(-openai)?([-:@]|$)|vllm-openai")),
    ("sglang", re.compile(r"(^|/)sglang(-\w+)?([-:@]|$)|lmsysorg/sglang")),
    ("llamacpp", re.compile(r"llama\.cpp:|(^|/)llama[-.]?cpp[-/]?server|llama-server")),
    ("tensorrt_llm", re.compile(r"tensorrt-?llm|(^|/)trtllm", re.IGNORECASE)),
)
# Only the projects' own images are numbered as the engines are; a registry that mirrors them may stand before.
OWN_IMAGES = re.compile(
    r"(^|/)(vllm/vllm-openai|lmsysorg/sglang|nvidia/tensorrt-llm/release):v?(?P<release>\d{1,6}\.\d{1,6}(\.\d{1,6})?(\.?(rc|post)\d{1,6})?)(-[\w.-]+)?(@|$)"
    r"|(^|/)(ggml-org|ggerganov)/llama\.cpp:[a-z0-9-]*-(?P<build>b\d{1,6})(@|$)"
)
IMAGE_NAME = re.compile(r"[a-z0-9][\w.-]*(:[0-9]+)?(/[\w.-]+)+([:@][\w.:-]+)?$|[a-z0-9][\w.-]*:[\w.-]+$")
ONLY_ONE_HAS = (
    ("--speculative-algorithm", "sglang"),
    ("--speculative-num-steps", "sglang"),
    ("--speculative-eagle-topk", "sglang"),
    ("--speculative-config", "vllm"),
    ("--num-speculative-tokens", "vllm"),
    ("--spec-type", "llamacpp"),
    ("--model-draft", "llamacpp"),
    ("-md", "llamacpp"),
)
SHELLS = ("ash", "bash", "dash", "sh", "zsh")
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
OPTION = re.compile(r"--?[A-Za-z].*", re.DOTALL)
# A shell's text piece by piece: what it keeps, what it passes over (a continued line, a comment, a redirection), what ends a command.
PIECE = re.compile(
    r"""(?P<over>\\\n|(?<!\S)\#[^\n]*|(?<!\S)[0-9&]?>{1,2}(?:&[0-9-]|[ \t]*[^\s;&|<>]+))
    |(?P<keep>'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\;&|]+|[^\S\n]+)
    |(?P<end>[;&|\n]+)
    |(?P<stray>.)""",
    re.DOTALL | re.VERBOSE,
)
ABBREVIATED = "--spec"
ON_OR_OFF = re.compile(r"--(?:enable|disable|no|skip|trust)[-_]")
TRUTHS = ("0", "1", "false", "true")
SEVERAL_WORDS = re.compile(r"\$[@*]|\[[@*]\]")  # a shell's "$@" and "${ARGUMENTS[@]}"
MOST_SHELLS = 3


def served_script(text: str, *, engine: str | None, where: str) -> tuple[ServedConfig, ...]:
    """Every server that a shell's text starts; lines that start none are passed over.

    With an `engine`, a line that begins with an option is taken for that engine's options.

    Raises:
        BadInputError: a quotation that does not end, or a NUL byte.

    """
    environment: dict[str, str] = {}
    found = []
    for words in _commands(text, where):
        rest, given = _assignments(words)
        if not rest or words[0] == "export":
            environment |= given
            continue
        config = served_command(rest, engine=engine, environment=environment | given, image=None, where=where)
        if config is not None:
            found.append(config)
    return tuple(found)


def served_command(
    words: Sequence[str], *, engine: str | None, environment: Mapping[str, str], image: str | None, where: str
) -> ServedConfig | None:
    """The server that these words start, None where they start none that we know.

    `engine` says which it is where neither program, image nor options do; `image` is the container's.

    Raises:
        BadInputError: as `served_script`, of a text behind `sh -c`.

    """
    program, arguments, given, in_image = _launched(list(words), MOST_SHELLS, where)
    image = in_image if image is None else image
    known = program or (None if image is None else image_engine(image))
    if known is None and arguments and OPTION.fullmatch(arguments[0]):
        known = _engine_by_option(arguments) or engine
    if known is None:
        return None
    flags, positionals = _flags(arguments, known)
    speculative = stated_block(flags) if known == "vllm" else None
    target, others = _target(flags, positionals, known)
    return ServedConfig(
        engine=known,
        target=target,
        flags=flags,
        speculative=speculative,
        environment=dict(environment) | given,
        image=image,
        others=others,
        where=where,
    )


def image_engine(image: str) -> str | None:
    """The engine that a container image's name tells, None where it tells none."""
    return next((engine for engine, pattern in IMAGES if pattern.search(image)), None)


def image_version(image: str) -> str | None:
    """The engine's version that the tag of a project's own image states; None for other images, `latest`, nightlies and digests."""
    match = OWN_IMAGES.search(image)
    return None if match is None else match["release"] or match["build"]


def long_spelling(option: str, engine: str) -> str:
    """The option as it is kept: its long spelling where the engine has one, underscores written as the engine's own help writes them."""
    name = option
    if engine == "tensorrt_llm":
        name = option if not option.startswith("--") else "--" + option[2:].replace("-", "_")
    elif engine == "vllm" and "." in option:
        head, dot, key = option.partition(".")
        return long_spelling(head, engine) + dot + key
    elif engine in ("vllm", "llamacpp") and option.startswith("--"):
        name = "--" + option[2:].replace("_", "-")
    known = _spellings(engine).get(name, name if name.startswith("--") else f"-{name}")
    whole = [each for each in _abbreviated(engine) if each.startswith(known)] if known.startswith(ABBREVIATED) else []
    return whole[0] if len(whole) == 1 else known


@cache
def _abbreviated(engine: str) -> tuple[str, ...]:
    """The options about speculation of an engine whose parser (Python's own) takes the beginning of an option that is no other's."""
    if engine == "vllm":
        return speculation_options()
    return tuple({row["name"]: None for row in table("servers/sglang")["flags"]}) if engine == "sglang" else ()


def speculation_options() -> tuple[str, ...]:
    """All of vLLM's options that are about speculation alone, those of any version."""
    rows = table("servers/vllm_lint")
    return ("--speculative-config", *rows["legacy"]["flags"], *rows["single"]["flags"])


@cache
def _spellings(engine: str) -> dict[str, str]:
    rows = table("servers/spellings")[engine]["spellings"]
    return {other: name for name, others in rows.items() for other in (name, *others)}


def _commands(text: str, where: str) -> list[list[str]]:
    """The simple commands of a shell's text, each as words."""
    if "\0" in text:
        raise BadInputError(f"{where} holds a NUL byte, so it is no command line; give the text of the configuration")
    pieces: list[list[str]] = [[]]
    for match in PIECE.finditer(text.replace("\r\n", "\n")):
        if match["end"]:
            pieces.append([])
        else:
            pieces[-1].append(" " if match["over"] else match[0])
    try:
        return [words for words in (shlex.split("".join(each)) for each in pieces) if words]
    except ValueError:
        raise BadInputError(f"{where} has a quotation that does not end ({printable(text.strip())}); close it") from None


def _assignments(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The words behind the assignments that lead them, and those."""
    rest = list(words)
    given: dict[str, str] = {}
    while rest and (rest[0] in ("export", "env", "exec") or ASSIGNMENT.fullmatch(rest[0])):
        match = ASSIGNMENT.fullmatch(rest.pop(0))
        if match is not None:
            given[match[1]] = match[2]
    return rest, given


def _launched(words: list[str], shells: int, where: str) -> tuple[str | None, list[str], dict[str, str], str | None]:
    """Engine, arguments, environment and image: by the program that is started, else of the image that is run, else all words."""
    words, given = _assignments(words)
    for i, word in enumerate(words):
        name = word.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".exe")
        if name in SHELLS and shells:
            engine, arguments, more, image = _in_shell(words[i + 1 :], shells - 1, where)
            if engine is not None:
                return engine, arguments, given | more, image or _image_before(words[:i])
        engine, skipped = _program(name, word, words[i + 1 : i + 2])
        if engine is not None:
            return engine, words[i + 1 + skipped :], given | _docker_environment(words[:i]), _image_before(words[:i])
    image = _image_before(words) if words[:1] and words[0] in ("docker", "podman", "nerdctl") else None
    if image is None:
        return None, words, given, None
    i = words.index(image)
    return image_engine(image), words[i + 1 :], given | _docker_environment(words[:i]), image


def _in_shell(words: list[str], shells: int, where: str) -> tuple[str | None, list[str], dict[str, str], str | None]:
    """The first server that the text behind `-c` starts."""
    text = next((text for option, text in pairwise(words) if re.fullmatch(r"-\w*c", option)), "")
    given: dict[str, str] = {}
    for each in _commands(text, where):
        engine, arguments, more, image = _launched(each, shells, where)
        given |= more
        if engine is not None:
            return engine, arguments, given, image
    return None, [], given, None


def _program(name: str, word: str, following: Sequence[str]) -> tuple[str | None, int]:
    """The engine that a word starts, and how many words behind it belong to its name."""
    if name in ("llama-server", "llama-cpp-server"):
        return "llamacpp", int(list(following) == ["--"])
    if name == "trtllm-serve":
        return "tensorrt_llm", int(list(following) == ["serve"])
    if name in ("vllm", "sglang") and list(following) == ["serve"]:
        return name, 1
    if re.search(r"(^|/)vllm[./]entrypoints[./]", word):
        return "vllm", 0
    if re.search(r"(^|/)sglang[./]launch_server", word):
        return "sglang", 0
    return None, 0


def _image_before(words: Sequence[str]) -> str | None:
    return next((word for word in words if IMAGE_NAME.fullmatch(word) and image_engine(word)), None)


def _docker_environment(words: Sequence[str]) -> dict[str, str]:
    matches = [ASSIGNMENT.fullmatch(value) for option, value in pairwise(words) if option in ("-e", "--env")]
    matches += [ASSIGNMENT.fullmatch(word.removeprefix("--env=")) for word in words if word.startswith("--env=")]
    return {match[1]: match[2] for match in matches if match is not None}


def _engine_by_option(words: Sequence[str]) -> str | None:
    names = {word.partition("=")[0].partition(".")[0].replace("_", "-") for word in words}
    return next((engine for option, engine in ONLY_ONE_HAS if option in names), None)


def _flags(words: Sequence[str], engine: str) -> tuple[Flags, list[str]]:
    """Each option with its value, values or True, and the words that belong to none."""
    assert engine in ENGINES
    rows = table("servers/spellings")[engine]
    flags: Flags = {}
    positionals: list[str] = []
    i = 0
    while i < len(words):
        word = words[i]
        i += 1
        if not OPTION.fullmatch(word):
            positionals += [word] if word != "--" else []
            continue
        # llama-server takes no --option=value, so there it is one strange option
        option, equals, value = (word, "", "") if engine == "llamacpp" else word.partition("=")
        name = long_spelling(option, engine)
        values = [value] if equals else _values(words[i:], name, rows)
        i += 0 if equals else len(values)
        _add(flags, name, values)
    return flags, positionals


def _values(following: Sequence[str], name: str, rows: Mapping[str, Any]) -> list[str]:
    count = 0
    while count < len(following) and following[count] != "--" and not OPTION.fullmatch(following[count]):
        count += 1
    if name in rows["several"]:
        return list(following[:count])
    switch = name in rows["bare"] or ON_OR_OFF.match(name)
    taken = count and (not switch or following[0].casefold() in TRUTHS)
    return list(following[: int(bool(taken))])


def _add(flags: Flags, name: str, values: Sequence[str]) -> None:
    before = flags.get(name, ())
    had = before if isinstance(before, tuple) else () if isinstance(before, bool) else (before,)
    together = (*had, *values)
    flags[name] = True if not together else together[0] if len(together) == 1 else together


def stated_block(flags: Flags) -> dict[str, Any] | None:
    """The value of vLLM's --speculative-config, taken out of the flags; None where it is no JSON object.

    vLLM makes one more value of all dotted keys, behind those given as JSON, and of several values takes the last: nothing is joined. Where
    there are several, all stay among the flags.
    """
    given = flags.pop("--speculative-config", ())
    values = given if isinstance(given, tuple) else (given,)
    dotted = [each for each in flags if each.startswith("--speculative-config.")]
    if dotted:
        made = {name.partition(".")[2].replace("-", "_"): _json_or_text(flags.pop(name)) for name in dotted}
        values = (*values, json.dumps(made))
    found = _json_or_text(values[-1]) if values else None
    if len(values) > 1:
        flags["--speculative-config"] = tuple(str(each) for each in values)
    elif values and not isinstance(found, dict):
        flags["--speculative-config"] = values[0]
    return found if isinstance(found, dict) else None


def _json_or_text(value: object) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def _target(flags: Flags, positionals: Sequence[str], engine: str) -> tuple[str | None, tuple[str, ...]]:
    """What is served, and the words that are left: neither that nor of any option."""
    option = {"vllm": "--model", "sglang": "--model-path", "llamacpp": "--model", "tensorrt_llm": "--model"}[engine]
    named = flags.get(option) or (flags.get("--hf-repo") if engine == "llamacpp" else None)
    named = named[-1] if isinstance(named, tuple) else named
    if isinstance(named, str) or engine not in ("vllm", "tensorrt_llm") or not positionals or SEVERAL_WORDS.search(positionals[0]):
        return named if isinstance(named, str) else None, tuple(positionals)
    return positionals[0], tuple(positionals[1:])
