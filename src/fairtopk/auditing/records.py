"""The record of an audit, as ``audit.json`` holds it, its notes, and its terminal tables.

A note that starts in capitals is a warning.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fairtopk.auditing.measures import AttributeMeasures, Findings, Ties
from fairtopk.auditing.rankings import UNKNOWN
from fairtopk.kernels.sums import discounts
from fairtopk.metrics.gaps import NOTIONS
from fairtopk.metrics.intervals import Resampled
from fairtopk.metrics.names import GAPS, TERMS, label
from fairtopk.terminal import UNDEFINED, add_row, count, literal, mean_cell, number, table

BY_PLACE = ("ndcg", "impact_ratio", "rank_exposure")  # metrics that weigh positions
FLAGGED = 10  # lists with the largest gaps that are named
BASIS = "rank_exposure_gap"
JSON_TYPES = str | int | float | bool
ABREAST = 3  # lengths of the top in one table: more do not fit a terminal
NAMED = 3  # flagged lists that are shown
SMALL = "*"
LOUD = "bold yellow"
LEFT_OUT = ("exposure_gap_released", "score_spread")  # of the table of changes
_number = partial(number, digits=3, undefined=UNDEFINED)

Record = Mapping[str, Any]


def ties_record(ties: Ties, ks: Sequence[int], lists: int) -> dict[str, Any]:
    """Return in how many lists row order decides, by K."""
    counts = zip(ks, ties.across, ties.within, strict=True)
    return {
        str(k): {
            "across": across,
            "across_share": across / lists,
            "within": within,
            "within_share": within / lists,
        }
        for k, across, within in counts
    }


def data_record(found: Findings) -> dict[str, Any]:
    """Return what was audited, by name and checksum, never by path."""
    rankings = found.rankings
    length = rankings.length
    return {
        "name": rankings.table.origin.name,
        "sha256": rankings.table.sha256(),
        "rows": len(rankings.item),
        "queries": len(rankings.query_ids),
        "items": len(rankings.item) if rankings.local else len(rankings.item_ids),
        "list_length": {
            "least": int(length.min()),
            "median": float(np.median(length)),
            "most": int(length.max()),
        },
        "ranked_by": "score" if rankings.scored else "rank",
    }


def column_record(
    found: Findings,
    one: AttributeMeasures,
    means: Resampled,
    *,
    ks: Sequence[int],
    min_group: int,
) -> dict[str, Any]:
    """Return the record of one attribute."""
    rankings, attribute = found.rankings, one.attribute
    name, names = attribute.name, attribute.names
    # Different items and rows of each group; local items are all different.
    n_different = pl.len() if rankings.local else pl.col("item").n_unique()
    rows_of = pl.DataFrame({"group": attribute.group, "item": rankings.item}).group_by("group")
    counted = rows_of.agg(n_different.alias("items"), rows=pl.len()).iter_rows()
    counts = {group: (items, rows) for group, items, rows in counted}
    keys = {k: [(name, f"rank_exposure@{k}", group) for group in names] for k in ks}
    ratios = {k: means.ratio(keys[k]) for k in ks}
    worth = discounts(len(one.reach))
    at_rank = one.at_rank / one.reach
    to_rank = (one.at_rank * worth).cumsum(-1) / (one.reach * worth).cumsum(-1)
    groups: list[dict[str, Any]] = []
    for place, group in enumerate(names):
        items, rows = counts.get(place, (0, 0))
        record = {
            "name": group,
            "items": items,
            "rows": rows,
            "share_of_rows": rows / len(rankings.item),
            "small": items < min_group,
        }
        record |= {share: means.mean((name, share, group))._asdict() for share in one.shares}
        for k in ks:
            # The group with the highest exposure is the same in all resamples.
            most = ratios[k].most
            to_most = {"value": math.nan, "ci95": [math.nan, math.nan], "most": None}
            if most is not None and means.has(keys[k][place]):
                value, bounds = means.ratio_to(keys[k][place], keys[k][most])
                to_most = {"value": value, "ci95": list(bounds), "most": names[most]}
            record[f"ratio_to_most@{k}"] = to_most
        record["share_at_rank"] = at_rank[place].tolist()
        record["exposure_to_rank"] = to_rank[place].tolist()
        groups.append(record)
    metrics: dict[str, Any] = {}
    for k, ratio in ratios.items():
        ends = [groups[end] for end in (ratio.least, ratio.most) if end is not None]
        least, most_of = [end["name"] for end in ends] or [None, None]
        metrics[f"impact_ratio@{k}"] = {
            "value": ratio.value,
            # The interval belongs to these two groups. If they were chosen anew in each
            # resample it would lie below the ratio where groups are close.
            "ci95": list(ends[0][f"ratio_to_most@{k}"]["ci95"] if ends else ratio.ci95),
            "least": least,
            "most": most_of,
            "small": any(end["small"] for end in ends),
        }
    metrics |= {gap: means.mean((name, gap))._asdict() for gap in one.gaps}
    metrics |= {floor: value._asdict() for floor, value in one.floors.items()}
    for metric, likelihood in one.p_values.items():
        parts = likelihood._asdict()
        metrics[metric] = {"value": parts.pop("p"), **parts}
    add_ties(metrics, one.ties, ks)
    items, rows = counts.get(UNKNOWN, (0, 0))
    return {
        "name": name,
        "named_group": names[0],
        "groups": groups,
        "unknown": {"items": items, "rows": rows},
        "metrics": metrics,
        "ties": ties_record(one.ties, ks, len(rankings.query_ids)),
        "flagged": {str(k): _flagged(found, one, k) for k in ks},
    }


def add_ties(metrics: dict[str, Any], ties: Ties, ks: Sequence[int]) -> None:
    """Add to each metric in how many lists row order decides it."""
    for k, across, within in zip(ks, ties.across, ties.within, strict=True):
        for name, found in metrics.items():
            if name.endswith(f"@{k}"):
                found["tied"] = within if name.startswith(BY_PLACE) else across
                found["tied_at_cut"] = across


def _flagged(found: Findings, one: AttributeMeasures, k: int) -> list[dict[str, Any]]:
    """Return the lists with the largest gaps by rank, the largest first."""
    gaps = one.gaps[f"{BASIS}@{k}"]
    order = np.argsort(-gaps, kind="stable")[:FLAGGED]  # NaN comes last
    records = []
    for query in order[~np.isnan(gaps[order])].tolist():
        shares = one.shares[f"rank_exposure@{k}"][query]
        identifier = found.rankings.query_ids[query]
        records.append(
            {
                "query": identifier if isinstance(identifier, JSON_TYPES) else str(identifier),
                "gap": float(gaps[query]),
                "most": one.attribute.names[int(np.nanargmax(shares))],
                "least": one.attribute.names[int(np.nanargmin(shares))],
                "items": int(found.rankings.length[query]),
            }
        )
    return records


def general_notes(record: Record, *, short: int) -> list[str]:
    """Return the notes about all lists, `short` of which are no longer than the top."""
    notes, scores, k = [], f"{record['data']['ranked_by']}s", record["ks"][-1]
    if scores == "ranks":
        notes.append(
            "exposure_gap, exposure_gap_released and score_spread are left out: they need "
            "scores, and the data has ranks only"
        )
    by_relevance = {k: record["metrics"].get(f"ndcg@{k}", {}).get("tied") for k in record["ks"]}
    if any(by_relevance.values()):
        notes.append(
            f"{row_order(record)} who comes first among items of different relevance: "
            f"{_by_k(by_relevance, record)}; this affects ndcg"
        )
    tied = record["ties"][str(k)]["within"]
    if tied:
        notes.append(
            f"{count(tied, 'list')} {'has' if tied == 1 else 'have'} equal {scores} in the "
            f"first {k} positions; ties keep row order"
        )
    if short:
        notes.append(
            f"{count(short, 'list')} {'has' if short == 1 else 'have'} at most {k} items, so "
            f"that all of them are in the top {k}; give all candidates of a list, not only its "
            f"top"
        )
    return notes


def column_notes(column: Record, record: Record) -> list[str]:
    """Return the notes about one column: above all, where row order decides."""
    notes, name, ks = [], column["name"], record["ks"]
    gaps = [gap for gap in NOTIONS if f"{gap}@{ks[0]}" in column["metrics"]]
    metrics = ["impact_ratio", *gaps]
    across, within = (
        {k: column["ties"][str(k)][where] for k in ks} for where in ("across", "within")
    )
    if any(across.values()):
        notes.append(
            f"{row_order(record)} who is in the top where items of different {name} tie "
            f"across the cut: {_by_k(across, record)}; this affects {', '.join(metrics)}"
        )
    if within != across:
        by_place = (metric for metric in metrics if metric.startswith(BY_PLACE))
        notes.append(
            f"{row_order(record)} who comes first where items of different {name} tie in the "
            f"top: {_by_k(within, record)}; this affects {', '.join(by_place)}"
        )
    gap = column["metrics"][f"rank_exposure_gap@{ks[0]}"]
    if gap["n"] == 0:
        notes.append(f"no list contains two groups of {name!r}: every gap is undefined")
    elif n := gap["undefined"]:
        contain, are = ("contains", "is") if n == 1 else ("contain", "are")
        notes.append(
            f"{count(n, 'list')} {contain} only one group of {name!r} and {are} not counted in "
            f"its gaps"
        )
    signed = column["metrics"][f"rank_exposure_gap_signed@{ks[0]}"]["undefined"]
    if gap["n"] and signed > gap["undefined"]:
        first = column["groups"][0]["name"]
        lack, are = ("lacks", "is") if signed == 1 else ("lack", "are")
        notes.append(
            f"{count(signed, 'list')} {lack} {first!r} or all other groups and {are} not "
            f"counted in signed gaps"
        )
    return notes


def baseline_notes(record: Record) -> list[str]:
    """Return how the rankings and their baseline differ in more than the order."""
    notes, changes, name = [], record["baseline"], record["data"]["name"]
    left_out = [
        f"{n:,} only in {where}"
        for n, where in (
            (changes["only_in_audited"], name),
            (changes["only_in_baseline"], "the baseline"),
        )
        if n
    ]
    if left_out:
        notes.append(f"queries left out of the comparison: {', '.join(left_out)}")
    other = changes["other_candidates"]
    if other:
        notes.append(
            f"OTHER CANDIDATES: {other:,} of {changes['queries']:,} lists rank other items in "
            f"{name} than in the baseline, so differences are not due to the order alone"
        )
    k = record["ks"][-1]
    tied = changes["ties"][str(k)]["within"]
    if tied:
        notes.append(
            f"EQUAL {record['data']['ranked_by'].upper()}S: the baseline has ties too, in the "
            f"first {k} positions of {tied:,} of {changes['data']['queries']:,} lists"
        )
    return notes


def row_order(record: Record) -> str:
    """Return the beginning of a warning about ties."""
    return f"EQUAL {record['data']['ranked_by'].upper()}S: row order decides"


def _by_k(counts: Mapping[int, int], record: Record) -> str:
    return ", ".join(f"at K = {k} in {of_lists(n, record)}" for k, n in counts.items() if n)


def of_lists(n: int, record: Record) -> str:
    """Return a number of lists, and their share."""
    lists = record["data"]["queries"]
    return f"{n:,} of {lists:,} lists ({100 * n / lists:.3g} %)"


def terminal_tables(record: Record) -> Group:
    """Return the findings of an audit table by table, with notes and verdicts below them."""
    data, ks, changes = record["data"], record["ks"], record["baseline"]
    parts: list[RenderableType] = [
        literal(
            f"{data['name']}: {data['rows']:,} rows, {data['queries']:,} lists, "
            f"{data['items']:,} different items, ordered by {data['ranked_by']}"
        )
    ]
    parts += [literal(f"{name} {_mean(found)}") for name, found in record["metrics"].items()]
    for column in record["columns"]:
        parts.append(_group_table(column, record))
        for start in range(0, len(ks), ABREAST):
            parts.append(_gap_table(column, ks[start : start + ABREAST]))
        parts += map(_note, column["notes"])
        for k, lists in column["flagged"].items():
            named = (
                f"{one['query']} ({one['gap']:.3g}, {one['most']} over {one['least']})"
                for one in lists[:NAMED]
            )
            if lists:
                what = f"{column['name']}, largest {label(BASIS)} at K = {k}"
                parts.append(literal(f"{what}: {', '.join(named)}"))
    if changes is not None:
        shown = table(
            f"change from {changes['data']['name']} on the {changes['queries']:,} queries of "
            f"both",
            *("", "before", "now", "difference", "p (Holm)"),
        )
        rows = [("", changes["metrics"])]
        rows += [(f"{column['name']}: ", column["metrics"]) for column in changes["columns"]]
        for prefix, metrics in rows:
            for name, found in metrics.items():
                if not name.startswith(LEFT_OUT):
                    difference = mean_cell(found["difference"], found["ci95"])
                    p = _number(found["p_holm"]) if "p" in found else ""
                    sides = _number(found["before"]), _number(found["now"])
                    add_row(shown, prefix + name, *sides, difference, p)
        parts += [shown, *map(_note, changes["notes"])]
    parts += map(_note, record["notes"])
    for check in record["checks"]:
        where = f"{check['column']}: " if check["column"] is not None else ""
        metric, rule = f"{where}{check['metric']}", check["rule"]
        if check["fired"] is None:
            parts.append(literal(f"NOT CHECKED {metric} is undefined ({rule})"))
            continue
        verdict = "FAILED" if check["fired"] else "PASSED"
        line = literal(f"{verdict} {metric} = {check['value']:.4g} (fails if {rule})")
        if check["note"] is not None:
            line.append(literal(f"; {check['note']}", style=LOUD))
        parts.append(line)
    return Group(*parts)


def is_loud(note: str) -> bool:
    """Return whether a note is a warning, which starts in capitals."""
    return note.split(" ", 1)[0].isupper()


def _group_table(column: Record, record: Record) -> Table:
    shown = table(
        f"{column['name']}: exposure and selection of each group (95 % intervals over lists)",
        *("group", "items", "rows", "K", "exposure", "selected", "exposure ratio to highest"),
    )
    for group in column["groups"]:
        name = group["name"] + (SMALL if group["small"] else "")
        about = name, f"{group['items']:,}", f"{group['rows']:,}"
        for k in record["ks"]:
            rate, ratio = group[f"representation@{k}"], group[f"ratio_to_most@{k}"]
            selected = UNDEFINED
            if rate["mean"] is not None:
                low, high = (100 * end for end in rate["ci95"])
                selected = f"{100 * rate['mean']:.1f} % ({low:.1f}-{high:.1f} %)"
            highest = ratio["most"] == group["name"]
            exposure = _mean(group[f"rank_exposure@{k}"])
            cells = exposure, selected, "highest" if highest else _ratio(ratio)
            add_row(shown, *about, str(k), *cells)
            about = "", "", ""
    unknown = column["unknown"]
    if unknown["rows"]:
        add_row(shown, "(unknown)", f"{unknown['items']:,}", f"{unknown['rows']:,}")
    if any(group["small"] for group in column["groups"]):
        least = record["min_group"]
        shown.caption = f"{SMALL} fewer than {least} items: too few to draw conclusions from"
    return shown


def _gap_table(column: Record, ks: Sequence[int]) -> Table:
    metrics, groups = column["metrics"], [group["name"] for group in column["groups"]]
    signed = f"  {groups[0]} minus {groups[1] if len(groups) == 2 else 'the rest'}"
    shown = table(
        f"{column['name']}: differences between groups", "", *(f"K = {k}" for k in ks)
    )
    ratios, chances = (
        [metrics[f"{name}@{k}"] for k in ks] for name in ("impact_ratio", "impact_ratio_p")
    )
    ends = (
        f"{ratio['least']} / {ratio['most']}" + (SMALL if ratio["small"] else "")
        if ratio["least"] is not None
        else ""
        for ratio in ratios
    )
    add_row(shown, label("impact_ratio"), *map(_ratio, ratios))
    add_row(shown, "  lowest / highest", *ends)
    add_row(shown, f"  {label('floor')}", *(_number(found["expected"]) for found in chances))
    add_row(shown, "  p", *(_number(found["value"]) for found in chances))
    for gap in sorted(GAPS, key=lambda gap: "rank" not in gap and "representation" not in gap):
        if f"{gap}@{ks[0]}" not in metrics:
            continue
        add_row(shown, label(gap), *(_mean(metrics[f"{gap}@{k}"]) for k in ks))
        add_row(shown, signed, *(_mean(metrics[f"{gap}_signed@{k}"]) for k in ks))
        for form, name in (("_floor", TERMS["floor"].label), ("_p", "p")):
            values = (metrics[f"{gap}{form}@{k}"]["value"] for k in ks)
            add_row(shown, f"  {name}", *map(_number, values))
    return shown


def _note(note: str) -> Text:
    return literal(f"- {note}", style=LOUD if is_loud(note) else "")


def _mean(found: Record) -> str:
    return mean_cell(found["mean"], found["ci95"])


def _ratio(found: Record) -> str:
    if found["value"] is None:
        return UNDEFINED
    low, high = map(_number, found["ci95"])
    return f"{found['value']:.3f} ({low}-{high})"
