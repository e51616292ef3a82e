"""A model's folder as a checkpoint: configuration, tensors and tokens, without loading a weight and without ever unpickling.

Which files hold the tensors is told as loaders tell it: those of `model.safetensors.index.json`, else `model.safetensors`, else every
*.safetensors file. A folder of nothing but pickles is refused, for a pickle runs what is in it when it is opened.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import Any

import numpy as np

from paceline.checkpoint import Checkpoint, TargetIds, TokenTable
from paceline.errors import BadInputError, is_count, printable
from paceline.files.bounded import need_file, open_file, read_bounded
from paceline.files.found import sha256_of
from paceline.files.modelconfig import read_model_config
from paceline.files.safetensors_header import SafetensorsFile, read_header, read_whole_numbers

__all__ = ["need_readable_folder", "read_checkpoint", "read_weight_headers", "weights_fingerprint"]

INDEX, WHOLE, ANY = "model.safetensors.index.json", "model.safetensors", "*.safetensors"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
DRAFT_TO_TARGET = "d2t"
MOST_FILES = 2_000
FINGERPRINT_BLOCKS, FINGERPRINT_BLOCK_BYTES = 256, 64 * 1024
MOST_INDEX_BYTES = 100_000_000
MOST_TOKENIZER_BYTES = 128 << 20
LARGEST_TOKEN = 1 << 31
VOCABULARIES = ("tokenizer.json", "vocab.json")
SENTENCEPIECE = "tokenizer.model"
TEMPLATES, TEXTS = "additional_chat_templates", (".json", ".jinja", ".model", ".txt")


def read_checkpoint(folder: Path) -> Checkpoint:
    """What the folder says of the model in it. A folder with a configuration and no weights at all is one whose tensors are not known.

    Raises:
        BadInputError: no folder, no config.json, weights as pickles or GGUF only, or a file that is cut off or not what its name says.

    """
    if not folder.is_dir():
        raise BadInputError(f"{printable(str(folder))} is no folder; give the one that holds the model's config.json and its weights")
    config = read_model_config(folder)
    files = read_weight_headers(folder)
    return Checkpoint(
        name=folder.resolve().name,
        config=config,
        tensors={name: tensor for file in files for name, tensor in file.tensors.items()} if files else None,
        target_ids=_target_ids(files),
        tokens=_tokens(folder),
    )


def read_weight_headers(folder: Path) -> tuple[SafetensorsFile, ...]:
    """The files that hold a model's tensors, each tensor in one of them; none where the folder has no weights of any format.

    Raises:
        BadInputError: weights as pickles or GGUF only, a tensor twice or not at all, or a file that is cut off or not what its name says.

    """
    files = tuple(map(read_header, _files(folder)))
    seen: set[str] = set()
    for file in files:
        twice = next((each for each in file.tensors if each in seen), None)
        if twice is not None:
            raise BadInputError(
                f"tensor {printable(twice)} is in two files of {printable(folder.name)}; leave one copy of the weights there"
            )
        seen |= file.tensors.keys()
    _need_all(folder, seen)
    return files


def weights_fingerprint(folder: Path) -> str:
    """Which model this is, as a hash: of its configuration, and of each file of weights the size and blocks all over it.

    A whole hash of a large model takes minutes. Another model, or the same after more training, differs in every block.

    Raises:
        BadInputError: no configuration, or weights that cannot be read.

    """
    digest = hashlib.sha256(json.dumps(read_model_config(folder), sort_keys=True).encode())
    for each in read_weight_headers(folder):
        size = each.path.stat().st_size
        digest.update(f"{each.path.name} {size}".encode())
        with open_file(each.path) as file:
            for block in range(FINGERPRINT_BLOCKS):
                file.seek(size * block // FINGERPRINT_BLOCKS)
                digest.update(file.read(FINGERPRINT_BLOCK_BYTES))
    return digest.hexdigest()


def need_readable_folder(folder: Path) -> None:
    """Nothing, where a library that opens what it likes in a model's folder finds files that end, and texts of a size that texts have.

    Raises:
        BadInputError: a file is a device or a pipe, cannot be read, or is larger; with its name.

    """
    for each in sorted(place for inside in (folder, folder / TEMPLATES) if inside.is_dir() for place in inside.iterdir()):
        if each.is_dir() or not each.exists():  # a link to nothing is no file to anybody
            continue
        try:
            need_file(each)
        except OSError as fault:
            raise BadInputError(f"{printable(str(each))} cannot be read: {fault.strerror}") from None
        if each.suffix in TEXTS and each.stat().st_size > MOST_TOKENIZER_BYTES:
            raise BadInputError(f"{printable(str(each))} is larger than {MOST_TOKENIZER_BYTES >> 20} MiB; download it again")


def _files(folder: Path) -> tuple[Path, ...]:
    if (folder / INDEX).is_file():
        shards = tuple(folder / each for each in sorted(set(_weight_map(folder).values())))
        lost = next((each.name for each in shards if not each.is_file()), None)
        if lost is not None:
            raise BadInputError(f"{printable(str(folder))} lacks the shard {printable(lost)}, which its index names; download it again")
        return shards
    if (folder / WHOLE).is_file():
        return (folder / WHOLE,)
    found = sorted(each for each in folder.glob(ANY) if each.is_file())
    if len(found) > MOST_FILES:
        raise BadInputError(f"{printable(str(folder))} has {len(found)} safetensors files; give the folder of one model")
    if not found:
        _need_no_other(folder)
    return tuple(found)


def _need_no_other(folder: Path) -> None:
    """Nothing, where the folder has no weights of another format."""
    pickle = next((each for pattern in PICKLES for each in sorted(folder.glob(pattern))), None)
    if pickle is not None:
        raise BadInputError(
            f"{printable(str(folder))} has its weights as a pickle only ({printable(pickle.name)}), which runs code when it is opened; "
            "convert them to safetensors (save_pretrained with safe_serialization=True) or give a folder that has them"
        )
    gguf = next(iter(sorted(folder.glob("*.gguf"))), None)
    if gguf is not None:
        raise BadInputError(
            f"{printable(str(folder))} has its weights as GGUF only ({printable(gguf.name)}); give the safetensors folder it was made from"
        )


def _weight_map(folder: Path) -> Mapping[str, str]:
    index = _json(folder / INDEX, most=MOST_INDEX_BYTES)
    shards = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(shards, dict) or not shards or not all(isinstance(each, str) for each in shards.values()):
        raise BadInputError(f"{printable(INDEX)} has no weight_map from tensors to files; download it again")
    outside = next((each for each in set(shards.values()) if "/" in each or "\\" in each or not each.endswith(".safetensors")), None)
    if outside is not None or len(set(shards.values())) > MOST_FILES:
        raise BadInputError(f"{printable(INDEX)} names {printable(outside)}, which is no safetensors file of its own folder")
    return shards


def _need_all(folder: Path, tensors: Set[str]) -> None:
    """Nothing, where the files have every tensor that the index lists."""
    listed = _weight_map(folder) if (folder / INDEX).is_file() else {}
    missing = sorted(listed.keys() - tensors)
    if missing:
        raise BadInputError(f"{len(missing)} tensors of the index are in no file, {printable(missing[0])} first; download the model again")


def _json(path: Path, *, most: int) -> Any:
    """The JSON in a file of at most that many bytes.

    Raises:
        BadInputError: it cannot be read, is larger, or is no JSON.

    """
    content = read_bounded(path, what="the model's", most_bytes=most, remedy="download it again")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as fault:
        raise BadInputError(f"{printable(path.name)} is not JSON: {printable(str(fault))}") from None


def _target_ids(files: Iterable[SafetensorsFile]) -> TargetIds | None:
    """Where the draft's table of offsets leads; None without one, and where it is no list of whole numbers."""
    found = ((file, name) for file in files for name in file.tensors if name.rpartition(".")[2] == DRAFT_TO_TARGET)
    file, name = next(found, (None, ""))
    offsets = None if file is None else read_whole_numbers(file, name)
    if offsets is None or not offsets.size:
        return None
    ids = offsets + np.arange(offsets.size)
    return TargetIds(
        entries=int(ids.size),
        lowest=int(ids.min()),
        highest=int(ids.max()),
        distinct=int(np.unique(ids).size),
        unmoved=not offsets.any(),
    )


