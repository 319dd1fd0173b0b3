"""Samplers of training lists, of users and of queries (Algorithm 1, lines 2-3)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairtopk.checks import checked_flag, checked_kind, checked_whole
from fairtopk.data.features import Features
from fairtopk.errors import InputError, KindError
from fairtopk.kernels import csr
from fairtopk.kernels.ranking import UserItems
from fairtopk.lists.batch import Batch
from fairtopk.lists.queries import feature_batch
from fairtopk.lists.users import Lists, Ratings, group_lists, training_lists
from fairtopk.models.scoring import top_items
from fairtopk.terminal import shown

MOST_ITEMS = 10**7  # of a kind in one list


@dataclass(frozen=True)
class ListSizes:
    """How many items a training list holds.

    Attributes:
        rated: Items among the user's training ratings.
        unrated: Other items; with a top, items past the head.
        per_group: Items of each group of the catalogue, drawn apart from the list, as B_a and
            B_b of Algorithm 1; 0 lets the list's own items speak for their groups.
        top: Items from the user's head: those that the model ranks highest now and the user has
            not rated in training. 0 draws none.
        head: How many items the head has.
    """

    rated: int = 10
    unrated: int = 300
    per_group: int = 0
    top: int = 0
    head: int = 400

    def __post_init__(self) -> None:
        for name, size in vars(self).items():
            least = 1 if name in ("rated", "unrated") else 0
            checked_whole(f"{name} of a list", size, least=least, most=MOST_ITEMS)
        if self.top > self.head:
            raise InputError(
                f"top items are drawn from the head: top must be from 0 to head, got "
                f"{self.top} of {self.head}"
            )
        if self.top and self.per_group:
            raise InputError(
                "lists with top items speak for their groups themselves; leave out per_group"
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

    With ``sizes.top``, a list is drawn from three parts of the catalogue: what the user has
    rated, the user's head, and the rest, and a slot stands for its share of its part. That
    holds for any head, also one that the model has moved on from.

    Args:
        lists: The split; only its training ratings are read.
        sizes: Items per list. A user with fewer has padding there.
        seed: Seed of all random streams.
        ideal_k: Where the ideal DCG of a user's training ratings is cut; None is nowhere.
        corrected: Whether slots are weighted by how many items they stand for; otherwise the
            list counts as a uniform sample, as in the paper, though it favours rated items.
            With ``sizes.top`` they always are.

    Attributes:
        n_queries: Rows of tables kept per query.
        n_pairs: Rows of tables kept per (query, item).
        n_relevant: Relevant training ratings of each user, ``[n_queries]``.
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
        checked_kind("lists", lists, Lists, source="ft.split or ft.split_random")
        checked_kind("sizes", sizes, ListSizes, source="ft.ListSizes")
        checked_whole("seed", seed, least=0)
        checked_flag("corrected", corrected)
        if ideal_k is not None:
            checked_whole("ideal_k", ideal_k, least=1)
        data, train = lists.data, lists.train
        self.train: Ratings = train
        self.group = data.group
        self.n_items = data.n_items
        self.group_names, self.n_groups = data.group_names, len(data.group_names)
        self.sizes, self.seed = sizes, seed
        self.corrected = corrected or sizes.top > 0
        self.head: NDArray[np.int32] | None = None  # of each user, best first; -1 past its end
        self.ideal_dcg = csr.ideal_dcg(train.offsets, train.rating, ideal_k or self.n_items)
        self.n_relevant = np.add.reduceat(train.rating > 0, train.offsets[:-1], dtype=np.int64)
        self.n_queries, self.n_pairs = len(self.n_relevant), len(train.item)
        known = np.flatnonzero(data.group >= 0).astype(np.int32)
        offsets = csr.offsets_of(data.group[known], self.n_groups)
        self.by_group = (offsets, known[np.argsort(data.group[known], kind="stable")])

    def draw(self, users: NDArray[np.integer], *, epoch: int) -> Batch:
        """Return the lists that `users` have in `epoch`: lines 2 and 3 of Algorithm 1."""
        try:
            users = np.asarray(users)
        except (TypeError, ValueError, RuntimeError) as error:
            raise KindError(f"users must be whole numbers, got {shown(users)}") from error
        checked_whole("epoch", epoch, least=0)
        whole = np.issubdtype(users.dtype, np.integer) and users.ndim == 1
        if not whole or (len(users) and not 0 <= users.min() <= users.max() < self.n_queries):
            raise InputError(f"users must be whole numbers from 0 to {self.n_queries - 1}")
        train, sizes, key = self.train, self.sizes, (self.seed, epoch)
        if sizes.top and self.head is None:
            raise InputError("lists with top items need a model: call refresh(scorer) first")
        no_head = np.empty((len(users), 0), np.int32)
        head = no_head if self.head is None else self.head[users]
        rated = UserItems(users, train.offsets, train.item)
        parts = (sizes.rated, sizes.unrated, sizes.top)
        # B (line 2), the rated items, and B_q (line 3), the sample of the list
        item, slot, mask = training_lists(rated, head, self.n_items, parts, key)
        relevance = np.zeros(item.shape, np.float32)
        relevance[:, : sizes.rated] = np.where(slot >= 0, train.rating[slot], 0)
        group, weight = self.group[item], mask.astype(np.float32)
        group[~mask] = -1
        if self.corrected:
            # Each slot stands for its share of the part of the catalogue that it is drawn from.
            n_rated, n_head = np.diff(train.offsets)[users], (head >= 0).sum(1)
            wholes = (n_rated, self.n_items - n_rated - n_head, n_head)
            drawn = np.split(mask, np.cumsum(parts)[:2], axis=1)
            shares = [
                np.repeat((whole / np.maximum(part.sum(1), 1))[:, None], part.shape[1], axis=1)
                for whole, part in zip(wholes, drawn, strict=True)
            ]
            weight *= np.hstack(shares).astype(np.float32)
        if sizes.per_group:  # line 3: B_a, B_b
            apart, label = group_lists(users, self.by_group, sizes.per_group, key)
            none = np.zeros(apart.shape, np.bool_)
            item, mask = np.hstack([item, apart]), np.hstack([mask, none])
            group = np.hstack([np.full_like(group, -1), label])
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
        checked_whole("batch_size", batch_size, least=1)
        checked_whole("epoch", epoch, least=0)
        checked_whole("first", first, least=0)
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.n_relevant))
        for start in range(first * batch_size, len(order), batch_size):  # line 2: B_Q
            yield self.draw(order[start : start + batch_size], epoch=epoch)

    def refresh(self, scorer: nn.Module) -> None:
        """Take the head of each user from the model as it is now."""
        if self.sizes.top:
            size, users = min(self.sizes.head, self.n_items), np.arange(self.n_queries)
            found = top_items(scorer, users, k=size, n_items=self.n_items, excluded=self.train)
            self.head = found.item

    def state_dict(self) -> dict[str, Tensor]:
        """Return the heads, if there are any."""
        return {} if self.head is None else {"head": torch.from_numpy(self.head)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go back to earlier heads, refusing what are none of this catalogue's."""
        if state.keys() != ({"head"} if self.sizes.top else set()):
            raise InputError("the sampler has other tensors than the head of each user")
        if not self.sizes.top:
            self.head = None
            return
        head = state["head"].numpy()
        size = (self.n_queries, min(self.sizes.head, self.n_items))
        if head.dtype != np.int32 or head.shape != size:
            raise InputError(f"the head of each user must be int32 of shape {size}")
        if head.size and not (head.min() >= -1 and head.max() < self.n_items):
            raise InputError("the head of a user names an item that is not in the catalogue")
        self.head = head


