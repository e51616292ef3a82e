"""Compilation whose cache notices changes in other modules."""

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


def run_caller(folder: Path, factor: str) -> str:
    (folder / "called.py").write_text(CALLED.format(factor=factor), encoding="utf-8")
    (folder / "caller.py").write_text(CALLER, encoding="utf-8")
    os.utime(folder / "caller.py", (1_000_000_000, 1_000_000_000))
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    return subprocess.run([sys.executable, str(folder / "caller.py")], env=environment, capture_output=True, text=True, check=True).stdout


def test_a_change_in_another_module_is_noticed(tmp_path: Path) -> None:
    """Yesterday's machine code with today's cost table: figures that no source gives."""
    assert run_caller(tmp_path, "2.0").strip() == "4.0"
    assert run_caller(tmp_path, "3.25").strip() == "6.5"
