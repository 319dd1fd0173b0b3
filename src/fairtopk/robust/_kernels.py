"""Loops of the game: the ranker's P and the adversary's q on many lists.

The P that maximises a^T P v - (mu/2) |P|^2 over matrices whose rows and columns add up to 1 is
the Euclidean projection of a v^T / mu onto them,

    P_ij = max(0, c_i v_j - x_i - z_j),  c = a / mu,

with thresholds x of the rows and z of the columns. Given z, each x_i is where row i adds up to
1, and the other way round; taking turns leads to P. Whatever z is, such an x is a convex
function of c, and whatever x is, such a z is one of v. So the entries above 0 of a row are an
interval, whose ends both move on from one row to that with the next lower c: all thresholds of
one side take 2 n steps, not n^2.

In answer to each other, given appeal and bonus, P and q are the saddle point of

    (q + bonus)^T P v - (mu/2) |P|^2 + (mu/2) |q|^2 - appeal^T q,

the largest over doubly stochastic P and the least over q in [0, 1]. Given P, q is
clip((appeal - P v) / mu, 0, 1). Given q, P is as above, with a = q + bonus. It is found by the
same turns, in which those of the rows look for q as well.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

Arrays = tuple[Floats, ...]

SWEEPS = 100_000  # turns at most
KINDS = 3  # of items, which share a bonus: one group, the other, neither


class Rows(NamedTuple):
    """The rows of P of one list by kind and falling appeal, ``[n]`` each."""

    appeal: Floats
    q: Floats
    c: Floats
    x: Floats
    exposure: Floats


class Precision(NamedTuple):
    """How much P is smoothed, and how nearly its rows and columns add up to 1."""

    mu: float
    tolerance: float


@compiled
def project(
    price: Floats, mask: NDArray[np.bool_], precision: Precision, filled: Arrays
) -> None:
    """Fill in the exposure P v of each item, and the largest a^T P v - (mu/2) |P|^2.

    Args:
        price: Price of exposure of an item, a, ``[Q, L]``.
        mask: False on padding, where nothing is filled in, ``[Q, L]``.
        precision: Of P.
        filled: Exposure, ``[Q, L]``, and that value, ``[Q]``.
    """
    exposure, value = filled
    for query in range(len(mask)):
        inside = np.flatnonzero(mask[query])
        n = len(inside)
        slot, c, x, z, first, past = _projected(price[query][inside], precision)
        v = discounts(n)
        of_v, of_vv, of_zv = running(v), running(v * v), running(z * v)
        total = 0.0
        for row in range(n):
            start, stop = first[row], past[row]
            found = (
                c[row] * (of_vv[stop] - of_vv[start])
                - x[row] * (of_v[stop] - of_v[start])
                - (of_zv[stop] - of_zv[start])
            )
            exposure[query, inside[slot[row]]] = found
            total += c[row] * found + x[row] + z[row]
        value[query] = precision.mu / 2.0 * total


def matrix(price: Floats, precision: Precision) -> Floats:
    """Return P of a list, slots by places, ``[n, n]``, given its prices, ``[n]``."""
    slot, c, x, z, _, _ = _projected(price, precision)
    found = np.empty((len(price), len(price)))
    found[slot] = np.maximum(0.0, c[:, None] * discounts(len(price)) - x[:, None] - z)
    return found


@compiled
def discounts(n: int) -> Floats:
    """Return the exposure of each place, v_j = 1 / log2(1 + j), ``[n]``."""
    found: Floats = 1.0 / np.log2(np.arange(2.0, n + 2.0))
    return found


@compiled
def _projected(
    price: Floats, precision: Precision
) -> tuple[Integers, Floats, Floats, Floats, Integers, Integers]:
    """Return the thresholds of P: z by place, and by falling price slots, c and x.

    The last two are the ends of the interval where a row of P is above 0.
    """
    n = len(price)
    slot = np.argsort(-price, kind="mergesort")
    c, v = price[slot] / precision.mu, discounts(n)
    x, z = np.empty(n), np.zeros(n)
    first, past = np.empty(n, np.int64), np.empty(n, np.int64)
    moved, sweep = np.inf, 0
    while True:
        _thresholds(c, v, z, x, first, past)
        if moved <= precision.tolerance or sweep == SWEEPS:
            return slot, c, x, z, first, past
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
def running(values: Floats) -> Floats:
    """Return the sum of the values before each place, and of all, ``[n + 1]``."""
    sums = np.zeros(len(values) + 1)
    for place in range(len(values)):
        sums[place + 1] = sums[place] + values[place]
    return sums


@compiled
def answer(
    appeal: Floats,
    kind: NDArray[np.int8],
    mask: NDArray[np.bool_],
    bonus: Floats,
    precision: Precision,
    filled: Arrays,
) -> None:
    """Fill in the q that answers P best, the exposure P v of each item, and the objective.

    Args:
        appeal: What draws the relevance of an item up, ``[Q, L]``.
        kind: Which of the list's bonuses an item has, 0 to 2, ``[Q, L]``.
        mask: False on padding, where nothing is filled in, ``[Q, L]``.
        bonus: What is added to the relevance of each kind, ``[Q, 3]``.
        precision: Of P.
        filled: q and exposure, ``[Q, L]``, and a^T P v - (mu/2) |P|^2 + (mu/2) |q|^2 -
            appeal^T q, ``[Q]``.
    """
    relevance, exposure, value = filled
    mu = precision.mu
    for query in range(len(mask)):
        inside = np.flatnonzero(mask[query])
        n = len(inside)
        # Slots by kind and falling appeal, and where each kind starts.
        starts = np.zeros(KINDS + 1, np.int64)
        for one in inside:
            starts[kind[query, one] + 1] += 1
        starts = np.cumsum(starts)
        slot, following = np.empty(n, np.int64), starts.copy()
        for one in inside[np.argsort(-appeal[query][inside], kind="mergesort")]:
            slot[following[kind[query, one]]] = one
            following[kind[query, one]] += 1

        v, z, wanted, q = discounts(n), np.zeros(n), appeal[query][slot], np.empty(n)
        c, x, falling_c, falling_x = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
        found = np.empty(n)
        rows = Rows(wanted, q, c, x, found)
        moved, sweep = np.inf, 0
        while True:
            _answers(rows, starts, bonus[query], v, z, mu)
            if moved <= precision.tolerance or sweep == SWEEPS:
                break
            _merge(c, x, starts, falling_c, falling_x)
            moved = renew(v, falling_c, falling_x, z)
            sweep += 1
        total = 0.0
        for row in range(n):
            relevance[query, slot[row]] = q[row]
            exposure[query, slot[row]] = found[row]
            total += mu / 2.0 * (c[row] * found[row] + x[row] + z[row])
            total += (mu / 2.0 * q[row] - wanted[row]) * q[row]
        value[query] = total


@compiled
def _answers(
    rows: Rows, starts: Integers, bonus: Floats, v: Floats, z: Floats, mu: float
) -> None:
    """Fill in q, c, x and exposure of rows, which within a kind have falling appeal.

    As long as a row's interval is the same, q, c and x are linear in its appeal. It changes at
    the c where its first entry becomes 0 or the entry past its end rises above 0.
    """
    n, (appeal, q, c, x, exposure) = len(v), rows
    of_v, of_vv, of_z, of_zv = running(v), running(v * v), running(z), running(z * v)
    for kind in range(KINDS):
        start, stop = 0, 1
        for row in range(starts[kind], starts[kind + 1]):
            while True:
                width = stop - start
                sum_v = of_v[stop] - of_v[start]
                mean_v = sum_v / width
                base = (of_z[stop] - of_z[start] + 1.0) / width
                steep = of_vv[stop] - of_vv[start] - sum_v * mean_v
                rest = sum_v * base - of_zv[stop] + of_zv[start]
                free = (appeal[row] - rest - steep * bonus[kind] / mu) / (mu + steep / mu)
                q[row] = min(max(free, 0.0), 1.0)
                c[row] = (q[row] + bonus[kind]) / mu
                leaves = enters = -np.inf
                if width > 1:
                    leaves = (z[start] - base) / (v[start] - mean_v)
                if stop < n:
                    enters = (z[stop] - base) / (v[stop] - mean_v)
                if c[row] >= max(leaves, enters):
                    break
                if leaves > enters:
                    start += 1
                else:
                    stop += 1
            x[row] = c[row] * mean_v - base
            exposure[row] = c[row] * steep + rest


@compiled
def _merge(
    c: Floats, x: Floats, starts: Integers, falling_c: Floats, falling_x: Floats
) -> None:
    """Fill in c and x in the order of falling c, which they have within each kind."""
    head = starts[:KINDS].copy()
    for place in range(len(c)):
        best = -1
        for kind in range(KINDS):
            inside = head[kind] < starts[kind + 1]
            if inside and (best < 0 or c[head[kind]] > c[head[best]]):
                best = kind
        falling_c[place], falling_x[place] = c[head[best]], x[head[best]]
        head[best] += 1
