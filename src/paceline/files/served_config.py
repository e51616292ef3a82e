"""Reads what a server is configured with: JSON, YAML, a command line, a compose file, a Kubernetes manifest. Nothing in it is run.

    {"method": "ngram", …}                       vLLM's --speculative-config
    {"speculative-algorithm": "EAGLE3", …}       an engine's options, with or without the leading dashes
    speculative_config: {decoding_type: …}       TensorRT-LLM's YAML, or vLLM's
    services: / kind: Deployment / any mapping   whatever has command, args or entrypoint, at any depth, in any document
    vllm serve …, docker run …, sh -c '…'        a shell's text

A file may come from anybody: at most 256 KiB, 64 levels and, aliases followed, 100,000 values are read. A template has to be rendered first
where it is no YAML as it stands; where it is, its values stay open.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from paceline.errors import BadInputError, printable
from paceline.files.bounded import read_bounded
from paceline.servers.command_line import image_engine, long_spelling, served_command, served_script, stated_block
from paceline.servers.served_config import ENGINES, ServedConfig

__all__ = ["read_served_configs"]

MOST_BYTES = 1 << 18
MOST_LEVELS = 64
MOST_VALUES = 100_000
TOO_DEEP = float("inf")
WORDS = ("entrypoint", "command", "args", "extraArgs", "extra_args")
BLOCKS = ("speculative_config", "speculative-config", "speculativeConfig")
BLOCK_KEY = re.compile(rf"^(?:{'|'.join(BLOCKS)})(\..*)?$")
VLLM_KEYS = {"method", "num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min", "speculative_model"}
SGLANG_KEY = re.compile(r"(--)?speculative[-_](algo|num|eagle|draft|ngram)")
LLAMA_KEY = re.compile(r"(--)?(spec-(type|draft|default|ngram)|model-draft)")
YAML_LINE = re.compile(r"""(---|-\s|%YAML|["']?[\w./{}$-][^\s:]*["']?\s*:(\s|$))""")
EMBEDDED = re.compile(r"speculative[_-]config\s*:|decoding_type\s*:")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # the library has no types
    """The safe loader, without dates: a tag 2026-01-02 stays text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_served_configs(source: Path | str, *, engine: str | None) -> tuple[ServedConfig, ...]:
    """Every server that a file (a `Path`) or a text (a `str`) configures, in the order they stand.

    `engine` decides where nothing else does, and leaves other engines' servers out.

    Raises:
        BadInputError: unreadable, larger than 256 KiB, no UTF-8, a template to be rendered first, or no server in it.

    """
    if engine is not None and engine not in ENGINES:
        raise BadInputError(f"engine {printable(engine)} is none of {', '.join(ENGINES)}")
    where, text = (printable(source.name), _read(source)) if isinstance(source, Path) else ("the command line", source)
    if len(text) > MOST_BYTES:
        raise BadInputError(f"{where} is longer than {MOST_BYTES} bytes; give the server's configuration alone")
    found = _in_text(text, engine, where)
    wanted = tuple(each for each in found if engine in (None, each.engine))
    if not wanted:
        others = sorted({each.engine for each in found if each.engine is not None})
        what = f"configures {', '.join(others)}, not {engine}" if others else "names no server that is known and switches no speculation on"
        raise BadInputError(
            f"{where} {what}; give an engine's options, its command line, or a manifest that has one ({', '.join(ENGINES)})"
        )
    return wanted


def _read(path: Path) -> str:
    content = read_bounded(path, what="the configuration", most_bytes=MOST_BYTES, remedy="give the server's configuration alone")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInputError(f"{printable(str(path))} is no text in UTF-8: byte {error.start} is {content[error.start]:#04x}") from None


def _in_text(text: str, engine: str | None, where: str) -> list[ServedConfig]:
    lines = (line.strip() for line in text.split("\n"))
    first = next((line for line in lines if line and not line.startswith("#")), "")
    if first.startswith(("{", "[")) and not first.startswith("{{"):
        documents = [_json(text, where)]
    elif YAML_LINE.match(first) or first.startswith("{{"):
        documents = _yaml(text, where)
    else:
        return list(served_script(text, engine=engine, where=where))
    found: list[ServedConfig] = []
    for number, document in enumerate(documents, 1):
        place = where if len(documents) == 1 else f"{where}, document {number}"
        found += _servers(document, engine, place, "")
    return found


def _json(text: str, where: str) -> Any:
    try:
        return _bounded(json.loads(text), where)
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{where} is not JSON: {printable(str(error) or type(error).__name__)}; {_rendered(text)}") from None


def _yaml(text: str, where: str) -> list[Any]:
    try:
        return [_bounded(each, where) for each in yaml.load_all(text, _Loader)]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = "" if mark is None else f", line {mark.line + 1}"
        raise BadInputError(f"{where}{line} is not YAML: {printable(error.problem or '')}; {_rendered(text)}") from None
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise BadInputError(f"{where} is not YAML: {printable(str(error))}; {_rendered(text)}") from None


def _bounded(document: Any, where: str) -> Any:
    """The document, where it is as small as configurations are, each alias counted as what it stands for."""
    values = _values(document, MOST_LEVELS, {})
    if values > MOST_VALUES:
        what = f"is more than {MOST_LEVELS} levels deep" if values == TOO_DEEP else f"stands for more than {MOST_VALUES} values"
        raise BadInputError(f"{where} {what}, which no server's configuration is; give that alone")
    return document


def _values(value: Any, levels: int, known: dict[int, float]) -> float:
    """How many values a value stands for; infinitely many where it goes too deep, as one does that holds itself."""
    if not isinstance(value, dict | list):
        return 1
    if levels == 0:
        return TOO_DEEP
    if id(value) not in known:
        children = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_values(each, levels - 1, known) for each in children)
    return known[id(value)]


def _rendered(text: str) -> str:
    """The remedy: to render a template, where it is one."""
    number, line = next(((i, line) for i, line in enumerate(text.split("\n"), 1) if "{{" in line), (0, ""))
    if number:
        return f"line {number} is a template ({printable(line.strip())}): render it first, as with `helm template`, and lint what comes out"
    return "mend it, or give the command line instead"


def _servers(value: Any, engine: str | None, where: str, path: str) -> Iterator[ServedConfig]:
    """The servers in a parsed value, each with its path."""
    if isinstance(value, str) and "\n" in value and EMBEDDED.search(value):
        for number, document in enumerate(_yaml(value, f"{where}, {path}"), 1):
            yield from _servers(document, engine, where, f"{path}[{number}]") if isinstance(document, dict) else ()
    if not isinstance(value, dict | list):
        return
    if isinstance(value, dict):
        place = f"{where}, {path}" if path else where
        own = _container(value, engine, place) or _options(value, engine, place)
        if own is not None:
            yield own
            return
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        step = f"[{key}]" if isinstance(value, list) else f".{key}" if path else f"{key}"
        yield from _servers(each, engine, where, path + step)


def _container(value: Mapping[Any, Any], engine: str | None, where: str) -> ServedConfig | None:
    """The server that a container's image, command and arguments start."""
    words = [word for key in WORDS if key in value for word in _words(value[key], where)]
    image = value.get("image")
    image = image if isinstance(image, str) else None
    if not words and (image is None or image_engine(image) is None):
        return None
    if isinstance(value.get("name"), str):
        where = f"{where} ({printable(value['name'])})"
    environment = _environment(value.get("environment", value.get("env")))
    return served_command(words, engine=engine, environment=environment, image=image, where=where)


def _words(value: Any, where: str) -> list[str]:
    if isinstance(value, list):
        return [word for each in value for word in ([_text(each)] if not isinstance(each, dict | list) else [])]
    if not isinstance(value, str):
        return []
    try:
        return shlex.split(value.replace("\\\n", " "))
    except ValueError:
        raise BadInputError(f"{where} has a quotation that does not end ({printable(value)}); close it") from None


def _environment(value: Any) -> dict[str, str]:
    """NAME: value, `NAME=value`, or Kubernetes' name and value; what another object holds is left out."""
    if isinstance(value, dict):
        return {str(name): _text(each) for name, each in value.items() if not isinstance(each, dict | list)}
    found = {}
    for each in value if isinstance(value, list) else ():
        if isinstance(each, dict) and isinstance(each.get("name"), str) and "value" in each:
            found[each["name"]] = _text(each["value"])
        elif isinstance(each, str) and "=" in each:
            name, _, text = each.partition("=")
            found[name] = text
    return found


def _options(value: Mapping[Any, Any], engine: str | None, where: str) -> ServedConfig | None:
    """An engine's options as a mapping, or its speculative block alone."""
    keys = [key for key in value if isinstance(key, str)]
    if "decoding_type" in keys:
        return _config("tensorrt_llm", {}, value, where)
    block = next((value[key] for key in BLOCKS if isinstance(value.get(key), dict)), None)
    if block is not None:
        named = "tensorrt_llm" if "decoding_type" in block else engine or "vllm"
        return _config(named, {key: each for key, each in value.items() if key not in BLOCKS}, block, where)
    if engine in (None, "vllm") and any(key.partition(".")[0] in BLOCKS and isinstance(value[key], str | int) for key in keys):
        return _config("vllm", {BLOCK_KEY.sub(r"speculative-config\1", str(key)): each for key, each in value.items()}, None, where)
    for named, pattern in (("sglang", SGLANG_KEY), ("llamacpp", LLAMA_KEY)):
        if any(pattern.match(key) for key in keys):
            return _config(named, value, None, where)
    if VLLM_KEYS & set(keys) and (engine in (None, "vllm")) and not isinstance(value.get("method"), dict | list):
        return _config("vllm", {}, value, where) if {"method", "num_speculative_tokens"} & set(keys) or engine else None
    return None


def _config(engine: str, options: Mapping[Any, Any], block: Mapping[Any, Any] | None, where: str) -> ServedConfig:
    flags: dict[str, str | bool | tuple[str, ...]] = {}
    for key, each in options.items():
        name = str(key) if str(key).startswith("--") else f"--{key}"
        # SGLang's own option names have dashes; in JSON and YAML people write them either way
        name = long_spelling(name.replace("_", "-") if engine == "sglang" else name, engine)
        if each is not None and each is not False:
            flags[name] = True if each is True else tuple(map(_text, each)) if isinstance(each, list) else _text(each)
    if engine == "vllm" and block is None:
        block = stated_block(flags)
    target = next((text for name in ("--model", "--model-path") if isinstance(text := flags.get(name), str)), None)
    speculative = None if block is None else {str(key): each for key, each in block.items()}
    return ServedConfig(
        engine=engine, target=target, flags=flags, speculative=speculative, environment={}, image=None, others=(), where=where
    )


def _text(value: Any) -> str:
    """A scalar as an engine would see it on its command line, a structure as JSON."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    return json.dumps(value, default=str) if isinstance(value, dict | list) else str(value)
