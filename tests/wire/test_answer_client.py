"""`live/answer`: streams of four dialects, whole and broken, read into records."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.latency import Ended
from paceline.live.answer import AcceptanceFrom, Answer, read_answer
from paceline.live.chunk_tokens import OVERSHOOT_TOKENS, TokensFrom
from paceline.live.http_connection import Received, StreamEnd
from paceline.live.openai import Ask
from paceline.run import Outcome
from paceline.speculation.counts import AcceptanceCounts
from paceline.traffic.exchange import Message

ROOT = Path(__file__).parent.parent.parent
REAL = (ROOT / "tests" / "data" / "streams" / "vllm_0.32.0_chat_ngram_k4.sse").read_bytes()
ASK = Ask(id="7", segment="code", messages=None, prompt="a b c", max_tokens=64, temperature=0.0, seed=3, extra={})
ORIGIN_NS = 1_000_000_000


def received(*packets: bytes, **changes: object) -> Received:
    """A reply whose body came in such packets, 10 ms apart, the first (with the header) 10 ms after it was sent."""
    head = f"HTTP/1.1 {changes.get('status') or 200} X\r\n\r\n".encode()
    usual: dict[str, object] = {
        "sent_at_ns": 2_000_000_000,
        "status": 200,
        "headers": {"content-type": "text/event-stream; charset=utf-8"},
        "packets": tuple((2_000_000_000 + 10_000_000 * place, head * (place == 1) + each) for place, each in enumerate(packets, 1)),
        "ended": StreamEnd.COMPLETE,
        "ended_at_ns": 9_000_000_000,
        "error": None,
        "received_bytes": 1,
        "sent_twice": False,
    }
    return Received(**(usual | changes))  # type: ignore[arg-type]  # each test gives the types its field has


def events(*messages: object) -> tuple[bytes, ...]:
    """One packet per message: JSON, or text as it stands."""
    return tuple(f"data: {each if isinstance(each, str) else json.dumps(each)}\n\n".encode() for each in messages)


def answer(*messages: object, count_tokens: Callable[[str], int] | None = None, max_tokens: int = 64, **changes: object) -> Answer:
    """What is read of a stream of such messages."""
    asked = Ask(**{name: getattr(ASK, name) for name in ASK.__slots__} | {"max_tokens": max_tokens})
    return read_answer(
        received(*events(*messages), **changes), asked, arrived_at_s=None, clock_origin_ns=ORIGIN_NS, count_tokens=count_tokens
    )


def chat(text: str | None, *, so_far: int | None = None, finish: str | None = None, **choice: object) -> dict[str, object]:
    """One message of a chat."""
    delta = {} if text is None else {"content": text}
    usage = {} if so_far is None else {"usage": {"prompt_tokens": 5, "completion_tokens": so_far}}
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish, **choice}], **usage}


def usage(total: int) -> dict[str, object]:
    """A trailing usage message."""
    return {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": total}}


def codes(read: Answer) -> list[str]:
    """The cautions' codes."""
    return [each.code for each in read.cautions]


def chunks(read: Answer) -> list[tuple[float, int]]:
    """Milliseconds after sending, and tokens, of each chunk."""
    timing = read.record.timing
    return [(round((at - 1.0) * 1000), int(tokens)) for at, tokens in zip(timing.chunk_at_s, timing.chunk_tokens, strict=True)]


ROLE = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}


def test_a_real_stream_of_vllm_gives_its_own_counts() -> None:
    """Six chunks of ten tokens, two drafted steps of three accepted; the usage message and the role are none."""
    packets = [each + b"\n\n" for each in REAL.split(b"\n\n") if each.strip()]
    read = read_answer(received(*packets), ASK, arrived_at_s=0.9, clock_origin_ns=ORIGIN_NS, count_tokens=None)
    assert chunks(read) == [(20, 1), (30, 1), (40, 1), (50, 4), (60, 1), (70, 2)]
    assert (read.record.prompt_tokens, read.record.output_tokens) == (46, 10)
    assert read.record.timing.arrived_at_s == 0.9
    assert read.record.timing.sent_at_s == 1.0
    assert read.text == "The quick brown fox jumps over lazy dog."
    assert (read.tokens_from, read.acceptance_from, read.dialect) == (TokensFrom.USAGE, AcceptanceFrom.PER_REQUEST, "vllm")
    assert read.record.acceptance == AcceptanceCounts(
        steps=5, drafts=2, drafted_tokens=8, accepted_tokens=6, accepted_per_position=(2, 2, 2, 0)
    )
    assert (read.finish_reason, read.record.timing.ended, read.record.outcome) == ("stop", Ended.STOP, Outcome.FINISHED)
    assert (read.cautions, read.error) == ((), None)


