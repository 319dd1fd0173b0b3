"""Adam and momentum for some rows of a table, with the steps that each row missed.

Adam, with the gradient g and the step's number t:

    m <- beta_1 m + (1 - beta_1) g,  v <- beta_2 v + (1 - beta_2) g²,
    w <- w - rate m / (1 - beta_1^t) / (sqrt(v / (1 - beta_2^t)) + eps)

where g holds the weight decay's part. A row that no batch read still moves: g is then that part
alone, and m fades.

Momentum:

    z <- keep z + fresh (g + decay w),  w <- w - rate z

but for the first step of all, which takes its gradient whole: z <- g + decay w. A row that no
batch read has g = 0, and a step is a matrix times (w, z): any number of them is its power.

Rows do not depend on each other, so any split of them gives the same bits.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled, dividing

Floats = NDArray[np.floating]
Scalars = tuple[np.floating, ...]

LEAST_BETA = 0.5  # of those whose power is looked at: 0 has no such power
CHUNK = 32  # steps between two looks at what is left of a row's averages

Matrix = tuple[float, float, float, float]  # two by two, row by row
UNIT = (1.0, 0.0, 0.0, 1.0)
FEW = 16  # of how many rows one is, for sorting to be quicker than to look at all


class AdamTable(NamedTuple):
    """A parameter and what Adam keeps of it."""

    weight: Floats  # the parameter, [rows, width]
    first: Floats  # average of its gradients, alike
    second: Floats  # average of their squares, alike
    last: NDArray[np.int32]  # the step that each row was last brought up to, [rows]


class AdamRule(NamedTuple):
    """What Adam's steps have in common."""

    rate: float
    beta_1: float
    beta_2: float
    eps: float
    decay: float


class AdamSteps(NamedTuple):
    """Rate and eps of consecutive steps, with the correction for averages that start at 0."""

    first: int  # number of the first of these steps
    rate: Floats  # of each step, [n]
    eps: Floats  # alike


@lru_cache(maxsize=8)  # all parameters of a model take the same steps
def adam_steps(rule: AdamRule, first: int, now: int, dtype: np.dtype[np.floating]) -> AdamSteps:
    """Return the steps from `first` to `now`, for a table of `dtype`."""
    step = np.arange(first, now + 1)
    scale = np.sqrt(1 - rule.beta_2**step)
    rate = rule.rate * scale / (1 - rule.beta_1**step)
    return AdamSteps(first, rate.astype(dtype), (rule.eps * scale).astype(dtype))


@dividing
def adam_rows(
    table: AdamTable,
    rule: AdamRule,
    steps: AdamSteps,
    rows: NDArray[np.int64],
    grads: Floats,
) -> None:
    """Bring some rows of a table up to the last of `steps`.

    Args:
        table: Changed in these rows.
        rule: Of all steps.
        steps: At least those that one of these rows has missed.
        rows: Which rows, no row twice, ``[n]``.
        grads: Their gradients in the last step, ``[n, width]``; ``[0, width]`` if it was one
            without.
    """
    # All are of the type of the weights: a loop that mixes types is slower. The last two are
    # the least that averages may be: what is just above does not leave the range of normal
    # numbers within a chunk of steps, unless a beta is small, and then it is soon 0.
    kind, tiny = table.weight.dtype.type, np.finfo(table.weight.dtype).tiny
    scalars = (
        kind(rule.beta_1),
        kind(1 - rule.beta_1),
        kind(rule.beta_2),
        kind(1 - rule.beta_2),
        kind(rule.decay),
        kind(tiny * min(max(rule.beta_1, LEAST_BETA) ** -CHUNK, 1e8)),
        kind(tiny * min(max(rule.beta_2, LEAST_BETA) ** -CHUNK, 1e8)),
    )
    now = steps.first + len(steps.rate) - 1
    missed = len(steps.rate) - (len(grads) > 0)
    for place in range(len(rows)):
        row = rows[place]
        start = table.last[row] + 1 - steps.first
        if start < missed:
            _replay(table, row, rule, steps, (start, missed), scalars)
        if len(grads) > 0:
            rate, eps = steps.rate[-1], steps.eps[-1]
            for column in range(table.weight.shape[1]):
                _move(table, (row, column), grads[place, column], (rate, eps), scalars)
        table.last[row] = now


