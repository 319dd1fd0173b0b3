"""The best scores of each row, in order, and what softmax exposure needs of the whole row.

A score of -inf stands for an item that is not there. Of equal scores the one in the earlier
column is the better.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled, summing
from fairtopk.kernels.exponentials import fill_exponentials
from fairtopk.kernels.ranking import Floats, Work, rank_row, room_for

NO_ITEMS = np.empty(0, np.int32)


class Top(NamedTuple):
    """The best scores of each row.

    Attributes:
        column: Where they stand, ``[Q, k]``; -1 past the end of a row with fewer.
        scores: Never rising, -inf past the end, ``[Q, k]``.
        log_sum: Logarithm of the sum of exponentials of the whole row, ``[Q]``; NaN where it
            was not asked for.
        spread: Population standard deviation of the whole row, ``[Q]``; NaN where it was not
            asked for, or nothing is there.
    """

    column: NDArray[np.int32]
    scores: Floats
    log_sum: NDArray[np.float64]
    spread: NDArray[np.float64]


class UserItems(NamedTuple):
    """Items of each row's user.

    Attributes:
        user: The user of each row, ``[Q]``.
        offsets: CSR offsets of the users' items.
        item: The items, as columns of the row.
    """

    user: NDArray[np.int64]
    offsets: NDArray[np.int64]
    item: NDArray[np.int32]


def top_of(
    scores: Floats, k: int, left_out: UserItems | None = None, *, log_sums: bool = True
) -> Top:
    """Return the best `k` scores of each row of float32 or float64 scores, ``[Q, n]``.

    Args:
        scores: Finite, or -inf for what is not there.
        k: How many.
        left_out: Items that count as not there; left out, none do.
        log_sums: Whether sums of exponentials, and the spread, are asked for.
    """
    queries, n = scores.shape
    if left_out is None:
        left_out = UserItems(np.zeros(queries, np.int64), np.zeros(2, np.int64), NO_ITEMS)
    top = Top(
        np.full((queries, k), -1, np.int32),
        np.full((queries, k), -np.inf, scores.dtype),
        np.full(queries, -np.inf if log_sums else np.nan),
        np.full(queries, np.nan),
    )
    _fill(scores, left_out, room_for(n, scores.dtype), log_sums, top)
    return top


def first_not_finite(scores: Floats) -> tuple[int, int]:
    """Return the row and column of a score that is NaN or infinite, or (-1, -1)."""
    finite = np.isfinite(scores)
    if finite.all():
        return -1, -1
    row, column = np.unravel_index(finite.argmin(), finite.shape)
    return int(row), int(column)


@compiled
def _fill(scores: Floats, left_out: UserItems, work: Work, log_sums: bool, top: Top) -> None:
    k = top.column.shape[1]
    for row in range(len(scores)):
        for column in range(scores.shape[1]):
            work.row[column] = scores[row, column]
        user = left_out.user[row]
        for slot in range(left_out.offsets[user], left_out.offsets[user + 1]):
            work.row[left_out.item[slot]] = -np.inf
        count = rank_row(work, scores.shape[1], k)
        for place in range(count):
            column = work.column[0, place]
            top.column[row, place] = column
            top.scores[row, place] = scores[row, column]
        if count > 0 and log_sums:
            high = top.scores[row, 0]
            total = fill_exponentials(work.row, high, work.signed, work.power, work.exponential)
            top.log_sum[row] = high + math.log(total)
            top.spread[row] = _spread(work.row)


@summing
def _spread(row: Floats) -> float:
    """Return the standard deviation of the scores that are there, at least one."""
    n, total = 0, 0.0
    for column in range(len(row)):
        there = row[column] > -np.inf
        n += there
        total += row[column] if there else 0.0
    mean, squares = total / n, 0.0
    for column in range(len(row)):
        deviation = row[column] - mean if row[column] > -np.inf else 0.0
        squares += deviation * deviation
    return math.sqrt(squares / n)
