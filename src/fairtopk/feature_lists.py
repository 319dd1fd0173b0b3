"""From documents with features to ranking lists: splits by query."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.arguments import checked_kind, checked_number, checked_whole
from fairtopk.data.features import Features
from fairtopk.errors import InputError
from fairtopk.kernels.splitting import TEST, TRAIN, VALIDATION


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
    codes = (TRAIN, VALIDATION, TEST)
    return FeatureSplit(*(take_queries(features, np.flatnonzero(part == one)) for one in codes))


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


def take_queries(features: Features, queries: NDArray[np.integer]) -> Features:
    """Return the documents of some queries, in the order given."""
    sizes = np.diff(features.offsets)[queries]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    rows = np.repeat(features.offsets[queries] - offsets[:-1], sizes) + np.arange(offsets[-1])
    return replace(
        features,
        offsets=offsets,
        values=features.values[rows],
        relevance=features.relevance[rows],
        group=features.group[rows],
        row=features.row[rows],
        query_ids=features.query_ids.gather(queries),
        item_ids=features.item_ids.gather(rows),
    )
