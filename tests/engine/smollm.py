"""A real small model, what users ask it, and drafts for it; each is made once for all the tests that use it."""

import json
from functools import cache
from pathlib import Path

import torch

from paceline.data.tables import demo_traffic_lines
from paceline.engine.chat import load_chat
from paceline.engine.drafters.drafter import Drafter
from paceline.engine.generate import Generation, generate
from paceline.engine.sampling import GREEDY
from paceline.engine.speculative_sampling import Generated
from paceline.engine.target import Target, load_target
from paceline.traffic.exchange import Message
from tests.engine.tiny import CPU

__all__ = ["MARGIN", "asked", "model", "written"]

MARGIN = 1e-3  # float32 sums in another order move logits of this size by 1e-4 at most
SHORT_CHARACTERS = 100  # reading long questions would take most of the time and prove nothing more
ORDERS = Path(__file__).parents[1] / "data" / "orders" / "test.jsonl"


@cache
def model(folder: Path, noise: float) -> Target:
    """The model; with noise in its embeddings, one that agrees with it now and then."""
    target = load_target(folder, dtype=torch.float32, device=CPU)
    if noise:
        spread = float(target.embedding.std())
        target.embedding += noise * spread * torch.randn(target.embedding.shape, generator=torch.Generator().manual_seed(1))
    return target


@cache
def asked(folder: Path, count: int) -> list[tuple[int, ...]]:
    """So many prompts: orders to be extracted, and as many short questions of the demo traffic's users."""
    orders = [_question(line) for line in ORDERS.read_text(encoding="utf-8").splitlines()]
    questions = [each for each in map(_question, demo_traffic_lines()) if len(each) < SHORT_CHARACTERS]
    chat = load_chat(folder)
    return [chat.prompt([Message("user", each)]) for each in (*orders[: count // 2], *questions[: count - count // 2])]


def _question(line: str | bytes) -> str:
    return str(json.loads(line)["messages"][0]["content"])


def written(folder: Path, drafter: Drafter | None, prompts: list[tuple[int, ...]], *, tokens: int) -> list[Generation]:
    """The model's greedy texts behind all prompts, side by side."""
    made = [Generation(each) for each in prompts]
    chances = [Generated(1)] * len(made)
    stops = load_chat(folder).end_ids
    for _ in generate(model(folder, 0.0), drafter, made, sampling=GREEDY, most_tokens=tokens, stops=stops, chances=chances):
        pass
    return made
