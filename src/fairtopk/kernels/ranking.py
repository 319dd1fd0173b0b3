"""The columns of a row of scores, from the best on.

A score of -inf stands for an item that is not there; all others are finite. Of equal scores the
one in the earlier column is the better.

Scores are compared as whole numbers. Read as such, the bits of floats (IEEE 754) rise with the
score above zero and fall below it; turned over where they rise, they are keys that fall as
scores rise. Unlike comparisons of floats, those of keys are vectorised as they stand.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled, inlined

Floats = NDArray[np.floating]
Signed = NDArray[np.signedinteger]
Unsigned = NDArray[np.unsignedinteger]

BYTE, VALUES = 8, 256  # bits of a byte, and its values; keys are sorted byte by byte
RUNS = 3  # of columns, at least, for each of the best that is wanted


class Work(NamedTuple):
    """Room for one row of up to n scores.

    Attributes:
        row: The scores, ``[n]``.
        bits: The memory of the scores, read as whole numbers.
        signed: Keys, as they are written, ``[n]``.
        keys: The memory of `signed`, as keys are compared.
        power: The memory of `signed`, as floats.
        exponential: Exponentials of the scores, ``[n]``.
        best: The best key of each run of columns, ``[n]``.
        chosen: Keys of some columns, and room to sort them, ``[2, n]``.
        column: Those columns, and room to sort them, ``[2, n]``.
        starts: Where the keys with each value of a byte go, ``[256]``.
    """

    row: Floats
    bits: Signed
    signed: Signed
    keys: Unsigned
    power: Floats
    exponential: Floats
    best: Unsigned
    chosen: Unsigned
    column: NDArray[np.int32]
    starts: NDArray[np.int64]


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
    _fill_keys(work.bits, work.signed, n)
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


@inlined
def _fill_keys(bits: Signed, signed: Signed, n: int) -> None:
    """Fill `signed` with the keys of `n` scores, given by their bits."""
    kind = bits.dtype.type
    most = kind((1 << (BYTE * bits.itemsize - 1)) - 1)  # the key of 0
    minus_zero = kind(-most - 1)
    for column in range(n):
        one = bits[column]
        turned = kind(one ^ most)
        signed[column] = turned if one >= 0 else (most if one == minus_zero else one)


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
