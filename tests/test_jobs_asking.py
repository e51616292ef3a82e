"""A chat log as requests."""

import json
from pathlib import Path

from paceline.jobs.asking import Asking, read_asks


def test_empty_prompts_are_left_out_and_counted(tmp_path: Path) -> None:
    """A server refuses them, and the arm has lost requests."""
    log = tmp_path / "log.jsonl"
    rows = [{"id": str(i), "messages": [{"role": "user", "content": text}]} for i, text in enumerate(["a", " \n", "", "b"])]
    log.write_text("".join(json.dumps(each) + "\n" for each in rows), "utf-8")
    asking = Asking(
        paths=(str(log),),
        segment_rule=None,
        segment_field=None,
        requests=2,
        spare=0,
        max_tokens=4,
        temperature=0.0,
        ignore_eos=False,
        api="chat",
        seed=1,
    )
    asked = read_asks(asking, progress=lambda _: None)
    assert sorted(each.messages[0].content for each in asked.counted if each.messages) == ["a", "b"]
    assert [(each.code, each.message[:12]) for each in asked.cautions if each.code == "empty_prompts"] == [
        ("empty_prompts", "2 exchanges ")
    ]
