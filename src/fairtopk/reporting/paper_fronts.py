"""Which method gives most: areas under trade-offs, and the smallest gap for 1 % of NDCG."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fairtopk.reporting.curves import Point
from fairtopk.reporting.figures import slug
from fairtopk.reporting.paper_table import (
    PaperTable,
    Row,
    joined,
    measured,
    percent,
)
from fairtopk.reporting.paper_tables import Facts
from fairtopk.reporting.paper_views import PaperView, folders
from fairtopk.reporting.results import Result
from fairtopk.statistics.fronts import front
from fairtopk.statistics.inputs import Floats

GAPS = {"exposure_gap": "Eq. 9", "rank_exposure_gap": "by rank"}
PROTOCOLS = {"sampled": "sampled lists", "full": "full catalogue"}
REACH = 0.1  # of K-SONG's NDCG, below which a point adds nothing to an area
LOSS = 0.01  # of K-SONG's NDCG, that a chosen model may lose


class Area(NamedTuple):
    """An area as a share of the whole, with its interval, and the seeds that it rests on."""

    share: float
    low: float
    high: float
    seeds: int


def hypervolume_table(views: Sequence[PaperView]) -> PaperTable:
    """Return the area that each method dominates, of one data set by every protocol."""
    columns = [(view, gap) for view in views for gap in GAPS]
    named = {name: None for view in views for name, points in _series(view) if points}
    rows: list[Row] = []
    records: list[Mapping[str, Any]] = []
    for name in named:
        cells: list[str] = []
        runs: dict[str, None] = {}
        for view, gap in columns:
            points = dict(_series(view)).get(name, [])
            area = _area(view, points, gap) if points else None
            runs |= dict.fromkeys(run for point in points for run in folders(point))
            cells.append(_area_text(area))
            about = {"method": name, "protocol": view.protocol, "gap": gap, "k": view.k}
            values = area._asdict() if area is not None else {}
            of = joined(tuple(r for p in points for r in folders(p)))
            records.append(about | values | {"runs": of})
        rows.append(Row((name, *cells), tuple(runs)))
    title, k = (views[0].title, views[0].k) if views else ("", 0)
    header = ("Method", *(f"{PROTOCOLS[v.protocol]}, {GAPS[gap]}" for v, gap in columns))
    notes = [
        f"The area of all pairs of NDCG and gap that some point of the method is at least as "
        f"good as, between K-SONG's gap and no gap, and between {100 * (1 - REACH):g} % and "
        f"all of its NDCG: 100 % is no gap at no loss, 0 % a method with no point in there; "
        f"above 100 % more NDCG than K-SONG's. Points without a penalty do not count. "
        f"Intervals are 95 %, by bootstrap over seeds.",
    ]
    return PaperTable(
        f"hypervolume-{slug(title)}",
        f"{title}: hypervolume of each method, K = {k}",
        header,
        rows,
        records,
        notes,
    )


def _series(view: PaperView) -> Iterator[tuple[str, list[Point]]]:
    for name, points in (*view.curves.items(), *view.reranked.items()):
        yield name, [point for point in points if point.penalised]


def _area(view: PaperView, points: list[Point], gap: str) -> Area | None:
    """Return the area of a curve; None where it is not to be had."""
    base, ndcg, of_gap = view.base, f"ndcg@{view.k}", f"{gap}@{view.k}"
    if base is None or not base.mean(of_gap) > 0:
        return None
    seeds = set.intersection(*({r.run.seed for r in point.results} for point in points))
    if not seeds:
        return None
    columns = [_matrix(points, sorted(seeds), name) for name in (ndcg, of_gap)]
    reference = ((1 - REACH) * base.mean(ndcg), base.mean(of_gap))
    found = front(columns[0], columns[1], reference=reference)
    whole = REACH * base.mean(ndcg) * base.mean(of_gap)
    low, high = found.ci95
    return Area(found.hypervolume / whole, low / whole, high / whole, found.n_seeds)


def _matrix(points: list[Point], seeds: list[int], metric: str) -> Floats:
    """Return a metric by seed and point, ``[S, P]``; NaN where it is undefined."""
    of = [{result.run.seed: result for result in point.results} for point in points]
    return np.array([[_value(one[seed].metrics, metric) for one in of] for seed in seeds])


def _value(metrics: Mapping[str, Mapping[str, Any]], metric: str) -> float:
    mean = metrics.get(metric, {}).get("mean")
    return math.nan if mean is None else float(mean)


def _area_text(area: Area | None) -> str:
    if area is None:
        return "not measured"
    text = f"{100 * area.share:.1f} %"
    if area.seeds < 2:
        return f"{text} (one seed)"
    return f"{text} [{100 * area.low:.1f}, {100 * area.high:.1f}]"


class Choice(NamedTuple):
    """The point of a method that is chosen for 1 % of NDCG.

    Attributes:
        point: The chosen one; where all lose more, the one that loses least.
        within: Whether it loses no more, by what it was chosen by.
        how: In words, by what.
    """

    point: Point
    within: bool
    how: str


def choice_table(view: PaperView, facts: Facts) -> PaperTable:
    """Return the smallest gap of each method for 1 % of NDCG, in- against post-processing."""
    base, rows = view.base, []
    records: list[Mapping[str, Any]] = []
    ndcg = f"ndcg@{view.k}"
    for gap, words in GAPS.items():
        first, metric = True, f"{gap}@{view.k}"
        for name, points in _series(view):
            if base is None or not points:
                continue
            found = choose(points, base, gap, view.k, facts)
            point, runs = found.point, folders(found.point)
            loss, cut = (_change(point, base, name) for name in (ndcg, metric))
            needs = "yes" if name in view.reranked or "labels" in name else "no"
            label = point.label if found.within else f"{point.label}, loses more"
            cells = (words, name, needs, label, found.how)
            numbers = (measured(point, ndcg), percent(loss), measured(point, metric))
            rows.append(Row((*cells, *numbers, percent(cut)), runs, begins=first))
            first = False
            records.append(
                {
                    "gap": gap,
                    "method": name,
                    "needs_labels_when_serving": needs,
                    "weight": point.label,
                    "within": found.within,
                    "chosen": found.how,
                    "ndcg": point.mean(ndcg),
                    "ndcg_change": loss,
                    "value": point.mean(metric),
                    "gap_change": cut,
                    "runs": joined(runs),
                }
            )
    notes = [
        f"Of each method the weight with the smallest gap among those that lose at most "
        f"{100 * LOSS:g} % of K-SONG's NDCG. On validation: both were read off validation "
        f"lists, and test lists tell what came of it. In hindsight: off the test lists "
        f"themselves, since re-ranked validation lists were not measured; that flatters. One "
        f"setting: there was nothing to choose. Labels: whether group labels are needed when "
        f"serving. Loses more: as every weight of the method does; it is the one that loses "
        f"least.",
    ]
    if base is None:
        notes.append("K-SONG was not run: there is nothing to lose from.")
    return PaperTable(
        f"in-and-post-{slug(view.title)}",
        f"{view.title}: smallest gap for {100 * LOSS:g} % of NDCG, in- and post-processing",
        ("Gap", "Method", "Labels", "Weight", "Chosen", "NDCG", "change", "Gap", "change"),
        rows,
        records,
        notes,
        texts=5,
    )


def _change(point: Point, base: Point, metric: str) -> float:
    """Return by which share of the base's a metric differs; NaN where that is 0."""
    return point.mean(metric) / (base.mean(metric) or math.nan) - 1


