"""Memory is answered from the draft's own files where they are there."""

from dataclasses import replace
from pathlib import Path

import pytest

from paceline.errors import BadInputError
from paceline.forecast.activations import LargestStep
from paceline.jobs.memory import Memory, memory_asked
from paceline.jobs.scenario import Asked
from paceline.speculation.method import Method
from tests.checkpoints import BODY, HEAD, HEAD_BODY, LLAMA, folder
from tests.test_jobs_scenario import ASKED

EIGHT = replace(ASKED, target="llama-3.1-8b", gpus=1)
STEP = LargestStep(requests=64, step_tokens=4096)
LOGITS = 64 * 6


def answered(asked: Asked) -> Memory:
    return memory_asked(asked, context_tokens=2000, step=STEP)


def test_a_head_s_own_tensors_are_counted(tmp_path: Path) -> None:
    """Whoever trained a small head: it is not charged for a published one."""
    head = folder(tmp_path / "head", HEAD, HEAD_BODY, d2t=[0] * 10)
    found, implied = answered(replace(EIGHT, draft=str(head))), answered(EIGHT)
    assert (found.stored, implied.stored) == (True, False)
    assert found.fits.draft_weight_bytes == 2 * (8 * 24 + 8 * 16 + 8 + 10 * 8) + 10 * 8
    assert found.fits.draft_weight_bytes < implied.fits.draft_weight_bytes
    assert found.activations.speculative.draft_logits_bytes == 10 * LOGITS
    assert implied.activations.speculative.draft_logits_bytes == 32_000 * LOGITS


def test_a_folder_without_weights_is_counted_by_its_method(tmp_path: Path) -> None:
    """Whoever has a configuration only: the shape that the method implies, and the vocabulary that is stated."""
    head = folder(tmp_path / "head", HEAD, None)
    found = answered(replace(EIGHT, draft=str(head)))
    assert not found.stored
    assert found.activations.speculative.draft_logits_bytes == 10 * LOGITS


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    """Whoever has the head as a pickle: it is never opened, and the remedy is said."""
    head = folder(tmp_path / "head", HEAD, None)
    (head / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(BadInputError, match="convert them to safetensors"):
        answered(replace(EIGHT, draft=str(head)))


def test_each_method_s_output_layer_is_its_own(tmp_path: Path) -> None:
    """Whoever compares methods: a draft model has its own vocabulary, EAGLE and MTP the target's, a lookup none."""
    rows = {
        Method.NGRAM: 0,
        Method.EAGLE: 128_256,
        Method.MTP: 128_256,
    }
    for method, vocabulary in rows.items():
        assert answered(replace(EIGHT, method=method)).activations.speculative.draft_logits_bytes == vocabulary * LOGITS
    small = folder(tmp_path / "small", LLAMA, BODY)
    found = answered(replace(EIGHT, method=Method.DRAFT_MODEL, draft=str(small)))
    assert (found.stored, found.activations.speculative.draft_logits_bytes) == (True, 32 * LOGITS)
    named = answered(replace(EIGHT, method=Method.DRAFT_MODEL, draft="llama-3.2-1b"))
    assert (named.stored, named.activations.speculative.draft_logits_bytes) == (False, 128_256 * LOGITS)
