"""What is decided about: a target on its GPUs and how it would draft, from the names a user types."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paceline.checkpoint import Checkpoint
from paceline.errors import BadInputError, printable
from paceline.files.found import sha256_of
from paceline.files.gpufile import read_gpu
from paceline.files.modelconfig import read_model_config
from paceline.forecast.config_json import model_from_config
from paceline.forecast.draft_memory import DEFAULT_DRAFT_VOCAB, MemoryAnswer, draft_shape, eagle3_head, head_intermediate, memory
from paceline.forecast.roofline import Placement, placed
from paceline.forecast.shapes import gpu, model
from paceline.hardware import DraftShape, Dtype, ModelShape
from paceline.speculation.method import Method, Speculation, Tree

__all__ = ["Asked", "Scenario", "config_hashes", "default_dtype", "on_disk", "own_tokenizer", "resolved_model", "scenario"]

TRIED_GPUS = (1, 2, 4, 8)
TOML = ".toml"
TOKENIZER = "tokenizer.json"
ROOM_FOR_KV = 0.25
DTYPES_OF_QUANTIZATION = {"fp8": Dtype.FP8, "awq": Dtype.INT4, "gptq": Dtype.INT4, "mxfp4": Dtype.FP4}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user typed about target, hardware and speculation; None takes the documented default."""

    target: str
    gpu: str
    gpus: int | None
    dtype: Dtype
    utilisation: float
    method: Method
    draft: str | None
    draft_tokens: int
    draft_vocab: int | None
    tree: Tree | None


@dataclass(frozen=True, slots=True)
class Scenario:
    """A target, where it runs, how it drafts, and the share of GPU memory the engine may use."""

    target: ModelShape
    where: Placement
    speculation: Speculation
    draft: DraftShape | None
    utilisation: float

    def memory(self, context_tokens: int) -> MemoryAnswer:
        """What fits at that context, without and with the draft.

        Raises:
            BadInputError: the target, or the target with its draft, does not fit.

        """
        return memory(
            target=self.target,
            draft=self.draft,
            speculation=self.speculation,
            where=self.where,
            context_tokens=context_tokens,
            utilisation=self.utilisation,
        )


def on_disk(name: str) -> Path | None:
    """The file or folder that a name means, None where there is none; a name too long for a file system is none."""
    path = Path(name)
    try:
        return path if path.exists() else None
    except OSError:
        return None


def own_tokenizer(target: str) -> Path | None:
    """The tokenizer.json beside the config.json of a target on disk, None where there is none."""
    path = on_disk(target)
    file = None if path is None else (path if path.is_dir() else path.parent) / TOKENIZER
    return file if file is not None and file.is_file() else None


def resolved_model(name: str) -> ModelShape:
    """The shape behind a well-known name, a config.json or a folder with one.

    Raises:
        BadInputError: the file is no dense decoder's config.json.
        UnknownNameError: neither a file nor a name we know.

    """
    path = on_disk(name)
    if path is not None:
        shape = model_from_config(read_model_config(path))
        folder = path if path.is_dir() else path.parent
        return replace(shape, name=folder.resolve().name or shape.name)
    return model(name)


def default_dtype(target: str) -> Dtype:
    """The dtype of weights that were not asked for: what the config.json of a target on disk states, fp8 of a well-known name.

    A config without quantisation is of 16 bits, whatever else it says: servers load float32 weights so.

    Raises:
        BadInputError: the file is no config, or is quantised in a way we do not know.

    """
    path = on_disk(target)
    if path is None:
        return Dtype.FP8
    config = read_model_config(path)
    inner = config.get("text_config")
    stated = config.get("quantization_config") or (inner.get("quantization_config") if isinstance(inner, dict) else None)
    return Dtype.BF16 if stated is None else _quantised(stated)


