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
        exponential: Their exponentials, ``[n]``.
        bits: The memory of the scores, read as whole numbers.
        signed: Keys, as they are written, ``[n]``.
        keys: The memory of `signed`, as keys are compared.
        chosen: Keys of some columns, and room to sort them, ``[2, n]``.
        column: Those columns, and room to sort them, ``[2, n]``.
    """

    row: Floats
    exponential: Floats
    bits: Signed
    signed: Signed
    keys: Unsigned
    chosen: Unsigned
    column: NDArray[np.int32]


def room_for(n: int, dtype: np.dtype[np.floating]) -> Work:
    """Return room for rows of up to `n` float32 or float64 scores."""
    signed, unsigned = (f"{kind}{dtype.itemsize}" for kind in "iu")
    row, keys = np.empty(n, dtype), np.empty(n, signed)
    return Work(
        row=row,
        exponential=np.empty(n, dtype),
        bits=row.view(signed),
        signed=keys,
        keys=keys.view(unsigned),
        chosen=np.empty((2, n), unsigned),
        column=np.empty((2, n), np.int32),
    )


@compiled
def rank_row(work: Work, n: int, k: int) -> int:
    """Return how many of the best `k` of the first `n` scores of ``work.row`` there are.

    Their columns are the first of ``work.column[0]``, from the best on.
    """
    _fill_keys(work.bits, work.signed, n)
    count = _choose(work, n, k)
    _sort(work, count)
    return min(count, k)


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


@inlined
def _choose(work: Work, n: int, k: int) -> int:
    """Return how many of `n` columns may be among the best `k`, put down with their keys.

    Columns are taken in runs, many more than k. The k-th best of the runs' best is a bar that k
    columns pass, and where its best does not, a run is passed over. Short rows are one run.
    """
    keys, chosen, columns = work.keys[:n], work.chosen[0], work.column[0]
    run = n // (RUNS * k)
    if run < 2:
        run = n
    best = np.empty(-(-n // run), keys.dtype)
    for place in range(len(best)):
        part = keys[place * run : (place + 1) * run]
        least = part[0]
        for column in range(len(part)):
            least = min(least, part[column])
        best[place] = least
    bar = _smallest(best, k) if run < n else ~keys.dtype.type(0)
    count = 0
    for place in range(len(best)):
        if best[place] > bar:
            continue
        for column in range(place * run, min((place + 1) * run, n)):
            if keys[column] <= bar and work.row[column] > -np.inf:
                chosen[count] = keys[column]
                columns[count] = column
                count += 1
    return count


@inlined
def _smallest(keys: Unsigned, k: int) -> np.unsignedinteger:
    """Return the `k`-th smallest key, counted from 1, found byte by byte from the first."""
    found, counts = np.uint64(0), np.empty(VALUES, np.int64)
    for byte in range(keys.itemsize - 1, -1, -1):
        shift = np.uint64(BYTE * byte)
        for value in range(VALUES):
            counts[value] = 0
        for key in keys:
            if np.uint64(key) >> shift >> np.uint64(BYTE) == found >> shift >> np.uint64(BYTE):
                counts[_byte_at(key, shift)] += 1
        value = 0
        while counts[value] < k:
            k -= counts[value]
            value += 1
        found |= np.uint64(value) << shift
    return keys.dtype.type(found)


@inlined
def _sort(work: Work, count: int) -> None:
    """Sort the first `count` chosen columns by their keys; those of equal keys stay in order.

    Radix sort. The number of bytes in a key is even, so the result is where the columns were.
    """
    starts = np.empty(VALUES, np.int64)
    for byte in range(work.keys.itemsize):
        shift = np.uint64(BYTE * byte)
        keys, columns = work.chosen[byte % 2, :count], work.column[byte % 2]
        next_keys, next_columns = work.chosen[1 - byte % 2], work.column[1 - byte % 2]
        for value in range(VALUES):
            starts[value] = 0
        for key in keys:
            starts[_byte_at(key, shift)] += 1
        total = 0
        for value in range(VALUES):
            starts[value], total = total, total + starts[value]
        for place in range(count):
            byte_value = _byte_at(keys[place], shift)
            target = np.uint64(starts[byte_value])  # unsigned, as no place counts from the end
            starts[byte_value] += 1
            next_keys[target] = keys[place]
            next_columns[target] = columns[place]


@inlined
def _byte_at(key: np.unsignedinteger, shift: np.uint64) -> np.uint64:
    return (np.uint64(key) >> shift) & np.uint64(VALUES - 1)
