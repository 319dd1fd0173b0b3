"""The rows of a table that missed steps of a lazy optimizer."""

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled


@compiled
def rows_behind(
    rows: NDArray[np.integer], last: NDArray[np.int32], now: int
) -> NDArray[np.int64]:
    """Return those of `rows` that were last brought up to a step before `now`, each once."""
    found, count = np.empty(len(rows), np.int64), 0
    for row in rows:
        if 0 <= last[row] < now:
            found[count] = row
            count += 1
            last[row] = ~last[row]  # below 0 until the end: found before
    for place in range(count):
        last[found[place]] = ~last[found[place]]
    return found[:count]
