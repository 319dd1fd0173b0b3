"""Chance floors and permutation p-values of gaps, from shuffled group labels.

The known labels are shuffled within each list; order, list sizes, group sizes and unknown slots
stay as they are.

The chance floor is the mean absolute gap over all shuffles and lists: the gap that an order
which knows nothing of groups has all the same.

The p-value belongs to the signed gap averaged over lists, which tells who is favoured: how
often the mean after shuffling is at least as far from what shuffling gives on average; the
observed mean is counted as one of the shuffled (add-one).
"""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.checks import checked_choice, checked_ks, checked_whole
from fairtopk.kernels.sums import Key, Places, Ranked, drawn_sums, shuffled_sums
from fairtopk.kernels.threads import run_all
from fairtopk.lists.batch import order
from fairtopk.metrics.gaps import NOTIONS, Tops, largest_gap, named_gap, tops_of_places
from fairtopk.tensors import Values, blocks, checked_groups, checked_scores

BLOCK_SUMS = 2**16  # of shuffled lists that are held at a time

EXACT = "representation_gap"  # with two groups
PRECISION = 0.01  # of the floor: its standard error at the end
# Over how many deviations, all lists together, a standard error is worth believing.
LEAST_FREEDOM = 100
MOST_COPIES = 1_000
COPIED_SUMS = 2**16  # of the copies of a list that are shuffled at a time
MOST_SHUFFLES = 10_000  # of a list; enough for one list alone, unless a rare shuffle decides
RELEASED = "exposure_gap_released"
SHUFFLES = 999
SHUFFLES_AT_ONCE = 64
ROUNDING = 1e-12  # gaps are at most 1; closer ones are the same


class Labelled(NamedTuple):
    """Ranked lists that have at least two groups."""

    exposure: Tensor  # softmax of the scores by place, as far as the longest top, [Q, H]
    group: Tensor  # labels by place, -1 unknown and on padding, [Q, L]
    size: Tensor  # items of each group in the whole list, [Q, G]
    whole: bool = True  # whether `group` has all places; else it has those of the longest top
    first: int = 0  # number of the first list among all that are shuffled


def labelled_lists(
    scores: Values, groups: Values, mask: Values | None, *, ks: Sequence[int], named: bool
) -> Labelled:
    """Return the lists that have two groups; `named` makes them group 0 and the rest."""
    given, valid = checked_scores(scores, mask)
    group, n_groups = checked_groups(groups, given, valid)
    if named:
        group, n_groups = group.clamp(max=1), 2
    lowest = group.masked_fill(group < 0, n_groups).amin(-1)
    several = lowest < group.amax(-1)

    def block(scores: Tensor, mask: Tensor, group: Tensor) -> list[Tensor]:
        slot = order(scores, mask)
        by_place = scores.masked_fill(~mask, -torch.inf).gather(-1, slot)
        size = torch.stack([(group == one).sum(-1) for one in range(n_groups)], dim=-1)
        found = by_place.softmax(-1)[:, : ks[-1]], group.gather(-1, slot), size
        return [table.contiguous().cpu() for table in found]

    tables = given[several], valid[several], group[several]
    parts = run_all([partial(block, *rows) for rows in blocks(*tables, n_groups=n_groups)])
    exposure, by_place, size = map(torch.cat, zip(*parts, strict=True))
    return Labelled(exposure, by_place, size)


def tops_of_labelled(lists: Labelled, ks: Sequence[int]) -> Tops:
    """Return the tops of lists, padding and all: it has neither exposure nor a group."""
    n_lists, n_places = lists.exposure.shape
    exposure, group = lists.exposure.numpy(), lists.group[:, :n_places].contiguous().numpy()
    nothing = np.zeros(exposure.shape, np.float32)
    places = Places(exposure, group, nothing, np.full(n_lists, n_places))
    return tops_of_places(places, lists.size.numpy(), np.zeros((n_lists, len(ks))), ks)


def over_shuffles(
    measure: Callable[[Tops], Tensor],
    lists: Labelled,
    ks: Sequence[int],
    *,
    rounds: int,
    first_round: int,
    seed: int,
) -> list[Tensor]:
    """Return what `measure` makes of `rounds` shuffles of the lists, block by block.

    The tops that it is given have one axis more, the second, for the shuffles.
    """
    n_lists, n_groups = lists.size.shape
    rows = max(1, BLOCK_SUMS // (rounds * n_groups * len(ks)))

    def piece(start: int) -> Tensor:
        part = slice(start, start + rows)
        some = lists._replace(
            exposure=lists.exposure[part], group=lists.group[part], size=lists.size[part]
        )
        key = Key(seed, lists.first + start, first_round)
        ranked = Ranked(some.exposure.numpy(), some.group.numpy())
        if lists.whole:
            sums = shuffled_sums(ranked, n_groups, ks, rounds=rounds, key=key)
        else:
            sums = drawn_sums(ranked, some.size.numpy(), ks, rounds=rounds, key=key)
        exposure, discount, members = map(torch.from_numpy, sums)
        own = tops_of_labelled(some, ks)
        own = own._replace(everyone=own.everyone[:, None], size=own.size[:, None])
        return measure(own._replace(exposure=exposure, discount=discount, members=members))

    return run_all([partial(piece, start) for start in range(0, n_lists, rows)])


def log_choose(n: Tensor, k: Tensor) -> Tensor:
    """Return the logarithm of the number of ways to choose `k` of `n`; -inf if k > n."""
    n, k = n.double(), k.double()
    return torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)


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
        seed: Seed of the shuffles.

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
    found = floors_of_lists(lists, ks, metrics=(metric,), shuffles=shuffles, seed=seed)
    (floor,) = found.values()
    return floor


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
    return floors_of_lists(lists, distinct, shuffles=shuffles, seed=seed)


