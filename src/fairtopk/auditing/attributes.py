"""Groups of the rows of rankings, by each column that is to be audited."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import polars as pl
from narwhals.typing import IntoDataFrame
from numpy.typing import NDArray

from fairtopk.auditing.rankings import Rankings
from fairtopk.data.columns import OPAQUE, as_polars
from fairtopk.data.groups import GroupRule, apply_rule, label_items
from fairtopk.data.origin import Origin
from fairtopk.errors import InputError
from fairtopk.kernels.candidates import label_holders

MOST_GROUPS = 100
PRODUCT, BOTH = " x ", " & "  # of columns, of labels
UNKNOWN = -1


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


def attribute_of_rows(rankings: Rankings, column: str) -> Attribute:
    """Return the groups that a column of the rankings' own table makes.

    An item with two labels is refused, unless ids of items are those of a query.
    """
    origin = rankings.table.origin
    labels = rankings.table.frame[column]
    if labels.dtype.is_nested() or labels.dtype in OPAQUE:
        raise InputError(
            f"column {column!r} of {origin.name} holds {labels.dtype}; labels are text"
        )
    texts = _texts(labels)
    names = texts.drop_nulls().unique().sort().to_list()
    if not names:
        _refuse_unlabelled("row", column, origin)
    if len(names) < 2:
        raise InputError(
            f"all rows of {origin.name} with a known {column} are in one group ({names[0]!r}); "
            f"two groups are needed to compare exposure"
        )
    _refuse_many(column, len(names))
    numbers = pl.DataFrame({"label": names}, schema={"label": pl.String})
    coded = texts.to_frame().join(
        numbers.with_row_index("number"), on="label", how="left", maintain_order="left"
    )
    group = coded["number"].cast(pl.Int16).fill_null(UNKNOWN).to_numpy()
    if rankings.row is not None:
        group = group[rankings.row]
    attribute = _by_size(column, names, group)
    if not rankings.local:
        _refuse_two_labels(rankings, attribute)
    return attribute


def attribute_of_items(
    rankings: Rankings, column: str, table: IntoDataFrame, item: str, origin: Origin
) -> Attribute:
    """Return the groups that a column of a table of items makes."""
    labels = as_polars(table, [column], origin)[column]
    opaque = labels.dtype.is_nested() or labels.dtype in OPAQUE
    if not opaque and _texts(labels).is_null().all():
        _refuse_unlabelled("item", column, origin)
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
        if twice := [one for one, count in Counter(names).items() if count > 1]:
            raise InputError(
                f"two intersections of {name} are both called {twice[0]!r}; rename labels that "
                f"hold {BOTH!r}"
            )
        return Attribute(name, tuple(names), group)

    product = reduce(both, attributes)
    return _by_size(product.name, product.names, product.group)


def numbered_as(attribute: Attribute, names: Sequence[str]) -> Attribute:
    """Return the same groups, those of `names` first and with these numbers."""
    order = [*names, *(name for name in attribute.names if name not in names)]
    place = {name: number for number, name in enumerate(order)}
    numbers = np.array([*(place[name] for name in attribute.names), UNKNOWN], np.int16)
    return Attribute(attribute.name, tuple(order), numbers[attribute.group])


def _texts(labels: pl.Series) -> pl.Series:
    """Return labels as text; NaN and an empty text are null."""
    known = labels.fill_nan(None) if labels.dtype.is_float() else labels
    return known.cast(pl.String).replace("", None).alias("label")


def _by_size(name: str, names: Sequence[str], group: NDArray[np.int16]) -> Attribute:
    rows = np.bincount(group[group >= 0], minlength=len(names)).tolist()
    order = sorted(range(len(names)), key=lambda one: (rows[one], names[one]))
    given = Attribute(name, tuple(names), group)
    return numbered_as(given, [names[one] for one in order])


def _refuse_two_labels(rankings: Rankings, attribute: Attribute) -> None:
    group, names = attribute.group, attribute.names
    holder, other = label_holders(rankings.item, group, len(rankings.item_ids))
    if other < 0:
        return
    item = int(rankings.item[other])
    first = int(holder[item])
    raise InputError(
        f"{rankings.place(other)}: item {rankings.item_ids[item]!r} has {attribute.name} "
        f"{names[group[other]]!r}, but {names[group[first]]!r} in {rankings.place(first)}; "
        f"give it one label, or say --local-items if an id names another item in each query"
    )


def _refuse_unlabelled(what: str, column: str, origin: Origin) -> None:
    raise InputError(
        f"no {what} of {origin.name} has a label in column {column!r}: all of it is empty"
    )


def _refuse_many(name: str, groups: int) -> None:
    if groups > MOST_GROUPS:
        raise InputError(
            f"{name} has {groups:,} groups, and an audit takes up to {MOST_GROUPS}; put some "
            f"together"
        )
