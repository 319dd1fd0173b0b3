"""Panels of trade-offs in a grid: what the figures of the paper's experiments are made of.

The figures of the paper's experiments, and those beyond it, by matplotlib.

What of the paper's experiments needs models again: pictures of rankings, flatter scores.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.markers import CARETDOWNBASE, CARETRIGHTBASE

from fairtopk.errors import InputError
from fairtopk.metrics.names import MSE, label
from fairtopk.reporting.curves import Point
from fairtopk.reporting.figures import MARKERS, STYLE, draw_curve, name_axes, pictures, reach
from fairtopk.reporting.rankings import (
    MOST_LISTS,
    Fall,
    FallOfPoint,
    Scored,
    falls,
    falls_once,
    most_unfair,
    rows_of,
    scored,
)
from fairtopk.reporting.results import Result
from fairtopk.reproduce.tables import LARGE
from fairtopk.reproduce.views import BASE, NAMES, ORDER, PaperView
from fairtopk.runs.open import Load
from fairtopk.terminal import number

Series = Mapping[str, Sequence[Point]]  # name to points
WIDTH, HEIGHT = 7.4, 2.3  # of a figure and of a row of panels, in inches
FLOOR, WALL = 0.9, 2.5  # of K-SONG's NDCG and gap, where panels end at most
MARGIN = 0.05  # beside the outermost point
BLIND = {BASE: "o", NAMES["song"]: "s", NAMES["listnet"]: "D"}  # with their markers


class Panel(NamedTuple):
    """What one panel shows.

    Attributes:
        view: Whose curves.
        gap: On the horizontal axis.
        k: Of gap and NDCG.
        title: Above it.
    """

    view: PaperView
    gap: str
    k: int
    title: str


def grid(rows: Sequence[Sequence[Panel]], draw: Callable[[Axes, Panel], Series]) -> Figure:
    """Return a figure with a row of panels per row, and one legend for all.

    Args:
        rows: What each panel shows.
        draw: Draws a panel, and returns what it drew.
    """
    columns = max(map(len, rows))
    with mpl.rc_context(STYLE):
        figure = Figure(
            figsize=(WIDTH * max(1, columns / 3), HEIGHT * len(rows) + 0.8),
            layout="constrained",
        )
        places = figure.subplots(len(rows), columns, squeeze=False)
        keys: dict[str, Artist] = {}
        for row, line in zip(rows, places, strict=True):
            for axes in line[len(row) :]:
                axes.set_visible(False)
            for panel, axes in zip(row, line[: len(row)], strict=True):
                _cut_off(axes, panel, draw(axes, panel))
                name_axes(axes, panel.gap)
                axes.set_title(panel.title, fontsize=8)
                axes.set_ylabel(f"{panel.view.title}\nNDCG" if axes is line[0] else "")
                handles, labels = axes.get_legend_handles_labels()
                keys |= dict(zip(labels, handles, strict=True))
        figure.legend(
            list(keys.values()),
            list(keys),
            loc="outside upper center",
            ncols=min(4, len(keys)),
            fontsize=7,
        )
    return figure


def draw_trained(axes: Axes, panel: Panel) -> Series:
    """Draw the curves of trained methods, and those without a penalty as black points."""
    metrics = metrics_of(panel)
    for name, points in panel.view.curves.items():
        if name not in BLIND:
            place = ORDER.index(name)
            draw_curve(axes, points, metrics, place, bars=has_seeds(points))
    for name, marker in BLIND.items():  # above the curves that start there
        if name in panel.view.curves:
            draw_points(axes, panel.view.curves[name], metrics, marker, filled=True)
    return panel.view.curves


def draw_points(
    axes: Axes,
    points: Sequence[Point],
    metrics: tuple[str, str],
    marker: str,
    *,
    filled: bool = False,
) -> None:
    """Draw points that have both metrics, without a line."""
    known = [point for point in points if all(name in point.values for name in metrics)]
    if not known:
        return
    x, y = (np.array([point.values[name] for point in known]) for name in metrics)
    bars = has_seeds(points)
    axes.errorbar(
        x[:, 0],
        y[:, 0],
        xerr=reach(x) if bars else None,
        yerr=reach(y) if bars else None,
        label=points[0].curve,
        color="black",
        marker=marker,
        markerfacecolor="black" if filled else "none",
        markersize=4.5 if filled else 6,
        linestyle="none",
        elinewidth=0.6,
        zorder=3,
    )


def _cut_off(axes: Axes, panel: Panel, drawn: Series) -> None:
    """Mark what is far from K-SONG at the edge of the panel, so that the rest can be read."""
    base = panel.view.base
    if base is None:
        return
    gap, ndcg = metrics_of(panel)
    floor, wall = FLOOR * base.mean(ndcg), WALL * base.mean(gap) or math.inf
    known = [
        (name, point)
        for name, of in drawn.items()
        for point in of
        if {gap, ndcg} <= point.values.keys()
    ]
    if any(point.mean(ndcg) < floor for _, point in known):
        highest = max(_ends(point, ndcg)[1] for _, point in known)
        axes.set_ylim(floor, highest + MARGIN * (highest - floor))
    if any(point.mean(gap) > wall for _, point in known):
        lowest = min(_ends(point, gap)[0] for _, point in known)
        axes.set_xlim(lowest - MARGIN * (wall - lowest), wall)
    for name, point in known:
        below = point.mean(ndcg) < floor
        if below or point.mean(gap) > wall:
            axes.plot(
                min(point.mean(gap), wall),
                max(point.mean(ndcg), floor),
                color=_colour(axes, name),
                marker=CARETDOWNBASE if below else CARETRIGHTBASE,
                clip_on=False,
                zorder=4,
            )


def _ends(point: Point, metric: str) -> tuple[float, float]:
    """Return how far a point reaches, with its bar where it has one."""
    cell = point.values[metric]
    return (cell.low, cell.high) if has_seeds([point]) else (cell.mean, cell.mean)


def _colour(axes: Axes, name: str) -> Any:
    """Return the colour of what is drawn under a name."""
    handles, labels = axes.get_legend_handles_labels()
    bars: Any = dict(zip(labels, handles, strict=True))[name]
    return bars.lines[0].get_color()


def has_seeds(points: Sequence[Point]) -> bool:
    """Return whether there are intervals over seeds for all points, not over users for some."""
    return all(len(point.results) > 1 for point in points)


def metrics_of(panel: Panel) -> tuple[str, str]:
    """Return the metrics of a panel's axes, that to the right first."""
    return f"{panel.gap}@{panel.k}", f"ndcg@{panel.k}"


