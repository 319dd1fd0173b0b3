"""Means over queries with an interval: what is reported of a metric.

A metric that is undefined for a query is NaN there. It is left out of the mean and counted. An
interval goes from the 2.5th to the 97.5th percentile of the means of 1,000 resamples: as many
queries, drawn with replacement (percentile bootstrap).
"""

import reprlib
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.arguments import checked_whole
from fairtopk.errors import InputError
from fairtopk.kernels.threads import run_all
from fairtopk.metrics.inputs import Values, tensor_of

RESAMPLES = 1_000
RESAMPLES_AT_ONCE = 50
COUNTED_AT_ONCE = 10_000  # draws, which stay in the cache of the processor
LEVELS = (0.025, 0.975)


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
    columns = torch.stack(_checked(metrics), dim=-1)
    seed = checked_whole("seed", seed, least=0)
    defined = ~columns.isnan()
    sums = torch.cat([columns.nan_to_num(0.0), defined.double()], dim=-1).numpy()
    means = ratios(sums.sum(0))
    bounds = interval(ratios(resampled(sums, seed)))
    counts = defined.sum(0).tolist()
    rows = zip(means.tolist(), bounds.T.tolist(), counts, strict=True)
    return {
        name: Mean(mean, (low, high), n, len(columns) - n)
        for name, (mean, (low, high), n) in zip(metrics, rows, strict=True)
    }


def resampled(sums: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
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


def ratios(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return sums over numbers, two halves of the last axis; NaN where a number is 0."""
    totals, counts = np.split(sums, 2, axis=-1)
    return totals / np.where(counts > 0, counts, np.nan)


def interval(resamples: NDArray[np.float64]) -> Tensor:
    """Return the bounds of the middle 95 % of resamples, the first axis, NaN left out."""
    levels = torch.tensor(LEVELS, dtype=torch.float64)
    return torch.nanquantile(torch.from_numpy(resamples), levels, dim=0)


def _checked(metrics: Mapping[str, Values]) -> list[Tensor]:
    if not isinstance(metrics, Mapping) or not metrics:
        raise InputError(
            f"metrics must map names of metrics to their values, got {reprlib.repr(metrics)}"
        )
    columns = [tensor_of(values, str(name)).double().cpu() for name, values in metrics.items()]
    for name, column in zip(metrics, columns, strict=True):
        if column.ndim != 1 or column.numel() == 0:
            raise InputError(
                f"{name} must hold one value per query, and at least one, "
                f"got shape {list(column.shape)}"
            )
        if len(column) != len(columns[0]):
            raise InputError(
                f"{name} must have as many values as {next(iter(metrics))}, {len(columns[0])}, "
                f"got {len(column)}"
            )
        if column.isinf().any():
            query = int(column.isinf().nonzero()[0])
            raise InputError(
                f"{name} must be finite, or NaN where undefined, got {column[query]:g} for "
                f"query {query}"
            )
    return columns
