"""Trade-off curves of a sweep: means over seeds, and paired tests against colour-blind.

Runs that differ in seed only are one point. A curve is a method with its settings, its points
are weights of the penalty. Nothing but seeds is averaged: two runs of one method whose settings
differ are on two curves, named by what differs. Intervals over seeds are by Student's t.

For a test, the difference from the colour-blind run of the same seed is averaged over seeds for
each user; then signs are drawn at random over users. So there is one test per point and metric,
whatever the number of seeds. It shows whether these models differ, not whether other seeds
would.
"""

import json
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student_t  # type: ignore[import-untyped]

from fairtopk.metrics.names import GAPS, MSE, OVERALL, lists_label
from fairtopk.reporting.results import Result
from fairtopk.runs.result import USER
from fairtopk.statistics import FLIPS, Difference, holm, paired_differences
from fairtopk.storage import load_tensors

NOT_GAPS = ("_signed", "_floor", "_p")
LEVEL = 0.05
MOST_TESTS = int(LEVEL * (FLIPS + 1))  # at once; with more, no p-value could be below LEVEL

Tests = dict[str, dict[str, Difference]]  # by name of a point and of a metric


class Cell(NamedTuple):
    """A mean and its 95 % interval: over seeds, or with one seed over users."""

    mean: float  # NaN without a value
    low: float  # NaN, as `high`, without an interval
    high: float
    seeds: int = 1  # number of seeds with a value

    @property
    def half(self) -> float:
        """Half of the interval."""
        return (self.high - self.low) / 2


def seed_mean(values: Sequence[float]) -> Cell:
    """Return the mean of one value per seed, with its interval by Student's t."""
    n = len(values)
    mean = sum(values) / n if n else math.nan
    if n < 2:
        return Cell(mean, math.nan, math.nan, n)
    half = float(student_t.ppf(0.975, n - 1)) * float(np.std(values, ddof=1)) / math.sqrt(n)
    return Cell(mean, mean - half, mean + half, n)


@dataclass(frozen=True)
class Point:
    """Runs that differ in seed only."""

    curve: str  # name of its curve
    label: str  # the weight of its penalty
    results: list[Result]  # one per seed, by seed
    values: dict[str, Cell]  # each metric that some seed has

    @property
    def name(self) -> str:
        """The name of the point with that of its curve."""
        return f"{self.curve}, {self.label}" if self.label else self.curve

    @property
    def penalised(self) -> bool:
        """Whether exposure was penalised."""
        return self.results[0].run.penalised

    def mean(self, metric: str) -> float:
        """Return the mean over seeds; NaN where the metric was not measured."""
        return self.values[metric].mean if metric in self.values else math.nan


@dataclass(frozen=True)
class View:
    """All results on the same kind of lists."""

    label: str  # which lists
    ks: list[int]  # every K, rising
    gaps: list[str]  # every gap, such as ``exposure_gap``
    curves: dict[str, list[Point]]  # name to points, by weight
    base: Point | None  # the colour-blind point that others are compared with

    @property
    def points(self) -> list[Point]:
        """The points of all curves."""
        return [point for points in self.curves.values() for point in points]


def views_of(results: list[Result]) -> list[View]:
    """Return a view for each set of lists, in the order in which they were found."""
    by_lists = _grouped(results, lambda result: _key(result.lists))
    lists = [found[0].lists for found in by_lists]
    views = []
    for found, one in zip(by_lists, lists, strict=True):
        # Labels that would be equal name what differs.
        alike = [other for other in lists if lists_label(other) == lists_label(one)]
        keys = [key for key in one if len({_key(other.get(key)) for other in alike}) > 1]
        label = ", ".join([lists_label(one), *(f"{key} {one[key]}" for key in keys)])
        names = {name for result in found for name in result.metrics}
        ks = sorted({int(name.partition("@")[2]) for name in names if name.startswith("ndcg@")})
        measured = {name.partition("@")[0].removesuffix(MSE) for name in names}
        others = {name for name in measured if "gap" in name and not name.endswith(NOT_GAPS)}
        known = [name for name in (*GAPS, *OVERALL) if name in measured]
        gaps = known + sorted(others.difference(known))
        curves = _curves(found)
        blind = [point for points in curves.values() for point in points if not point.penalised]
        # Of these, one of a method that has no penalty if there is any; then by NDCG.
        blind = [point for point in blind if not point.label] or blind
        ndcgs = np.array([point.mean(f"ndcg@{ks[0]}") for point in blind])
        base = blind[int(np.nan_to_num(ndcgs, nan=-1.0).argmax())] if blind else None
        views.append(View(label, ks, gaps, curves, base))
    return views


def _curves(results: list[Result]) -> dict[str, list[Point]]:
    """Return the points of each curve by its name: the method, and what sets it apart."""
    named: dict[str, list[Result]] = {}
    for of_method in _grouped(results, lambda result: result.run.method):
        curves = _grouped(of_method, lambda result: _key(result.run.settings))
        presets = {_key(curve[0].run.settings.get("method.preset")) for curve in curves}
        for curve in curves:
            settings = curve[0].run.settings
            # A preset fills in other keys: within one, these say nothing.
            alike = [
                other[0].run.settings
                for other in curves
                if other[0].run.settings.get("method.preset") == settings.get("method.preset")
            ]
            keys = [key for key in settings if len({_key(one.get(key)) for one in alike}) > 1]
            if len(presets) > 1:
                keys = ["method.preset", *keys]
            shown = {key: key.rpartition(".")[2] for key in keys} | {"model.name": "model"}
            parts = [f"{shown[key]} {settings.get(key)}" for key in keys]
            name = curve[0].run.method
            named[f"{name} ({', '.join(parts)})" if parts else name] = curve

    # Methods without a weight come first.
    order = sorted(named, key=lambda name: (named[name][0].run.weight is not None, name))
    found = {}
    for name in order:
        points = _grouped(named[name], lambda result: result.run.weight or ("", 0.0))
        points.sort(key=lambda of: of[0].run.weight or ("", 0.0))
        found[name] = [point_of(name, results) for results in points]
    return found