def test_sglang_s_last_message_carries_its_counts() -> None:
    """A separate message without choices, after the usage."""
    details = {"spec_verify_ct": 1, "spec_num_correct_drafts": 2, "spec_num_proposed_drafts": 3, "spec_correct_drafts_histogram": [0, 0, 1]}
    read = answer(
        ROLE,
        chat("a", so_far=1),
        chat(" b c d", so_far=4, finish="length"),
        usage(4),
        {"choices": [], "sglext": {"spec_tokens_details": details}},
        "[DONE]",
    )
    assert chunks(read) == [(20, 1), (30, 3)]
    assert (read.dialect, read.record.timing.ended) == ("sglang", Ended.LENGTH)
    assert read.record.acceptance == AcceptanceCounts(steps=1, drafts=1, drafted_tokens=3, accepted_tokens=2, accepted_per_position=(1, 1))


def test_llamacpp_s_timings_count_tokens_and_drafts() -> None:
    """One message per token, the total and the drafts on the last."""
    timings = {"prompt_n": 3, "cache_n": 4, "predicted_n": 4, "draft_n": 3, "draft_n_accepted": 2}
    read = answer(ROLE, chat("a"), chat("b"), chat("c"), chat("d"), {**chat(None, finish="length"), "timings": timings}, "[DONE]")
    assert (read.tokens_from, read.dialect, codes(read)) == (TokensFrom.CHUNKS, "llamacpp", ["drafted_steps_assumed"])
    assert (read.record.prompt_tokens, read.record.output_tokens) == (7, 4)
    assert read.record.acceptance is not None
    assert read.record.acceptance.steps == 1
    per_token = [{**chat(each), "timings": {"prompt_n": 3, "predicted_n": place}} for place, each in enumerate("ab", 1)]
    assert answer(*per_token, chat(None, finish="stop"), "[DONE]").tokens_from is TokensFrom.USAGE


def test_tensorrt_llm_s_ratio_is_kept_apart_from_counts() -> None:
    """A ratio that passes for counts pools wrongly."""
    read = answer(chat("a", so_far=1), chat("b c", so_far=3, finish="stop", avg_decoded_tokens_per_iter=1.5), "[DONE]")
    assert (read.record.acceptance, read.acceptance_from, read.tokens_per_step) == (None, AcceptanceFrom.RATIO, 1.5)


def test_without_a_server_s_word_tokens_per_chunk_are_labelled_as_such() -> None:
    """Tokens per chunk pass for acceptance where chunks are no steps."""
    read = answer(chat("a", so_far=1), chat("b c", so_far=3), chat("d e f", so_far=6, finish="stop"), "[DONE]")
    assert (read.record.acceptance, read.acceptance_from, read.tokens_per_step) == (None, AcceptanceFrom.CHUNKS, 2.5)


def test_completions_reasoning_and_tool_calls_are_text() -> None:
    """The first token of a reasoning model is taken to be the first of its answer, minutes later."""
    reasoning = {"choices": [{"delta": {"reasoning_content": "hm", "reasoning": "hm"}}], "usage": {"completion_tokens": 1}}
    call = {"function": {"name": "f", "arguments": "{}"}}
    tool = {"choices": [{"delta": {"tool_calls": [call, 3, {"function": 4}]}}], "usage": {"completion_tokens": 4}}
    text = {"choices": [{"text": "x", "finish_reason": "stop"}], "usage": {"completion_tokens": 5, "prompt_tokens": 1}}
    read = answer(reasoning, tool, text, "[DONE]")
    assert (read.text, chunks(read), codes(read)) == ("hmf{}x", [(10, 1), (20, 3), (30, 1)], [])


def test_a_message_with_an_answer_and_its_reasoning_shows_both() -> None:
    """The message in which a model stops thinking loses half of its text."""
    both = {"choices": [{"delta": {"content": "yes", "reasoning": "hm ", "tool_calls": [{"function": {"name": "f"}}]}}]}
    assert answer(both, "[DONE]").text == "hm yesf"


def test_a_delta_without_text_hands_its_tokens_to_the_next_chunk() -> None:
    """Half a character takes a step and shows nothing: its token is lost, or it counts as a chunk that nobody saw."""
    read = answer(chat("a", so_far=1), chat("", so_far=2), chat("é", so_far=3), chat("", so_far=4, finish="stop"), "[DONE]")
    assert chunks(read) == [(10, 1), (30, 2)]
    assert (read.record.output_tokens, codes(read)) == (4, [])
    with_ids = answer(chat("", token_ids=[5]), chat("é", token_ids=[6, 7]), chat(None, finish="stop"), usage(3), "[DONE]")
    assert (chunks(with_ids), with_ids.tokens_from) == ([(20, 3)], TokensFrom.TOKEN_IDS)


