"""What the real tests need is installed by `scripts/test_real`; without it they are skipped with that reason."""

import os
from pathlib import Path

import pytest

REASON = "is not installed; scripts/test_real installs it and runs these tests"


def needed(variable: str, what: str) -> Path:
    """The path that `scripts/test_real` put into an environment variable, else a skip that says how to get it."""
    value = os.environ.get(variable)
    if not value or not Path(value).exists():
        pytest.skip(f"{what} {REASON}")
    return Path(value)


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """The Python of an environment with a real vLLM."""
    return needed("PACELINE_VLLM_PYTHON", "vLLM")


@pytest.fixture(scope="session")
def engine_python() -> Path:
    """The Python of an environment with torch and transformers."""
    return needed("PACELINE_ENGINE_PYTHON", "the engine's environment")


@pytest.fixture(scope="session")
def model_dir() -> Path:
    """SmolLM2-135M-Instruct as a folder that transformers loads."""
    return needed("PACELINE_MODEL_DIR", "SmolLM2-135M-Instruct")


@pytest.fixture(scope="session")
def llama_server() -> Path:
    """A llama-server."""
    return needed("PACELINE_LLAMA_SERVER", "llama-server")


@pytest.fixture(scope="session")
def llama_gguf() -> Path:
    """A small model as GGUF."""
    return needed("PACELINE_LLAMA_GGUF", "SmolLM2-135M-Instruct as GGUF")
