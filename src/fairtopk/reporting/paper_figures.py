"""The figures of the paper's experiments, and those beyond it, by matplotlib."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fairtopk.reporting.figures import MARKERS, STYLE, draw_curve, pictures
from fairtopk.reporting.paper_panels import (
    WALL,
    Panel,
    Series,
    draw_points,
    draw_trained,
    grid,
    has_seeds,
    metrics_of,
)
from fairtopk.reporting.paper_views import PaperView
from fairtopk.reporting.words import MSE, gap_words

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
    words = gap_words(gap.removesuffix(MSE)) + (", squared" if gap.endswith(MSE) else "")
    return Drawn(
        f"tradeoff-{gap}",
        f"Accuracy and fairness at top K: {words}",
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
