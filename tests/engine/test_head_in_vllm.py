"""A replay that is held against a server's counters is of what the server was asked."""

import json
from pathlib import Path

from benchmarks.head_in_vllm import counted_prompts, messages_of


def test_the_counted_prompts_are_those_that_the_answers_name(tmp_path: Path) -> None:
    """Acceptance of other prompts of the same traffic differs by more than server and replay do: a sound head would be called misread."""
    log, answers = tmp_path / "log.jsonl", tmp_path / "answers.jsonl"
    asked = ["first", "second", "third"]
    log.write_text("".join(json.dumps({"messages": [{"role": "user", "content": each}]}) + "\n" for each in asked), encoding="utf-8")
    names = list(messages_of(log))
    told = [names[2], names[0], f"{names[2]}#2"]
    answers.write_text("".join(json.dumps({"id": each, "text": "x"}) + "\n" for each in told), encoding="utf-8")
    found = counted_prompts(log, answers, tmp_path / "new" / "counted.jsonl")
    assert [each[0].content for each in messages_of(found).values()] == ["third", "first", "third"]
