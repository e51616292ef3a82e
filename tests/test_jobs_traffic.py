"""Traffic: lengths, arrivals and n-gram acceptance from logs, and what a reader must know about them."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.errors import BadInputError
from paceline.jobs.traffic import DEMO, Reading, Traffic, file_bytes, load_traffic
from paceline.replay.ngram import NgramRule, replay
from paceline.replay.suffix import SuffixRule
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method
from paceline.traffic.exchange import TokenStream

SHAPES = Path(__file__).parent / "data" / "traffic"
RULE = NgramRule(min_tokens=2, max_tokens=4, draft_tokens=3)
READING = Reading(tokenizer=None, segment_rule=None, segment_field=None, rule=RULE, assumed_output_tokens=77, seed=1)


def log(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """A JSONL file."""
    path.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
    return path


def loaded(*paths: Path, reading: Reading = READING) -> Traffic:
    """The traffic, without a bar."""
    return load_traffic(tuple(str(each) for each in paths), reading, progress=lambda _: None)


def with_ids(i: int, *, segment: str = "chat") -> dict[str, Any]:
    """A call whose log has both sides' token ids: the answer repeats the prompt."""
    message = {"role": "assistant", "content": "x"}
    return {
        "request": {"messages": [{"role": "user", "content": "y"}]},
        "response": {
            "prompt_token_ids": [1, 2, 3, 4, 5, i],
            "choices": [{"message": message, "token_ids": [1, 2, 3, 4, 5, 9], "finish_reason": "stop"}],
        },
        "segment": segment,
    }


def test_lengths_are_tokens_of_prompt_and_answer_and_bytes_are_labelled(tmp_path: Path) -> None:
    """The answer 'abcd' is four bytes and the end that the target decoded as well."""
    found = loaded(log(tmp_path / "log.jsonl", [{"prompt": "abc", "completion": "abcd", "category": "qa"}]))
    (request,) = found.workload.requests
    assert request.output_tokens == 5
    assert request.prompt_tokens == len("<|im_start|>user\nabc<|im_end|>\n<|im_start|>assistant\n")
    assert (request.segment, found.workload.source, found.has_arrivals, found.why_not) == ("qa", "log.jsonl", False, None)
    assert found.notes[0].startswith("tokens: bytes (fallback")
    assert found.notes[1].startswith("chat template ChatML (assumed")


def test_the_logs_own_token_ids_are_replayed_and_named(tmp_path: Path) -> None:
    """Two requests by hand: what replay counts of each is what stands in the groups."""
    found = loaded(log(tmp_path / "log.jsonl", [with_ids(7), with_ids(8, segment="code")]))
    assert found.notes == ("tokens: the log's own ids",)
    assert [each.prompt_tokens for each in found.workload.requests] == [6, 6]
    assert found.replayed is not None
    assert found.replayed.requests == 2
    assert list(found.replayed.groups) == ["chat", "code"]
    stream = TokenStream(
        id="1",
        segment="chat",
        prompt=np.array([1, 2, 3, 4, 5, 7], dtype=np.int32),
        output=np.array([1, 2, 3, 4, 5, 9], dtype=np.int32),
        stopped=True,
    )
    counts = replay(stream, RULE)
    assert counts.accepted_tokens > 0
    assert found.replayed.groups["chat"] == (counts,)
    assert found.replayed.pooled()["code"] == counts


def test_suffix_drafts_are_replayed_where_they_are_asked_for(tmp_path: Path) -> None:
    """n-gram figures under the name of another method; the second answer repeats the first, which only the cache of outputs knows."""
    rule = SuffixRule(depth=24, cached_requests=10, factor=1.0, least_probability=0.1, draft_tokens=3)
    rows = [{**with_ids(i), "request": {"messages": [{"role": "user", "content": "y"}]}} for i in (7, 8)]
    for row in rows:
        row["response"]["prompt_token_ids"] = [99]
    found = loaded(log(tmp_path / "log.jsonl", rows), reading=replace(READING, rule=rule))
    assert found.replayed is not None
    assert found.pooled(Method.NGRAM) is None
    assert found.pooled(Method.SUFFIX) == found.replayed.pooled()
    first, second = found.replayed.groups["chat"]
    assert (first.accepted_tokens, second.accepted_tokens) == (0, 4)


