"""Server logs are recognised by what is in them and read line by line, however they were saved."""

import gzip
import hashlib
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from paceline.errors import BadInputError, NoEvidenceError, PacelineError
from paceline.files.evidence import read_evidence
from paceline.files.serverlog import LOOK_BYTES, is_server_log, read_server_log
from paceline.servers.log_lines import LONGEST_LINE
from tests.conftest import Answer

LOGS = Path(__file__).parent / "data" / "logs"
CASES = Path(__file__).parent / "data" / "cases"
VLLM = LOGS / "vllm-0.20.0-qwen3-8b-eagle3.log"
SGLANG = CASES / "17-sglang-rate-definition-change" / "input.txt"
LLAMACPP = LOGS / "llamacpp-mtp.log"


@pytest.mark.parametrize(("path", "made_by"), [(VLLM, "vllm log"), (SGLANG, "sglang log"), (LLAMACPP, "llama.cpp log")])
def test_a_log_is_recognised_under_any_name(tmp_path: Path, path: Path, made_by: str) -> None:
    """Whoever saved a log as .json or packed: what is in the file counts, and its hash is kept."""
    copy = tmp_path / "log.json"
    copy.write_bytes(gzip.compress(path.read_bytes()))
    run = read_evidence(copy)
    assert run.provenance.made_by == made_by
    assert run.provenance.inputs == {"log.json": hashlib.sha256(copy.read_bytes()).hexdigest()}
    assert run.summaries == read_evidence(path).summaries


def test_a_saved_terminal_reads_as_the_log_itself(tmp_path: Path) -> None:
    """Whoever redirected a coloured terminal of docker compose: the same figures."""
    lines = VLLM.read_bytes().replace(b" INFO ", b" \x1b[32mINFO\x1b[0m ").splitlines()
    copy = tmp_path / "terminal.txt"
    copy.write_bytes(b"".join(b"vllm-1  | " + each + b"\r\n" for each in lines))
    assert read_server_log(copy).acceptance == read_server_log(VLLM).acceptance


def test_what_stands_before_the_first_line_of_note_is_passed_over(tmp_path: Path) -> None:
    """Whoever's container prints pages before the server starts: the log is recognised within its first MiB, and no further."""
    copy = tmp_path / "log"
    copy.write_bytes(b"pulling\n" * 1000 + b"x" * (LONGEST_LINE + 1) + b"\n" + b"\xff\xfe\n" + VLLM.read_bytes())
    assert read_server_log(copy).acceptance == read_server_log(VLLM).acceptance
    copy.write_bytes(b"pulling\n" * (LOOK_BYTES // 8) + VLLM.read_bytes())
    assert not is_server_log(copy)
    with pytest.raises(BadInputError, match="no line among its first MiB"):
        read_server_log(copy)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    """Whoever's copy broke off: half a gzip file is no log, for its last lines are missing without a trace."""
    copy = tmp_path / "log.gz"
    whole = gzip.compress(VLLM.read_bytes() * 50)
    copy.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInputError, match="cannot be read beyond line"):
        read_server_log(copy)


def test_a_log_without_statistics_is_no_evidence(tmp_path: Path) -> None:
    """Whoever's server printed none: not an acceptance of 0."""
    copy = tmp_path / "log"
    copy.write_text("INFO 06-30 23:05:08 [api_server.py:602] Starting vLLM server\n", encoding="utf-8")
    with pytest.raises(NoEvidenceError, match="disable-log-stats"):
        read_evidence(copy)


def test_measure_prints_what_a_log_says(paceline: Callable[[Sequence[str]], Answer]) -> None:
    """Whoever has only the log: α, drafts and the warnings on one screen."""
    answer = paceline(["measure", str(VLLM)])
    assert answer.code == 0
    assert "vllm log, speculative arm, model /data/hw3/Qwen3-8B" in answer.out
    assert "0.202" in answer.out
    assert "warning [positions_rounded]" in answer.out


def mangled(text: str, rng: random.Random) -> str:
    """The text with some bytes, words or lines swapped, doubled, cut or made extreme."""
    lines = text.splitlines()
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(lines))
        line = lines[at]
        cut = rng.randrange(len(line) + 1)
        words = line.split(" ")
        word = rng.randrange(len(words))
        match rng.randrange(6):
            case 0:
                lines[at] = line[:cut]
            case 1:
                lines[at] = line[:cut] + rng.choice("0123456789.,()-\x1b\x00é ") + line[cut + 1 :]
            case 2:
                lines[at] = " ".join([*words[:word], rng.choice(["nan", "-1", "1e308", "9" * 30, "0", "0.00", "∞"]), *words[word + 1 :]])
            case 3:
                lines.insert(at, line)
            case 4:
                lines[at] = line + lines[rng.randrange(len(lines))]
            case _:
                lines[at] = " ".join([*words[:word], words[rng.randrange(len(words))], *words[word:]])
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(60))
def test_no_damage_to_a_log_ends_in_a_fault_of_ours(tmp_path: Path, seed: int) -> None:
    """Whoever's log was mixed up: figures that hold, or a refusal, never a traceback; more examples by raising the range."""
    rng = random.Random(seed)
    names = [VLLM, SGLANG, LLAMACPP, LOGS / "llamacpp-old.log", *sorted(CASES.glob("[126]*/*.txt"))]
    path = tmp_path / "log"
    path.write_text(
        mangled("\n".join(each.read_text(encoding="utf-8") for each in rng.sample(names, rng.randint(1, 2))), rng), encoding="utf-8"
    )
    try:
        run = read_server_log(path)
    except PacelineError:
        return
    assert all((each.low or each.value) <= each.value <= (each.high or each.value) for each in run.summaries.values())
    assert run.acceptance_by_segment is None or run.acceptance.accepted_tokens <= run.acceptance.drafted_tokens
