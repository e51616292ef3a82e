"""
What of the answers ships as demo traffic, and the two files it ships as.

Rules:

- An exchange is dropped when more than `LOOP_SHARE_LIMIT` of its output tokens lie in loops of `LOOP_TOKENS`-grams, as
  `paceline.traffic.loops` defines them.
- Of what is left, the largest number ships in which `CHAT_SHARE` is chat and the rest code. Both segments are cut in the order of
  their prompts' SHA-256, which favours no kind of prompt, and the file stands in that order.
- Neither file holds a clock, a path or a machine's name: equal answers give equal bytes.
"""

import gzip
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.traffic.loops import loop_share

Exchange = dict[str, Any]

DATA_DIR = Path(__file__).parents[2] / "src" / "paceline" / "data"
MAX_NEW_TOKENS = 256
LOOP_TOKENS = 8
LOOP_SHARE_LIMIT = 0.10
CHAT_SHARE = 0.70

PROVENANCE = '''\
# Where demo_traffic.jsonl.gz comes from. Written by scripts/demo_traffic/generate.py.
schema_version = 1
notice = """
Acceptance measured on this traffic is an illustration from SmolLM2-135M-Instruct's text and not a forecast for another model."""

[prompts]
author = "the paceline authors"
licence = "Apache-2.0"
texts = "scripts/demo_traffic/prompts.toml"
note = """
Many prompts share a passage, a draft or a piece of code with others, so exchanges are not independent draws. Tasks on which a first
look showed mostly loops were left out or ask for shorter answers: the mix of tasks is not that of any service. Of the tasks left
out 20 prompts had been asked; 19 of the answers looped, and none is in the counts below."""

[model]
name = "SmolLM2-135M-Instruct"
licence = "Apache-2.0"
package = "{package}"
file = "SmolLM2-135M-Instruct.Q4_1.gguf"
file_sha256 = "{gguf_sha256}"
weights = "Q4_1, dequantised to float32"
torch = "{torch}"
transformers = "{transformers}"

[sampling]
temperature = 0
repetition_penalty = 1.0
max_new_tokens = {max_new_tokens}
system_turn = "the chat template's default; in prompt_token_ids, not in messages"
note = "A processor that rounds otherwise may choose another token at a near tie."

[filter]
loop_tokens = {loop_tokens}
loop_share_limit = {loop_share_limit}
loop_rule = """
An exchange is dropped when more than loop_share_limit of its output tokens lie in an n-gram of loop_tokens tokens that already
occurred earlier in the same output."""
trim_rule = "The largest number of exchanges with 70 % chat; in each segment, those whose prompts have the lowest SHA-256."
{counts}
[regenerate]
commands = [
  "scripts/install_engine",
  "PYTHONPATH=src ENGINE_PYTHON scripts/demo_traffic/generate.py --model MODEL_DIR --work WORK_FILE",
]
note = "scripts/install_engine prints ENGINE_PYTHON and MODEL_DIR last; WORK_FILE keeps finished answers between runs."
'''

COUNTS = """
[counts.{name}]
asked = {asked}
dropped_as_loops = {dropped}
dropped_as_loops_share = {share:.4f}
trimmed = {trimmed}
kept = {kept}
stopped = {stopped}
prompt_tokens = {prompt_tokens}
output_tokens = {output_tokens}
"""


@dataclass(frozen=True, slots=True)
class Engine:
    """What answered: the model's package, the digest of its file, and the versions of the libraries that ran it."""

    package: str
    gguf_sha256: str
    torch: str
    transformers: str


def ship(asked: Sequence[Exchange], *, engine: Engine, folder: Path) -> None:
    """Write the data file and its provenance to the folder."""
    sound = [exchange for exchange in asked if not loops(exchange)]
    kept = trim(sound)
    (folder / "demo_traffic.jsonl.gz").write_bytes(pack(kept))
    counts = "".join(count_table(name, asked=asked, sound=sound, kept=kept) for name in ("all", "chat", "code"))
    provenance = PROVENANCE.format(
        package=engine.package,
        gguf_sha256=engine.gguf_sha256,
        torch=engine.torch,
        transformers=engine.transformers,
        max_new_tokens=MAX_NEW_TOKENS,
        loop_tokens=LOOP_TOKENS,
        loop_share_limit=LOOP_SHARE_LIMIT,
        counts=counts,
    )
    (folder / "demo_traffic.toml").write_text(provenance, encoding="utf-8")


def loops(exchange: Exchange) -> bool:
    """Whether too much of the answer lies in loops for it to ship."""
    return loop_share(exchange["token_ids"], n=LOOP_TOKENS) > LOOP_SHARE_LIMIT


def trim(sound: Sequence[Exchange]) -> list[Exchange]:
    """The largest part of the exchanges that has the chat share, in the order of the prompts' digests."""
    ordered = sorted(sound, key=prompt_digest)
    chat, code = of_segment(ordered, "chat"), of_segment(ordered, "code")
    total = next(n for n in range(len(sound), -1, -1) if chat_part(n) <= len(chat) and n - chat_part(n) <= len(code))
    return sorted(chat[: chat_part(total)] + code[: total - chat_part(total)], key=prompt_digest)


def chat_part(total: int) -> int:
    """How many of so many exchanges are chat."""
    return round(total * CHAT_SHARE)


def of_segment(exchanges: Sequence[Exchange], name: str) -> list[Exchange]:
    """The exchanges of a segment; those of both for `all`."""
    return [exchange for exchange in exchanges if name in ("all", exchange["segment"])]


def prompt_digest(exchange: Exchange) -> str:
    """The SHA-256 of the prompt's text, in hex."""
    return hashlib.sha256(exchange["messages"][0]["content"].encode()).hexdigest()


def pack(exchanges: Sequence[Exchange]) -> bytes:
    """One JSON object a line, compressed without a time stamp."""
    lines = "".join(json.dumps(exchange, ensure_ascii=False, separators=(",", ":")) + "\n" for exchange in exchanges)
    return gzip.compress(lines.encode(), compresslevel=9, mtime=0)


def count_table(name: str, *, asked: Sequence[Exchange], sound: Sequence[Exchange], kept: Sequence[Exchange]) -> str:
    """The provenance's table of counts for one segment, or for `all`."""
    asked_of, sound_of, kept_of = (of_segment(exchanges, name) for exchanges in (asked, sound, kept))
    return COUNTS.format(
        name=name,
        asked=len(asked_of),
        dropped=len(asked_of) - len(sound_of),
        share=1 - len(sound_of) / len(asked_of),
        trimmed=len(sound_of) - len(kept_of),
        kept=len(kept_of),
        stopped=sum(exchange["finish_reason"] == "stop" for exchange in kept_of),
        prompt_tokens=sum(len(exchange["prompt_token_ids"]) for exchange in kept_of),
        output_tokens=sum(len(exchange["token_ids"]) for exchange in kept_of),
    )