TRADE_OFFS = (
    "exposure_gap",
    f"exposure_gap{MSE}",
    "exposure_gap_released",
    "rank_exposure_gap",
)
EDGE = (
    "A triangle at the edge of a panel is a point beyond it: at the foot one that loses more "
    f"than a tenth of K-SONG's NDCG, at the right one whose gap is more than {WALL:g} times "
    "K-SONG's. Its numbers are in the table of points."
)
COMPARED = ("exposure_gap", "rank_exposure_gap")


@dataclass(frozen=True)
class Drawn:
    """A figure.

    Attributes:
        name: Of its files.
        title: What it shows.
        figure: By matplotlib.
        notes: What must be said of it.
        runs: Folders of runs that no table of points tells, as seen from that of all runs.
    """

    name: str
    title: str
    figure: Figure
    notes: list[str] = field(default_factory=list)
    runs: tuple[str, ...] = ()


class Pictures(NamedTuple):
    """Rankings of the same lists by several models, side by side.

    Attributes:
        title: Which lists, in words.
        sides: Title of each model to its rows, which are those of `results.Rankings`.
        groups: What "0" and "1" in a row stand for.
        runs: Folders of the models.
    """

    title: str
    sides: Mapping[str, Sequence[str]]
    groups: tuple[str, str]
    runs: tuple[str, ...]


