"""Doubly stochastic matrices with a quadratic term, many lists at a time.

The P that maximises a^T P v - (mu/2) |P|^2 over matrices whose rows and columns add up to 1 is
the Euclidean projection of a v^T / mu onto them,

    P_ij = max(0, c_i v_j - x_i - z_j),  c = a / mu,

with thresholds x of the rows and z of the columns. Given z, each x_i is where row i adds up to
1, and the other way round; taking turns leads to P. Whatever z is, such an x is a convex
function of c, and whatever x is, such a z is one of v. So the entries above 0 of a row are an
interval, whose ends both move on from one row to that with the next lower c: all thresholds of
one side take 2 n steps, not n^2.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SWEEPS = 100_000  # after which thresholds are taken as they are


class Precision(NamedTuple):
    """How much P is smoothed, and how nearly its rows and columns add up to 1."""

    mu: float
    tolerance: float


@compiled
def project(
    price: Floats,
    mask: NDArray[np.bool_],
    precision: Precision,
    exposure: Floats,
    value: Floats,
) -> None:
    """Fill in the exposure P v of each item, and the largest a^T P v - (mu/2) |P|^2.

    Args:
        price: What exposure of an item is worth, a, ``[Q, L]``.
        mask: False on padding, where nothing is filled in, ``[Q, L]``.
        precision: Of P.
        exposure: ``[Q, L]``.
        value: ``[Q]``.
    """
    for query in range(len(mask)):
        inside = np.flatnonzero(mask[query])
        n = len(inside)
        slot, c, x, z = _projected(price[query][inside], precision)
        found = np.empty(n)
        _exposures(c, discounts(n), z, found)
        total = 0.0
        for row in range(n):
            exposure[query, inside[slot[row]]] = found[row]
            total += c[row] * found[row] + x[row] + z[row]
        value[query] = precision.mu / 2.0 * total


@compiled
def matrix(price: Floats, precision: Precision) -> Floats:
    """Return P of a list, slots by places, ``[n, n]``, given its prices, ``[n]``."""
    n = len(price)
    slot, c, x, z = _projected(price, precision)
    v, found = discounts(n), np.empty((n, n))
    for row in range(n):
        for place in range(n):
            found[slot[row], place] = max(0.0, c[row] * v[place] - x[row] - z[place])
    return found


@compiled
def discounts(n: int) -> Floats:
    """Return the exposure of each place, v_j = 1 / log2(1 + j), ``[n]``."""
    found: Floats = 1.0 / np.log2(np.arange(2.0, n + 2.0))
    return found


@compiled
def _projected(price: Floats, precision: Precision) -> tuple[Integers, Floats, Floats, Floats]:
    """Return slots by falling price, and in that order c and x; and z by place."""
    n = len(price)
    slot = np.argsort(-price, kind="mergesort")
    c, v = price[slot] / precision.mu, discounts(n)
    x, z = np.empty(n), np.zeros(n)
    first, past = np.empty(n, np.int64), np.empty(n, np.int64)
    moved, sweep = np.inf, 0
    while True:
        _thresholds(c, v, z, x, first, past)
        if moved <= precision.tolerance or sweep == SWEEPS:
            return slot, c, x, z
        moved = renew(v, c, x, z)
        sweep += 1


@compiled
def renew(v: Floats, c: Floats, x: Floats, z: Floats) -> float:
    """Renew the columns' thresholds; return by how much no column's sum was off more."""
    n = len(v)
    new, first, past = np.empty(n), np.empty(n, np.int64), np.empty(n, np.int64)
    _thresholds(v, c, x, new, first, past)
    most = 0.0
    for place in range(n):
        most = max(most, abs(new[place] - z[place]) * (past[place] - first[place]))
        z[place] = new[place]
    return most


@compiled
def _thresholds(
    points: Floats,
    knots: Floats,
    heights: Floats,
    levels: Floats,
    first: Integers,
    past: Integers,
) -> None:
    """Fill in the level at which each row max(0, points knots - heights - level) adds up to 1.

    Points and knots never rise, and heights are convex in the knots. `first` and `past` are the
    ends of the interval where a row is above 0.
    """
    of_knots, of_heights = running(knots), running(heights)
    start, stop = 0, 1
    for row in range(len(points)):
        point = points[row]
        while True:
            total = point * (of_knots[stop] - of_knots[start])
            level = (total - of_heights[stop] + of_heights[start] - 1.0) / (stop - start)
            if stop - start > 1 and point * knots[start] - heights[start] <= level:
                start += 1
            elif stop < len(knots) and point * knots[stop] - heights[stop] > level:
                stop += 1
            else:
                break
        levels[row], first[row], past[row] = level, start, stop


@compiled
def _exposures(c: Floats, v: Floats, z: Floats, exposure: Floats) -> None:
    """Fill in sum_j P_ij v_j of rows by falling c, given the columns' thresholds."""
    n = len(c)
    x, first, past = np.empty(n), np.empty(n, np.int64), np.empty(n, np.int64)
    _thresholds(c, v, z, x, first, past)
    of_v, of_vv, of_zv = running(v), running(v * v), running(z * v)
    for row in range(n):
        start, stop = first[row], past[row]
        exposure[row] = (
            c[row] * (of_vv[stop] - of_vv[start])
            - x[row] * (of_v[stop] - of_v[start])
            - (of_zv[stop] - of_zv[start])
        )


@compiled
def running(values: Floats) -> Floats:
    """Return the sum of the values before each place, and of all, ``[n + 1]``."""
    sums = np.zeros(len(values) + 1)
    for place in range(len(values)):
        sums[place + 1] = sums[place] + values[place]
    return sums
