"""Runs the drafting engine: loads target and draft, writes texts, and says where every token came from.

Imports torch: whoever imports this module needs the extra `engine`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import perf_counter

import torch

from paceline.engine.chat import Chat, load_chat
from paceline.engine.checkpoint import longest_context
from paceline.engine.drafters.draft_model import ModelDrafter
from paceline.engine.drafters.drafter import Drafter
from paceline.engine.drafters.eagle import EagleDrafter
from paceline.engine.drafters.lookup import NgramDrafter, SuffixDrafter
from paceline.engine.eagle1 import LoadedEagle1
from paceline.engine.eagle3 import load_eagle3
from paceline.engine.generate import Generation, Step, acceptance_of, generate
from paceline.engine.sampling import Sampling
from paceline.engine.speculative_sampling import Generated
from paceline.engine.target import Target, load_target
from paceline.errors import BadInputError, UnknownNameError, printable
from paceline.replay.ngram import NgramRule
from paceline.replay.suffix import SuffixRule
from paceline.report.generation import DraftedStep, Origin, Piece, Written
from paceline.speculation.method import Method, Tree
from paceline.traffic.exchange import Message

__all__ = ["Engine", "Generating", "load_drafter", "load_engine", "write"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
UNFINISHED = "\ufffd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Generating:
    """How tokens are drafted: `method` None for not at all; `rule` of a lookup; `draft` of the others is a folder."""

    method: Method | None
    draft: Path | None
    draft_tokens: int
    tree: Tree | None
    draft_temperature: float
    rule: NgramRule | SuffixRule

    @property
    def positions(self) -> int:
        """Most tokens accepted in a step."""
        return self.draft_tokens if self.tree is None else self.tree.depth


@dataclass(frozen=True, slots=True, eq=False)
class Engine:
    """A target with its tokenizer, and the tokens of prompt and answer that it can read (None: it does not say)."""

    target: Target
    chat: Chat
    longest_tokens: int | None

    def prompt_tokens(self, text: str, *, raw: bool) -> tuple[int, ...]:
        """A prompt as tokens: as one user's message in the model's chat template, or as it is.

        Raises:
            BadInputError: the tokenizer has no chat template.

        """
        if raw:
            return tuple(self.chat.library(text)["input_ids"])
        if self.chat.library.chat_template is None:
            raise BadInputError("the target's tokenizer has no chat template; give --raw, and the prompt as the model expects it")
        return self.chat.prompt([Message("user", text)])


def load_engine(folder: Path, *, dtype: str, device: str) -> Engine:
    """The target in `folder`.

    Raises:
        BadInputError: a tensor or the tokenizer is missing, or there is no such device.

    """
    if dtype not in DTYPES:
        raise UnknownNameError("dtype", dtype, DTYPES)
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as fault:
        raise BadInputError(f"no device {printable(device)} here: {printable(str(fault))}") from None
    return Engine(load_target(folder, dtype=DTYPES[dtype], device=place), load_chat(folder), longest_context(folder))


def load_drafter(asked: Generating, target: Target) -> Drafter | None:
    """What drafts for `target`, None where nothing does.

    Raises:
        BadInputError: no folder was given, or what is in it does not fit.

    """
    if asked.method is None:
        return None
    if isinstance(asked.rule, SuffixRule) and asked.method is Method.SUFFIX:
        return SuffixDrafter(asked.rule)
    if isinstance(asked.rule, NgramRule) and asked.method is Method.NGRAM:
        return NgramDrafter(asked.rule)
    if asked.draft is None:
        raise BadInputError(f"--method {asked.method.value} drafts with a model; give its folder as --draft")
    if asked.method is Method.DRAFT_MODEL:
        model = load_target(asked.draft, dtype=target.dtype, device=target.device)
        return ModelDrafter(model, draft_tokens=asked.draft_tokens, temperature=asked.draft_temperature, vocab=target.vocab)
    head = load_eagle3(asked.draft, target) if asked.method is Method.EAGLE3 else LoadedEagle1(asked.draft, target)
    return EagleDrafter(head, draft_tokens=asked.draft_tokens, tree=asked.tree, temperature=asked.draft_temperature)


def write(
    engine: Engine,
    drafter: Drafter | None,
    prompts: Sequence[str],
    *,
    raw: bool,
    sampling: Sampling,
    most_tokens: int,
    positions: int,
    seed: int,
    on_text: Callable[[str], None],
    progress: Callable[[float], None],
) -> tuple[list[Written], float]:
    """The prompts' outputs, written side by side, and the seconds that it took.

    `on_text` gets the first one's text as it is written, `progress` the tokens written since it was last called: `most_tokens` per prompt
    in all, for an output that ends before counts as whole.

    Raises:
        BadInputError: a prompt and its output have more tokens than the target has positions.

    """
    made = [Generation(engine.prompt_tokens(prompt, raw=raw)) for prompt in prompts]
    for number, each in enumerate(made, 1):
        _need_room(engine, number, len(each.prompt), most_tokens)
    chances = [Generated(seed + number) for number in range(len(made))]
    shown, started_at = 0, perf_counter()
    stops = engine.chat.end_ids
    for emission in generate(engine.target, drafter, made, sampling=sampling, most_tokens=most_tokens, stops=stops, chances=chances):
        own = made[emission.sequence]
        progress(len(emission.tokens) + (most_tokens - len(own.output) if own.stopped else 0))
        if emission.sequence == 0 and not (text := engine.chat.text(made[0].output)).endswith(UNFINISHED):
            on_text(text[shown:])
            shown = len(text)
    seconds = perf_counter() - started_at
    written = [_written(engine, prompt, each, positions, drafted=drafter is not None) for prompt, each in zip(prompts, made, strict=True)]
    return written, seconds


def _need_room(engine: Engine, number: int, prompt_tokens: int, most_tokens: int) -> None:
    longest = engine.longest_tokens
    if longest is None or prompt_tokens + most_tokens <= longest:
        return
    room = longest - prompt_tokens
    remedy = f"give --max-tokens up to {room}" if room > 0 else "give a shorter prompt"
    raise BadInputError(
        f"prompt {number} of {prompt_tokens:,} tokens and --max-tokens {most_tokens} are more than the target's {longest:,} positions; "
        f"{remedy}"
    )


def _written(engine: Engine, prompt: str, made: Generation, positions: int, *, drafted: bool) -> Written:
    origins = [Origin.FIRST]
    for step in made.steps:
        origins += [*[Origin.ACCEPTED] * len(step.accepted), _last(step, drafted=drafted)]
    pieces, before = [], ""
    for place, (token, origin) in enumerate(zip(made.output, islice(origins, len(made.output)), strict=True), 1):
        text = engine.chat.text(made.output[:place])
        # Half a character waits for the token that completes it.
        whole = before if text.endswith(UNFINISHED) and place < len(made.output) else text
        pieces.append(Piece(token, whole[len(before) :], origin))
        before = whole
    steps = tuple(
        DraftedStep(
            step.tokens,
            tuple(engine.chat.text([token]) for token in step.tokens),
            step.parents,
            step.accepted,
            _last(step, drafted=drafted),
        )
        for step in made.steps
    )
    return Written(prompt, tuple(pieces), steps, made.stopped, acceptance_of(made, positions=positions))


def _last(step: Step, *, drafted: bool) -> Origin:
    if not drafted or not step.tokens:
        return Origin.PLAIN
    return Origin.BONUS if step.is_bonus else Origin.RECOVERED