def trade_offs(views: Sequence[PaperView], gap: str) -> Drawn:
    """Return NDCG against a gap over C: a row per data set, a column per K."""
    rows = [[Panel(view, gap, k, f"K = {k}") for k in view.ks] for view in views]
    return Drawn(
        f"tradeoff-{gap}",
        f"Accuracy and fairness at top K: {label(gap)}",
        grid(rows, draw_trained),
        [
            "Up and to the left is better. A line is a method, from C = 0 on (alpha of DPR, "
            "the share of the gap of Robust); at C = 0 KSO-RED, SO-RED and NG-DE are K-SONG, "
            "and DELTR is ListNet; that of Algorithm 1 starts at its first C. Bars are 95 % "
            "intervals over seeds; with one seed there are none.",
            EDGE,
        ],
    )


def ablation(views: Sequence[PaperView]) -> Drawn | None:
    """Return the trade-offs of SO-RED and KSO-RED by gamma; None where it was not varied."""
    varied = [(view, name) for view in views for name in view.gammas]
    if not varied:
        return None
    rows = [
        [Panel(view, "exposure_gap", k, f"{name}, K = {k}") for k in view.ks]
        for view, name in varied
    ]

    def draw(axes: Axes, panel: Panel) -> Series:
        name = panel.title.partition(", K")[0]
        for style, (gamma, points) in enumerate(panel.view.gammas[name].items()):
            named = [replace(point, curve=f"gamma = {gamma:g}") for point in points]
            draw_curve(axes, named, metrics_of(panel), style, bars=has_seeds(points))
        return {f"gamma = {gamma:g}": of for gamma, of in panel.view.gammas[name].items()}

    weights = "At C = 0, where gamma has no effect, and at the weights that every gamma has."
    return Drawn(
        "ablation-gamma", "Gamma of SO-RED and KSO-RED", grid(rows, draw), [weights, EDGE]
    )


def in_and_post(views: Sequence[PaperView]) -> Drawn:
    """Return trained methods and re-rankers, which need group labels when serving."""
    rows = [[Panel(view, gap, view.k, f"K = {view.k}") for gap in COMPARED] for view in views]

    def draw(axes: Axes, panel: Panel) -> Series:
        draw_trained(axes, panel)
        names = sorted({name for view in views for name in view.reranked})
        for name, points in panel.view.reranked.items():
            place = names.index(name)
            draw_points(axes, points, metrics_of(panel), MARKERS[place % len(MARKERS)])
        return {**panel.view.curves, **panel.view.reranked}

    return Drawn(
        "in-and-post-processing",
        "In- against post-processing",
        grid(rows, draw),
        [
            "Hollow markers are re-rankers of K-SONG's lists: they need group labels when "
            "serving, as Robust does.",
            EDGE,
        ],
    )


def protocols(views: Sequence[PaperView], full: Mapping[str, PaperView]) -> Drawn | None:
    """Return the same methods on sampled lists and on the full catalogue; None without both.

    Args:
        views: Of sampled lists.
        full: The others by title of the data.
    """
    rows = [
        [
            Panel(of, gap, of.k, f"{words}, K = {of.k}")
            for of, words in ((view, "sampled lists"), (full[view.title], "full catalogue"))
            for gap in COMPARED
        ]
        for view in views
        if view.title in full
    ]
    if not rows:
        return None
    notes = [
        "The same models, ranking a user's held-out items among 300 others, or among the whole "
        "catalogue.",
        EDGE,
    ]
    return Drawn(
        "protocols",
        "Sampled lists beside the full catalogue",
        grid(rows, draw_trained),
        notes,
    )


def rankings_figure(name: str, found: Pictures) -> Drawn:
    """Return rankings of the most unfairly ranked lists, a pixel per position."""
    with mpl.rc_context(STYLE):
        figure = pictures(found.sides, found.groups)
    return Drawn(name, found.title, figure, runs=found.runs)


