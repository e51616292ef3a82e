"""The bytes of an answer: words, and the JSON of OpenAI's chunks and whole answers as vLLM 0.32 writes them.

A token is one word with a space before it. Which words come depends on the prompt and on the place alone, so that a server with drafts and
one without give the same text.
"""

import json
from typing import Any

from paceline.live.fake_server_asking import Asking
from paceline.simulate.online import Left

__all__ = ["Answer", "error_body", "speculative_metrics"]

TEXT = """the rider draws near wind and holds a line through rain while others wait for their turn at the front of road
where light falls over stone walls before noon then every wheel hums along past farms with open gates until
someone calls out that hill begins again so they climb in small steps under trees which lean across grass as
water runs below old bridge toward town whose bells ring twice when bread comes warm from oven after long day"""
WORDS = tuple(TEXT.split())
WORD = 0xFFFFFFFF
FINGERPRINT = "paceline-fake"


def _word(seed: int, place: int) -> int:
    """Which word stands there."""
    mixed = ((seed + place * 0x9E3779B1) & WORD) * 0x85EBCA6B & WORD
    return (mixed >> 13 ^ mixed) % len(WORDS)


def error_body(status: int, message: str) -> bytes:
    """An error as OpenAI and vLLM write one."""
    kind = "BadRequestError" if status < 500 else "InternalServerError"
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": status}}).encode()


def speculative_metrics(left: Left, steps: list[tuple[int, int]], *, draft_tokens: int) -> dict[str, Any] | None:
    """`metrics.speculative_decoding` as vLLM 0.29 and later give it for one request; `steps` are (drafted, accepted) of its drafted steps.

    None without drafts.
    """
    if left.acceptance is None:
        return None
    counts = left.acceptance
    at_least = (counts.drafts, *(counts.accepted_per_position or ()), 0)
    return {
        "mean_acceptance_length": 1 + counts.accepted_tokens / counts.drafts if counts.drafts else 1.0,
        "draft_acceptance_rate": counts.accepted_tokens / counts.drafted_tokens if counts.drafted_tokens else 0.0,
        "acceptance_histogram": [at_least[i] - at_least[i + 1] for i in range(draft_tokens + 1)],
        "num_spec_steps": counts.drafts,
        "num_accepted_draft_tokens": counts.accepted_tokens,
        "num_draft_tokens": counts.drafted_tokens,
        "num_spec_tokens": draft_tokens,
        "per_step_accepted": [accepted for _, accepted in steps],
        "per_step_drafted": [drafted for drafted, _ in steps],
    }


class Answer:
    """What one request is sent, piece by piece; `wrong_from` is the token from which on the text is not the right one."""

    def __init__(self, asking: Asking, *, id_: str, model: str, created_s: int, wrong_from: int | None) -> None:
        self.asking = asking
        self.given_tokens = 0
        self._wrong_from = wrong_from
        self._id = ("chatcmpl-" if asking.api == "chat" else "cmpl-") + id_
        self._model, self._created_s = model, created_s
        kind = "chat.completion.chunk" if asking.api == "chat" else "text_completion"
        named = f'"id":{json.dumps(self._id)},"object":"{kind}","created":{created_s},"model":{json.dumps(model)}'
        self._head = f'data: {{{named},"choices":[{{"index":0,'
        self._usage_head = f'data: {{{named},"choices":[],'
        self._ids: list[int] = []

    def _take(self, tokens: int) -> list[str]:
        """The next words, each as it stands in the text."""
        first, seed = self.given_tokens, self.asking.text_seed
        self.given_tokens = first + tokens
        wrong_from = self.asking.output_tokens if self._wrong_from is None else self._wrong_from
        ids = [_word(seed ^ (0x5BD1E995 if place >= wrong_from else 0), place) for place in range(first, first + tokens)]
        self._ids = ids
        return [WORDS[each] if first + i == 0 else f" {WORDS[each]}" for i, each in enumerate(ids)]

    def first(self) -> bytes:
        """The event before a chat's first token: a role and no text."""
        if self.asking.api != "chat":
            return b""
        usage = self._usage(0) if self.asking.continuous_usage else ""
        event = f'{self._head}"delta":{{"role":"assistant","content":""}},"logprobs":null,"finish_reason":null}}]{usage}}}\n\n'
        return event.encode()

    def chunk(self, tokens: int, *, last: bool) -> bytes:
        """The event with the next tokens."""
        words = self._take(tokens)
        text = "".join(words)
        content = f'"delta":{{"content":"{text}"}}' if self.asking.api == "chat" else f'"text":"{text}"'
        reason = f'"{self.asking.finish_reason}","stop_reason":null' if last else "null"
        logprobs = json.dumps(self._logprobs(words)) if self.asking.logprobs else "null"
        ids = f',"token_ids":{json.dumps(self._ids)}' if self.asking.token_ids else ""
        usage = self._usage(self.given_tokens) if self.asking.continuous_usage else ""
        return f'{self._head}{content},"logprobs":{logprobs},"finish_reason":{reason}{ids}}}]{usage}}}\n\n'.encode()

    def end(self, metrics: dict[str, Any] | None) -> bytes:
        """What comes after the last token: the usage, where it was asked for, and the end of the stream."""
        if not self.asking.include_usage:
            return b"data: [DONE]\n\n"
        told = f',"metrics":{json.dumps(metrics)}' if metrics is not None else ""
        usage = self._usage(self.given_tokens).removeprefix(",")
        return f'{self._usage_head}{usage},"system_fingerprint":"{FINGERPRINT}"{told}}}\n\ndata: [DONE]\n\n'.encode()

    def whole(self, metrics: dict[str, Any] | None) -> bytes:
        """The answer in one piece, for who did not ask for a stream."""
        words = self._take(self.asking.output_tokens)
        text, asking = "".join(words), self.asking
        choice: dict[str, Any] = {"index": 0}
        choice |= {"message": {"role": "assistant", "content": text}} if asking.api == "chat" else {"text": text}
        choice |= {"logprobs": self._logprobs(words) if asking.logprobs else None, "finish_reason": asking.finish_reason}
        if asking.token_ids:
            choice["token_ids"] = self._ids
        answer = {
            "id": self._id,
            "object": "chat.completion" if asking.api == "chat" else "text_completion",
            "created": self._created_s,
            "model": self._model,
            "choices": [choice],
            "usage": {
                "prompt_tokens": asking.prompt_tokens,
                "total_tokens": asking.prompt_tokens + self.given_tokens,
                "completion_tokens": self.given_tokens,
            },
            "system_fingerprint": FINGERPRINT,
            "metrics": metrics,
        }
        return json.dumps(answer).encode()

    def _usage(self, completion_tokens: int) -> str:
        prompt_tokens = self.asking.prompt_tokens
        total = prompt_tokens + completion_tokens
        return f',"usage":{{"prompt_tokens":{prompt_tokens},"total_tokens":{total},"completion_tokens":{completion_tokens}}}'

    def _logprobs(self, words: list[str]) -> dict[str, Any]:
        """One entry per token, in the form of the API; the probabilities are made up."""
        if self.asking.api == "chat":
            return {"content": [{"token": each, "logprob": -0.1, "bytes": list(each.encode()), "top_logprobs": []} for each in words]}
        return {"tokens": words, "token_logprobs": [-0.1] * len(words), "top_logprobs": None, "text_offset": [0] * len(words)}
