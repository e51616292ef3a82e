"""The law a token is drawn from: by hand, and against the obvious version."""

import numpy as np
import pytest
import torch

from paceline.engine.sampling import GREEDY, Sampling, token_law, token_laws
from paceline.errors import BadInputError

LOGITS = torch.tensor([0.5, 0.2, 0.2, 0.1], dtype=torch.float64).log()
PLAIN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0)


def changed(**changes: float) -> Sampling:
    """Plain sampling with some of it changed."""
    values = {name: getattr(PLAIN, name) for name in Sampling.__slots__}
    return Sampling(**{**values, **changes})


@pytest.mark.parametrize(
    ("sampling", "law"),
    [
        (PLAIN, [0.5, 0.2, 0.2, 0.1]),
        (GREEDY, [1, 0, 0, 0]),
        (changed(temperature=0.5), [25 / 34, 4 / 34, 4 / 34, 1 / 34]),
        (changed(top_k=2), [5 / 7, 2 / 7, 0, 0]),
        (changed(top_k=9), [0.5, 0.2, 0.2, 0.1]),
        (changed(top_p=0.49), [1, 0, 0, 0]),
        (changed(top_p=0.71), [5 / 9, 2 / 9, 2 / 9, 0]),
        (changed(min_p=0.3), [5 / 9, 2 / 9, 2 / 9, 0]),
        (changed(top_k=3, top_p=0.6), [5 / 7, 2 / 7, 0, 0]),
    ],
)
def test_each_setting_leaves_the_law_it_promises(sampling: Sampling, law: list[float]) -> None:
    """Engines differ in the order of these steps: with another order another law is verified than was asked for.

    top_k 3 then top_p .6: 5/9 lies below .6, so the next token is kept too.
    """
    torch.testing.assert_close(token_law(LOGITS, sampling, prompt=(), output=()), torch.tensor(law, dtype=torch.float64))


def test_penalties_count_what_was_written() -> None:
    """By hand: token 3 twice in the output: its logit falls by .4 + 2 · .3; token 1 in the prompt alone: only divided, or multiplied."""
    logits = torch.tensor([2.0, -1.0, 0.5, 3.0], dtype=torch.float64)
    sampling = changed(repetition_penalty=2.0, presence_penalty=0.4, frequency_penalty=0.3)
    wanted = torch.softmax(torch.tensor([2.0, -2.0, 0.5, 1.5 - 1.0], dtype=torch.float64), dim=0)
    torch.testing.assert_close(token_law(logits, sampling, prompt=(1,), output=(3, 3)), wanted)
    assert logits.tolist() == [2.0, -1.0, 0.5, 3.0]


def test_each_node_is_penalised_for_its_own_path() -> None:
    """A drafted token that is repeated within the draft would be verified as if it were new."""
    sampling = changed(presence_penalty=1.5)
    paths = [(), (0,), (0, 2)]
    laws = token_laws(LOGITS.expand(3, 4), sampling, prompt=(3,), output=(1,), paths=paths)
    for law, path in zip(laws, paths, strict=True):
        torch.testing.assert_close(law, token_law(LOGITS, sampling, prompt=(3,), output=(1, *path)))
    assert laws[2][2] < laws[1][2]


@pytest.mark.parametrize("seed", range(20))
def test_the_law_is_the_obvious_one(seed: int) -> None:
    """Sorting whole vocabularies and cutting them is where ties and roundings go wrong."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=30) * 2
    t, k, p, m = rng.uniform(0.3, 2), int(rng.integers(1, 30)), rng.uniform(0.2, 1), rng.uniform(0, 0.2)
    law = np.exp(logits / t) / np.exp(logits / t).sum()
    law[law < m * law.max()] = 0
    order = sorted(range(30), key=lambda token: -law[token])
    law[order[k:]] = 0
    law /= law.sum()
    mass = 0.0
    for token in order:
        kept = mass < p
        mass += law[token]
        law[token] *= kept
    made = token_law(torch.tensor(logits), changed(temperature=t, top_k=k, top_p=p, min_p=m), prompt=(), output=())
    np.testing.assert_allclose(made.numpy(), law / law.sum(), atol=1e-12)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -1.0),
        ("temperature", float("inf")),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", 1.5),
        ("repetition_penalty", 0.0),
        ("presence_penalty", float("nan")),
        ("frequency_penalty", float("inf")),
    ],
)
def test_settings_that_draw_nothing_are_refused(name: str, value: float) -> None:
    """A typing error in a request would silently mean something."""
    with pytest.raises(BadInputError, match=name.replace("_", ".").split("_penalty")[0].split(".penalty")[0]):
        changed(**{name: value})
