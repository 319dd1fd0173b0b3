"""Lists of documents with features as batches, whose items are rows of the feature table."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from fairtopk.arguments import checked_whole
from fairtopk.batches import Batch, list_batch
from fairtopk.data.features import Features


class FeatureSampler:
    """Gives every query's whole list once an epoch, in an order that changes.

    Args:
        features: The documents; relevance is not below 0.
        seed: Of the order.
        ideal_k: Where the ideal DCG of a list is cut; None is nowhere.
        queries: The numbers of those that are given; None is all.
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
        # Relevant documents first: what follows the last of them costs less.
        query = features.query_of_row()
        self.order = np.lexsort((-features.relevance, query))

    @property
    def n_queries(self) -> int:
        """Rows of tables kept per query."""
        return self.features.n_queries

    @property
    def n_pairs(self) -> int:
        """Rows of tables kept per (query, item)."""
        return self.features.n_rows

    def epoch(self, epoch: int, *, batch_size: int, first: int = 0) -> Iterator[Batch]:
        """Yield every query's list once; batches before `first` are left out."""
        checked_whole("batch_size", batch_size, least=1)
        if batch_size >= len(self.queries):
            yield from [self._everything][first:]
            return
        order = np.random.default_rng([self.seed, epoch]).permutation(self.queries)
        for start in range(first * batch_size, len(order), batch_size):
            yield self._of(order[start : start + batch_size])

    @cached_property
    def _everything(self) -> Batch:
        """All lists; within a batch their order is nothing, so that one serves all epochs."""
        return self._of(self.queries)

    def _of(self, queries: NDArray[np.integer]) -> Batch:
        batch = feature_batch(self.features, queries, order=self.order, ideal_k=self.ideal_k)
        first = slice(batch.pair.shape[1])
        relevant = batch.relevance[:, first] > 0
        return batch._replace(pair=torch.where(relevant, batch.item[:, first].long(), -1))


def feature_batch(
    features: Features,
    queries: NDArray[np.integer],
    *,
    order: NDArray[np.integer] | None = None,
    ideal_k: int | None = None,
) -> Batch:
    """Return the lists of some queries, padded to the longest of them.

    Args:
        features: The documents.
        queries: Query numbers, ``[Q]``.
        order: The rows in the order of the lists, queries one after the other; None is theirs.
        ideal_k: Where the ideal DCG is cut; None is nowhere.
    """
    starts, sizes = features.offsets[queries], np.diff(features.offsets)[queries]
    column = np.arange(sizes.max(initial=0))
    mask = column < sizes[:, None]
    row = np.where(mask, starts[:, None] + column, 0)
    if order is not None:
        row = np.where(mask, order[row], 0)
    arrays = (
        queries.astype(np.int64),
        features.relevance[row],
        features.group[row],
        mask,
        row.astype(np.int32),
    )
    query, relevance, group, inside, item = map(torch.from_numpy, arrays)
    return list_batch(query, relevance, group, inside, item=item, ideal_k=ideal_k)


def feature_batches(
    features: Features, *, slots: int, queries: NDArray[np.integer] | None = None
) -> Iterator[Batch]:
    """Yield the lists of all queries, or of some, in their order, so many slots at a time."""
    queries = np.arange(features.n_queries) if queries is None else queries
    sizes = np.diff(features.offsets)[queries]
    first = 0
    while first < len(queries):
        longest = np.maximum.accumulate(sizes[first:])
        fits = longest * np.arange(1, len(longest) + 1) <= slots
        count = max(1, int(fits.argmin()) if not fits.all() else len(fits))
        yield feature_batch(features, queries[first : first + count])
        first += count
