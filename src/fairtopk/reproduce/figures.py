"""The figures of the paper's experiments, and those beyond it: panels of trade-offs in a grid.

Pictures of rankings and flatter scores need the models again.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.markers import CARETDOWNBASE, CARETRIGHTBASE

from fairtopk.errors import InputError
from fairtopk.metrics.names import MSE, label
from fairtopk.reporting import rankings
from fairtopk.reporting.curves import Point
from fairtopk.reporting.figures import MARKERS, STYLE, draw, look_of, name_axes, pictures, slug
from fairtopk.reporting.results import Result
from fairtopk.reproduce.tables import LARGE
from fairtopk.reproduce.views import BASE, NAMES, ORDER, PaperView
from fairtopk.runs.open import Load
from fairtopk.terminal import number

WIDTH, HEIGHT = 7.4, 2.3  # of a figure and of a row of panels, in inches
FLOOR, WALL = 0.9, 2.5  # of K-SONG's NDCG and gap, where panels end at most
MARGIN = 0.05  # next to the outermost point
BLIND = {BASE: "o", NAMES["song"]: "s", NAMES["listnet"]: "D"}  # with their markers
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
DOT = {"color": "black", "linestyle": "none", "zorder": 3}  # a point without a line
HOLLOW = DOT | {"markerfacecolor": "none", "markersize": 6}

Series = Mapping[str, tuple[Sequence[Point], Mapping[str, Any]]]  # name to points and look


class Panel(NamedTuple):
    """What one panel shows."""

    view: PaperView  # whose curves; where K-SONG is
    gap: str  # on the horizontal axis
    k: int  # of gap and NDCG
    title: str  # above it
    series: Series  # what is drawn, in this order


@dataclass(frozen=True)
class Drawn:
    """A figure."""

    name: str  # of its files
    title: str  # what it shows
    figure: Figure  # by matplotlib
    notes: list[str] = field(default_factory=list)  # what must be said of it
    runs: tuple[str, ...] = ()  # folders of runs that no table of points names


def grid(rows: Sequence[Sequence[Panel]]) -> Figure:
    """Return a figure with a row of panels per row, and one legend for all."""
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
                metrics = f"{panel.gap}@{panel.k}", f"ndcg@{panel.k}"
                for name, (points, look) in panel.series.items():
                    draw(axes, name, points, metrics, look, bars=has_seeds(points))
                _cut_off(axes, panel, metrics)
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


def _cut_off(axes: Axes, panel: Panel, metrics: tuple[str, str]) -> None:
    """Mark what is far from K-SONG at the edge of the panel, so that the rest can be read."""
    base = panel.view.base
    if base is None:
        return
    gap, ndcg = metrics
    floor, wall = FLOOR * base.mean(ndcg), WALL * base.mean(gap) or math.inf
    known = [
        (point, look)
        for points, look in panel.series.values()
        for point in points
        if {gap, ndcg} <= point.values.keys()
    ]
    if any(point.mean(ndcg) < floor for point, _ in known):
        tops = [p.values[ndcg].high if has_seeds([p]) else p.mean(ndcg) for p, _ in known]
        axes.set_ylim(floor, max(tops) + MARGIN * (max(tops) - floor))
    if any(point.mean(gap) > wall for point, _ in known):
        lows = [p.values[gap].low if has_seeds([p]) else p.mean(gap) for p, _ in known]
        axes.set_xlim(min(lows) - MARGIN * (wall - min(lows)), wall)
    for point, look in known:
        below = point.mean(ndcg) < floor
        if below or point.mean(gap) > wall:
            axes.plot(
                min(point.mean(gap), wall),
                max(point.mean(ndcg), floor),
                color=look["color"],
                marker=CARETDOWNBASE if below else CARETRIGHTBASE,
                clip_on=False,
                zorder=4,
            )


def has_seeds(points: Sequence[Point]) -> bool:
    """Return whether there are intervals over seeds for all points, not over users for some."""
    return all(len(point.results) > 1 for point in points)


def trained(view: PaperView) -> Series:
    """Return the curves of trained methods, and those without a penalty as black points."""
    curves = {
        name: (points, look_of(ORDER.index(name)))
        for name, points in view.curves.items()
        if name not in BLIND
    }
    blind = {
        name: (view.curves[name], DOT | {"marker": marker, "markersize": 4.5})
        for name, marker in BLIND.items()
        if name in view.curves
    }
    return curves | blind  # the points above the curves that start there


def trade_offs(views: Sequence[PaperView], gap: str) -> Drawn:
    """Return NDCG against a gap over C: a row per data set, a column per K."""
    rows = [[Panel(view, gap, k, f"K = {k}", trained(view)) for k in view.ks] for view in views]
    return Drawn(
        f"tradeoff-{gap}",
        f"Accuracy and fairness at top K: {label(gap)}",
        grid(rows),
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
    rows = []
    for view in views:
        for name, gammas in view.gammas.items():
            series = {
                f"gamma = {gamma:g}": (points, look_of(place))
                for place, (gamma, points) in enumerate(gammas.items())
            }
            rows.append(
                [Panel(view, "exposure_gap", k, f"{name}, K = {k}", series) for k in view.ks]
            )
    if not rows:
        return None
    weights = "At C = 0, where gamma has no effect, and at the weights that every gamma has."
    return Drawn("ablation-gamma", "Gamma of SO-RED and KSO-RED", grid(rows), [weights, EDGE])


def in_and_post(views: Sequence[PaperView]) -> Drawn:
    """Return trained methods and re-rankers, which need group labels when serving."""
    names = sorted({name for view in views for name in view.reranked})
    rows = []
    for view in views:
        hollow = {
            name: (points, HOLLOW | {"marker": MARKERS[names.index(name) % len(MARKERS)]})
            for name, points in view.reranked.items()
        }
        series = {**trained(view), **hollow}
        rows.append([Panel(view, gap, view.k, f"K = {view.k}", series) for gap in COMPARED])
    return Drawn(
        "in-and-post-processing",
        "In- against post-processing",
        grid(rows),
        [
            "Hollow markers are re-rankers of K-SONG's lists: they need group labels when "
            "serving, as Robust does.",
            EDGE,
        ],
    )


def protocols(views: Sequence[PaperView], full: Mapping[str, PaperView]) -> Drawn | None:
    """Return the same methods on sampled lists and on the full catalogue; None without both.

    `views` are of sampled lists, `full` of the others by title of the data.
    """
    rows = [
        [
            Panel(of, gap, of.k, f"{words}, K = {of.k}", trained(of))
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
    return Drawn("protocols", "Sampled lists and the full catalogue", grid(rows), notes)


FAIR = NAMES["kso-red"]
SHARE = 0.0002  # of all lists, the most unfair, as in the paper
LEAST = 30  # lists of a picture; of small data, 0.02 % would be none
WHOLE = 1_000_000  # positions, more than any sampled list has


def pictures_of(folder: Path, view: PaperView, load: Load) -> Drawn | str:
    """Return the most unfair rankings at C = 0 and at large C, or in words why there are none.

    A row of the picture is a list, a pixel a position. The view is of sampled lists.
    """
    large = [point for point in view.curves.get(FAIR, []) if point.penalised]
    if view.base is None or not large:
        return f"{FAIR} or K-SONG was not run"
    points = [view.base, *[p for p in large if p is view.at(FAIR, LARGE)], large[-1]]
    points = list({point.name: point for point in points}.values())
    of_seeds = [{one.run.seed: one for one in point.results} for point in points]
    seed = min(set.intersection(*map(set, of_seeds)), default=None)
    if seed is None:
        return "no seed has all of its models"
    results, gap = [of[seed] for of in of_seeds], f"exposure_gap@{view.k}"
    lists = int(results[0].metrics[gap]["n"])
    size = max(LEAST, math.ceil(SHARE * lists)), WHOLE
    found = rankings.most_unfair(folder, results, gap, size, load)
    if isinstance(found, str):
        return found
    rows, groups, of = found
    sides = {}
    for point, result, row in zip(points, results, rows, strict=True):
        ndcg = number(result.metrics[f"ndcg@{view.k}"]["mean"])
        sides[f"{point.curve}, {point.label or 'C = 0'} (NDCG@{view.k} {ndcg})"] = row
    with mpl.rc_context(STYLE):
        figure = pictures(sides, groups)
    return Drawn(
        f"rankings-{slug(view.title)}",
        f"{view.title}: the {len(rows[0]):,} of {of:,} lists with the largest gap (Eq. 9, "
        f"K = {view.k}) at C = 0, all positions, seed {seed}",
        figure,
        runs=tuple(one.run.name for one in results),
    )


def falls_of(
    folder: Path, view: PaperView, load: Load
) -> tuple[list[rankings.FallOfPoint], str]:
    """Return how the softmax gaps of penalised points fall, and what is to be said of it."""
    found, left_out = [], []
    blind: dict[str, rankings.Scored] = {}  # each is compared with many

    def measured(before: Result, after: Result) -> dict[str, rankings.Fall]:
        if before.run.name not in blind:
            blind[before.run.name] = rankings.scored(folder, before, load)
        return rankings.falls(
            blind[before.run.name], rankings.scored(folder, after, load), view.ks
        )

    for points in view.curves.values():
        start = points[0] if not points[0].penalised else view.base
        for point in points:
            if start is None or not point.penalised:
                continue
            pairs = [
                (before, after)
                for after in point.results
                for before in start.results
                if before.run.seed == after.run.seed
            ]
            try:
                seeds = [
                    rankings.falls_once(folder, *pair, view.ks, measured) for pair in pairs
                ]
            except (InputError, OSError):
                seeds = []
            if len(seeds) < len(point.results):
                left_out.append(point.name)
            else:
                runs = [one.run.name for pair in pairs for one in pair]
                by_name = {name: [of[name] for of in seeds] for name in seeds[0]}
                found.append(rankings.FallOfPoint(point, tuple(dict.fromkeys(runs)), by_name))
    words = f"On up to {rankings.MOST_LISTS:,} of the test lists, evenly spaced."
    if left_out:
        words += (
            f" Left out, since data, models or the colour-blind run could not be loaded again: "
            f"{'; '.join(left_out)}."
        )
    return found, words
