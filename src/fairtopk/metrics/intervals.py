"""Values of all lists together with bootstrap intervals: means, ratios, RSP, REO, impact ratio.

A metric that is undefined for a list is NaN there. It is left out of the mean and counted. An
interval goes from the 2.5th to the 97.5th percentile of the values of 1,000 resamples: as many
lists, drawn with replacement (percentile bootstrap).

RSP and REO ask whether groups have the same chance of the top K. The impact ratio is what the
group that gets least gets, over what the one with most gets. They are made of ratios of sums
over lists, what each group gets, and so are no means of values per list.
"""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.checks import checked_choice, checked_ks, checked_whole
from fairtopk.errors import InputError
from fairtopk.kernels.threads import run_all
from fairtopk.metrics import gaps
from fairtopk.tensors import Values, tensor_of

RESAMPLES = 1_000
RESAMPLES_AT_ONCE = 50
COUNTED_AT_ONCE = 10_000  # draws, which stay in the cache of the processor
COLUMNS_AT_ONCE = 64  # that are resampled together; more are held in turn
LEVELS = (0.025, 0.975)

Doubles = NDArray[np.float64]
Floats = NDArray[np.floating]
Key = tuple[str, ...]

BY_RANK = "rank_exposure_gap"


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
        seed: Seed of the 1,000 resamples of all queries, the undefined ones among them.

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
        seed: Seed of the resamples.
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
    seed = checked_whole("seed", seed, least=0)
    keys: list[Key] = [(name,) for name in metrics]
    means = Resampled(dict(zip(keys, (one.numpy() for one in given), strict=True)), seed=seed)
    return {name: means.mean((name,)) for name in metrics}


class Ratio(NamedTuple):
    """What the group that gets least gets, over what the one that gets most gets."""

    value: float  # NaN where fewer than two groups are there
    ci95: tuple[float, float]  # a 95 % interval of it, by bootstrap over lists
    least: int | None  # which group gets least, None where `value` is NaN
    most: int | None  # which gets most


