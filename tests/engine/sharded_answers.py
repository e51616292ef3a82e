"""What every process does that `torchrun` starts for the tests of sharded targets: answer with the parts, and say what it held."""

import gc
import json
import sys
from pathlib import Path

import torch

from paceline.cli.main import main
from paceline.engine.answers import Asked, Decoding, answer_all
from paceline.engine.peers import Peers, find_peers
from paceline.engine.sharded_target import load_sharded_target
from paceline.engine.states import Conversation, StatesFolder
from paceline.engine.target import Target
from tests.engine.tiny import CPU

__all__ = ["FAMILIES", "SHARDS", "Held", "answered"]

FAMILIES = ("gpt-neox", "llama", "qwen2")
# The first process gets the first and the third shard, so that it has passes to run when the second has none left.
SHARDS = [
    [Asked(0, (1, 3, 2), None, stopped=False), Asked(1, (4, 5), None, stopped=False)],
    [Asked(2, (6, 1, 1, 3), None, stopped=False)],
    [Asked(3, (2, 2), (5, 4, 3, 1), stopped=True), Asked(4, (5,), None, stopped=False), Asked(5, (3, 6, 4), None, stopped=False)],
]


class Held:
    """What this process has come to hold in tensors since this was made: storages, each counted once. Those of before are kept alive."""

    def __init__(self) -> None:
        self._before = _storages()

    @property
    def new_bytes(self) -> int:
        """In bytes."""
        return sum(each.nbytes() for name, each in _storages().items() if name not in self._before)


def _storages() -> dict[int, torch.UntypedStorage]:
    gc.collect()
    found = [each.untyped_storage() for each in gc.get_objects() if type(each) in (torch.Tensor, torch.nn.Parameter)]
    return {each._cdata: each for each in found}  # only this says whether two are one


def answered(target: Target, folder: Path, peers: Peers) -> list[Conversation]:
    """What this process answers of the shards, kept in `folder`."""
    folder.mkdir(exist_ok=True)
    states = StatesFolder(folder)
    decoding = Decoding(hidden_layers=(0, 2, 4), end_ids=frozenset(), max_tokens=9, rows=2, kept=torch.float64)
    answer_all(target, SHARDS, states, decoding, peers=peers, progress=lambda _: None)
    return [each for number in range(len(SHARDS)) if states.has(number) for each in states.read(number)]


def run(folder: Path, words: list[str]) -> int:
    """Answer with every family's model, then train a head by `words`."""
    peers = find_peers()
    held = {}
    for family in FAMILIES:
        own = Held()
        target = load_sharded_target(folder / family, dtype=torch.float64, device=CPU, peers=peers)
        loaded = own.new_bytes
        answered(target, folder / f"{family}-states", peers)
        target.help_others()
        held[family] = [loaded, own.new_bytes]
        del target
    (folder / f"held-{peers.rank}.json").write_text(json.dumps(held))
    return main(words)


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.argv[2:]))
