"""What an audit says of rankings, as records that JSON can hold.

What a reader of an audit must know before believing it, as sentences.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from fairtopk.auditing.measures import BY_PLACE, Compact, Findings, Measured, Ties
from fairtopk.auditing.rankings import UNKNOWN, Attribute, Rankings
from fairtopk.metrics.gaps import NOTIONS
from fairtopk.metrics.intervals import Key, Mean, Ratio, Resampled

FLAGGED = 10  # lists with the largest gaps that are named
BASIS = "rank_exposure_gap"


def resampled_findings(found: Findings, *, seed: int) -> Resampled:
    """Return all that is averaged over lists; a metric of lists has the key (name,)."""
    columns: dict[Key, Compact] = {(name,): values for name, values in found.lists.items()}
    for one in found.by_attribute:
        columns |= columns_of(one)
    return Resampled(columns, seed=seed)


def columns_of(one: Measured) -> dict[Key, Compact]:
    """Return the values of an attribute, by (column, metric) and (column, metric, group)."""
    name = one.attribute.name
    columns: dict[Key, Compact] = {(name, gap): gaps for gap, gaps in one.gaps.items()}
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


Record = Mapping[str, Any]


def general_notes(record: Record, *, short: int) -> list[str]:
    """Return what is to be said of all lists, `short` of which are no longer than a top."""
    notes, what, k = [], _ordering(record), record["ks"][-1]
    if what == "ranks":
        notes.append(
            "exposure_gap, exposure_gap_released and score_spread are left out: they are made "
            "of scores, and there are only ranks"
        )
    by_relevance = {k: record["metrics"].get(f"ndcg@{k}", {}).get("tied") for k in record["ks"]}
    if any(by_relevance.values()):
        notes.append(
            f"{_decides(record)} who comes first where items of different relevance have equal "
            f"{what}: {_by_k(by_relevance, record)}; this touches ndcg"
        )
    tied = record["ties"][str(k)]["within"]
    if tied:
        notes.append(
            f"lists with equal {what} in their first {k} places: {tied:,}; of equals the "
            f"earlier row is first"
        )
    if short:
        notes.append(
            f"lists with at most {k} items, all of which are in the top {k}: {short:,}; give "
            f"all candidates of a list, not only its top"
        )
    return notes


def column_notes(column: Record, record: Record) -> list[str]:
    """Return what is to be said of one column: above all, where the order of rows decides."""
    notes, what, name, ks = [], _ordering(record), column["name"], record["ks"]
    gaps = [gap for gap in NOTIONS if f"{gap}@{ks[0]}" in column["metrics"]]
    metrics = ["impact_ratio", *gaps]
    ties = {k: column["ties"][str(k)] for k in ks}
    across = {k: counts["across"] for k, counts in ties.items()}
    within = {k: counts["within"] for k, counts in ties.items()}
    if any(across.values()):
        notes.append(
            f"{_decides(record)} who is in the top where items of different {name} have equal "
            f"{what} on both sides of the cut: {_by_k(across, record)}; this touches "
            f"{', '.join(metrics)}"
        )
    if within != across:
        by_place = (metric for metric in metrics if metric.startswith(BY_PLACE))
        notes.append(
            f"{_decides(record)} who comes first where items of different {name} have equal "
            f"{what} in the top: {_by_k(within, record)}; this touches {', '.join(by_place)}"
        )
    gap = column["metrics"][f"rank_exposure_gap@{ks[0]}"]
    if gap["n"] == 0:
        notes.append(f"no list has items of two {name}: every gap is undefined")
    elif gap["undefined"]:
        notes.append(
            f"lists without items of two {name}, left out of its gaps: {gap['undefined']:,}"
        )
    signed = column["metrics"][f"rank_exposure_gap_signed@{ks[0]}"]["undefined"]
    if gap["n"] and signed > gap["undefined"]:
        first = column["groups"][0]["name"]
        notes.append(
            f"lists that lack {first} or all others, left out of signed gaps: {signed:,}"
        )
    return notes


def baseline_notes(record: Record) -> list[str]:
    """Return what the rankings audited and their baseline do not have in common."""
    notes, changes, name = [], record["baseline"], record["data"]["name"]
    left_out = [
        f"{count:,} only in {where}"
        for count, where in (
            (changes["only_in_audited"], name),
            (changes["only_in_baseline"], "the baseline"),
        )
        if count
    ]
    if left_out:
        notes.append(f"queries left out of the comparison: {', '.join(left_out)}")
    other = changes["other_candidates"]
    if other:
        notes.append(
            f"OTHER CANDIDATES: {other:,} of {changes['queries']:,} lists rank other items in "
            f"{name} than in the baseline, so that differences are not of the order alone"
        )
    k = record["ks"][-1]
    tied = changes["ties"][str(k)]["within"]
    if tied:
        what = _ordering(record)
        notes.append(
            f"EQUAL {what.upper()}: the baseline has them too, in the first {k} places of "
            f"{tied:,} of {changes['data']['queries']:,} lists"
        )
    return notes


def check_note(check: Record, record: Record) -> str | None:
    """Return in how many lists the order of rows decides what a rule is on; None if in none."""
    if not check["tied"]:
        return None
    at_cut = check["tied_at_cut"]
    who = f", and in {at_cut:,} of them who is in the top" if at_cut else ""
    return f"{_decides(record)} {check['metric']} in {_of_lists(check['tied'], record)}{who}"


def _decides(record: Record) -> str:
    return f"EQUAL {_ordering(record).upper()}: the order of rows decides"


def _ordering(record: Record) -> str:
    return f"{record['data']['ranked_by']}s"


def _by_k(counts: Mapping[int, int], record: Record) -> str:
    said = (f"at K = {k} in {_of_lists(one, record)}" for k, one in counts.items() if one)
    return ", ".join(said)


def _of_lists(count: int, record: Record) -> str:
    lists = record["data"]["queries"]
    return f"{count:,} of {lists:,} lists ({100 * count / lists:.3g} %)"
