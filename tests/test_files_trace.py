"""Published traces: which rows are requests, and what is said of the others."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError, PacelineError, UnknownNameError
from paceline.files.trace import read_trace

DATA = Path(__file__).parent / "data" / "traffic"
HEADER = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"


def trace(tmp_path: Path, content: bytes) -> Path:
    """A trace with this content."""
    path = tmp_path / "trace.csv"
    path.write_bytes(content)
    return path


def test_rows_become_requests_and_bad_ones_are_named() -> None:
    """A row read wrongly is load that never was; one dropped unsaid is load that nobody plans for."""
    made, report = read_trace(DATA / "azure_trace.csv", segment="code", segment_field=None, limit=None)
    assert [(each.arrived_at_s, each.prompt_tokens, each.output_tokens) for each in made.requests] == [
        (0.0, 4808, 10),
        (0.02004, 110, 27),
        (0.0520001, 3180, 8),
        (20576.02004, 34, 12),
    ]
    assert (made.source, made.segments) == ("azure_trace.csv", ("code",))
    assert (report.lines, report.blank, report.used_lines, report.exchanges, report.without_answer) == (9, 1, 4, 4, 4)
    assert report.bad_lines == {
        "zero tokens, which no request has": 1,
        "not a count of tokens": 1,
        "not an instant": 1,
        "fewer columns than the header": 1,
    }
    assert [each.line for each in report.examples] == [6, 7, 8, 9]
    assert report.notes == {"arrived before a row above: sorted": 1}


def test_burstgpt_rows_become_requests_and_failed_ones_are_counted() -> None:
    """A response without a token is a request that failed; simulated as one it would be load that never was."""
    made, report = read_trace(DATA / "burstgpt_trace.csv", segment="all", segment_field=None, limit=None)
    assert [(each.arrived_at_s, each.prompt_tokens, each.output_tokens, each.segment) for each in made.requests] == [
        (0.0, 472, 18, "all"),
        (40.25, 1087, 230, "all"),
        (56.0, 30, 12, "all"),
    ]
    assert report.bad_lines == {"zero tokens, which no request has": 1, "not an instant": 2, "fewer columns than the header": 1}
    assert str(report.examples[0]) == "burstgpt_trace.csv:4: zero tokens, which no request has (Response tokens is 0)"


@pytest.mark.parametrize(
    ("field", "segments"),
    [("Log Type", ("API log", "Conversation log", "unlabelled")), ("Model", ("ChatGPT", "GPT-4"))],
)
def test_any_column_of_a_table_can_name_the_segment(field: str, segments: tuple[str, ...]) -> None:
    """Calls of programs and of people differ in length and in acceptance; pooled, neither is forecast."""
    made, report = read_trace(DATA / "burstgpt_trace.csv", segment="all", segment_field=field, limit=None)
    assert made.segments == segments
    assert report.unlabelled == ("unlabelled" in segments)
    with pytest.raises(UnknownNameError, match="unknown column 'LogType'; nearest: Log Type"):
        read_trace(DATA / "burstgpt_trace.csv", segment="all", segment_field="LogType", limit=None)


def test_mooncake_rows_keep_the_identity_of_their_prompts_blocks() -> None:
    """Without it no simulation can tell which prompts begin alike, and a prefix cache would seem to save nothing."""
    made, report = read_trace(DATA / "mooncake_trace.jsonl", segment="all", segment_field=None, limit=None)
    assert [(each.arrived_at_s, each.prompt_tokens, each.output_tokens, each.prefix_hashes) for each in made.requests] == [
        (0.0, 1030, 6, (0, 1, 2)),
        (0.027, 512, 4, None),
        (0.0405, 600, 500, (0, 3)),
    ]
    assert report.bad_lines == {
        "zero tokens, which no request has": 1,
        "not the hashes of the prompt's blocks": 1,
        "not an instant": 2,
        "not a count of tokens": 1,
        "not a JSON object": 2,
    }
    assert report.blank == 1
    assert report.notes == {"arrived before a row above: sorted": 1}


def test_a_key_of_a_mooncake_row_can_name_the_segment() -> None:
    """Exported with a label of one's own, the label would be lost."""
    made, report = read_trace(DATA / "mooncake_trace.jsonl", segment="all", segment_field="kind", limit=None)
    assert [each.segment for each in made.requests] == ["unlabelled", "unlabelled", "tool"]
    assert report.unlabelled == 2


@pytest.mark.parametrize("hashes", ["7", "[0, -1]", "[0, 1.5]", "[0]", "[0, 1, 2]"])
def test_hashes_that_do_not_cover_the_prompt_are_refused(tmp_path: Path, hashes: str) -> None:
    """A block too few or too many shifts what two prompts share."""
    row = '{"timestamp": 0, "input_length": 513, "output_length": 1, "hash_ids": %s}\n'
    _, report = read_trace(trace(tmp_path, (row % "[0, 1]" + row % hashes).encode()), segment="all", segment_field=None, limit=None)
    assert report.bad_lines == {"not the hashes of the prompt's blocks": 1}


