"""Chat logs of every shape we read: what each line gives, and what is said of the lines that give nothing."""

import gzip
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError, PacelineError
from paceline.files.chatlog import ChatLog, demo_exchanges, read_chat_logs
from paceline.files.read_report import KEPT_EXAMPLES
from paceline.traffic.exchange import Exchange, Message
from paceline.traffic.segments import SegmentRule, segment_rule

DATA = Path(__file__).parent / "data" / "traffic"
BY_KNOWN_FIELDS = segment_rule(name=None, field=None)
LATER_TURN = "a later turn, whose earlier answer is not there"


def log_of(tmp_path: Path, *lines: object, name: str = "log.jsonl") -> ChatLog:
    """A log of these lines; what is no bytes is written as JSON."""
    path = tmp_path / name
    path.write_bytes(b"".join((each if isinstance(each, bytes) else json.dumps(each).encode()) + b"\n" for each in lines))
    return read_chat_logs([path], segment=BY_KNOWN_FIELDS, progress=None)


def read(name: str, rule: SegmentRule = BY_KNOWN_FIELDS) -> tuple[dict[str, Exchange], ChatLog]:
    """The exchanges of a file under tests/data/traffic by id, and the log."""
    log = read_chat_logs([DATA / name], segment=rule, progress=None)
    return {each.id: each for each in log}, log


def texts(exchange: Exchange) -> list[tuple[str, str]]:
    """Who said what before the answer."""
    return [(each.role, each.content) for each in exchange.messages]


def test_each_answer_of_an_openai_conversation_is_one_exchange_with_all_before_it() -> None:
    """With only the last answer kept most of a log's tokens are lost; with a short prompt n-gram acceptance comes out too low."""
    got, _ = read("openai_chat.jsonl")
    first, second = got["1.1"], got["1.2"]
    assert (texts(first), first.answer, first.finish_reason) == ([("system", "Be brief."), ("user", "Hello")], "Hi.", None)
    assert texts(second) == [("system", "Be brief."), ("user", "Hello"), ("assistant", "Hi."), ("user", "And?")]
    assert (second.answer, second.finish_reason, second.segment) == ("Nothing more.", "length", "chat")


def test_parts_are_joined_and_times_and_tokens_kept() -> None:
    """Token ids are the only exact account of what the target saw; an arrival lost is a load that cannot be replayed."""
    got, _ = read("openai_chat.jsonl")
    assert (texts(got["2.1"]), got["2.1"].arrived_at_s, got["2.1"].segment) == ([("user", "One, two?")], 2.5, "unlabelled")
    assert (got["3.1"].prompt_token_ids, got["3.1"].output_token_ids, got["3.1"].finish_reason) == ((5, 6, 7), (8, 2), "stop")
    assert got["5.1"].answer == "Said."


def test_a_segment_field_that_no_line_has_is_refused_with_those_that_it_has(tmp_path: Path) -> None:
    """A mistyped field makes one segment of all, and every figure by segment is the figure of all."""
    line = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "meta": {"kind": "chat", "n": None}}
    log_of(tmp_path, b"no json", line, line)
    log = read_chat_logs([tmp_path / "log.jsonl"], segment=segment_rule(name=None, field="nope"), progress=None)
    with pytest.raises(BadInputError, match=r"unknown segment field 'nope'; known: meta\.kind"):
        list(log)
    assert [each.segment for each in log_of(tmp_path, line)] == ["unlabelled"], "no field was named, so none is missing"
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb") as pipe:
        pipe.write(json.dumps(line).encode() + b"\n")
    piped = read_chat_logs([Path(f"/dev/fd/{read_end}")], segment=segment_rule(name=None, field="nope"), progress=None)
    with pytest.raises(BadInputError, match="known: none"):
        list(piped)
    os.close(read_end)


