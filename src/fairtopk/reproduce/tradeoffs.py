"""Which method gives most: areas under trade-offs, and the smallest gap for 1 % of NDCG.

Of each method the point that is chosen on validation, at every K and by both protocols.

Changes are from K-SONG of the same seed.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fairtopk.metrics.names import MSE, TERMS
from fairtopk.metrics.names import PROTOCOLS as LABELS
from fairtopk.reporting.curves import Cell, Point, seed_mean
from fairtopk.reporting.figures import slug
from fairtopk.reproduce.tables import PaperTable, Row, joined, measured, percent, shown
from fairtopk.reproduce.views import (
    BASE,
    LOSS,
    NAMES,
    PLUS,
    Choice,
    Facts,
    PaperView,
    by_seed,
    change_of,
    choose,
    difference_of,
    folders,
    weight_of,
)
from fairtopk.statistics import hypervolume
from fairtopk.terminal import number

GAPS = {gap: TERMS[gap].short for gap in ("exposure_gap", "rank_exposure_gap")}
PROTOCOLS = {name: LABELS[name] for name in ("sampled", "full")}
PUBLISHED = {f"exposure_gap{MSE}": "Eq. 9, squared", "exposure_gap_released": "as released"}
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


def _area_text(area: Cell, ahead: Cell | None) -> str:
    if not area.seeds:
        return "not measured"
    text = f"{100 * area.mean:.1f} %"
    if area.seeds < 2:
        return f"{text} (one seed)"
    text = f"{text} ±{100 * area.half:.1f}"
    if ahead is None or ahead.seeds < 2:
        return text
    return f"{text} ({100 * ahead.mean:+.1f} ±{100 * ahead.half:.1f})"


def _area_record(area: Cell, ahead: Cell) -> dict[str, Any]:
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


MEASURES = {
    "ndcg": "NDCG",
    "exposure_gap": "Eq. 9",
    "exposure_gap_released": "Released",
    "rank_exposure_gap": "By rank",
}
SIGNED = "rank_exposure_gap_signed"
BLIND = (BASE, NAMES["song"], NAMES["listnet"])
CHANCE = f"{BASE}, labels shuffled"
NOTES = [
    "± is a 95 % interval over seeds, by Student's t; with one seed there is none. Changes are "
    "from K-SONG of the same seeds, averaged over these. Signed: below 0, the named group gets "
    "less than the rest.",
    f"{CHANCE}: what gaps are left to K-SONG's order by chance.",
]


def chosen_tables(view: PaperView, full: PaperView | None, facts: Facts) -> list[PaperTable]:
    """Return what was chosen for each gap on sampled lists, and what it gives by each protocol.

    Args:
        view: Of sampled lists.
        full: Of the full catalogue, if that was measured.
        facts: Of each run; they tell which epoch was kept.
    """
    if view.base is None:
        return []
    found = []
    for gap in GAPS:
        choices = dict(_choices(view, view.base, gap, facts))
        found += [_table(gap, choices, of) for of in (view, full) if of is not None]
    return found


def _choices(
    view: PaperView, base: Point, gap: str, facts: Facts
) -> Iterator[tuple[str, Choice]]:
    """Yield each method with a penalty, or re-ranker, with its chosen point."""
    for name, points in (*view.curves.items(), *view.reranked.items()):
        penalised = [point for point in points if point.penalised]
        if penalised:
            yield name, choose(penalised, base, gap, view.k, facts)


def _table(gap: str, choices: Mapping[str, Choice], view: PaperView) -> PaperTable:
    rows: list[Row] = []
    records: list[dict[str, Any]] = []
    for name, point, label, how in _lines(choices, view):
        for place, k in enumerate(view.ks):
            about: dict[str, Any] = {"chosen_for": gap, "protocol": view.protocol}
            about |= {"method": name, "weight": label, "chosen": how, "k": k}
            cells, found = _cells(name, point, view, k)
            runs = folders(point)
            first = (name, label, str(len(point.results))) if not place else ("", "", "")
            rows.append(Row((*first, str(k), *cells), runs, begins=not place))
            records += [about | one | {"runs": joined(runs)} for one in found]
    columns = [text for words in MEASURES.values() for text in (words, "change")]
    lists = PROTOCOLS[view.protocol]
    return PaperTable(
        f"chosen-{gap}-{slug(view.title)}-{view.protocol}",
        f"{view.title}, {lists}: chosen for the gap {_words(gap)} at {100 * LOSS:g} % of NDCG",
        ("Method", "Weight", "Seeds", "K", *columns, "By rank, signed"),
        rows,
        records,
        [
            f"Of each trained method the weight with the smallest gap {_words(gap)} among "
            f"those that lose at most {100 * LOSS:g} % of NDCG, at K = {view.k} on sampled "
            f"validation lists; re-rankers in hindsight, on test lists. Where all lose more, "
            f"it is the one that loses least.",
            *NOTES,
        ],
        texts=2,
    )


def _lines(
    choices: Mapping[str, Choice], view: PaperView
) -> Iterator[tuple[str, Point, str, str]]:
    """Yield name, point, weight in words and how it was chosen, of each method of a view."""
    base = view.base
    if base is None:
        return
    yield BASE, base, "none", ""
    yield CHANCE, base, "none", ""
    for name in BLIND[1:]:
        if name in view.curves:
            yield name, view.curves[name][0], "none", ""
    for name, choice in choices.items():
        points = view.reranked.get(name, []) if PLUS in name else view.curves.get(name, [])
        weight = weight_of(choice.point)
        point = next(
            (one for one in points if one.penalised and weight_of(one) == weight), None
        )
        if point is not None:
            yield name, point, choice.label, choice.how


def _cells(
    name: str, point: Point, view: PaperView, k: int
) -> tuple[tuple[str, ...], list[dict[str, Any]]]:
    """Return the cells of a point at a K, and a record for each metric."""
    assert view.base is not None
    cells: list[str] = []
    records: list[dict[str, Any]] = []
    told: dict[str, Any]
    for metric in (*MEASURES, SIGNED):
        blind = by_seed(view.base, f"{metric}@{k}")
        asked = f"{metric}{'_floor' if name == CHANCE else ''}@{k}"
        values = by_seed(point, asked)
        mean = sum(values.values()) / len(values) if values else math.nan
        change = change_of(values, blind)
        signed = metric == SIGNED
        if signed:
            cells.append(f"{mean:+.2g}" if not math.isnan(mean) else number(None))
        else:
            cells += [shown(mean) if values else number(None), _change_text(change, name)]
        told = {"metric": metric, "mean": mean, "seeds": len(values)}
        if not signed:
            told |= {"change": change.mean, "low": change.low, "high": change.high}
        records.append(told)
    return tuple(cells), records


def _change_text(change: Cell, name: str) -> str:
    if name == BASE or math.isnan(change.mean):
        return number(None)
    text = f"{100 * change.mean:+.1f} %"
    return text if change.seeds < 2 else f"{text} ±{100 * change.half:.1f}"


def _words(gap: str) -> str:
    return f"of {GAPS[gap]}" if gap == "exposure_gap" else GAPS[gap]
