"""The curves and rankings of a page as files for print, by matplotlib: PDF and PNG.

Methods differ in marker and dash as well as in colour, groups in lightness: figures can be read
in black and white.
"""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from fairtopk.metrics.names import MSE, heading
from fairtopk.reporting.curves import Point, View
from fairtopk.reporting.results import Rankings
from fairtopk.storage import replacing

COLOURS = (  # of a page in daylight
    "#0072b2", "#c14f00", "#00795a", "#a3457d", "#8a6100", "#3b3b3b", "#5a4fcf", "#b3261e",
)  # fmt: skip
MARKERS = ("o", "s", "D", "^", "P", "X", "*", "v")
DASHES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (8, 2)))
GROUPS = ("#a50f15", "#9bdc9f", "#dddddd")
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
SIGNS = {"0": 0, "1": 1, "-": 2}
STYLE: Any = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # letters stay letters
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
}


def write_figures(views: list[View], rankings: dict[int, Rankings], folder: Path) -> list[Path]:
    """Write a figure per view and gap, and one of the rankings; return the files."""
    names = list(dict.fromkeys(name for view in views for name in view.curves))
    written: list[Path] = []
    with mpl.rc_context(STYLE):
        for place, view in enumerate(views):
            # With its number: labels may differ in what a file name leaves out.
            start = f"{place + 1}-{slug(view.label)}-" if len(views) > 1 else ""
            measured = {name for point in view.points for name in point.values}
            for gap in [gap + form for gap in view.gaps for form in ("", MSE)]:
                ks = [k for k in view.ks if f"{gap}@{k}" in measured]
                if not ks:
                    continue
                figure = Figure(figsize=(2.35 * len(ks) + 0.3, 2.6), layout="constrained")
                panels = figure.subplots(1, len(ks), squeeze=False)[0]
                for k, panel in zip(ks, panels, strict=True):
                    for name, points in view.curves.items():
                        metrics = f"{gap}@{k}", f"ndcg@{k}"
                        draw(panel, name, points, metrics, look_of(names.index(name)))
                    name_axes(panel, gap)
                    panel.set_title(f"K = {k}", fontsize=8)
                lines, labels = panels[0].get_legend_handles_labels()
                columns = min(5, len(labels))
                figure.legend(lines, labels, loc="outside upper center", ncols=columns)
                written += save(figure, folder / f"{start}tradeoff-{slug(gap)}")
            if place in rankings:
                found = rankings[place]
                sides = {
                    f"before: {found.before}": found.rows_before,
                    f"after: {found.after}": found.rows_after,
                }
                written += save(pictures(sides, found.groups), folder / f"{start}rankings")
    return written


def look_of(place: int) -> dict[str, Any]:
    """Return colour, marker and dash of the curve at a place among all."""
    return {
        "color": COLOURS[place % len(COLOURS)],
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": DASHES[place % len(DASHES)],
        "markeredgecolor": "white",
        "markeredgewidth": 0.5,
        "capsize": 1.5,
    }


def draw(
    panel: Axes,
    name: str,
    points: Sequence[Point],
    metrics: tuple[str, str],
    look: Mapping[str, Any],
    *,
    bars: bool = True,
) -> None:
    """Draw the points that have both metrics, the first to the right and the second up.

    `look` is as `look_of` returns it; `bars` are the intervals.
    """
    known = [point for point in points if all(name in point.values for name in metrics)]
    if not known:
        return
    cells = np.array([[point.values[name] for name in metrics] for point in known])
    means, low, high = cells[..., 0], cells[..., 1], cells[..., 2]
    # How far intervals reach to both sides, [2, P, 2]; 0 where there is none.
    reach = np.nan_to_num(np.stack([means - low, high - means])).clip(min=0)
    across, up = (reach[..., 0], reach[..., 1]) if bars else (None, None)
    x, y = means.T
    panel.errorbar(x, y, xerr=across, yerr=up, label=name, elinewidth=0.6, **look)


def name_axes(panel: Axes, gap: str) -> None:
    """Say what the axes of a drawn panel are, the gap in a power of ten if it is small."""
    largest = panel.get_xlim()[1]
    power = math.floor(math.log10(largest)) if 0 < largest < 0.01 else 0
    unit = f"\nin 10{str(power).translate(RAISED)}" if power else ""
    panel.xaxis.set_major_formatter(lambda x, _: f"{x / 10.0**power:.3g}")
    panel.xaxis.set_major_locator(MaxNLocator(5))
    panel.set_xlabel(f"{heading(gap)}{unit}")
    panel.set_ylabel("NDCG")


def pictures(sides: Mapping[str, Sequence[str]], groups: tuple[str, str]) -> Figure:
    """Return a figure of rankings side by side, a row of pixels per list.

    `sides` are titles and rows, which are those of `Rankings`, `groups` the names of 0 and 1.
    """
    figure = Figure(figsize=(3.5 * len(sides), 2.9), layout="constrained")
    panels = figure.subplots(1, len(sides), squeeze=False)[0]
    for panel, (title, rows) in zip(panels, sides.items(), strict=True):
        longest = max(map(len, rows))
        cells = np.full((len(rows), longest), np.nan)
        for number, row in enumerate(rows):
            cells[number, : len(row)] = [SIGNS[sign] for sign in row]
        extent = (0.5, longest + 0.5, len(rows) + 0.5, 0.5)
        panel.imshow(
            cells,
            cmap=ListedColormap(GROUPS),
            vmin=0,
            vmax=2,
            aspect="auto",
            interpolation="nearest",
            extent=extent,
        )
        panel.grid(visible=False)
        panel.set_title(title, fontsize=7)
        panel.set_xlabel("position")
        panel.set_ylabel("list")
    keys = [
        Patch(color=shade, label=name) for shade, name in zip(GROUPS[:2], groups, strict=True)
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=2)
    return figure


def save(figure: Figure, start: Path) -> list[Path]:
    """Write a figure as PDF and PNG; return the files."""
    paths = [start.with_name(f"{start.name}.{kind}") for kind in ("pdf", "png")]
    for path in paths:
        with replacing(path) as temporary:
            figure.savefig(temporary, format=path.suffix[1:], dpi=300)
        figure.set_layout_engine("none")  # places are found once, which takes a while
    return paths


def slug(text: str) -> str:
    """Return text as part of a file name."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text).strip("-.")[:80]
