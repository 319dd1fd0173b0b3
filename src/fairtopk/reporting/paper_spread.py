"""The paper's table of NDCG and fair loss with standard deviations, in its layout.

The paper does not say of what its standard deviations are. Ours are given over seeds and over
users, and beside them what changes from K-SONG, user by user.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from fairtopk.metrics.intervals import Mean, means_with_intervals
from fairtopk.reporting.curves import Point
from fairtopk.reporting.figures import slug
from fairtopk.reporting.marks import paired_values, user_values
from fairtopk.reporting.paper_table import NOT_RUN, UNDEFINED, PaperTable, Row, joined, shown
from fairtopk.reporting.paper_views import BASE, PaperView, folders
from fairtopk.reporting.published import KS, LARGE, PUBLISHED, PUBLISHED_OF, SOURCE
from fairtopk.reporting.words import number

METHODS = ("KSO-RED", "SO-RED", BASE, "NG-DE", "DELTR")
MEASURES = {
    "ndcg": "NDCG",
    "exposure_gap": "Fair loss, Eq. 9",
    "exposure_gap_released": "Fair loss, as released",
}
SOURCE_NOTE = (
    f"Paper: {SOURCE}. It names neither the data of this table, taken to be {PUBLISHED_OF}, "
    f"nor of what its deviations are, and gives one fair loss, which stands beside both of "
    f"ours; that it halves as K doubles is a trait of the released code, not of Eq. 9."
)

Cell = Callable[[Point, str], tuple[str, dict[str, Any]]]


class Place(NamedTuple):
    """A method and C of the layout, and the point that is there."""

    method: str
    c: float
    point: Point | None


class Layout(NamedTuple):
    """What stands in the cells of a table of this layout.

    Attributes:
        name: Of its files, before the data.
        words: What it shows.
        cell: Returns the text of a point and metric, and what a CSV file says of it.
        notes: What must be said of it.
        base: What points are compared with; None where they are not.
    """

    name: str
    words: str
    cell: Cell
    notes: list[str]
    base: Point | None = None


def spread_tables(view: PaperView) -> list[PaperTable]:
    """Return the table with deviations over seeds, over users, and with paired differences."""
    base = view.base
    seeds = max((len(point.results) for point in view.points), default=0)
    of_seeds = f"Standard deviation of the means of {seeds} seeds."
    one_seed = "One seed: there is no standard deviation over seeds, and none is shown."
    layouts = [
        Layout(
            "std",
            "NDCG and fair loss, mean (standard deviation over seeds)",
            _over_seeds,
            [of_seeds if seeds > 1 else one_seed],
        ),
        Layout(
            "std-users",
            "NDCG and fair loss, mean (standard deviation over users)",
            _over_users(view),
            ["Standard deviation over users, averaged over seeds."],
        ),
    ]
    if base is not None:
        layouts.append(
            Layout(
                "differences",
                f"difference from {BASE}, with its 95 % interval",
                _differences(view, base),
                [
                    f"For each user, the difference from {BASE} of the same seed is averaged "
                    f"over seeds; the interval is by bootstrap over users. It tells that these "
                    f"models differ, not that other seeds would. What is {BASE} itself is left "
                    f"out."
                ],
                base,
            )
        )
    return [_laid_out(view, layout) for layout in layouts]


def _laid_out(view: PaperView, layout: Layout) -> PaperTable:
    paper = layout.base is None and view.paper == PUBLISHED_OF
    beside = folders(layout.base) if layout.base is not None else ()
    rows: list[Row] = []
    records: list[dict[str, Any]] = []
    for place in _places(view):
        runs = folders(place.point) if place.point is not None else ()
        if beside and runs == beside:
            continue
        for measure, words in MEASURES.items():
            cells: list[str] = []
            for k in view.ks:
                text: str = NOT_RUN
                record: dict[str, Any] = {}
                if place.point is not None:
                    text, record = layout.cell(place.point, f"{measure}@{k}")
                cells.append(text)
                if paper:
                    mean, deviation = PUBLISHED[place.method, place.c][measure][KS.index(k)]
                    cells.append(f"{mean:.4f} ({deviation:.4f})")
                    record |= {"paper_mean": mean, "paper_std": deviation}
                about = {"method": place.method, "c": place.c, "metric": measure, "k": k}
                records.append(about | record | {"runs": joined((*runs, *beside))})
            begins = not rows or rows[-1].cells[0] != place.method
            c = {0.0: "0", LARGE: "100K"}[place.c] if place.method != BASE else ""
            rows.append(Row((place.method, c, words, *cells), (*runs, *beside), begins))
    columns = (", ours", ", paper") if paper else ("",)
    return PaperTable(
        f"{layout.name}-{slug(view.title)}",
        f"{view.title}: {layout.words}",
        ("Method", "C", "Measure", *(f"K = {k}{who}" for k in view.ks for who in columns)),
        rows,
        records,
        [*layout.notes, *([SOURCE_NOTE] if paper else [])],
        texts=3,
    )


def _places(view: PaperView) -> Iterator[Place]:
    for method in METHODS:
        for c in (0.0,) if method == BASE else (0.0, LARGE):
            yield Place(method, c, view.at(method, c))


def _over_seeds(point: Point, metric: str) -> tuple[str, dict[str, Any]]:
    means = [_mean(result.metrics, metric) for result in point.results]
    deviation = float(np.std(means, ddof=1)) if len(means) > 1 else float("nan")
    return _with_deviation(point.mean(metric), deviation, "std_over_seeds", len(means))


def _over_users(view: PaperView) -> Cell:
    """Return what makes a cell of a mean and its deviation over users."""
    names = _names(view)
    deviations: dict[str, dict[str, list[float]]] = {}
    for point in _points(view):
        of_point = deviations[point.name] = {name: [] for name in names}
        for found in (user_values(result, names) for result in point.results):
            for name, values in (found.values if found is not None else {}).items():
                defined = values[~np.isnan(values)].astype(float)
                of_point[name] += [float(defined.std(ddof=1))] if len(defined) > 1 else []

    def cell(point: Point, metric: str) -> tuple[str, dict[str, Any]]:
        each = deviations[point.name][metric]
        deviation = float(np.mean(each)) if each else float("nan")
        return _with_deviation(point.mean(metric), deviation, "std_over_users", len(each))

    return cell


def _differences(view: PaperView, base: Point) -> Cell:
    """Return what makes a cell of a difference from the base."""
    names = _names(view)
    of_base = {result.run.seed: user_values(result, names) for result in base.results}
    changes: dict[str, dict[str, Mean]] = {}
    for point in _points(view):
        pair = paired_values(point, of_base, names)
        if pair is not None:
            before, after = pair
            changes[point.name] = means_with_intervals(
                {name: after[name] - before[name] for name in before}
            )

    def cell(point: Point, metric: str) -> tuple[str, dict[str, Any]]:
        change = changes.get(point.name, {}).get(metric)
        if change is None:
            return "no values of each user", {}
        low, high = change.ci95
        text = f"{change.mean:+.2g} [{low:+.2g}, {high:+.2g}]" if change.n else UNDEFINED
        found = {"difference": change.mean, "low": low, "high": high, "users": change.n}
        return text, found

    return cell


def _points(view: PaperView) -> list[Point]:
    return [place.point for place in _places(view) if place.point is not None]


def _names(view: PaperView) -> list[str]:
    return [f"{measure}@{k}" for measure in MEASURES for k in view.ks]


def _with_deviation(
    mean: float, deviation: float, name: str, seeds: int
) -> tuple[str, dict[str, Any]]:
    text = UNDEFINED if mean != mean else f"{shown(mean)} ({_short(deviation)})"
    return text, {"mean": mean, name: deviation, "seeds": seeds}


def _short(value: float) -> str:
    return number(None) if value != value else f"{value:.2g}"


def _mean(metrics: dict[str, dict[str, Any]], metric: str) -> float:
    mean = metrics.get(metric, {}).get("mean")
    return float("nan") if mean is None else float(mean)
