"""Which method gives most: areas under trade-offs, and the smallest gap for 1 % of NDCG."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fairtopk.reporting.curves import Point
from fairtopk.reporting.figures import slug
from fairtopk.reporting.paper_choosing import LOSS, choose
from fairtopk.reporting.paper_seeds import (
    SeedMean,
    by_seed,
    change_of,
    difference_of,
    seed_mean,
)
from fairtopk.reporting.paper_table import PaperTable, Row, joined, measured, percent
from fairtopk.reporting.paper_tables import Facts
from fairtopk.reporting.paper_views import NAMES, PaperView, folders
from fairtopk.reporting.words import MSE
from fairtopk.statistics.fronts import hypervolume

GAPS = {"exposure_gap": "Eq. 9", "rank_exposure_gap": "by rank"}
PUBLISHED = {f"exposure_gap{MSE}": "Eq. 9, squared", "exposure_gap_released": "as released"}
PROTOCOLS = {"sampled": "sampled lists", "full": "full catalogue"}
REACH = 0.1  # of K-SONG's NDCG, below which a point adds nothing to an area
OURS = NAMES["kso-red"]
AREA = (
    f"The area of all pairs of NDCG and gap that some point of the method is at least as good "
    f"as, between K-SONG's gap and no gap, and between {100 * (1 - REACH):g} % and all of its "
    f"NDCG: 100 % is no gap at no loss, 0 % a method with no point in there; above 100 % more "
    f"NDCG than K-SONG's. Points without a penalty do not count. Found for each seed, beside "
    f"K-SONG of that seed; ± is a 95 % interval of the mean over seeds, by Student's t. In "
    f"brackets: how many points that is above {OURS}'s of the same seeds, with an interval of "
    f"its own."
)


class Area(NamedTuple):
    """What a column of areas is of; the last is what it is called."""

    view: PaperView
    gap: str
    k: int
    words: str


def hypervolume_table(views: Sequence[PaperView], k: int) -> PaperTable:
    """Return the area that each method dominates at a K, of one data set by every protocol."""
    columns = [
        Area(view, gap, k, f"{PROTOCOLS[view.protocol]}, {words}")
        for view in views
        for gap, words in GAPS.items()
    ]
    title = views[0].title if views else ""
    name, of = f"hypervolume-{slug(title)}-{k}", f"hypervolume of each method, K = {k}"
    return _area_table(name, f"{title}: {of}", columns)


def published_area_table(view: PaperView) -> PaperTable:
    """Return the areas by the other two gaps of the paper and its code, at every K."""
    columns = [
        Area(view, gap, k, f"{words}, K = {k}")
        for gap, words in PUBLISHED.items()
        for k in view.ks
    ]
    of = f"hypervolume of each method by other gaps, {PROTOCOLS[view.protocol]}"
    return _area_table(
        f"hypervolume-published-{slug(view.title)}", f"{view.title}: {of}", columns
    )


def _area_table(name: str, title: str, columns: Sequence[Area]) -> PaperTable:
    named = {method: None for area in columns for method, of in _series(area.view) if of}
    rows: list[Row] = []
    records: list[Mapping[str, Any]] = []
    for method in named:
        cells: list[str] = []
        runs: dict[str, None] = {}
        for view, gap, k, _ in columns:
            series = dict(_series(view))
            points = series.get(method, [])
            areas, ours = (_areas(view, of, gap, k) for of in (points, series.get(OURS, [])))
            area, ahead = seed_mean([*areas.values()]), difference_of(areas, ours)
            runs |= dict.fromkeys(run for point in points for run in folders(point))
            cells.append(_area_text(area, ahead if method != OURS else None))
            about = {"method": method, "protocol": view.protocol, "gap": gap, "k": k}
            of = joined(tuple(r for p in points for r in folders(p)))
            records.append(about | _area_record(area, ahead) | {"runs": of})
        rows.append(Row((method, *cells), tuple(runs)))
    return PaperTable(
        name, title, ("Method", *(area.words for area in columns)), rows, records, [AREA]
    )


def _series(view: PaperView) -> Iterator[tuple[str, list[Point]]]:
    for name, points in (*view.curves.items(), *view.reranked.items()):
        yield name, [point for point in points if point.penalised]


def _areas(view: PaperView, points: list[Point], gap: str, k: int) -> dict[int, float]:
    """Return the area of a curve as a share of the whole, for each seed that is complete."""
    if view.base is None or not points:
        return {}
    names = (f"ndcg@{k}", f"{gap}@{k}")
    ndcgs, gaps = ([by_seed(point, name) for point in points] for name in names)
    blind = [by_seed(view.base, name) for name in names]
    seeds = set.intersection(*({r.run.seed for r in one.results} for one in points))
    found = {}
    for seed in sorted(seeds):
        ndcg, worst = (of.get(seed, 0.0) for of in blind)
        if ndcg > 0 and worst > 0:
            columns = (
                np.array([of.get(seed, math.nan) for of in part]) for part in (ndcgs, gaps)
            )
            area = hypervolume(*columns, reference=((1 - REACH) * ndcg, worst))
            found[seed] = area / (REACH * ndcg * worst)
    return found


def _area_text(area: SeedMean, ahead: SeedMean | None) -> str:
    if not area.seeds:
        return "not measured"
    text = f"{100 * area.mean:.1f} %"
    if area.seeds < 2:
        return f"{text} (one seed)"
    text = f"{text} ±{100 * area.reach:.1f}"
    if ahead is None or ahead.seeds < 2:
        return text
    return f"{text} ({100 * ahead.mean:+.1f} ±{100 * ahead.reach:.1f})"


def _area_record(area: SeedMean, ahead: SeedMean) -> dict[str, Any]:
    if not area.seeds:
        return {}
    shown = {"share": area.mean, "low": area.low, "high": area.high, "seeds": area.seeds}
    return shown | {"ahead": ahead.mean, "ahead_low": ahead.low, "ahead_high": ahead.high}


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
            loss, cut = (
                change_of(by_seed(point, name), by_seed(base, name)).mean
                for name in (ndcg, metric)
            )
            needs = "yes" if name in view.reranked or "labels" in name else "no"
            cells = (words, name, needs, found.label, found.how)
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
        f"serving. Loses more: as every weight of the method does on the lists that it was "
        f"chosen by; it is the one that loses least.",
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
