"""Tables of the paper's experiments: every point, training times, flatter scores, deviations.

The last is in the layout of the paper's table of NDCG and fair loss, whose numbers stand beside
ours. The paper does not say of what its standard deviations are: ours are given over seeds and
over users, and beside them what changes from K-SONG, user by user.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from fairtopk.metrics.intervals import means_with_intervals
from fairtopk.metrics.names import MSE, lists_label
from fairtopk.reporting.curves import Cell, Point, paired_values, user_values
from fairtopk.reporting.figures import slug
from fairtopk.reporting.rankings import Fall, FallOfPoint
from fairtopk.reporting.tables import with_interval
from fairtopk.reproduce.views import BASE, STARTS, Facts, PaperView, folder, folders, weight_of
from fairtopk.terminal import number

NOT_RUN, UNDEFINED = "not run", "undefined"
shown = partial(number, undefined=UNDEFINED)  # says in words that a number is undefined


class Row(NamedTuple):
    """A row."""

    cells: tuple[str, ...]  # a text per column
    runs: tuple[str, ...] = ()  # the folders that its numbers come from


@dataclass(frozen=True)
class PaperTable:
    """A table."""

    name: str  # of its files
    title: str  # what it shows
    header: tuple[str, ...]  # a text per column
    rows: list[Row]  # what is shown
    records: Sequence[Mapping[str, Any]]  # the same with all figures, for a CSV file
    notes: list[str] = field(default_factory=list)  # what must be said of it
    texts: int = 1  # how many columns, from the first, hold words
    ruled: bool = True  # whether a line is above each row with another first cell than before

    @property
    def begins(self) -> list[bool]:
        """Whether a line is above each row; an empty cell says what is in the row before."""
        firsts = [row.cells[0] for row in self.rows]
        pairs = pairwise(["", *firsts])
        return [self.ruled and first not in ("", above) for above, first in pairs]


def measured(point: Point, metric: str) -> str:
    """Return a metric of a point with its interval, and in words that it is undefined."""
    mean = point.mean(metric)
    return UNDEFINED if mean != mean else with_interval(point.values[metric])


def percent(share: float) -> str:
    """Return a share with its sign, ``-12.3 %``."""
    return UNDEFINED if share != share else f"{100 * share:+.1f} %"


LARGE = 1e5  # the C of its table other than 0
KS = (50, 100, 200)
Published = dict[str, list[tuple[float, float]]]  # measure to mean and deviation at each K


def _published(ndcg: list[float], gap: list[float]) -> Published:
    """Return a row of the paper: mean and deviation, at K = 50, 100 and 200."""
    means, gaps = (list(zip(row[::2], row[1::2], strict=True)) for row in (ndcg, gap))
    return {"ndcg": means, "exposure_gap": gaps, "exposure_gap_released": gaps}


# "Learning to Rank with Top-K Fairness", the table of its appendix "Experiment Statistical
# Significance". At C = 0 its four methods with an NDCG loss have the same numbers.
SOURCE = "Learning to Rank with Top-K Fairness, appendix Experiment Statistical Significance"
BLIND = _published(
    [0.5769, 0.0521, 0.5910, 0.0465, 0.5973, 0.0430],
    [0.0139, 0.0001, 0.0069, 0.0, 0.0034, 0.0],
)
PUBLISHED: dict[tuple[str, float], Published] = {
    ("KSO-RED", 0.0): BLIND,
    ("KSO-RED", LARGE): _published(
        [0.5719, 0.0541, 0.5847, 0.0409, 0.5901, 0.0464],
        [0.0095, 0.0, 0.0042, 0.0, 0.0012, 0.0],
    ),
    ("SO-RED", 0.0): BLIND,
    ("SO-RED", LARGE): _published(
        [0.5740, 0.0528, 0.5886, 0.0471, 0.5953, 0.0442],
        [0.0103, 0.0, 0.0063, 0.0, 0.0012, 0.0],
    ),
    ("K-SONG", 0.0): BLIND,
    ("NG-DE", 0.0): BLIND,
    ("NG-DE", LARGE): _published(
        [0.5707, 0.0553, 0.5864, 0.0491, 0.5914, 0.0465],
        [0.0135, 0.0001, 0.0048, 0.0, 0.0011, 0.0],
    ),
    ("DELTR", 0.0): _published(
        [0.5496, 0.0551, 0.5531, 0.0501, 0.5581, 0.0481],
        [0.0136, 0.0001, 0.0041, 0.0, 0.0015, 0.0],
    ),
    ("DELTR", LARGE): _published(
        [0.5452, 0.0584, 0.5656, 0.0517, 0.5591, 0.0484],
        [0.0114, 0.0, 0.0042, 0.0, 0.0008, 0.0],
    ),
}
PUBLISHED_OF = "MovieLens-20M-H"

# "Learning to Rank with Top-K Fairness", the table of its appendix "Computational Efficiency
# Analysis": minutes on MovieLens-20M-H.
PAPER_MINUTES = {
    "DELTR": "84",
    "NG-DE": "110",
    "SO-RED": "126",
    "KSO-RED": "127",
    "K-SONG": "127",
    "Robust (labels when serving)": "1,522",
    "DPR-RSP": "> 4,320 (stopped early)",
    "DPR-REO": "> 4,320 (stopped early)",
}

DRAWN = {  # what figures show of each K
    "ndcg": "NDCG",
    "exposure_gap": "Gap, Eq. 9",
    f"exposure_gap{MSE}": "Eq. 9, squared",
    "exposure_gap_released": "Gap, as released",
    "rank_exposure_gap": "Gap by rank",
}


def points_table(view: PaperView) -> PaperTable:
    """Return every point of the figures of a view, at the K that models were trained for."""
    rows, records = [], []
    unknown = Cell(math.nan, math.nan, math.nan)
    for point in view.points:
        seeds, runs = len(point.results), folders(point)
        cells = (measured(point, f"{name}@{view.k}") for name in DRAWN)
        rows.append(Row((point.curve, point.label or "none", str(seeds), *cells), runs))
        records += [
            {
                "method": point.curve,
                "weight": point.label,
                "metric": name,
                "k": k,
                **point.values.get(f"{name}@{k}", unknown)._asdict(),
                "seeds": seeds,
                "runs": " ".join(runs),
            }
            for name in DRAWN
            for k in view.ks
        ]
    lists = lists_label({"data": view.title, "part": "test", "protocol": view.protocol})
    return PaperTable(
        f"points-{slug(view.title)}-{view.protocol}",
        f"{lists}: every point, K = {view.k}",
        ("Method", "Weight", "Seeds", *DRAWN.values()),
        rows,
        records,
        ["± is half of a 95 % interval: over seeds, or over users where there is one seed."],
        texts=2,
    )


def time_table(views: Sequence[PaperView], facts: Facts) -> PaperTable:
    """Return training times by data set and method, next to the paper's minutes."""
    rows, records = [], []
    curves = [(view, name, points) for view in views for name, points in view.curves.items()]
    for view, name, points in curves:
        own = [point for point in points if point.penalised or name not in STARTS]
        runs = tuple(run for point in own for run in folders(point))
        seconds = [facts.get(run, {}).get("seconds", {}) for run in runs]
        minutes = [of["training"] / 60 for of in seconds if "training" in of]
        least, most = min(minutes, default=None), max(minutes, default=None)
        mean = sum(minutes) / len(minutes) if minutes else math.nan
        span = f"{least:.3g} to {most:.3g}" if minutes else UNDEFINED
        epochs = {len(result.run.log) for point in own for result in point.results}
        trained = ", ".join(f"{n:,}" for n in sorted(epochs))
        paper = PAPER_MINUTES.get(name, number(None))
        cells = (view.title, name, str(len(runs)), trained, shown(mean), span, paper)
        rows.append(Row(cells, runs))
        records.append(
            {
                "data": view.title,
                "method": name,
                "epochs": trained,
                "minutes": mean,
                "least": least,
                "most": most,
                "paper_minutes": paper,
                "runs": " ".join(runs),
            }
        )
    header = ("Data", "Method", "Runs", "Epochs", "Minutes a run", "from, to", "Paper, minutes")
    notes = [
        "Measured in these very runs, several of which were trained at a time and shared the "
        "machine. Epochs are those of warm-up and method. Runs of one seed share their "
        "warm-up: it is in the time of the one that was trained first, as a rule K-SONG.",
        "The paper's minutes are of MovieLens-20M-H on a 24-core CPU with a V100S GPU, 120 "
        "epochs (Robust: 5, in its authors' code): other data, other hardware. Compare methods "
        "within a column, not across.",
    ]
    return PaperTable("time", "Training time by method", header, rows, records, notes, 2)


