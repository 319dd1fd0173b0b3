"""The chance floor: the gap that an order which knows nothing of groups has all the same.

Shuffle the known labels within each list, leave order, list sizes, group sizes and unknown
slots as they are: the floor is the mean absolute gap over all shuffles and lists.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairtopk.functional.ranking import order
from fairtopk.kernels.measures import Places
from fairtopk.metrics.grouped import NOTIONS, largest_gap
from fairtopk.metrics.inputs import (
    BLOCK_SLOTS,
    Values,
    blocks,
    by_blocks,
    checked_choice,
    checked_groups,
    checked_ks,
    checked_scores,
    checked_whole,
)
from fairtopk.metrics.tops import Tops, tops_of_places

EXACT = "representation_gap"  # with two groups
PRECISION = 0.01  # of the floor: its standard error at the end
# Over how many deviations, all lists together, a standard error is worth believing.
LEAST_FREEDOM = 100
MOST_COPIES = 1_000


class Floor(NamedTuple):
    """A mean absolute gap under shuffled labels.

    Attributes:
        value: The floor; NaN where no list has two groups.
        error: Its standard error; 0 where it is exact.
        rounds: Shuffles of each list that it took; 0 where it is exact.
    """

    value: float
    error: float
    rounds: int


def chance_floor(
    scores: Values,
    groups: Values,
    *,
    k: int,
    mask: Values | None = None,
    metric: str = "exposure_gap",
    seed: int = 0,
) -> Floor:
    """Return the mean absolute gap that is left when labels are shuffled within each list.

    With three or more groups a gap is the largest difference between two that the list has.
    For `representation_gap` and two groups it is exact. Otherwise labels are shuffled until the
    standard error of the floor is at most 1 % of it.

    Args:
        scores: Model scores, ``[Q, L]``.
        groups: Group numbers, -1 unknown, ``[Q, L]``.
        k: Length of the top of the list.
        mask: False on padding, ``[Q, L]``; left out, there is none.
        metric: "exposure_gap", "exposure_gap_released", "rank_exposure_gap" or
            "representation_gap".
        seed: Of the shuffles.

    Example:
        >>> import torch
        >>> scores, groups = torch.arange(305.0)[None], torch.ones(1, 305, dtype=torch.int64)
        >>> groups[0, :26] = 0
        >>> floor = chance_floor(scores, groups, k=50, metric="representation_gap")
        >>> round(floor.value, 4), floor.error, floor.rounds
        (0.0611, 0.0, 0)
    """
    checked_choice("metric", metric, NOTIONS)
    lists = _labelled_places(scores, groups, mask)
    return _floors(lists, [metric], checked_ks([k]), seed)[0]


def chance_floors(
    scores: Values,
    groups: Values,
    *,
    ks: Sequence[int],
    mask: Values | None = None,
    seed: int = 0,
) -> dict[str, Floor]:
    """Return `chance_floor` of every gap at every K, from one set of shuffles.

    The keys are names like ``exposure_gap_floor@50``.
    """
    lists = _labelled_places(scores, groups, mask)
    distinct = checked_ks(ks)
    names = [f"{metric}_floor@{k}" for metric in NOTIONS for k in distinct]
    return dict(zip(names, _floors(lists, list(NOTIONS), distinct, seed), strict=True))


class _Places(NamedTuple):
    """Lists that have at least two groups.

    Attributes:
        exposure: Softmax of the scores by place, ``[Q, L]``.
        group: Labels by place, ``[Q, L]``.
        size: Items of each group, ``[Q, G]``.
    """

    exposure: Tensor
    group: Tensor
    size: Tensor


def _labelled_places(scores: Values, groups: Values, mask: Values | None) -> _Places:
    given, valid = checked_scores(scores, mask)
    labels = checked_groups(groups, given, valid)
    group = labels.group
    lowest = group.masked_fill(group < 0, labels.n_groups).amin(-1)
    several = lowest < group.amax(-1)
    given, valid, group = given[several], valid[several], group[several]
    slot = by_blocks(order, given, valid)
    exposure = given.masked_fill(~valid, -torch.inf).gather(-1, slot).softmax(-1)
    size = torch.stack([(group == one).sum(-1) for one in range(labels.n_groups)], dim=-1)
    return _Places(exposure.cpu(), group.gather(-1, slot).cpu(), size.cpu())


def _floors(
    lists: _Places, metrics: Sequence[str], ks: Sequence[int], seed: int
) -> list[Floor]:
    """Return the floor of each metric at each of `ks`, metric by metric."""
    seed = checked_whole("seed", seed, least=0)
    if len(lists.group) == 0:
        return [Floor(torch.nan, torch.nan, 0)] * (len(metrics) * len(ks))
    exact = [metric for metric in metrics if metric == EXACT and lists.size.shape[1] == 2]
    others = [metric for metric in metrics if metric not in exact]
    found = {(metric, k): Floor(_exact(lists.group, k), 0.0, 0) for metric in exact for k in ks}
    if others:
        cells = [(metric, k) for metric in others for k in ks]
        found |= dict(zip(cells, _shuffled_floors(lists, others, ks, seed), strict=True))
    return [found[metric, k] for metric in metrics for k in ks]


def _exact(group: Tensor, k: int) -> float:
    """Return the floor of the representation gap of two groups, of sizes a and b.

    Of m known items in the top k, X are of the first group, hypergeometric with mean
    m a / (a + b). The gap is |X - mean| (a + b) / (a b), and the mean absolute deviation of X
    has a closed form (Diaconis and Zabell, 1991): with t the first count above the mean,
    E|X - mean| = 2 t (b - m + t) P(X = t) / (a + b).
    """
    a, b = (group == 0).sum(-1), (group == 1).sum(-1)
    m = (group[:, :k] >= 0).sum(-1)
    t = m * a // (a + b) + 1
    possible = t <= torch.minimum(a, m)
    t = torch.where(possible, t, 0)
    log_chance = _log_choose(a, t) + _log_choose(b, m - t) - _log_choose(a + b, m)
    gap = 2 * t * (b - m + t) * log_chance.exp() / (a * b)
    return float(torch.where(possible, gap, 0).mean())


def _log_choose(n: Tensor, k: Tensor) -> Tensor:
    n, k = n.double(), k.double()
    return torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)


def _shuffled_floors(
    lists: _Places, metrics: Sequence[str], ks: Sequence[int], seed: int
) -> list[Floor]:
    """Return the floors by shuffling until each is known to `PRECISION`."""
    generator = torch.Generator().manual_seed(seed)
    (n_lists, slots), n_groups = lists.group.shape, lists.size.shape[1]
    # A few short lists are shuffled many times at once.
    fitting = BLOCK_SLOTS // (n_lists * slots * n_groups)
    copies = min(max(1, fitting), MOST_COPIES)
    tables = [table.repeat(copies, 1) for table in lists]

    def measure(exposure: Tensor, group: Tensor, size: Tensor) -> Tensor:
        tops = _tops(exposure, _shuffled(group, generator), size, ks)
        return torch.cat([largest_gap(NOTIONS[metric](tops)) for metric in metrics], dim=-1)

    rounds = 0
    total = squares = torch.zeros(n_lists, len(metrics) * len(ks), dtype=torch.float64)
    while True:
        # One after the other: they draw from one stream.
        gaps = torch.cat([measure(*block) for block in blocks(*tables, n_groups=n_groups)])
        gaps = gaps.view(copies, *total.shape)
        total, squares = total + gaps.sum(0), squares + (gaps**2).sum(0)
        rounds += copies
        if n_lists * (rounds - 1) < LEAST_FREEDOM:
            continue
        # Lists are shuffled apart from each other, so the variances of their means add up.
        variance = (squares - total**2 / rounds).clamp(min=0) / (rounds - 1)
        error = (variance.sum(0) / rounds).sqrt() / n_lists
        value = total.mean(0) / rounds
        if (error <= PRECISION * value).all():
            found = zip(value.tolist(), error.tolist(), strict=True)
            return [Floor(mean, deviation, rounds) for mean, deviation in found]


def _tops(exposure: Tensor, group: Tensor, size: Tensor, ks: Sequence[int]) -> Tops:
    """Return the tops of lists, padding and all: it has neither exposure nor a group."""
    length = np.full(len(group), group.shape[1])
    places = Places(exposure.numpy(), group.numpy(), np.zeros_like(exposure.numpy()), length)
    return tops_of_places(places, size.numpy(), np.zeros((len(group), len(ks))), ks)


def _shuffled(group: Tensor, generator: torch.Generator) -> Tensor:
    """Return the labels with the known ones of each list in random order, ``[Q, L]``."""
    known = group >= 0
    random = torch.rand(group.shape, generator=generator)
    here, there = order(torch.zeros_like(random), known), order(random, known)
    return torch.empty_like(group).scatter_(-1, here, group.gather(-1, there))
