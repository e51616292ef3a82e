"""Speculative sampling: its output's law is the target's, exactly, and the ways to get it wrong are found out."""

from collections.abc import Callable
from functools import cache
from itertools import product
from math import prod

import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

from paceline.engine.speculative_sampling import Chance, Draft, Generated, Verified, chain, verify, verify_greedy
from tests.engine.enumeration import law_of, product_law

Tokens = tuple[int, ...]
Laws = Callable[[Tokens], Tensor]
Verify = Callable[[Draft, Tensor, Chance], Verified]
DTYPE = torch.float64


def table(vocab: int, seed: int) -> Laws:
    """A random law behind every prefix, some of it zero, the same at each call."""

    @cache
    def law(prefix: Tokens) -> Tensor:
        generator = torch.Generator().manual_seed(hash((seed, prefix)) % 2**31)
        weights = torch.rand(vocab, generator=generator, dtype=DTYPE) ** 3
        weights[torch.randint(vocab, (), generator=generator)] = 0.0
        return weights / weights.sum()

    return law


def target_laws(draft: Draft, target: Laws) -> Tensor:
    """The target's law behind the root and each node."""
    return torch.stack([target(path) for path in draft.paths()])


def drawn_chain(draft: Laws, tokens: int, chance: Chance) -> Draft:
    """K tokens, each drawn behind the one before."""
    drawn: Tokens = ()
    laws = []
    for _ in range(tokens):
        laws.append(draft(drawn))
        drawn = (*drawn, chance.pick(laws[-1]))
    return chain(drawn, laws)


def drawn_tree(draft: Laws, widths: Tokens, chance: Chance) -> Draft:
    """A tree whose nodes have so many drawn children by level, as SpecInfer's."""
    tokens: list[int] = []
    parents: list[int] = []
    laws: dict[int, Tensor] = {}
    level: list[tuple[int, Tokens]] = [(-1, ())]
    for width in widths:
        below = []
        for node, path in level:
            laws[node] = draft(path)
            for _ in range(width):
                tokens.append(chance.pick(laws[node]))
                parents.append(node)
                below.append((len(tokens) - 1, (*path, tokens[-1])))
        level = below
    return Draft(tuple(tokens), tuple(parents), laws)


def named_tree(draft: Laws, widths: Tokens) -> Draft:
    """The same with the likeliest children, as EAGLE's."""
    tokens: list[int] = []
    parents: list[int] = []
    level: list[tuple[int, Tokens]] = [(-1, ())]
    for width in widths:
        below = []
        for node, path in level:
            for token in draft(path).topk(width).indices.tolist():
                tokens.append(token)
                parents.append(node)
                below.append((len(tokens) - 1, (*path, token)))
        level = below
    return Draft(tuple(tokens), tuple(parents), {})


def emitted_law(make: Callable[[Chance], Draft], target: Laws, check: Verify) -> dict[Tokens, float]:
    """The law of what a step emits."""

    def step(chance: Chance) -> Tokens:
        draft = make(chance)
        verified = check(draft, target_laws(draft, target), chance)
        return (*(draft.tokens[node] for node in verified.nodes), verified.token)

    return law_of(step)


def distance(emitted: dict[Tokens, float], target: Laws, *, vocab: int, tokens: int) -> float:
    """The largest difference between the law of `tokens` tokens that begin with a step, and the target's own."""
    worst = 0.0
    for sequence, wanted in product_law(target, vocab=vocab, tokens=tokens).items():
        rest = {end: prod(float(target(sequence[:at])[sequence[at]]) for at in range(end, tokens)) for end in range(1, tokens + 1)}
        worst = max(worst, abs(sum(emitted.get(sequence[:end], 0.0) * rest[end] for end in rest) - wanted))
    return worst


