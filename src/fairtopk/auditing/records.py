"""The record of an audit, as ``audit.json`` holds it, and the notes that readers must know.

A note that starts in capitals is a warning.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from fairtopk.auditing.measures import BY_PLACE, AttributeMeasures, Compact, Findings, Ties
from fairtopk.auditing.rankings import UNKNOWN, Attribute, Rankings
from fairtopk.metrics.gaps import NOTIONS
from fairtopk.metrics.intervals import Key, Mean, Ratio, Resampled
from fairtopk.terminal import count

FLAGGED = 10  # lists with the largest gaps that are named
BASIS = "rank_exposure_gap"
JSON_TYPES = str | int | float | bool

Record = Mapping[str, Any]


def resampled_findings(found: Findings, *, seed: int) -> Resampled:
    """Return all values that are averaged over lists; a metric of lists has the key (name,)."""
    columns: dict[Key, Compact] = {(name,): values for name, values in found.lists.items()}
    for one in found.by_attribute:
        columns |= columns_of(one)
    return Resampled(columns, seed=seed)


def columns_of(one: AttributeMeasures) -> dict[Key, Compact]:
    """Return the values of an attribute, by (column, metric) and (column, metric, group)."""
    name = one.attribute.name
    columns: dict[Key, Compact] = {(name, gap): gaps for gap, gaps in one.gaps.items()}
    for share, values in one.shares.items():
        for number, group in enumerate(one.attribute.names):
            columns[name, share, group] = values[:, number]
    return columns


def lists_record(found: Findings, means: Resampled, ks: Sequence[int]) -> dict[str, Any]:
    """Return the metrics of lists that do not depend on groups."""
    metrics = {name: cell(means.mean((name,))) for name in found.lists}
    if found.relevance_ties is not None:
        _add_ties(metrics, found.relevance_ties, ks)
    return metrics


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
        "items": rankings.n_items,
        "list_length": {
            "least": int(length.min()),
            "median": float(np.median(length)),
            "most": int(length.max()),
        },
        "ranked_by": rankings.ordered_by,
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
    counts = _counts(rankings, attribute)
    ratios = {k: means.ratio(_keys(one, k)) for k in ks}
    at_rank, to_rank = one.at_rank / one.reach, one.exposure_to_rank()
    groups = []
    for number, group in enumerate(attribute.names):
        items, rows = counts[number]
        shares = {name: cell(means.mean((attribute.name, name, group))) for name in one.shares}
        groups.append(
            {
                "name": group,
                "items": items,
                "rows": rows,
                "share_of_rows": rows / len(rankings.item),
                "small": items < min_group,
                **shares,
                **{
                    f"ratio_to_most@{k}": _ratio_to_most(one, number, k, ratios[k].most, means)
                    for k in ks
                },
                "share_at_rank": at_rank[number].tolist(),
                "exposure_to_rank": to_rank[number].tolist(),
            }
        )
    items, rows = counts[-1]
    return {
        "name": attribute.name,
        "named_group": attribute.names[0],
        "groups": groups,
        "unknown": {"items": items, "rows": rows},
        "metrics": _metrics(one, means, groups, ratios),
        "ties": ties_record(one.ties, ks, len(rankings.query_ids)),
        "flagged": {str(k): _flagged(found, one, k) for k in ks},
    }


def cell(found: Mean) -> dict[str, Any]:
    """Return a mean for a JSON file."""
    return {**found._asdict(), "ci95": list(found.ci95)}


def _keys(one: AttributeMeasures, k: int) -> list[Key]:
    """Return the keys of the groups' exposures, by number."""
    name = one.attribute.name
    return [(name, f"rank_exposure@{k}", group) for group in one.attribute.names]


def _ratio_to_most(
    one: AttributeMeasures, number: int, k: int, most: int | None, means: Resampled
) -> dict[str, Any]:
    """Return a group's exposure relative to the highest, whose group is fixed in resamples."""
    keys = _keys(one, k)
    if most is None or not means.has(keys[number]):
        return {"value": math.nan, "ci95": [math.nan, math.nan], "most": None}
    value, bounds = means.ratio_to(keys[number], keys[most])
    return {"value": value, "ci95": list(bounds), "most": one.attribute.names[most]}


def _impact_ratio(ratio: Ratio, groups: Sequence[Mapping[str, Any]], k: int) -> dict[str, Any]:
    """Return the impact ratio, and the groups with the lowest and the highest exposure.

    The interval belongs to these two groups. If they were chosen anew in each resample it would
    lie below the ratio where groups are close.
    """
    ends = [groups[end] for end in (ratio.least, ratio.most) if end is not None]
    names = [end["name"] for end in ends] or [None, None]
    interval = ends[0][f"ratio_to_most@{k}"]["ci95"] if ends else ratio.ci95
    return {
        "value": ratio.value,
        "ci95": list(interval),
        "least": names[0],
        "most": names[1],
        "small": any(end["small"] for end in ends),
    }


