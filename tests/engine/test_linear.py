"""The product with few rows: the library's numbers, whatever the number of rows and threads."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from paceline.engine.few_rows import multiply, multiply_in_threads
from paceline.engine.linear import MOST_FEW_ROWS, linear


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8, MOST_FEW_ROWS, MOST_FEW_ROWS + 1])
@pytest.mark.parametrize(("outputs", "inputs"), [(8, 5), (12, 64), (6, 7)])
def test_every_number_of_rows_gives_the_library_s_product(rows: int, outputs: int, inputs: int) -> None:
    """A padded row that leaks, or a last column that is left out, changes every text."""
    torch.manual_seed(rows)
    x, weight, bias = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(outputs)
    torch.testing.assert_close(linear(x, weight), functional.linear(x, weight), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(linear(x, weight, bias), functional.linear(x, weight, bias), rtol=1e-5, atol=1e-5)


def test_a_row_s_product_does_not_depend_on_its_neighbours() -> None:
    """A draft's length would decide which of two near-equal tokens is written."""
    torch.manual_seed(1)
    x, weight = torch.randn(12, 576), torch.randn(64, 576)
    together = linear(x, weight)
    for rows in (2, 3, 7):
        assert torch.equal(linear(x[:rows], weight), together[:rows])


def test_threads_share_the_same_sums() -> None:
    """Two runs of one seed on one machine would differ with the number of cores that were free."""
    rng = np.random.default_rng(3)
    x, weight = rng.normal(size=(8, 70)).astype(np.float32), rng.normal(size=(40, 70)).astype(np.float32)
    alone, shared = np.zeros((8, 40), dtype=np.float32), np.zeros((8, 40), dtype=np.float32)
    multiply(x, weight, alone)
    multiply_in_threads(x, weight, shared)
    np.testing.assert_array_equal(alone, shared)
    np.testing.assert_allclose(alone, x @ weight.T, rtol=1e-4, atol=1e-5)


def test_training_goes_through_the_library() -> None:
    """The short kernel has no gradient: a head would be trained without the layer that uses it."""
    x, weight = torch.randn(4, 8), torch.randn(8, 8, requires_grad=True)
    linear(x, weight).sum().backward()
    assert weight.grad is not None
