"""The launch commands of both arms, for the names a user typed: identical but for speculation, in the dialect of each engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.data.tables import table
from paceline.errors import BadInputError, UnknownNameError
from paceline.forecast.shapes import model
from paceline.hardware import Dtype
from paceline.jobs.scenario import Asked, Scenario, on_disk
from paceline.run import Arm
from paceline.servers.batch_ranges import BatchRange
from paceline.servers.llamacpp import config as llamacpp
from paceline.servers.server_start import Drafting, NgramLengths, Release, ServerStart, release
from paceline.servers.sglang import config as sglang
from paceline.servers.tensorrt_llm import config as tensorrt_llm
from paceline.servers.vllm import config as vllm
from paceline.servers.vllm.versions import Version, vllm_version
from paceline.speculation.method import Method

__all__ = ["Commands", "Gguf", "checkpoints", "engine_version", "known_engines", "launch_commands", "replica_arguments"]

DEFAULT_VERSIONS = {"vllm": "0.32.0", "sglang": "0.5.23", "llamacpp": "b11434", "tensorrt_llm": "1.2.1"}
UNNAMED_DRAFT = "DRAFT"
UNNAMED_GGUF, UNNAMED_DRAFT_GGUF = "TARGET.gguf", "DRAFT.gguf"
NEED_CHECKPOINT = (Method.DRAFT_MODEL, Method.EAGLE, Method.EAGLE2, Method.EAGLE3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gguf:
    """The files that llama.cpp loads; None where one was not named."""

    target: str | None
    draft: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """How both arms are started.

    Attributes:
        starts: each arm's command and the files that it reads.
        config: what switches speculation on: vLLM's --speculative-config, TensorRT-LLM's speculative_config, else options by name.
        draft: the draft's name or folder, None where the method needs none.
        notes: what to do before either is run.

    """

    starts: Mapping[Arm, ServerStart]
    config: dict[str, Any]
    draft: str | None
    notes: tuple[str, ...]

    @property
    def baseline(self) -> str:
        """The plain server's command as a POSIX shell takes it."""
        return self.starts[Arm.BASELINE].shell

    @property
    def speculative(self) -> str:
        """The speculative server's."""
        return self.starts[Arm.SPECULATIVE].shell


def known_engines() -> tuple[str, ...]:
    """The dialects that commands are written in."""
    return tuple(DEFAULT_VERSIONS)


def engine_version(engine: str, text: str | None) -> Version | Release:
    """The version of an engine; None takes the one that its facts were read from last.

    Raises:
        BadInputError: no version of that engine.
        UnknownNameError: no engine of that name.

    """
    if engine not in DEFAULT_VERSIONS:
        raise UnknownNameError("engine", engine, DEFAULT_VERSIONS)
    written = DEFAULT_VERSIONS[engine] if text is None else text
    return vllm_version(written) if engine == "vllm" else release(engine, written)


def launch_commands(
    asked: Asked,
    found: Scenario,
    version: Version | Release,
    *,
    ngram: tuple[int, int],
    limits: Mapping[str, int],
    by_batch: Sequence[BatchRange] | None = None,
    gguf: Gguf | None = None,
) -> Commands:
    """The commands for this version.

    Args:
        asked: what the user typed.
        found: the scenario that it stands for.
        version: of vLLM, or of another engine as a `Release`.
        ngram: shortest and longest n-gram, where the method looks them up.
        limits: options with a number that both arms get, under vLLM's name, such as --max-num-seqs.
        by_batch: draft lengths by ranges of batch sizes (first, last, K), from 1 on without gaps; None for one length.
        gguf: the files to load, where the engine is llama.cpp.

    Raises:
        BadInputError: the version cannot do what is asked.

    """
    engine = version.engine if isinstance(version, Release) else "vllm"
    files = gguf or Gguf(target=None, draft=None)
    if engine != "llamacpp" and files != Gguf(target=None, draft=None):
        raise BadInputError(f"GGUF files are for llamacpp; {engine} loads folders")
    target, draft, notes = _gguf_files(asked, files) if engine == "llamacpp" else checkpoints(asked)
    drafting = Drafting(
        method=asked.method,
        draft=draft,
        draft_tokens=found.speculation.draft_tokens,
        tree=asked.tree,
        ngram=NgramLengths(shortest=ngram[0], longest=ngram[1]) if asked.method is Method.NGRAM else None,
        by_batch=None if by_batch is None else tuple(by_batch),
    )
    replica = _Replica(asked, target, found.where.gpus, limits)
    both, config, told = _vllm(replica, drafting, version) if isinstance(version, Version) else _other(replica, drafting, version)
    said = () if version.caution is None else (version.caution.message,)
    return Commands(
        starts=dict(zip((Arm.BASELINE, Arm.SPECULATIVE), both, strict=True)),
        config=config,
        draft=draft,
        notes=(*notes, *told, *_about_target(asked, engine), *said),
    )


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