def _metrics(
    one: AttributeMeasures,
    means: Resampled,
    groups: Sequence[Mapping[str, Any]],
    ratios: Mapping[int, Ratio],
) -> dict[str, Any]:
    name = one.attribute.name
    found: dict[str, Any] = {
        f"impact_ratio@{k}": _impact_ratio(ratio, groups, k) for k, ratio in ratios.items()
    }
    found |= {gap: cell(means.mean((name, gap))) for gap in one.gaps}
    found |= {floor: value._asdict() for floor, value in one.chance.floors.items()}
    for metric, value in one.chance.p_values.items():
        found[metric] = {"value": value.p} | {
            key: part for key, part in value._asdict().items() if key != "p"
        }
    _add_ties(found, one.ties, list(ratios))
    return found


def _add_ties(metrics: dict[str, Any], ties: Ties, ks: Sequence[int]) -> None:
    """Add to each metric in how many lists row order decides it."""
    for place, k in enumerate(ks):
        for name, found in metrics.items():
            if name.endswith(f"@{k}"):
                found["tied"] = ties.touching(name, place)
                found["tied_at_cut"] = ties.across[place]


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


def _counts(rankings: Rankings, attribute: Attribute) -> list[tuple[int, int]]:
    """Return different items and rows of each group, those of unknown group last."""
    table = pl.DataFrame({"group": attribute.group, "item": rankings.item}).group_by("group")
    items = pl.len() if rankings.local else pl.col("item").n_unique()
    counted = table.agg(items.alias("items"), rows=pl.len())
    found = {number: (items, rows) for number, items, rows in counted.iter_rows()}
    return [found.get(number, (0, 0)) for number in (*range(len(attribute.names)), UNKNOWN)]


def general_notes(record: Record, *, short: int) -> list[str]:
    """Return the notes about all lists, `short` of which are no longer than the top."""
    notes, scores, k = [], _ordering(record), record["ks"][-1]
    if scores == "ranks":
        notes.append(
            "exposure_gap, exposure_gap_released and score_spread are left out: they need "
            "scores, and the data has ranks only"
        )
    by_relevance = {k: record["metrics"].get(f"ndcg@{k}", {}).get("tied") for k in record["ks"]}
    if any(by_relevance.values()):
        notes.append(
            f"{_row_order(record)} who comes first among items of different relevance: "
            f"{_by_k(by_relevance, record)}; this affects ndcg"
        )
    tied = record["ties"][str(k)]["within"]
    if tied:
        notes.append(
            f"{_have(tied)} equal {scores} in the first {k} positions; ties keep row order"
        )
    if short:
        notes.append(
            f"{_have(short)} at most {k} items, so that all of them are in the top {k}; give "
            f"all candidates of a list, not only its top"
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
            f"{_row_order(record)} who is in the top where items of different {name} tie "
            f"across the cut: {_by_k(across, record)}; this affects {', '.join(metrics)}"
        )
    if within != across:
        by_place = (metric for metric in metrics if metric.startswith(BY_PLACE))
        notes.append(
            f"{_row_order(record)} who comes first where items of different {name} tie in the "
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
            f"EQUAL {_ordering(record).upper()}: the baseline has ties too, in the first {k} "
            f"positions of {tied:,} of {changes['data']['queries']:,} lists"
        )
    return notes


def check_note(check: Record, record: Record) -> str | None:
    """Return in how many lists row order decides the metric of a rule; None if in none."""
    if not check["tied"]:
        return None
    at_cut = check["tied_at_cut"]
    who = f", and in {at_cut:,} of them who is in the top" if at_cut else ""
    return f"{_row_order(record)} {check['metric']} in {_of_lists(check['tied'], record)}{who}"


def _row_order(record: Record) -> str:
    return f"EQUAL {_ordering(record).upper()}: row order decides"


def _ordering(record: Record) -> str:
    return f"{record['data']['ranked_by']}s"


def _by_k(counts: Mapping[int, int], record: Record) -> str:
    return ", ".join(f"at K = {k} in {_of_lists(n, record)}" for k, n in counts.items() if n)


def _of_lists(n: int, record: Record) -> str:
    lists = record["data"]["queries"]
    return f"{n:,} of {lists:,} lists ({100 * n / lists:.3g} %)"


def _have(n: int) -> str:
    return f"{count(n, 'list')} {'has' if n == 1 else 'have'}"
