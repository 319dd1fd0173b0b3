"""Documents with features as compact arrays, grouped by query (CSR), a label per row.

The documents of query q are the rows ``offsets[q] : offsets[q + 1]`` of `values`, `relevance`,
`group`, `row` and `item_ids`, in the order of the source. Queries are numbered in order of
first appearance, so the same rows always give the same numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl
from narwhals.typing import IntoDataFrame
from numpy.typing import NDArray

from fairtopk.checks import LARGEST_RELEVANCE
from fairtopk.data import columns as cols
from fairtopk.data.columns import Origin
from fairtopk.data.groups import GroupRule, Groups, apply_rule, as_rule, label_items
from fairtopk.data.interactions import Grouped, checksum, label_texts
from fairtopk.errors import InputError, KindError
from fairtopk.terminal import shown

# What `Features.to_frame` calls the columns that are no features.
RESERVED = ("query", "item", "relevance", "group")


@dataclass(frozen=True)
class FeatureRows:
    """One row per document, as the source has them."""

    values: NDArray[np.float32]  # features, [n_rows, n_features]
    relevance: NDArray[np.float32]  # [n_rows]
    query: pl.Series  # the query of each row
    item: pl.Series | None  # the document of each row; None calls documents by their row
    ruled: pl.Series | None  # the column that a group rule reads
    feature_names: tuple[str, ...]
    origin: Origin
    place: Callable[[int], str]  # gives the place of a row in words, for errors


@dataclass(frozen=True)
class FeatureColumns:
    """Which columns of a table hold what; see `Features.from_frame`."""

    query: str
    relevance: str = "relevance"
    features: Sequence[str] | None = None
    item: str | None = None
    group: str | None = None


def read_rows(
    frame: IntoDataFrame,
    columns: FeatureColumns,
    *,
    groups: Groups | GroupRule | None,
    origin: Origin,
    name: str,
) -> "Features":
    """Return the documents of a table, checked; `Features.from_frame` for loaders."""
    if columns.group is not None and groups is not None:
        raise InputError("group and groups both tell the groups apart; give one of them")
    if isinstance(groups, Groups) and columns.item is None:
        raise InputError("groups by document id need the column of document ids; give item")
    if columns.group is not None:
        groups = GroupRule(columns.group)
    taken = [columns.query, columns.relevance, columns.item]
    others = [*taken, groups.column if isinstance(groups, GroupRule) else None]
    table = cols.as_polars(frame, [other for other in others if other is not None], origin)

    names = columns.features
    if names is not None and (isinstance(names, str) or not isinstance(names, Sequence)):
        kind = "the text " if isinstance(names, str) else ""
        raise KindError(f"features must be a list of columns, got {kind}{shown(names)}")
    if names is None:
        schema = nw.from_native(frame, eager_only=True).schema
        numeric = (column for column, kind in schema.items() if kind.is_numeric())
        names = [column for column in numeric if column not in others]
    if not names:
        raise InputError(f"{origin.name} has no column of features; one at least is needed")
    for place, feature in enumerate(names):
        if feature in taken or feature in names[:place]:
            raise InputError(
                f"features must not name {feature!r}, a column that is read already"
            )
        if feature in RESERVED:
            raise InputError(
                f"a feature of {origin.name} is called {feature!r}, which is kept for the "
                f"column of that meaning; rename it, or name the features to leave it out"
            )
    features = cols.as_polars(frame, list(names), origin)
    values = np.empty(features.shape, np.float32)
    for place, column in enumerate(features):
        values[:, place] = _numbers(column, origin)

    rows = FeatureRows(
        values=values,
        relevance=_numbers(table[columns.relevance], origin),
        query=table[columns.query],
        item=table[columns.item] if columns.item is not None else None,
        ruled=table[groups.column] if isinstance(groups, GroupRule) else None,
        feature_names=tuple(features.columns),
        origin=origin,
        place=origin.row,
    )
    return features_from(rows, groups, name=name)


def _numbers(values: pl.Series, origin: Origin) -> NDArray[np.float32]:
    if not (values.dtype.is_numeric() or values.dtype == pl.Boolean):
        cols.refuse_text(values, origin)
    numbers: NDArray[np.float32] = values.cast(pl.Float32).to_numpy(writable=True)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        value = values[int(bad[0])]
        lacks = value is None or value != value
        shown = "missing" if lacks else f"{value:g}, which float32 cannot hold"
        raise InputError(
            f"{origin.row(int(bad[0]))}: {values.name} is {shown}; "
            f"mend or remove the {len(bad):,} such row{'s'[: len(bad) > 1]}"
        )
    return numbers


@dataclass(frozen=True, eq=False, repr=False)
class Features(Grouped):
    """What each query may rank: documents with features, relevance and group.

    Attributes:
        offsets: Start of each query's rows, ``[n_queries + 1]``.
        values: Features of each row, ``[n_rows, n_features]``.
        relevance: Relevance of each row, ``[n_rows]``, from 0 to 100.
        group: Group number of each row, ``[n_rows]``; -1 is unknown.
        row: Row of the source that each row was, ``[n_rows]``.
        group_names: Name of each group; number 0 is the group that signed gaps are about.
        feature_names: Name of each feature.
        query_ids: Original id of each query, ``[n_queries]``.
        item_ids: Original id of each row's document, ``[n_rows]``; `row` if it has none.
        name: What the data is called in reports.
        notes: What the loader checked and found, one sentence each.
    """

    offsets: NDArray[np.int64]
    values: NDArray[np.float32]
    relevance: NDArray[np.float32]
    group: NDArray[np.int32]
    row: NDArray[np.int64]
    group_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    query_ids: pl.Series
    item_ids: pl.Series
    name: str = "table"
    notes: tuple[str, ...] = ()

    @classmethod
    def from_frame(
        cls,
        frame: IntoDataFrame,
        *,
        query: str,
        relevance: str,
        features: Sequence[str] | None = None,
        item: str | None = None,
        group: str | None = None,
        groups: Mapping[str, Any] | GroupRule | Groups | None = None,
        name: str = "table",
    ) -> "Features":
        """Return the features of a polars, pandas or Arrow frame, one row per document.

        Args:
            frame: The table; the rows of a query need not stand together.
            query: Column of query ids (numbers or text).
            relevance: Column of relevance, numbers from 0 to 100.
            features: Columns of features; left out, all numeric columns but those of the query,
                the relevance, the document and the group.
            item: Column of document ids; left out, documents are called by their row.
            group: Column of group labels; null is unknown.
            groups: Instead of `group`, a rule on any column, or labels by document id made by
                `groups_from`; with neither, every row's group is unknown.
            name: What to call the data in reports.

        Raises:
            InputError: A column is absent or named twice, a value is missing or no finite
                number, a document is twice in a query, or the groups fit no row.
        """
        cols.check_names(
            {"query": query, "relevance": relevance}, {"item": item, "group": group}
        )
        columns = FeatureColumns(query, relevance, features, item, group)
        return read_rows(frame, columns, groups=as_rule(groups), origin=Origin(), name=name)

    def __repr__(self) -> str:
        return (
            f"<Features {self.name}: {self.n_queries:,} queries, {self.n_rows:,} documents, "
            f"{len(self.feature_names):,} features; {self.shown_groups()}>"
        )

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return len(self.query_ids)

    @property
    def n_rows(self) -> int:
        """Number of documents, one that several queries rank counted in each."""
        return len(self.relevance)

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of everything but `name` and `notes`: equal for equal data."""
        names = [pl.Series(n, dtype=pl.String) for n in (self.group_names, self.feature_names)]
        arrays = (self.offsets, self.values, self.relevance, self.group, self.row)
        return checksum(arrays, [self.query_ids, self.item_ids, *names])

    def query_of_row(self) -> NDArray[np.int32]:
        """Return the query number of each row, ``[n_rows]``."""
        return np.repeat(np.arange(self.n_queries, dtype=np.int32), np.diff(self.offsets))

    def to_frame(self) -> pl.DataFrame:
        """Return query, item, relevance, the features and group, in the order of the source."""
        order = np.argsort(self.row, kind="stable")
        columns = {
            "query": self.query_ids.gather(self.query_of_row()[order]),
            "item": self.item_ids.gather(order),
            "relevance": pl.Series(self.relevance[order]),
        }
        for place, name in enumerate(self.feature_names):
            columns[name] = pl.Series(self.values[order, place])
        columns["group"] = label_texts(self.group[order], self.group_names)
        return pl.DataFrame(columns)


