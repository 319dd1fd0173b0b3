"""What rankings and their baseline have in common: queries, candidates and labels.

What changes from a baseline to the rankings audited, over the queries that both have.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairtopk.auditing.measures import AttributeMeasures, Compact, Findings
from fairtopk.auditing.rankings import (
    Attribute,
    Labelled,
    Rankings,
    label_holders,
    slots_of_same,
)
from fairtopk.auditing.records import columns_of, data_record, ties_record
from fairtopk.errors import InputError
from fairtopk.metrics.intervals import Key, Resampled, interval
from fairtopk.statistics import holm, paired_differences

Numbers = NDArray[np.int64]
Labels = tuple[Attribute, Attribute]  # of the baseline, of the rankings audited


class Both(NamedTuple):
    """Numbers of the same things in the baseline and in the rankings audited."""

    before: Numbers
    now: Numbers


class Pairing(NamedTuple):
    """The queries that both have, and how many of these have other items in the other."""

    queries: Both
    other_candidates: int


def paired(before: Labelled, now: Labelled) -> Pairing:
    """Return what a baseline has in common with rankings; groups are numbered alike in both.

    Refused are a baseline without a common query, and one that gives an item another label; or
    an item of the same query, where ids of items are those of a query.
    """
    old, new = before.rankings, now.rankings
    queries = _common(old.query_ids, new.query_ids)
    if len(queries.now) == 0:
        raise InputError(
            f"{new.table.origin.name} and the baseline have no query in common: the one names "
            f"queries like {new.query_ids[0]!r}, the other like {old.query_ids[0]!r}"
        )
    items = _common(old.item_ids, new.item_ids)
    same = _same_slots(old, new, queries, items)
    for labels in zip(before.attributes, now.attributes, strict=True):
        slots = same if old.local else _labelled_slots(old, new, labels, items)
        _refuse_contradiction(old, new, labels, slots)
    in_both = np.zeros(len(old.item) + 1, np.int64)
    in_both[same.before + 1] = 1
    counts = np.diff(in_both.cumsum()[old.offsets])[queries.before]
    differ = (counts < old.length[queries.before]) | (counts < new.length[queries.now])
    return Pairing(queries, int(differ.sum()))


def _common(before: pl.Series, now: pl.Series) -> Both:
    """Return the numbers of ids that both have, in the order of the second."""
    if before.dtype != now.dtype:
        before, now = _as_text(before), _as_text(now)
    left, right = (
        pl.DataFrame({"id": ids}).with_row_index(name)
        for ids, name in ((before, "before"), (now, "now"))
    )
    both = right.join(left, on="id", maintain_order="left").cast(
        {"before": pl.Int64, "now": pl.Int64}
    )
    return Both(both["before"].to_numpy(), both["now"].to_numpy())


def _as_text(ids: pl.Series) -> pl.Series:
    """Return ids as text; a whole number reads the same whatever its type."""
    if ids.dtype.is_float() and (ids == ids.round()).all() and ids.abs().max() < 2**53:  # type: ignore[operator]
        ids = ids.cast(pl.Int64)
    return ids.cast(pl.String)


def _same_slots(old: Rankings, new: Rankings, queries: Both, items: Both) -> Both:
    """Return the rows of the same item in the same query."""
    number = np.full(len(old.item_ids), -1, np.int32)
    number[items.before] = items.now
    found = slots_of_same(
        (new.offsets, new.item),
        (old.offsets, number[old.item]),
        (queries.now, queries.before),
        len(new.item_ids),
    )
    (there,) = np.nonzero(found >= 0)
    return Both(there, found[there])


def _labelled_slots(old: Rankings, new: Rankings, labels: Labels, items: Both) -> Both:
    """Return a row of each item that both have and label."""
    before, now = (
        label_holders(side.item, attribute.group, len(side.item_ids))[0][numbers]
        for side, attribute, numbers in zip((old, new), labels, items, strict=True)
    )
    known = (before >= 0) & (now >= 0)
    return Both(before[known], now[known])


def _refuse_contradiction(old: Rankings, new: Rankings, labels: Labels, slots: Both) -> None:
    """Refuse two labels of what `slots` pairs."""
    group, other = (one.group[side] for one, side in zip(labels, slots, strict=True))
    (differ,) = np.nonzero((group != other) & (group >= 0) & (other >= 0))
    if len(differ) == 0:
        return
    first = int(differ[0])
    before, now = int(slots.before[first]), int(slots.now[first])
    named = labels[0].names[group[first]], labels[1].names[other[first]]
    raise InputError(
        f"{new.place(now)}: item {new.item_ids[int(new.item[now])]!r} has {labels[1].name} "
        f"{named[1]!r}, but {named[0]!r} in the baseline ({old.place(before)}); an item has "
        f"one label in both"
    )


def change_record(
    before: Findings, now: Findings, pairing: Pairing, *, ks: Sequence[int], seed: int
) -> dict[str, Any]:
    """Return what changes from `before` to `now`, metric by metric."""
    rows = pairing.queries
    pairs = list(zip(before.by_attribute, now.by_attribute, strict=True))
    of_lists, *of_gaps = _differences(
        [before.lists, *(other.gaps for other, _ in pairs)],
        [now.lists, *(one.gaps for _, one in pairs)],
        rows,
        seed,
    )
    of_ratios = _ratio_changes(pairs, rows, ks, seed)
    columns = [
        {"name": one.attribute.name, "metrics": {**ratios, **gaps}}
        for (_, one), ratios, gaps in zip(pairs, of_ratios, of_gaps, strict=True)
    ]
    return {
        "data": data_record(before),
        "queries": len(rows.now),
        "only_in_baseline": len(before.rankings.query_ids) - len(rows.now),
        "only_in_audited": len(now.rankings.query_ids) - len(rows.now),
        "other_candidates": pairing.other_candidates,
        "ties": ties_record(before.ties, ks, len(before.rankings.query_ids)),
        "metrics": of_lists,
        "columns": columns,
    }


def _differences(
    before: Sequence[dict[str, Compact]],
    now: Sequence[dict[str, Compact]],
    rows: Both,
    seed: int,
) -> list[dict[str, Any]]:
    """Return the change of each value of each part, tested with one set of signs for all."""

    def chosen(parts: Sequence[dict[str, Compact]], side: Numbers) -> dict[str, Compact]:
        return {
            f"{number}:{name}": values[side]
            for number, part in enumerate(parts)
            for name, values in part.items()
        }

    found = paired_differences(chosen(before, rows.before), chosen(now, rows.now), seed=seed)
    corrected = holm([one.p for one in found.values()]).tolist()
    records: list[dict[str, Any]] = [{} for _ in now]
    for (key, one), p_holm in zip(found.items(), corrected, strict=True):
        number, name = key.split(":", 1)
        records[int(number)][name] = {
            "before": one.mean_a,
            "now": one.mean_b,
            "difference": one.difference,
            "ci95": list(one.ci95),
            "p": one.p,
            "p_holm": p_holm,
            "n": one.n,
            "undefined": one.undefined,
        }
    return records


def _ratio_changes(
    pairs: Sequence[tuple[AttributeMeasures, AttributeMeasures]],
    rows: Both,
    ks: Sequence[int],
    seed: int,
) -> list[dict[str, Any]]:
    """Return the changes of impact ratios; intervals resample the queries of both at once."""
    columns: dict[Key, Compact] = {}
    for pair in pairs:
        for side, one, chosen in zip(Both._fields, pair, rows, strict=True):
            for key, values in columns_of(one).items():
                if key[1].startswith("rank_exposure@"):
                    columns[side, *key] = values[chosen]
    means = Resampled(columns, seed=seed)

    def change(name: str, k: int) -> dict[str, Any]:
        # Of groups that are there, so that a resample has a value.
        before, now = (
            [
                key
                for key in columns
                if key[:3] == (side, name, f"rank_exposure@{k}") and means.has(key)
            ]
            for side in Both._fields
        )
        first, second = means.ratio(before).value, means.ratio(now).value
        bounds = [np.nan, np.nan]
        if not np.isnan(second - first):
            bounds = interval(means.ratios(now) - means.ratios(before)).tolist()
        return {"before": first, "now": second, "difference": second - first, "ci95": bounds}

    return [
        {f"impact_ratio@{k}": change(one.attribute.name, k) for k in ks} for _, one in pairs
    ]
