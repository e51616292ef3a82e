"""GPUs and model shapes from the packaged tables.

Names are looked up without regard to case, organisation ("meta-llama/") and a trailing "-Instruct".
"""

from functools import cache
from typing import Any

from paceline.data.tables import table
from paceline.errors import UnknownNameError
from paceline.hardware import Dtype, Experts, Gpu, LatentAttention, ModelShape

__all__ = ["gpu", "known_gpus", "known_models", "model"]

DRESSING = ("-instruct", "-chat", "-hf", "-it")
NESTED = ("aliases", "experts", "latent", "eagle3_intermediate")


def known_gpus() -> tuple[str, ...]:
    """The names of the GPUs in the table, in its order."""
    return tuple(row["name"] for row in table("gpus")["gpu"])


def gpu(name: str) -> Gpu:
    """The GPU called `name`; case and aliases ("h100-sxm") do not matter.

    Raises:
        UnknownNameError: it is not in the table; the message lists the nearest names.

    """
    rows = _by_alias("gpus", "gpu")
    row = rows.get(_folded(name))
    if row is None:
        raise UnknownNameError("GPU", name, known_gpus())
    return Gpu(
        name=row["name"],
        memory_bytes=row["memory_bytes"],
        bandwidth_bytes_per_s=row["bandwidth_bytes_per_s"],
        flops_per_s={Dtype(dtype): rate for dtype, rate in row["flops_per_s"].items()},
        source=row["source"],
    )


def known_models() -> tuple[str, ...]:
    """The names of the models in the table, in its order."""
    return tuple(row["name"] for row in table("models")["model"])


def model(name: str) -> ModelShape:
    """The shape of the model called `name` ("llama-3.3-70b", "meta-llama/Llama-3.3-70B-Instruct").

    Raises:
        UnknownNameError: it is not in the table; the message lists the nearest names.

    """
    row = _by_alias("models", "model").get(_folded(name))
    if row is None:
        raise UnknownNameError("model", name, known_models())
    plain = {field: value for field, value in row.items() if field not in NESTED}
    return ModelShape(
        **plain,
        experts=Experts(**row["experts"]) if "experts" in row else None,
        latent=LatentAttention(**{"query_rank": None, **row["latent"]}) if "latent" in row else None,
    )


@cache
def _by_alias(table_name: str, rows: str) -> dict[str, dict[str, Any]]:
    return {_folded(alias): row for row in table(table_name)[rows] for alias in (row["name"], *row["aliases"])}


def _folded(name: str) -> str:
    folded = name.strip().rstrip("/").rsplit("/", 1)[-1].casefold().replace("_", "-").replace(" ", "-")
    for suffix in DRESSING:
        folded = folded.removesuffix(suffix)
    return folded
