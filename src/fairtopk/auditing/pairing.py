"""What rankings and their baseline have in common: queries, candidates and labels."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairtopk.auditing.attributes import Attribute
from fairtopk.auditing.rankings import Rankings
from fairtopk.errors import InputError
from fairtopk.kernels.candidates import label_holders, slots_of_same

Numbers = NDArray[np.int64]
Labels = tuple[Attribute, Attribute]  # of the baseline, of the rankings audited


class Labelled(NamedTuple):
    """Rankings, and the groups of their rows by each attribute."""

    rankings: Rankings
    attributes: Sequence[Attribute]


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
