"""Any file that is evidence is recognised by what is in it."""

from pathlib import Path

import pytest

from paceline.errors import BadInputError
from paceline.files.dump import measure_dumps
from paceline.files.evidence import read_evidence
from paceline.files.runfile import write_run

DUMPS = Path(__file__).parent / "data" / "dumps"
MOE = DUMPS / "vllm-0.12.0-qwen3-30b-a3b-eagle3.prom"


def test_a_dump_is_recognised_under_any_name(tmp_path: Path) -> None:
    """Whoever saved /metrics as .json: what is in the file counts."""
    path = tmp_path / "scrape.json"
    path.write_bytes(MOE.read_bytes())
    assert read_evidence(path).acceptance == measure_dumps(None, MOE, model=None).acceptance


def test_a_run_file_of_a_dump_reads_back_as_the_same_run(tmp_path: Path) -> None:
    """Whoever measures today and gates tomorrow: nothing is lost in between, cautions included."""
    run = measure_dumps(None, DUMPS / "vllm-0.9.2-v0-llama-3.1-70b-mlp.prom", model=None)
    path = tmp_path / "run.prom"
    write_run(run, path)
    assert read_evidence(path) == run
    assert [each.code for each in run.cautions] == ["v0_metrics", "since_start"]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b'{"duration": 1.5}', "JSON without a schema"),
        (b'{"schema": "other/1"}', "JSON with schema 'other/1'"),
        (b"plain words\n", "no line is a Prometheus sample"),
        (b"up 1.0\n", "without series of vLLM, SGLang"),
        (b"", "no line is a Prometheus sample"),
    ],
)
def test_anything_else_is_refused_with_what_is_recognised(tmp_path: Path, content: bytes, found: str) -> None:
    """Whoever hands in another tool's file: what it looks like, and what this version reads."""
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match=r"recognised: paceline run files .* /metrics dumps of vLLM, SGLang, ") as refusal:
        read_evidence(path)
    assert found in str(refusal.value)


def test_a_run_of_a_later_schema_is_the_run_readers_to_refuse(tmp_path: Path) -> None:
    """Whoever has a newer paceline's file: the message is about its version, not about dumps."""
    path = tmp_path / "later.json"
    path.write_text('{"schema": "paceline.run/99"}', encoding="utf-8")
    with pytest.raises(BadInputError, match=r"paceline\.run/99"):
        read_evidence(path)