def flattening_table(view: PaperView, falls: Sequence[FallOfPoint], why: str) -> PaperTable:
    """Return which share of the fall of each softmax gap is flatter scores, on sampled lists.

    `why` is a sentence on what could not be measured; empty if everything was.
    """
    rows, records = [], []
    for point, runs, seeds in falls:
        cells: list[str] = []
        for gap in ("exposure_gap", "exposure_gap_released"):
            mean = Fall(*np.mean(seeds[f"{gap}@{view.k}"], axis=0).tolist())
            share = UNDEFINED if mean.share != mean.share else f"{100 * mean.share:.0f} %"
            cells += [*map(shown, mean), share]
        rows.append(Row((point.curve, point.label, *cells), runs))
        for name, of in seeds.items():
            metric, _, k = name.partition("@")
            records += [
                {
                    "method": point.curve,
                    "weight": weight_of(point),
                    "seed": result.run.seed,
                    "metric": metric,
                    "k": int(k),
                    **one._asdict(),
                    "share": one.share,
                    "run": folder(result.run),
                }
                for result, one in zip(point.results, of, strict=True)
            ]
    parts = ("before", "its order, as flat", "after", "flatter scores")
    columns = (f"{gap}, {part}" for gap in ("Eq. 9", "Released") for part in parts)
    notes = [
        "Before is the colour-blind model: C = 0 of the method, or K-SONG. Its order, as flat: "
        "the gap that its order would have, were its scores divided by the one number that "
        "gives them the mean entropy of the fair model's softmax. The share of the fall that "
        "this alone explains can be above 100 % (the new order widens the gap) or below 0. "
        "Undefined where the gap does not fall, or no number makes them as flat. The gap by "
        "rank knows no scores.",
        *([why] if why else []),
    ]
    return PaperTable(
        f"flattening-{slug(view.title)}",
        f"{view.title}: how much of the fall of a gap is flatter scores, K = {view.k}",
        ("Method", "Weight", *columns),
        rows,
        records,
        notes,
        texts=2,
    )


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