def test_text_that_was_held_back_is_no_chunk() -> None:
    """A server that splits one step in two messages halves the tokens per step."""
    read = answer(chat("a", so_far=1), chat("b", so_far=1), chat("c", so_far=2, finish="stop"), "[DONE]")
    assert (chunks(read), read.text, codes(read)) == ([(10, 1), (30, 1)], "abc", ["chunks_without_tokens"])


@pytest.mark.parametrize(
    ("messages", "tokens_from", "tokens", "expected"),
    [
        ([chat("a", logprobs={"content": [{}]}), chat("b", logprobs={"content": [{}, {}]}), usage(3)], TokensFrom.LOGPROBS, [1, 2], []),
        ([chat("a", logprobs={"tokens": ["a"]}), chat("b", logprobs={"tokens": ["b"]}), usage(2)], TokensFrom.LOGPROBS, [1, 1], []),
        ([chat("a"), chat("b"), usage(2)], TokensFrom.CHUNKS, [1, 1], []),
        ([chat("a"), chat("b", finish="stop"), usage(3)], TokensFrom.SPREAD, [1, 2], ["tokens_spread"]),
        ([chat("aa"), chat("bbbbbb"), usage(6)], TokensFrom.SPREAD, [2, 4], ["tokens_spread"]),
        ([chat("a"), chat("b")], TokensFrom.ASSUMED, [1, 1], ["tokens_assumed"]),
        ([chat("a"), chat("b"), chat("c"), usage(2)], TokensFrom.ASSUMED, [1, 1, 1], ["tokens_assumed"]),
        # The total stands still at 0 until the end: no running total.
        ([chat("a", so_far=0), chat("b", so_far=0), chat("c", so_far=0), usage(6)], TokensFrom.SPREAD, [2, 2, 2], ["tokens_spread"]),
        # It falls: nothing of it is used for chunks.
        ([chat("a", so_far=3), chat("b", so_far=1), usage(3)], TokensFrom.SPREAD, [1, 2], ["unlawful_usage", "tokens_spread"]),
        ([chat("a", so_far=10**9), chat("b", so_far=10**9 + 1)], TokensFrom.ASSUMED, [1, 1], ["unlawful_usage", "tokens_assumed"]),
        ([chat("a", so_far=1), chat("", so_far=9, finish="length")], TokensFrom.USAGE, [1], ["unseen_tokens"]),
    ],
)
def test_tokens_come_from_the_surest_source_and_a_guess_says_so(
    messages: list[object], tokens_from: TokensFrom, tokens: list[int], expected: list[str]
) -> None:
    """One token per chunk, assumed in silence, makes speculation look useless."""
    ending = () if any(each["choices"] and each["choices"][0]["finish_reason"] for each in messages) else (chat(None, finish="length"),)  # type: ignore[index]  # our own messages
    read = answer(*messages[:-1], *ending, messages[-1], "[DONE]")
    assert (read.tokens_from, [each for _, each in chunks(read)]) == (tokens_from, tokens)
    assert [each for each in codes(read) if each != "prompt_tokens_not_reported"] == expected


def test_a_tokenizer_counts_where_the_server_does_not() -> None:
    """Another model's tokenizer counts other tokens, and nobody is told."""
    exact = answer(chat("a b"), chat("c", finish="stop"), usage(3), "[DONE]", count_tokens=lambda text: len(text.split()))
    assert (exact.tokens_from, chunks(exact), codes(exact)) == (TokensFrom.TOKENIZER, [(10, 2), (20, 1)], [])
    other = answer(chat("a b"), chat("c", finish="stop"), usage(9), "[DONE]", count_tokens=len)
    assert (codes(other), other.record.output_tokens) == (["token_counts_disagree"], 9)
    prompt = answer(chat("a b", finish="stop"), "[DONE]", count_tokens=lambda text: len(text.split()))
    assert (prompt.record.prompt_tokens, codes(prompt)) == (3, ["prompt_tokens_not_reported"])
    asked = Ask(id="1", segment="s", messages=(Message("user", "a b"),), prompt=None, max_tokens=9, temperature=0, seed=1, extra={})
    cut = read_answer(received(), asked, arrived_at_s=None, clock_origin_ns=0, count_tokens=lambda text: len(text.split()))
    assert cut.record.prompt_tokens == 2


KEY = "sk-of-nobody-5d41"


