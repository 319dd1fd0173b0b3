"""Means over queries, and ratios of such means, with bootstrap intervals.

A metric that is undefined for a query is NaN there. It is left out of the mean and counted. An
interval goes from the 2.5th to the 97.5th percentile of the means of 1,000 resamples: as many
queries, drawn with replacement (percentile bootstrap).
"""

import reprlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.checks import checked_whole
from fairtopk.errors import InputError
from fairtopk.kernels.threads import run_all
from fairtopk.tensors import Values, tensor_of

RESAMPLES = 1_000
RESAMPLES_AT_ONCE = 50
COUNTED_AT_ONCE = 10_000  # draws, which stay in the cache of the processor
LEVELS = (0.025, 0.975)

Doubles = NDArray[np.float64]
Floats = NDArray[np.floating]
Key = tuple[str, ...]
COLUMNS_AT_ONCE = 64  # that are resampled together; more are held in turn


class Mean(NamedTuple):
    """A mean over queries.

    Attributes:
        mean: Over the queries for which the metric is defined; NaN if there are none.
        ci95: A 95 % interval of it, by bootstrap over queries.
        n: Queries for which the metric is defined.
        undefined: Queries for which it is not.
    """

    mean: float
    ci95: tuple[float, float]
    n: int
    undefined: int


def mean_with_interval(values: Values, *, seed: int = 0) -> Mean:
    """Return the mean of a metric's values, one per query, with its interval.

    Args:
        values: One value per query, finite, NaN where undefined, ``[Q]``.
        seed: Of the 1,000 resamples of all queries, the undefined ones among them.

    Example:
        >>> import torch
        >>> mean_with_interval(torch.tensor([0.5, 0.5, torch.nan]))
        Mean(mean=0.5, ci95=(0.5, 0.5), n=2, undefined=1)
    """
    return means_with_intervals({"values": values}, seed=seed)["values"]


def means_with_intervals(metrics: Mapping[str, Values], *, seed: int = 0) -> dict[str, Mean]:
    """Return `mean_with_interval` of several metrics, from one set of resamples.

    Args:
        metrics: Name of each metric, and its values of the same queries, ``[Q]``.
        seed: Of the resamples.
    """
    if not isinstance(metrics, Mapping) or not metrics:
        raise InputError(
            f"metrics must map names of metrics to their values, got {reprlib.repr(metrics)}"
        )
    given = [tensor_of(values, str(name)).double().cpu() for name, values in metrics.items()]
    for name, column in zip(metrics, given, strict=True):
        if column.ndim != 1 or column.numel() == 0:
            raise InputError(
                f"{name} must hold one value per query, and at least one, "
                f"got shape {list(column.shape)}"
            )
        if len(column) != len(given[0]):
            raise InputError(
                f"{name} must have as many values as {next(iter(metrics))}, {len(given[0])}, "
                f"got {len(column)}"
            )
        if column.isinf().any():
            query = int(column.isinf().nonzero()[0])
            raise InputError(
                f"{name} must be finite, or NaN where undefined, got {column[query]:g} for "
                f"query {query}"
            )
    columns = torch.stack(given, dim=-1)
    seed = checked_whole("seed", seed, least=0)
    defined = ~columns.isnan()
    sums = torch.cat([columns.nan_to_num(0.0), defined.double()], dim=-1).numpy()
    means = over(*np.split(sums.sum(0), 2))
    bounds = interval(over(*np.split(resampled(sums, seed), 2, axis=-1)))
    counts = defined.sum(0).tolist()
    rows = zip(means.tolist(), bounds.T.tolist(), counts, strict=True)
    return {
        name: Mean(mean, (low, high), n, len(columns) - n)
        for name, (mean, (low, high), n) in zip(metrics, rows, strict=True)
    }


