"""Exchanges as tokens: with the log's own token ids, with a `tokenizer.json`, or with bytes where there is neither.

Two assumptions are made here, and whoever shows a result names them:

- CHAT_TEMPLATE: the prompt is rendered as ChatML, because a log does not say which chat template the target's server applied. With the
  log's own token ids nothing is rendered.
- the answer is encoded on its own, as the target wrote it token by token behind the prompt and never across that border.

A fallback to bytes measures repetition in *bytes*: acceptance in bytes is not acceptance in tokens.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.errors import BadInputError, NoEvidenceError, printable
from paceline.files.bounded import read_bounded
from paceline.traffic.exchange import END_OF_SEQUENCE, Exchange, Message, TokenStream

__all__ = ["CHAT_TEMPLATE", "Tokenizer", "has_token_ids", "load_tokenizer", "prompt_tokens", "render", "to_stream"]

CHAT_TEMPLATE = "ChatML (assumed: the log does not say which chat template the target's server applied)"
FALLBACK_NAME = "bytes (fallback: no tokenizer.json was given, so every UTF-8 byte counts as a token)"
TOKENIZER_FILE = "tokenizer.json"
MOST_BYTES = 256 << 20

TokenArray = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Text to token ids; `name` says with what, for provenance. `is_fallback` says that tokens are bytes."""

    name: str
    is_fallback: bool
    library: Any  # a tokenizers.Tokenizer, None for bytes

    def encode(self, text: str) -> TokenArray:
        """The text's token ids, shape [tokens], without the special tokens a tokenizer may put around a text."""
        if self.library is None:
            return np.frombuffer(text.encode("utf-8"), dtype=np.uint8).astype(np.int32)
        try:
            return np.array(self.library.encode(text, add_special_tokens=False).ids, dtype=np.int32)
        except Exception as fault:  # the library raises bare Exception for a text it cannot encode; numpy OverflowError for an id
            raise BadInputError(f"the tokenizer {self.name} cannot encode a text: {printable(str(fault))}; give the target's own") from None


def load_tokenizer(path: Path | None) -> Tokenizer:
    """The tokenizer in a `tokenizer.json` (or in a folder that has one); bytes where `path` is None.

    Raises:
        BadInputError: there is no such file, or it is no tokenizer.

    """
    if path is None:
        return Tokenizer(name=FALLBACK_NAME, is_fallback=True, library=None)
    file = path / TOKENIZER_FILE if path.is_dir() else path
    content = read_bounded(file, what="the tokenizer", most_bytes=MOST_BYTES, remedy=f"give a {TOKENIZER_FILE}")
    name = f"{file.name} sha256:{hashlib.sha256(content).hexdigest()}"
    return Tokenizer(name=name, is_fallback=False, library=_loaded(file, content))


def _loaded(file: Path, content: bytes) -> Any:
    from tokenizers import Tokenizer as Library

    try:
        text = content.decode("utf-8")
        library = Library.from_str(text)
    except Exception as fault:  # the library raises bare Exception for what it cannot build
        raise BadInputError(
            f"{printable(str(file))} is no tokenizer we can load ({printable(str(fault))}); give the target's {TOKENIZER_FILE}"
        ) from None
    library.no_truncation()  # a tokenizer.json may carry the settings of its training, which would cut long prompts unsaid
    library.no_padding()
    return library


def render(messages: Iterable[Message]) -> str:
    """The prompt as the target saw it under CHAT_TEMPLATE: every message, then the opening of the assistant's turn."""
    turns = "".join(f"<|im_start|>{each.role}\n{each.content}<|im_end|>\n" for each in messages)
    return f"{turns}<|im_start|>assistant\n"


def has_token_ids(exchange: Exchange) -> bool:
    """Whether the log has the tokens of both prompt and answer, so that no tokenizer is asked."""
    return exchange.prompt_token_ids is not None and exchange.output_token_ids is not None


def prompt_tokens(exchange: Exchange, tokenizer: Tokenizer) -> TokenArray:
    """The prompt's token ids, shape [prompt tokens]: the log's own where it has them, else those of the rendered messages."""
    if exchange.prompt_token_ids is not None:
        return np.array(exchange.prompt_token_ids, dtype=np.int32)
    return tokenizer.encode(render(exchange.messages))


def to_stream(exchange: Exchange, tokenizer: Tokenizer) -> TokenStream:
    """The exchange as tokens: the log's own where it has both prompt's and answer's, else both from the tokenizer.

    An answer that stopped by itself ends in END_OF_SEQUENCE where it was tokenised from text; the log's own ids hold the real token.

    Raises:
        NoEvidenceError: the exchange has no answer, or one without a token.

    """
    if exchange.answer is None:
        raise NoEvidenceError(
            f"exchange {printable(exchange.id)} has no answer: acceptance is not measured on prompts alone; log answers too"
        )
    stopped = exchange.finish_reason != "length"
    if exchange.prompt_token_ids is not None and exchange.output_token_ids is not None:
        prompt = np.array(exchange.prompt_token_ids, dtype=np.int32)
        output = np.array(exchange.output_token_ids, dtype=np.int32)
        return TokenStream(id=exchange.id, segment=exchange.segment, prompt=prompt, output=output, stopped=stopped)
    answer = tokenizer.encode(exchange.answer)
    if answer.size == 0:
        raise NoEvidenceError(f"exchange {printable(exchange.id)}: its answer has no tokens, so nothing could be drafted; leave it out")
    output = np.append(answer, np.int32(END_OF_SEQUENCE)) if stopped else answer
    prompt = tokenizer.encode(render(exchange.messages))
    return TokenStream(id=exchange.id, segment=exchange.segment, prompt=prompt, output=output, stopped=stopped)
