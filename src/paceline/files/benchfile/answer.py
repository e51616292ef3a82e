"""One answer of an OpenAI-compatible server, saved as it came: what the server says of drafts in it.

vLLM puts them under `metrics.speculative_decoding` (0.29 on, with a server flag); llama.cpp under `timings`. OpenAI's own
`accepted_prediction_tokens` in `usage` are about predicted outputs, another feature: never acceptance of drafts.
"""

from pathlib import Path

from paceline.errors import BadInputError, NoEvidenceError, printable
from paceline.files.benchfile.acceptance import request_counts, request_doubts
from paceline.files.benchfile.assemble import Told, found_of, stated_load, summary
from paceline.files.benchfile.documents import whole_document
from paceline.files.benchfile.fields import Fields, as_object
from paceline.files.found import Found, sha256_of
from paceline.run import Arm

__all__ = ["is_answer", "read_answer"]


def is_answer(head: str) -> bool:
    """Whether the file begins as one."""
    return (
        any(f'"{key}":' in head for key in ("speculative_decoding", "completion_tokens_details"))
        or '"object": "chat.completion"' in head
        or ('"timings":' in head and '"predicted_n":' in head)
    )


def read_answer(path: Path) -> tuple[Found, ...]:
    """The answer's acceptance as a run of one request without latencies.

    Raises:
        BadInputError: its counts contradict each other.
        NoEvidenceError: it says nothing of drafts.

    """
    document = Fields(as_object(whole_document(path), printable(path.name)), "")
    tokens = document.object("usage").count("completion_tokens")
    spec, timings = document.object("metrics").object("speculative_decoding"), document.object("timings")
    told = Told(arm=Arm.SPECULATIVE)
    stated_load(rate_per_s=None, concurrency=None, requests=None, told=told)
    if spec.values:
        counts = request_counts(spec, output_tokens=tokens, chunks=None)
        if counts is None:
            raise BadInputError(f"{printable(path.name)}: the answer's counts of drafts contradict each other")
        told.acceptance = {"all": counts}
        told.cautions += request_doubts(spec, counts)
    elif timings.has("draft_n"):
        drafted, accepted = timings.count("draft_n") or 0, timings.count("draft_n_accepted") or 0
        if accepted > drafted:
            raise BadInputError(f"{printable(path.name)}: {accepted} drafts accepted of {drafted}")
        if drafted:
            told.summaries["alpha"] = summary(accepted / drafted, "pooled", drafted)
    else:
        raise NoEvidenceError(
            f"{printable(path.name)} is one answer that says nothing of drafts (prediction tokens in `usage` are OpenAI's predicted "
            "outputs, not drafts); start vLLM with --per-request-spec-decode-metrics summary"
        )
    told.note("one_answer", "this is one answer: acceptance differs by half between prompts; measure many")
    return (found_of(told, made_by="one answer of a server", inputs={path.name: sha256_of(path)}),)
