"""Ratings as compact arrays, grouped by user (CSR), with a group label per item.

The ratings of user u are the slots ``offsets[u] : offsets[u + 1]`` of `item`, `rating` and
`time`, in the order of the source. Users and items are numbered in order of first appearance,
so the same rows always give the same numbers. Items are those that somebody rated.

Readers of published layouts return `Tables` with the same column names: ratings with
``user_id, item_id, rating[, timestamp]``; items with ``item_id`` and whatever the source knows
of an item (``title, year, genres``), null where it does not.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from narwhals.typing import IntoDataFrame
from numpy.typing import NDArray

from fairtopk.data import columns as cols
from fairtopk.data.columns import Origin
from fairtopk.data.groups import GroupRule, Groups, apply_rule, as_rule, label_items

# NDCG's gain is 2^rating - 1: past 10 one item outweighs a thousand others.
RATING_RANGE = (0.0, 10.0)


class Grouped:
    """Base of `Interactions` and `Features`: a group label per item or row, -1 if unknown."""

    group: NDArray[np.int32]
    group_names: tuple[str, ...]

    @property
    def group_counts(self) -> dict[str, int]:
        """Items or rows of each group, the named group first; unknown ones are left out."""
        known = np.bincount(self.group[self.group >= 0], minlength=len(self.group_names))
        return dict(zip(self.group_names, known.tolist(), strict=True))

    @property
    def n_unknown(self) -> int:
        """Number of items or rows whose group is unknown."""
        return int((self.group < 0).sum())

    def shown_groups(self) -> str:
        """Return the groups and their counts as text."""
        counts = self.group_counts | {"(unknown)": self.n_unknown}
        return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def label_texts(group: NDArray[np.signedinteger], names: Sequence[str]) -> pl.Series:
    """Return group numbers as their names, null where unknown."""
    texts = pl.Series([*names, None], dtype=pl.String)
    return texts.gather(np.where(group < 0, len(names), group))


def checksum(arrays: Iterable[NDArray[Any] | None], columns: Iterable[pl.Series]) -> str:
    """Return the SHA-256 of arrays and columns: types, lengths and values."""
    digest = hashlib.sha256()
    for array in arrays:
        if array is None:
            digest.update(b"none")
            continue
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    for column in columns:
        digest.update(f"{column.dtype}{len(column)}".encode())
        texts = column.cast(pl.String)
        digest.update(np.ascontiguousarray(texts.str.len_bytes().to_numpy()).data)
        digest.update("".join(texts).encode())
    return digest.hexdigest()


@dataclass(frozen=True, eq=False, repr=False)
class Interactions(Grouped):
    """Who rated what, how, when; and which group each item belongs to.

    Attributes:
        offsets: Start of each user's slots, ``[n_users + 1]``.
        item: Item number of each slot, ``[n_ratings]``.
        rating: Rating of each slot, ``[n_ratings]``, float32 unless that would lose digits.
        time: Time of each slot, ``[n_ratings]``, or None.
        time_type: What the times were in the source, for the way out.
        group: Group number of each item, ``[n_items]``; -1 is unknown.
        group_names: Name of each group; number 0 is the group that signed gaps are about.
        user_ids: Original id of each user, ``[n_users]``.
        item_ids: Original id of each item, ``[n_items]``.
        catalogue_counts: Items of each group in the whole catalogue, rated or not.
        name: What the data is called in reports.
        notes: What the loader checked and found, one sentence each.
    """

    offsets: NDArray[np.int64]
    item: NDArray[np.int32]
    rating: NDArray[np.floating]
    time: NDArray[np.int64] | NDArray[np.float64] | None
    group: NDArray[np.int32]
    group_names: tuple[str, ...]
    user_ids: pl.Series
    item_ids: pl.Series
    catalogue_counts: dict[str, int]
    name: str = "table"
    notes: tuple[str, ...] = ()
    time_type: pl.DataType = field(default_factory=pl.Int64)

    @classmethod
    def from_frame(
        cls,
        frame: IntoDataFrame,
        *,
        user: str,
        item: str,
        rating: str | None = None,
        time: str | None = None,
        groups: Mapping[str, Any] | GroupRule | Groups | None = None,
        name: str = "table",
    ) -> "Interactions":
        """Return the interactions of a polars, pandas or Arrow frame, one row per rating.

        Args:
            frame: The table; other columns are left out.
            user: Column of user ids (numbers or text).
            item: Column of item ids.
            rating: Column of ratings from 0 to 10; left out, every row is a rating of 1.
            time: Column of times: numbers or dates.
            groups: Labels made by `groups_from` from a table of items, or a rule on a column
                of this frame; left out, every item's group is unknown.
            name: What to call the data in reports.

        Raises:
            InputError: A column is absent, a value missing or out of range, a pair there twice,
                or the groups fit no item.
        """
        cols.check_names({"user": user, "item": item}, {"rating": rating, "time": time})
        columns, rule = Columns(user, item, rating, time), as_rule(groups)
        if isinstance(rule, GroupRule):
            rule = apply_rule(frame, item=item, rule=rule, origin=Origin())
        return interactions_from(frame, columns, groups=rule, origin=Origin(), name=name)

    def __repr__(self) -> str:
        return (
            f"<Interactions {self.name}: {self.n_users:,} users, {self.n_items:,} items, "
            f"{self.n_ratings:,} ratings; {self.shown_groups()}>"
        )

    @property
    def n_users(self) -> int:
        """Number of users."""
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        """Number of items that somebody rated."""
        return len(self.item_ids)

    @property
    def n_ratings(self) -> int:
        """Number of ratings."""
        return len(self.item)

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of everything but `name`, `notes` and `catalogue_counts`."""
        names = pl.Series(self.group_names, dtype=pl.String)
        return checksum([self.group], [names, pl.Series([self.ratings_checksum])])

    @cached_property
    def ratings_checksum(self) -> str:
        """SHA-256 of the ratings alone: equal whatever the groups are."""
        kind = pl.Series([str(self.time_type)])
        arrays = (self.offsets, self.item, self.rating, self.time)
        return checksum(arrays, [self.user_ids, self.item_ids, kind])

    def user_of_slot(self) -> NDArray[np.int32]:
        """Return the user number of each slot, ``[n_ratings]``."""
        return np.repeat(np.arange(self.n_users, dtype=np.int32), np.diff(self.offsets))

    def to_frame(self) -> pl.DataFrame:
        """Return the ratings with their original ids: user, item, rating, (time,) group.

        Rows come user by user; those of one user keep the order of the source.
        """
        columns = {
            "user": self.user_ids.gather(self.user_of_slot()),
            "item": self.item_ids.gather(self.item),
            "rating": pl.Series(self.rating),
        }
        if self.time is not None:
            columns["time"] = pl.Series(self.time).cast(self.time_type)
        columns["group"] = label_texts(self.group[self.item], self.group_names)
        return pl.DataFrame(columns)