# Name of a point and metric to the text of its cell, and what a CSV file says of it.
Cells = dict[tuple[str, str], tuple[str, dict[str, Any]]]
NO_VALUES: tuple[str, dict[str, Any]] = "no values of each user", {}


def spread_tables(view: PaperView) -> list[PaperTable]:
    """Return the table with deviations over seeds, over users, and with paired differences."""
    points = [point for place in PUBLISHED if (point := view.at(*place)) is not None]
    names = [f"{measure}@{k}" for measure in MEASURES for k in view.ks]
    over_seeds, over_users = _deviations(points, names)
    seeds = max((len(point.results) for point in view.points), default=0)
    note = "One seed: there is no standard deviation over seeds, and none is shown."
    if seeds > 1:
        note = f"Standard deviation of the means of {seeds} seeds."
    of_seeds = "NDCG and fair loss, mean (standard deviation over seeds)"
    of_users = "NDCG and fair loss, mean (standard deviation over users)"
    averaged = "Standard deviation over users, averaged over seeds."
    tables = [
        _laid_out(view, "std", of_seeds, over_seeds, note),
        _laid_out(view, "std-users", of_users, over_users, averaged),
    ]
    if view.base is not None:
        words = f"difference from {BASE}, with its 95 % interval"
        note = (
            f"For each user, the difference from {BASE} of the same seed is averaged over "
            f"seeds; the interval is by bootstrap over users. It tells that these models "
            f"differ, not that other seeds would. What is {BASE} itself is left out."
        )
        of_base = {one.run.seed: user_values(one, names) for one in view.base.results}
        cells = Cells()
        for point in points:
            before, after = paired_values(point, of_base, names) or ({}, {})
            changes = {name: after[name] - before[name] for name in before}
            for name, change in (means_with_intervals(changes) if changes else {}).items():
                low, high = change.ci95
                text = f"{change.mean:+.2g} [{low:+.2g}, {high:+.2g}]"
                figures = {"difference": change.mean, "low": low, "high": high}
                figures["users"] = change.n
                cells[point.name, name] = text if change.n else UNDEFINED, figures
        tables.append(_laid_out(view, "differences", words, cells, note, base=view.base))
    return tables


