"""Reads a model's config.json: the file itself or the folder that holds it."""

import json
from pathlib import Path
from typing import Any

from paceline.errors import BadInputError, printable
from paceline.files.bounded import read_bounded

__all__ = ["read_model_config"]

MOST_BYTES = 4 << 20


def read_model_config(path: Path) -> dict[str, Any]:
    """The config as a dictionary.

    Raises:
        BadInputError: no such file, too large, or no JSON object.

    """
    file = path / "config.json" if path.is_dir() else path
    shown = printable(str(file))
    content = read_bounded(file, what="the model configuration", most_bytes=MOST_BYTES, remedy="give the model's config.json")
    try:
        config = json.loads(content)
    except (ValueError, RecursionError) as fault:
        raise BadInputError(f"{shown} is not JSON: {printable(str(fault))}") from None
    if not isinstance(config, dict):
        raise BadInputError(f"{shown} holds no JSON object; give the model's config.json")
    return config
