"""Generation, speculative or plain: prompts in, tokens out, with every step's draft and what became of it.

A step: every sequence drafts behind its context; one forward pass of the target takes, of every sequence, the last token and the draft
behind it; verification says what is kept; the caches forget the rest. So a step emits the accepted tokens and one more, which is recovered
(something was refused) or a bonus (nothing was). The pass over the prompt gives the first output token and is no step. Without a drafter a
step emits one token.

Sequences of different lengths share a pass, and each ends for itself: at a stop token, or at the most tokens asked for. What was accepted
beyond that end stays in the counts and is not emitted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from paceline.engine.drafters.drafter import Drafter, Drafting
from paceline.engine.kv_cache import Cache
from paceline.engine.rows import Answered, Row, tree_layout
from paceline.engine.sampling import Sampling, token_law, token_laws
from paceline.engine.speculative_sampling import Chance, Draft, Verified, verify, verify_greedy
from paceline.engine.target import Target
from paceline.errors import BadInputError
from paceline.speculation.counts import AcceptanceCounts

__all__ = ["Emission", "Generation", "Step", "acceptance_of", "generate"]


@dataclass(frozen=True, slots=True)
class Step:
    """One step: the drafted tree, the nodes that were accepted, and the token that followed them; `is_bonus` where nothing was refused."""

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    accepted: tuple[int, ...]
    final: int
    is_bonus: bool

    @property
    def kept(self) -> tuple[int, ...]:
        """The tokens it adds to the output, where that does not end before."""
        return (*(self.tokens[node] for node in self.accepted), self.final)


@dataclass(frozen=True, slots=True)
class Emission:
    """What one sequence emitted: `tokens`, by a step, or by the prompt's pass where `step` is None."""

    sequence: int
    tokens: tuple[int, ...]
    step: Step | None


@dataclass(slots=True, eq=False)
class Generation:
    """A sequence: its prompt, its output so far, its steps; `stopped` once a stop token ended it."""

    prompt: tuple[int, ...]
    output: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    stopped: bool = False


@dataclass(slots=True, eq=False)
class _Running:
    """A sequence that goes on, with what it needs to."""

    number: int
    made: Generation
    cache: Cache
    drafting: Drafting | None
    chance: Chance

    def context(self) -> list[int]:
        return [*self.made.prompt, *self.made.output]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What was asked for."""

    target: Target
    drafter: Drafter | None
    sampling: Sampling
    most_tokens: int
    stops: frozenset[int]

    @property
    def layers(self) -> tuple[int, ...]:
        """The target's layers that drafting reads."""
        return () if self.drafter is None else self.drafter.hidden_layers


def generate(
    target: Target,
    drafter: Drafter | None,
    generations: Sequence[Generation],
    *,
    sampling: Sampling,
    most_tokens: int,
    stops: frozenset[int],
    chances: Sequence[Chance],
) -> Iterator[Emission]:
    """Write the outputs of `generations`, side by side, telling what is emitted as it is.

    Each has a source of chance of its own, so that its output does not depend on its neighbours.

    Raises:
        BadInputError: a prompt is empty, or not even one token is asked for.

    """
    if most_tokens < 1 or not all(each.prompt for each in generations):
        raise BadInputError("a prompt needs a token, and an output at least one; give a text and --max-tokens from 1 on")
    asked = _Asked(target=target, drafter=drafter, sampling=sampling, most_tokens=most_tokens, stops=stops)
    running = [
        _Running(number, made, target.new_cache(), None if drafter is None else drafter.begin(), chance)
        for number, (made, chance) in enumerate(zip(generations, chances, strict=True))
    ]
    for each, emission in zip(running, _prefill(asked, running), strict=True):
        yield emission
        _finish_if_ended(asked, each)
    while running := [each for each in running if not _is_over(asked, each.made)]:
        for each, emission in zip(running, _step(asked, running), strict=True):
            yield emission
            _finish_if_ended(asked, each)