def _laid_out(
    view: PaperView, kind: str, words: str, cells: Cells, note: str, base: Point | None = None
) -> PaperTable:
    """Return cells in the paper's layout, next to its own unless they are differences."""
    paper = base is None and view.paper == PUBLISHED_OF
    base_runs = folders(base) if base is not None else ()
    rows: list[Row] = []
    records: list[dict[str, Any]] = []
    for (method, c), published in PUBLISHED.items():
        point = view.at(method, c)
        own = folders(point) if point is not None else ()
        if base_runs and own == base_runs:
            continue
        runs = (*own, *base_runs)
        for measure, title in MEASURES.items():
            texts: list[str] = []
            for k in view.ks:
                text, figures = NOT_RUN, dict[str, Any]()
                if point is not None:
                    text, figures = cells.get((point.name, f"{measure}@{k}"), NO_VALUES)
                texts.append(text)
                if paper:
                    mean, deviation = published[measure][KS.index(k)]
                    texts.append(f"{mean:.4f} ({deviation:.4f})")
                    figures = figures | {"paper_mean": mean, "paper_std": deviation}
                about = {"method": method, "c": c, "metric": measure, "k": k}
                records.append(about | figures | {"runs": " ".join(runs)})
            weight = {0.0: "0", LARGE: "100K"}[c] if method != BASE else ""
            rows.append(Row((method, weight, title, *texts), runs))
    columns = (", ours", ", paper") if paper else ("",)
    return PaperTable(
        f"{kind}-{slug(view.title)}",
        f"{view.title}: {words}",
        ("Method", "C", "Measure", *(f"K = {k}{who}" for k in view.ks for who in columns)),
        rows,
        records,
        [note, *([SOURCE_NOTE] if paper else [])],
        texts=3,
    )


def _deviations(points: Sequence[Point], names: list[str]) -> tuple[Cells, Cells]:
    """Return the means of points with deviations over seeds, and with those over users."""
    over_seeds, over_users = Cells(), Cells()
    for point in points:
        of_users = [user_values(result, names) for result in point.results]
        for name in names:
            means = [result.metrics.get(name, {}).get("mean") for result in point.results]
            std = float(np.std(np.array(means, float), ddof=1)) if len(means) > 1 else math.nan
            values = [of.values[name] for of in of_users if of and name in of.values]
            defined = [of[~np.isnan(of)].astype(float) for of in values]
            stds = [float(of.std(ddof=1)) for of in defined if len(of) > 1]
            mean_std = float(np.mean(stds)) if stds else math.nan
            mean = point.mean(name)
            for cells, key, deviation, seeds in (
                (over_seeds, "std_over_seeds", std, len(means)),
                (over_users, "std_over_users", mean_std, len(stds)),
            ):
                text = f"{shown(mean)} ({number(deviation, digits=2)})"
                figures = {"mean": mean, key: deviation, "seeds": seeds}
                cells[point.name, name] = (UNDEFINED if mean != mean else text), figures
    return over_seeds, over_users