@pytest.mark.parametrize(
    ("reply", "ended", "outcome", "says"),
    [
        (received(b'{"error": "\x1b[31mboom ' + KEY.encode() + b'"}', status=500), Ended.ERROR, Outcome.FAILED, "HTTP 500"),
        (received(b"x" * 10**6, status=400), Ended.ERROR, Outcome.FAILED, "HTTP 400"),
        (received(b"busy", status=503), Ended.ERROR, Outcome.REFUSED, "HTTP 503: busy"),
        (received(b"slow down", status=429), Ended.ERROR, Outcome.REFUSED, "HTTP 429"),
        (received(status=307, headers={"location": "http://else\x07"}), Ended.ERROR, Outcome.FAILED, "redirects are not followed"),
        (received(status=307, headers={"location": f"/?k={KEY}"}), Ended.ERROR, Outcome.FAILED, "leads to /?k=…"),
        (received(b"\x1f\x8b", headers={"content-encoding": "gzip"}), Ended.ERROR, Outcome.FAILED, "answered in gzip"),
        (received(b"\x1f\x8b", status=500, headers={"content-encoding": "br"}), Ended.ERROR, Outcome.FAILED, "a body in br"),
        (received(b"y" * 290 + KEY.encode(), status=500), Ended.ERROR, Outcome.FAILED, "HTTP 500"),
        (received(b"{}", headers={"content-type": "application/json"}), Ended.ERROR, Outcome.FAILED, "not with an event stream"),
        (received(status=None, ended=StreamEnd.REFUSED, error="no connection"), Ended.ERROR, Outcome.REFUSED, "no connection"),
        (received(status=None, ended=StreamEnd.CUT, error="closed"), Ended.ERROR, Outcome.FAILED, "closed"),
        (received(*events(chat("a")), ended=StreamEnd.TIMEOUT, error="silent"), Ended.TIMEOUT, Outcome.FAILED, "silent"),
        (received(*events(chat("a")), ended=StreamEnd.CANCELLED), Ended.CANCELLED, Outcome.FAILED, "cancelled"),
        (received(*events(chat("a")), ended=StreamEnd.CUT, error="closed"), Ended.ERROR, Outcome.FAILED, "closed"),
        (received(*events(chat("a"))), Ended.ERROR, Outcome.FAILED, "without a finish reason"),
        (received(*events(chat("a"), {"error": {"message": "out of memory"}}, "[DONE]")), Ended.ERROR, Outcome.FAILED, "out of memory"),
        (received(*events(chat("a")), b"event: error\ndata: bad\n\n"), Ended.ERROR, Outcome.FAILED, "unreadable"),
        (received(*events(chat("a", finish="abort"), "[DONE]")), Ended.ERROR, Outcome.FAILED, "abort"),
    ],
)
def test_whatever_goes_wrong_is_an_outcome_with_a_printable_reason(
    reply: Received, ended: Ended, outcome: Outcome, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed request passes for a fast one, steers the terminal, or prints the key."""
    monkeypatch.setenv("PACELINE_API_KEY", KEY)
    read = read_answer(reply, ASK, arrived_at_s=None, clock_origin_ns=ORIGIN_NS, count_tokens=None)
    assert (read.record.timing.ended, read.record.outcome) == (ended, outcome)
    assert read.error is not None
    assert says in read.error or says == "unreadable"
    assert read.error.isprintable()
    assert len(read.error) < 400
    assert KEY not in read.error
    assert KEY[:9] not in read.error


def test_a_key_in_an_answer_and_an_answer_without_text_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text with the key in it is published; an answer without text passes for the fastest of all."""
    monkeypatch.setenv("PACELINE_API_KEY", KEY)
    assert answer(chat(f"a {KEY}", finish="stop"), "[DONE]").text == "a …"
    empty = answer(chat("", finish="stop"), "[DONE]")
    assert (empty.text, "empty_answers" in codes(empty)) == ("", True)


def test_what_is_doubtful_about_a_stream_is_said() -> None:
    """Figures are taken for surer than they are."""
    odd = answer(chat("a", so_far=1), "{", "[1]", {"choices": [{"index": 1, "delta": {"content": "z"}}]}, "[DONE]", sent_twice=True)
    assert codes(odd) == ["unreadable_messages", "several_answers", "sent_twice", "no_finish_reason"]
    assert odd.record.outcome is Outcome.FINISHED
    for ended in (StreamEnd.CUT, StreamEnd.TIMEOUT, StreamEnd.CANCELLED):
        late = answer(chat("a", so_far=1, finish="stop"), ended=ended, error="closed")
        assert (codes(late), late.record.outcome) == (["cut_after_the_answer"], Outcome.FINISHED)


def test_every_caution_is_in_the_reference() -> None:
    """Whoever meets a code finds no word on it."""
    package, reference = ROOT / "src" / "paceline", (ROOT / "docs" / "reference" / "answers.md").read_text(encoding="utf-8")
    modules = [package / "live" / "answer.py", package / "live" / "chunk_tokens.py", package / "servers" / "per_request.py"]
    found = {code for path in modules for code in re.findall(r'Caution\(\s*"(\w+)"', path.read_text(encoding="utf-8"))}
    assert len(found) > 10
    assert sorted(code for code in found if f"`{code}`" not in reference) == []
    assert sorted(each for each in TokensFrom if f"`{each.value}`" not in reference) == []


def test_nothing_after_the_end_mark_counts() -> None:
    """A proxy's footer passes for tokens."""
    assert chunks(answer(chat("a", so_far=1, finish="stop"), "[DONE]", chat("b", so_far=2))) == [(10, 1)]


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 9), st.integers(2**62, 2**66), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["content", "text", "function"]), inner, max_size=2)
    ),
    max_leaves=5,
)
CHOICE = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("index", "delta", "text", "finish_reason", "logprobs", "token_ids", "avg_decoded_tokens_per_iter"), JSON),
)
LIKELY = st.builds(
    chat, st.text(max_size=3), so_far=st.one_of(st.none(), st.integers(0, 400)), finish=st.sampled_from([None, None, "stop", "length"])
)
MESSAGE = st.one_of(
    LIKELY,
    st.just("[DONE]"),
    st.fixed_dictionaries(
        {"choices": st.one_of(JSON, st.lists(st.one_of(CHOICE, JSON), max_size=2))},
        optional=dict.fromkeys(("usage", "metrics", "sglext", "timings", "error", "object"), JSON),
    ),
    JSON,
)


