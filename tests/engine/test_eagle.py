"""EAGLE heads: drafts are what the papers' formulas give, on chains and in confidence trees."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from paceline.engine.drafters.eagle import EagleDrafter, FeatureHead
from paceline.engine.eagle1 import LoadedEagle1
from paceline.engine.eagle3 import eagle3_config, load_eagle3
from paceline.engine.rows import Row
from paceline.engine.speculative_sampling import Chance, Generated, verify
from paceline.engine.target import Target
from paceline.servers.eagle_head import default_auxiliary_layers
from paceline.speculation.method import Tree
from tests.engine.enumeration import law_of, product_law
from tests.engine.tiny import SIZES, eagle1_folder, eagle3_folder, eagle3_settings, tiny_target
from tests.engine.written_out import causal

CONTEXT = [3, 1, 4, 1, 5, 6, 2, 6, 5, 3]
CHANCE = Generated(1)


@pytest.fixture
def target() -> Target:
    """A tiny target."""
    return tiny_target()


def next_log_law(head: FeatureHead, target: Target, context: Sequence[int], path: Sequence[int]) -> Tensor:
    """The head's log-law behind `context` and the drafted `path`, by running everything again from the start."""
    [answered] = target.forward([Row(torch.tensor(context[:-1]), target.new_cache(), None, 0)], hidden_layers=head.hidden_layers)
    hidden = head.read(answered)
    tokens = [*context[1:], *path]
    for _ in range(len(path) + 1):
        length = hidden.shape[0]
        made = head.run(head.embed(torch.tensor(tokens[:length])), hidden, positions=torch.arange(length), attends=[causal] * head.layers)
        hidden = torch.cat((hidden, made[-1:]))
    return torch.log_softmax(head.logits(hidden[-1:])[0], dim=-1)


def observed(drafter: EagleDrafter, head: FeatureHead, target: Target) -> Any:
    """A drafting that saw the context in two parts, as after a step that accepted two tokens."""
    drafting = drafter.begin()
    cache = target.new_cache()
    for part in (CONTEXT[:5], CONTEXT[5:-1]):
        [answered] = target.forward([Row(torch.tensor(part), cache, None, 0)], hidden_layers=head.hidden_layers)
        drafting.observe(answered, None)
        drafting.draft(CONTEXT[: cache.length + 1], CHANCE) if part[0] == CONTEXT[0] else None
    return drafting


HEADS: dict[str, Callable[[Path, Target], FeatureHead]] = {
    "eagle3": lambda folder, target: load_eagle3(eagle3_folder(folder), target),
    "eagle3-normed": lambda folder, target: load_eagle3(
        eagle3_folder(folder, norm_before_residual=True, eagle_config={"norm_before_fc": True}, draft_vocab_size=7), target
    ),
    "eagle1": lambda folder, target: LoadedEagle1(eagle1_folder(folder), target),
    "eagle1-two-layers": lambda folder, target: LoadedEagle1(eagle1_folder(folder, num_hidden_layers=2), target),
    "eagle3-output-normed": lambda folder, target: load_eagle3(eagle3_folder(folder, norm_output=True, fc_norm=True), target),
}


@pytest.mark.parametrize("kind", sorted(HEADS))
def test_a_chain_is_the_likeliest_token_again_and_again(kind: str, target: Target, tmp_path: Path) -> None:
    """A head whose cache keeps its own guesses drafts well at first and worse with every step."""
    head = HEADS[kind](tmp_path / "head", target)
    drafting = observed(EagleDrafter(head, draft_tokens=4, tree=None, temperature=0.0), head, target)
    draft = drafting.draft(CONTEXT, CHANCE)
    assert draft.is_chain
    for depth, token in enumerate(draft.tokens):
        law = next_log_law(head, target, CONTEXT, draft.tokens[:depth])
        assert token == int(head.target_ids(law.argmax()))