class Resampled:
    """Means of several columns over lists, and what other lists could have given.

    Args:
        columns: Values of each list by key, NaN where undefined, ``[Q]``.
        seed: Seed of the 1,000 resamples of lists.
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


class Overall(NamedTuple):
    """A value of a whole set of lists.

    Attributes:
        value: NaN where fewer than two groups have an item that counts.
        ci95: A 95 % interval of it, by bootstrap over lists.
        by_group: What each group gets, of which `value` is made; NaN for a group without an
            item that counts.
        n: Lists with an item that counts.
        undefined: Lists without.
    """

    value: float
    ci95: tuple[float, float]
    by_group: tuple[float, ...]
    n: int
    undefined: int


def rsp(
    scores: Values, groups: Values, *, k: int, mask: Values | None = None, seed: int = 0
) -> Overall:
    """Return RSP@k, ranking-based statistical parity, of all lists together.

    The chance of a group is the number of its items in the top `k` of all lists over the number
    of its items in all lists. RSP is the population standard deviation of the groups' chances
    over their mean: 0 where all have the same (Zhu, Wang and Caverlee, 2020).

    Args:
        scores: Model scores, ``[Q, L]``; of equal scores the earlier slot ranks first.
        groups: Group numbers, -1 unknown, ``[Q, L]``; booleans mark the named group. Items of
            unknown group take places in the top and count in no group.
        k: Length of the top of the list; from L on it is the whole list.
        mask: False on padding, and on items that are not to be ranked, ``[Q, L]``.
        seed: Seed of the 1,000 resamples.

    Returns:
        The value, from 0 to sqrt(G - 1), and the chance of each group; NaN where fewer than two
        groups have items, or none has one in a top.

    Example:
        >>> import torch
        >>> scores, groups = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0]])
        >>> found = rsp(scores, groups, k=1)
        >>> found.value, found.by_group
        (1.0, (0.0, 0.5))
    """
    lists, ks = gaps.checked_lists(scores, groups, mask), (checked_whole("k", k, least=1),)
    counts = {"rsp": gaps.measured(group_counts, lists, ks)}
    return parities_of_counts(counts, ks, seed=seed)[f"rsp@{k}"]


def reo(
    scores: Values,
    relevance: Values,
    groups: Values,
    *,
    k: int,
    mask: Values | None = None,
    seed: int = 0,
) -> Overall:
    """Return REO@k, ranking-based equal opportunity, of all lists together.

    It is `rsp` with relevant items only: the chance of a group is the number of its relevant
    items in the top `k` of all lists over the number of its relevant items in all lists. All
    items are ranked. An item is relevant if its grade is above 0. Arguments and what is
    undefined are those of `rsp`.

    Example:
        >>> import torch
        >>> scores, groups = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0]])
        >>> reo(scores, torch.tensor([[5, 0, 1]]), groups, k=1).by_group
        (0.0, 1.0)
    """
    lists = gaps.checked_lists(scores, groups, mask, relevance=relevance)
    ks = (checked_whole("k", k, least=1),)
    relevant = lists._replace(group=lists.group.masked_fill(lists.relevance <= 0, -1))
    counts = {"reo": gaps.measured(group_counts, relevant, ks)}
    return parities_of_counts(counts, ks, seed=seed)[f"reo@{k}"]


def parities(
    scores: Values,
    relevance: Values,
    groups: Values,
    *,
    ks: Sequence[int],
    mask: Values | None = None,
    seed: int = 0,
) -> dict[str, Overall]:
    """Return `rsp` and `reo` at every K, from one set of resamples.

    The keys are names like ``rsp@50``. Arguments are those of `reo`.

    Example:
        >>> import torch
        >>> scores, groups = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0]])
        >>> found = parities(scores, torch.tensor([[5, 0, 1]]), groups, ks=[1, 2])
        >>> {name: one.value for name, one in found.items()}
        {'rsp@1': 1.0, 'rsp@2': 1.0, 'reo@1': 1.0, 'reo@2': 1.0}
    """
    lists = gaps.checked_lists(scores, groups, mask, relevance=relevance)
    distinct = checked_ks(ks)
    return parities_of_counts(parity_counts(lists, distinct), distinct, seed=seed)


def parity_counts(lists: gaps.CheckedLists, ks: Sequence[int]) -> dict[str, Tensor]:
    """Return `group_counts` of all items and of relevant ones, by the name of their parity."""
    relevant = lists._replace(group=lists.group.masked_fill(lists.relevance <= 0, -1))
    return {
        "rsp": gaps.measured(group_counts, lists, ks),
        "reo": gaps.measured(group_counts, relevant, ks),
    }


def group_counts(tops: gaps.Tops) -> Tensor:
    """Return the items of each group in each top, then in the whole list, ``[Q, 2 G, K]``."""
    return torch.cat([tops.members, tops.size.expand_as(tops.members).to(tops.members)], dim=1)


def parities_of_counts(
    counts: Mapping[str, Tensor], ks: Sequence[int], *, seed: int, member: Tensor | None = None
) -> dict[str, Overall]:
    """Return parity at every K, given `group_counts` of the items that count, by name.

    `member` says which of other groups items of each group are in, 1 or 0, ``[G, P]``. An item
    may be in several of these; their parity has names like ``rsp_split@50``.
    """
    if member is not None:
        split = {}
        for name, counted in counts.items():
            halves = counted.chunk(2, dim=1)
            table = member[: halves[0].shape[1]].to(counted)
            parts = [torch.einsum("qgk,gp->qpk", half, table) for half in halves]
            split[f"{name}_split"] = torch.cat(parts, dim=1)
        counts = {**counts, **split}
    sums = {
        f"{name}@{k}": counted[..., column]
        for name, counted in counts.items()
        for column, k in enumerate(ks)
    }
    return overalls(
        sums, lambda chances: chances.std(-1, correction=0) / chances.mean(-1), seed
    )


def impact_ratio(
    scores: Values,
    groups: Values,
    *,
    k: int,
    mask: Values | None = None,
    metric: str = BY_RANK,
    seed: int = 0,
) -> Overall:
    """Return what the group that gets least gets, over what the one that gets most gets.

    What a group gets is the mean over the lists that have it, by default of its rank exposure
    in the top `k`; see `group_rank_exposures`. The four-fifths rule asks for 0.8 or more.

    Args:
        scores: Model scores, ``[Q, L]``; of equal scores the earlier slot ranks first.
        groups: Group numbers, -1 unknown, ``[Q, L]``; booleans mark the named group.
        k: Length of the top of the list; from L on it is the whole list.
        mask: False on padding, ``[Q, L]``; left out, there is none.
        metric: The gap whose notion of getting something is meant: "rank_exposure_gap",
            "exposure_gap", "exposure_gap_released" or "representation_gap".
        seed: Seed of the 1,000 resamples.

    Returns:
        The value, in [0, 1], and what each group gets; NaN where the lists have fewer than two
        groups, or none gets anything. For the interval, least and most are found anew in each
        resample: where groups are close, it may lie below the value.

    Example:
        >>> import torch
        >>> scores, groups = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0]])
        >>> round(impact_ratio(scores, groups, k=3).value, 4)
        0.6131
    """
    notion = gaps.NOTIONS[checked_choice("metric", metric, gaps.NOTIONS)]

    def gets(tops: gaps.Tops) -> Tensor:
        values = notion(tops)
        return torch.cat([values.nan_to_num(0.0), (~values.isnan()).to(values)], dim=1)

    found = gaps.measured_at(gets, gaps.checked_lists(scores, groups, mask), k)
    least_to_most = overalls(
        {metric: found}, lambda by_group: by_group.amin(-1) / by_group.amax(-1), seed
    )
    return least_to_most[metric]


def impact_ratios(
    scores: Values,
    groups: Values,
    *,
    k: int,
    mask: Values | None = None,
    metric: str = BY_RANK,
) -> Tensor:
    """Return the impact ratio of each list by itself, ``[Q]``.

    It is the least that a group of the list gets over the most: 0 wherever a group has no item
    in a short top, so the mean over lists is no measure of who is favoured; `impact_ratio` is.
    NaN where a list has fewer than two groups, or none of them an item in the top `k`.
    Arguments are those of `impact_ratio`.

    Example:
        >>> import torch
        >>> scores, groups = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0]])
        >>> impact_ratios(scores, groups, k=3), impact_ratios(scores, groups, k=2)
        (tensor([0.6131]), tensor([0.]))
    """
    notion = gaps.NOTIONS[checked_choice("metric", metric, gaps.NOTIONS)]

    def ratio(tops: gaps.Tops) -> Tensor:
        values = notion(tops)
        absent = values.isnan()
        high = values.masked_fill(absent, -torch.inf).amax(-2)
        low = values.masked_fill(absent, torch.inf).amin(-2)
        return (low / high).masked_fill((~absent).sum(-2) < 2, torch.nan)

    return gaps.measured_at(ratio, gaps.checked_lists(scores, groups, mask), k)


def overalls(
    sums: Mapping[str, Tensor], value: Callable[[Tensor], Tensor], seed: int
) -> dict[str, Overall]:
    """Return what `value` makes of the ratios of groups over all lists, by name.

    Args:
        sums: Numerators of each group, then denominators, ``[Q, 2 G]``; all of the same lists,
            which are resampled once.
        value: Takes ratios of at least two groups, ``[..., G]``.
        seed: Seed of the resamples.
    """
    seed = checked_whole("seed", seed, least=0)
    columns = [one.double().cpu() for one in sums.values()]
    again = resampled(torch.cat(columns, dim=-1).numpy(), seed)
    widths = np.cumsum([one.shape[-1] for one in columns])[:-1]
    found = {}
    parts = np.split(again, widths, axis=-1)
    for name, own, resamples in zip(sums, columns, parts, strict=True):
        counts = own.chunk(2, dim=-1)[1]
        n = int((counts.sum(-1) > 0).sum())
        by_group = torch.from_numpy(over(*np.split(own.sum(0).numpy(), 2)))
        there = counts.sum(0) > 0
        whole, (low, high) = torch.nan, (torch.nan, torch.nan)
        if there.sum() >= 2:
            whole = float(value(by_group[there]))
            # A resample without one of these groups has no value, and is left out.
            ratios = torch.from_numpy(over(*np.split(resamples, 2, axis=-1)))
            low, high = interval(value(ratios[:, there]).numpy()).tolist()
        by_number = tuple(by_group.tolist())
        found[name] = Overall(whole, (low, high), by_number, n, len(own) - n)
    return found


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