FAIR = NAMES["kso-red"]
SHARE = 0.0002  # of all lists, the most unfair, as in the paper
LEAST = 30  # lists of a picture; of small data, 0.02 % would be none
WHOLE = 1_000_000  # positions, more than any sampled list has


def pictures_of(folder: Path, view: PaperView, load: Load) -> Pictures | str:
    """Return the most unfair rankings at C = 0 and at large C, or in words why there are none.

    Args:
        folder: Where the runs are.
        view: Of sampled lists.
        load: What `cached_loader` returned.
    """
    large = [point for point in view.curves.get(FAIR, []) if point.penalised]
    if view.base is None or not large:
        return f"{FAIR} or K-SONG was not run"
    points = [view.base, *[p for p in large if p is view.at(FAIR, LARGE)], large[-1]]
    points = list({point.name: point for point in points}.values())
    seeds = set.intersection(*({one.run.seed for one in point.results} for point in points))
    if not seeds:
        return "no seed has all of its models"
    seed, gap = min(seeds), f"exposure_gap@{view.k}"
    results = [_of_seed(point, seed) for point in points]
    lists = int(results[0].metrics[gap]["n"])
    found = most_unfair(results[0], gap, max(LEAST, math.ceil(SHARE * lists)))
    if found is None:
        return "K-SONG has no file with the values of each user"
    users, of = found
    if not of:
        return "no list of K-SONG has a gap"
    try:
        rows, groups = rows_of(folder, results, users, WHOLE, load)
    except (InputError, OSError):
        return "the data or the models could not be loaded again"
    titles = [_title(point, one, view.k) for point, one in zip(points, results, strict=True)]
    return Pictures(
        f"{view.title}: the {len(users):,} of {of:,} lists with the largest gap (Eq. 9, "
        f"K = {view.k}) at C = 0, all positions, seed {seed}",
        dict(zip(titles, rows, strict=True)),
        groups,
        tuple(one.run.name for one in results),
    )


def _title(point: Point, result: Result, k: int) -> str:
    ndcg = number(result.metrics[f"ndcg@{k}"]["mean"])
    return f"{point.curve}, {point.label or 'C = 0'} (NDCG@{k} {ndcg})"


def falls_of(folder: Path, view: PaperView, load: Load) -> tuple[list[FallOfPoint], str]:
    """Return how the softmax gaps of penalised points fall, and what is to be said of it.

    Arguments are those of `pictures_of`.
    """
    found, left_out = [], []
    blind: dict[str, Scored] = {}  # each is compared with many

    def measured(before: Result, after: Result) -> dict[str, Fall]:
        if before.run.name not in blind:
            blind[before.run.name] = scored(folder, before, load)
        return falls(blind[before.run.name], scored(folder, after, load), view.ks)

    for point, start in _with_starts(view):
        pairs = [
            (before, after)
            for after in point.results
            for before in start.results
            if before.run.seed == after.run.seed
        ]
        try:
            seeds = [falls_once(folder, *pair, view.ks, measured) for pair in pairs]
        except (InputError, OSError):
            seeds = []
        if len(seeds) < len(point.results):
            left_out.append(point.name)
        else:
            runs = [one.run.name for pair in pairs for one in pair]
            by_name = {name: [of[name] for of in seeds] for name in seeds[0]}
            found.append(FallOfPoint(point, tuple(dict.fromkeys(runs)), by_name))
    words = [f"On up to {MOST_LISTS:,} of the test lists, evenly spaced."]
    if left_out:
        words.append(
            f"Not told, for data, models or the colour-blind run could not be loaded again: "
            f"{'; '.join(left_out)}."
        )
    return found, " ".join(words)


def _with_starts(view: PaperView) -> Iterator[tuple[Point, Point]]:
    """Yield each penalised point, and the colour-blind one that it is compared with."""
    for points in view.curves.values():
        start = points[0] if not points[0].penalised else view.base
        if start is not None:
            yield from ((point, start) for point in points if point.penalised)


def _of_seed(point: Point, seed: int) -> Result:
    return next(result for result in point.results if result.run.seed == seed)