def test_what_is_no_text_is_left_out_and_counted() -> None:
    """An answer to a picture replayed without it, or one after a tool call, would measure a prompt that never was."""
    got, log = read("openai_chat.jsonl")
    assert sorted(got) == ["1.1", "1.2", "2.1", "3.1", "4.1", "5.1", "9.1"]
    report = log.report
    assert (report.lines, report.blank, report.used_lines, report.exchanges) == (9, 1, 6, 7)
    assert (report.without_answer, report.unlabelled) == (1, 1)
    assert report.bad_lines == {"a tool call, which is not text": 1, "a part of a message is not text": 1}
    assert report.skipped_turns == {"a tool call, which is not text": 2, "a part of a message is not text": 1}
    assert report.notes == {"reasoning beside an answer's text: its tokens are replayed only where the log has token ids": 1}
    assert report.warnings[1].endswith("first: openai_chat.jsonl:8: a part of a message is not text ('image_url')")


def test_a_logged_call_counts_its_own_choices_only() -> None:
    """The request repeats all earlier answers: counted again, the first answer of a long chat weighs as much as all others together."""
    got, log = read("openai_calls.jsonl")
    assert (texts(got["1.1"])[1], got["1.1"].answer, got["1.1"].finish_reason) == (("assistant", "Hi."), "Nothing.", "stop")
    assert [(got[each].answer, got[each].prompt_token_ids, got[each].output_token_ids) for each in ("2.1", "2.2")] == [
        ("one", (1, 2), (3,)),
        ("two", (1, 2), (4, 0)),
    ]
    assert (texts(got["3.1"]), got["3.1"].answer) == ([("user", "1, 2,")], " 3")
    assert sorted(got) == ["1.1", "2.1", "2.2", "3.1"]
    assert log.report.bad_lines == {
        "a tool call, which is not text": 1,
        "a finish reason that is not known": 1,
        "a response without choices": 1,
    }


def test_pairs_are_read_under_each_of_their_names() -> None:
    """A gateway that writes `response` for `completion` would have an empty log."""
    got, log = read("pairs.jsonl")
    assert [(texts(each), each.answer) for each in got.values()] == [([("user", f"p{i}")], f"c{i}") for i in range(1, 6)]
    assert [each.segment for each in got.values()] == ["qa", "qa", "sum", "unlabelled", "unlabelled"]
    assert got["5.1"].finish_reason == "length"
    assert log.report.bad_lines == {"an empty answer": 1, "an empty prompt": 1}


def test_prompts_without_the_targets_answer_stay_without_one() -> None:
    """A reference solution taken for the target's output gives an acceptance that no server will show."""
    got, log = read("prompts.jsonl")
    assert [(each.messages[0].content, each.answer) for each in got.values()] == [
        ("Write a poem.", None),
        ("def add(a, b):\n", None),
        ("How many eggs?", None),
        ("Write.", None),
    ]
    report = log.report
    assert (report.without_answer, report.skipped_turns) == (4, {LATER_TURN: 1})
    assert sorted(report.notes.values()) == [1, 3]


def test_a_sharegpt_array_is_read_element_by_element() -> None:
    """ShareGPT dumps are one array of hundreds of megabytes; brackets and quotes inside its texts must not cut them."""
    got, log = read("sharegpt.json")
    assert {key: (texts(each)[-1], each.answer) for key, each in got.items()} == {
        "1.1": (("user", "Who?"), 'Me, ["you"].'),
        "1.2": (("user", "Oh}"), "Yes \\"),
        "2.2": (("user", "Who?"), "Me."),
    }
    assert texts(got["2.2"])[0] == ("assistant", "I go on.")
    assert log.report.bad_lines == {"no messages": 1, "a role that is not known": 1}
    assert log.report.skipped_turns == {"an answer with nothing before it": 1}


def test_the_segment_rule_sees_the_line_and_its_text() -> None:
    """A field deep in the line, or the text itself, decides which acceptance an exchange is counted under."""
    assert read("openai_chat.jsonl", segment_rule(name=None, field="metadata.kind"))[0]["2.1"].segment == "count"
    coded, _ = read("prompts.jsonl", segment_rule(name="code-or-chat", field=None))
    assert [each.segment for each in coded.values()] == ["chat", "code", "chat", "chat"]


