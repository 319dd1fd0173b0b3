"""What chance alone would do: floors and p-values of lists that come block by block."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.kernels.shuffles import GroupSums, gap_totals
from fairtopk.metrics.chance import (
    ROUNDING,
    SHUFFLES_AT_ONCE,
    Floor,
    chance_floors,
    gap_p_values,
    labelled_lists,
    over_shuffles,
    tops_of_labelled,
)
from fairtopk.metrics.gaps import NOTIONS
from fairtopk.metrics.tops import Tops

NEXT_SEED = 2**32  # from a block to the next, so that no two lists share their shuffles


class Likelihood(NamedTuple):
    """How likely chance alone makes a value this far from what it should be.

    Attributes:
        p: From 1 / (shuffles + 1) to 1; NaN where the value is.
        expected: What shuffled labels give on average.
        deviations: How many standard deviations of the shuffled values the own one is above.
        shuffles: Of each list.
    """

    p: float
    expected: float
    deviations: float
    shuffles: int


class Chance(NamedTuple):
    """Floors and p-values by name, such as ``exposure_gap_floor@10``, ``impact_ratio_p@10``."""

    floors: dict[str, Floor]
    p_values: dict[str, Likelihood]


class ChanceSums:
    """Adds up what `chance_floors` and `gap_p_values` say of all lists together.

    Of one block of lists it says just what they do; with three or more groups the shuffles of
    the p-values are others than theirs, since they serve the impact ratio too.

    Args:
        n_groups: How many groups there are.
        ks: Where to cut.
        shuffles: Of each list.
        seed: Of the shuffles.
    """

    def __init__(self, n_groups: int, ks: Sequence[int], shuffles: int, seed: int) -> None:
        self.ks, self.shuffles, self.seed = list(ks), shuffles, seed
        cells = len(NOTIONS) * len(ks)
        self.floor = torch.zeros(3, cells, dtype=torch.float64)
        self.with_two = self.with_named = 0
        # Sums over lists: observed, and of each shuffle; what is expected is known without.
        self.gaps = torch.zeros(1 + shuffles, cells, dtype=torch.float64)
        self.shares = torch.zeros(1 + shuffles, n_groups, len(ks), dtype=torch.float64)
        self.expected = torch.zeros(cells, dtype=torch.float64)

    def add(
        self, scores: Tensor, groups: Tensor, mask: Tensor, done: Callable[[float], None]
    ) -> None:
        """Add the lists of a block, ``[Q, L]`` each; `done` is told the share of the work."""
        lists = labelled_lists(scores, groups, mask, ks=self.ks, named=False)
        n = len(lists.group)
        if n == 0:
            return
        floors = chance_floors(scores, groups, ks=self.ks, mask=mask, seed=self.seed)
        value, error, rounds = torch.tensor(list(floors.values()), dtype=torch.float64).T
        self.floor[0] += n * value
        self.floor[1] += (n * error) ** 2
        self.floor[2] = torch.maximum(self.floor[2], rounds)
        self.with_two += n
        with_named = int(((lists.size[:, 0] > 0) & (lists.size[:, 1:].sum(1) > 0)).sum())
        if with_named:
            # One shuffle is enough for what is expected, which needs none.
            own = gap_p_values(scores, groups, ks=self.ks, mask=mask, shuffles=1)
            expected = [one.expected for one in own.values()]
            self.expected += with_named * torch.tensor(expected, dtype=torch.float64)
        self.with_named += with_named
        self._add_rows(0, _sums(tops_of_labelled(lists, self.ks)))
        for first in range(0, self.shuffles, SHUFFLES_AT_ONCE):
            rounds_now = min(SHUFFLES_AT_ONCE, self.shuffles - first)
            parts = over_shuffles(
                _sums, lists, self.ks, rounds=rounds_now, first_round=first, seed=self.seed
            )
            self._add_rows(1 + first, torch.stack(parts).sum(0))
            done((first + rounds_now) / self.shuffles)
        self.seed += NEXT_SEED

    def result(self, gaps: Sequence[str], shares: Mapping[str, NDArray[np.floating]]) -> Chance:
        """Return what was found of some gaps, and of the impact ratio.

        Args:
            gaps: Their names.
            shares: Rank exposure of each group in each list, by name, ``[Q, G]``.
        """
        floors: dict[str, Floor] = {}
        p_values: dict[str, Likelihood] = {}
        if not self.shuffles:
            return Chance(floors, p_values)
        two, named = self.with_two or torch.nan, self.with_named or torch.nan
        means, expected = self.gaps / named, self.expected / named
        for cell, (gap, k) in enumerate((gap, k) for gap in NOTIONS for k in self.ks):
            if gap not in gaps:
                continue
            total, squares, rounds = self.floor[:, cell].tolist()
            floors[f"{gap}_floor@{k}"] = Floor(total / two, squares**0.5 / two, int(rounds))
            distance = (means[:, cell] - expected[cell]).abs()
            as_far = distance[1:] >= distance[0] - ROUNDING
            p_values[f"{gap}_p@{k}"] = _likelihood(means[:, cell], as_far, expected[cell])
        for place, k in enumerate(self.ks):
            ratios = self._ratios(
                torch.from_numpy(shares[f"rank_exposure@{k}"]).double(), place
            )
            as_low = ratios[1:] <= ratios[0] + ROUNDING
            p_values[f"impact_ratio_p@{k}"] = _likelihood(ratios, as_low, ratios[1:].mean())
        return Chance(floors, p_values)

    def _add_rows(self, first: int, sums: Tensor) -> None:
        """Add what `_sums` returns to the rows from `first` on."""
        rows, n_cells = slice(first, first + len(sums)), self.gaps.shape[1]
        self.gaps[rows] += sums[:, :n_cells]
        by_group = sums[:, n_cells:].reshape(len(sums), -1, len(self.ks))
        # Groups that no list of the block has may be missing at the end.
        self.shares[rows, : by_group.shape[1]] += by_group

    def _ratios(self, shares: Tensor, place: int) -> Tensor:
        """Return the impact ratio, and that of each shuffle, ``[1 + shuffles]``."""
        count = (~shares.isnan()).sum(0)
        # Lists with one group are not shuffled, and what they have stays.
        left = shares.nansum(0) - self.shares[0, :, place]
        means = ((self.shares[:, :, place] + left) / count)[:, count > 0]
        if means.shape[1] < 2:
            return torch.full((len(means),), torch.nan, dtype=torch.float64)
        return means.amin(-1) / means.amax(-1)


def _sums(tops: Tops) -> Tensor:
    """Return signed gaps, then what each group gets, summed over lists, ``[R, cells]``."""
    n, n_groups, n_cuts = len(tops.size), *tops.members.shape[-2:]
    tables = tops.exposure, tops.discount, tops.members
    by_group = GroupSums(*(table.reshape(n, -1, n_groups, n_cuts).numpy() for table in tables))
    everyone, size = tops.everyone.reshape(n, -1).numpy(), tops.size.reshape(n, -1).numpy()
    return torch.from_numpy(gap_totals(by_group, everyone, size))


def _likelihood(values: Tensor, as_far: Tensor, expected: Tensor) -> Likelihood:
    """Return how likely the first of `values` is, of which the others are shuffles."""
    if values[0].isnan():
        return Likelihood(torch.nan, torch.nan, torch.nan, 0)
    # Where shuffles change nothing the deviations are NaN or infinite.
    deviations = (values[0] - expected) / values[1:].std()
    p = (1 + int(as_far.sum())) / (1 + len(as_far))
    return Likelihood(p, float(expected), float(deviations), len(as_far))