def test_a_drawn_chain_states_the_law_that_it_was_drawn_from(target: Target, tmp_path: Path) -> None:
    """Verification divides by that law: where it is another, the output is neither model's."""
    head = load_eagle3(eagle3_folder(tmp_path / "head"), target)
    drafting = observed(EagleDrafter(head, draft_tokens=3, tree=None, temperature=0.7), head, target)
    draft = drafting.draft(CONTEXT, CHANCE)
    for depth in range(3):
        log_law = next_log_law(head, target, CONTEXT, draft.tokens[:depth]) / 0.7
        wanted = torch.zeros(SIZES["vocab_size"], dtype=torch.float64)
        wanted[head.target_ids(torch.arange(5))] = log_law.softmax(-1)
        torch.testing.assert_close(draft.laws[depth - 1], wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", sorted(HEADS))
@pytest.mark.parametrize("tree", [Tree(3, 2, 8), Tree(4, 3, 9), Tree(2, 3, 12), Tree(1, 4, 4)])
def test_a_confidence_tree_expands_and_keeps_what_is_likeliest(kind: str, tree: Tree, target: Target, tmp_path: Path) -> None:
    """A tree that grows at the wrong nodes costs as much to verify and is accepted less."""
    head = HEADS[kind](tmp_path / "head", target)
    drafting = observed(EagleDrafter(head, draft_tokens=tree.depth, tree=tree, temperature=0.0), head, target)
    draft = drafting.draft(CONTEXT, CHANCE)
    values: dict[tuple[int, ...], float] = {}
    frontier: list[tuple[int, ...]] = [()]
    for _ in range(tree.depth):
        below = {}
        for path in frontier:
            log_law = next_log_law(head, target, CONTEXT, path)
            best = log_law.topk(tree.topk)
            for token, value in zip(head.target_ids(best.indices).tolist(), best.values.tolist(), strict=True):
                below[*path, token] = values.get(path, 0.0) + value
        values |= below
        frontier = sorted(below, key=lambda path: -below[path])[: tree.topk]
    wanted = sorted(values, key=lambda path: -values[path])[: tree.nodes]
    assert sorted(draft.paths()[1:]) == sorted(wanted)


@pytest.mark.parametrize("tree", [Tree(2, 2, 4), Tree(2, 2, 6), Tree(1, 3, 3), Tree(3, 1, 3)])
def test_a_tree_of_drawn_children_leaves_the_target_s_law(tree: Tree, target: Target, tmp_path: Path) -> None:
    """Every branch of drawing and verifying, added up: a child left out for its low value would shift somebody's answers."""
    head = load_eagle3(eagle3_folder(tmp_path / "head", draft_vocab_size=2), target)
    drafter = EagleDrafter(head, draft_tokens=tree.depth, tree=tree, temperature=0.8)
    [answered] = target.forward([Row(torch.tensor(CONTEXT[:-1]), target.new_cache(), None, 0)], hidden_layers=head.hidden_layers)
    after = torch.rand((8, 7), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    after[:, [1, 4, 5, 6]] = 0.0  # few outcomes, of which the head knows two

    def law(path: Sequence[int]) -> Tensor:
        chances = after[path[-1] + 1 if path else 0]
        return chances / chances.sum()

    def run(chance: Chance) -> tuple[int, ...]:
        drafting = drafter.begin()
        drafting.observe(answered, None)
        draft = drafting.draft(CONTEXT, chance)
        assert len(draft.tokens) == tree.nodes
        step = verify(draft, torch.stack([law(path) for path in draft.paths()]), chance)
        tokens = [*(draft.tokens[node] for node in step.nodes), step.token]
        while len(tokens) < 2:
            tokens.append(chance.pick(law(tokens)))
        return tuple(tokens[:2])

    found = law_of(run)
    wanted = product_law(law, vocab=7, tokens=2)
    assert max(abs(found.get(text, 0.0) - chance) for text, chance in wanted.items()) < 1e-12


def test_a_head_reads_its_own_states_behind_the_norm_where_it_was_trained_so(target: Target, tmp_path: Path) -> None:
    """The speculators library trains so by default: read before the norm, every draft but the first is another head's."""
    plain = load_eagle3(eagle3_folder(tmp_path / "plain"), target).head
    normed = load_eagle3(eagle3_folder(tmp_path / "normed", norm_output=True), target).head
    embeddings, hidden = torch.randn(2, 3, 16, dtype=torch.float64).unbind()

    def attend(queries: Tensor, _keys: Tensor, _values: Tensor) -> Tensor:
        return queries.transpose(0, 1).flatten(1)  # what is attended to makes no difference here

    before, behind = (each(embeddings, hidden, positions=torch.arange(3), attend=attend) for each in (plain, normed))
    torch.testing.assert_close(behind, plain.norm(before))
    torch.testing.assert_close(normed.draft_logits(behind), plain.draft_logits(before))


def test_layers_that_nobody_named_are_vllm_s() -> None:
    """Of 32 layers EAGLE-3 reads what layers 2, 16 and 29 leave behind; one off, and a head trained elsewhere is fed strangers."""
    assert default_auxiliary_layers(32) == (2, 16, 29)
    settings = eagle3_settings(eagle_aux_hidden_state_layer_ids=None)
    assert eagle3_config(settings, target_layers=32).aux_layers == (2, 16, 29)
