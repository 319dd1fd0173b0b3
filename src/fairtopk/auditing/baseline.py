"""A baseline: its queries, candidates and labels in common with the rankings audited.

And the changes from the baseline to these rankings, over the queries that both have.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairtopk.auditing.measures import AttributeMeasures, Compact, Findings
from fairtopk.auditing.rankings import Labelled, label_holders
from fairtopk.auditing.records import data_record, ties_record
from fairtopk.errors import InputError
from fairtopk.kernels.compiled import compiled
from fairtopk.metrics.intervals import Key, Resampled, interval
from fairtopk.statistics import holm, paired_differences

Numbers = NDArray[np.int64]
Lists = tuple[Numbers, NDArray[np.int32]]  # offsets, and the item number of each slot


class Both(NamedTuple):
    """Numbers of the same things in the baseline and in the rankings audited."""

    before: Numbers
    now: Numbers


def paired(before: Labelled, now: Labelled) -> tuple[Both, int]:
    """Return the queries that both have, and how many of these have other items in the other.

    Groups are numbered alike in both. Refused are a baseline without a common query, and one
    that gives an item another label; or an item of the same query, where ids of items are those
    of a query.
    """
    old, new = before.rankings, now.rankings
    queries = _common(old.query_ids, new.query_ids)
    if len(queries.now) == 0:
        raise InputError(
            f"{new.table.origin.name} and the baseline have no query in common: the one names "
            f"queries like {new.query_ids[0]!r}, the other like {old.query_ids[0]!r}"
        )
    items = _common(old.item_ids, new.item_ids)
    number = np.full(len(old.item_ids), -1, np.int32)
    number[items.before] = items.now
    found = slots_of_same(
        (new.offsets, new.item),
        (old.offsets, number[old.item]),
        (queries.now, queries.before),
        len(new.item_ids),
    )
    (there,) = np.nonzero(found >= 0)
    for one, other in zip(before.attributes, now.attributes, strict=True):
        slots = Both(there, found[there])
        if not old.local:  # a row of each item that both have and label
            first = label_holders(old.item, one.group, len(old.item_ids))[0][items.before]
            second = label_holders(new.item, other.group, len(new.item_ids))[0][items.now]
            known = (first >= 0) & (second >= 0)
            slots = Both(first[known], second[known])
        group, group_now = one.group[slots.before], other.group[slots.now]
        (contradicting,) = np.nonzero((group != group_now) & (group >= 0) & (group_now >= 0))
        if len(contradicting):
            pair = int(contradicting[0])
            slot = int(slots.now[pair])
            raise InputError(
                f"{new.place(slot)}: item {new.item_ids[int(new.item[slot])]!r} has "
                f"{other.name} {other.names[group_now[pair]]!r}, but "
                f"{one.names[group[pair]]!r} in the baseline "
                f"({old.place(int(slots.before[pair]))}); an item has one label in both"
            )
    in_both = np.zeros(len(old.item) + 1, np.int64)
    in_both[there + 1] = 1
    counts = np.diff(in_both.cumsum()[old.offsets])[queries.before]
    differ = (counts < old.length[queries.before]) | (counts < new.length[queries.now])
    return queries, int(differ.sum())


def _common(before: pl.Series, now: pl.Series) -> Both:
    """Return the numbers of ids that both have, in the order of the second."""
    sides = []
    for ids, name in ((before, "before"), (now, "now")):
        if before.dtype != now.dtype:
            # As text a whole number reads the same whatever its type.
            whole = ids.dtype.is_float() and (ids == ids.round()).all()
            if whole and ids.abs().max() < 2**53:  # type: ignore[operator]
                ids = ids.cast(pl.Int64)
            ids = ids.cast(pl.String)
        sides.append(pl.DataFrame({"id": ids}).with_row_index(name))
    both = sides[1].join(sides[0], on="id", maintain_order="left")
    return Both(*(both[name].cast(pl.Int64).to_numpy() for name in Both._fields))


@compiled
def slots_of_same(
    first: Lists, second: Lists, pairs: tuple[Numbers, Numbers], n_items: int
) -> Numbers:
    """Return where the items of each second list are in the first list that it is paired with.

    Args:
        first: Offsets, and the item number of each slot; no item twice in a list.
        second: The same of the other lists, with the same item numbers, -1 for other items.
        pairs: Numbers of the first lists, and of the second list of each.
        n_items: How many different items the first lists have.

    Returns:
        A slot of `first` for each of `second`; -1 where its item is not in the paired list, or
        its list in no pair.
    """
    (starts, items), (other_starts, other_items) = first, second
    found = np.full(len(other_items), -1, np.int64)
    slot_of = np.full(n_items, -1, np.int64)
    for one, other in zip(*pairs):  # noqa: B905 (numba knows no strict)
        for slot in range(starts[one], starts[one + 1]):
            slot_of[items[slot]] = slot
        for slot in range(other_starts[other], other_starts[other + 1]):
            item = other_items[slot]
            # What an earlier list left is in that list's slots.
            if item >= 0 and starts[one] <= slot_of[item] < starts[one + 1]:
                found[slot] = slot_of[item]
    return found


def change_record(
    before: Findings, now: Findings, common: tuple[Both, int], *, ks: Sequence[int], seed: int
) -> dict[str, Any]:
    """Return the changes from a baseline to rankings, with `common` as `paired` returns it."""
    rows, other_candidates = common
    pairs = list(zip(before.by_attribute, now.by_attribute, strict=True))
    parts = [(before.lists, now.lists), *((old.gaps, new.gaps) for old, new in pairs)]
    # One set of signs tests the values of all parts.
    sides = [
        {
            f"{number}:{name}": values[chosen]
            for number, part in enumerate(parts)
            for name, values in part[side].items()
        }
        for side, chosen in enumerate(rows)
    ]
    found = paired_differences(*sides, seed=seed)
    corrected = holm([one.p for one in found.values()]).tolist()
    metrics = [{}, *_ratio_changes(pairs, rows, ks, seed)]
    for (key, one), p_holm in zip(found.items(), corrected, strict=True):
        number, name = key.split(":", 1)
        metrics[int(number)][name] = {
            "before": one.mean_a,
            "now": one.mean_b,
            "difference": one.difference,
            "ci95": list(one.ci95),
            "p": one.p,
            "p_holm": p_holm,
            "n": one.n,
            "undefined": one.undefined,
        }
    return {
        "data": data_record(before),
        "queries": len(rows.now),
        "only_in_baseline": len(before.rankings.query_ids) - len(rows.now),
        "only_in_audited": len(now.rankings.query_ids) - len(rows.now),
        "other_candidates": other_candidates,
        "ties": ties_record(before.ties, ks, len(before.rankings.query_ids)),
        "metrics": metrics[0],
        "columns": [
            {"name": one.attribute.name, "metrics": part}
            for (_, one), part in zip(pairs, metrics[1:], strict=True)
        ],
    }


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
            for share in (f"rank_exposure@{k}" for k in ks):
                for place, group in enumerate(one.attribute.names):
                    key = side, one.attribute.name, share, group
                    columns[key] = one.shares[share][chosen, place]
    means = Resampled(columns, seed=seed)
    records: list[dict[str, Any]] = []
    for _, one in pairs:
        records.append({})
        for k in ks:
            what = one.attribute.name, f"rank_exposure@{k}"
            # Of groups that are there, so that a resample has a value.
            before, now = (
                [key for key in columns if key[:3] == (side, *what) and means.has(key)]
                for side in Both._fields
            )
            first, second = means.ratio(before).value, means.ratio(now).value
            bounds = [np.nan, np.nan]
            if not np.isnan(second - first):
                bounds = interval(means.ratios(now) - means.ratios(before)).tolist()
            records[-1][f"impact_ratio@{k}"] = {
                "before": first,
                "now": second,
                "difference": second - first,
                "ci95": bounds,
            }
    return records
