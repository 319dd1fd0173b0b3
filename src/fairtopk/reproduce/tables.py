"""A table of the paper's experiments: as a page shows it, and its numbers in full.

Numbers of the paper, "Learning to Rank with Top-K Fairness", to stand beside ours.

Tables of the paper's experiments: every point, training times, flatter scores.

The paper's table of NDCG and fair loss with standard deviations, in its layout.

The paper does not say of what its standard deviations are. Ours are given over seeds and over
users, and beside them what changes from K-SONG, user by user.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fairtopk.metrics.intervals import Mean, means_with_intervals
from fairtopk.metrics.names import MSE, lists_label
from fairtopk.reporting.curves import Point, paired_values, user_values
from fairtopk.reporting.figures import slug
from fairtopk.reporting.rankings import Fall, FallOfPoint
from fairtopk.reporting.tables import with_interval
from fairtopk.reproduce.views import BASE, STARTS, Facts, PaperView, folder, folders, weight_of
from fairtopk.terminal import number

NOT_RUN, UNDEFINED = "not run", "undefined"


class Row(NamedTuple):
    """A row.

    Attributes:
        cells: A text per column.
        runs: The folders that its numbers come from, as seen from that of all runs.
        begins: Whether a line is above it.
    """

    cells: tuple[str, ...]
    runs: tuple[str, ...] = ()
    begins: bool = False


@dataclass(frozen=True)
class PaperTable:
    """A table.

    Attributes:
        name: Of its files.
        title: What it shows.
        header: A text per column.
        rows: What is shown.
        records: The same with all figures, a record per number or row, for a CSV file.
        notes: What must be said of it.
        texts: How many columns, from the first, hold words.
    """

    name: str
    title: str
    header: tuple[str, ...]
    rows: list[Row]
    records: Sequence[Mapping[str, Any]]
    notes: list[str] = field(default_factory=list)
    texts: int = 1


def shown(value: float | None) -> str:
    """Return a number as a table shows it, and in words that it is undefined."""
    return UNDEFINED if value is None or value != value else number(value)


def measured(point: Point, metric: str) -> str:
    """Return a metric of a point with its interval, and in words that it is undefined."""
    if metric not in point.values or point.mean(metric) != point.mean(metric):
        return UNDEFINED
    return with_interval(point.values[metric])


def percent(share: float) -> str:
    """Return a share with its sign, ``-12.3 %``."""
    return UNDEFINED if share != share else f"{100 * share:+.1f} %"


def joined(runs: tuple[str, ...]) -> str:
    """Return folders as one cell of a CSV file."""
    return " ".join(runs)


LARGE = 1e5  # C of its table, beside 0
KS = (50, 100, 200)
Published = dict[
    str, tuple[tuple[float, float], ...]
]  # measure to mean and deviation at each K


def _published(ndcg: list[float], gap: list[float]) -> Published:
    """Return a row of the paper: mean and deviation, at K = 50, 100 and 200."""
    pairs = {
        name: tuple(zip(row[::2], row[1::2], strict=True))
        for name, row in (("ndcg", ndcg), ("gap", gap))
    }
    return {
        "ndcg": pairs["ndcg"],
        "exposure_gap": pairs["gap"],
        "exposure_gap_released": pairs["gap"],
    }


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
    rows, records, last = [], [], ""
    for point in view.points:
        runs = folders(point)
        cells = (measured(point, f"{name}@{view.k}") for name in DRAWN)
        label = point.label or "none"
        begins, last = point.curve != last, point.curve
        count = str(len(point.results))
        rows.append(Row((point.curve, label, count, *cells), runs, begins=begins))
        records += [
            {
                "method": point.curve,
                "weight": point.label,
                "metric": name,
                "k": k,
                **_values(point, f"{name}@{k}"),
                "seeds": len(point.results),
                "runs": joined(runs),
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


def _values(point: Point, metric: str) -> dict[str, float | None]:
    cell = point.values.get(metric)
    return {"mean": None, "low": None, "high": None} if cell is None else cell._asdict()


def time_table(views: Sequence[PaperView], facts: Facts) -> PaperTable:
    """Return how long training took by data set and method, beside the paper's minutes."""
    rows, records = [], []
    for view in views:
        first = True
        for name, points in view.curves.items():
            own = [point for point in points if point.penalised or name not in STARTS]
            runs = tuple(run for point in own for run in folders(point))
            minutes = [m for run in runs if (m := _minutes(facts.get(run, {}))) is not None]
            epochs = {len(result.run.log) for point in own for result in point.results}
            paper = PAPER_MINUTES.get(name, number(None))
            mean = sum(minutes) / len(minutes) if minutes else float("nan")
            span = f"{min(minutes):.3g} to {max(minutes):.3g}" if minutes else UNDEFINED
            trained = ", ".join(f"{n:,}" for n in sorted(epochs))
            cells = (view.title, name, str(len(runs)), trained, shown(mean), span, paper)
            rows.append(Row(cells, runs, begins=first))
            first = False
            records.append(
                {
                    "data": view.title,
                    "method": name,
                    "epochs": trained,
                    "minutes": mean,
                    "least": min(minutes, default=None),
                    "most": max(minutes, default=None),
                    "paper_minutes": paper,
                    "runs": joined(runs),
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


def _minutes(fact: Mapping[str, Any]) -> float | None:
    seconds = (fact.get("seconds") or {}).get("training")
    return None if seconds is None else seconds / 60


def flattening_table(view: PaperView, falls: Sequence[FallOfPoint], why: str) -> PaperTable:
    """Return which share of the fall of each softmax gap is flatter scores.

    Args:
        view: Of sampled lists.
        falls: How the gaps of each penalised point fall.
        why: In words, what could not be told; empty if all could.
    """
    rows, last = [], ""
    records: list[Mapping[str, Any]] = []
    for fall in falls:
        cells: list[str] = []
        for gap in ("exposure_gap", "exposure_gap_released"):
            seeds = fall.seeds[f"{gap}@{view.k}"]
            means = [_mean([getattr(one, part) for one in seeds]) for part in Fall._fields]
            cells += [*map(shown, means), _share(Fall(*means))]
        point = fall.point
        begins, last = point.curve != last, point.curve
        rows.append(Row((point.curve, point.label, *cells), fall.runs, begins=begins))
        records += _fall_records(fall)
    parts = ("before", "its order, as flat", "after", "flatter scores")
    header = (
        "Method",
        "Weight",
        *(f"{gap}, {part}" for gap in ("Eq. 9", "Released") for part in parts),
    )
    notes = [
        "Before is the colour-blind model: C = 0 of the method, or K-SONG. Its order, as flat: "
        "the gap that its order would have, were its scores divided by the one number that "
        "gives them the mean entropy of the fair model's softmax. The share of the fall that "
        "this alone explains can be above 100 % (the new order widens the gap) or below 0. "
        "Undefined where the gap does not fall, or no number makes them as flat. The gap by "
        "rank knows no scores.",
        *([why] if why else []),
    ]
    title = f"{view.title}: how much of the fall of a gap is flatter scores, K = {view.k}"
    return PaperTable(f"flattening-{slug(view.title)}", title, header, rows, records, notes, 2)


def _fall_records(fall: FallOfPoint) -> Iterator[dict[str, Any]]:
    for name, seeds in fall.seeds.items():
        metric, _, k = name.partition("@")
        for result, one in zip(fall.point.results, seeds, strict=True):
            yield {
                "method": fall.point.curve,
                "weight": weight_of(fall.point),
                "seed": result.run.seed,
                "metric": metric,
                "k": int(k),
                **one._asdict(),
                "share": one.share,
                "run": folder(result.run),
            }


def _share(fall: Fall) -> str:
    return UNDEFINED if fall.share != fall.share else f"{100 * fall.share:.0f} %"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


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
    means = [_mean_of(result.metrics, metric) for result in point.results]
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


def _mean_of(metrics: dict[str, dict[str, Any]], metric: str) -> float:
    mean = metrics.get(metric, {}).get("mean")
    return float("nan") if mean is None else float(mean)
