"""Momentum for some rows of a table, with the steps that each row missed.

With the gradient g,

    z <- keep z + fresh (g + decay w),  w <- w - rate z

but for the first step of all, which takes its gradient whole: z <- g + decay w. A row that no
batch read has g = 0, and a step is a matrix times (w, z): any number of them is its power. Rows
do not depend on each other, so any split of them gives the same bits.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled

Floats = NDArray[np.floating]
Matrix = tuple[float, float, float, float]  # two by two, row by row

UNIT = (1.0, 0.0, 0.0, 1.0)


class MomentumTable(NamedTuple):
    """A parameter and what momentum keeps of it.

    Attributes:
        weight: The parameter w, ``[rows, width]``.
        buffer: Average of its gradients z, alike.
        last: The step that each row was last brought up to, ``[rows]``.
    """

    weight: Floats
    buffer: Floats
    last: NDArray[np.int32]


class MomentumRule(NamedTuple):
    """What the steps have in common, as above."""

    rate: float
    keep: float
    fresh: float
    decay: float


@compiled
def momentum_rows(
    table: MomentumTable,
    rule: MomentumRule,
    now: int,
    rows: NDArray[np.int64],
    grads: Floats,
) -> None:
    """Bring some rows of a table up to step `now`.

    Args:
        table: Changed in these rows.
        rule: Of all steps.
        now: The step, from 1.
        rows: Which rows, no row twice, ``[n]``.
        grads: Their gradients in that step, ``[n, width]``; ``[0, width]`` if it was one
            without.
    """
    kind = table.weight.dtype.type  # a loop that mixes types is slower
    keep, fresh = (kind(0), kind(1)) if now == 1 else (kind(rule.keep), kind(rule.fresh))
    rate, decay, zero = kind(rule.rate), kind(rule.decay), kind(0)
    # Numbers below the least normal one are taken for 0: they make what follows slow.
    tiny = np.finfo(table.weight.dtype).tiny
    stop = now - (len(grads) > 0)
    for place in range(len(rows)):
        row = rows[place]
        if table.last[row] < stop:
            _transform(table, row, _missed(rule, table.last[row], stop))
        if len(grads) > 0:
            for column in range(table.weight.shape[1]):
                grad = grads[place, column] + decay * table.weight[row, column]
                buffer = keep * table.buffer[row, column] + fresh * grad
                table.buffer[row, column] = zero if abs(buffer) < tiny else buffer
                table.weight[row, column] -= rate * buffer
        table.last[row] = now


@compiled
def _missed(rule: MomentumRule, last: int, stop: int) -> Matrix:
    """Return the matrix of the steps after `last` to `stop`, without a gradient."""
    decay, rate = rule.fresh * rule.decay, rule.rate
    step = (1 - rate * decay, -rate * rule.keep, decay, rule.keep)
    if last > 0:
        return _power(step, stop - last)
    first = (1 - rate * rule.decay, 0.0, rule.decay, 0.0)
    return _product(_power(step, stop - 1), first)


@compiled
def _power(matrix: Matrix, count: int) -> Matrix:
    result = UNIT
    while count > 0:
        if count % 2 == 1:
            result = _product(result, matrix)
        matrix = _product(matrix, matrix)
        count //= 2
    return result


@compiled
def _product(one: Matrix, other: Matrix) -> Matrix:
    a, b, c, d = one
    e, f, g, h = other
    return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h


@compiled
def _transform(table: MomentumTable, row: int, matrix: Matrix) -> None:
    """Multiply (w, z) of a row by a matrix."""
    kind, tiny = table.weight.dtype.type, np.finfo(table.weight.dtype).tiny
    a, b, c, d = kind(matrix[0]), kind(matrix[1]), kind(matrix[2]), kind(matrix[3])
    for column in range(table.weight.shape[1]):
        weight, buffer = table.weight[row, column], table.buffer[row, column]
        moved = c * weight + d * buffer
        table.weight[row, column] = a * weight + b * buffer
        table.buffer[row, column] = kind(0) if abs(moved) < tiny else moved
