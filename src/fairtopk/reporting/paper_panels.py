"""Panels of trade-offs in a grid: what the figures of the paper's experiments are made of."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fairtopk.reporting.curves import Point
from fairtopk.reporting.figures import STYLE, draw_curve, name_axes
from fairtopk.reporting.paper_views import BASE, NAMES, ORDER, PaperView

Series = Mapping[str, Sequence[Point]]  # name to points
WIDTH, HEIGHT = 7.4, 2.3  # of a figure and of a row of panels, in inches
FLOOR = 0.9  # of K-SONG's NDCG, below which points are named instead of drawn
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
                _name_below(axes, panel, draw(axes, panel))
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
    axes.plot(
        [point.mean(metrics[0]) for point in known],
        [point.mean(metrics[1]) for point in known],
        label=points[0].curve,
        color="black",
        marker=marker,
        markerfacecolor="black" if filled else "none",
        markersize=4.5 if filled else 6,
        linestyle="none",
        zorder=3,
    )


def _name_below(axes: Axes, panel: Panel, drawn: Series) -> None:
    """Cut off what is far below K-SONG, and name it at the foot of the panel."""
    gap, ndcg = metrics_of(panel)
    base = panel.view.base
    floor = FLOOR * base.mean(ndcg) if base is not None else -math.inf
    below: dict[str, float] = {}
    for name, points in drawn.items():
        low = [point.mean(ndcg) for point in points if point.mean(ndcg) < floor]
        if low:
            below[name.partition(" (")[0]] = min(low)
    if below:
        points = [point for of in drawn.values() for point in of if gap in point.values]
        highest = max(point.mean(ndcg) for point in points)
        axes.set_ylim(floor, highest + 0.05 * (highest - floor))
        words = "\n".join(f"{name}: {low:.3f} ↓" for name, low in below.items())
        axes.text(0.02, 0.02, words, transform=axes.transAxes, fontsize=5.5, va="bottom")


def has_seeds(points: Sequence[Point]) -> bool:
    """Return whether there are intervals over seeds."""
    return any(len(point.results) > 1 for point in points)


def metrics_of(panel: Panel) -> tuple[str, str]:
    """Return the metrics of a panel's axes, that to the right first."""
    return f"{panel.gap}@{panel.k}", f"ndcg@{panel.k}"