def acceptance_of(generation: Generation, *, positions: int) -> AcceptanceCounts:
    """What its steps drafted and accepted, by depth down to `positions`, the draft length or the tree's depth."""
    reached = [0] * positions
    for step in generation.steps:
        for place in range(len(step.accepted)):
            reached[place] += 1
    return AcceptanceCounts(
        steps=len(generation.steps),
        drafts=sum(1 for step in generation.steps if step.tokens),
        drafted_tokens=sum(len(step.tokens) for step in generation.steps),
        accepted_tokens=sum(reached),
        accepted_per_position=tuple(reached),
    )


def _is_over(asked: _Asked, made: Generation) -> bool:
    return made.stopped or len(made.output) >= asked.most_tokens


def _finish_if_ended(asked: _Asked, running: _Running) -> None:
    if running.drafting is not None and _is_over(asked, running.made):
        running.drafting.finish(running.made.output)


def _prefill(asked: _Asked, running: Sequence[_Running]) -> list[Emission]:
    device = asked.target.device
    rows = [Row(torch.tensor(each.made.prompt, device=device), each.cache, None, 1) for each in running]
    emissions = []
    for each, answered in zip(running, asked.target.forward(rows, hidden_layers=asked.layers), strict=True):
        if each.drafting is not None:
            each.drafting.observe(answered, None)
        token = each.chance.pick(token_law(answered.logits[-1], asked.sampling, prompt=each.made.prompt, output=()))
        emissions.append(_emit(asked, each, (token,), None))
    return emissions


def _step(asked: _Asked, running: Sequence[_Running]) -> list[Emission]:
    device = asked.target.device
    drafts = _drafts(asked, running)
    starts = [each.cache.length for each in running]
    rows = []
    for each, draft in zip(running, drafts, strict=True):
        tokens = torch.tensor((each.made.output[-1], *draft.tokens), device=device)
        layout = None if draft.is_chain else tree_layout((-1, *(parent + 1 for parent in draft.parents)), device=device)
        rows.append(Row(tokens, each.cache, layout, len(tokens)))
    answers = asked.target.forward(rows, hidden_layers=asked.layers)
    emissions = []
    for each, draft, start, answered in zip(running, drafts, starts, answers, strict=True):
        verified = _verified(asked, each, draft, answered)
        kept = [0, *(node + 1 for node in verified.nodes)]
        each.cache.keep(start, kept)
        if each.drafting is not None:
            each.drafting.observe(answered, kept)
        step = Step(draft.tokens, draft.parents, verified.nodes, verified.token, verified.is_bonus)
        emissions.append(_emit(asked, each, step.kept, step))
    return emissions


def _drafts(asked: _Asked, running: Sequence[_Running]) -> list[Draft]:
    """Every sequence's draft, empty without a drafter."""
    if asked.drafter is None:
        return [Draft((), (), {})] * len(running)
    return asked.drafter.draft_together(
        [each.drafting for each in running], [each.context() for each in running], [each.chance for each in running]
    )


def _verified(asked: _Asked, running: _Running, draft: Draft, answered: Answered) -> Verified:
    if asked.sampling.is_plain_greedy:
        return verify_greedy(draft, answered.logits.argmax(dim=-1).tolist())
    made = running.made
    laws = token_laws(answered.logits, asked.sampling, prompt=made.prompt, output=made.output, paths=draft.paths())
    return verify(draft, laws, running.chance)


def _emit(asked: _Asked, running: _Running, tokens: tuple[int, ...], step: Step | None) -> Emission:
    """Add the tokens up to the end of the output, and the step; what was emitted."""
    made = running.made
    tokens = tokens[: asked.most_tokens - len(made.output)]
    end = next((place for place, token in enumerate(tokens) if token in asked.stops), None)
    if end is not None:
        tokens, made.stopped = tokens[: end + 1], True
    made.output += tokens
    if step is not None:
        made.steps.append(step)
    return Emission(running.number, tokens, step)