def choose(points: Sequence[Point], base: Point, gap: str, k: int, facts: Facts) -> Choice:
    """Return which point of a method is chosen for a loss of at most 1 % of the base's NDCG.

    Args:
        points: Penalised, one or more.
        base: Whose NDCG may be lost.
        gap: Such as ``exposure_gap``.
        k: Of both.
        facts: Of each run; they tell which epoch was kept.
    """
    names = (f"ndcg@{k}", f"{gap}@{k}")
    valid = {point.name: _validated(point, names, facts) for point in (base, *points)}
    known = all(not math.isnan(sum(values)) for values in valid.values())
    values = valid if known else {p.name: _measured(p, names) for p in (base, *points)}
    how = "on validation" if known else "in hindsight"
    if len(points) == 1:
        how = "one setting"
    least = (1 - LOSS) * values[base.name][0]
    within = [point for point in points if values[point.name][0] >= least]
    if within:
        return Choice(min(within, key=lambda p: _gap_of(values[p.name])), True, how)
    return Choice(max(points, key=lambda point: values[point.name][0]), False, how)


def _gap_of(values: tuple[float, float]) -> float:
    return math.inf if math.isnan(values[1]) else values[1]


def _measured(point: Point, names: tuple[str, str]) -> tuple[float, float]:
    return point.mean(names[0]), point.mean(names[1])


def _validated(point: Point, names: tuple[str, str], facts: Facts) -> tuple[float, float]:
    """Return the means over seeds at the kept epochs; NaN where a log does not tell."""
    records = [_kept(result, facts) for result in point.results]
    first, second = (
        float(np.mean([record.get(f"valid_{name}", math.nan) for record in records]))
        for name in names
    )
    return first, second


def _kept(result: Result, facts: Facts) -> Mapping[str, Any]:
    """Return the record of the epoch that was kept; epochs count anew in each phase."""
    epoch = facts.get(result.run.name, {}).get("chosen_epoch")
    kept = [record for record in result.run.log if record.get("epoch") == epoch]
    return kept[-1] if kept and epoch is not None else {}
