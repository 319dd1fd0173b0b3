"""Means over lists and ratios of such means, with intervals from one set of resamples."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.metrics.intervals import Mean, interval, ratios, resampled

Doubles = NDArray[np.float64]
Key = tuple[str, ...]


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

    def __init__(self, columns: Mapping[Key, Doubles], *, seed: int) -> None:
        values = np.stack(list(columns.values()), axis=-1)
        sums = np.concatenate([np.nan_to_num(values), ~np.isnan(values)], axis=-1)
        self.place = {key: number for number, key in enumerate(columns)}
        self.n_lists = len(values)
        self.count = (~np.isnan(values)).sum(0)
        self.point = ratios(sums.sum(0))
        self.again = ratios(resampled(sums, seed))
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

        A resample without one of these has no value, and is left out.
        """
        groups = [one for one, key in enumerate(keys) if self.has(key)]
        if len(groups) < 2:
            return Ratio(np.nan, (np.nan, np.nan), None, None)
        point = self.point[[self.place[keys[one]] for one in groups]]
        # Of equals another one, so that the two differ.
        least, most = groups[int(point.argmin())], groups[::-1][int(point[::-1].argmax())]
        if point.max() == 0:  # none gets anything
            return Ratio(np.nan, (np.nan, np.nan), None, None)
        low, high = interval(self.ratios([keys[one] for one in groups])).tolist()
        return Ratio(float(point.min() / point.max()), (low, high), least, most)

    def ratios(self, keys: Sequence[Key]) -> Doubles:
        """Return the ratio of the least to the most in each resample."""
        again = self.again[:, [self.place[key] for key in keys]]
        most = again.max(-1)
        found: Doubles = again.min(-1) / np.where(most > 0, most, np.nan)
        return found
