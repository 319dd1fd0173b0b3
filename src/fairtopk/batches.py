"""Ranking lists as padded tensors: what a scorer is given and an objective is computed on."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.errors import InputError
from fairtopk.kernels.sampling import training_lists
from fairtopk.lists import Candidates, Lists, Ratings


class Batch(NamedTuple):
    """Lists of Q queries with L slots each.

    Attributes:
        query: Query (user) numbers, ``[Q]``.
        item: Item numbers, ``[Q, L]``; 0 on padding.
        relevance: Grades, 0 for unrated items, ``[Q, L]``.
        group: Group numbers, -1 unknown, ``[Q, L]``.
        mask: False on padding, ``[Q, L]``.
        pair: The row of each (query, item) in tables kept per pair, -1 where there is none,
            ``[Q, R]``. Relevant items stand in the first R slots of a list.
    """

    query: Tensor
    item: Tensor
    relevance: Tensor
    group: Tensor
    mask: Tensor
    pair: Tensor


@dataclass(frozen=True)
class ListSizes:
    """How many rated and unrated items a training list holds."""

    rated: int = 10
    unrated: int = 300

    def __post_init__(self) -> None:
        if self.rated < 1 or self.unrated < 1:
            raise InputError(
                f"lists need at least 1 rated and 1 unrated item, "
                f"got {self.rated} and {self.unrated}"
            )


class ListSampler:
    """Draws training lists of a split; one seed gives the same lists, batch by batch.

    Args:
        lists: The split; only its training ratings are read.
        sizes: Rated and unrated items per list. A user with fewer has padding there.
        seed: Of all random streams.
    """

    def __init__(self, lists: Lists, sizes: ListSizes, *, seed: int) -> None:
        self.train: Ratings = lists.train
        self.n_items = lists.data.n_items
        self.group = lists.data.group
        self.sizes = sizes
        self.seed = seed

    def draw(self, users: NDArray[np.integer], *, epoch: int) -> Batch:
        """Return the lists that `users` have in `epoch`."""
        train = self.train
        sizes, key = (self.sizes.rated, self.sizes.unrated), (self.seed, epoch)
        item, slot, mask = training_lists(
            users, train.offsets, train.item, self.n_items, sizes, key
        )
        relevance = np.zeros(item.shape, np.float32)
        relevance[:, : self.sizes.rated] = np.where(slot >= 0, train.rating[slot], 0)
        return _batch(users, item, relevance, self.group, mask, slot)

    def epoch(self, epoch: int, *, batch_size: int) -> Iterator[Batch]:
        """Yield every user's list once, in an order that changes from epoch to epoch."""
        order = np.random.default_rng([self.seed, epoch]).permutation(
            len(self.train.offsets) - 1
        )
        for start in range(0, len(order), batch_size):
            yield self.draw(order[start : start + batch_size], epoch=epoch)


def candidate_batch(lists: Candidates, group: NDArray[np.int32]) -> Batch:
    """Return evaluation lists as a batch; `group` is the group number of each item."""
    pair = np.full(lists.item.shape, -1, np.int64)
    return _batch(lists.user, lists.item, lists.relevance, group, lists.mask, pair)


def _batch(
    query: NDArray[np.integer],
    item: NDArray[np.int32],
    relevance: NDArray[np.float32],
    group: NDArray[np.int32],
    mask: NDArray[np.bool_],
    pair: NDArray[np.int64],
) -> Batch:
    arrays = (query.astype(np.int64), item, relevance, group[item], mask, pair)
    return Batch(*(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays))