@dividing
def _replay(
    table: AdamTable,
    row: int,
    rule: AdamRule,
    steps: AdamSteps,
    missed: tuple[int, int],
    scalars: Scalars,
) -> None:
    """Take the steps from `missed[0]` to before `missed[1]` in a row, without a gradient."""
    beta_1, _, beta_2, _, _, _, _ = scalars
    zero, width = table.weight.dtype.type(0), table.weight.shape[1]
    # What a row moves by then shrinks with every step, so once it is nothing it stays so:
    # m / sqrt(v) does by beta_1 / sqrt(beta_2), and the corrections make it no larger.
    fades = rule.decay == 0 and rule.beta_1 * rule.beta_1 <= rule.beta_2
    start, stop = missed
    for chunk in range(start, stop, CHUNK):
        _flush(table, row, scalars)
        moves, column = not fades, 0
        while not moves and column < width:
            root = np.sqrt(beta_2 * table.second[row, column])
            change = steps.rate[chunk] * beta_1 * table.first[row, column]
            change /= root + steps.eps[chunk]
            moves = table.weight[row, column] - change != table.weight[row, column]
            column += 1
        if not moves:
            # The steps that are left change only the averages: all are taken at once.
            kind, count = table.weight.dtype.type, stop - chunk
            keep_1, keep_2 = kind(rule.beta_1**count), kind(rule.beta_2**count)
            for column in range(width):
                table.first[row, column] *= keep_1
                table.second[row, column] *= keep_2
            _flush(table, row, scalars)
            return
        for step in range(chunk, min(chunk + CHUNK, stop)):
            rate, eps = steps.rate[step], steps.eps[step]
            for column in range(width):
                _move(table, (row, column), zero, (rate, eps), scalars)


@dividing
def _move(
    table: AdamTable,
    place: tuple[int, int],
    grad: np.floating,
    step: tuple[np.floating, np.floating],
    scalars: Scalars,
) -> None:
    """Take one step of Adam at one place."""
    beta_1, fresh_1, beta_2, fresh_2, decay, _, _ = scalars
    rate, eps = step
    grad += decay * table.weight[place]
    first = beta_1 * table.first[place] + fresh_1 * grad
    second = beta_2 * table.second[place] + fresh_2 * grad * grad
    table.first[place], table.second[place] = first, second
    table.weight[place] -= rate * first / (np.sqrt(second) + eps)


@dividing
def _flush(table: AdamTable, row: int, scalars: Scalars) -> None:
    """Set averages of a row to 0 before they get too small for normal numbers.

    With such numbers a step takes 30 times as long. What is flushed of v is far below eps²,
    unless eps is below 1e-18 in float32.
    """
    _, _, _, _, _, least_1, least_2 = scalars
    zero = table.weight.dtype.type(0)
    for column in range(table.weight.shape[1]):
        first, second = table.first[row, column], table.second[row, column]
        table.first[row, column] = zero if abs(first) < least_1 else first
        table.second[row, column] = zero if second < least_2 else second


class MomentumTable(NamedTuple):
    """A parameter and what momentum keeps of it."""

    weight: Floats  # the parameter w, [rows, width]
    buffer: Floats  # average of its gradients z, alike
    last: NDArray[np.int32]  # the step that each row was last brought up to, [rows]


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
            matrix = _missed(rule, table.last[row], stop)
            a, b, c, d = kind(matrix[0]), kind(matrix[1]), kind(matrix[2]), kind(matrix[3])
            for column in range(table.weight.shape[1]):
                weight, buffer = table.weight[row, column], table.buffer[row, column]
                moved = c * weight + d * buffer
                table.weight[row, column] = a * weight + b * buffer
                table.buffer[row, column] = zero if abs(moved) < tiny else moved
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
    power, count = UNIT, stop - max(last, 1)
    while count > 0:
        if count % 2 == 1:
            power = _product(power, step)
        step = _product(step, step)
        count //= 2
    if last > 0:
        return power
    first = (1 - rate * rule.decay, 0.0, rule.decay, 0.0)
    return _product(power, first)


@compiled
def _product(one: Matrix, other: Matrix) -> Matrix:
    a, b, c, d = one
    e, f, g, h = other
    return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h


@compiled
def rows_behind(
    rows: NDArray[np.integer], last: NDArray[np.int32], now: int
) -> NDArray[np.int64]:
    """Return those of `rows` that were last brought up to a step before `now`, rising.

    Each is there once. In rising order tables are read nearly in sequence: to bring up 70,000
    of 300,000 rows took half as long.
    """
    found, count = np.empty(len(rows), np.int64), 0
    for row in rows:
        if 0 <= last[row] < now:
            found[count] = row
            count += 1
            last[row] = ~last[row]  # below 0 until the end: found before
    found = found[:count]
    if count * FEW > len(last):
        place = 0
        for row in range(len(last)):
            if last[row] < 0:
                found[place] = row
                place += 1
    else:
        found.sort()
    for row in found:
        last[row] = ~last[row]
    return found
