"""Chats as the target's own tokens: its tokenizer and its chat template, as a server would apply them.

A server renders a prompt with the template of the model's folder, default system prompt included, so a head must be trained behind the same
one. The library runs templates in a sandbox, and here they end: after MOST_LINES lines, or as soon as they want more memory than
MOST_BYTES, a template is refused. A tokenizer's own code is never run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from paceline.engine.bounded_run import RanTooLongError, run_bounded
from paceline.errors import BadInputError, is_count, printable
from paceline.files.modelconfig import read_model_config
from paceline.files.modeldir import need_readable_folder
from paceline.traffic.exchange import Message

__all__ = ["Chat", "load_chat"]

MOST_LINES = 2_000_000  # a long chat takes some ten thousand, and the template's first reading as many
MOST_BYTES = 1 << 30


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
            render = partial(self.library.apply_chat_template, turns, add_generation_prompt=True, tokenize=False)
            text = run_bounded(render, most_lines=MOST_LINES, most_bytes=MOST_BYTES)
        except RanTooLongError as fault:
            raise BadInputError(f"the target's chat template does not come to an end: {fault}; give the target's own") from None
        except Exception as fault:  # templates raise whatever they like
            raise BadInputError(
                f"the target's chat template cannot render a prompt: {printable(str(fault) or type(fault).__name__)}; give the target's own"
            ) from None
        return self.answer(text)

    def answer(self, text: str) -> tuple[int, ...]:
        """A text's tokens, nothing put around them: an answer's without what ends it."""
        return tuple(int(each) for each in self.library.encode(text, add_special_tokens=False))

    def text(self, ids: Sequence[int]) -> str:
        """The text of an answer's tokens, what ends it left out."""
        return str(self.library.decode([each for each in ids if each not in self.end_ids]))


def load_chat(folder: Path) -> Chat:
    """The tokenizer in the target's folder.

    Raises:
        BadInputError: there is none, or nothing says which token ends an answer.

    """
    need_readable_folder(folder)
    try:
        library = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as fault:  # the library raises whatever a tokenizer's file makes it trip over
        raise BadInputError(f"{printable(str(folder))} has no tokenizer that can be loaded: {printable(str(fault))}") from None
    end = _end_ids(folder) or _as_set(library.eos_token_id)
    if not end:
        raise BadInputError(f"nothing in {printable(str(folder))} says which token ends an answer; state eos_token_id in its config.json")
    return Chat(library=library, end_ids=end)


def _end_ids(folder: Path) -> frozenset[int]:
    """What the folder's generation_config.json, else its config.json, names; empty where neither does."""
    file = folder / "generation_config.json"
    stated = read_model_config(file) if file.exists() else {}
    return _as_set(stated.get("eos_token_id")) or _as_set(read_model_config(folder).get("eos_token_id"))


def _as_set(ids: object) -> frozenset[int]:
    """One token, several, or none.

    Raises:
        BadInputError: something else.

    """
    several = ids if isinstance(ids, list) else [] if ids is None else [ids]
    strange = next((each for each in several if not is_count(each, least=0)), None)
    if strange is not None:
        raise BadInputError(f"eos_token_id is {printable(strange)}, which is no token; give the model's own generation_config.json")
    return frozenset(several)
