"""Hardware that a user states: read as it stands, and refused where it is none."""

import re
from pathlib import Path

import pytest

from paceline.errors import BadInputError, UnknownNameError
from paceline.files.gpufile import read_gpu
from paceline.hardware import Dtype

CPU = """
name = "two cores"
memory_bytes = 24e9
bandwidth_bytes_per_s = 20e9
flops_per_s = { bf16 = 3e11 }
"""


def written(folder: Path, text: str) -> Path:
    """The file."""
    path = folder / "cpu.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_what_is_stated_is_what_is_forecast_with(tmp_path: Path) -> None:
    """A key that is read into another one's place forecasts another machine."""
    found = read_gpu(written(tmp_path, CPU + 'roofline_norm = 1.5\nsource = "its data sheet"\n'))
    assert (found.name, found.memory_bytes, found.bandwidth_bytes_per_s) == ("two cores", 24e9, 20e9)
    assert (found.flops_per_s, found.roofline_norm, found.source) == ({Dtype.BF16: 3e11}, 1.5, "its data sheet")
    plain = read_gpu(written(tmp_path, CPU))
    assert (plain.roofline_norm, plain.source) == (None, "cpu.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CPU.replace("memory_bytes = 24e9", ""), "does not state memory_bytes"),
        (CPU.replace('"two cores"', '"H100"'), "give --gpu h100"),
        (CPU.replace('"two cores"', '" "'), "name is a text"),
        (CPU.replace("{ bf16 = 3e11 }", "3e11"), "flops_per_s a table"),
        (CPU.replace("24e9", "true"), "memory_bytes = True is no number"),
        *(
            (CPU.replace(stated, value), rf"{key} = {re.escape(shown)} is n")
            for key, stated in (("memory_bytes", "24e9"), ("bandwidth_bytes_per_s", "20e9"), (r"flops_per_s\.bf16", "3e11"))
            for value, shown in (
                ("0", "0"),
                ("-1", "-1"),
                ("inf", "inf"),
                ("nan", "nan"),
                ("1e300", "1e+300"),
                ("1" + "0" * 400, f"1{'0' * 39}…{'0' * 40}"),
                ('"24 GB"', "'24 GB'"),
                ("[1]", "[1]"),
            )
        ),
        (CPU + "roofline_norm = nan", "roofline_norm = nan is not between 1 and 10"),
        (CPU.replace("{ bf16 = 3e11 }", "{}"), "computes in no dtype"),
        (CPU + "roofline_norm = 0.5", "not between 1 and 10"),
        (CPU + "=", "is no TOML"),
        ("#" * 70_000, "larger than 64 KiB"),
    ],
)
def test_what_is_no_hardware_is_refused(text: str, said: str, tmp_path: Path) -> None:
    """A forecast of a machine that nobody has is worse than none."""
    with pytest.raises(BadInputError, match=said):
        read_gpu(written(tmp_path, text))


def test_a_typo_names_what_was_meant(tmp_path: Path) -> None:
    """A key that is left out silently leaves a default in its place."""
    with pytest.raises(UnknownNameError, match="bandwidth_bytes_per_s"):
        read_gpu(written(tmp_path, CPU + "bandwidth_byte_per_s = 1.0"))
    with pytest.raises(UnknownNameError, match="bf16"):
        read_gpu(written(tmp_path, CPU.replace("bf16", "fp16")))
    with pytest.raises(BadInputError, match="cannot be read"):
        read_gpu(tmp_path / "none.toml")
