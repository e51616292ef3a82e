"""What `diagnose` does once it is asked."""

import argparse

from paceline.cli.output import answer
from paceline.errors import BadInputError
from paceline.jobs.diagnosing import Expected, ToDiagnose, diagnosed
from paceline.report.diagnosis import diagnosis_dict, diagnosis_text
from paceline.speculation.method import Speculation

__all__ = ["run_diagnose"]


def run_diagnose(options: argparse.Namespace) -> int:
    """`diagnose`: ranked causes with figures and remedies. Exit code 0 whatever they are: it decides nothing."""
    found, inputs = diagnosed(_asked(options))
    answer(options, body=diagnosis_dict(found), text=diagnosis_text(found), inputs=inputs)
    return 0


def _asked(options: argparse.Namespace) -> ToDiagnose:
    """What was typed.

    Raises:
        BadInputError: options that do not go together.

    """
    if (options.method is None) != (options.draft_tokens is None):
        raise BadInputError("--method and --draft-tokens say together how the speculative server drafts; give both or neither")
    if options.target is None and (options.gpus is not None or options.draft is not None):
        raise BadInputError("--gpus and --draft describe where --target runs and with what; give --target too")
    expected = None
    if options.target is not None:
        expected = Expected(target=options.target, gpu=options.gpu, gpus=options.gpus, dtype=options.dtype, draft=options.draft)
    return ToDiagnose(
        evidence=tuple(options.evidence),
        answers=(options.baseline_answers, options.speculative_answers),
        speculation=None if options.method is None else Speculation(method=options.method, draft_tokens=options.draft_tokens, tree=None),
        expected=expected,
        tokenizer=options.tokenizer,
        margin=options.margin,
        confidence=options.confidence,
        seed=options.seed,
    )