def resampled(sums: Doubles, seed: int) -> Doubles:
    """Return the columns' sums over each resample of the rows, ``[RESAMPLES, columns]``."""

    def totals(piece: int) -> Tensor:
        generator, n = np.random.default_rng([seed, piece]), len(sums)
        # How often each row was drawn, so that one product serves all columns. Few rows are
        # counted for many resamples in one call, each resample with numbers of its own.
        drawn = np.empty((RESAMPLES_AT_ONCE, n))
        at_once = max(COUNTED_AT_ONCE // n, 1)
        for resamples in np.split(drawn, range(at_once, RESAMPLES_AT_ONCE, at_once)):
            rows = generator.integers(n, size=resamples.shape, dtype=np.uint32).astype(np.int64)
            rows += n * np.arange(len(rows))[:, None]
            counts = np.bincount(rows.ravel(), minlength=rows.size)
            resamples[:] = counts.reshape(rows.shape)
        return torch.from_numpy(drawn) @ torch.from_numpy(sums)

    pieces = [partial(totals, piece) for piece in range(RESAMPLES // RESAMPLES_AT_ONCE)]
    return torch.cat(run_all(pieces)).numpy()


def over(values: Doubles, others: Doubles) -> Doubles:
    """Return the ratios of values to others; NaN where the other is 0."""
    found: Doubles = values / np.where(others > 0, others, np.nan)
    return found


def interval(resamples: Doubles) -> Tensor:
    """Return the bounds of the middle 95 % of resamples, the first axis, NaN left out."""
    levels = torch.tensor(LEVELS, dtype=torch.float64)
    return torch.nanquantile(torch.from_numpy(resamples), levels, dim=0)


class Ratio(NamedTuple):
    """What the group that gets least gets, over what the one that gets most gets.

    Attributes:
        value: NaN where fewer than two groups are there.
        ci95: A 95 % interval of it, by bootstrap over lists.
        least: Which group gets least, None where `value` is NaN.
        most: Which group gets most.
    """

    value: float
    ci95: tuple[float, float]
    least: int | None
    most: int | None


class Resampled:
    """Means of several columns over lists, and what other lists could have given.

    Args:
        columns: Values of each list by key, NaN where undefined, ``[Q]``.
        seed: Of the 1,000 resamples of lists.
    """

    def __init__(self, columns: Mapping[Key, Floats], *, seed: int) -> None:
        keys = list(columns)
        self.place = {key: number for number, key in enumerate(keys)}
        self.n_lists = len(columns[keys[0]])
        counts, points, again = [], [], []
        for start in range(0, len(keys), COLUMNS_AT_ONCE):
            some = [columns[key] for key in keys[start : start + COLUMNS_AT_ONCE]]
            values = np.stack(some, axis=-1, dtype=np.float64)
            sums = np.concatenate([np.nan_to_num(values), ~np.isnan(values)], axis=-1)
            counts.append((~np.isnan(values)).sum(0))
            points.append(over(*np.split(sums.sum(0), 2)))
            # The seed is the same, and so are the resamples.
            again.append(over(*np.split(resampled(sums, seed), 2, axis=-1)))
        self.count, self.point = np.concatenate(counts), np.concatenate(points)
        self.again = np.concatenate(again, axis=-1)
        self.bounds = interval(self.again).numpy()

    def has(self, key: Key) -> bool:
        """Return whether a column is defined for some list."""
        return bool(self.count[self.place[key]])

    def mean(self, key: Key) -> Mean:
        """Return the mean of a column, as `mean_with_interval` does."""
        place = self.place[key]
        low, high = self.bounds[:, place].tolist()
        n = int(self.count[place])
        return Mean(float(self.point[place]), (low, high), n, self.n_lists - n)

    def ratio(self, keys: Sequence[Key]) -> Ratio:
        """Return the ratio of the least to the most of the columns that have a mean.

        In each resample these are the least and the most of that resample, so that no ratio is
        above 1. A resample without one of the columns has no value, and is left out.
        """
        groups = [one for one, key in enumerate(keys) if self.has(key)]
        point = self.point[[self.place[keys[one]] for one in groups]]
        if len(groups) < 2 or point.max() == 0:  # or none gets anything
            return Ratio(np.nan, (np.nan, np.nan), None, None)
        # Of equals another one, so that the two differ.
        least, most = groups[int(point.argmin())], groups[::-1][int(point[::-1].argmax())]
        low, high = interval(self.ratios([keys[one] for one in groups])).tolist()
        return Ratio(float(point.min() / point.max()), (low, high), least, most)

    def ratios(self, keys: Sequence[Key]) -> Doubles:
        """Return the ratio of the least to the most in each resample."""
        again = self.again[:, [self.place[key] for key in keys]]
        return over(again.min(-1), again.max(-1))

    def ratio_to(self, key: Key, most: Key) -> tuple[float, tuple[float, float]]:
        """Return the ratio of a column to another, whichever is larger, and its interval."""
        one, other = self.place[key], self.place[most]
        low, high = interval(over(self.again[:, one], self.again[:, other])).tolist()
        return float(over(self.point[one], self.point[other])), (low, high)