def _quantised(stated: Any) -> Dtype:
    told: Mapping[str, Any] = stated if isinstance(stated, dict) else {}
    method = told.get("quant_method")
    if method not in DTYPES_OF_QUANTIZATION or told.get("bits", 4) != 4:
        raise BadInputError(
            f"the target's config.json is quantised by {printable(method)}, of which we do not know the dtype; give --dtype"
        )
    return DTYPES_OF_QUANTIZATION[str(method)]


def config_hashes(asked: Asked) -> dict[str, str]:
    """SHA-256 of the config.json that target and draft are read from, by folder and name, and of stated hardware; none for known names.

    Raises:
        BadInputError: it cannot be read.

    """
    places = [path for path in (on_disk(each) for each in (asked.target, asked.draft) if each is not None) if path is not None]
    files = [path / "config.json" if path.is_dir() else path for path in places]
    found = {f"{each.resolve().parent.name}/{each.name}": sha256_of(each) for each in files if each.is_file()}
    stated = _gpu_file(asked.gpu)
    return found if stated is None else found | {stated.name: sha256_of(stated)}


def _gpu_file(name: str) -> Path | None:
    return Path(name) if name.endswith(TOML) else None


def scenario(asked: Asked) -> Scenario:
    """The scenario that was typed; without a number of GPUs, the fewest that hold the target and leave a quarter for its KV cache,
    else the most that hold it at all.

    Raises:
        BadInputError: it does not fit, or a draft is missing.
        UnknownNameError: no such model or GPU.

    """
    target = resolved_model(asked.target)
    speculation = Speculation(method=asked.method, draft_tokens=asked.draft_tokens, tree=asked.tree)
    draft = _draft(asked, target)
    file = _gpu_file(asked.gpu)
    chosen = gpu(asked.gpu) if file is None else read_gpu(file)
    found: Scenario | None = None
    fault: BadInputError | None = None
    for gpus in TRIED_GPUS if asked.gpus is None else (asked.gpus,):
        try:
            where = placed(target, gpu=chosen, gpus=gpus, dtype=asked.dtype)
            fits = Scenario(target=target, where=where, speculation=speculation, draft=draft, utilisation=asked.utilisation)
            room = fits.memory(context_tokens=1)
        except BadInputError as why:
            fault = why
            continue
        found = fits
        if room.speculative_pool_bytes >= ROOM_FOR_KV * chosen.memory_bytes * asked.utilisation:
            return found
    if found is None:
        assert fault is not None
        raise fault
    return found


def _draft(asked: Asked, target: ModelShape) -> DraftShape | None:
    """The draft's shape: of a named draft model, of an EAGLE-3 head that is on disk, else of the head that the method implies."""
    head = on_disk(asked.draft) if asked.draft is not None and asked.method is Method.EAGLE3 else None
    if head is not None:
        return _stated_head(head, asked.draft_vocab, target)
    named = asked.draft is not None and asked.method is Method.DRAFT_MODEL
    shape = resolved_model(asked.draft) if named and asked.draft is not None else None
    vocab = min(DEFAULT_DRAFT_VOCAB, target.vocab) if asked.draft_vocab is None else asked.draft_vocab
    return draft_shape(asked.method, target=target, draft=shape, draft_vocab=vocab)


def _stated_head(path: Path, draft_vocab: int | None, target: ModelShape) -> DraftShape:
    """The EAGLE-3 head that a config.json states: its vocabulary and the size within its feed-forward are its own."""
    config = read_model_config(path)
    stated = Checkpoint(name=path.resolve().name, config=config, tensors=None, target_ids=None, tokens=None)
    own = stated.draft_vocabulary
    if own is not None and draft_vocab not in (None, own):
        raise BadInputError(
            f"--draft-vocab {draft_vocab} contradicts the config.json of the head in {printable(stated.name)}, which drafts from {own} "
            "tokens; leave --draft-vocab out"
        )
    vocab = own or draft_vocab or min(DEFAULT_DRAFT_VOCAB, target.vocab)
    return eagle3_head(target, draft_vocab=vocab, intermediate=stated.size("intermediate_size") or head_intermediate(target))
