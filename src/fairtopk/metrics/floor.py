"""The chance floor: the gap that an order which knows nothing of groups has all the same.

Shuffle the known labels within each list, leave order, list sizes, group sizes and unknown
slots as they are: the floor is the mean absolute gap over all shuffles and lists.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.arguments import checked_choice, checked_ks, checked_whole
from fairtopk.kernels.measures import Places
from fairtopk.metrics.grouped import NOTIONS, largest_gap
from fairtopk.metrics.inputs import Values
from fairtopk.metrics.shuffled import (
    BLOCK_SUMS,
    Labelled,
    labelled_heads,
    labelled_lists,
    log_choose,
    over_shuffles,
)
from fairtopk.metrics.tops import Tops

EXACT = "representation_gap"  # with two groups
PRECISION = 0.01  # of the floor: its standard error at the end
# Over how many deviations, all lists together, a standard error is worth believing.
LEAST_FREEDOM = 100
MOST_COPIES = 1_000
MOST_SHUFFLES = 10_000  # of a list; enough for one list alone, unless a rare shuffle decides


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
    shuffles: int = MOST_SHUFFLES,
    seed: int = 0,
) -> Floor:
    """Return the mean absolute gap that is left when labels are shuffled within each list.

    With three or more groups a gap is the largest difference between two that the list has.
    For `representation_gap` and two groups it is exact. Otherwise labels are shuffled until the
    standard error of the floor is at most 1 % of it, or as often as is allowed: what a rare
    shuffle decides, such as one that leaves a group none of the top, is never known that well.

    Args:
        scores: Model scores, ``[Q, L]``.
        groups: Group numbers, -1 unknown, ``[Q, L]``.
        k: Length of the top of the list.
        mask: False on padding, ``[Q, L]``; left out, there is none.
        metric: "exposure_gap", "exposure_gap_released", "rank_exposure_gap" or
            "representation_gap".
        shuffles: The most shuffles of each list, at least 2.
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
    ks = (checked_whole("k", k, least=1),)
    lists = labelled_lists(scores, groups, mask, ks=ks, named=False)
    return _floors(lists, [metric], ks, shuffles, seed)[0]


def chance_floors(
    scores: Values,
    groups: Values,
    *,
    ks: Sequence[int],
    mask: Values | None = None,
    shuffles: int = MOST_SHUFFLES,
    seed: int = 0,
) -> dict[str, Floor]:
    """Return `chance_floor` of every gap at every K, from one set of shuffles.

    The keys are names like ``exposure_gap_floor@50``.
    """
    distinct = checked_ks(ks)
    lists = labelled_lists(scores, groups, mask, ks=distinct, named=False)
    return _named(_floors(lists, list(NOTIONS), distinct, shuffles, seed), distinct)


class FloorSum(NamedTuple):
    """The floors of some lists: by name, and how many lists have one, those with two groups."""

    floors: dict[str, Floor]
    n: int


def floors_of_places(
    places: Places,
    size: NDArray[np.int64],
    ks: Sequence[int],
    *,
    first: int,
    shuffles: int,
    seed: int,
) -> FloorSum:
    """Return `chance_floors` of lists of which only the first places are there.

    Shuffling leaves order and scores as they are, so nothing of what stands past the longest
    top is needed but how many items of each group there are.

    Args:
        places: Those of the longest top; past the end of a list they have neither exposure nor
            group.
        size: Known items of each group in the whole list, ``[Q, G]``.
        ks: Where to cut; they rise.
        first: Number of the first list among all that are shuffled.
        shuffles: The most shuffles of each list, at least 2.
        seed: Of the shuffles.
    """
    lists = labelled_heads(places, size, first=first)
    return FloorSum(
        _named(_floors(lists, list(NOTIONS), ks, shuffles, seed), ks), len(lists.size)
    )


def joined_floors(parts: Sequence[FloorSum]) -> dict[str, Floor]:
    """Return the floors of lists that came in parts, at least one."""
    some = [part for part in parts if part.n > 0]
    if not some:
        return parts[0].floors
    weight = [part.n / sum(one.n for one in some) for part in some]
    found = {}
    for name in some[0].floors:
        floors = [part.floors[name] for part in some]
        value = math.fsum(w * floor.value for w, floor in zip(weight, floors, strict=True))
        # Lists are shuffled apart from each other, so variances add up.
        error = math.hypot(*(w * floor.error for w, floor in zip(weight, floors, strict=True)))
        found[name] = Floor(value, error, max(floor.rounds for floor in floors))
    return found


