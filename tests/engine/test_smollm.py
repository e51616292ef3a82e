"""A real small model: greedy text is the same with every drafter, and the command says what became of each token."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from paceline.cli.main import main
from paceline.engine.drafters.draft_model import ModelDrafter
from paceline.engine.drafters.drafter import Drafter
from paceline.engine.drafters.eagle import EagleDrafter
from paceline.engine.drafters.lookup import NgramDrafter, SuffixDrafter
from paceline.engine.eagle3 import Eagle3Head, LoadedEagle3, eagle3_config
from paceline.engine.generate import Generation, acceptance_of
from paceline.engine.rows import Row
from paceline.engine.target import Target
from paceline.files.modelconfig import read_model_config
from paceline.replay.ngram import NgramRule
from paceline.replay.suffix import SuffixRule
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Tree
from tests.engine.smollm import MARGIN, asked, model, written

PROMPTS, TOKENS = 10, 12


@cache
def plain(folder: Path) -> list[Generation]:
    """All texts without drafts."""
    return written(folder, None, asked(folder, PROMPTS), tokens=TOKENS)


def random_head(folder: Path, target: Target) -> LoadedEagle3:
    """An EAGLE-3 head that knows nothing: nearly all it drafts is refused."""
    config = {**read_model_config(folder), "num_hidden_layers": 1, "draft_vocab_size": 4096}
    torch.manual_seed(1)
    return LoadedEagle3(
        Eagle3Head(eagle3_config(config, target_layers=target.layers)).eval().requires_grad_(requires_grad=False), target.embedding
    )


DRAFTERS: dict[str, Callable[[Path, Target], Drafter]] = {
    "ngram": lambda _folder, _target: NgramDrafter(NgramRule(min_tokens=1, max_tokens=4, draft_tokens=5)),
    "suffix": lambda _folder, _target: SuffixDrafter(
        SuffixRule(depth=24, cached_requests=100, factor=2.0, least_probability=0.1, draft_tokens=8)
    ),
    "draft-model": lambda folder, target: ModelDrafter(model(folder, 0.4), draft_tokens=2, temperature=0.0, vocab=target.vocab),
    "eagle3": lambda folder, target: EagleDrafter(random_head(folder, target), draft_tokens=3, tree=None, temperature=0.0),
    "eagle3, tree": lambda folder, target: EagleDrafter(random_head(folder, target), draft_tokens=3, tree=Tree(3, 2, 6), temperature=0.0),
}


@pytest.mark.parametrize("name", sorted(DRAFTERS))
def test_greedy_text_is_the_target_s_or_differs_where_two_tokens_are_as_good(name: str, model_dir: Path) -> None:
    """At temperature 0 a user must not be able to tell whether drafting is on.

    A text may part where the two best logits lie closer than rounding; such a place is looked up in a pass over the text from its start.
    """
    target = model(model_dir, 0.0)
    made = written(model_dir, DRAFTERS[name](model_dir, target), asked(model_dir, PROMPTS), tokens=TOKENS)
    parted = 0
    for ours, theirs in zip(made, plain(model_dir), strict=True):
        place = next((at for at, (a, b) in enumerate(zip(ours.output, theirs.output, strict=False)) if a != b), None)
        if place is None:
            assert ours.output == theirs.output
            continue
        context = torch.tensor((*ours.prompt, *theirs.output[:place]))
        [answered] = target.forward([Row(context, target.new_cache(), None, 1)], hidden_layers=())
        best = answered.logits[0].topk(2)
        assert {ours.output[place], theirs.output[place]} == set(best.indices.tolist())
        assert float(best.values[0] - best.values[1]) < MARGIN
        parted += 1
    assert parted <= 2
    counts = AcceptanceCounts.pooled(acceptance_of(each, positions=8) for each in made)
    assert name.startswith("eagle3") or counts.accepted_tokens > 4, "hardly anything was accepted, so nothing was rolled back beside it"
    assert counts.drafts > 10


def test_the_command_shows_text_and_trace(model_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody who wants to see what drafting does sees it, token by token."""
    command = ["generate", "--target", str(model_dir), "--method", "ngram", "--ngram-min", "1", "--max-tokens", "16", "--threads", "1"]
    command += ["--prompt", "Say this twice: a paceline is a line of riders."]
    assert main([*command, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    [generation] = answer["generations"]
    assert "".join(each["text"] for each in generation["tokens"]) == generation["text"]
    accepted = [each for each in generation["tokens"] if each["origin"] == "accepted"]
    assert len(accepted) == sum(answer["accepted_per_position"]) > 0
    assert answer["acceptance"]["accepted_tokens"] == len(accepted)
    assert main([*command, "--stream"]) == 0
    streamed = capsys.readouterr().out
    assert streamed.startswith(generation["text"])
    assert f"trace: {generation['trace']}" in streamed
