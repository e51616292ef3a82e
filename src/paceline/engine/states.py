"""What the target computed on a log, kept on disk: every conversation's tokens, and per token the hidden states that a draft head reads.

A folder of shards, each written whole or not at all, so that work goes on where it was stopped. A shard is a safetensors file and is mapped
into memory, never read as a whole:

    tokens   int32 [tokens]            the conversations behind one another, prompt and answer
    sizes    int32 [conversations, 3]  prompt tokens, all tokens, and 1 where the target ended the answer itself
    order    int32 [conversations]     which exchange of the log each is
    aux      [rows, layers·hidden]      the residual stream after each auxiliary layer, side by side
    features [rows, hidden]            the last layer's output behind the final norm: the head's matrix makes logits of it

A conversation of n tokens has n − 1 rows: row p stands for what the target knew once it had read token p, and token p + 1 is what followed.
The last token was read by nobody.

Cost, in bf16: 2·(layers + 1)·hidden bytes per token of the log: 4.6 kB for a hidden size of 576, 65 kB for 8192.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from paceline.errors import BadInputError, printable
from paceline.files.whole import make_folder, write_text

__all__ = ["Conversation", "StatesFolder", "open_states", "save_whole"]

SCHEMA = "paceline.target-states/1"
SETTINGS = "states.json"


@dataclass(frozen=True, slots=True, eq=False)
class Conversation:
    """One exchange as the target saw it.

    Attributes:
        number: which exchange of the log it is, from 0 on.
        tokens: prompt and answer [tokens], int64.
        prompt_tokens: how many of them are the prompt.
        stopped: whether the target ended the answer itself, its last token then being the end of the sequence.
        aux: the residual stream after the auxiliary layers, side by side [tokens − 1, layers · hidden].
        features: what the target's output head reads [tokens − 1, hidden].

    """

    number: int
    tokens: Tensor
    prompt_tokens: int
    stopped: bool
    aux: Tensor
    features: Tensor

    @property
    def answer_tokens(self) -> int:
        """Tokens of the answer, the end of the sequence among them where the target ended it."""
        return int(self.tokens.shape[0]) - self.prompt_tokens


class StatesFolder:
    """The shards of one log under one target; `settings` say what they were made from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has(self, shard: int) -> bool:
        """Whether a shard is there, and so is whole."""
        return self._file(shard).is_file()

    def write(self, shard: int, conversations: Sequence[Conversation]) -> None:
        """Keep the conversations as one shard.

        Raises:
            BadInputError: the folder cannot be written to.

        """
        sizes = [(each.prompt_tokens, each.tokens.shape[0], int(each.stopped)) for each in conversations]
        tensors = {
            "tokens": torch.cat([each.tokens for each in conversations]).to(torch.int32),
            "sizes": torch.tensor(sizes, dtype=torch.int32),
            "order": torch.tensor([each.number for each in conversations], dtype=torch.int32),
            "aux": torch.cat([each.aux for each in conversations]),
            "features": torch.cat([each.features for each in conversations]),
        }
        save_whole(tensors, self._file(shard), metadata={"schema": SCHEMA})

    def read(self, shard: int) -> list[Conversation]:
        """A shard's conversations, their states mapped into memory.

        Raises:
            BadInputError: the shard is not there, or is damaged.

        """
        file = self._file(shard)
        try:
            with safe_open(file, framework="pt") as opened:
                held = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - not a dictionary
        except (OSError, SafetensorError) as fault:
            raise BadInputError(f"{printable(file.name)} cannot be read: {printable(str(fault))}; delete it and run again") from None
        return list(_conversations(held))

    def _file(self, shard: int) -> Path:
        return self.folder / f"states-{shard:05d}.safetensors"


def _conversations(held: Mapping[str, Tensor]) -> Iterator[Conversation]:
    token, row = 0, 0
    tokens = held["tokens"].to(torch.int64)
    for number, (prompt_tokens, size, stopped) in zip(held["order"].tolist(), held["sizes"].tolist(), strict=True):
        rows = slice(row, row + size - 1)
        yield Conversation(
            number=number,
            tokens=tokens[token : token + size],
            prompt_tokens=prompt_tokens,
            stopped=bool(stopped),
            aux=held["aux"][rows],
            features=held["features"][rows],
        )
        token, row = token + size, row + size - 1


def open_states(folder: Path, settings: Mapping[str, Any]) -> StatesFolder:
    """The folder for the shards of `settings` (target, log, layers, longest answer, …), made if it is not there.

    Raises:
        BadInputError: the folder holds shards of other settings; the message names the first that differs.

    """
    make_folder(folder)
    file = folder / SETTINGS
    document = {"schema": SCHEMA, **settings}
    if not file.exists():
        write_text(file, json.dumps(document, indent=2, sort_keys=True) + "\n")
        return StatesFolder(folder)
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as fault:
        raise BadInputError(f"{printable(str(file))} cannot be read: {printable(str(fault))}; choose another folder") from None
    for name, value in document.items():
        if found.get(name) != value:
            raise BadInputError(
                f"{printable(str(folder))} holds hidden states of another {name} ({printable(found.get(name))}, not {printable(value)}); "
                "choose another folder, or delete this one"
            )
    return StatesFolder(folder)


def save_whole(tensors: Mapping[str, Tensor], file: Path, *, metadata: Mapping[str, str]) -> None:
    """Write a safetensors file whole or not at all.

    Raises:
        BadInputError: the place cannot be written to.

    """
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        save_file({name: each.contiguous() for name, each in tensors.items()}, beside, metadata=dict(metadata))
        with beside.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(beside, file)
    except (OSError, SafetensorError) as fault:
        beside.unlink(missing_ok=True)
        raise BadInputError(f"cannot write {printable(file.name)}: {printable(str(fault))}; choose another place") from None
