"""Generation: with any drafter the output has the target's law exactly, caches and penalties included, alone and in a batch."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from paceline.engine.drafters.draft_model import ModelDrafter
from paceline.engine.drafters.drafter import Drafter
from paceline.engine.drafters.eagle import EagleDrafter
from paceline.engine.drafters.lookup import NgramDrafter, SuffixDrafter
from paceline.engine.eagle1 import LoadedEagle1
from paceline.engine.eagle3 import load_eagle3
from paceline.engine.generate import Generation, acceptance_of, generate
from paceline.engine.rows import Row
from paceline.engine.sampling import GREEDY, Sampling, token_law
from paceline.engine.speculative_sampling import Chance, Generated
from paceline.engine.target import Target, load_target
from paceline.errors import BadInputError
from paceline.replay.ngram import NgramRule
from paceline.replay.suffix import SuffixRule
from paceline.speculation.method import Tree
from tests.engine.enumeration import law_of
from tests.engine.tiny import CPU, eagle1_folder, eagle3_folder, model_folder, tiny_target

PROMPT = (3, 1, 4, 1, 5, 3, 1)
DRAWN = Sampling(temperature=0.9, top_k=2, top_p=0.95, min_p=0.02, repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.3)
NO_STOPS: frozenset[int] = frozenset()

Made = Callable[[Target, Path], Drafter]
DRAFTERS: dict[str, Made] = {
    "ngram": lambda _target, _folder: NgramDrafter(NgramRule(min_tokens=1, max_tokens=3, draft_tokens=3)),
    "suffix": lambda _target, _folder: SuffixDrafter(
        SuffixRule(depth=8, cached_requests=4, factor=2.0, least_probability=0.1, draft_tokens=3)
    ),
    "draft-model": lambda target, _folder: ModelDrafter(tiny_target(layers=1), draft_tokens=2, temperature=0.0, vocab=target.vocab),
    "draft-model, drawn": lambda target, _folder: ModelDrafter(tiny_target(layers=1), draft_tokens=1, temperature=0.5, vocab=target.vocab),
    "eagle": lambda target, folder: EagleDrafter(
        LoadedEagle1(eagle1_folder(folder / "head"), target), draft_tokens=2, tree=None, temperature=0.0
    ),
    "eagle2": lambda target, folder: EagleDrafter(
        LoadedEagle1(eagle1_folder(folder / "head"), target), draft_tokens=2, tree=Tree(2, 3, 8), temperature=0.0
    ),
    "eagle3": lambda target, folder: EagleDrafter(
        load_eagle3(eagle3_folder(folder / "head"), target), draft_tokens=3, tree=None, temperature=0.0
    ),
    "eagle3, drawn": lambda target, folder: EagleDrafter(
        load_eagle3(eagle3_folder(folder / "head"), target), draft_tokens=1, tree=None, temperature=0.5
    ),
    "eagle3, tree": lambda target, folder: EagleDrafter(
        load_eagle3(eagle3_folder(folder / "head"), target), draft_tokens=3, tree=Tree(3, 2, 7), temperature=0.0
    ),
    "eagle3, drawn tree": lambda target, folder: EagleDrafter(
        load_eagle3(eagle3_folder(folder / "head", draft_vocab_size=2), target), draft_tokens=2, tree=Tree(2, 2, 4), temperature=0.8
    ),
}


def written(target: Target, drafter: Drafter | None, chance: Chance, *, sampling: Sampling, tokens: int) -> Generation:
    """One sequence behind the prompt."""
    made = Generation(PROMPT)
    for _ in generate(target, drafter, [made], sampling=sampling, most_tokens=tokens, stops=NO_STOPS, chances=[chance]):
        pass
    return made


def plain_law(target: Target, sampling: Sampling, tokens: int) -> dict[tuple[int, ...], float]:
    """The law of so many tokens, by running the target from the start for each prefix."""
    law: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(tokens):
        longer: dict[tuple[int, ...], float] = {}
        for prefix, chance in law.items():
            [answered] = target.forward([Row(torch.tensor((*PROMPT, *prefix)), target.new_cache(), None, 1)], hidden_layers=())
            after = token_law(answered.logits[0], sampling, prompt=PROMPT, output=prefix)
            longer |= {(*prefix, token): chance * float(after[token]) for token in after.nonzero().flatten().tolist()}
        law = longer
    return law


@pytest.mark.parametrize("name", sorted(DRAFTERS))
def test_whatever_drafts_the_text_s_law_is_the_target_s(name: str, tmp_path: Path) -> None:
    """Every branch of drafting, verification, caches and penalties, added up: a mistake anywhere changes somebody's answers."""
    target = tiny_target()
    drafter = DRAFTERS[name](target, tmp_path)
    tokens = 2 if "tree" in name and "drawn" in name else 3 if "drawn" in name else 4

    def run(chance: Chance) -> tuple[int, ...]:
        # What the suffix drafter remembers of one branch must not be drafted in another.
        used = DRAFTERS[name](target, tmp_path) if name == "suffix" else drafter
        return tuple(written(target, used, chance, sampling=DRAWN, tokens=tokens).output)

    law = law_of(run)
    wanted = plain_law(target, DRAWN, tokens)
    assert set(law) <= set(wanted)
    assert max(abs(law.get(text, 0.0) - chance) for text, chance in wanted.items()) < 1e-12


