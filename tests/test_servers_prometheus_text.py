"""The text of /metrics becomes samples, and nothing hostile in it becomes a crash."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError
from paceline.servers.prometheus_text import Sample, parse_exposition


def one(line: str) -> Sample:
    (sample,) = parse_exposition(line).samples
    return sample


def test_a_line_is_a_name_labels_and_a_value() -> None:
    """Whoever measures: the plainest line must be read."""
    sample = one('vllm:drafts_total{engine="0",model_name="a/b"} 24337.0\n')
    assert sample == Sample(name="vllm:drafts_total", labels={"engine": "0", "model_name": "a/b"}, value=24337.0)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("a 1", 1.0),
        ("a{} 2", 2.0),
        ('a{b="c",} 3', 3.0),
        ('a { b = "c" , d="e" } 4', 4.0),
        ("a\t5\r", 5.0),
        ("a 6 1395066363000", 6.0),
        ('a_bucket{le="0.1"} 7 # {trace_id="x}y"} 0.05 1.5', 7.0),
        ("a 3.0061031424e+010", 3.0061031424e10),
        ("a .5e-1", 0.05),
        ("a +Inf", math.inf),
        ("a -Inf", -math.inf),
        ("a NaN", None),
    ],
)
def test_every_form_the_format_allows_is_read(line: str, value: float | None) -> None:
    """Whoever scrapes an OpenMetrics or a Windows endpoint: exemplars, timestamps and spaces change no value."""
    assert one(line).value == value


def test_escapes_in_labels_are_undone() -> None:
    """Whoever serves a model from a Windows path: its name keeps its backslashes and braces."""
    assert one(r'a{path="C:\\dir\"}\n,",x="{"} 1').labels == {"path": 'C:\\dir"}\n,', "x": "{"}


def test_comments_and_blank_lines_are_no_samples() -> None:
    """Whoever reads a count of lines: HELP, TYPE and EOF are none."""
    exposition = parse_exposition("# HELP a text\n# TYPE a counter\n\na 1\n# EOF\n")
    assert len(exposition.samples) == 1
    assert exposition.malformed == ()


@pytest.mark.parametrize(
    "line", ["1a 2", "a", "a b", "a 1_000", "a 0x10", "a{b=c} 1", 'a{b="c} 1', 'a{b="c" d="e"} 1', 'a{b="c",b="d"} 1', "a 1 x", '{"a"} 1']
)
def test_a_malformed_line_is_set_aside_with_its_number(line: str) -> None:
    """Whoever edited a dump: the one bad line is named and the others still count."""
    exposition = parse_exposition(f"good 1\n{line}\n")
    assert [each.name for each in exposition.samples] == ["good"]
    assert [each.number for each in exposition.malformed] == [2]
    assert exposition.malformed[0].why


@pytest.mark.parametrize("text", ["", "\n# only a comment\n", "<html>\n", "a\x00 1\n"])
def test_a_text_without_samples_is_refused(text: str) -> None:
    """Whoever saved an error page instead of /metrics: it is said, not read as zeros."""
    with pytest.raises(BadInputError):
        parse_exposition(text)


def test_the_first_bad_line_is_quoted_where_nothing_is_a_sample() -> None:
    """Whoever gave the wrong file: the message shows what is in it."""
    with pytest.raises(BadInputError, match=r"line 1: '<html>'"):
        parse_exposition("<html>")


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.sampled_from('ab:_{}",=\\ \t\n#1.e+-NI\r\u2028é'), max_size=60))
def test_no_text_crashes_the_reader(text: str) -> None:
    """Whoever points paceline at an untrusted endpoint: it answers with samples or a message."""
    try:
        exposition = parse_exposition(text)
    except BadInputError:
        return
    assert all(each.value is None or not math.isnan(each.value) for each in exposition.samples)


label_values = st.text(max_size=12).filter(lambda text: "\x00" not in text)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.from_regex(r"[a-z_]{1,4}", fullmatch=True), label_values, max_size=3), st.floats(allow_nan=False))
def test_what_a_server_writes_is_what_we_read(labels: dict[str, str], value: float) -> None:
    """Whoever has a model name with quotes or newlines in it: it survives the trip."""
    escaped = {name: text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for name, text in labels.items()}
    line = "a{" + ",".join(f'{name}="{text}"' for name, text in escaped.items()) + f"}} {value!r}"
    assert one(line) == Sample(name="a", labels=labels, value=value)


def test_a_long_hostile_line_is_read_in_linear_time() -> None:
    """Whoever watches a server that went mad: a megabyte of quotes does not stop the watch."""
    assert parse_exposition("a 1\nb{" + '"' * 1_000_001 + "\nc{" + 'x="' * 300_000).malformed[0].number == 2
