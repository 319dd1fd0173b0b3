"""The curves and rankings of a page as files for print, by matplotlib: PDF and PNG.

Methods differ in marker and dash as well as in colour, groups in lightness: figures can be read
in black and white.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from fairtopk.data.files import replacing
from fairtopk.reporting.curves import Point, View
from fairtopk.reporting.results import Rankings
from fairtopk.reporting.words import MSE, gap_words
from fairtopk.statistics.inputs import Floats

COLOURS = ("#0072b2", "#c14f00", "#00795a", "#a3457d", "#8a6100", "#3b3b3b")
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
            start = f"{place + 1}-{_slug(view.label)}-" if len(views) > 1 else ""
            for gap in [gap + form for gap in view.gaps for form in ("", MSE)]:
                figure = _trade_off(view, gap, names)
                if figure is not None:
                    written += _save(figure, folder / f"{start}tradeoff-{_slug(gap)}")
            if place in rankings:
                written += _save(_pictures(rankings[place]), folder / f"{start}rankings")
    return written


def _trade_off(view: View, gap: str, names: list[str]) -> Figure | None:
    measured = {name for point in view.points for name in point.values}
    ks = [k for k in view.ks if f"{gap}@{k}" in measured]
    if not ks:
        return None
    figure = Figure(figsize=(2.35 * len(ks) + 0.3, 2.6), layout="constrained")
    panels = figure.subplots(1, len(ks), squeeze=False)[0]
    for k, panel in zip(ks, panels, strict=True):
        for name, points in view.curves.items():
            _draw_curve(panel, points, (f"{gap}@{k}", f"ndcg@{k}"), names.index(name))
        power = _power(panel.get_xlim()[1])
        more = ["squared"] if gap.endswith(MSE) else []
        more += [f"in 10{str(power).translate(RAISED)}"] if power else []
        panel.xaxis.set_major_formatter(lambda x, _, power=power: f"{x / 10.0**power:.3g}")
        panel.xaxis.set_major_locator(MaxNLocator(5))
        panel.set_xlabel(f"{gap_words(gap.removesuffix(MSE))} gap\n{', '.join(more)}".strip())
        panel.set_ylabel("NDCG")
        panel.set_title(f"K = {k}", fontsize=8)
    lines, labels = panels[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside upper center", ncols=min(5, len(labels)))
    return figure


def _draw_curve(
    panel: Axes, points: Sequence[Point], metrics: tuple[str, str], style: int
) -> None:
    known = [point for point in points if all(name in point.values for name in metrics)]
    x, y = (np.array([point.values[name] for point in known]) for name in metrics)
    if not len(known):
        return
    colour = COLOURS[style % len(COLOURS)]
    panel.errorbar(
        x[:, 0],
        y[:, 0],
        xerr=_bars(x),
        yerr=_bars(y),
        label=known[0].curve,
        color=colour,
        marker=MARKERS[style % len(MARKERS)],
        linestyle=DASHES[style % len(DASHES)],
        markeredgecolor="white",
        markeredgewidth=0.5,
        elinewidth=0.6,
        capsize=1.5,
    )


def _power(largest: float) -> int:
    """Return the power of ten that an axis is told in; 0 for numbers that are easily read."""
    return math.floor(math.log10(largest)) if 0 < largest < 0.01 else 0


def _bars(cells: Floats) -> Floats:
    """Return how far intervals reach to both sides, ``[2, P]``; 0 where there is none."""
    reach = np.stack([cells[:, 0] - cells[:, 1], cells[:, 2] - cells[:, 0]])
    shown: Floats = np.nan_to_num(reach).clip(min=0)
    return shown


def _pictures(found: Rankings) -> Figure:
    figure = Figure(figsize=(7.0, 2.9), layout="constrained")
    sides = (
        ("before", found.before, found.rows_before),
        ("after", found.after, found.rows_after),
    )
    for panel, (side, title, rows) in zip(figure.subplots(1, 2), sides, strict=True):
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
        panel.set_title(f"{side}: {title}", fontsize=7)
        panel.set_xlabel("position")
        panel.set_ylabel("list")
    keys = [
        Patch(color=shade, label=name)
        for shade, name in zip(GROUPS[:2], found.groups, strict=True)
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=2)
    return figure


def _save(figure: Figure, start: Path) -> list[Path]:
    paths = [start.with_name(f"{start.name}.{kind}") for kind in ("pdf", "png")]
    for path in paths:
        with replacing(path) as temporary:
            figure.savefig(temporary, format=path.suffix[1:], dpi=300)
    return paths


def _slug(text: str) -> str:
    """Return text as part of a file name."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text).strip("-.")[:80]
