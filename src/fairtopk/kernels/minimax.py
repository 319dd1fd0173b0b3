"""The ranker's P and the adversary's q in answer to each other, many lists at a time.

Given appeal and bonus, they are the saddle point of

    (q + bonus)^T P v - (mu/2) |P|^2 + (mu/2) |q|^2 - appeal^T q,

the largest over doubly stochastic P and the least over q in [0, 1]. Given P, q is
clip((appeal - P v) / mu, 0, 1). Given q, P is as in `doubly_stochastic`, with a = q + bonus.
It is found by the same turns, save that those of the rows look for q as well.
"""

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.doubly_stochastic import (
    SWEEPS,
    Floats,
    Integers,
    Precision,
    discounts,
    renew,
    running,
)

KINDS = 3  # of items, which share a bonus: one group, the other, neither


@compiled
def answer(
    appeal: Floats,
    kind: NDArray[np.int8],
    mask: NDArray[np.bool_],
    bonus: Floats,
    precision: Precision,
    relevance: Floats,
    exposure: Floats,
    value: Floats,
) -> None:
    """Fill in the q that answers P best, the exposure P v of each item, and the objective.

    Args:
        appeal: What draws the relevance of an item up, ``[Q, L]``.
        kind: Which of the list's bonuses an item has, 0 to 2, ``[Q, L]``.
        mask: False on padding, where nothing is filled in, ``[Q, L]``.
        bonus: What is added to the relevance of each kind, ``[Q, 3]``.
        precision: Of P.
        relevance: q, ``[Q, L]``.
        exposure: ``[Q, L]``.
        value: a^T P v - (mu/2) |P|^2 + (mu/2) |q|^2 - appeal^T q, ``[Q]``.
    """
    mu = precision.mu
    for query in range(len(mask)):
        inside = np.flatnonzero(mask[query])
        n = len(inside)
        slot, starts = _by_kind(appeal[query][inside], kind[query][inside])
        slot, v, z = inside[slot], discounts(n), np.zeros(n)
        wanted, q, found = appeal[query][slot], np.empty(n), np.empty(n)
        c, x, falling_c, falling_x = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
        moved, sweep = np.inf, 0
        while True:
            _answers(wanted, starts, bonus[query], v, z, mu, q, c, x, found)
            if moved <= precision.tolerance or sweep == SWEEPS:
                break
            _merge(c, x, starts, falling_c, falling_x)
            moved = renew(v, falling_c, falling_x, z)
            sweep += 1
        total = 0.0
        for row in range(n):
            relevance[query, slot[row]], exposure[query, slot[row]] = q[row], found[row]
            total += mu / 2.0 * (c[row] * found[row] + x[row] + z[row])
            total += (mu / 2.0 * q[row] - wanted[row]) * q[row]
        value[query] = total


@compiled
def _answers(
    appeal: Floats,
    starts: Integers,
    bonus: Floats,
    v: Floats,
    z: Floats,
    mu: float,
    q: Floats,
    c: Floats,
    x: Floats,
    exposure: Floats,
) -> None:
    """Fill in q, c, x and exposure of rows, which within a kind have falling appeal.

    As long as a row's interval is the same, q, c and x are linear in its appeal. It changes at
    the c where its first entry becomes 0 or the entry past its end rises above 0.
    """
    n = len(v)
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
def _by_kind(appeal: Floats, kind: NDArray[np.int8]) -> tuple[Integers, Integers]:
    """Return slots by kind and falling appeal, ``[n]``, and where each kind starts, ``[4]``."""
    n = len(appeal)
    falling = np.argsort(-appeal, kind="mergesort")
    starts = np.zeros(KINDS + 1, np.int64)
    for one in kind:
        starts[one + 1] += 1
    starts = np.cumsum(starts)
    slot, filled = np.empty(n, np.int64), starts.copy()
    for one in falling:
        slot[filled[kind[one]]] = one
        filled[kind[one]] += 1
    return slot, starts


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