USER = {"role": "user", "content": "q"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not JSON"),
        (b'{"prompt": "a"} {"prompt": "b"}', "not JSON"),
        (b"not json", "not JSON"),
        (b'{"prompt": ' + b"9" * 5000 + b"}", "not JSON"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b'{"prompt": "\xc3("}', "not UTF-8"),
        (b'{"prompt": "\\ud800"}', "a surrogate without its partner, which is no text"),
        (b'{"prompt": "a", "segment": "\\udfff"}', "a surrogate without its partner, which is no text"),
        (b'{"prompt": "a", "x": NaN}', "NaN or Infinity, which JSON does not have"),
        (b'{"prompt": "a", "x": [-Infinity]}', "NaN or Infinity, which JSON does not have"),
        (b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b"[1]", "not a JSON object"),
        (b"3", "not a JSON object"),
        ({"text": "a"}, "none of the shapes we read"),
        ({}, "none of the shapes we read"),
        ({"request": {"x": 1}, "response": {"choices": []}}, "none of the shapes we read"),
        ({"request": 1, "response": {"choices": []}}, "a value of the wrong type"),
        ({"prompt": "a", "response": {"choices": [1]}}, "a value of the wrong type"),
        ({"prompt": "a", "response": {"choices": [{"text": "b"}] * 129}}, "more than 128 choices"),
        ({"prompt": "a", "response": {"choices": [{}]}}, "a value of the wrong type"),
        ({"prompt": 3}, "a value of the wrong type"),
        ({"prompt": "a", "completion": 3}, "a value of the wrong type"),
        ({"prompt": "a", "arrived_at_s": -1}, "a value of the wrong type"),
        ({"prompt": "a", "arrived_at_s": True}, "a value of the wrong type"),
        ({"prompt": "a", "arrived_at_s": 10**400}, "a value of the wrong type"),
        (b'{"prompt": "a", "arrived_at_s": 1e999}', "a value of the wrong type"),
        ({"prompt": "a", "completion": "b", "finish_reason": 3}, "a value of the wrong type"),
        ({"turns": "a"}, "a value of the wrong type"),
        ({"turns": []}, "a value of the wrong type"),
        ({"messages": "a"}, "a value of the wrong type"),
        ({"messages": ["a"]}, "a value of the wrong type"),
        ({"messages": [{"content": "a"}]}, "a value of the wrong type"),
        ({"messages": [{"role": "user", "content": None}]}, "a value of the wrong type"),
        ({"messages": [{"role": "user", "content": ["a"]}]}, "a value of the wrong type"),
        ({"messages": [{"role": "user", "content": [{"text": "a"}]}]}, "a value of the wrong type"),
        ({"messages": [{"role": "system", "content": "a"}]}, "neither a question nor an answer"),
        ({"messages": [USER, {"role": "assistant", "content": None}]}, "an assistant message without text"),
        ({"messages": [USER, {"role": "assistant", "content": ""}]}, "an empty answer"),
        ({"messages": [USER] * 2001}, "more than 2000 messages"),
        ({"prompt": "a", "completion": "b", "token_ids": []}, "token ids that are none"),
        ({"prompt": "a", "completion": "b", "token_ids": [True]}, "token ids that are none"),
        ({"prompt": "a", "completion": "b", "token_ids": [-1]}, "token ids that are none"),
        ({"prompt": "a", "completion": "b", "token_ids": [2**31]}, "token ids that are none"),
        ({"prompt": "a", "completion": "b", "prompt_token_ids": "1"}, "token ids that are none"),
        ({"prompt": "a", "completion": "b", "finish_reason": "tool_calls"}, "a tool call, which is not text"),
        ({"prompt": "a", "completion": [{"type": "image"}]}, "a part of a message is not text"),
        ({"prompt": [{"type": "image"}], "completion": "b"}, "a part of a message is not text"),
        (b'{"prompt": "' + b"a" * (8 * 2**20) + b'"}', "longer than 8 MiB"),
    ],
)
def test_a_bad_line_is_named_and_the_rest_is_kept(tmp_path: Path, line: object, reason: str) -> None:
    """One hostile line in a million would end a night's work, or pass unseen."""
    log = log_of(tmp_path, {"prompt": "before"}, line, {"prompt": "after"})
    assert [each.id for each in log] == ["1.1", "3.1"]
    assert log.report.bad_lines == {reason: 1}
    assert [(each.file, each.line, each.reason) for each in log.report.examples] == [("log.jsonl", 2, reason)]


