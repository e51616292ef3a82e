"""
The prompts of the demo traffic: every request that `generate.py` asks the model.

Their texts stand in `prompts.toml`. Rules:

- A `single` is a prompt as it stands.
- A `kit` is a list of materials (a passage, a draft, a snippet) and a list of tasks with a `{}` where the material goes. Every
  task is asked about every material.
- No two prompts are equal.
"""

import tomllib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

PROMPTS_FILE = Path(__file__).with_name("prompts.toml")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One user turn and the segment of traffic that it belongs to."""

    segment: str
    text: str

    def __post_init__(self) -> None:
        """Reject a segment that the demo does not have, and a prompt that says nothing."""
        if self.segment not in ("chat", "code"):
            raise ValueError(f"segment {self.segment!r} is neither 'chat' nor 'code'")
        if not self.text.strip():
            raise ValueError(f"an empty {self.segment} prompt")


def read_prompts(path: Path) -> list[Prompt]:
    """All prompts of the file, in its order; raises ValueError when two are equal."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    prompts = [Prompt(segment, text) for segment in ("chat", "code") for text in segment_texts(table[segment])]
    if len({prompt.text for prompt in prompts}) < len(prompts):
        texts = sorted(prompt.text for prompt in prompts)
        twice = next(text for text, following in pairwise(texts) if text == following)
        raise ValueError(f"the prompt {twice[:80]!r} stands twice in {path.name}")
    return prompts


def segment_texts(table: dict[str, Any]) -> list[str]:
    """The prompts of one segment: its singles, then each kit's tasks with each material filled in."""
    texts = [single.strip() for single in table["singles"]]
    for kit in table["kits"]:
        for material in kit["materials"]:
            texts += [task.replace("{}", material.strip()) for task in kit["tasks"]]
    return texts