def _named(floors: Sequence[Floor], ks: Sequence[int]) -> dict[str, Floor]:
    names = [f"{metric}_floor@{k}" for metric in NOTIONS for k in ks]
    return dict(zip(names, floors, strict=True))


def _floors(
    lists: Labelled, metrics: Sequence[str], ks: Sequence[int], shuffles: int, seed: int
) -> list[Floor]:
    """Return the floor of each metric at each of `ks`, metric by metric."""
    seed = checked_whole("seed", seed, least=0)
    shuffles = checked_whole("shuffles", shuffles, least=2)
    if len(lists.group) == 0:
        return [Floor(torch.nan, torch.nan, 0)] * (len(metrics) * len(ks))
    exact = [metric for metric in metrics if metric == EXACT and lists.size.shape[1] == 2]
    others = [metric for metric in metrics if metric not in exact]
    found = {(metric, k): Floor(_exact(lists, k), 0.0, 0) for metric in exact for k in ks}
    if others:
        cells = [(metric, k) for metric in others for k in ks]
        found |= dict(
            zip(cells, _shuffled_floors(lists, others, ks, shuffles, seed), strict=True)
        )
    return [found[metric, k] for metric in metrics for k in ks]


def _exact(lists: Labelled, k: int) -> float:
    """Return the floor of the representation gap of two groups, of sizes a and b.

    Of m known items in the top k, X are of the first group, hypergeometric with mean
    m a / (a + b). The gap is |X - mean| (a + b) / (a b), and the mean absolute deviation of X
    has a closed form (Diaconis and Zabell, 1991): with t the first count above the mean,
    E|X - mean| = 2 t (b - m + t) P(X = t) / (a + b).
    """
    a, b = lists.size.unbind(-1)
    m = (lists.group[:, :k] >= 0).sum(-1)
    t = m * a // (a + b) + 1
    possible = t <= torch.minimum(a, m)
    t = torch.where(possible, t, 0)
    log_chance = log_choose(a, t) + log_choose(b, m - t) - log_choose(a + b, m)
    gap = 2 * t * (b - m + t) * log_chance.exp() / (a * b)
    return float(torch.where(possible, gap, 0).mean())


def _shuffled_floors(
    lists: Labelled, metrics: Sequence[str], ks: Sequence[int], shuffles: int, seed: int
) -> list[Floor]:
    """Return the floors by shuffling until each is known to `PRECISION`, or often enough."""
    n_lists, n_groups = lists.size.shape
    # A few lists are shuffled many times at once.
    fitting = BLOCK_SUMS // (n_lists * n_groups * len(ks))
    copies = min(max(1, fitting), MOST_COPIES, shuffles)

    def measure(tops: Tops) -> Tensor:
        gaps = torch.cat([largest_gap(NOTIONS[metric](tops)) for metric in metrics], dim=-1)
        return torch.stack([gaps.sum(1), (gaps**2).sum(1)])

    rounds = 0
    sums = torch.zeros(2, n_lists, len(metrics) * len(ks), dtype=torch.float64)
    while True:
        sums += torch.cat(
            over_shuffles(measure, lists, ks, rounds=copies, first_round=rounds, seed=seed),
            dim=1,
        )
        rounds += copies
        last = rounds + copies > shuffles and rounds > 1
        if n_lists * (rounds - 1) < LEAST_FREEDOM and not last:
            continue
        total, squares = sums
        # Lists are shuffled apart from each other, so the variances of their means add up.
        variance = (squares - total**2 / rounds).clamp(min=0) / (rounds - 1)
        error = (variance.sum(0) / rounds).sqrt() / n_lists
        value = total.mean(0) / rounds
        if last or (error <= PRECISION * value).all():
            found = zip(value.tolist(), error.tolist(), strict=True)
            return [Floor(mean, deviation, rounds) for mean, deviation in found]