@pytest.mark.parametrize("name", sorted(DRAFTERS))
def test_greedy_text_is_the_target_s_and_steps_say_how_it_came_about(name: str, tmp_path: Path) -> None:
    """At temperature 0 drafting must change nothing but the time it takes, and the counts must add up to the text."""
    target = tiny_target()
    plain = written(target, None, Generated(1), sampling=GREEDY, tokens=60)
    made = written(target, DRAFTERS[name](target, tmp_path), Generated(1), sampling=GREEDY, tokens=60)
    assert made.output == plain.output
    assert made.output == [made.output[0], *(token for step in made.steps for token in step.kept)][:60]
    counts = acceptance_of(made, positions=3)
    assert counts.steps == len(made.steps) <= len(plain.steps) == 59
    assert counts.accepted_tokens == sum(len(step.accepted) for step in made.steps)
    assert all(step.is_bonus or step.tokens for step in made.steps)


def test_a_draft_model_that_is_the_target_is_always_right() -> None:
    """Every token but the bonus was drafted: 60 tokens are the first and 15 steps of 3 + 1, less what the end cuts off."""
    target = tiny_target()
    drafter = ModelDrafter(target, draft_tokens=3, temperature=0.0, vocab=target.vocab)
    made = written(target, drafter, Generated(1), sampling=GREEDY, tokens=60)
    counts = acceptance_of(made, positions=3)
    assert counts.accepted_per_position == (15, 15, 15)
    assert counts.alpha == 1
    assert all(step.is_bonus for step in made.steps)


@pytest.mark.parametrize("name", sorted(DRAFTERS))
def test_a_batch_writes_what_each_sequence_would_write_alone(name: str, tmp_path: Path) -> None:
    """Sequences that accept different numbers of tokens share a pass: one row's roll-back must not move another's."""
    target = tiny_target()
    prompts = [PROMPT, (2,), (6, 5, 6, 5, 6), (1, 1, 2)]
    sampling = GREEDY if name == "suffix" else DRAWN  # suffix drafts from its neighbours' outputs, so chance is used otherwise

    def run(numbers: list[int]) -> list[list[int]]:
        made = [Generation(prompts[number]) for number in numbers]
        chances = [Generated(number) for number in numbers]
        drafter = DRAFTERS[name](target, tmp_path)
        for _ in generate(target, drafter, made, sampling=sampling, most_tokens=25, stops=frozenset({0}), chances=chances):
            pass
        return [each.output for each in made]

    assert run([0, 1, 2, 3]) == [run([number])[0] for number in range(4)]


def test_a_stop_token_ends_the_text_in_the_middle_of_a_draft() -> None:
    """What was accepted behind the end of the text would be shown to a user."""
    target = tiny_target()
    plain = written(target, None, Generated(1), sampling=GREEDY, tokens=30).output
    stop = plain[10]
    end = plain.index(stop)
    drafter = ModelDrafter(target, draft_tokens=7, temperature=0.0, vocab=target.vocab)
    made = Generation(PROMPT)
    emitted = list(generate(target, drafter, [made], sampling=GREEDY, most_tokens=30, stops=frozenset({stop}), chances=[Generated(1)]))
    assert made.stopped
    assert made.output == plain[: end + 1]
    assert [token for each in emitted for token in each.tokens] == made.output


def test_the_library_s_target_drafts_and_rolls_back_alike(tmp_path: Path) -> None:
    """Models outside the Llama family go through transformers: trees and roll-backs must work there too."""
    folder = model_folder(tmp_path / "neox", family="gpt-neox")
    target = load_target(folder, dtype=torch.float32, device=CPU)
    plain = written(target, None, Generated(1), sampling=GREEDY, tokens=40)
    for tree in (None, Tree(3, 2, 7)):
        drafter = EagleDrafter(LoadedEagle1(eagle1_folder(tmp_path / "head"), target), draft_tokens=3, tree=tree, temperature=0.0)
        assert written(target, drafter, Generated(1), sampling=GREEDY, tokens=40).output == plain.output


def test_what_cannot_be_generated_is_refused() -> None:
    """An empty prompt, no token at all, and a draft model with other tokens."""
    target = tiny_target()
    for prompt, tokens in (((), 3), (PROMPT, 0)):
        with pytest.raises(BadInputError, match="needs a token"):
            list(generate(target, None, [Generation(prompt)], sampling=GREEDY, most_tokens=tokens, stops=NO_STOPS, chances=[Generated(1)]))
    with pytest.raises(BadInputError, match="vocabulary has 7 tokens, the target's 9"):
        ModelDrafter(target, draft_tokens=3, temperature=0.0, vocab=9)
