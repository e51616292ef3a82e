"""y = x Wᵀ for a few rows x on a CPU, in one pass over W.

Verification multiplies K + 1 rows with every weight of the target. That should cost what one row costs, since reading the weights is what
takes the time; the libraries' kernels for small matrices read them several times, or arrange them anew. Here four rows of W are read once
and stay in the first cache while four rows of x after another pass over them, 16 sums at a time.

Sums are float32 and in the same order for every row, however many rows there are. Numba takes no keyword-only arguments.
"""

import numpy as np
import numpy.typing as npt
from numba import config, njit, prange, set_num_threads

__all__ = ["BLOCK", "multiply", "multiply_in_threads", "use_threads"]

BLOCK = 4
Matrix = npt.NDArray[np.float32]


@njit(cache=True, fastmath=True, inline="always")
def _block(x: Matrix, w: Matrix, out: Matrix, row: int, column: int) -> None:
    """Four rows of x times four rows of W."""
    w0, w1, w2, w3 = w[column], w[column + 1], w[column + 2], w[column + 3]
    x0, x1, x2, x3 = x[row], x[row + 1], x[row + 2], x[row + 3]
    zero = np.float32(0)
    s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = zero
    for k in range(x.shape[1]):
        a, b, c, d = w0[k], w1[k], w2[k], w3[k]
        s00, s01, s02, s03 = s00 + x0[k] * a, s01 + x0[k] * b, s02 + x0[k] * c, s03 + x0[k] * d
        s10, s11, s12, s13 = s10 + x1[k] * a, s11 + x1[k] * b, s12 + x1[k] * c, s13 + x1[k] * d
        s20, s21, s22, s23 = s20 + x2[k] * a, s21 + x2[k] * b, s22 + x2[k] * c, s23 + x2[k] * d
        s30, s31, s32, s33 = s30 + x3[k] * a, s31 + x3[k] * b, s32 + x3[k] * c, s33 + x3[k] * d
    out[row, column], out[row, column + 1], out[row, column + 2], out[row, column + 3] = s00, s01, s02, s03
    out[row + 1, column], out[row + 1, column + 1], out[row + 1, column + 2], out[row + 1, column + 3] = s10, s11, s12, s13
    out[row + 2, column], out[row + 2, column + 1], out[row + 2, column + 2], out[row + 2, column + 3] = s20, s21, s22, s23
    out[row + 3, column], out[row + 3, column + 1], out[row + 3, column + 2], out[row + 3, column + 3] = s30, s31, s32, s33


@njit(cache=True, fastmath=True, nogil=True)
def multiply(x: Matrix, w: Matrix, out: Matrix) -> None:
    """Write x [rows, inputs] times W [outputs, inputs] to out [rows, outputs]; rows and outputs are multiples of four."""
    for block in range(w.shape[0] // BLOCK):
        for group in range(x.shape[0] // BLOCK):
            _block(x, w, out, group * BLOCK, block * BLOCK)


@njit(cache=True, fastmath=True, nogil=True, parallel=True)
def multiply_in_threads(x: Matrix, w: Matrix, out: Matrix) -> None:
    """`multiply`, the outputs shared out over numba's threads."""
    for block in prange(w.shape[0] // BLOCK):
        for group in range(x.shape[0] // BLOCK):
            _block(x, w, out, group * BLOCK, block * BLOCK)


def use_threads(threads: int) -> int:
    """Let `multiply_in_threads` use so many threads, as far as the process has them; how many it uses."""
    usable = min(threads, int(config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]  # numba sets it at run time
    set_num_threads(usable)
    return usable
