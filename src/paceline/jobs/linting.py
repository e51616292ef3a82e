"""`lint`: what is wrong with the servers that a file, a text or a command line configures, each held against its engine's version.

Drafts and targets are looked at where their folders are at hand: those that are named, else those that a configuration names itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.checkpoint import Checkpoint
from paceline.errors import BadInputError, printable
from paceline.files.modeldir import read_checkpoint
from paceline.files.served_config import read_served_configs
from paceline.servers.checkpoint_pair import pair_findings
from paceline.servers.command_line import image_engine, image_version
from paceline.servers.lint import ConfigFinding, Severity, worst_first
from paceline.servers.lint_tables import Release, finding
from paceline.servers.llamacpp.lint import lint as lint_llamacpp
from paceline.servers.llamacpp.lint import llamacpp_version
from paceline.servers.served_config import ServedConfig
from paceline.servers.sglang.lint import lint as lint_sglang
from paceline.servers.sglang.lint import sglang_version
from paceline.servers.tensorrt_llm.lint import lint as lint_tensorrt_llm
from paceline.servers.tensorrt_llm.lint import tensorrt_llm_version
from paceline.servers.vllm.lint import drafting_of
from paceline.servers.vllm.lint import lint as lint_vllm
from paceline.servers.vllm.lint_method import CHECKPOINT_METHODS
from paceline.servers.vllm.versions import parse_version, vllm_version
from paceline.verdict import Caution

__all__ = ["Folders", "Linted", "lint_servers"]

DRAFT_FLAGS = {"sglang": "--speculative-draft-model-path", "llamacpp": "--spec-draft-model"}
METHOD_FLAGS = {"sglang": "--speculative-algorithm", "llamacpp": "--spec-type"}

Lint = Callable[[ServedConfig, Release], tuple[ConfigFinding, ...]]
OTHERS: Mapping[str, tuple[Callable[[str], Release], Lint]] = {
    "sglang": (sglang_version, lint_sglang),
    "llamacpp": (llamacpp_version, lint_llamacpp),
    "tensorrt_llm": (tensorrt_llm_version, lint_tensorrt_llm),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """The target's and the draft's folder, None where they are not at hand."""

    target: Path | None
    draft: Path | None


@dataclass(frozen=True, slots=True)
class Linted:
    """One server, what was found in its configuration, worst first, and what to be cautious about."""

    config: ServedConfig
    findings: tuple[ConfigFinding, ...]
    cautions: tuple[Caution, ...]


def lint_servers(source: Path | str, *, engine: str, version: str, folders: Folders, requests_use: frozenset[str]) -> tuple[Linted, ...]:
    """Each server of this engine that is configured, in order.

    Args:
        source: a file, or a text: a command line, JSON or YAML.
        engine: whose rules hold.
        version: of the engine.
        folders: where checkpoints are.
        requests_use: what requests are known to use (`request_features`).

    Raises:
        BadInputError: no such server, no such version, or a named folder that holds no model.

    """
    configs = read_served_configs(source, engine=engine)
    return tuple(_linted(each, engine, version, folders, requests_use) for each in configs)


def _linted(config: ServedConfig, engine: str, version: str, folders: Folders, requests_use: frozenset[str]) -> Linted:
    target, no_target = _checkpoint(folders.target, config.target)
    draft, no_draft = _checkpoint(folders.draft, _stated_draft(config, engine))
    found = [*no_target, *_another_version(config, engine, version)]
    if engine == "vllm":
        release = vllm_version(version)
        found += lint_vllm(config, release, target=target, draft=draft, requests_use=requests_use)
        parts, caution = release.answers, release.caution
        drafting = drafting_of(config, release, target=target, draft=draft)
        method = None if drafting is None else drafting.method
        found += no_draft if method in CHECKPOINT_METHODS else ()
    else:
        if requests_use:
            raise BadInputError("--requests-use is known for vllm only; leave it out")
        versioned, lint = OTHERS[engine]
        other = versioned(version)
        found += [*lint(config, other), *no_draft]
        parts, caution = other.parts, other.caution
        stated = config.flags.get(METHOD_FLAGS.get(engine, ""))
        method = stated if isinstance(stated, str) else None
    if target is not None and draft is not None and (engine != "vllm" or method in CHECKPOINT_METHODS):
        told = {each.code for each in found}  # vLLM's own lint knows from which version on it is so
        found += [each for each in _pair(target, draft, config, engine=engine, parts=parts, method=method) if each.code not in told]
    return Linted(config, worst_first(tuple(found)), () if caution is None else (caution,))


def _another_version(config: ServedConfig, engine: str, version: str) -> list[ConfigFinding]:
    """That the configuration starts another version than the one whose rules are held against it, by its image's tag."""
    stated = None if config.image is None or image_engine(config.image) != engine else image_version(config.image)
    if stated is None:
        return []
    started, asked = (parse_version(each) if engine == "vllm" else OTHERS[engine][0](each).parts for each in (stated, version))
    if started == asked:
        return []
    message = f"the image {printable(config.image)} is not of version {version}, whose rules were held against it"
    return [finding(Severity.WARNING, "another_version", "image", message, remedy=f"lint with --engine-version {stated}", row=None)]


def _pair(
    target: Checkpoint, draft: Checkpoint, config: ServedConfig, *, engine: str, parts: tuple[int, int, int], method: str | None
) -> tuple[ConfigFinding, ...]:
    length = config.flags.get("--max-model-len", config.flags.get("--context-length"))
    return pair_findings(
        target,
        draft,
        engine=engine,
        version=parts,
        method=method,
        draft_tensor_parallel=None,
        max_model_len=int(length) if isinstance(length, str) and length.isdecimal() else None,
    )


def _stated_draft(config: ServedConfig, engine: str) -> str | None:
    """What the configuration itself says to draft with."""
    stated = (config.speculative or {}).get("model", config.flags.get("--spec-model")) if engine == "vllm" else None
    stated = stated or config.flags.get(DRAFT_FLAGS.get(engine, ""))
    return stated if isinstance(stated, str) else None


def _checkpoint(folder: Path | None, named: str | None) -> tuple[Checkpoint | None, tuple[ConfigFinding, ...]]:
    """The checkpoint in the folder that was given, else in the one that the configuration names; what is wrong with the latter."""
    if folder is not None:
        return read_checkpoint(folder), ()
    if named is None or not _is_folder(named):
        return None, ()
    try:
        return read_checkpoint(Path(named)), ()
    except BadInputError as error:
        message = f"{printable(named)} is no model's folder: {error}"
        remedy = "name a folder with the model's config.json"
        return None, (finding(Severity.ERROR, "unreadable_checkpoint", "model", message, remedy=remedy, row=None),)


def _is_folder(name: str) -> bool:
    """Whether a name in a configuration is a folder here; one that no file system takes is none."""
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):
        return False