def floors_of_places(
    places: Places,
    size: NDArray[np.int64],
    ks: Sequence[int],
    *,
    first: int,
    shuffles: int,
    seed: int,
) -> tuple[dict[str, Floor], int]:
    """Return `chance_floors` of lists of which only the first places are there.

    Shuffling leaves order and scores as they are, so nothing of what stands past the longest
    top is needed but how many items of each group there are. With the floors comes the number
    of lists that have one, those with two groups.

    Args:
        places: Those of the longest top; past the end of a list they have neither exposure nor
            group.
        size: Known items of each group in the whole list, ``[Q, G]``.
        ks: Where to cut; they rise.
        first: Number of the first list among all that are shuffled.
        shuffles: The most shuffles of each list, at least 2.
        seed: Seed of the shuffles.
    """
    several = (size > 0).sum(-1) > 1
    tables = (places.exposure, places.group, size)
    exposure, group, sizes = (torch.from_numpy(table[several]) for table in tables)
    lists = Labelled(exposure, group, sizes, whole=False, first=first)
    return floors_of_lists(lists, ks, shuffles=shuffles, seed=seed), len(sizes)


def joined_floors(parts: Sequence[tuple[dict[str, Floor], int]]) -> dict[str, Floor]:
    """Return the floors of lists that came in parts, at least one; see `floors_of_places`."""
    some = [(floors, n) for floors, n in parts if n > 0]
    if not some:
        return parts[0][0]
    total = sum(n for _, n in some)
    weight = [n / total for _, n in some]
    found = {}
    for name in some[0][0]:
        floors = [part[name] for part, _ in some]
        value = math.fsum(w * floor.value for w, floor in zip(weight, floors, strict=True))
        # Lists are shuffled apart from each other, so variances add up.
        error = math.hypot(*(w * floor.error for w, floor in zip(weight, floors, strict=True)))
        found[name] = Floor(value, error, max(floor.rounds for floor in floors))
    return found


def floors_of_lists(
    lists: Labelled,
    ks: Sequence[int],
    *,
    metrics: Collection[str] = tuple(NOTIONS),
    shuffles: int = MOST_SHUFFLES,
    seed: int,
) -> dict[str, Floor]:
    """Return the floor of each metric at each of `ks`, named as `chance_floors` does.

    What has no closed form is shuffled until each floor is known to `PRECISION`, or as often as
    is allowed.
    """
    seed = checked_whole("seed", seed, least=0)
    shuffles = checked_whole("shuffles", shuffles, least=2)
    n_lists, n_groups = lists.size.shape
    undefined = Floor(torch.nan, torch.nan, 0)
    found = {f"{metric}_floor@{k}": undefined for metric in metrics for k in ks}
    if n_lists == 0:
        return found
    if EXACT in metrics and n_groups == 2:
        found |= {f"{EXACT}_floor@{k}": Floor(_exact(lists, k), 0.0, 0) for k in ks}
    others = [metric for metric in metrics if metric != EXACT or n_groups > 2]
    if not others:
        return found
    # A few lists are shuffled many times at once.
    fitting = COPIED_SUMS // (n_lists * n_groups * len(ks))
    copies = min(max(1, fitting), MOST_COPIES, shuffles)

    def measure(tops: Tops) -> Tensor:
        gaps = torch.cat([largest_gap(NOTIONS[metric](tops)) for metric in others], dim=-1)
        return torch.stack([gaps.sum(1), (gaps**2).sum(1)])

    rounds = 0
    sums = torch.zeros(2, n_lists, len(others) * len(ks), dtype=torch.float64)
    while True:
        more = over_shuffles(measure, lists, ks, rounds=copies, first_round=rounds, seed=seed)
        sums += torch.cat(more, dim=1)
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
            break
    names = [f"{metric}_floor@{k}" for metric in others for k in ks]
    for name, mean, deviation in zip(names, value.tolist(), error.tolist(), strict=True):
        found[name] = Floor(mean, deviation, rounds)
    return found


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


class PValue(NamedTuple):
    """How likely chance alone makes a mean signed gap this far from what it should be.

    Attributes:
        p: From 1 / (shuffles + 1) to 1; NaN where no list has both sides.
        gap: The mean signed gap: group 0 minus the rest.
        expected: Its exact mean under shuffled labels: 0, but for the released gap, which
            favours the larger group by itself.
        shuffles: Shuffles of each list; 0 where no list has both sides.
    """

    p: float
    gap: float
    expected: float
    shuffles: int