def features_from(
    rows: FeatureRows,
    groups: Groups | GroupRule | None,
    *,
    name: str,
    notes: tuple[str, ...] = (),
) -> Features:
    """Return the rows grouped by query, refusing a document that a query holds twice.

    Groups are counted by rows: a document that three queries rank counts three times. Refused
    is relevance that NDCG's gain, 2^relevance - 1, cannot be taken of.
    """
    values, relevance, origin = rows.values, rows.relevance, rows.origin
    row = np.arange(len(values))
    query, query_ids = cols.number_ids(rows.query, origin)
    items = pl.Series("item", row) if rows.item is None else rows.item
    item, item_ids = cols.number_ids(items, origin)
    group = np.full(len(values), -1, np.int32)
    group_names: tuple[str, ...] = ()
    if isinstance(groups, GroupRule) and rows.ruled is not None:
        number = f"row of {groups.column}"
        table = rows.ruled.to_frame(groups.column).with_row_index(number)
        items = table[number]
        groups = apply_rule(table, item=number, rule=groups, origin=origin)
    if isinstance(groups, Groups):
        group, group_names = label_items(groups, items)

    outside = np.flatnonzero((relevance < 0) | (relevance > LARGEST_RELEVANCE))
    if len(outside):
        one = int(outside[0])
        raise InputError(
            f"{rows.place(one)}: relevance must lie between 0 and {LARGEST_RELEVANCE:g}, got "
            f"{relevance[one]:g} (the gain is 2^relevance - 1; use grades, such as 0 to 4)"
        )
    offsets, item, order = cols.group_rows(
        (query, query_ids), (item, item_ids), phrase="query {} holds", place=rows.place
    )
    if order is not None:
        row, values, relevance, group = order, values[order], relevance[order], group[order]
    data = Features(
        offsets=offsets,
        values=values,
        relevance=relevance,
        group=group,
        row=row,
        group_names=group_names,
        feature_names=rows.feature_names,
        query_ids=query_ids,
        item_ids=item_ids.gather(item),
        name=name,
    )
    names = data.feature_names
    some = ", ".join(names if len(names) <= 12 else [*names[:3], "...", names[-1]])
    found = [
        f"{data.n_rows:,} documents in {data.n_queries:,} queries, none twice in one, "
        f"relevance from {relevance.min():g} to {relevance.max():g}",
        f"{len(names):,} features: {some}",
    ]
    if data.group_names:
        found.append(f"groups of the documents: {data.shown_groups()}")
    return replace(data, notes=(*found, *notes))
