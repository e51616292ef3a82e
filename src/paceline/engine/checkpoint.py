"""A model folder as published: `config.json` and weights in safetensors, in one file or sharded.

Pickled weights (`pytorch_model.bin`) are never opened: a pickle runs code. A tensor that is missing or has another shape is refused with
its name, since an engine that fills it with zeros drafts garbage and says nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from paceline.checkpoint import Checkpoint as ModelFolder
from paceline.checkpoint import TensorHeader
from paceline.engine.config_sizes import need_possible_sizes
from paceline.errors import BadInputError, printable
from paceline.files.modelconfig import read_model_config
from paceline.files.modeldir import read_weight_headers

__all__ = ["Checkpoint", "longest_context", "open_checkpoint"]

WEIGHTS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder's config, its tensors by name, and the file that each is in."""

    folder: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, TensorHeader]
    files: Mapping[str, Path]

    @property
    def described(self) -> ModelFolder:
        """The same as far as it is known without loading a weight."""
        return ModelFolder(name=self.folder.name, config=self.config, tensors=self.tensors, target_ids=None, tokens=None)

    def read(self, name: str, *, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        """The tensor of that name, in its `shape`.

        Raises:
            BadInputError: it is not there, has another shape, is in a format that needs scales, or holds a NaN or an infinity, of which
                argmax makes token 0 and a target and its draft would agree.

        """
        if name not in self.tensors:
            raise BadInputError(
                f"{printable(str(self.folder))} lacks the tensor {name}; it is incomplete, or made for another kind of model"
            )
        found = self.tensors[name].shape
        if found != tuple(shape):
            raise BadInputError(f"{printable(str(self.folder))}: {name} has shape {list(found)}, but the configuration says {list(shape)}")
        with safe_open(self.files[name], framework="pt") as opened:
            tensor = opened.get_tensor(name)
        if dtype.is_floating_point:
            if tensor.dtype not in WEIGHTS:
                raise BadInputError(f"{printable(str(self.folder))}: {name} is {tensor.dtype}; give weights that are not quantised")
            if not torch.isfinite(tensor).all():
                raise BadInputError(f"{printable(str(self.folder))}: {name} holds numbers that are none (NaN or infinite); copy it again")
        return tensor.to(device=device, dtype=dtype)

    def read_optional(self, name: str, *, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor | None:
        """As `read`, but None where there is no such tensor."""
        return self.read(name, shape=shape, dtype=dtype, device=device) if name in self.tensors else None


def open_checkpoint(folder: Path) -> Checkpoint:
    """The config and the tensors' places; no weight is read yet.

    Raises:
        BadInputError: no config, an impossible size in it, no safetensors, a shard that the index names is not there, or a file is cut off.

    """
    config = read_model_config(folder)
    need_possible_sizes(config)
    headers = read_weight_headers(folder)
    if not headers:
        raise BadInputError(f"{printable(str(folder))} has no weights; give the folder that has the model's safetensors")
    return Checkpoint(
        folder,
        config,
        {name: tensor for file in headers for name, tensor in file.tensors.items()},
        {name: file.path for file in headers for name in file.tensors},
    )


def longest_context(*folders: Path) -> int | None:
    """Tokens of prompt and answer that all these models can read; None where none of them says.

    Raises:
        BadInputError: as for `open_checkpoint`.

    """
    stated = (open_checkpoint(each).described.max_positions for each in folders)
    return min((each for each in stated if each is not None), default=None)
