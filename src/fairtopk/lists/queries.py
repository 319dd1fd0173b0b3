"""Queries with documents that have features: splits by query, and lists as batches.

`QueryLists` is to documents what `Lists` is to users and items, with the same members: a run is
trained and measured on either. Items of a batch are rows of the feature table.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fairtopk.checks import checked_kind, checked_number, checked_whole
from fairtopk.data.features import Features
from fairtopk.errors import InputError
from fairtopk.kernels.csr import TEST, TRAIN, VALIDATION
from fairtopk.kernels.threads import torch_on_one_thread
from fairtopk.lists.batch import Batch, list_batch
from fairtopk.lists.users import Lists

SLOTS = 2**18  # of lists that are scored at once


class FeatureSplit(NamedTuple):
    """Three sets of queries; no query is in two of them."""

    train: Features
    validation: Features
    test: Features


def split_queries(
    features: Features, *, test: float = 0.2, validation: float = 0.2, seed: int = 0
) -> FeatureSplit:
    """Return a random split by query; `test` and `validation` are shares of the queries.

    A split is a function of (data, shares, seed). Queries keep their order within each part.
    """
    part = query_parts(features, test=test, validation=validation, seed=seed)
    parts = []
    for code in (TRAIN, VALIDATION, TEST):
        queries = np.flatnonzero(part == code)
        rows = np.flatnonzero(np.repeat(part == code, np.diff(features.offsets)))
        one = replace(
            features,
            offsets=np.concatenate([[0], np.cumsum(np.diff(features.offsets)[queries])]),
            values=features.values[rows],
            relevance=features.relevance[rows],
            group=features.group[rows],
            row=features.row[rows],
            query_ids=features.query_ids.gather(queries),
            item_ids=features.item_ids.gather(rows),
        )
        parts.append(one)
    return FeatureSplit(*parts)


def query_parts(
    features: Features, *, test: float, validation: float, seed: int
) -> NDArray[np.int8]:
    """Return the part that each query is in, ``[n_queries]``; see `split_queries`."""
    checked_kind("features", features, Features, source="ft.Features.from_frame or ft.load")
    test, validation = checked_number("test", test), checked_number("validation", validation)
    seed = checked_whole("seed", seed, least=0)
    if not (test > 0 and validation >= 0 and test + validation < 1):
        raise InputError(
            f"test and validation must be shares of the queries that leave some for training, "
            f"got {test:g} and {validation:g}"
        )
    n_test, n_validation = (round(share * features.n_queries) for share in (test, validation))
    n_train = features.n_queries - n_test - n_validation
    if min(n_test, n_train) < 1 or (validation > 0 and n_validation < 1):
        raise InputError(
            f"{features.name} has {features.n_queries} queries, too few for shares of {test:g} "
            f"and {validation:g}; give larger shares, or more queries"
        )
    order = np.random.default_rng(seed).permutation(features.n_queries)
    part = np.full(features.n_queries, TEST)
    part[order[:n_train]] = TRAIN
    part[order[n_train : n_train + n_validation]] = VALIDATION
    return part


@dataclass(frozen=True, eq=False)
class QueryPart:
    """The lists of one part; members are those of `HeldOut`."""

    data: Features  # all documents
    user: NDArray[np.int64]  # numbers of the part's queries, [Q]

    def batches(self, *, unrated: int = 0, seed: int = 0) -> list[Batch]:
        """Return the whole lists some at a time; nothing is sampled, whatever the arguments."""
        return list(feature_batches(self.data, slots=SLOTS, queries=self.user))

    def lengths(self, *, unrated: int | None = None) -> NDArray[np.int64]:
        """Return the length of each of these lists, ``[Q]``."""
        return np.diff(self.data.offsets)[self.user]


@dataclass(eq=False)
class QueryLists:
    """Queries with documents, split into training, validation and test; compare `Lists`.

    Attributes:
        data: What was split.
        part: The part that each query is in, ``[n_queries]``: train, validation or test.
        rule: How it was split, in words.
        short_users: 0, since each query is in one part as a whole.
        n_pairs: How many pairs of a query and a document a method may keep a value for.
        train: The lists to learn from.
        validation: Those to choose settings by.
        test: Those to report on.
    """

    data: Features
    part: NDArray[np.int8]
    rule: str
    short_users: int = 0

    # A context in which torch trains with one thread, which is faster for small steps.
    training_threads = staticmethod(torch_on_one_thread)

    def __post_init__(self) -> None:
        self.n_pairs = self.data.n_rows
        self.train, self.validation, self.test = (
            QueryPart(self.data, np.flatnonzero(self.part == code))
            for code in (TRAIN, VALIDATION, TEST)
        )

    @property
    def warmup_checksum(self) -> str:
        """The checksum of what a warm-up reads: groups may be features too."""
        return self.data.checksum


AnyLists = Lists | QueryLists


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