@pytest.mark.parametrize(("vocab", "tokens"), [(2, 3), (3, 3), (8, 1), (8, 2), (8, 3)])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_drawn_chain_s_output_has_the_target_s_law(vocab: int, tokens: int, seed: int) -> None:
    """Somebody who turns drafting on gets other answers than before, and nobody can tell why."""
    target, draft = table(vocab, seed), table(vocab, seed + 100)
    emitted = emitted_law(lambda chance: drawn_chain(draft, tokens, chance), target, verify)
    assert sum(emitted.values()) == pytest.approx(1, abs=1e-12)
    assert distance(emitted, target, vocab=vocab, tokens=tokens + 1) < 1e-12


@pytest.mark.parametrize(("vocab", "widths"), [(4, (2, 2)), (8, (3,)), (7, (2, 1)), (3, (2, 2, 1)), (4, (3, 1))])
def test_a_drawn_tree_s_output_has_the_target_s_law(vocab: int, widths: Tokens) -> None:
    """A sibling that is tried against the law before the first refusal is accepted too often."""
    target, draft = table(vocab, 3), table(vocab, 103)
    emitted = emitted_law(lambda chance: drawn_tree(draft, widths, chance), target, verify)
    assert distance(emitted, target, vocab=vocab, tokens=len(widths) + 1) < 1e-12


@pytest.mark.parametrize(("vocab", "widths"), [(8, (3, 2, 1)), (8, (1, 1, 1)), (6, (4, 3, 2)), (8, (8,))])
def test_a_named_tree_s_output_has_the_target_s_law(vocab: int, widths: Tokens) -> None:
    """EAGLE's children are the head's favourites: accepting them by p / q with the head's own q would favour them."""
    target, draft = table(vocab, 4), table(vocab, 104)
    emitted = emitted_law(lambda _: named_tree(draft, widths), target, verify)
    assert distance(emitted, target, vocab=vocab, tokens=len(widths) + 1) < 1e-12


def test_the_acceptance_of_a_drawn_token_is_what_the_two_laws_share() -> None:
    """Worked by hand: p = (.5, .3, .2), q = (.2, .2, .6). Σ min(p, q) = .2 + .2 + .2 = .6; left over (.3, .1, 0), so .75 and .25."""
    p, q = torch.tensor([0.5, 0.3, 0.2], dtype=DTYPE), torch.tensor([0.2, 0.2, 0.6], dtype=DTYPE)
    laws = torch.stack([p, p])

    def step(chance: Chance) -> tuple[int, int]:
        verified = verify(chain([chance.pick(q)], [q]), laws, chance)
        return len(verified.nodes), -1 if verified.is_bonus else verified.token

    law = law_of(step)
    assert law[1, -1] == pytest.approx(0.6, abs=1e-12)
    assert law[0, 0] == pytest.approx(0.4 * 0.75, abs=1e-12)
    assert law[0, 1] == pytest.approx(0.4 * 0.25, abs=1e-12)
    assert (0, 2) not in law


def _wrong(kind: str) -> Verify:
    """Verification of a drawn chain with one mistake; with none, that of `verify`."""

    def check(draft: Draft, laws: Tensor, chance: Chance) -> Verified:
        for node, token in enumerate(draft.tokens):
            p, q = laws[node], draft.laws[node - 1]
            ratio = float(p[token] / q[token])
            accept = {"iff p ≥ q": float(ratio >= 1), "lenience": ratio / 0.7, "typical": float(p[token] > 0.1)}.get(kind, ratio)
            if not chance.coin(accept):
                left = (p - q).clamp(min=0)
                usable = kind != "recovered from p" and float(left.sum()) > 0
                return Verified(tuple(range(node)), chance.pick(left / left.sum() if usable else p), is_bonus=False)
        law = draft.laws[len(draft.tokens) - 2] if kind == "bonus from the draft" else laws[-1]
        return Verified(tuple(range(len(draft.tokens))), chance.pick(law), is_bonus=True)

    return check


@pytest.mark.parametrize("kind", ["recovered from p", "iff p ≥ q", "lenience", "typical", "bonus from the draft"])
def test_each_known_mistake_is_found_out(kind: str) -> None:
    """A test that passes whatever is done proves nothing about what is done."""
    target, draft = table(8, 5), table(8, 105)

    def make(chance: Chance) -> Draft:
        return drawn_chain(draft, 3, chance)

    assert distance(emitted_law(make, target, _wrong("none")), target, vocab=8, tokens=4) < 1e-12
    assert distance(emitted_law(make, target, _wrong(kind)), target, vocab=8, tokens=4) > 1e-3


