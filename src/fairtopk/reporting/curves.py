"""From results to trade-off curves: runs that differ in seed only are one point.

A curve is a method with its settings, its points are weights of the penalty. Nothing but seeds
is averaged: two runs of one method whose settings differ are on two curves, named by what
differs.
"""

import json
import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from fairtopk.metrics.intervals import means_with_intervals
from fairtopk.reporting.results import Result
from fairtopk.reporting.words import GAPS, MSE, lists_words

NOT_GAPS = ("_signed", "_floor", "_p")


class Cell(NamedTuple):
    """A mean over seeds and its 95 % interval: over seeds, or with one seed over users."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Point:
    """Runs that differ in seed only.

    Attributes:
        curve: Name of its curve.
        label: The weight of its penalty, in words.
        results: One per seed, by seed.
        values: Of each metric that some seed has.
    """

    curve: str
    label: str
    results: list[Result]
    values: dict[str, Cell]

    @property
    def name(self) -> str:
        """What the point is called where its curve is not at hand."""
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
    """All that was measured on the same kind of lists.

    Attributes:
        label: Which lists, in words.
        ks: Every K, rising.
        gaps: Every gap, such as ``exposure_gap``.
        curves: Name to points, by weight.
        base: The colour-blind point that others are compared with, if there is one.
    """

    label: str
    ks: list[int]
    gaps: list[str]
    curves: dict[str, list[Point]]
    base: Point | None

    @property
    def points(self) -> list[Point]:
        """The points of all curves."""
        return [point for points in self.curves.values() for point in points]


def views_of(results: list[Result]) -> list[View]:
    """Return a view for each set of lists, in the order in which they were found."""
    by_lists = _grouped(results, lambda result: _key(result.lists))
    labels = _distinct_labels([found[0].lists for found in by_lists])
    return [_view(label, found) for label, found in zip(labels, by_lists, strict=True)]


def fairest(view: View, gap: str, k: int, *, loss: float) -> Point | None:
    """Return the penalised point with the smallest gap among those that lose no more NDCG.

    Where all lose more, it is the one that loses least.

    Args:
        view: With a base, or nothing is found.
        gap: Such as ``exposure_gap``.
        k: Of NDCG and gap.
        loss: Share of the base's NDCG.
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


def _view(label: str, results: list[Result]) -> View:
    names = {name for result in results for name in result.metrics}
    ks = sorted({int(name.partition("@")[2]) for name in names if name.startswith("ndcg@")})
    curves = {
        name: sorted(
            (point_of(name, found) for found in _grouped(members, _weight)),
            key=lambda point: _weight(point.results[0]),
        )
        for name, members in sorted(_curve_names(results).items(), key=_weighed_last)
    }
    points = [point for members in curves.values() for point in members]
    blind = [point for point in points if not point.penalised]
    base = max(blind, key=lambda point: _as_base(point, ks[0]), default=None)
    return View(label, ks, _gaps(names), curves, base)


def _as_base(point: Point, k: int) -> tuple[bool, float]:
    """Return what the base has most of: being of a method without a penalty, then NDCG."""
    ndcg = point.mean(f"ndcg@{k}")
    return not point.label, -math.inf if math.isnan(ndcg) else ndcg


def _gaps(names: Iterable[str]) -> list[str]:
    """Return the gaps that were measured: those known here first."""
    found = {name.partition("@")[0].removesuffix(MSE) for name in names}
    found = {
        name
        for name in found
        if name in GAPS or ("gap" in name and not name.endswith(NOT_GAPS))
    }
    return [name for name in GAPS if name in found] + sorted(found - set(GAPS))


def point_of(curve: str, results: list[Result]) -> Point:
    """Return runs that differ in seed only as a point of a curve."""
    results = sorted(results, key=lambda result: result.run.seed)
    weight = results[0].run.weight
    label = f"{weight[0]} = {_weight_text(weight[1])}" if weight is not None else ""
    return Point(curve, label, results, _values(results))


def _weight_text(weight: float) -> str:
    """Return a weight in few digits, but never two weights alike."""
    short = f"{weight:g}"
    return short if float(short) == weight else repr(weight)


def _values(results: list[Result]) -> dict[str, Cell]:
    names = list(dict.fromkeys(name for result in results for name in result.metrics))
    if len(results) == 1:
        return {name: _cell_of_one(results[0].metrics[name]) for name in names}
    columns = {
        name: torch.tensor([_mean(result, name) for result in results], dtype=torch.float64)
        for name in names
    }
    return {
        name: Cell(found.mean, *found.ci95)
        for name, found in means_with_intervals(columns, seed=0).items()
    }


def _cell_of_one(found: dict[str, Any]) -> Cell:
    low, high = found.get("ci95") or (None, None)
    return Cell(*(math.nan if value is None else value for value in (found["mean"], low, high)))


def _mean(result: Result, name: str) -> float:
    mean = result.metrics.get(name, {}).get("mean")
    return math.nan if mean is None else float(mean)


def _curve_names(results: list[Result]) -> dict[str, list[Result]]:
    """Return the results of each curve by its name: the method, and what sets it apart."""
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
            parts = [f"{key.rpartition('.')[2]} {settings.get(key)}" for key in keys]
            name = curve[0].run.method
            named[f"{name} ({', '.join(parts)})" if parts else name] = curve
    return named


def _distinct_labels(lists: list[dict[str, Any]]) -> list[str]:
    """Return what each set of lists is called; where two would be alike, with what differs."""
    labels = []
    for one in lists:
        alike = [other for other in lists if lists_words(other) == lists_words(one)]
        keys = [key for key in one if len({_key(other.get(key)) for other in alike}) > 1]
        labels.append(", ".join([lists_words(one), *(f"{key} {one[key]}" for key in keys)]))
    return labels


def _weighed_last(named: tuple[str, list[Result]]) -> tuple[bool, str]:
    name, results = named
    return results[0].run.weight is not None, name


def _weight(result: Result) -> tuple[str, float]:
    return result.run.weight or ("", 0.0)


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _grouped(results: list[Result], key: Callable[[Result], Hashable]) -> list[list[Result]]:
    found: dict[Hashable, list[Result]] = {}
    for result in results:
        found.setdefault(key(result), []).append(result)
    return list(found.values())
