"""Ranking lists as padded tensors: what a scorer is given and an objective is computed on."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.errors import InputError
from fairtopk.functional.ranking import ideal_dcg as list_ideal_dcg
from fairtopk.kernels.csr import offsets_of, stable_order
from fairtopk.kernels.ideal import ideal_dcg
from fairtopk.kernels.sampling import group_lists, training_lists
from fairtopk.lists import Candidates, Lists, Ratings, check_whole


class Columns(NamedTuple):
    """What a batch holds: Q queries with L slots each, relevant items in the first R slots.

    A list stands for a longer one, of which it is a sample, or for itself. In the terms of
    Algorithm 1, the slots in `mask` are B_q and those with a label in `group` are B_a and B_b:
    mostly the same slots, but the groups may also be drawn apart.

    Attributes:
        query: Query (user) numbers, ``[Q]``.
        item: Item numbers, ``[Q, L]``; 0 on padding.
        relevance: Grades, 0 for unrated items, ``[Q, L]``.
        group: The group that a slot speaks for, -1 for none, ``[Q, L]``.
        mask: Whether a slot is part of the list, ``[Q, L]``; False on padding.
        pair: The row of each (query, item) in tables kept per pair, -1 where there is none,
            ``[Q, R]``.
        weight: How many items of the whole list a slot stands for, up to a factor, ``[Q, L]``;
            0 on padding, ones where the sample counts as uniform.
        length: Length of the whole list, N_q, ``[Q]``.
        n_relevant: Relevant items of the whole list, ``[Q]``.
        ideal_dcg: Ideal DCG of the whole list, Z_q, ``[Q]``.
    """

    query: Tensor
    item: Tensor
    relevance: Tensor
    group: Tensor
    mask: Tensor
    pair: Tensor
    weight: Tensor
    length: Tensor
    n_relevant: Tensor
    ideal_dcg: Tensor


class Batch(Columns):
    """Lists of Q queries, with what several parts of an objective ask of them, found once."""

    @cached_property
    def valid(self) -> Tensor:
        """Which slots hold an item, of the list or drawn apart from it, ``[Q, L]``."""
        return self.weight > 0

    @cached_property
    def size(self) -> Tensor:
        """How many slots each list has at hand, in the type of weights, ``[Q]``."""
        return self.mask.to(self.weight.dtype).sum(-1)

    @cached_property
    def share(self) -> Tensor:
        """The weight of each slot in a mean over its list, ``[Q, L]``; 0 off the list."""
        weight = self.weight * self.mask
        return weight / weight.sum(-1, keepdim=True)


@dataclass(frozen=True)
class ListSizes:
    """How many items a training list holds.

    Attributes:
        rated: Of the user's training ratings.
        unrated: Of the other items.
        per_group: Of each group of the catalogue, drawn apart from the list, as B_a and B_b of
            Algorithm 1; 0 lets the list's own items speak for their groups.
    """

    rated: int = 10
    unrated: int = 300
    per_group: int = 0

    def __post_init__(self) -> None:
        if self.rated < 1 or self.unrated < 1 or self.per_group < 0:
            raise InputError(
                f"lists need at least 1 rated and 1 unrated item, and per_group not below 0, "
                f"got {self.rated}, {self.unrated} and {self.per_group}"
            )


class Sampler(Protocol):
    """Gives the lists that a model is trained on, batch by batch.

    Attributes:
        n_relevant: Relevant items of each query, ``[n_queries]``.
    """

    n_relevant: NDArray[np.int64]

    def epoch(self, epoch: int, *, batch_size: int, first: int = 0) -> Iterator[Batch]:
        """Yield every query's list once; batches before `first` are left out."""


