"""The engine's tests need torch, which the checks' own environment lacks; `scripts/test_real` runs them where it is installed."""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

REASON = "is not installed; scripts/test_real installs it and runs these tests"
collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]

if find_spec("torch"):
    import torch

    # Threads that wait for one another on a busy machine take a hundred times as long as one that just works.
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model_dir() -> Path:
    """SmolLM2-135M-Instruct as a folder that transformers loads."""
    value = os.environ.get("PACELINE_MODEL_DIR")
    if not value or not Path(value).exists():
        pytest.skip(f"SmolLM2-135M-Instruct {REASON}")
    return Path(value)