def gap_p_value(
    scores: Values,
    groups: Values,
    *,
    k: int,
    mask: Values | None = None,
    metric: str = "exposure_gap",
    shuffles: int = SHUFFLES,
    seed: int = 0,
) -> PValue:
    """Return the p-value that a mean signed gap this large in size is chance.

    The gap is that of `exposure_gap` and its kin with ``signed=True``: group 0 minus all other
    known groups taken together. Lists without both sides are left out. The test is two-sided:
    with T the mean over lists, T_1 to T_B those of the shuffles, and c what is expected of them
    (0, but for the released gap), p = (1 + number of b with |T_b - c| >= |T - c|) / (1 + B).

    Args:
        scores: Model scores, ``[Q, L]``; of equal scores the earlier slot ranks first.
        groups: Group numbers, -1 unknown, ``[Q, L]``; booleans mark the named group.
        k: Length of the top of the list; from L on it is the whole list.
        mask: False on padding, ``[Q, L]``; left out, there is none.
        metric: "exposure_gap", "exposure_gap_released", "rank_exposure_gap" or
            "representation_gap".
        shuffles: B; p is never below 1 / (B + 1).
        seed: Seed of the shuffles.

    Example:
        >>> import torch
        >>> scores, groups = torch.arange(40.0).expand(5, 40), torch.ones(5, 40).long()
        >>> groups[:, 30:] = 0  # the ten best
        >>> found = gap_p_value(scores, groups, k=10, metric="representation_gap")
        >>> found.p, found.gap
        (0.001, 1.0)
    """
    checked_choice("metric", metric, NOTIONS)
    ks = (checked_whole("k", k, least=1),)
    lists = labelled_lists(scores, groups, mask, ks=ks, named=True)
    return _p_values(lists, [metric], ks, shuffles, seed)[0]


def gap_p_values(
    scores: Values,
    groups: Values,
    *,
    ks: Sequence[int],
    mask: Values | None = None,
    shuffles: int = SHUFFLES,
    seed: int = 0,
) -> dict[str, PValue]:
    """Return `gap_p_value` of every gap at every K, from one set of shuffles.

    The keys are names like ``exposure_gap_p@50``.
    """
    distinct = checked_ks(ks)
    lists = labelled_lists(scores, groups, mask, ks=distinct, named=True)
    names = [f"{metric}_p@{k}" for metric in NOTIONS for k in distinct]
    found = _p_values(lists, list(NOTIONS), distinct, shuffles, seed)
    return dict(zip(names, found, strict=True))


def _p_values(
    lists: Labelled, metrics: Sequence[str], ks: Sequence[int], shuffles: int, seed: int
) -> list[PValue]:
    """Return the p-value of each metric at each of `ks`, metric by metric."""
    seed = checked_whole("seed", seed, least=0)
    shuffles = checked_whole("shuffles", shuffles, least=1)
    n_lists = len(lists.group)
    if n_lists == 0:
        return [PValue(torch.nan, torch.nan, torch.nan, 0)] * (len(metrics) * len(ks))

    def total(tops: Tops) -> Tensor:
        gaps = [named_gap(NOTIONS[metric](tops)) for metric in metrics]
        return torch.cat(gaps, dim=-1).sum(0)

    own = tops_of_labelled(lists, ks)
    observed = total(own) / n_lists
    expected = expected_gaps(own, metrics)
    means = []
    for first in range(0, shuffles, SHUFFLES_AT_ONCE):
        rounds = min(SHUFFLES_AT_ONCE, shuffles - first)
        parts = over_shuffles(total, lists, ks, rounds=rounds, first_round=first, seed=seed)
        means.append(torch.stack(parts).sum(0) / n_lists)
    distance = (torch.cat(means) - expected).abs()
    as_far = distance >= (observed - expected).abs() - ROUNDING
    p = (1 + as_far.sum(0)).double() / (1 + shuffles)
    rows = zip(p.tolist(), observed.tolist(), expected.tolist(), strict=True)
    return [PValue(*row, shuffles) for row in rows]


def expected_gaps(tops: Tops, metrics: Iterable[str]) -> Tensor:
    """Return the mean over all shuffles and lists of each signed gap of two groups, at each K.

    Each known item is as likely as any to be in group 0, so the groups' means are expected to
    be the same. But the released exposure is 0 for a group with no item in the top, which is
    likelier for the smaller one; else it is expected to be the mean over known items there.
    """
    known, total = tops.members.sum(1), tops.size.sum(1)
    mean = tops.exposure.sum(1) / tops.everyone[:, 0] / known.clamp(min=1)
    # Of the items of both groups, all in the top are of the other.
    absent = log_choose(tops.size.flip(1), known[:, None]) - log_choose(total, known)[:, None]
    released = -named_gap(absent.exp() * mean[:, None]).mean(0)
    nothing = torch.zeros_like(released)
    return torch.cat([released if metric == RELEASED else nothing for metric in metrics])
