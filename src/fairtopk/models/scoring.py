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
from fairtopk.kernels.ranking import NO_ITEMS, Top, UserItems, top_of
from fairtopk.kernels.threads import run_all
from fairtopk.lists.batch import Batch, list_batch
from fairtopk.lists.users import Ratings

BLOCK = 512  # users scored at once; memory is that of their scores of all items
PIECE = 16  # users of a piece of work, when the best of the scores are looked for
# A product of few rows takes other ways than one of many, and may end in other bits.
LEAST_ROWS = 32
BATCH_SLOTS = 2**18  # of a batch, for a scorer that knows nothing but batches


class TopItems(NamedTuple):
    """The best items of some users."""

    item: NDArray[np.int32]  # numbers from the best on, [Q, k]; -1 where fewer are left
    scores: NDArray[np.floating]  # their scores, [Q, k]; -inf where fewer are left


def top_items(
    scorer: nn.Module,
    users: NDArray[np.integer],
    *,
    k: int,
    n_items: int,
    excluded: Ratings | None = None,
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
    """
    tops = top_blocks(scorer, users, k=k, n_items=n_items, excluded=excluded, log_sums=False)
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
    log_sums: bool = True,
) -> Iterator[Top]:
    """Yield the best of blocks of users, and the log-sum-exp of all items not excluded.

    Columns are item numbers. Arguments are those of `top_items`; without `log_sums` there is no
    log-sum-exp.
    """
    checked_whole("k", k, least=1)
    given = np.asarray(users)
    whole = given.ndim == 1 and len(given) > 0 and np.issubdtype(given.dtype, np.integer)
    if not whole or given.min() < 0:
        raise InputError("users must be whole numbers from 0, at least one")
    most = int(given.max())
    if excluded is None:
        offsets, left_out = np.zeros(most + 2, np.int64), NO_ITEMS
    else:
        offsets, left_out = excluded.offsets, excluded.item
    if most >= len(offsets) - 1:
        raise InputError(
            f"users of the excluded items are numbered from 0 to {len(offsets) - 2}, got {most}"
        )

    def top(user: NDArray[np.int64], scores: NDArray[np.floating]) -> Top:
        finite = np.isfinite(scores)
        if not finite.all():
            row, item = np.unravel_index(finite.argmin(), finite.shape)
            raise InputError(
                f"scores must be finite, got {scores[row, item]:g} for user {user[row]} and "
                f"item {item}; the model may have diverged"
            )
        return top_of(scores, k, UserItems(user, offsets, left_out), log_sums=log_sums)

    for start in range(0, len(given), BLOCK):
        user = given[start : start + BLOCK].astype(np.int64)
        scores = catalogue_scores(scorer, user, n_items)
        pieces = [
            partial(top, user[first : first + PIECE], scores[first : first + PIECE])
            for first in range(0, len(user), PIECE)
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
        rows, parts = max(1, BATCH_SLOTS // n_items), []
        for query in torch.split(torch.from_numpy(users), rows):
            item = torch.arange(n_items, dtype=torch.int32).repeat(len(query), 1)
            relevance, mask = torch.zeros(item.shape), torch.ones(item.shape, dtype=torch.bool)
            group = torch.full_like(item, -1)
            parts.append(score(scorer, list_batch(query, relevance, group, mask, item=item)))
        found = torch.cat(parts)
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