def test_counts_stay_by_request_for_the_intervals(tmp_path: Path) -> None:
    """Pooled before their time, ten requests would be one unit without a spread."""
    found = loaded(log(tmp_path / "log.jsonl", [with_ids(i) for i in range(10)]))
    assert found.replayed is not None
    groups = found.replayed.groups["chat"]
    assert len(groups) == 10
    assert found.replayed.pooled() == {"chat": sum(groups, start=AcceptanceCounts.none())}


def test_prompts_alone_have_no_acceptance_and_an_assumed_length() -> None:
    """An acceptance made up for questions would look like a measurement."""
    found = loaded(SHAPES / "prompts.jsonl")
    assert found.replayed is None
    assert found.why_not is not None
    assert "no answers" in found.why_not
    assert {each.output_tokens for each in found.workload.requests} == {77}
    count = len(found.workload.requests)
    assert any(note.startswith(f"{count} of {count} exchanges have no answer") for note in found.notes)


@pytest.mark.parametrize("name", ["azure_trace.csv", "burstgpt_trace.csv", "mooncake_trace.jsonl"])
def test_a_trace_has_times_and_no_acceptance(name: str) -> None:
    """Lengths and instants are all it holds; its lines that cannot be used are told."""
    found = loaded(SHAPES / name)
    assert found.has_arrivals
    assert found.replayed is None
    assert found.why_not is not None
    assert "no text" in found.why_not
    instants = [each.arrived_at_s for each in found.workload.requests]
    assert instants == sorted(instants)
    assert instants[0] == 0
    assert found.warnings
    assert found.inputs.keys() == {name}


def test_a_traces_column_names_its_segments() -> None:
    """Calls of programs would be forecast with the acceptance of people's."""
    found = loaded(SHAPES / "burstgpt_trace.csv", reading=replace(READING, segment_field="Model"))
    assert found.workload.segments == ("ChatGPT", "GPT-4")


def test_answers_and_prompts_may_be_mixed(tmp_path: Path) -> None:
    """The questions are simulated with the assumed length, and only the answers are replayed."""
    rows = [{"prompt": "a b a b a b", "completion": "a b a b"}, {"prompt": "only a question"}]
    found = loaded(log(tmp_path / "log.jsonl", rows))
    assert [each.output_tokens for each in found.workload.requests] == [8, 77]
    assert found.replayed is not None
    assert found.replayed.requests == 1
    assert "1 of 2 exchanges have no answer; their output length is assumed" in found.notes


def words_only(path: Path) -> Path:
    """A tokenizer that knows words and drops white space."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    made = Tokenizer(WordLevel({"?": 0, "abc": 1}, unk_token="?"))  # noqa: S106  # a word for the unknown, no password
    made.pre_tokenizer = Whitespace()
    made.save(str(path))
    return path


def test_answers_without_a_token_are_left_out_and_told(tmp_path: Path) -> None:
    """An answer without a token is no request that a server decodes; nor is the rest a sample of the log."""
    reading = replace(READING, tokenizer=words_only(tmp_path / "tokenizer.json"))
    file = log(tmp_path / "log.jsonl", [{"prompt": "p", "completion": " "}, {"prompt": "p", "completion": "abc"}])
    found = loaded(file, reading=reading)
    assert [each.output_tokens for each in found.workload.requests] == [2]
    assert "1 answers without a token are left out" in found.warnings
    assert found.workload.seed is None, "nothing was drawn"
    assert found.notes[0].startswith("tokens: tokenizer.json sha256:")
    with pytest.raises(BadInputError, match="holds no exchange that can be used"):
        loaded(log(tmp_path / "blank.jsonl", [{"prompt": "p", "completion": " "}]), reading=reading)


def test_times_count_from_the_first_arrival_in_order(tmp_path: Path) -> None:
    """A log in Unix time must not start with fifty years of silence."""
    at = 1_700_000_000.0
    rows = [{"prompt": "p", "completion": "c", "arrived_at_s": at + later} for later in (5, 0, 2.5)]
    found = loaded(log(tmp_path / "log.jsonl", rows))
    assert found.has_arrivals
    assert [each.arrived_at_s for each in found.workload.requests] == [0, 2.5, 5]
    assert [each.id for each in found.workload.requests] == ["2.1", "3.1", "1.1"]


def test_where_some_have_no_time_nobody_has_one(tmp_path: Path) -> None:
    """One file with times and one without: the mix is read in the log's order, not refused as out of order."""
    rows: list[dict[str, Any]] = [{"prompt": "p", "completion": "c", "arrived_at_s": 9}, {"prompt": "p", "completion": "c"}]
    found = loaded(log(tmp_path / "log.jsonl", rows))
    assert not found.has_arrivals
    assert [(each.id, each.arrived_at_s) for each in found.workload.requests] == [("1.1", 0.0), ("2.1", 0.0)]