def point_of(curve: str, results: list[Result]) -> Point:
    """Return runs that differ in seed only as a point of a curve."""
    results = sorted(results, key=lambda result: result.run.seed)
    label = ""
    if results[0].run.weight is not None:
        of, weight = results[0].run.weight
        # In few digits, unless that would make two weights equal.
        label = f"{of} = {weight:g}" if float(f"{weight:g}") == weight else f"{of} = {weight!r}"
    values = {}
    for name in dict.fromkeys(name for result in results for name in result.metrics):
        found = [result.metrics.get(name, {}) for result in results]
        if len(found) == 1:
            numbers = found[0]["mean"], *(found[0].get("ci95") or (None, None))
            mean, low, high = (math.nan if one is None else float(one) for one in numbers)
            values[name] = Cell(mean, low, high)
        else:
            means = [float(one["mean"]) for one in found if one.get("mean") is not None]
            values[name] = seed_mean([mean for mean in means if not math.isnan(mean)])
    return Point(curve, label, results, values)


def fairest(view: View, gap: str, k: int, *, loss: float) -> Point | None:
    """Return the penalised point with the smallest gap that loses at most a share of NDCG.

    If all lose more, it is the one that loses least; None without a base or such a point.
    """
    if view.base is None:
        return None
    ndcg, of_gap = f"ndcg@{k}", f"{gap}@{k}"
    known = [
        point
        for point in view.points
        if point.penalised and point.mean(ndcg) + point.mean(of_gap) >= 0
    ]
    least = (1 - loss) * view.base.mean(ndcg)
    within = [point for point in known if point.mean(ndcg) >= least]
    if within:
        return min(within, key=lambda point: point.mean(of_gap))
    return max(known, key=lambda point: point.mean(ndcg), default=None)


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _grouped(results: list[Result], key: Callable[[Result], Hashable]) -> list[list[Result]]:
    found: dict[Hashable, list[Result]] = {}
    for result in results:
        found.setdefault(key(result), []).append(result)
    return list(found.values())


class Queries(NamedTuple):
    """The values of each user: their numbers, ``[Q]``, and name of a metric to ``[Q]``."""

    user: NDArray[np.int64]
    values: dict[str, NDArray[np.float32]]


def paired_tests(view: View, metrics: list[str]) -> Tests:
    """Return the differences of each point from the base, by name of the point.

    Points without a file of each user's values, or without a seed in common with the base, are
    left out.
    """
    if view.base is None:
        return {}
    base = {result.run.seed: user_values(result, metrics) for result in view.base.results}
    found = {}
    for point in view.points:
        pair = None if point is view.base else paired_values(point, base, metrics)
        if pair is not None:
            found[point.name] = paired_differences(*pair)
    return found


def corrected(tests: Tests, metrics: list[str]) -> dict[tuple[str, str], float]:
    """Return the p-values of one table with Holm's correction, by point and metric."""
    keys = [(point, name) for point, of in tests.items() for name in metrics if name in of]
    p_values = holm(np.array([tests[point][name].p for point, name in keys], float))
    return dict(zip(keys, p_values.tolist(), strict=True))


def paired_values(
    point: Point, base: dict[int, Queries | None], metrics: list[str]
) -> tuple[dict[str, NDArray[np.float64]], dict[str, NDArray[np.float64]]] | None:
    """Return the metrics of the base and of a point, user by user, means over seeds, ``[Q]``.

    Metrics that a run lacks are left out. NaN for users whom a seed has no value of; None if
    base, by seed, and point share no users or no metrics.
    """
    pairs = []
    for result in point.results:
        before, after = base.get(result.run.seed), user_values(result, metrics)
        if before is not None and after is not None:
            pairs.append((before, after))
    if not pairs:
        return None
    users = reduce(np.intersect1d, [one.user for pair in pairs for one in pair])
    names = [name for name in metrics if all(name in one.values for p in pairs for one in p)]
    if not len(users) or not names:
        return None
    means: tuple[dict[str, NDArray[np.float64]], ...] = ({}, {})
    for side, found in enumerate(zip(*pairs, strict=True)):
        rows = [
            np.argsort(one.user)[np.searchsorted(np.sort(one.user), users)] for one in found
        ]
        for name in names:
            values = [one.values[name][row] for one, row in zip(found, rows, strict=True)]
            means[side][name] = np.stack(values).astype(float).mean(0)
    return means[0], means[1]


def user_values(result: Result, metrics: list[str]) -> Queries | None:
    """Return the values of each user; None if no file has them."""
    found: Queries | None = None
    for path in result.per_query:
        tensors = load_tensors(path).tensors
        user = tensors[USER].numpy()
        values = {name: tensors[name].numpy() for name in metrics if name in tensors}
        if found is None:
            found = Queries(user, values)
        elif np.array_equal(found.user, user):
            found = Queries(user, values | found.values)
    return found