@pytest.mark.parametrize("instant", ["-1", "nan", "inf", "1e11", "", "²"])
def test_a_burstgpt_instant_is_seconds_from_the_start(tmp_path: Path, instant: str) -> None:
    """A NaN sorted into a trace leaves it in no order at all."""
    content = f"Timestamp,Request tokens,Response tokens\n{instant},1,1\n2,1,1\n".encode()
    made, report = read_trace(trace(tmp_path, content), segment="all", segment_field=None, limit=None)
    assert (len(made.requests), report.bad_lines) == (1, {"not an instant": 1})


def test_a_limit_keeps_the_first_rows() -> None:
    """A trial on a hundred rows would read a whole week of them."""
    made, report = read_trace(DATA / "azure_trace.csv", segment="all", segment_field=None, limit=2)
    assert (len(made.requests), report.lines) == (2, 2)
    with pytest.raises(BadInputError, match="a limit of 0 rows"):
        read_trace(DATA / "azure_trace.csv", segment="all", segment_field=None, limit=0)


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    """Prompt and output swapped by a re-exported file make another load of it."""
    content = b'GeneratedTokens, TIMESTAMP ,model,ContextTokens\n7,"2023-11-16 18:17:03",m,9\n'
    for packed in (content, gzip.compress(content, mtime=0)):
        made, _ = read_trace(trace(tmp_path, packed), segment="all", segment_field=None, limit=None)
        assert [(each.prompt_tokens, each.output_tokens) for each in made.requests] == [(9, 7)]


@pytest.mark.parametrize(
    "header",
    [b"Timestamp,Model,Request tokens\n", b"{}\n", b"[1]\n", b"TIMESTAMP,ContextTokens\n", b"\xff\n", b"\n", b"2023-11-16 18:17:03,1,2\n"],
)
def test_another_header_is_refused_by_naming_the_known_one(tmp_path: Path, header: bytes) -> None:
    """Columns guessed by their place are wrong sooner or later."""
    with pytest.raises(BadInputError, match=r"it opens with .*, which is no trace we read; .*TIMESTAMP,ContextTokens,GeneratedTokens"):
        read_trace(trace(tmp_path, header + b"1,2,3\n"), segment="all", segment_field=None, limit=None)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"2023-11-16 18:17:03,-1,2", "not a count of tokens"),
        (b"2023-11-16 18:17:03,1.5,2", "not a count of tokens"),
        (b"2023-11-16 18:17:03,1,", "not a count of tokens"),
        (b"2023-11-16 18:17:03,1,1234567890", "not a count of tokens"),
        ("2023-11-16 18:17:03,1,²".encode(), "not a count of tokens"),
        (b"2023-11-16 18:17:03,1,0", "zero tokens, which no request has"),
        (b"\xff,1,2", "not UTF-8"),
        (b"a" * 200_000 + b",1,2", "not CSV"),
        (b"1,1,2", "not an instant"),
        (b"1" * (8 * 2**20 + 1), "longer than 8 MiB"),
    ],
)
def test_a_row_that_is_no_request_is_counted_by_its_reason(tmp_path: Path, row: bytes, reason: str) -> None:
    """One odd row would end the reading of a million good ones."""
    made, report = read_trace(trace(tmp_path, HEADER + row + b"\n2023-11-16 18:17:03,1,2\n"), segment="all", segment_field=None, limit=None)
    assert (len(made.requests), report.bad_lines) == (1, {reason: 1})


def test_a_trace_without_a_usable_row_is_refused(tmp_path: Path) -> None:
    """Nothing read is not a quiet hour."""
    with pytest.raises(BadInputError, match=r"none of its 1 lines could be used \(line 2: not an instant"):
        read_trace(trace(tmp_path, HEADER + b"1,1,2\n"), segment="all", segment_field=None, limit=None)
    with pytest.raises(BadInputError, match="all are blank"):
        read_trace(trace(tmp_path, HEADER), segment="all", segment_field=None, limit=None)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([b"2023-11-16 18:17:03", b"1", b"0", b",", b'"', b"\n", b"\xc3", b" ", b"\r"]), max_size=20))
def test_whatever_a_trace_holds_its_rows_add_up(tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]) -> None:
    """A traceback for an odd file, or rows that vanish from the count."""
    try:
        made, report = read_trace(
            trace(tmp_path_factory.getbasetemp(), HEADER + b"".join(parts)), segment="all", segment_field=None, limit=None
        )
    except PacelineError:
        return
    assert report.lines == report.blank + report.used_lines + sum(report.bad_lines.values())
    assert len(made.requests) == report.used_lines == report.exchanges
