"""Documents with features in the order of their source: checked, not yet grouped by query."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import narwhals as nw
import numpy as np
import polars as pl
from narwhals.typing import IntoDataFrame
from numpy.typing import NDArray

from fairtopk.arguments import shown
from fairtopk.data.columns import as_polars, number_ids, refuse_text
from fairtopk.data.groups import GroupRule, Groups, apply_rule, label_items
from fairtopk.data.origin import Origin
from fairtopk.errors import InputError, KindError

Labels = tuple[NDArray[np.int32], tuple[str, ...]]

# What `Features.to_frame` calls the columns that are no features.
RESERVED = ("query", "item", "relevance", "group")


@dataclass(frozen=True)
class FeatureRows:
    """One row per document, as the source has them.

    Attributes:
        values: Features, ``[n_rows, n_features]``.
        relevance: Relevance, ``[n_rows]``.
        query: Query number, ``[n_rows]``, and `query_ids` the ids by number.
        item: Document number, ``[n_rows]``, and `item_ids` the ids by number.
        group: Group number, ``[n_rows]``, -1 unknown, and `group_names` the names by number.
        feature_names: Name of each feature.
        place: Gives the place of a row in words, for errors.
    """

    values: NDArray[np.float32]
    relevance: NDArray[np.float32]
    query: NDArray[np.int32]
    query_ids: pl.Series
    item: NDArray[np.int32]
    item_ids: pl.Series
    group: NDArray[np.int32]
    group_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    place: Callable[[int], str]


@dataclass(frozen=True)
class FeatureColumns:
    """Which columns of a table hold what; see `Features.from_frame`."""

    query: str
    relevance: str
    features: Sequence[str] | None = None
    item: str | None = None
    group: str | None = None


def feature_rows(
    frame: IntoDataFrame,
    columns: FeatureColumns,
    *,
    groups: Groups | GroupRule | None,
    origin: Origin,
) -> FeatureRows:
    """Return the rows of a table, checked; `Features.from_frame` for loaders."""
    source = _group_source(columns, groups)
    rule_column = source.column if isinstance(source, GroupRule) else None
    others = [columns.query, columns.relevance, columns.item, rule_column]
    table = as_polars(frame, [name for name in others if name is not None], origin)
    names = columns.features
    if names is not None and (isinstance(names, str) or not isinstance(names, Sequence)):
        kind = "the text " if isinstance(names, str) else ""
        raise KindError(f"features must be a list of columns, got {kind}{shown(names)}")
    if names is None:
        schema = nw.from_native(frame, eager_only=True).schema
        numeric = (name for name, kind in schema.items() if kind.is_numeric())
        names = [name for name in numeric if name not in others]
    _refuse_names(names, columns, origin)
    features = as_polars(frame, list(names), origin)
    values = np.empty(features.shape, np.float32)
    for place, column in enumerate(features):
        values[:, place] = _numbers(column, origin)
    query, query_ids = number_ids(table[columns.query], origin)
    items = pl.Series("item", np.arange(len(table)))
    if columns.item is not None:
        items = table[columns.item]
    item, item_ids = number_ids(items, origin)
    if isinstance(source, GroupRule):
        group, group_names = label_values(table[source.column], source, origin)
    else:
        group, group_names = label_documents(items, source)
    return FeatureRows(
        values=values,
        relevance=_numbers(table[columns.relevance], origin),
        query=query,
        query_ids=query_ids,
        item=item,
        item_ids=item_ids,
        group=group,
        group_names=group_names,
        feature_names=tuple(features.columns),
        place=origin.row,
    )


def label_values(values: pl.Series, rule: GroupRule, origin: Origin) -> Labels:
    """Return the group number that `rule` gives each value (-1 unknown), and the names."""
    number = f"row of {rule.column}"
    table = values.to_frame(rule.column).with_row_index(number)
    groups = apply_rule(table, item=number, rule=rule, origin=origin)
    return label_items(groups, table[number])


def label_documents(items: pl.Series, groups: Groups | None) -> Labels:
    """Return the group number of each row's document (-1 unknown), and the names.

    Groups are counted by rows: a document that three queries rank counts three times.
    """
    if groups is None:
        return np.full(len(items), -1, np.int32), ()
    return label_items(groups, items)


def _group_source(
    columns: FeatureColumns, groups: Groups | GroupRule | None
) -> Groups | GroupRule | None:
    if columns.group is not None and groups is not None:
        raise InputError("group and groups both tell the groups apart; give one of them")
    if isinstance(groups, Groups) and columns.item is None:
        raise InputError("groups by document id need the column of document ids; give item")
    return GroupRule(columns.group) if columns.group is not None else groups


def _refuse_names(names: Sequence[str], columns: FeatureColumns, origin: Origin) -> None:
    if not names:
        raise InputError(f"{origin.name} has no column of features; one at least is needed")
    taken = [columns.query, columns.relevance, columns.item]
    for place, name in enumerate(names):
        if name in taken or name in names[:place]:
            raise InputError(f"features must not name {name!r}, a column that is read already")
        if name in RESERVED:
            raise InputError(
                f"a feature of {origin.name} is called {name!r}, which is kept for the column "
                f"of that meaning; rename it, or name the features to leave it out"
            )


def _numbers(values: pl.Series, origin: Origin) -> NDArray[np.float32]:
    if not (values.dtype.is_numeric() or values.dtype == pl.Boolean):
        refuse_text(values, origin)
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
