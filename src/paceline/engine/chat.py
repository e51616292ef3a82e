"""Chats as the target's own tokens: its tokenizer and its chat template, as a server would apply them.

A server renders a prompt with the template of the model's folder, default system prompt included, so a head must be trained behind the same
one. The library runs templates in a sandbox; a tokenizer's own code is never run.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from paceline.errors import BadInputError, printable
from paceline.files.modelconfig import read_model_config
from paceline.traffic.exchange import Message

__all__ = ["Chat", "load_chat"]


@dataclass(frozen=True, slots=True, eq=False)
class Chat:
    """A target's tokenizer with its template; `end_ids` are the tokens that end an answer."""

    library: Any
    end_ids: frozenset[int]

    def prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The prompt's tokens up to where the answer begins.

        Raises:
            BadInputError: the template refuses the messages, or there is none.

        """
        turns = [{"role": each.role, "content": each.content} for each in messages]
        try:
            ids = self.library.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
        except Exception as fault:  # templates raise whatever they like
            raise BadInputError(
                f"the target's chat template cannot render a prompt: {printable(str(fault))}; give the target's own"
            ) from None
        return tuple(int(each) for each in ids)

    def answer(self, text: str) -> tuple[int, ...]:
        """An answer's tokens, without what ends it."""
        return tuple(int(each) for each in self.library.encode(text, add_special_tokens=False))

    def text(self, ids: Sequence[int]) -> str:
        """The text of an answer's tokens, what ends it left out."""
        return str(self.library.decode([each for each in ids if each not in self.end_ids]))


def load_chat(folder: Path) -> Chat:
    """The tokenizer in the target's folder.

    Raises:
        BadInputError: there is none, or nothing says which token ends an answer.

    """
    try:
        library = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError, ImportError) as fault:
        raise BadInputError(f"{printable(str(folder))} has no tokenizer that can be loaded: {printable(str(fault))}") from None
    end = _end_ids(folder) or _as_set(library.eos_token_id)
    if not end:
        raise BadInputError(f"nothing in {printable(str(folder))} says which token ends an answer; state eos_token_id in its config.json")
    return Chat(library=library, end_ids=end)


def _end_ids(folder: Path) -> frozenset[int]:
    """What the folder's generation_config.json, else its config.json, names; empty where neither does."""
    file = folder / "generation_config.json"
    try:
        stated = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except (OSError, ValueError) as fault:
        raise BadInputError(f"{printable(str(file))} cannot be read: {printable(str(fault))}") from None
    return _as_set(stated.get("eos_token_id")) or _as_set(read_model_config(folder).get("eos_token_id"))


def _as_set(ids: object) -> frozenset[int]:
    return frozenset(int(each) for each in ids) if isinstance(ids, list) else frozenset() if ids is None else frozenset({int(str(ids))})