def test_trying_every_sibling_against_the_whole_law_is_found_out() -> None:
    """A tree's second child would be accepted as if the first had not been refused."""

    def check(draft: Draft, laws: Tensor, chance: Chance) -> Verified:
        p, q = laws[0], draft.laws[-1]
        for node, token in enumerate(draft.tokens):
            if chance.coin(float(p[token] / q[token])):
                return Verified((node,), chance.pick(laws[node + 1]), is_bonus=True)
        left = (p - q).clamp(min=0)
        return Verified((), chance.pick(left / left.sum()), is_bonus=False)

    target, draft = table(8, 5), table(8, 105)
    for verifier, largest, smallest in ((verify, 1e-12, 0.0), (check, 1.0, 1e-3)):
        apart = distance(emitted_law(lambda chance: drawn_tree(draft, (2,), chance), target, verifier), target, vocab=8, tokens=2)
        assert smallest <= apart < largest


def test_dividing_by_the_law_of_a_child_that_was_named_is_found_out() -> None:
    """EAGLE's head states a probability for its favourite, but did not draw it."""
    target, draft = table(8, 5), table(8, 105)

    def stated(chance: Chance) -> Draft:  # noqa: ARG001  # a child that is named takes no chance
        named = named_tree(draft, (1, 1, 1))
        return Draft(named.tokens, named.parents, {node - 1: draft(path) for node, path in enumerate(named.paths()[:-1])})

    assert distance(emitted_law(stated, target, verify), target, vocab=8, tokens=4) > 1e-3


def _warmer(law: Tensor) -> Tensor:
    return law.sqrt() / law.sqrt().sum()


def _nucleus(law: Tensor) -> Tensor:
    """The likeliest four tokens."""
    kept = torch.zeros_like(law).scatter(0, law.topk(4).indices, law.topk(4).values)
    return kept / kept.sum()


@pytest.mark.parametrize(("draw", "state"), [("whole", "warmer"), ("nucleus", "whole")])
def test_a_draft_that_states_another_law_than_it_drew_from_is_found_out(draw: str, state: str) -> None:
    """An engine that drafts at one temperature or top-p and divides by the law of another writes neither model's text."""
    target, draft = table(8, 6), table(8, 106)
    laws = {"whole": lambda law: law, "warmer": _warmer, "nucleus": _nucleus}

    def make(chance: Chance) -> Draft:
        drawn = drawn_chain(lambda path: laws[draw](draft(path)), 3, chance)
        return Draft(drawn.tokens, drawn.parents, {node - 1: laws[state](draft(path)) for node, path in enumerate(drawn.paths()[:-1])})

    assert distance(emitted_law(make, target, verify), target, vocab=8, tokens=4) > 1e-3


def test_cutting_a_draft_by_the_confidence_in_its_own_token_is_found_out() -> None:
    """Whether a drafted token is verified may depend on what comes before it, never on which token it is."""
    target, draft = table(8, 7), table(8, 107)

    def make(chance: Chance) -> Draft:
        drawn = drawn_chain(draft, 3, chance)
        sure = [float(drawn.laws[node - 1][token]) > 0.3 for node, token in enumerate(drawn.tokens)]
        kept = [*sure, False].index(False)
        return chain(drawn.tokens[:kept], [drawn.laws[node - 1] for node in range(kept)])

    assert distance(emitted_law(make, target, verify), target, vocab=8, tokens=4) > 1e-3


def test_greedy_verification_is_verification_of_laws_that_are_sure() -> None:
    """At temperature 0 the short way must keep what the long way keeps."""
    target, draft = table(6, 8), table(6, 108)
    for widths in product((1, 2, 3), repeat=3):
        tree = named_tree(draft, widths)
        laws = target_laws(tree, target)
        sure = torch.zeros_like(laws).scatter(1, laws.argmax(1, keepdim=True), 1.0)
        assert verify_greedy(tree, laws.argmax(1).tolist()) == verify(tree, sure, Generated(1))


