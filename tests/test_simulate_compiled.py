"""Compilation whose cache notices changes in other modules, and that counts no references."""

import os
import subprocess
import sys
from pathlib import Path

CALLED = """
from paceline.simulate.compiled import compiled
FACTOR = {factor}

@compiled()
def scaled(value: float) -> float:
    return value * FACTOR
"""
CALLER = """
import called
from called import FACTOR, scaled
from paceline.simulate.compiled import compiled

@compiled(called)
def total(value: float) -> float:
    return scaled(value) + FACTOR

print(total(1.0))
"""

MAKER = """
import numpy as np
from numba.core.errors import NumbaError
from paceline.simulate.compiled import compiled

@compiled()
def made(size: int) -> float:
    return np.zeros(size).sum()

try:
    print(made(3))
except NumbaError:
    print("refused")
"""


def run_caller(folder: Path, factor: str) -> str:
    (folder / "called.py").write_text(CALLED.format(factor=factor), encoding="utf-8")
    (folder / "caller.py").write_text(CALLER, encoding="utf-8")
    os.utime(folder / "caller.py", (1_000_000_000, 1_000_000_000))
    return run_script(folder / "caller.py")


def run_script(script: Path) -> str:
    """What the script prints, with compilation on and a cache of its own."""
    folder = str(script.parent)
    environment = {
        **os.environ,
        "NUMBA_DISABLE_JIT": "0",
        "NUMBA_CACHE_DIR": os.path.join(folder, "cache"),
        "PYTHONPATH": os.pathsep.join([folder, *sys.path]),
    }
    return subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True).stdout


def test_a_change_in_another_module_is_noticed(tmp_path: Path) -> None:
    """Yesterday's machine code with today's cost table: figures that no source gives."""
    assert run_caller(tmp_path, "2.0").strip() == "4.0"
    assert run_caller(tmp_path, "3.25").strip() == "6.5"


def test_a_compiled_function_counts_no_references(tmp_path: Path) -> None:
    """Whoever sweeps a grid would wait ten times as long: a function that can make an array counts references to all that it reads."""
    (tmp_path / "maker.py").write_text(MAKER, encoding="utf-8")
    assert run_script(tmp_path / "maker.py").strip() == "refused"
