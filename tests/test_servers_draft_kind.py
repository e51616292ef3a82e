"""What kind of draft a folder holds is told from what is in it, for folders are named after anything."""

from typing import Any

import pytest

from paceline.checkpoint import Checkpoint, TensorHeader
from paceline.servers.draft_kind import CALLED, draft_kind
from tests.checkpoints import BODY, HEAD, HEAD_BODY, LLAMA

ONE_LAYER = LLAMA | {"num_hidden_layers": 1}
EAGLE_BODY = {"fc.weight": ("BF16", (8, 16)), "layers.0.mlp.up_proj.weight": ("BF16", (16, 8)), "embed_tokens.weight": ("BF16", (32, 8))}


def kind(config: Any, tensors: Any) -> str | None:
    shapes = None if tensors is None else {each: TensorHeader(*header) for each, header in tensors.items()}
    return draft_kind(Checkpoint(name="m", config=config, tensors=shapes, target_ids=None, tokens=None))


def without(tensors: dict[str, Any], name: str) -> dict[str, Any]:
    return {each: header for each, header in tensors.items() if each != name}


@pytest.mark.parametrize(
    ("config", "tensors", "expected"),
    [
        (HEAD, None, "eagle3"),
        (ONE_LAYER, HEAD_BODY, "eagle3"),
        (ONE_LAYER, {"layers.0.hidden_norm.weight": ("BF16", (8,)), "norm.weight": ("BF16", (8,))}, "eagle3"),
        (ONE_LAYER, {"d2t": ("I64", (10,))}, "eagle3"),
        (ONE_LAYER, EAGLE_BODY, "eagle"),
        (ONE_LAYER, {"fusion_fc.weight": ("BF16", (8, 16))}, "eagle"),
        ({"architectures": ["EagleLlamaForCausalLM"]}, None, "eagle"),
        ({"model_type": "medusa"}, None, "medusa"),
        (LLAMA | {"medusa_num_heads": 4}, None, "medusa"),
        (LLAMA, {"0.0.linear.weight": ("BF16", (8, 8)), "0.1.weight": ("BF16", (32, 8))}, "medusa"),
        (LLAMA, BODY, "draft_model"),
    ],
)
def test_a_kind_is_told_from_what_is_there(config: Any, tensors: Any, expected: str) -> None:
    """Whoever gives one kind for another: the refusal would name the wrong remedy."""
    assert kind(config, tensors) == expected
    assert expected in CALLED


@pytest.mark.parametrize(
    ("config", "tensors"),
    [
        ({"speculators_model_type": "dflash", "architectures": ["DFlashDraftModel"]}, HEAD_BODY),
        (ONE_LAYER, without(EAGLE_BODY, "fc.weight")),
        (LLAMA, None),
        ({}, {"fc.weight": ("BF16", (8, 16))}),
    ],
)
def test_what_cannot_be_told_is_not_guessed(config: Any, tensors: Any) -> None:
    """Whoever lost a tensor of an EAGLE head, which is no whole model for having embeddings; and other drafters have no rule here."""
    assert kind(config, tensors) is None