class FeatureSampler:
    """Gives every query's whole list once an epoch, in an order that changes.

    Args:
        features: The documents; relevance is not below 0.
        seed: Seed of the order.
        ideal_k: Where the ideal DCG of a list is cut; None is nowhere.
        queries: The numbers of those that are given; None is all.

    Attributes:
        n_queries: Rows of tables kept per query.
        n_pairs: Rows of tables kept per (query, item).
        n_relevant: Relevant documents of each query that is given.
    """

    def __init__(
        self,
        features: Features,
        *,
        seed: int,
        ideal_k: int | None = None,
        queries: NDArray[np.integer] | None = None,
    ) -> None:
        self.features, self.seed, self.ideal_k = features, seed, ideal_k
        self.group_names, self.n_groups = features.group_names, len(features.group_names)
        self.queries = np.arange(features.n_queries) if queries is None else queries
        self.group = features.group[np.isin(features.query_of_row(), self.queries)]
        starts = features.offsets[:-1]
        n_relevant = np.add.reduceat(features.relevance > 0, starts, dtype=np.int64)
        self.n_relevant = n_relevant[self.queries]
        self.n_queries, self.n_pairs = features.n_queries, features.n_rows
        # Relevant documents first: what follows the last of them costs less.
        self.order = np.lexsort((-features.relevance, features.query_of_row()))
        # All lists as one batch, in which their order does not matter: it serves all epochs.
        self.everything: Batch | None = None

    def epoch(self, epoch: int, *, batch_size: int, first: int = 0) -> Iterator[Batch]:
        """Yield every query's list once; batches before `first` are left out."""
        checked_whole("batch_size", batch_size, least=1)
        whole, order = batch_size >= len(self.queries), self.queries
        if not whole:
            order = np.random.default_rng([self.seed, epoch]).permutation(order)
        for start in range(first * batch_size, len(order), batch_size):
            if whole and self.everything is not None:
                yield self.everything
                return
            queries = order[start : start + batch_size]
            batch = feature_batch(
                self.features, queries, order=self.order, ideal_k=self.ideal_k
            )
            pair = batch.item[:, : batch.pair.shape[1]].long()
            relevant = batch.relevance[:, : pair.shape[1]] > 0
            batch = batch._replace(pair=torch.where(relevant, pair, -1))
            if whole:
                self.everything = batch
            yield batch
