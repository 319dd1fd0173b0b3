"""Which method gives most: areas under trade-offs, and the smallest gap for 1 % of NDCG.

The latter for the point of each method that is chosen on validation, at every K and by both
protocols. Changes are from K-SONG of the same seed.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from fairtopk.metrics.names import MSE, TERMS
from fairtopk.metrics.names import PROTOCOLS as LABELS
from fairtopk.reporting.curves import Point, seed_mean
from fairtopk.reporting.figures import slug
from fairtopk.reproduce import views as paper
from fairtopk.reproduce.tables import PaperTable, Row, measured, percent, shown
from fairtopk.reproduce.views import LOSS, PaperView
from fairtopk.statistics import hypervolume
from fairtopk.terminal import number

GAPS = {gap: TERMS[gap].short for gap in ("exposure_gap", "rank_exposure_gap")}
PROTOCOLS = {name: LABELS[name] for name in ("sampled", "full")}
PUBLISHED = {f"exposure_gap{MSE}": "Eq. 9, squared", "exposure_gap_released": "as released"}
REACH = 0.1  # of K-SONG's NDCG, below which a point adds nothing to an area
OURS = paper.NAMES["kso-red"]
AREA = (
    f"The area of all pairs of NDCG and gap that some point of the method is at least as good "
    f"as, between K-SONG's gap and no gap, and between {100 * (1 - REACH):g} % and all of its "
    f"NDCG: 100 % is no gap at no loss, 0 % a method with no point in there; above 100 % more "
    f"NDCG than K-SONG's. Points without a penalty do not count. Found for each seed, beside "
    f"K-SONG of that seed; ± is a 95 % interval of the mean over seeds, by Student's t. In "
    f"brackets: how many points that is above {OURS}'s of the same seeds, with an interval of "
    f"its own."
)


Area = tuple[PaperView, str, int, str]  # a column: view, gap, K and what it is called


def hypervolume_table(views: Sequence[PaperView], k: int) -> PaperTable:
    """Return the area that each method dominates at a K, of one data set by every protocol."""
    columns = [
        (view, gap, k, f"{PROTOCOLS[view.protocol]}, {words}")
        for view in views
        for gap, words in GAPS.items()
    ]
    title = views[0].title
    name, of = f"hypervolume-{slug(title)}-{k}", f"hypervolume of each method, K = {k}"
    return _area_table(name, f"{title}: {of}", columns)


def published_area_table(view: PaperView) -> PaperTable:
    """Return the areas by the other two gaps of the paper and its code, at every K."""
    columns = [
        (view, gap, k, f"{words}, K = {k}") for gap, words in PUBLISHED.items() for k in view.ks
    ]
    of = f"hypervolume of each method by other gaps, {PROTOCOLS[view.protocol]}"
    return _area_table(
        f"hypervolume-published-{slug(view.title)}", f"{view.title}: {of}", columns
    )


def _area_table(name: str, title: str, columns: Sequence[Area]) -> PaperTable:
    rows: list[Row] = []
    records: list[Mapping[str, Any]] = []
    for method in dict.fromkeys(method for view, *_ in columns for method in _penalised(view)):
        cells: list[str] = []
        runs: list[str] = []
        for view, gap, k, _ in columns:
            points = _penalised(view).get(method, [])
            areas = _areas(view, points, gap, k)
            ours = _areas(view, _penalised(view).get(OURS, []), gap, k)
            area = seed_mean([*areas.values()])
            ahead = seed_mean([areas[seed] - ours[seed] for seed in areas if seed in ours])
            text, figures = "not measured", dict[str, Any]()
            if area.seeds:
                figures = {"share": area.mean, "low": area.low, "high": area.high}
                figures |= {"seeds": area.seeds, "ahead": ahead.mean}
                figures |= {"ahead_low": ahead.low, "ahead_high": ahead.high}
                several = area.seeds > 1
                interval = f"±{100 * area.half:.1f}" if several else "(one seed)"
                text = f"{100 * area.mean:.1f} % {interval}"
                if several and ahead.seeds > 1 and method != OURS:
                    text += f" ({100 * ahead.mean:+.1f} ±{100 * ahead.half:.1f})"
            cells.append(text)
            own = [run for point in points for run in paper.folders(point)]
            runs += own
            about = {"method": method, "protocol": view.protocol, "gap": gap, "k": k}
            records.append(about | figures | {"runs": " ".join(own)})
        rows.append(Row((method, *cells), tuple(dict.fromkeys(runs))))
    header = ("Method", *(words for *_, words in columns))
    return PaperTable(name, title, header, rows, records, [AREA], ruled=False)


def _penalised(view: PaperView) -> dict[str, list[Point]]:
    """Return the penalised points of each trained method and re-ranker that has any."""
    series = view.curves | view.reranked
    found = {name: [point for point in series[name] if point.penalised] for name in series}
    return {name: points for name, points in found.items() if points}


def _areas(view: PaperView, points: list[Point], gap: str, k: int) -> dict[int, float]:
    """Return the area of a curve as a share of the whole, for each seed that is complete."""
    if view.base is None or not points:
        return {}
    names = (f"ndcg@{k}", f"{gap}@{k}")
    ndcgs, gaps = ([paper.by_seed(point, name) for point in points] for name in names)
    blind = [paper.by_seed(view.base, name) for name in names]
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


def choice_table(view: PaperView, facts: paper.Facts) -> PaperTable:
    """Return the smallest gap of each method for 1 % of NDCG, in- against post-processing."""
    base, ndcg = view.base, f"ndcg@{view.k}"
    rows, records = [], []
    for gap, (name, points) in product(GAPS, _penalised(view).items()):
        if base is None:
            break
        found = paper.choose(points, base, gap, view.k, facts)
        point, runs, metric = found.point, paper.folders(found.point), f"{gap}@{view.k}"
        loss, cut = (
            paper.change_of(paper.by_seed(point, of), paper.by_seed(base, of)).mean
            for of in (ndcg, metric)
        )
        needs = "yes" if name in view.reranked or "labels" in name else "no"
        cells = (GAPS[gap], name, needs, found.label, found.how)
        numbers = (measured(point, ndcg), percent(loss), measured(point, metric), percent(cut))
        rows.append(Row((*cells, *numbers), runs))
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
                "runs": " ".join(runs),
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
BLIND = (paper.NAMES["song"], paper.NAMES["listnet"])
CHANCE = f"{paper.BASE}, labels shuffled"
NOTES = [
    "± is a 95 % interval over seeds, by Student's t; with one seed there is none. Changes are "
    "from K-SONG of the same seeds, averaged over these. Signed: below 0, the named group gets "
    "less than the rest.",
    f"{CHANCE}: what gaps are left to K-SONG's order by chance.",
]


def chosen_tables(
    view: PaperView, full: PaperView | None, facts: paper.Facts
) -> list[PaperTable]:
    """Return what is chosen for each gap on sampled lists, and what it gives by protocol."""
    tables: list[PaperTable] = []
    if view.base is None:
        return tables
    for gap in GAPS:
        choices = {
            name: paper.choose(points, view.base, gap, view.k, facts)
            for name, points in _penalised(view).items()
        }
        tables += [_chosen_table(gap, choices, of) for of in (view, full) if of is not None]
    return tables


def _chosen_table(gap: str, choices: Mapping[str, paper.Choice], view: PaperView) -> PaperTable:
    """Return what chosen weights give by a view's protocol, at every K."""
    # Name, point, weight in words and how it was chosen, of each method of the view.
    lines: list[tuple[str, Point, str, str]] = []
    of_base: dict[str, dict[int, float]] = {}
    if view.base is not None:
        lines += [(name, view.base, "none", "") for name in (paper.BASE, CHANCE)]
        others = [name for name in BLIND if name in view.curves]
        lines += [(name, view.curves[name][0], "none", "") for name in others]
        series = _penalised(view)
        for name, choice in choices.items():
            for point in series.get(name, []):
                if paper.weight_of(point) == paper.weight_of(choice.point):
                    lines.append((name, point, choice.label, choice.how))
        names = [f"{metric}@{k}" for metric in MEASURES for k in view.ks]
        of_base = {name: paper.by_seed(view.base, name) for name in names}
    rows: list[Row] = []
    records: list[dict[str, Any]] = []
    for name, point, label, how in lines:
        runs, first = paper.folders(point), (name, label, str(len(point.results)))
        for k in view.ks:
            about: dict[str, Any] = {"chosen_for": gap, "protocol": view.protocol}
            about |= {"method": name, "weight": label, "chosen": how, "k": k}
            cells: list[str] = []
            for metric in (*MEASURES, SIGNED):
                values = paper.by_seed(
                    point, f"{metric}{'_floor' if name == CHANCE else ''}@{k}"
                )
                mean = sum(values.values()) / len(values) if values else math.nan
                figures: dict[str, Any] = {"metric": metric, "mean": mean, "seeds": len(values)}
                if metric == SIGNED:
                    cells.append(f"{mean:+.2g}" if not math.isnan(mean) else number(None))
                else:
                    change = paper.change_of(values, of_base[f"{metric}@{k}"])
                    figures |= {"change": change.mean, "low": change.low, "high": change.high}
                    text = f"{100 * change.mean:+.1f} %"
                    if change.seeds > 1:
                        text += f" ±{100 * change.half:.1f}"
                    known = name != paper.BASE and not math.isnan(change.mean)
                    cells.append(shown(mean) if values else number(None))
                    cells.append(text if known else number(None))
                records.append(about | figures | {"runs": " ".join(runs)})
            rows.append(Row((*first, str(k), *cells), runs))
            first = ("", "", "")  # said once
    columns = [text for words in MEASURES.values() for text in (words, "change")]
    of_gap = f"of {GAPS[gap]}" if gap == "exposure_gap" else GAPS[gap]
    return PaperTable(
        f"chosen-{gap}-{slug(view.title)}-{view.protocol}",
        f"{view.title}, {PROTOCOLS[view.protocol]}: chosen for the gap {of_gap} at "
        f"{100 * LOSS:g} % of NDCG",
        ("Method", "Weight", "Seeds", "K", *columns, "By rank, signed"),
        rows,
        records,
        [
            f"Of each trained method the weight with the smallest gap {of_gap} among "
            f"those that lose at most {100 * LOSS:g} % of NDCG, at K = {view.k} on sampled "
            f"validation lists; re-rankers in hindsight, on test lists. Where all lose more, "
            f"it is the one that loses least.",
            *NOTES,
        ],
        texts=2,
    )
