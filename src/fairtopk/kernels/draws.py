"""A number drawn for each of some rows, whatever other rows there are."""

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.random import stream, uniform


@compiled
def draws(seed: int, purpose: int, row: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return a number in [0, 1) of the stream (seed, purpose, row) of each row, ``[n]``."""
    values = np.empty(len(row), np.float64)
    for place in range(len(row)):
        values[place] = uniform(stream(seed, purpose, row[place]))
    return values
