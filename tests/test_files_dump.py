"""Scrapes in files, whole or damaged."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError, PacelineError
from paceline.files import dump
from paceline.files.dump import measure_dumps, read_head, read_scrape_file, read_text, window_of_dumps
from paceline.run import Arm

DUMPS = Path(__file__).parent / "data" / "dumps"
MOE = DUMPS / "vllm-0.12.0-qwen3-30b-a3b-eagle3.prom"
BEFORE, AFTER = DUMPS / "vllm-0.32.0-smollm2-ngram-before.prom", DUMPS / "vllm-0.32.0-smollm2-ngram-after.prom"


def test_a_dump_becomes_a_run_with_its_hash() -> None:
    """Whoever hands a run on: which file it came from can be checked, and no path of ours is in it."""
    run = measure_dumps(None, MOE, model=None)
    assert run.arm is Arm.SPECULATIVE
    assert run.acceptance.alpha == pytest.approx(0.7397, abs=5e-5)
    assert list(run.provenance.inputs) == [MOE.name]
    assert len(run.provenance.inputs[MOE.name]) == 64
    assert [each.code for each in run.cautions] == ["since_start"]


def test_two_dumps_become_their_difference() -> None:
    """Whoever measures a window: 88 of 363, warm-up left out, both files named."""
    run = measure_dumps(BEFORE, AFTER, model="smollm2")
    assert (run.acceptance.accepted_tokens, run.acceptance.drafted_tokens) == (88, 363)
    assert list(run.provenance.inputs) == [f"before {BEFORE.name}", f"after {AFTER.name}"]
    assert run.cautions == ()


def without(path: Path, place: Path, *words: str) -> Path:
    """The dump without the lines that hold one of the words."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    place.write_text("".join(each for each in lines if not any(word in each for word in words)), encoding="utf-8")
    return place


@pytest.mark.parametrize("hidden", ["nothing", "process_start_time_seconds"])
def test_dumps_that_are_swapped_are_refused(tmp_path: Path, hidden: str) -> None:
    """Counted from the wrong end, every figure looks plausible; start and creation times tell that no restart explains it."""
    before, after = without(BEFORE, tmp_path / "before", hidden), without(AFTER, tmp_path / "after", hidden)
    with pytest.raises(BadInputError, match="before and after look swapped: every counter of one process fell"):
        window_of_dumps(after, before, model=None)
    assert window_of_dumps(before, after, model=None).noted == ()


def test_a_dump_of_an_earlier_start_does_not_come_after(tmp_path: Path) -> None:
    """Two runs of a server, swapped: the counters may even rise. The other way round it is a restart, and told as one."""
    older = tmp_path / "older"
    older.write_text(BEFORE.read_text(encoding="utf-8").replace("1.79596222358e+09", "1.79e+09"), encoding="utf-8")
    with pytest.raises(BadInputError, match="the later one is of an earlier start"):
        window_of_dumps(AFTER, older, model=None)
    assert [each.code for each in window_of_dumps(older, AFTER, model=None).noted] == ["counter_reset"]


def test_without_start_times_a_fall_of_every_counter_is_told(tmp_path: Path) -> None:
    """A restart looks the same then: it may be right, and only its author knows when each was taken."""
    before, after = (without(each, tmp_path / each.name, "process_start_time_seconds", "_created") for each in (BEFORE, AFTER))
    assert {each.code for each in window_of_dumps(after, before, model=None).noted} == {"counter_reset", "counters_all_fell"}
    assert window_of_dumps(before, after, model=None).noted == ()


def test_a_gzip_dump_is_the_same(tmp_path: Path) -> None:
    """Whoever archives scrapes packed: nothing to unpack by hand."""
    packed = tmp_path / "dump.prom.gz"
    packed.write_bytes(gzip.compress(MOE.read_bytes(), mtime=0))
    assert read_scrape_file(packed, model=None) == read_scrape_file(MOE, model=None)
    assert read_head(packed) == read_head(MOE) == MOE.read_text(encoding="utf-8")[:4096]


@pytest.mark.parametrize("cut", [-1, -3, -40])
def test_a_dump_that_is_cut_off_is_refused(tmp_path: Path, cut: int) -> None:
    """Whoever's disk filled up: half a scrape has lower counters, not fewer errors."""
    plain, packed = tmp_path / "cut.prom", tmp_path / "cut.prom.gz"
    plain.write_bytes(MOE.read_bytes()[:cut])
    packed.write_bytes(gzip.compress(MOE.read_bytes(), mtime=0)[:cut])
    with pytest.raises(BadInputError, match="cut off"):
        read_scrape_file(plain, model=None)
    with pytest.raises(BadInputError, match="cut off"):
        read_scrape_file(packed, model=None)


def test_malformed_lines_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    """Whoever edited a scrape: the figures stand, with a caution."""
    edited = tmp_path / "edited.prom"
    edited.write_text("oops\n" + MOE.read_text(encoding="utf-8") + "oops again and again\n", encoding="utf-8")
    cautions = {each.code: each.message for each in window_of_dumps(None, edited, model=None).cautions}
    assert "2 unreadable lines, the first is line 1" in cautions["malformed_lines"]


@pytest.mark.parametrize("content", [b"", b"\x7fELF\x00\x01", b"\xff\xfe1\n", b"\x1f\x8b\x08garbage", b"<html></html>\n"])
def test_a_file_that_is_no_scrape_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    """Whoever gives the wrong file: its name and what is wrong with it."""
    path = tmp_path / "wrong.prom"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match=r"wrong\.prom"):
        read_scrape_file(path, model=None)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    """Whoever mistypes a path or gives a folder: no traceback."""
    with pytest.raises(BadInputError, match="No such file"):
        measure_dumps(None, tmp_path / "absent", model=None)
    with pytest.raises(BadInputError, match="cannot read"):
        read_text(tmp_path)
    with pytest.raises(BadInputError, match="measure --url"):
        read_text(Path("http://127.0.0.1:9/metrics"))


def test_a_file_above_the_limit_is_refused_without_reading_it_whole(tmp_path: Path) -> None:
    """Whoever is sent a gzip bomb: 64 MiB are unpacked and no more."""
    bomb = tmp_path / "bomb.gz"
    with gzip.open(bomb, "wb", compresslevel=1) as file:
        for _ in range(65):
            file.write(bytes(2**20))
    assert dump.LARGEST_BYTES == 64 * 2**20
    with pytest.raises(BadInputError, match="more than 64 MiB"):
        read_text(bomb)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 6000))
def test_no_bytes_crash_the_reader(tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int) -> None:
    """Whoever points paceline at a damaged file: a run or a message."""
    path = tmp_path_factory.mktemp("noise") / "noise.prom"
    whole = MOE.read_bytes()
    path.write_bytes(whole[:at] + noise + whole[at + len(noise) :])
    try:
        measure_dumps(None, path, model=None)
    except PacelineError:
        return


def test_dumps_of_two_servers_are_not_called_swapped() -> None:
    """Whoever mixes two servers up is told that, not to turn the files round."""
    with pytest.raises(BadInputError, match="not of one kind"):
        window_of_dumps(DUMPS / "lmdeploy-two-drafts.prom", AFTER, model=None)
