"""The Gram matrix of histories, X'X, and the inverse of such a matrix in its own memory.

X, users by items, is never formed: a row of X'X adds up the histories of the users who have its
item. The inverse is a symmetric sweep by blocks (Gauss-Jordan; Goodnight 1979). With P the
inverse of the diagonal block of k, one sweep is

    A_ij <- A_ij - A_ik P A_kj,    A_kj <- P A_kj,    A_kk <- -P,

and after all of them A is the inverse with its sign turned. Like Cholesky's it takes n^3
operations and no pivots, and it needs no memory beyond some rows. Pieces of a step are matrix
products on one thread each, so that bits do not depend on the number of threads.
"""

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.errors import InputError
from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.csr import offsets_of, stable_order
from fairtopk.kernels.threads import run_all
from fairtopk.lists.users import Ratings

SIDE = 512  # of a block
GRAM_ROWS = 64  # of a piece of work


def gram_matrix(values: Ratings, n_items: int) -> Tensor:
    """Return X'X, float32 ``[n_items, n_items]``, summed in float64.

    Args:
        values: What the users' histories hold, items rising in each.
        n_items: Number of items.
    """
    offsets, item, value = values.offsets, values.item, values.rating
    item_offsets = offsets_of(item, n_items)
    slot = stable_order(item, item_offsets)
    user = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[slot]
    by_item, by_user = (item_offsets, user, value[slot]), (offsets, item, value)
    matrix = torch.empty(n_items, n_items)
    run_all(
        [
            partial(
                _gram_rows,
                (start, min(start + GRAM_ROWS, n_items)),
                by_item,
                by_user,
                matrix.numpy(),
            )
            for start in range(0, n_items, GRAM_ROWS)
        ]
    )
    _mirror(matrix)
    return matrix


@compiled
def _gram_rows(
    rows: tuple[int, int],
    by_item: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.floating]],
    by_user: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.floating]],
    out: NDArray[np.float32],
) -> None:
    """Fill some rows of X'X from the diagonal on."""
    item_offsets, user, own = by_item
    offsets, item, value = by_user
    total = np.zeros(out.shape[1], np.float64)
    for row in range(rows[0], rows[1]):
        for column in range(row, len(total)):
            total[column] = 0
        for slot in range(item_offsets[row], item_offsets[row + 1]):
            first, place = offsets[user[slot]], offsets[user[slot] + 1] - 1
            factor = np.float64(own[slot])
            while place >= first and item[place] >= row:
                total[item[place]] += factor * value[place]
                place -= 1
        for column in range(row, len(total)):
            out[row, column] = total[column]


def invert_in_place(matrix: Tensor) -> None:
    """Turn a positive definite matrix into its inverse, ``[n, n]``, symmetric to the bit.

    Only the diagonal and what is right of it is read.

    Raises:
        InputError: The matrix is not positive definite as far as its type can tell.
    """
    starts = range(0, len(matrix), SIDE)
    for start in starts:
        _sweep(matrix, start, starts)
    run_all([partial(matrix[start : start + SIDE, start:].neg_) for start in starts])
    _mirror(matrix)


def _sweep(matrix: Tensor, start: int, starts: range) -> None:
    """Sweep the block whose rows begin at `start`."""
    stop = min(start + SIDE, len(matrix))
    row = torch.cat([matrix[:start, start:stop].T, matrix[start:stop, start:]], 1)

    def pivot() -> tuple[Tensor, Tensor]:
        block = matrix[start:stop, start:stop].double().triu()
        factor, fault = torch.linalg.cholesky_ex(block + block.triu(1).T)
        if fault:
            raise InputError(
                "the Gram matrix is not positive definite in float32; raise model.ridge"
            )
        inverse = torch.cholesky_inverse(factor).to(matrix.dtype)
        return inverse, inverse @ row

    ((inverse, swept),) = run_all([pivot])

    def update(first: int) -> None:
        part = matrix[first : first + SIDE, first:]
        part.addmm_(row[:, first : first + SIDE].T, swept[:, first:], alpha=-1)

    run_all([partial(update, first) for first in starts if first != start])
    matrix[:start, start:stop] = swept[:, :start].T
    matrix[start:stop, start:stop] = -inverse
    matrix[start:stop, stop:] = swept[:, stop:]


def _mirror(matrix: Tensor) -> None:
    """Copy what is right of the diagonal to the left of it."""

    def fill(start: int) -> None:
        stop = min(start + SIDE, len(matrix))
        block = matrix[start:stop, start:stop]
        block.copy_(block.triu() + block.triu(1).T)
        matrix[stop:, start:stop] = matrix[start:stop, stop:].T

    run_all([partial(fill, start) for start in range(0, len(matrix), SIDE)])
