"""Scoring the whole catalogue for many users, of which only the best items are kept.

Users are scored in blocks: memory is that of a block's scores, however many users there are.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairtopk.checks import checked_whole
from fairtopk.errors import InputError
from fairtopk.kernels.ranking import NO_ITEMS, Top, UserItems, first_not_finite, top_of
from fairtopk.kernels.threads import run_all
from fairtopk.lists.batch import Batch, list_batch
from fairtopk.lists.users import Ratings

BLOCK = 512  # users scored at once
PIECE = 16  # users of a piece of work, when the best of the scores are looked for
# A product of few rows takes other ways than one of many, and may end in other bits.
LEAST_ROWS = 32
BATCH_SLOTS = 2**18  # of a batch, for a scorer that knows nothing but batches


class TopItems(NamedTuple):
    """The best items of some users.

    Attributes:
        item: Item numbers from the best on, ``[Q, k]``; -1 where fewer are left.
        scores: Their scores, ``[Q, k]``; -inf where fewer are left.
    """

    item: NDArray[np.int32]
    scores: NDArray[np.floating]


def top_items(
    scorer: nn.Module,
    users: NDArray[np.integer],
    *,
    k: int,
    n_items: int,
    excluded: Ratings | None = None,
    block: int = BLOCK,
) -> TopItems:
    """Return the `k` items of the whole catalogue that score highest for each user.

    Of equal scores the lower item number comes first.

    Args:
        scorer: Scores a `Batch`; one that has ``score_all(users)``, as the built-in scorers do,
            is many times faster.
        users: User numbers, at least one, ``[Q]``.
        k: How many.
        n_items: Size of the catalogue.
        excluded: Items that are not to be among them, user by user.
        block: Users scored at once; memory is that of ``block * n_items`` scores.
    """
    tops = top_blocks(
        scorer, users, k=k, n_items=n_items, excluded=excluded, block=block, log_sums=False
    )
    blocks = list(tops)
    item = np.concatenate([top.column for top in blocks])
    return TopItems(item, np.concatenate([top.scores for top in blocks]))


def top_blocks(
    scorer: nn.Module,
    users: NDArray[np.integer],
    *,
    k: int,
    n_items: int,
    excluded: Ratings | None = None,
    block: int = BLOCK,
    log_sums: bool = True,
) -> Iterator[Top]:
    """Yield the best of blocks of users, and the log-sum-exp of all items not excluded.

    Columns are item numbers. Arguments are those of `top_items`; without `log_sums` there is no
    log-sum-exp.
    """
    checked_whole("k", k, least=1)
    checked_whole("block", block, least=1)
    users = _checked_users(users)
    left_out = _left_out(users, excluded)
    for start in range(0, len(users), block):
        mine = left_out._replace(user=users[start : start + block])
        scores = catalogue_scores(scorer, mine.user, n_items)
        pieces = [
            partial(_top, scores, k, mine, slice(first, first + PIECE), log_sums)
            for first in range(0, len(scores), PIECE)
        ]
        yield Top(*map(np.concatenate, zip(*run_all(pieces), strict=True)))


def catalogue_scores(
    scorer: nn.Module, users: NDArray[np.int64], n_items: int
) -> NDArray[np.floating]:
    """Return the scores of all items for some users, ``[Q, n_items]``."""
    score_all: Callable[[Tensor], Tensor] | None = getattr(scorer, "score_all", None)
    if score_all is not None:
        padded = np.resize(users, -(-len(users) // LEAST_ROWS) * LEAST_ROWS)
        with _at_rest(scorer):
            found = score_all(torch.from_numpy(padded))[: len(users)]
    else:
        rows = max(1, BATCH_SLOTS // n_items)
        parts = [users[start : start + rows] for start in range(0, len(users), rows)]
        found = torch.cat([score(scorer, _catalogue_batch(part, n_items)) for part in parts])
    if found.shape != (len(users), n_items):
        raise InputError(
            f"the scorer must give {len(users)} users a score for each of {n_items:,} items, "
            f"got scores of shape {list(found.shape)}"
        )
    exact = found if found.dtype == torch.float64 else found.float()
    scores: NDArray[np.floating] = exact.detach().cpu().contiguous().numpy()
    return scores


def score(scorer: nn.Module, batch: Batch) -> Tensor:
    """Return the scores of a batch without dropout, ``[Q, L]``."""
    with _at_rest(scorer):
        scores: Tensor = scorer(batch)
    return scores


@contextmanager
def _at_rest(scorer: nn.Module) -> Iterator[None]:
    """Switch off dropout and gradients for a while."""
    was_training = scorer.training
    scorer.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        scorer.train(was_training)


def _top(
    scores: NDArray[np.floating], k: int, left_out: UserItems, rows: slice, log_sums: bool
) -> Top:
    mine = left_out._replace(user=left_out.user[rows])
    row, item = first_not_finite(scores[rows])
    if row >= 0:
        raise InputError(
            f"scores must be finite, got {scores[rows][row, item]:g} for user "
            f"{mine.user[row]} and item {item}; the model may have diverged"
        )
    return top_of(scores[rows], k, mine, log_sums=log_sums)


def _catalogue_batch(users: NDArray[np.int64], n_items: int) -> Batch:
    """Return the whole catalogue as the list of each user."""
    item = torch.arange(n_items, dtype=torch.int32).repeat(len(users), 1)
    relevance, mask = torch.zeros(item.shape), torch.ones(item.shape, dtype=torch.bool)
    group = torch.full_like(item, -1)
    return list_batch(torch.from_numpy(users), relevance, group, mask, item=item)


def _checked_users(users: NDArray[np.integer]) -> NDArray[np.int64]:
    given = np.asarray(users)
    whole = given.ndim == 1 and len(given) > 0 and np.issubdtype(given.dtype, np.integer)
    if not whole or given.min() < 0:
        raise InputError("users must be whole numbers from 0, at least one")
    return given.astype(np.int64)


def _left_out(users: NDArray[np.int64], excluded: Ratings | None) -> UserItems:
    most = int(users.max())
    if excluded is None:
        return UserItems(users, np.zeros(most + 2, np.int64), NO_ITEMS)
    if most >= len(excluded.offsets) - 1:
        raise InputError(
            f"users of the excluded items are numbered from 0 to {len(excluded.offsets) - 2}, "
            f"got {most}"
        )
    return UserItems(users, excluded.offsets, excluded.item)