def passes_chi_square(seen: Tensor, law: Tensor) -> bool:
    """Whether counts [outcomes] can be of a law [outcomes], one false alarm in a million; what is expected less than 5 times is pooled."""
    expected = law * seen.sum()
    common = expected >= 5
    pooled_seen = torch.cat([seen[common], seen[~common].sum()[None]])
    pooled = torch.cat([expected[common], expected[~common].sum()[None]])
    used = pooled > 0
    if float(pooled_seen[~used].sum()):
        return False
    statistic = float(((pooled_seen - pooled)[used] ** 2 / pooled[used]).sum())
    return statistic < float(chi2.ppf(1 - 1e-6, int(used.sum()) - 1))


def counted(make: Callable[[Chance], Draft], target: Laws, *, vocab: int, tokens: int, steps: int, seed: int) -> tuple[Tensor, Tensor]:
    """Of so many steps the texts of `tokens` tokens that begin with each [vocab ** tokens], and the tokens recovered at once [vocab]."""
    chance = Generated(seed)
    seen, recovered = torch.zeros(vocab**tokens, dtype=DTYPE), torch.zeros(vocab, dtype=DTYPE)
    for _ in range(steps):
        draft = make(chance)
        verified = verify(draft, target_laws(draft, target), chance)
        text = [*(draft.tokens[node] for node in verified.nodes), verified.token][:tokens]
        recovered[text[0]] += not verified.nodes
        while len(text) < tokens:
            text.append(chance.pick(target(tuple(text))))
        seen[sum(token * vocab**place for place, token in enumerate(text))] += 1
    return seen, recovered


def pair_law(target: Laws, vocab: int) -> Tensor:
    """The law of two tokens, the first counting ones [vocab²]."""
    return torch.stack([target((first,)) * target(())[first] for first in range(vocab)], dim=1).flatten()


def test_drawn_output_of_a_large_vocabulary_passes_a_chi_square_test() -> None:
    """What holds for eight tokens might break for many, where rounding and the search in a cumulated law begin to matter."""
    vocab = 200
    target, draft = table(vocab, 9), table(vocab, 109)
    seen, recovered = counted(lambda chance: drawn_chain(draft, 1, chance), target, vocab=vocab, tokens=1, steps=12_000, seed=20)
    assert passes_chi_square(seen, target(()))
    left = (target(()) - draft(())).clamp(min=0)
    assert passes_chi_square(recovered, left / left.sum())
    assert not passes_chi_square(recovered, target(()))


@pytest.mark.parametrize("kind", ["chain", "drawn tree", "named tree"])
def test_pairs_of_tokens_from_a_large_vocabulary_pass_a_chi_square_test(kind: str) -> None:
    """A step's tokens might each have the right law, and not hang together as the target's do."""
    vocab = 40
    target, draft = table(vocab, 10), table(vocab, 110)
    makes: dict[str, Callable[[Chance], Draft]] = {
        "chain": lambda chance: drawn_chain(draft, 3, chance),
        "drawn tree": lambda chance: drawn_tree(draft, (2, 2), chance),
        "named tree": lambda _: named_tree(draft, (4, 2)),
    }
    seen, _ = counted(makes[kind], target, vocab=vocab, tokens=2, steps=5_000, seed=21)
    assert passes_chi_square(seen, pair_law(target, vocab))
    assert not passes_chi_square(seen, pair_law(draft, vocab))


def test_chance_is_a_function_of_its_seed() -> None:
    """One seed gives the same text, or nobody can look at a step twice."""
    law = torch.tensor([0.2, 0.3, 0.5])
    first, second = Generated(7), Generated(7)
    assert [first.pick(law) for _ in range(20)] == [second.pick(law) for _ in range(20)]
    assert [first.coin(0.5) for _ in range(20)] == [second.coin(0.5) for _ in range(20)]
