"""The header of a safetensors file: eight bytes of length (little-endian), then JSON that names each tensor's dtype, shape and place.

The header is all that is read; of tensors only a table of whole numbers on request, never a weight. Nothing in a file is trusted: lengths
are bounded before they are allocated, places are checked against the file's size, and a name given twice is refused.
Source: the format's description in the safetensors README; its 100 MB limit on a header is kept.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard

import numpy as np
import numpy.typing as npt

from paceline.checkpoint import BITS_OF_DTYPE, TensorHeader
from paceline.errors import BadInputError, is_count, printable
from paceline.files.bounded import open_file

__all__ = ["SafetensorsFile", "read_header", "read_whole_numbers"]

LENGTH_BYTES = 8
MOST_HEADER_BYTES = 100_000_000
MOST_TENSORS = 500_000
MOST_DIMENSIONS = 16
LARGEST = 1 << 60
MOST_NUMBERS = 4 << 20
WHOLE: dict[str, npt.DTypeLike] = {"I64": "<i8", "I32": "<i4"}


@dataclass(frozen=True, slots=True)
class SafetensorsFile:
    """A file's tensors by name, and where the bytes of each begin in the file."""

    path: Path
    tensors: Mapping[str, TensorHeader]
    begins: Mapping[str, int]


def read_header(path: Path) -> SafetensorsFile:
    """What tensors a file has.

    Raises:
        BadInputError: it cannot be read, is no safetensors file, or is cut off.

    """
    shown = printable(path.name)
    try:
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            text = _header_text(file, size, shown)
    except OSError as fault:
        raise BadInputError(f"{shown} cannot be read: {fault.strerror}") from None
    try:
        entries = json.loads(text, object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as fault:
        raise BadInputError(f"the header of {shown} is not JSON: {printable(str(fault))}; download the file again") from None
    if not isinstance(entries, dict) or len(entries) > MOST_TENSORS:
        raise BadInputError(f"the header of {shown} is no object of at most {MOST_TENSORS} tensors; download the file again")
    entries.pop("__metadata__", None)
    data_at = LENGTH_BYTES + len(text)
    tensors, begins, end = {}, {}, 0
    for name, entry in entries.items():
        tensors[name], (begin, until) = _tensor(name, entry, shown)
        begins[name] = data_at + begin
        end = max(end, until)
    if data_at + end != size:
        raise BadInputError(f"{shown} has {size} bytes, but its header places tensors up to byte {data_at + end}; download the file again")
    return SafetensorsFile(path=path, tensors=tensors, begins=begins)


def _header_text(file: BinaryIO, size: int, shown: str) -> bytes:
    length = int.from_bytes(file.read(LENGTH_BYTES), "little")
    if length > min(MOST_HEADER_BYTES, size - LENGTH_BYTES):
        raise BadInputError(
            f"{shown} of {size} bytes states a header of {length} bytes: no safetensors file, or only part of one; download it again"
        )
    return file.read(length)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is given twice")
    return found


def _tensor(name: str, entry: Any, shown: str) -> tuple[TensorHeader, tuple[int, int]]:
    told = entry if isinstance(entry, dict) else {}
    dtype, shape, place = told.get("dtype"), told.get("shape"), told.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in BITS_OF_DTYPE:
        raise BadInputError(f"tensor {printable(name)} of {shown} has the dtype {printable(dtype)}, which safetensors does not have")
    if not _sizes(shape, most=MOST_DIMENSIONS) or not _sizes(place, most=2) or len(place) != 2:
        raise BadInputError(f"tensor {printable(name)} of {shown} has the shape {printable(shape)} and the place {printable(place)}")
    header = TensorHeader(dtype=dtype, shape=tuple(shape))
    if place[1] - place[0] != header.stored_bytes:
        raise BadInputError(
            f"tensor {printable(name)} of {shown} has {header.stored_bytes} bytes by its shape and {place[1] - place[0]} by its place"
        )
    return header, (place[0], place[1])


def _sizes(values: Any, *, most: int) -> TypeGuard[list[int]]:
    return isinstance(values, list) and len(values) <= most and all(is_count(each, least=0) and each < LARGEST for each in values)


def read_whole_numbers(file: SafetensorsFile, name: str) -> npt.NDArray[np.int64] | None:
    """The numbers of a tensor of 32 or 64 bit integers with one dimension, shape [n]; None where it is none, or has over 4 million.

    Raises:
        BadInputError: the file changed since its header was read.

    """
    tensor = file.tensors[name]
    if tensor.dtype not in WHOLE or len(tensor.shape) != 1 or tensor.elements > MOST_NUMBERS:
        return None
    try:
        with open_file(file.path) as opened:
            opened.seek(file.begins[name])
            data = opened.read(tensor.stored_bytes)
    except OSError as fault:
        raise BadInputError(f"{printable(file.path.name)} cannot be read: {fault.strerror}") from None
    if len(data) != tensor.stored_bytes:
        raise BadInputError(f"{printable(file.path.name)} was cut while it was read; read it again when its download has ended")
    numbers: npt.NDArray[np.int64] = np.frombuffer(data, dtype=WHOLE[tensor.dtype]).astype(np.int64)
    return numbers
