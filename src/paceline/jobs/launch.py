"""The launch commands of both arms, for the names a user typed: identical but for speculation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.data.tables import table
from paceline.forecast.shapes import model
from paceline.hardware import Dtype
from paceline.jobs.scenario import Asked, Scenario, on_disk
from paceline.servers.vllm.config import NgramLengths, launch_command, rendered, speculative_config
from paceline.servers.vllm.versions import Version
from paceline.speculation.method import Method

__all__ = ["Commands", "checkpoints", "launch_commands", "replica_arguments"]

UNNAMED_DRAFT = "DRAFT"
NEED_CHECKPOINT = (Method.DRAFT_MODEL, Method.EAGLE, Method.EAGLE2, Method.EAGLE3)


@dataclass(frozen=True, slots=True)
class Commands:
    """How both arms are started.

    Attributes:
        baseline: the plain server's command as a POSIX shell takes it.
        speculative: the speculative server's.
        config: the value of vLLM's --speculative-config.
        draft: the draft's name or folder, None where the method needs none.
        notes: what to do before either is run.

    """

    baseline: str
    speculative: str
    config: dict[str, str | int]
    draft: str | None
    notes: tuple[str, ...]


def launch_commands(asked: Asked, found: Scenario, version: Version, *, ngram: tuple[int, int], limits: Mapping[str, int]) -> Commands:
    """The commands for this version of vLLM. `limits` are options with a number that both arms get, such as --max-num-seqs.

    Raises:
        BadInputError: the version cannot do this method.

    """
    target, draft, notes = checkpoints(asked)
    config = speculative_config(
        asked.method,
        draft=draft,
        draft_tokens=found.speculation.draft_tokens,
        ngram=NgramLengths(shortest=ngram[0], longest=ngram[1]) if asked.method is Method.NGRAM else None,
        version=version,
    )
    extra = replica_arguments(asked, limits)
    arms = [launch_command(target, speculation=each, gpus=found.where.gpus, version=version, extra=extra) for each in (None, config)]
    notes = (*notes, *_about_target(asked), *((version.caution.message,) if version.caution is not None else ()))
    return Commands(baseline=rendered(arms[0]), speculative=rendered(arms[1]), config=config, draft=draft, notes=notes)


def checkpoints(asked: Asked) -> tuple[str, str | None, tuple[str, ...]]:
    """What a server loads: the target, the draft (None where the method needs none), and what to note about them."""
    known = _checkpoint(asked.target)
    draft, notes = _draft(asked, known)
    return known.get("repository", _folder(asked.target)), draft, notes


def replica_arguments(asked: Asked, limits: Mapping[str, int]) -> tuple[str, ...]:
    """What both of vLLM's arms are started with, so that they run what was analysed."""
    quantized = ("--quantization", "fp8") if asked.dtype is Dtype.FP8 else ()
    room = ("--gpu-memory-utilization", f"{asked.utilisation:g}")
    return (*quantized, *room, *(part for name, value in limits.items() for part in (name, str(value))))


def _about_target(asked: Asked) -> tuple[str, ...]:
    """What the command cannot say of the target's weights."""
    return ("int4 needs a checkpoint that is quantized so (AWQ, GPTQ); put its name where the target's stands",) * (
        asked.dtype is Dtype.INT4
    )


def _folder(target: str) -> str:
    """The folder of a config.json, for a server loads the folder; anything else as it is."""
    path = on_disk(target)
    return str(path.parent) if path is not None and path.is_file() else target


def _checkpoint(target: str) -> dict[str, Any]:
    if on_disk(target) is not None:
        return {}
    name = model(target).name
    return next((row for row in table("checkpoints")["checkpoint"] if row["model"] == name), {})


def _draft(asked: Asked, known: dict[str, Any]) -> tuple[str | None, tuple[str, ...]]:
    """The draft as the server is told, and what to note about it."""
    if asked.draft is not None:
        repository = _checkpoint(asked.draft).get("repository") if asked.method is Method.DRAFT_MODEL else None
        return repository or asked.draft, ()
    if asked.method not in NEED_CHECKPOINT:
        return None, ()
    if asked.method is Method.EAGLE3 and "eagle3" in known:
        return known["eagle3"], (f"the head {known['eagle3']} is a general one ({known['source']}); read its licence",)
    return UNNAMED_DRAFT, (f"put the draft checkpoint's name or folder where {UNNAMED_DRAFT} stands, or give --draft",)
