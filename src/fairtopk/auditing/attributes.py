"""Groups of the rows of rankings, by each column that is to be audited."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np
import polars as pl
from narwhals.typing import IntoDataFrame
from numpy.typing import NDArray

from fairtopk.auditing.rankings import Rankings
from fairtopk.data.columns import as_polars
from fairtopk.data.groups import GroupRule, apply_rule, label_items
from fairtopk.data.origin import Origin
from fairtopk.data.table_files import read_table
from fairtopk.errors import InputError

MOST_GROUPS = 100
PRODUCT, BOTH = " x ", " & "  # of columns, of labels
UNKNOWN = -1
ITEMS = Origin("the table of items")


@dataclass(frozen=True, eq=False)
class Attribute:
    """Groups that rows of rankings fall into.

    Attributes:
        name: Of the column, or of several and their product.
        names: Of the groups, by number; the first has the fewest rows, and signed gaps are
            about it.
        group: Group number of each row, -1 unknown.
    """

    name: str
    names: tuple[str, ...]
    group: NDArray[np.int16]


def items_table(
    items: IntoDataFrame | str | Path, item: str, *, separator: str
) -> tuple[IntoDataFrame, Origin]:
    """Return a table of items, refusing one without their ids, and where it came from."""
    if isinstance(items, str | Path):
        return read_table(items, ids=[item], separator=separator)
    as_polars(items, [item], ITEMS)
    return items, ITEMS


def attribute_of_rows(rankings: Rankings, column: str) -> Attribute:
    """Return the groups that a column of the rankings' own table makes."""
    origin = rankings.table.origin
    labels = rankings.table.frame[column]
    if labels.dtype.is_nested():
        raise InputError(f"column {column!r} of {origin.name} holds lists; labels are text")
    if labels.dtype.is_float():
        labels = labels.fill_nan(None)
    texts = labels.cast(pl.String).replace("", None).alias("label")
    names = texts.drop_nulls().unique().sort().to_list()
    if len(names) < 2:
        shown = ", ".join(map(repr, names)) or "none"
        raise InputError(
            f"all rows of {origin.name} with a known {column} are in one group ({shown}); two "
            f"groups are needed to compare exposure"
        )
    _refuse_many(column, len(names))
    numbers = pl.DataFrame({"label": names}, schema={"label": pl.String})
    coded = texts.to_frame().join(
        numbers.with_row_index("number"), on="label", how="left", maintain_order="left"
    )
    group = coded["number"].cast(pl.Int16).fill_null(UNKNOWN).to_numpy()
    if rankings.row is not None:
        group = group[rankings.row]
    return _by_size(column, names, group)


def attribute_of_items(
    rankings: Rankings, column: str, table: IntoDataFrame, item: str, origin: Origin
) -> Attribute:
    """Return the groups that a column of a table of items makes."""
    groups = apply_rule(table, item=item, rule=GroupRule(column), origin=origin)
    codes, names = label_items(groups, rankings.item_ids)
    _refuse_many(column, len(names))
    return _by_size(column, names, codes.astype(np.int16)[rankings.item])


def intersection(attributes: Sequence[Attribute]) -> Attribute:
    """Return the product of attributes; a row with one label unknown is in no group."""

    def both(first: Attribute, second: Attribute) -> Attribute:
        known = (first.group >= 0) & (second.group >= 0)
        code = first.group.astype(np.int32) * len(second.names) + second.group
        there, codes = np.unique(code[known], return_inverse=True)
        name = first.name + PRODUCT + second.name
        _refuse_many(name, len(there))
        group = np.full(len(code), UNKNOWN, np.int16)
        group[known] = codes
        pairs = (divmod(int(one), len(second.names)) for one in there)
        names = [first.names[a] + BOTH + second.names[b] for a, b in pairs]
        return Attribute(name, tuple(names), group)

    product = reduce(both, attributes)
    return _by_size(product.name, product.names, product.group)


def numbered_as(attribute: Attribute, names: Sequence[str]) -> Attribute:
    """Return the same groups, those of `names` first and with these numbers."""
    order = [*names, *(name for name in attribute.names if name not in names)]
    place = {name: number for number, name in enumerate(order)}
    numbers = np.array([*(place[name] for name in attribute.names), UNKNOWN], np.int16)
    return Attribute(attribute.name, tuple(order), numbers[attribute.group])


def _by_size(name: str, names: Sequence[str], group: NDArray[np.int16]) -> Attribute:
    rows = np.bincount(group[group >= 0], minlength=len(names)).tolist()
    order = sorted(range(len(names)), key=lambda one: (rows[one], names[one]))
    given = Attribute(name, tuple(names), group)
    return numbered_as(given, [names[one] for one in order])


def _refuse_many(name: str, groups: int) -> None:
    if groups > MOST_GROUPS:
        raise InputError(
            f"{name} has {groups:,} groups, and an audit takes up to {MOST_GROUPS}; put some "
            f"together"
        )