def test_reasoning_in_a_logged_call_is_noted(tmp_path: Path) -> None:
    """The tokens of a reasoning model's thoughts are most of its output; acceptance without them is another figure."""
    choice = {"message": {"role": "assistant", "content": "b", "reasoning_content": "hm"}}
    log = log_of(tmp_path, {"messages": [USER], "response": {"choices": [choice]}})
    assert [each.answer for each in log] == ["b"]
    assert list(log.report.notes.values()) == [1]


def test_an_answer_of_tokens_may_have_no_text(tmp_path: Path) -> None:
    """A target that says nothing but its end-of-sequence token has answered, in one token."""
    log = log_of(tmp_path, {"prompt": "a", "completion": "", "token_ids": [2], "prompt_token_ids": [1]})
    assert [(each.answer, each.output_token_ids) for each in log] == [("", (2,))]


@pytest.mark.parametrize(
    ("said", "kept"),
    [("stop", "stop"), ("end_turn", "stop"), ("length", "length"), ("max_tokens", "length"), ("abort", "length"), (None, None)],
)
def test_finish_reasons_are_stop_or_length(tmp_path: Path, said: str | None, kept: str | None) -> None:
    """A cut answer taken for a finished one gains a token that the target never wrote."""
    assert [each.finish_reason for each in log_of(tmp_path, {"prompt": "a", "completion": "b", "finish_reason": said})] == [kept]


def test_only_the_first_bad_lines_are_kept_and_all_are_counted(tmp_path: Path) -> None:
    """A log of a million bad lines would fill the memory, or the terminal."""
    log = log_of(tmp_path, {"prompt": "a"}, *[b"{"] * 50)
    assert len(list(log)) == 1
    assert (log.report.bad_lines, len(log.report.examples)) == ({"not JSON": 50}, KEPT_EXAMPLES)


def test_a_log_read_twice_gives_the_same_and_counts_once(tmp_path: Path) -> None:
    """Two passes (one for lengths, one for tokens) would double every count."""
    log = log_of(tmp_path, {"prompt": "a"}, b"{")
    assert list(log) == list(log)
    assert log.report.lines == 2


def test_several_logs_are_one_with_ids_of_their_own(tmp_path: Path) -> None:
    """Ids that collide make two users' requests one."""
    log_of(tmp_path, {"prompt": "a"}, name="one.jsonl")
    log_of(tmp_path, {"prompt": "b", "task": "t"}, b"{", name="two.jsonl")
    log = read_chat_logs([tmp_path / "one.jsonl", tmp_path / "two.jsonl"], segment=BY_KNOWN_FIELDS, progress=None)
    assert [(each.id, each.segment) for each in log] == [("1/1.1", "unlabelled"), ("2/1.1", "t")]
    assert (log.report.file, log.report.lines, log.report.unlabelled) == ("one.jsonl, two.jsonl", 3, 1)
    assert log.report.warnings == ("1 of 3 lines not used: not JSON; first: " + str(log.report.examples[0]),)


def padded_array(lines: bytes) -> bytes:
    """An array with as many blanks behind it as there were bytes."""
    return b'[{"prompt": "a"}]' + b" " * len(lines)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, padded_array])
