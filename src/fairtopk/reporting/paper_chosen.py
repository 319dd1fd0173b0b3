"""Of each method the point that is chosen on validation, at every K and by both protocols.

Changes are from K-SONG of the same seed.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from fairtopk.reporting.curves import Point
from fairtopk.reporting.figures import slug
from fairtopk.reporting.paper_choosing import LOSS, Choice, choose
from fairtopk.reporting.paper_fronts import GAPS, PROTOCOLS
from fairtopk.reporting.paper_seeds import SeedMean, by_seed, change_of
from fairtopk.reporting.paper_table import PaperTable, Row, joined, shown
from fairtopk.reporting.paper_tables import Facts
from fairtopk.reporting.paper_views import BASE, NAMES, PLUS, PaperView, folders, weight_of
from fairtopk.reporting.words import number

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


def _change_text(change: SeedMean, name: str) -> str:
    if name == BASE or math.isnan(change.mean):
        return number(None)
    text = f"{100 * change.mean:+.1f} %"
    return text if change.seeds < 2 else f"{text} ±{100 * change.reach:.1f}"


def _words(gap: str) -> str:
    return f"of {GAPS[gap]}" if gap == "exposure_gap" else GAPS[gap]