def test_segments_come_from_the_field_or_the_rule_and_gaps_are_told(tmp_path: Path) -> None:
    """A field that only half of the lines have splits the traffic where nobody meant to."""
    rows = [{"prompt": "p", "completion": "c", "kind": "a"}, {"prompt": "p", "completion": "c"}]
    file = log(tmp_path / "log.jsonl", rows)
    found = loaded(file, reading=replace(READING, segment_field="kind"))
    assert found.workload.segments == ("a", "unlabelled")
    assert "1 of 2 exchanges have no segment field" in found.warnings
    assert loaded(file, reading=replace(READING, segment_rule="single")).workload.segments == ("all",)


def test_several_logs_are_one_traffic_and_each_has_its_hash(tmp_path: Path) -> None:
    """Two folders with a log.jsonl each: a hash that is lost cannot be checked."""
    files = []
    for name in ("monday", "tuesday"):
        (tmp_path / name).mkdir()
        files.append(log(tmp_path / name / "log.jsonl", [{"prompt": name, "completion": "c"}]))
    found = loaded(*files)
    assert len({each.id for each in found.workload.requests}) == 2
    assert found.workload.source == "log.jsonl, log.jsonl"
    assert list(found.inputs) == ["log.jsonl", "log.jsonl'"]
    assert list(found.inputs.values()) == [hashlib.sha256(each.read_bytes()).hexdigest() for each in files]


def test_traces_and_logs_do_not_mix_and_something_must_be_named() -> None:
    """Arrivals of one and texts of the other belong to nobody's traffic."""
    for paths in ((SHAPES / "azure_trace.csv", SHAPES / "pairs.jsonl"), (SHAPES / "azure_trace.csv",) * 2):
        with pytest.raises(BadInputError, match="a trace is read alone"):
            loaded(*paths)
    with pytest.raises(BadInputError, match="no traffic was named"):
        loaded()


def test_the_demo_traffic_is_labelled_as_an_illustration() -> None:
    """Whoever shows the demo's figures to a boss must be told that they are nobody's traffic."""
    found = load_traffic((DEMO,), READING, progress=lambda _: None)
    assert found.replayed is not None
    assert found.workload.source == "demo traffic"
    assert found.notes
    assert all(len(each) == 64 for each in found.inputs.values())


def test_progress_adds_up_to_the_files_and_their_sizes_are_known_beforehand() -> None:
    """A bar that stops at half makes people press Ctrl-C."""
    seen: list[int] = []
    files = (SHAPES / "pairs.jsonl", SHAPES / "azure_trace.csv")
    for file in files:
        load_traffic((str(file),), READING, progress=seen.append)
    assert sum(seen) == file_bytes([str(each) for each in files]) == sum(each.stat().st_size for each in files)
    assert file_bytes([DEMO]) is None


@pytest.mark.parametrize(
    "name", ["openai_calls.jsonl", "openai_chat.jsonl", "pairs.jsonl", "prompts.jsonl", "sharegpt.json", "azure_trace.csv"]
)
def test_every_shape_of_traffic_becomes_requests(name: str) -> None:
    """Reading is the first thing anybody tries."""
    found = loaded(SHAPES / name)
    assert all(each.prompt_tokens >= 1 and each.output_tokens >= 1 for each in found.workload.requests)
    assert (found.replayed is None) == (found.why_not is not None)
