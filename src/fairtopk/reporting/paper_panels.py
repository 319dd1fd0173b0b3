"""Panels of trade-offs in a grid: what the figures of the paper's experiments are made of."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.markers import CARETDOWNBASE, CARETRIGHTBASE

from fairtopk.reporting.curves import Point
from fairtopk.reporting.figures import STYLE, draw_curve, name_axes, reach
from fairtopk.reporting.paper_views import BASE, NAMES, ORDER, PaperView

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
