"""Reads the tables that ship with the package; the only module that does.

A table is a TOML file beside this one. Each row carries a `source`; what a row means is the business of whoever asks for it.
"""

import gzip
import hashlib
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["demo_traffic_lines", "sha256", "table", "template"]

DEMO_TRAFFIC = "demo_traffic.jsonl.gz"


@cache
def table(name: str) -> dict[str, Any]:
    """The packaged table `name` (without `.toml`; `servers/vllm` for one in a folder), parsed. Treat it as read-only."""
    return tomllib.loads((files("paceline.data") / f"{name}.toml").read_text(encoding="utf-8"))


def demo_traffic_lines() -> list[bytes]:
    """The lines of the packaged demo traffic, one JSON exchange each."""
    return gzip.decompress((files("paceline.data") / DEMO_TRAFFIC).read_bytes()).splitlines()


def template(name: str) -> str:
    """The packaged template `name` (with its ending, such as `report.html.j2`), as text."""
    return (files("paceline.data") / name).read_text(encoding="utf-8")


def sha256(name: str) -> str:
    """SHA-256 of a packaged file, in hex, for provenance."""
    return hashlib.sha256((files("paceline.data") / name).read_bytes()).hexdigest()