@dataclass(frozen=True)
class Columns:
    """The columns of users, items, ratings (None: every row is a rating of 1) and times."""

    user: str = "user_id"
    item: str = "item_id"
    rating: str | None = "rating"
    time: str | None = None


def interactions_from(
    frame: IntoDataFrame,
    columns: Columns,
    *,
    groups: Groups | None,
    origin: Origin,
    name: str,
    rating_range: tuple[float, float] = RATING_RANGE,
) -> Interactions:
    """Return the interactions of a table, checked; `Interactions.from_frame` for loaders."""
    table = cols.as_polars(
        frame, [name for name in astuple(columns) if name is not None], origin
    )
    user, user_ids = cols.number_ids(table[columns.user], origin)
    item, item_ids = cols.number_ids(table[columns.item], origin)
    rating: NDArray[np.floating] = np.ones(len(table), np.float32)
    if columns.rating is not None:
        rating = cols.ratings_array(table[columns.rating], rating_range, origin)
    time = cols.times_array(table[columns.time], origin) if columns.time is not None else None

    offsets, item, order = cols.group_rows(
        (user, user_ids), (item, item_ids), phrase="user {} rates", place=origin.row
    )
    if order is not None:
        rating = rating[order]
        time = time[order] if time is not None else None
    group = np.full(len(item_ids), -1, np.int32)
    names: tuple[str, ...] = ()
    if groups is not None:
        group, names = label_items(groups, item_ids)
    return Interactions(
        offsets=offsets,
        item=item,
        rating=rating,
        time=time,
        group=group,
        group_names=names,
        user_ids=user_ids,
        item_ids=item_ids,
        catalogue_counts=groups.counts() if groups is not None else {},
        name=name,
        time_type=table[columns.time].dtype if columns.time is not None else pl.Int64(),
    )


PUBLISHED = Columns("user_id", "item_id", "rating", "timestamp")


@dataclass(frozen=True)
class Tables:
    """What a source holds, and where each part came from.

    A source without a catalogue has its ratings in the place of `items`.
    """

    ratings: pl.DataFrame
    items: pl.DataFrame
    ratings_origin: Origin
    items_origin: Origin
    columns: Columns = PUBLISHED
    rating_range: tuple[float, float] = RATING_RANGE
