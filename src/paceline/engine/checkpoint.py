"""A model folder as published: `config.json` and weights in safetensors, in one file or sharded with an index.

Pickled weights (`pytorch_model.bin`) are never opened: a pickle runs code. A tensor that is missing or has another shape is refused with
its name, since an engine that fills it with zeros drafts garbage and says nothing.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from paceline.errors import BadInputError, printable
from paceline.files.modelconfig import read_model_config

__all__ = ["Checkpoint", "open_checkpoint"]

INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder's config and where each of its tensors is."""

    folder: Path
    config: Mapping[str, Any]
    files: Mapping[str, Path]  # by tensor name

    def find(self, *names: str) -> str | None:
        """The first of `names` that the checkpoint has, None where it has none: layouts spell one tensor differently."""
        return next((name for name in names if name in self.files), None)

    def read(self, *names: str, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        """The tensor under the first of `names` that is there, in its `shape`.

        Raises:
            BadInputError: none is there, or it has another shape.

        """
        name = self.find(*names)
        if name is None:
            other = f" (or {', '.join(names[1:])})" if names[1:] else ""
            raise BadInputError(
                f"{printable(str(self.folder))} lacks the tensor {names[0]}{other}; it is incomplete, or made for another kind of model"
            )
        with safe_open(self.files[name], framework="pt") as opened:
            tensor = opened.get_tensor(name)
        if tuple(tensor.shape) != tuple(shape):
            raise BadInputError(
                f"{printable(str(self.folder))}: {name} has shape {list(tensor.shape)}, but the configuration says {list(shape)}"
            )
        return tensor.to(device=device, dtype=dtype)

    def read_optional(self, *names: str, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor | None:
        """As `read`, but None where none of `names` is there."""
        return None if self.find(*names) is None else self.read(*names, shape=shape, dtype=dtype, device=device)


def open_checkpoint(folder: Path) -> Checkpoint:
    """The config and the tensors' places; no weight is read yet.

    Raises:
        BadInputError: no config, no safetensors, or a shard that the index names is not there.

    """
    config = read_model_config(folder)
    index = folder / INDEX
    files = _indexed(folder, index) if index.exists() else _listed(folder)
    return Checkpoint(folder, config, files)


def _indexed(folder: Path, index: Path) -> dict[str, Path]:
    try:
        weight_map: dict[str, str] = json.loads(index.read_bytes())["weight_map"]
        places = {name: folder / Path(shard).name for name, shard in weight_map.items()}
    except (ValueError, KeyError, AttributeError, TypeError):
        raise BadInputError(f"{printable(str(index))} is no index of safetensors: it has no weight_map from tensor to file") from None
    for name, place in places.items():
        if not place.exists():
            raise BadInputError(f"{printable(str(folder))} lacks the shard {printable(place.name)}, which has {printable(name)}")
    return places


def _listed(folder: Path) -> dict[str, Path]:
    shards = sorted(folder.glob("*.safetensors"))
    if not shards:
        pickles = sorted(each.name for pattern in PICKLES for each in folder.glob(pattern))
        found = (
            f"only pickled weights ({printable(pickles[0])}), which can run code; convert them to safetensors" if pickles else "no weights"
        )
        raise BadInputError(f"{printable(str(folder))} has {found}")
    places: dict[str, Path] = {}
    for shard in shards:
        try:
            with safe_open(shard, framework="pt") as opened:
                places.update(dict.fromkeys(opened.keys(), shard))
        except Exception as fault:  # the library raises its own bare error for a file that was cut
            raise BadInputError(f"{printable(str(shard))} is no complete safetensors file: {printable(str(fault))}") from None
    return places
