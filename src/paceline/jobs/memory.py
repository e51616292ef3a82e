"""Whether a draft fits: weights, KV cache, look-ahead slots and activations, the draft from its own checkpoint where there is one."""

from dataclasses import dataclass, replace

from paceline.files.modeldir import read_checkpoint
from paceline.forecast.activations import ActivationAnswer, LargestStep, activation_answer, step_activations
from paceline.forecast.draft_memory import DEFAULT_DRAFT_VOCAB, MemoryAnswer
from paceline.forecast.stored_draft import stored_draft
from paceline.jobs.scenario import Asked, Scenario, on_disk, resolved_model, scenario
from paceline.speculation.method import Method

__all__ = ["Memory", "memory_asked"]

LOOK_UP = (Method.NGRAM, Method.SUFFIX)


@dataclass(frozen=True, slots=True)
class Memory:
    """The answer: what it is about, what fits, what activations cost, and whether the draft's own tensors were counted."""

    scenario: Scenario
    fits: MemoryAnswer
    activations: ActivationAnswer
    stored: bool


def memory_asked(asked: Asked, *, context_tokens: int, step: LargestStep) -> Memory:
    """What fits at that context, in a replica whose largest step is `step`.

    Raises:
        BadInputError: it does not fit, or the draft's folder holds weights that are not read.

    """
    implied = scenario(asked)
    found, vocabulary = _stored(asked, implied)
    fits = found.memory(context_tokens)
    plain, speculative = (
        step_activations(found.target, speculation=each, draft_vocab=vocabulary, step=step, gpus=found.where.gpus)
        for each in (None, found.speculation)
    )
    answer = activation_answer(fits, plain=plain, speculative=speculative, context_tokens=context_tokens)
    return Memory(found, fits, answer, stored=found is not implied)


def _stored(asked: Asked, implied: Scenario) -> tuple[Scenario, int | None]:
    """The scenario with the draft as its folder has it, where there is one with weights; and the rows of the draft's output layer."""
    if asked.method in LOOK_UP:
        return implied, None
    folder = None if asked.draft is None else on_disk(asked.draft)
    if folder is None or not folder.is_dir():
        return implied, _vocabulary(asked, implied)
    checkpoint = read_checkpoint(folder)
    vocabulary = checkpoint.draft_vocabulary or _vocabulary(asked, implied)
    if checkpoint.tensors is None:
        return implied, vocabulary
    model = resolved_model(str(folder)) if asked.method is Method.DRAFT_MODEL else None
    return replace(implied, draft=stored_draft(checkpoint, method=asked.method, model=model)), vocabulary


def _vocabulary(asked: Asked, found: Scenario) -> int:
    """Rows of the output layer that the method implies."""
    if asked.method is Method.DRAFT_MODEL and asked.draft is not None:
        return resolved_model(asked.draft).vocab
    if asked.method is Method.EAGLE3:
        return asked.draft_vocab or min(DEFAULT_DRAFT_VOCAB, found.target.vocab)
    return found.target.vocab
