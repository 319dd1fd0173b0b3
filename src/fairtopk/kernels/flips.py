"""Sums of the rows that draws pick, for many draws at once."""

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled

BITS, VALUES = 8, 256  # of a byte

Doubles = NDArray[np.float64]


def picked_sums(rows: Doubles, draws: NDArray[np.uint8]) -> Doubles:
    """Return the sum of the rows that each draw picks, ``[D, M]``.

    Args:
        rows: What is added up, ``[n, M]``.
        draws: Bits that pick rows, eight to a byte as `np.packbits` has them, ``[D, n / 8]``
            rounded up; bits past the last row pick nothing.
    """
    sums = np.zeros((len(draws), rows.shape[1]))
    _add_picked(rows, draws, np.zeros((VALUES, rows.shape[1])), sums)
    return sums


@compiled
def _add_picked(rows: Doubles, draws: NDArray[np.uint8], table: Doubles, sums: Doubles) -> None:
    """Add eight rows at a time: the sums of all choices among them serve every draw.

    `table` is room for those, 0 for none of them, ``[256, M]``.
    """
    (n, width), (n_draws, n_bytes) = rows.shape, draws.shape
    for byte in range(n_bytes):
        filled = 1
        for row in range(BITS - 1, -1, -1):  # the last row has the lowest bit
            place = BITS * byte + row
            for value in range(filled):
                for column in range(width):
                    more = rows[place, column] if place < n else 0.0
                    table[filled + value, column] = table[value, column] + more
            filled *= 2
        for draw in range(n_draws):
            picked = draws[draw, byte]
            for column in range(width):
                sums[draw, column] += table[picked, column]
