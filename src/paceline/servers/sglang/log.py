"""The decode lines of an SGLang server's log, and what may be concluded from them.

    [time DP0 TP0] Decode batch, #running-req: R, …, accept len: τ, accept rate: r, cuda graph: True, gen throughput (token/s): g, …

One line per rank and `--decode-log-interval` (40) decode iterations, each of which verifies one draft per running request. The lines carry
ratios only, so they are pooled with weights R: α and τ, never counts.

    τ      (accepted + verified) / verified, the target's own token included
    r      since 0.5.11 (τ − 1) / (w − 1); in 0.5.4 to 0.5.10 τ / w, never below 1 / w. w is the configured width, num_draft_tokens
    α      (τ − 1) / (w − 1) under both

Which of the two a log holds, and w, follow from the lines: one of the definitions has no whole w that gives all of them. τ of 0 means that
nothing was verified in that interval. Ranks other than TP 0 and PP 0 repeat the leader's lines.
Source: SGLang 0.4.6 to 0.5.23, the scheduler's decode statistics; SGLang issue 11948, pull request 11572.
"""

import re
from dataclasses import dataclass

from paceline.speculation.method import MOST_DRAFT_TOKENS, Method, Speculation, Tree

__all__ = ["CAP", "DecodeLine", "ServerArgs", "is_sglang_line", "read_line", "speculation_of"]

CAP = 48  # what SGLang sets max_running_requests to with speculation on, unless told
PREFIX = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?P<ranks>(?: [A-Z]{2,4}\d{1,5}){0,6})\] (?:INFO [\w./-]{1,80}:\d{1,6}: )?")
DECODE = re.compile(r"Decode batch[.,] #running-req: (\d{1,7}), ")
LENGTH = re.compile(r", accept len: (\d{1,4}(?:\.\d{1,6})?),")
RATE = re.compile(r", accept rate: (\d{1,3}(?:\.\d{1,6})?),")
THROUGHPUT = re.compile(r", gen throughput \(token/s\): (\d{1,12}(?:\.\d{1,6})?)(?:,|$)")
QUEUED = re.compile(r", #queue-req: (\d{1,7})(?:,|$)")
ARGS = re.compile(r"server_args=ServerArgs\(")
ARG = re.compile(
    r"\b(model_path|served_model_name|speculative_(?:algorithm|num_steps|eagle_topk|num_draft_tokens))=(?:'([^']{1,300})'|(\d{1,6})\b)"
)
LIMIT = re.compile(
    r"\b(max_running_requests|speculative_accept_threshold_(?:single|acc)|simulate_acc_len)=(\d{1,9}(?:\.\d{1,9})?)(?=[,)]|$)"
)
METHODS = {
    "EAGLE": Method.EAGLE,
    "EAGLE3": Method.EAGLE3,
    "NEXTN": Method.MTP,
    "STANDALONE": Method.DRAFT_MODEL,
    "NGRAM": Method.NGRAM,
}


@dataclass(frozen=True, slots=True)
class DecodeLine:
    """One interval of one rank; what the line does not print is None.

    Attributes:
        rank: the data-parallel rank, such as "DP0", empty where there is one.
        leads: whether the rank is TP 0 and PP 0, so that no other line repeats it.
        prefixed: whether SGLang's own prefix opens the line.
        running: requests running at its end.
        queued: requests that waited then.
        length: acceptance length τ; 0 where nothing was verified.
        rate: "accept rate" under whichever definition.
        generated_per_s: tokens generated per second since the line before.

    """

    rank: str
    leads: bool
    prefixed: bool
    running: int
    queued: int | None
    length: float | None
    rate: float | None
    generated_per_s: float | None


@dataclass(frozen=True, slots=True)
class ServerArgs:
    """What the server was started with; None where it is not set or not told."""

    model: str | None
    algorithm: str | None
    steps: int | None
    topk: int | None
    width: int | None
    limits: tuple[tuple[str, str], ...]  # what bears on a comparison: the batch's limit, thresholds below which drafts are let through


def is_sglang_line(line: str) -> bool:
    """Whether it is a decode line or the line of the server's arguments."""
    return read_line(line) is not None


def read_line(line: str) -> DecodeLine | ServerArgs | None:
    """What a line without colours says, None where it says nothing of note."""
    found = PREFIX.match(line)
    text = line[found.end() :] if found else line
    if ARGS.match(text) and found:
        return _args(text)
    decode = DECODE.match(text)
    if decode is None:
        return None
    ranks = found["ranks"].split() if found else []
    length, rate, generated = (_figure(pattern, text) for pattern in (LENGTH, RATE, THROUGHPUT))
    queued = QUEUED.search(text)
    return DecodeLine(
        rank=next((each for each in ranks if each.startswith("DP")), ""),
        leads=not any(each[:2] in ("TP", "PP") and int(each[2:]) for each in ranks),
        prefixed=found is not None,
        running=int(decode[1]),
        queued=None if queued is None else int(queued[1]),
        length=length,
        rate=rate,
        generated_per_s=generated,
    )


def _figure(pattern: re.Pattern[str], text: str) -> float | None:
    found = pattern.search(text)
    return float(found[1]) if found else None


def _args(text: str) -> ServerArgs:
    told = {found[1]: found[2] or found[3] for found in ARG.finditer(text)}
    numbers = (told.get(f"speculative_{name}", "") for name in ("num_steps", "eagle_topk", "num_draft_tokens"))
    steps, topk, width = (int(each) if each.isdecimal() else None for each in numbers)
    return ServerArgs(
        model=told.get("served_model_name", told.get("model_path")),
        algorithm=told.get("speculative_algorithm"),
        steps=steps,
        topk=topk,
        width=width,
        limits=tuple(sorted((found[1], found[2]) for found in LIMIT.finditer(text))),
    )


def speculation_of(args: ServerArgs) -> Speculation | None:
    """The method with its depth, and the tree where top-k is above 1; None where it is not told, or is none that could be."""
    method = METHODS.get(args.algorithm or "")
    depth = (args.width or 0) - 1 if method is Method.NGRAM else args.steps or 0
    if method is None or not 1 <= depth <= MOST_DRAFT_TOKENS:
        return None
    topk, nodes = args.topk or 1, (args.width or 0) - 1
    if method is Method.NGRAM or topk == 1:
        return Speculation(method=method, draft_tokens=depth, tree=None)
    if not 1 <= nodes <= topk + (depth - 1) * topk**2:
        return None
    return Speculation(method=method, draft_tokens=depth, tree=Tree(depth=depth, topk=topk, nodes=nodes))