def expect_honest(read: Answer) -> None:
    """No number without a source: every chunk has tokens, and a guess has its caution."""
    timing, found = read.record.timing, codes(read)
    assert timing.output_tokens <= read.record.output_tokens
    if read.tokens_from in (TokensFrom.SPREAD, TokensFrom.ASSUMED) and timing.chunk_at_s.size:
        assert {"tokens_spread", "tokens_assumed"} & set(found)
    assert timing.output_tokens <= ASK.max_tokens + OVERSHOOT_TOKENS or read.tokens_from is TokensFrom.ASSUMED
    assert (read.error is None) == (read.record.outcome is Outcome.FINISHED)
    assert (read.record.acceptance is None) == (read.acceptance_from is not AcceptanceFrom.PER_REQUEST)


@settings(max_examples=200, deadline=None)
@given(st.lists(MESSAGE, max_size=8))
def test_no_message_crashes_the_reader_or_gives_a_number_without_a_source(messages: list[object]) -> None:
    """One odd answer ends a run of an hour, or spoils its figures in silence."""
    expect_honest(answer(*messages))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(REAL)), st.integers(0, 40), st.binary(max_size=3)), max_size=4), st.sampled_from(StreamEnd))
def test_no_damage_to_a_real_stream_crashes_the_reader(damages: list[tuple[int, int, bytes]], ended: StreamEnd) -> None:
    """A bad cable ends a run of an hour."""
    stream = REAL
    for at, lost, instead in damages:
        stream = stream[:at] + instead + stream[at + lost :]
    packets = tuple(stream[at : at + 500] for at in range(0, len(stream), 500))
    expect_honest(read_answer(received(*packets, ended=ended), ASK, arrived_at_s=None, clock_origin_ns=ORIGIN_NS, count_tokens=None))


def test_a_few_tokens_beyond_the_limit_are_said_and_more_are_not_believed() -> None:
    """A server whose usage counts something else inflates a 64-token answer, and the throughput, without a word."""
    end = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    for total, said in ((64, None), (70, "more_tokens_than_asked"), (81, "unlawful_usage")):
        read = answer(chat("a"), chat("b"), end, {"choices": [], "usage": {"completion_tokens": total, "prompt_tokens": 3}})
        assert ({"more_tokens_than_asked", "unlawful_usage"} & set(codes(read))) == (set() if said is None else {said})
        assert read.record.output_tokens == (2 if total == 81 else total)


def test_a_prompt_longer_than_any_is_not_believed() -> None:
    """One damaged count of a prompt decides the mean of a run."""
    end = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    read = answer(chat("a"), end, {"choices": [], "usage": {"completion_tokens": 1, "prompt_tokens": 10_000_001}})
    assert read.record.prompt_tokens == 0
    assert "prompt_tokens_not_reported" in codes(read)