@dataclass(frozen=True, slots=True)
class _Replica:
    """What both arms get: the target under the engine's name for it, its GPUs, and limits by vLLM's option."""

    asked: Asked
    target: str
    gpus: int
    limits: Mapping[str, int]


Both = tuple[tuple[ServerStart, ServerStart], dict[str, Any], tuple[str, ...]]  # baseline and speculative, configuration, notes


def _vllm(replica: _Replica, drafting: Drafting, version: Version) -> Both:
    config = vllm.speculative_config(drafting, version)
    extra = replica_arguments(replica.asked, replica.limits)
    arms = [
        vllm.launch_command(replica.target, speculation=each, gpus=replica.gpus, version=version, extra=extra) for each in (None, config)
    ]
    plain, speculative = (ServerStart(engine="vllm", command=tuple(each), files={}) for each in arms)
    tree = (f"vLLM drafts chains: the command drafts {drafting.draft_tokens} tokens in a row, not the tree",) * (drafting.tree is not None)
    table = config.get("num_speculative_tokens_per_batch_size", ())
    return (plain, speculative), config, (*tree, *(each.message for each in vllm.batch_size_table_cautions(table) if table))


def _other(replica: _Replica, drafting: Drafting, version: Release) -> Both:
    share, limits = replica.asked.utilisation, replica.limits
    if version.engine == "sglang":
        options, files = sglang.speculative_options(drafting, version)
        plain, speculative = (
            sglang.server_start(
                replica.target,
                speculation=each,
                gpus=replica.gpus,
                memory_share=share,
                limits=limits,
                quantization="fp8" if replica.asked.dtype is Dtype.FP8 else None,
            )
            for each in (None, (options, files))
        )
        return (plain, speculative), dict(options), sglang.speculative_notes(drafting, version)
    if version.engine == "llamacpp":
        chosen = llamacpp.speculative_options(drafting)
        plain, speculative = (llamacpp.server_start(replica.target, speculation=each, limits=limits) for each in (None, chosen))
        return (plain, speculative), dict(chosen), llamacpp.speculative_notes(drafting)
    config = tensorrt_llm.speculative_config(drafting, version)
    plain, speculative = (
        tensorrt_llm.server_start(
            replica.target, speculation=each, method=drafting.method, gpus=replica.gpus, memory_share=share, limits=limits
        )
        for each in (None, config)
    )
    return (plain, speculative), config, tensorrt_llm.speculative_notes(drafting)


def _about_target(asked: Asked, engine: str) -> tuple[str, ...]:
    """What the command cannot say of the target's weights."""
    if engine == "llamacpp":
        return ()
    if asked.dtype is Dtype.INT4:
        return ("int4 needs a checkpoint that is quantized so (AWQ, GPTQ); put its name where the target's stands",)
    if asked.dtype is Dtype.FP8 and engine == "tensorrt_llm":
        return ("fp8 needs a checkpoint that is quantized so (ModelOpt); put its name where the target's stands",)
    return ()


def _folder(target: str) -> str:
    """The folder of a config.json, for a server loads the folder; anything else as it is."""
    path = on_disk(target)
    return str(path.parent) if path is not None and path.is_file() else target


def _gguf_files(asked: Asked, files: Gguf) -> tuple[str, str | None, tuple[str, ...]]:
    """The files of target and draft (None where the method needs none), and what to note where one was not named."""
    notes = []
    if files.target is None:
        name = _checkpoint(asked.target).get("repository", asked.target)
        notes.append(f"put the GGUF file of {name} where {UNNAMED_GGUF} stands (convert_hf_to_gguf.py makes one), or give --gguf")
    draft = files.draft
    if draft is None and asked.method in NEED_CHECKPOINT:
        draft, name = UNNAMED_DRAFT_GGUF, f"of {asked.draft} " if asked.draft is not None else ""
        notes.append(f"put the draft's GGUF file {name}where {UNNAMED_DRAFT_GGUF} stands, or give --draft-gguf")
    return files.target or UNNAMED_GGUF, draft, tuple(notes)


def _checkpoint(target: str) -> dict[str, Any]:
    if on_disk(target) is not None:
        return {}
    name = model(target).name
    return next((row for row in table("checkpoints")["checkpoint"] if row["model"] == name), {})


def _draft(asked: Asked, known: Mapping[str, Any]) -> tuple[str | None, tuple[str, ...]]:
    """The draft as the server is told, and what to note about it."""
    if asked.draft is not None:
        repository = _checkpoint(asked.draft).get("repository") if asked.method is Method.DRAFT_MODEL else None
        return repository or asked.draft, ()
    if asked.method not in NEED_CHECKPOINT:
        return None, ()
    if asked.method is Method.EAGLE3 and "eagle3" in known:
        return known["eagle3"], (f"the head {known['eagle3']} is a general one ({known['source']}); read its licence",)
    return UNNAMED_DRAFT, (f"put the draft checkpoint's name or folder where {UNNAMED_DRAFT} stands, or give --draft",)