def test_progress_adds_up_to_the_files_size(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    """A bar that never reaches its end, or that counts unpacked bytes against the packed size."""
    path = tmp_path / "log"
    path.write_bytes(pack(b'{"prompt": "%s"}\n' % (b"a" * 10_000) * 300))
    calls: list[int] = []
    list(read_chat_logs([path], segment=BY_KNOWN_FIELDS, progress=calls.append))
    assert sum(calls) == path.stat().st_size
    assert min(calls) > 0


def test_a_log_of_which_nothing_can_be_used_is_bad_input(tmp_path: Path) -> None:
    """An empty result would be taken for traffic without any acceptance."""
    with pytest.raises(BadInputError, match=r"none of its 2 lines could be used \(line 1: not JSON .*; line 2: none of the shapes"):
        list(log_of(tmp_path, b"{", {"a": 1}))
    with pytest.raises(BadInputError, match="all are blank"):
        list(log_of(tmp_path, b"", b"  "))


def test_no_path_is_bad_input() -> None:
    """A glob that matched nothing would run on nothing."""
    with pytest.raises(BadInputError, match="give at least one file"):
        read_chat_logs([], segment=BY_KNOWN_FIELDS, progress=None)


def test_a_pipe_is_read_once() -> None:
    """`<(zstdcat log.zst)` gives a path that cannot be opened, or sought in, a second time."""
    reading, writing = os.pipe()
    os.write(writing, b'{"prompt": "a"}\n')
    os.close(writing)
    log = read_chat_logs([Path(f"/dev/fd/{reading}")], segment=BY_KNOWN_FIELDS, progress=None)
    assert [each.id for each in log] == ["1.1"]
    os.close(reading)


def test_every_path_is_tried_before_any_is_read(tmp_path: Path) -> None:
    """A typo in the last of ten paths would be told after the first nine were read."""
    log_of(tmp_path, {"prompt": "a"})
    with pytest.raises(BadInputError, match="there is no such file"):
        read_chat_logs([tmp_path / "log.jsonl", tmp_path / "lgo.jsonl"], segment=BY_KNOWN_FIELDS, progress=None)


def test_the_demo_traffic_has_tokens_and_segments() -> None:
    """The first thing anybody runs would fail, or would measure bytes."""
    exchanges = demo_exchanges()
    assert all(each.answer is not None and each.prompt_token_ids and each.output_token_ids for each in exchanges)
    assert "unlabelled" not in {each.segment for each in exchanges}
    assert len({each.id for each in exchanges}) == len(exchanges)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.text(max_size=4) | st.sampled_from(["user", "assistant", "text", "stop"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["messages", "role", "content", "type", "text", "prompt", "response", "request", "choices", "message"])
            | st.sampled_from(
                ["conversations", "from", "value", "completion", "finish_reason", "token_ids", "segment", "tool_calls", "turns"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
fuzzed_lines = st.lists(st.binary(max_size=12) | json_values.map(lambda each: json.dumps(each).encode()), min_size=1, max_size=6)


@settings(max_examples=150, deadline=None)
@given(fuzzed_lines, st.booleans(), st.booleans())
def test_whatever_a_file_holds_it_is_read_or_refused_and_every_line_is_accounted_for(
    lines: Sequence[bytes], as_array: bool, packed: bool
) -> None:
    """A traceback for a user's odd log, or lines that vanish from the count."""
    content = b"[" + b",".join(lines) + b"]" if as_array else b"\n".join(lines)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_bytes(gzip.compress(content, mtime=0) if packed else content)
        try:
            log = read_chat_logs([path], segment=BY_KNOWN_FIELDS, progress=None)
            exchanges = list(log)
        except PacelineError:
            return
        report = log.report
        assert report.lines == report.blank + report.used_lines + sum(report.bad_lines.values())
        assert len(exchanges) == report.exchanges >= report.used_lines
        assert report.without_answer == sum(each.answer is None for each in exchanges)
        assert all(isinstance(said, Message) for each in exchanges for said in each.messages)
        if not as_array and not packed:
            assert report.lines == len(content.removesuffix(b"\n").split(b"\n"))
