"""Advice that can be followed, where a target does not fit."""

import pytest

from paceline.errors import BadInputError
from paceline.forecast.roofline import Placement
from paceline.forecast.shapes import gpu, known_gpus, model
from paceline.forecast.what_fits import what_fits
from paceline.hardware import Dtype
from paceline.jobs.scenario import Asked, scenario
from paceline.speculation.method import Method

DEEPSEEK = 671e9


def advice(weights: float, gpu_name: str, gpus: int, dtype: Dtype, heads: int = 128) -> str:
    """What to do, with 90 % of memory."""
    where = Placement(gpu=gpu(gpu_name), gpus=gpus, dtype=dtype)
    return what_fits(where, heads=heads, weight_bytes=lambda each: weights * each.weight_bytes, utilisation=0.9)


@pytest.mark.parametrize(
    ("weights", "gpu_name", "gpus", "dtype", "said"),
    [
        (70e9, "h100", 1, Dtype.BF16, "take --gpus 2 or --dtype fp8 or --gpu b200"),
        (
            DEEPSEEK,
            "h100",
            4,
            Dtype.FP8,
            "no 8 h100 of one node hold it in fp8, and several nodes are not priced; take --dtype fp4 --gpus 8",
        ),
        (DEEPSEEK, "h200", 4, Dtype.FP8, "take --gpus 8"),
        (9e12, "h100", 8, Dtype.FP8, "several nodes are not priced; nor does any GPU or dtype known here"),
    ],
)
def test_what_is_advised_is_the_next_thing_that_holds_the_target(weights: float, gpu_name: str, gpus: int, dtype: Dtype, said: str) -> None:
    """--gpus 16 would be refused the next moment."""
    assert said in advice(weights, gpu_name, gpus, dtype)


def test_what_is_advised_can_be_asked_for() -> None:
    """For each GPU and dtype: the advice, typed as it stands, fits."""
    target, tried = model("deepseek-v3"), 0
    for name in known_gpus():
        for dtype in Dtype:
            for gpus in (1, 4, 8):
                asked = Asked("deepseek-v3", name, gpus, dtype, 0.9, Method.MTP, None, 2, None, None)
                try:
                    scenario(asked)
                except BadInputError as fault:
                    for each in filter(None, str(fault).partition("take ")[2].split(" or ")):
                        words = each.split()
                        typed = dict(zip(words[::2], words[1::2], strict=True))
                        scenario(
                            Asked(
                                target.name,
                                typed.get("--gpu", name),
                                int(typed.get("--gpus", gpus)),
                                Dtype(typed.get("--dtype", dtype)),
                                0.9,
                                Method.MTP,
                                None,
                                2,
                                None,
                                None,
                            )
                        )
                        tried += 1
    assert tried > 20
