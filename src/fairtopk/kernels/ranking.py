"""The best scores of each row, in order, and the softmax sum of the whole row.

A score of -inf stands for an item that is not there; all others are finite. Ties go to the
earlier column.

Scores are compared as whole numbers. Read as such, the bits of floats (IEEE 754) rise with the
score above zero and fall below it; turned over where they rise, they are keys that fall as
scores rise. Unlike comparisons of floats, those of keys are vectorised as they stand.

The exponential of a float32 is put together from a power of two, written as bits, and a short
series. Neither numba nor LLVM vectorises the library's function: it takes 10 times as long.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled, inlined, summing

Floats = NDArray[np.floating]
Signed = NDArray[np.signedinteger]
Unsigned = NDArray[np.unsignedinteger]

BYTE, VALUES = 8, 256  # bits of a byte, and its values; keys are sorted byte by byte
RUNS = 3  # of columns, at least, for each of the best that is wanted

LOG2_E, LN_2 = np.float32(math.log2(math.e)), np.float32(math.log(2))
LEAST = np.float32(-126)  # exponent of the smallest power of two
ONE, FRACTION = 127, 23  # float32: the bits of 2^n are (127 + n) << 23
NO_ITEMS = np.empty(0, np.int32)


class Work(NamedTuple):
    """Room for one row of up to n scores."""

    row: Floats  # the scores, [n]
    bits: Signed  # the memory of the scores, read as whole numbers
    signed: Signed  # keys, as they are written, [n]
    keys: Unsigned  # the memory of `signed`, as keys are compared
    power: Floats  # the memory of `signed`, as floats
    exponential: Floats  # exponentials of the scores, [n]
    best: Unsigned  # the best key of each run of columns, [n]
    chosen: Unsigned  # keys of some columns, and room to sort them, [2, n]
    column: NDArray[np.int32]  # those columns, and room to sort them, [2, n]
    starts: NDArray[np.int64]  # where the keys with each value of a byte go, [256]


def room_for(n: int, dtype: np.dtype[np.floating]) -> Work:
    """Return room for rows of up to `n` float32 or float64 scores."""
    signed, unsigned = (f"{kind}{dtype.itemsize}" for kind in "iu")
    row, keys = np.empty(n, dtype), np.empty(n, signed)
    return Work(
        row=row,
        bits=row.view(signed),
        signed=keys,
        keys=keys.view(unsigned),
        power=keys.view(dtype),
        exponential=np.empty(n, dtype),
        best=np.empty(n, unsigned),
        chosen=np.empty((2, n), unsigned),
        column=np.empty((2, n), np.int32),
        starts=np.empty(VALUES, np.int64),
    )


@inlined
def rank_row(work: Work, n: int, k: int) -> int:
    """Return how many of the best `k` of the first `n` scores of ``work.row`` there are.

    Their columns are the first of ``work.column[0]``, from the best on.

    Columns are taken in runs, many more than k. The k-th best of the runs' best is a bar that k
    columns pass, and where its best does not, a run is passed over. Short rows are one run.
    """
    bits, kind = work.bits, work.bits.dtype.type
    most = kind((1 << (BYTE * bits.itemsize - 1)) - 1)  # the key of 0
    minus_zero = kind(-most - 1)
    for column in range(n):
        one = bits[column]
        turned = kind(one ^ most)
        work.signed[column] = turned if one >= 0 else (most if one == minus_zero else one)
    keys, best, chosen, columns = work.keys, work.best, work.chosen, work.column
    bar = ~keys.dtype.type(0)
    run = n // (RUNS * k)
    if run < 2:
        run = n
    n_runs = (n + run - 1) // run
    for one in range(n_runs):
        part = keys[one * run : min((one + 1) * run, n)]
        least = bar
        for column in range(len(part)):
            least = min(least, part[column])
        best[one] = least
        chosen[0, one] = least
    if run < n:
        sort_chosen(chosen, columns, work.starts, n_runs)
        bar = chosen[0, k - 1]
    count = np.int64(0)  # numba would compile the sort for a plain 0 by itself
    for one in range(n_runs):
        if best[one] <= bar:
            for column in range(one * run, min((one + 1) * run, n)):
                if keys[column] <= bar and work.row[column] > -np.inf:
                    chosen[0, count] = keys[column]
                    columns[0, count] = column
                    count += 1
    sort_chosen(chosen, columns, work.starts, count)
    return min(int(count), k)


@compiled
def sort_chosen(
    chosen: Unsigned,
    column: NDArray[np.int32],
    starts: NDArray[np.int64],
    count: int | np.int64,
) -> None:
    """Sort the first `count` chosen columns by their keys; those of equal keys stay in order.

    Radix sort. The number of bytes in a key is even, so the result is where the columns were.
    """
    low = np.uint64(VALUES - 1)
    for byte in range(chosen.itemsize):
        shift, here, there = np.uint64(BYTE * byte), byte % 2, 1 - byte % 2
        for value in range(VALUES):
            starts[value] = 0
        for place in range(count):
            starts[(np.uint64(chosen[here, place]) >> shift) & low] += 1
        total = 0
        for value in range(VALUES):
            total += starts[value]
            starts[value] = total - starts[value]
        for place in range(count):
            value_of = (np.uint64(chosen[here, place]) >> shift) & low
            target = np.uint64(starts[value_of])  # unsigned: no place counts from the end
            starts[value_of] += 1
            chosen[there, target] = chosen[here, place]
            column[there, target] = column[here, place]


@summing
def fill_exponentials(
    scores: Floats, high: float, bits: NDArray[np.signedinteger], power: Floats, out: Floats
) -> float:
    """Return the sum of the exponentials of scores less `high`, which fill `out`.

    `high` is the largest score, so that nothing overflows; scores far below it have next to 0.
    `bits` is room, and `power` the same memory read as floats.
    """
    total = np.float64(0)  # a plain 0.0 would, without numba, take the type of what is added
    if scores.itemsize == 8:
        for place in range(len(scores)):
            out[place] = math.exp(scores[place] - high)
            total += out[place]
        return total
    for place in range(len(scores)):
        log2 = max(np.float32(scores[place] - high) * LOG2_E, LEAST)
        whole = np.floor(log2 + np.float32(0.5))
        bits[place] = (np.int32(whole) + ONE) << FRACTION
        x = (log2 - whole) * LN_2
        value = np.float32(1 / 720)
        value = value * x + np.float32(1 / 120)
        value = value * x + np.float32(1 / 24)
        value = value * x + np.float32(1 / 6)
        value = value * x + np.float32(1 / 2)
        value = value * x + np.float32(1)
        out[place] = value * x + np.float32(1)
    for place in range(len(scores)):
        out[place] *= power[place]
        total += out[place]
    return total


class Top(NamedTuple):
    """The best scores of each row, and two sums over all of it, NaN if left out."""

    column: NDArray[np.int32]  # where they stand, -1 past the end of a row with fewer, [Q, k]
    scores: Floats  # never rising, -inf past the end, [Q, k]
    log_sum: NDArray[np.float64]  # logarithm of the row's sum of exponentials, [Q]
    spread: NDArray[np.float64]  # the row's population standard deviation, NaN if empty, [Q]


class UserItems(NamedTuple):
    """Items of each row's user."""

    user: NDArray[np.integer]  # of each row, [Q]
    offsets: NDArray[np.int64]  # CSR offsets of the users' items
    item: NDArray[np.int32]  # the items, as columns of the row


def top_of(
    scores: Floats, k: int, left_out: UserItems | None = None, *, log_sums: bool = True
) -> Top:
    """Return the best `k` scores of each row of float32 or float64 scores, ``[Q, n]``.

    Args:
        scores: Finite, or -inf for what is not there.
        k: How many.
        left_out: Items that count as not there; left out, none do.
        log_sums: Whether to compute sums of exponentials, and the spread.
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
    n, total = 0, np.float64(0)
    for column in range(len(row)):
        there = row[column] > -np.inf
        n += there
        total += row[column] if there else 0.0
    mean, squares = total / n, np.float64(0)
    for column in range(len(row)):
        deviation = row[column] - mean if row[column] > -np.inf else 0.0
        squares += deviation * deviation
    return math.sqrt(squares / n)