def _tokens(folder: Path) -> TokenTable | None:
    """The tokenizer's table; of a file whose format we do not read, its own hash."""
    for name in VOCABULARIES:
        if (folder / name).is_file():
            by_id = _by_id(_json(folder / name, most=MOST_TOKENIZER_BYTES), name)
            text = json.dumps(sorted(by_id.items()), ensure_ascii=True, separators=(",", ":"))
            return TokenTable(sha256=hashlib.sha256(text.encode()).hexdigest(), texts=by_id, source=name)
    if (folder / SENTENCEPIECE).is_file():
        return TokenTable(sha256=sha256_of(folder / SENTENCEPIECE), texts=None, source=SENTENCEPIECE)
    return None


def _by_id(content: Any, name: str) -> dict[int, str]:
    """Each id's text: of a tokenizer.json the model's vocabulary and what was added to it, of a vocab.json all there is."""
    document = content if isinstance(content, dict) else {}
    model = document.get("model") if isinstance(document.get("model"), dict) else None
    words = document if model is None else model.get("vocab")
    pairs: list[tuple[Any, Any]]
    if isinstance(words, list):  # of a unigram model: pairs of text and score, in the order of their ids
        pairs = [(each[0] if isinstance(each, list) and each else None, at) for at, each in enumerate(words)]
    else:
        pairs = list(words.items()) if isinstance(words, dict) else []
    added = document.get("added_tokens") if model is not None else None
    pairs += [(each.get("content"), each.get("id")) for each in added or () if isinstance(each, dict)] if isinstance(added, list) else []
    by_id = {at: word for word, at in pairs if isinstance(word, str) and is_count(at, least=0) and at < LARGEST_TOKEN}
    if not by_id:
        raise BadInputError(f"{printable(name)} lists no tokens with their ids; download the tokenizer again")
    return by_id
