"""A linear model learns a fair order by ridge regression, in rounds.

Scores are S = X B, with the training histories X as rows. A lesson says by how much each score
is off, D = T - S: the items of a fair head are due the sorted scores of the student's own head
by new place, and items that had to leave it its last score; elsewhere D is 0. Then

    B <- B + (X'X + ridge I)^-1 X'D,

which minimises |X dB - D|^2 + ridge |dB|^2. The next round's lesson is made from the scores of
the new B. All rounds have one inverse. No table has a cell for each user and item: D has a
head's worth of entries for each user, and X'D is made some rows at a time.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.distillation.teacher import TaughtBlock, Teaching, taught_blocks
from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.csr import offsets_of, stable_order
from fairtopk.kernels.random import key_of
from fairtopk.kernels.threads import run_all
from fairtopk.lists.users import Ratings
from fairtopk.models.gram import SIDE, gram_matrix, invert_in_place
from fairtopk.models.histories import Ease

ROWS = 32  # of X'D in a piece of work


@torch.no_grad()
def learn_in_rounds(
    scorer: Ease, rated: Ratings, teaching: Teaching, *, done: int = 0
) -> Iterator[float]:
    """Teach a scorer in rounds; yield after each the error that it had before, in its weights.

    The error is the root of the mean of D^2 over the places of all heads. Rounds are over when
    there is nothing to learn.

    Args:
        scorer: The student, which has the training histories.
        rated: The training ratings of each user; rated items are never shown again.
        teaching: What makes the order to learn.
        done: Rounds that the scorer's weights have behind them.
    """
    settings, history, inverse = teaching.settings, scorer.history, None
    for number in range(done, settings.rounds):
        seed = key_of(teaching.seed, number)
        lesson = differences(scorer, rated, teaching._replace(seed=seed))
        if not lesson.rating.any():
            return
        if inverse is None:
            inverse = gram_matrix(history, scorer.n_items)
            inverse.diagonal().add_(settings.ridge * scorer.unit**2)
            invert_in_place(inverse)
        add_solution(scorer.weight, inverse, history, lesson)
        places = (len(rated.offsets) - 1) * min(settings.head, scorer.n_items)
        yield float(np.sqrt(np.square(lesson.rating.astype(np.float64)).sum() / places))


def differences(scorer: Ease, rated: Ratings, teaching: Teaching) -> Ratings:
    """Return D: for each user the items whose score is off, and by how much."""
    parts = [_of_block(block) for block in taught_blocks(scorer, rated, teaching)]
    count, item, value = map(np.concatenate, zip(*parts, strict=True))
    return Ratings(np.append(0, count.cumsum()), item, value)


def _of_block(
    block: TaughtBlock,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    arrays = (block.scores, block.item, block.own_item, block.own)
    return _differences(*(one.numpy() for one in arrays))


@compiled
def _differences(
    scores: NDArray[np.float32],
    item: NDArray[np.int64],
    own_item: NDArray[np.int64],
    own: NDArray[np.float32],
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Return how many scores of each user are off, of which items, and by how much."""
    n_users, n_places = item.shape
    count = np.zeros(n_users, np.int64)
    found = np.empty(2 * n_users * n_places, np.int32)
    off = np.empty(2 * n_users * n_places, np.float32)
    taught, total = np.zeros(scores.shape[1], np.bool_), 0
    for row in range(n_users):
        length = 0
        while length < n_places and item[row, length] >= 0:
            length += 1
        before = total
        for place in range(length):
            one = item[row, place]
            taught[one] = True
            found[total], off[total] = one, own[row, place] - scores[row, one]
            total += off[total] != 0
        for place in range(length):
            one = own_item[row, place]
            if not taught[one]:  # it has left the head
                found[total], off[total] = one, own[row, length - 1] - own[row, place]
                total += off[total] != 0
        for place in range(length):
            taught[item[row, place]] = False
        count[row] = total - before
    return count, found[:total], off[:total]


def add_solution(weight: Tensor, inverse: Tensor, history: Ratings, lesson: Ratings) -> None:
    """Add the inverse times X'D to some weights, ``[n_items, n_items]``.

    Args:
        weight: The weights, changed in place.
        inverse: (X'X + ridge I)^-1, symmetric.
        history: X, by user.
        lesson: D, by user.
    """
    n_items = len(weight)
    offsets = offsets_of(history.item, n_items)
    slot = stable_order(history.item, offsets)
    user = np.repeat(np.arange(len(history.offsets) - 1), np.diff(history.offsets))[slot]
    by_item = offsets, user, history.rating[slot]
    by_user = lesson.offsets, lesson.item, lesson.rating
    for start in range(0, n_items, SIDE):
        stop = min(start + SIDE, n_items)
        product = torch.empty(stop - start, n_items)
        out = product.numpy()
        pieces = [
            partial(_product_rows, start + row, by_item, by_user, out[row : row + ROWS])
            for row in range(0, stop - start, ROWS)
        ]
        run_all(pieces)
        rows = [slice(row, row + SIDE) for row in range(0, n_items, SIDE)]
        run_all(
            [partial(weight[one].addmm_, inverse[one, start:stop], product) for one in rows]
        )


@compiled
def _product_rows(
    first: int,
    by_item: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]],
    by_user: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]],
    out: NDArray[np.float32],
) -> None:
    """Fill in rows of X'D from row `first` on, summed in float64, user by user."""
    offsets, user, own = by_item
    starts, item, value = by_user
    total = np.zeros(out.shape[1], np.float64)
    for row in range(len(out)):
        for column in range(len(total)):
            total[column] = 0
        for slot in range(offsets[first + row], offsets[first + row + 1]):
            factor = np.float64(own[slot])
            for place in range(starts[user[slot]], starts[user[slot] + 1]):
                total[item[place]] += factor * value[place]
        for column in range(len(total)):
            out[row, column] = total[column]
