"""One exchange of a chat log, as text and as tokens.

An exchange is one answer of the target with everything it had before it. A multi-turn conversation is several exchanges.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Exchange", "Message", "TokenStream"]

TokenArray = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Message:
    """One message: who speaks (`system`, `user`, `assistant`, …) and what."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """One answer and what came before it.

    Attributes:
        id: unique within the log.
        segment: the kind of traffic.
        messages: what the target saw, oldest first; a bare prompt is one user message.
        answer: the target's text, None where the log has prompts only.
        finish_reason: "stop" or "length", None where the log does not say (taken for "stop").
        prompt_token_ids: the prompt's tokens where the log has them, else None.
        output_token_ids: the answer's tokens where the log has them, else None.
        arrived_at_s: seconds from the log's first request, None where the log has no times.

    """

    id: str
    segment: str
    messages: tuple[Message, ...]
    answer: str | None
    finish_reason: str | None
    prompt_token_ids: tuple[int, ...] | None
    output_token_ids: tuple[int, ...] | None
    arrived_at_s: float | None


@dataclass(frozen=True, slots=True, eq=False)
class TokenStream:
    """An exchange as tokens: `prompt` [prompt tokens] and `output` [output tokens], int32.

    `stopped` says that the target ended the output itself; where the log lacks the end-of-sequence token, one that no draft can match
    (END_OF_SEQUENCE) stands last in `output`.
    """

    id: str
    segment: str
    prompt: TokenArray  # [prompt tokens]
    output: TokenArray  # [output tokens]
    stopped: bool


END_OF_SEQUENCE = -1
