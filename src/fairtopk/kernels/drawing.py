"""Normal numbers, and a table for drawing rows in proportion to weights."""

import math

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled, inlined
from fairtopk.kernels.random import advance, stream, uniform


@inlined
def normal(state: np.uint64) -> float:
    """Return a standard normal number made of `state` and the next (Box and Muller)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - uniform(state)))
    return radius * math.cos(2.0 * math.pi * uniform(advance(state)))


def normals(seed: int, purpose: int, count: int) -> NDArray[np.float64]:
    """Return one standard normal number of each stream (seed, purpose, 0), ..., ``[count]``."""
    values = np.empty(count, np.float64)
    _fill_normals(seed, purpose, values)
    return values


@compiled
def _fill_normals(seed: int, purpose: int, values: NDArray[np.float64]) -> None:
    for row in range(len(values)):
        values[row] = normal(stream(seed, purpose, row))


def alias_table(weight: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Return a table for drawing rows in proportion to `weight` in constant time (Vose).

    A place k drawn uniformly stands for itself with chance ``keep[k]``, else for ``alias[k]``.
    """
    total = 0.0
    for one in weight.tolist():  # one after the other: numpy's sum has another last bit
        total += one
    keep = weight * (len(weight) / total)
    alias = np.arange(len(weight), dtype=np.int32)
    _share_out(keep, alias, np.empty(len(weight), np.int64))
    return keep, alias


@compiled
def _share_out(
    keep: NDArray[np.float64], alias: NDArray[np.int32], stack: NDArray[np.int64]
) -> None:
    """Let places with chance to spare stand for rows with too much; `stack` is room."""
    # One stack grows from each end: places with chance to spare, and rows with too much.
    count = len(keep)
    spare, excess = 0, count
    for row in range(count):
        if keep[row] < 1.0:
            stack[spare] = row
            spare += 1
        else:
            excess -= 1
            stack[excess] = row
    while spare > 0 and excess < count:
        spare -= 1
        place, giver = stack[spare], stack[excess]
        alias[place] = giver
        keep[giver] -= 1.0 - keep[place]
        if keep[giver] < 1.0:
            excess += 1
            stack[spare] = giver
            spare += 1
