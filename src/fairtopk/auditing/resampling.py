"""Means over lists and ratios of such means, with intervals from one set of resamples."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.metrics.intervals import Mean, interval, ratios, resampled

Doubles = NDArray[np.float64]
Floats = NDArray[np.floating]
Key = tuple[str, ...]

COLUMNS_AT_ONCE = 64  # that are resampled together; more are held in turn


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
            points.append(ratios(sums.sum(0)))
            # The seed is the same, and so are the resamples.
            again.append(ratios(resampled(sums, seed)))
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
        return _over(again.min(-1), again.max(-1))

    def ratio_to(self, key: Key, most: Key) -> tuple[float, tuple[float, float]]:
        """Return the ratio of a column to another, whichever is larger, and its interval."""
        one, other = self.place[key], self.place[most]
        low, high = interval(_over(self.again[:, one], self.again[:, other])).tolist()
        return float(_over(self.point[one], self.point[other])), (low, high)


def _over(values: Doubles, others: Doubles) -> Doubles:
    found: Doubles = values / np.where(others > 0, others, np.nan)
    return found
