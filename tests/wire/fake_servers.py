"""A fake server on a thread of its own, for as long as a test needs it."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from paceline.forecast.step_cost import StepCost
from paceline.live.fake_server import FakeServer, Running, serve
from paceline.live.fake_server_faults import NO_FAULTS, Faults
from paceline.simulate.replica import Drafting, Rejection, Replica
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.method import Method, Speculation

__all__ = ["ROOMY", "drafting", "plain", "served", "speculative", "step_cost"]

ROOMY = Replica(kv_blocks=10_000, block_tokens=16, max_requests=64, token_budget=2048)


def step_cost(step_s: float) -> StepCost:
    """Every step takes that long, whatever is in it."""
    return StepCost(token_s=np.full(2049, step_s), kv_token_s=0.0, prefill_attention_s=0.0, draft_s=np.zeros(65))


def drafting(**survival: tuple[float, ...]) -> Drafting:
    """EAGLE-3 drafts with that survival by segment."""
    (length,) = {len(each) for each in survival.values()}
    return Drafting(
        speculation=Speculation(method=Method.EAGLE3, draft_tokens=length, tree=None),
        acceptance={name: Acceptance(survival=each, coverage=1.0) for name, each in survival.items()},
        spread=0.0,
        rejection=Rejection.IN_PASS,
    )


def plain(step_s: float, *, record: Path | None = None, faults: Faults = NO_FAULTS) -> FakeServer:
    """A server without drafts. Chance follows requests' seeds from 1 on, as `bench` sends them by default."""
    return FakeServer(
        model="fake",
        replica=ROOMY,
        step_cost=step_cost(step_s),
        drafting=None,
        seed=1,
        first_seed=1,
        speed=1.0,
        grace_s=0.0,
        default_output_tokens=16,
        faults=faults,
        record=record,
    )


def speculative(step_s: float, drafts: Drafting, *, record: Path | None = None, faults: Faults = NO_FAULTS) -> FakeServer:
    """The same with drafts."""
    return replace(plain(step_s, record=record, faults=faults), drafting=drafts)


@contextmanager
def served(settings: FakeServer, *, port: int = 0) -> Iterator[Running]:
    """The server, listening on a port of this machine: a free one, or that one."""
    up, down = threading.Event(), threading.Event()
    found: list[Running] = []

    async def run() -> None:
        running = await serve(settings, port=port)
        found.append(running)
        up.set()
        while not down.is_set():
            await asyncio.sleep(0.02)
        await running.stop()

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert up.wait(120)
    try:
        yield found[0]
    finally:
        down.set()
        thread.join(30)