class ListSampler:
    """Draws training lists of a split; one seed gives the same lists, batch by batch.

    Args:
        lists: The split; only its training ratings are read.
        sizes: Items per list. A user with fewer has padding there.
        seed: Of all random streams.
        ideal_k: Where the ideal DCG of a user's training ratings is cut; None is nowhere.
        corrected: Whether slots are weighted by how many items they stand for; otherwise the
            list counts as a uniform sample, as in the paper, though it favours rated items.
    """

    def __init__(
        self,
        lists: Lists,
        sizes: ListSizes,
        *,
        seed: int,
        ideal_k: int | None = None,
        corrected: bool = False,
    ) -> None:
        check_whole("seed", seed, least=0)
        data, train = lists.data, lists.train
        self.train: Ratings = train
        self.group = data.group
        self.n_items = data.n_items
        self.group_names, self.n_groups = data.group_names, len(data.group_names)
        self.sizes, self.seed, self.corrected = sizes, seed, corrected
        self.ideal_dcg = ideal_dcg(train.offsets, train.rating, ideal_k or self.n_items)
        self.n_relevant = np.add.reduceat(train.rating > 0, train.offsets[:-1], dtype=np.int64)
        self.by_group = _items_by_group(data.group, self.n_groups)

    @property
    def n_queries(self) -> int:
        """Rows of tables kept per query."""
        return len(self.n_relevant)

    @property
    def n_pairs(self) -> int:
        """Rows of tables kept per (query, item)."""
        return len(self.train.item)

    def draw(self, users: NDArray[np.integer], *, epoch: int) -> Batch:
        """Return the lists that `users` have in `epoch`."""
        n_users = len(self.n_relevant)
        users = np.asarray(users)
        inside = np.issubdtype(users.dtype, np.integer) and users.ndim == 1
        if not inside or (len(users) and not (users.min() >= 0 and users.max() < n_users)):
            raise InputError(f"users must be whole numbers from 0 to {n_users - 1}")
        train, rated = self.train, self.sizes.rated
        sizes, key = (rated, self.sizes.unrated), (self.seed, epoch)
        item, slot, mask = training_lists(
            users, train.offsets, train.item, self.n_items, sizes, key
        )
        relevance = np.zeros(item.shape, np.float32)
        relevance[:, :rated] = np.where(slot >= 0, train.rating[slot], 0)
        group, weight = self.group[item], mask.astype(np.float32)
        group[~mask] = -1
        if self.corrected:
            weight *= self._weights(users, mask)
        if self.sizes.per_group:
            apart, label = group_lists(users, *self.by_group, self.sizes.per_group, key)
            group = np.hstack([np.full_like(group, -1), label])
            none = np.zeros(apart.shape, np.bool_)
            item, mask = np.hstack([item, apart]), np.hstack([mask, none])
            relevance = np.hstack([relevance, none.astype(np.float32)])
            weight = np.hstack([weight, (label >= 0).astype(np.float32)])
        length = np.full(len(users), self.n_items, np.int64)
        arrays = (users.astype(np.int64), item, relevance, group, mask, slot, weight, length)
        per_user = (self.n_relevant[users], self.ideal_dcg[users].astype(np.float32))
        return Batch(*(torch.from_numpy(array) for array in (*arrays, *per_user)))

    def epoch(self, epoch: int, *, batch_size: int, first: int = 0) -> Iterator[Batch]:
        """Yield every user's list once, in an order that changes from epoch to epoch.

        Batches before `first` are left out, for a run that goes on in the middle of an epoch.
        """
        check_whole("batch_size", batch_size, least=1)
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.n_relevant))
        for start in range(first * batch_size, len(order), batch_size):
            yield self.draw(order[start : start + batch_size], epoch=epoch)

    def _weights(
        self, users: NDArray[np.integer], mask: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        """Return how many items each slot stands for, ``[Q, L]``."""
        owned = np.diff(self.train.offsets)[users]
        parts = np.split(mask, [self.sizes.rated], axis=1)
        stands = []
        for part, whole in zip(parts, (owned, self.n_items - owned), strict=True):
            each = whole / np.maximum(part.sum(1), 1)
            stands.append(np.broadcast_to(each[:, None], part.shape))
        return np.hstack(stands).astype(np.float32)


def list_batch(
    query: Tensor,
    relevance: Tensor,
    group: Tensor,
    mask: Tensor,
    *,
    item: Tensor | None = None,
    ideal_k: int | None = None,
) -> Batch:
    """Return lists that stand for themselves as a batch.

    Any slot may be relevant, but what follows the last that is costs less.

    Args:
        query: Query numbers, ``[Q]``.
        relevance: Grades, ``[Q, L]``.
        group: Group numbers, -1 unknown, ``[Q, L]``.
        mask: False on padding, ``[Q, L]``.
        item: Item numbers, for a scorer that reads them, ``[Q, L]``.
        ideal_k: Where the ideal DCG is cut; None is nowhere.
    """
    relevance = relevance.masked_fill(~mask, 0)
    relevant = relevance > 0
    n_rows = int(relevant.any(0).nonzero().max()) + 1 if relevant.any() else 0
    return Batch(
        query=query,
        item=item if item is not None else torch.zeros_like(group),
        relevance=relevance,
        group=group.masked_fill(~mask, -1),
        mask=mask,
        pair=torch.full((len(relevance), n_rows), -1, device=relevance.device),
        weight=mask.to(relevance.dtype),
        length=mask.sum(-1),
        n_relevant=relevant.sum(-1),
        ideal_dcg=list_ideal_dcg(relevance[:, :n_rows], mask[:, :n_rows], ideal_k),
    )


def candidate_batch(lists: Candidates, group: NDArray[np.int32]) -> Batch:
    """Return evaluation lists as a batch; `group` is the group number of each item."""
    arrays = (lists.user, lists.relevance, group[lists.item], lists.mask, lists.item)
    query, relevance, label, mask, item = (
        torch.from_numpy(np.array(array)) for array in arrays
    )
    return list_batch(query, relevance, label, mask, item=item)


def _items_by_group(
    group: NDArray[np.int32], n_groups: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the items of each known group as CSR arrays."""
    known = np.flatnonzero(group >= 0).astype(np.int32)
    offsets = offsets_of(group[known], n_groups)
    return offsets, known[stable_order(group[known], offsets)]
