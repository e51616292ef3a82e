"""What train-eagle3 and a neural replay do once they are asked."""

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from paceline.cli.output import answer, progress, say
from paceline.errors import BadInputError
from paceline.report.evidence import replayed_dict, replayed_text
from paceline.report.heads import head_dict, head_text, speculators_dict, speculators_text
from paceline.speculation.method import Method

if TYPE_CHECKING:
    from paceline.jobs.draft_heads import HeadAsked
    from paceline.jobs.target_states import LogAsked

__all__ = ["engine_needed", "run_neural_replay", "run_train_eagle3"]

CONFIDENCE = 0.95
DRAFTS = {Method.EAGLE3: "EAGLE-3", Method.DRAFT_MODEL: "draft-model"}
ARGMAX_NOTE = "drafts are named by argmax, as vLLM and SGLang do unless told otherwise; --draft-temperature draws them"


@contextmanager
def bars() -> Iterator[Callable[[str, float | None], Callable[[float], None]]]:
    """Makes one bar after the other: each ends the one before, and the block the last."""
    with ExitStack() as held:

        def begin(what: str, total: float | None) -> Callable[[float], None]:
            held.close()
            return held.enter_context(progress(what, total))

        yield begin


@contextmanager
def engine_needed() -> Iterator[None]:
    """Nothing, where torch is installed.

    Raises:
        BadInputError: it is not.

    """
    try:
        yield
    except ModuleNotFoundError as fault:
        raise BadInputError(f"this needs {fault.name}, which is not installed; install paceline with its extra: paceline[engine]") from None


def _log_asked(options: argparse.Namespace, *, sharded: bool) -> "LogAsked":
    """The exchanges that were asked for, answered by the target or as logged."""
    with engine_needed():
        from paceline.jobs.target_states import LogAsked
    return LogAsked(
        target=options.target,
        logs=tuple(Path(each) for each in options.logs),
        segment_rule=options.segment_rule,
        segment_field=options.segment_field,
        logged_answers=options.logged_answers,
        max_tokens=options.max_tokens,
        sharded=sharded,
    )


def run_train_eagle3(options: argparse.Namespace) -> int:
    """`train-eagle3`: the head is the result, its figures are printed."""
    with engine_needed():
        from paceline.engine.train_eagle3.training import Settings
        from paceline.jobs.draft_heads import HeadAsked, train_head
    settings = Settings(
        epochs=options.epochs,
        rows=options.rows,
        passes=options.passes,
        draft_tokens=options.draft_tokens,
        learning_rate=options.learning_rate,
        weight_decay=options.weight_decay,
        pass_decay=options.pass_decay,
        elsewhere=options.elsewhere,
        average=options.average,
        save_every=options.save_every,
        seed=options.seed,
    )
    asked = HeadAsked(
        log=_log_asked(options, sharded=options.fsdp),
        aux_layers=options.aux_layers,
        draft_vocab=options.draft_vocab,
        intermediate=options.intermediate,
        held_out=options.held_out,
        confidence=CONFIDENCE,
        settings=settings,
    )
    try:
        if options.for_speculators is not None:
            return _prepare_for_speculators(options, asked)
        with bars() as bar:
            head = train_head(asked, options.out, resume=options.resume, step=say, bar=bar)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command with --resume goes on from what is kept") from None
    if head is not None:
        body = head_dict(head)
        answer(options, body=body, text=head_text(body, out=str(options.out)), inputs=head.inputs)
    return 0


def _prepare_for_speculators(options: argparse.Namespace, asked: "HeadAsked") -> int:
    from paceline.jobs.draft_heads import prepare_for_speculators

    with bars() as bar:
        data = prepare_for_speculators(asked, options.out, options.for_speculators, resume=options.resume, step=say, bar=bar)
    if data is not None:
        text = speculators_text(data, target=str(options.target), folder=str(options.for_speculators))
        answer(options, body=speculators_dict(data), text=text, inputs=data.inputs)
    return 0


def run_neural_replay(options: argparse.Namespace) -> int:
    """`replay` with a model: acceptance of a head's or a draft model's drafts, by segment."""
    if options.target is None or options.draft is None:
        raise BadInputError(f"--method {options.method} needs the folders of both models: give --target DIR and --draft DIR")
    with engine_needed():
        from paceline.jobs.draft_heads import Drafting, neural_replay
    method = Method(options.method)
    drafting = Drafting(
        method=method,
        draft=options.draft,
        draft_tokens=options.draft_tokens,
        temperature=options.draft_temperature,
        seed=options.seed,
    )
    with bars() as bar, tempfile.TemporaryDirectory() as scratch:
        groups, seen = neural_replay(
            _log_asked(options, sharded=False), drafting, folder=options.states or Path(scratch), step=say, bar=bar
        )
    exchanges = sum(map(len, groups.values()))
    body = replayed_dict(groups, confidence=CONFIDENCE, rng=np.random.default_rng(options.seed))
    answered = "the log's own answers" if options.logged_answers else "the target answered every prompt at temperature 0"
    notes = [answered, *([ARGMAX_NOTE] if options.draft_temperature is None else []), *([seen.left_out] if seen.left_out else [])]
    text = replayed_text(body, drafts=DRAFTS[method], exchanges=exchanges, notes=notes)
    answer(options, body={"exchanges": exchanges, **body, "notes": notes}, text=text, inputs=seen.inputs)
    return 0
