"""Rows in the order of their keys, as far as that is wanted.

A binary heap: what numba has for sorting takes a second and a half to compile.
"""

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import inlined

Keys = NDArray[np.float64]
Rows = NDArray[np.int64]


@inlined
def put_smallest_last(keys: Keys, rows: Rows, wanted: int) -> None:
    """Order rows so that the `wanted` with the smallest keys end them, the smallest last.

    Args:
        keys: Without NaN; no two of the smallest are equal.
        rows: Numbers of keys, put in order.
        wanted: How many are wanted.
    """
    top, n = np.int64(0), len(rows)  # numba would compile for a plain 0 by itself
    for start in range(n // 2 - 1, -1, -1):
        _sink(keys, rows, start, n)
    for last in range(n - 1, max(n - 1 - wanted, 0), -1):
        rows[0], rows[last] = rows[last], rows[0]
        _sink(keys, rows, top, last)


@inlined
def _sink(keys: Keys, rows: Rows, place: int | np.int64, n: int) -> None:
    """Let a row sink below all of the first `n` whose keys are smaller, as far as it has to."""
    row = rows[place]
    below = 2 * place + 1
    while below < n:
        if below + 1 < n and keys[rows[below + 1]] < keys[rows[below]]:
            below += 1
        if keys[rows[below]] >= keys[row]:
            break
        rows[place] = rows[below]
        place, below = below, 2 * below + 1
    rows[place] = row
