"""Reads hardware that is in no table: one GPU or CPU as its user states it, in TOML.

    name = "two Xeon cores"
    memory_bytes = 24e9
    bandwidth_bytes_per_s = 20e9         peak
    flops_per_s = { bf16 = 300e9 }       dense peaks by dtype
    roofline_norm = 1.5                  optional: how much of reading and arithmetic overlaps, 3 on GPUs, 1 where they take turns
    source = "its data sheet"            optional

A server whose weights are wider than any dtype here (float32 on a CPU) reads twice the bytes: state half the bandwidth under bf16.
"""

import tomllib
from pathlib import Path
from typing import Any

from paceline.errors import BadInputError, UnknownNameError, printable
from paceline.files.bounded import read_bounded
from paceline.forecast.shapes import known_gpus
from paceline.hardware import Dtype, Gpu

__all__ = ["read_gpu"]

LARGEST_BYTES = 64 * 1024
NEEDED = ("name", "memory_bytes", "bandwidth_bytes_per_s", "flops_per_s")
KEYS = (*NEEDED, "roofline_norm", "source")
# From a microcontroller to a building full of accelerators: what lies outside was written in another unit.
POSSIBLE = {"memory_bytes": (1e3, 1e18), "bandwidth_bytes_per_s": (1e3, 1e18), "flops_per_s": (1e3, 1e24), "roofline_norm": (1, 10)}


def read_gpu(path: Path) -> Gpu:
    """The hardware that a file states.

    Raises:
        BadInputError: it cannot be read, is no such TOML, a value is none or impossible, or its name is that of a GPU in the table.
        UnknownNameError: a key or dtype that means nothing here.

    """
    shown = f"the hardware {printable(path.name)}"
    stated = _stated(path, shown)
    for key in stated:
        if key not in KEYS:
            raise UnknownNameError("key of hardware", key, KEYS)
    missing = [each for each in NEEDED if each not in stated]
    if missing:
        raise BadInputError(f"{shown} does not state {', '.join(missing)}")
    name, peaks = stated["name"], stated["flops_per_s"]
    if not isinstance(name, str) or not name.strip() or not isinstance(peaks, dict):
        raise BadInputError(f"{shown}: name is a text, and flops_per_s a table such as {{ bf16 = 300e9 }}")
    if name.casefold() in known_gpus():
        raise BadInputError(f"{shown} is named as a GPU in the table; give --gpu {name.casefold()}, or the file another name")
    for each in peaks:
        if each not in list(Dtype):
            raise UnknownNameError("dtype", each, [dtype.value for dtype in Dtype])
    for key in ("memory_bytes", "bandwidth_bytes_per_s", *(("roofline_norm",) if "roofline_norm" in stated else ())):
        _need_possible(stated[key], f"{shown}: {key}", POSSIBLE[key])
    for each, peak in peaks.items():
        _need_possible(peak, f"{shown}: flops_per_s.{each}", POSSIBLE["flops_per_s"])
    norm = stated.get("roofline_norm")
    return Gpu(
        name=name,
        memory_bytes=float(stated["memory_bytes"]),
        bandwidth_bytes_per_s=float(stated["bandwidth_bytes_per_s"]),
        flops_per_s={Dtype(each): float(peak) for each, peak in peaks.items()},
        source=str(stated.get("source", path.name)),
        roofline_norm=None if norm is None else float(norm),
    )


def _stated(path: Path, shown: str) -> dict[str, Any]:
    content = read_bounded(path, what="the hardware", most_bytes=LARGEST_BYTES, remedy="give a TOML file of a few lines")
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{shown} is no TOML: {printable(str(error))}") from error


def _need_possible(value: object, what: str, between: tuple[float, float]) -> None:
    least, most = between
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadInputError(f"{what} = {printable(value)} is no number")
    if not least <= value <= most:  # NaN is not either
        raise BadInputError(f"{what} = {printable(value)} is not between {least:g} and {most:g}")
