"""What an audit says of rankings, as records that JSON can hold."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from fairtopk.auditing.attributes import UNKNOWN, Attribute
from fairtopk.auditing.measures import Findings, Floats, Measured
from fairtopk.auditing.rankings import Rankings
from fairtopk.auditing.resampling import Key, Ratio, Resampled
from fairtopk.auditing.ties import Ties
from fairtopk.metrics.intervals import Mean

FLAGGED = 10  # lists with the largest gaps that are named
BASIS = "rank_exposure_gap"


def resampled_findings(found: Findings, *, seed: int) -> Resampled:
    """Return all that is averaged over lists; a metric of lists has the key (name,)."""
    columns: dict[Key, Floats] = {(name,): values for name, values in found.lists.items()}
    for one in found.by_attribute:
        columns |= columns_of(one)
    return Resampled(columns, seed=seed)


def columns_of(one: Measured) -> dict[Key, Floats]:
    """Return the values of an attribute, by (column, metric) and (column, metric, group)."""
    name = one.attribute.name
    columns: dict[Key, Floats] = {(name, gap): gaps for gap, gaps in one.gaps.items()}
    for share, values in one.shares.items():
        for number, group in enumerate(one.attribute.names):
            columns[name, share, group] = values[:, number]
    return columns


def lists_record(found: Findings, means: Resampled, ks: Sequence[int]) -> dict[str, Any]:
    """Return what is said of lists whatever their groups."""
    metrics = {name: cell(means.mean((name,))) for name in found.lists}
    if found.relevance_ties is not None:
        _tell_ties(metrics, found.relevance_ties, ks)
    return metrics


def ties_record(ties: Ties, ks: Sequence[int], lists: int) -> dict[str, Any]:
    """Return in how many lists the order of rows decides, by K."""
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
    """Return what was audited; data is named by name and checksum, never by path."""
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
    found: Findings, one: Measured, means: Resampled, *, ks: Sequence[int], min_group: int
) -> dict[str, Any]:
    """Return what is said of one attribute."""
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


def _keys(one: Measured, k: int) -> list[Key]:
    """Return the keys of what groups get, by number."""
    name = one.attribute.name
    return [(name, f"rank_exposure@{k}", group) for group in one.attribute.names]


def _ratio_to_most(
    one: Measured, number: int, k: int, most: int | None, means: Resampled
) -> dict[str, Any]:
    """Return what a group gets over what the one that gets most gets, the same in resamples."""
    keys = _keys(one, k)
    if most is None or not means.has(keys[number]):
        return {"value": math.nan, "ci95": [math.nan, math.nan], "most": None}
    value, bounds = means.ratio_to(keys[number], keys[most])
    return {"value": value, "ci95": list(bounds), "most": one.attribute.names[most]}


def _impact_ratio(ratio: Ratio, groups: Sequence[Mapping[str, Any]], k: int) -> dict[str, Any]:
    """Return the impact ratio, and who gets least and most.

    The interval is that of these two groups. Were least and most found anew in each resample,
    it would lie below the ratio where groups are close.
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
    one: Measured,
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
    _tell_ties(found, one.ties, list(ratios))
    return found


def _tell_ties(metrics: dict[str, Any], ties: Ties, ks: Sequence[int]) -> None:
    """Add to each metric in how many lists the order of rows decides it."""
    for place, k in enumerate(ks):
        for name, found in metrics.items():
            if name.endswith(f"@{k}"):
                found["tied"] = ties.touching(name, place)
                found["tied_at_cut"] = ties.across[place]


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


def _counts(rankings: Rankings, attribute: Attribute) -> list[tuple[int, int]]:
    """Return different items and rows of each group, those of unknown group last."""
    table = pl.DataFrame({"group": attribute.group, "item": rankings.item}).group_by("group")
    items = pl.len() if rankings.local else pl.col("item").n_unique()
    counted = table.agg(items.alias("items"), rows=pl.len())
    found = {number: (items, rows) for number, items, rows in counted.iter_rows()}
    return [found.get(number, (0, 0)) for number in (*range(len(attribute.names)), UNKNOWN)]


def _plain(value: Any) -> Any:
    """Return an id as JSON can hold it."""
    return value if isinstance(value, str | int | float | bool) else str(value)
