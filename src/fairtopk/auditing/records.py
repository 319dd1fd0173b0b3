"""What an audit says of rankings, as records that JSON can hold."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from fairtopk.auditing.measures import Doubles, Findings, Measured
from fairtopk.auditing.resampling import Key, Resampled
from fairtopk.metrics.intervals import Mean

FLAGGED = 10  # lists with the largest gaps that are named
BASIS = "rank_exposure_gap"


def resampled_findings(found: Findings, *, seed: int) -> Resampled:
    """Return all that is averaged over lists; a metric of lists has the key (name,)."""
    columns: dict[Key, Doubles] = {(name,): values for name, values in found.lists.items()}
    for one in found.by_attribute:
        columns |= columns_of(one)
    return Resampled(columns, seed=seed)


def columns_of(one: Measured) -> dict[Key, Doubles]:
    """Return the values of an attribute, by (column, metric) and (column, metric, group)."""
    name = one.attribute.name
    columns: dict[Key, Doubles] = {(name, gap): gaps for gap, gaps in one.gaps.items()}
    for share, values in one.shares.items():
        for number, group in enumerate(one.attribute.names):
            columns[name, share, group] = values[:, number]
    return columns


def lists_record(found: Findings, means: Resampled) -> dict[str, Any]:
    """Return what is said of lists whatever their groups."""
    return {name: cell(means.mean((name,))) for name in found.lists}


def data_record(found: Findings) -> dict[str, Any]:
    """Return what was audited; data is named by name and checksum, never by path."""
    rankings = found.rankings
    length = rankings.length
    return {
        "name": rankings.table.origin.name,
        "sha256": rankings.table.sha256(),
        "rows": len(rankings.item),
        "queries": len(rankings.query_ids),
        "items": len(rankings.item_ids),
        "list_length": {
            "least": int(length.min()),
            "median": float(np.median(length)),
            "most": int(length.max()),
        },
        "ranked_by": "score" if rankings.scored else "rank",
        "tied_lists": found.tied,
    }


def column_record(
    found: Findings, one: Measured, means: Resampled, *, ks: Sequence[int], min_group: int
) -> dict[str, Any]:
    """Return what is said of one attribute."""
    rankings, attribute = found.rankings, one.attribute
    counts = _counts(rankings.item, attribute.group, len(attribute.names))
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
                "share_at_rank": (one.at_rank[number] / one.reach).tolist(),
                "exposure_to_rank": one.exposure_to_rank()[number].tolist(),
            }
        )
    items, rows = counts[-1]
    return {
        "name": attribute.name,
        "named_group": attribute.names[0],
        "groups": groups,
        "unknown": {"items": items, "rows": rows},
        "metrics": _metrics(one, means, groups, ks),
        "flagged": {str(k): _flagged(found, one, k) for k in ks},
    }


def cell(found: Mean) -> dict[str, Any]:
    """Return a mean as a file holds it."""
    return {**found._asdict(), "ci95": list(found.ci95)}


def jsonable(value: Any) -> Any:
    """Return a value that JSON can hold: NaN and infinity become null."""
    if isinstance(value, Mapping):
        return {key: jsonable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def impact_ratio_record(
    means: Resampled, keys: Sequence[Key], groups: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the impact ratio of what groups get, and who gets least and most."""
    ratio = means.ratio(keys)
    ends = [groups[end] for end in (ratio.least, ratio.most) if end is not None]
    names = [end["name"] for end in ends] or [None, None]
    return {
        "value": ratio.value,
        "ci95": list(ratio.ci95),
        "least": names[0],
        "most": names[1],
        "small": any(end["small"] for end in ends),
    }


def _metrics(
    one: Measured, means: Resampled, groups: Sequence[Mapping[str, Any]], ks: Sequence[int]
) -> dict[str, Any]:
    name = one.attribute.name
    found: dict[str, Any] = {}
    for k in ks:
        keys = [(name, f"rank_exposure@{k}", group["name"]) for group in groups]
        found[f"impact_ratio@{k}"] = impact_ratio_record(means, keys, groups)
    found |= {gap: cell(means.mean((name, gap))) for gap in one.gaps}
    found |= {floor: value._asdict() for floor, value in one.chance.floors.items()}
    for metric, value in one.chance.p_values.items():
        found[metric] = {"value": value.p} | {
            key: part for key, part in value._asdict().items() if key != "p"
        }
    return found


def _flagged(found: Findings, one: Measured, k: int) -> list[dict[str, Any]]:
    """Return the lists with the largest gaps by rank, the largest first."""
    gaps = one.gaps[f"{BASIS}@{k}"]
    order = np.argsort(-gaps, kind="stable")[:FLAGGED]  # NaN comes last
    records = []
    for query in order[~np.isnan(gaps[order])].tolist():
        shares = one.shares[f"rank_exposure@{k}"][query]
        records.append(
            {
                "query": _plain(found.rankings.query_ids[query]),
                "gap": float(gaps[query]),
                "most": one.attribute.names[int(np.nanargmax(shares))],
                "least": one.attribute.names[int(np.nanargmin(shares))],
                "items": int(found.rankings.length[query]),
            }
        )
    return records


def _counts(item: Any, group: Any, n_groups: int) -> list[tuple[int, int]]:
    """Return different items and rows of each group, those of unknown group last."""
    table = pl.DataFrame({"group": group, "item": item}).group_by("group")
    counted = table.agg(pl.col("item").n_unique(), rows=pl.len())
    found = {number: (items, rows) for number, items, rows in counted.iter_rows()}
    return [found.get(number, (0, 0)) for number in (*range(n_groups), -1)]


def _plain(value: Any) -> Any:
    """Return an id as JSON can hold it."""
    return value if isinstance(value, str | int | float | bool) else str(value)
