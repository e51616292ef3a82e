"""What the real tests need is installed by `scripts/test_real`; without it they are skipped with that reason."""

import os
from pathlib import Path

import pytest

from tests.real.eagle3_rollout import roll_out, train

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
def head(engine_python: Path, model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An EAGLE-3 head of that model, trained for a few seconds."""
    out = tmp_path_factory.mktemp("head") / "head"
    train(engine_python, model_dir, out)
    return out


@pytest.fixture(scope="session")
def hardware(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two CPU cores, roughly: a calibration corrects the rest."""
    file = tmp_path_factory.mktemp("hardware") / "cpu.toml"
    file.write_text(
        'name = "CPU cores"\nmemory_bytes = 16e9\nbandwidth_bytes_per_s = 10e9\nflops_per_s = { bf16 = 100e9 }\nroofline_norm = 1.5\n',
        encoding="utf-8",
    )
    return file


@pytest.fixture(scope="session")
def on_vllm(vllm_python: Path, model_dir: Path, head: Path, hardware: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a rollout on vLLM with that head left in `rollout` of it."""
    out = tmp_path_factory.mktemp("vllm")
    roll_out(vllm_python, model_dir, head, hardware, out / "rollout")
    return out


@pytest.fixture(scope="session")
def llama_server() -> Path:
    """A llama-server."""
    return needed("PACELINE_LLAMA_SERVER", "llama-server")


@pytest.fixture(scope="session")
def llama_gguf() -> Path:
    """A small model as GGUF."""
    return needed("PACELINE_LLAMA_GGUF", "SmolLM2-135M-Instruct as GGUF")
