"""Group labels of items: from a rule on a column, or from a column of labels as it is.

A label is text; null is *unknown*: the item takes part in every list, and in no group.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import polars as pl
from narwhals.typing import IntoDataFrame
from numpy.typing import NDArray

from fairtopk.checks import MOST_GROUPS, checked_text
from fairtopk.data.columns import OPAQUE, Origin, as_polars, check_ids
from fairtopk.errors import InputError, KindError
from fairtopk.terminal import shown

CONDITIONS = ("contains", "equals", "below", "at_least")
RULE_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "column": ((str,), "text"),
    "contains": ((str,), "text"),
    "equals": ((str, int, float, bool), "text, a number or a truth value"),
    "below": ((int, float), "a number"),
    "at_least": ((int, float), "a number"),
    "separator": ((str,), "text"),
}
TABLE = Origin("the table of groups")
LARGEST_BOUND = 2**63


@dataclass(frozen=True)
class GroupRule:
    """How a column of items becomes groups; without a condition its values are the labels.

    Attributes:
        column: The column to read.
        contains: Named group: items whose separated list (genres) holds this value.
        equals: Named group: items with this value.
        below: Named group: items with a number below this one.
        at_least: Named group: items with at least this number.
        separator: What separates the values of a list, for `contains`.
    """

    column: str
    contains: str | None = None
    equals: str | int | float | bool | None = None
    below: int | float | None = None
    at_least: int | float | None = None
    separator: str = "|"

    def __post_init__(self) -> None:
        given = [name for name in CONDITIONS if getattr(self, name) is not None]
        if len(given) > 1:
            raise InputError(f"a group rule takes one condition, got {' and '.join(given)}")
        for name, value in vars(self).items():
            kinds, words = RULE_TYPES[name]
            needed = name in ("column", "separator")
            if (needed or value is not None) and type(value) not in kinds:
                raise KindError(f"{name} of a group rule must be {words}, got {shown(value)}")
            if needed and not value:
                raise InputError(f"{name} of a group rule must not be empty")
            if isinstance(value, float | int) and not abs(value) < LARGEST_BOUND:
                raise InputError(
                    f"{name} of a group rule must be a number below 2^63, got {shown(value)}"
                )
            if isinstance(value, float) and value.is_integer():
                # So that 1990 and 1990.0 are one rule, with one name.
                object.__setattr__(self, name, int(value))

    @classmethod
    def from_mapping(cls, rule: Mapping[str, Any]) -> "GroupRule":
        """Return the rule a config's ``groups = { ... }`` spells out, refusing unknown keys."""
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(rule) - set(known), key=str)
        if unknown:
            raise InputError(
                f"groups has no key {shown(unknown[0])}: its keys are {', '.join(known)}"
            )
        if "column" not in rule:
            raise InputError("groups needs a column, for example { column = 'genres' }")
        return cls(**rule)


@dataclass(frozen=True)
class Groups:
    """A label per item of a catalogue.

    Attributes:
        item: Original item ids, no id twice.
        label: The label of each, text; null is unknown.
        named: The group that signed gaps are about, where a rule names one.
        origin: Where the table came from, for errors.
    """

    item: pl.Series
    label: pl.Series
    named: str | None = None
    origin: Origin = TABLE

    def counts(self) -> dict[str, int]:
        """Return the number of items of each group in this catalogue, the named group first."""
        return _counts(self.label.drop_nulls(), self.named)


def groups_from(
    frame: IntoDataFrame,
    *,
    item: str,
    column: str,
    contains: str | None = None,
    equals: str | float | bool | None = None,
    below: float | None = None,
    at_least: float | None = None,
    separator: str = "|",
) -> Groups:
    """Return the groups that a rule makes of a table of items; see `GroupRule` for the rule.

    A table with several rows per item is fine as long as they agree.

    Example:
        >>> films = pl.DataFrame({"id": [1, 2, 3], "genres": ["Horror|War", "War", None]})
        >>> groups_from(films, item="id", column="genres", contains="Horror").counts()
        {'Horror': 1, 'other': 1}
    """
    checked_text("item", item)
    rule = GroupRule(column, contains, equals, below, at_least, separator)
    return apply_rule(frame, item=item, rule=rule, origin=TABLE)


def apply_rule(frame: IntoDataFrame, *, item: str, rule: GroupRule, origin: Origin) -> Groups:
    """Return the groups that `rule` makes of a table, refusing one that tells no item apart."""
    table = as_polars(frame, [item, rule.column], origin)
    kind = table[rule.column].dtype
    if kind.is_nested() or kind in OPAQUE:
        raise InputError(
            f"column {rule.column!r} of {origin.name} holds {kind}; a group rule needs text, "
            f"numbers or truth values"
        )
    check_ids(table[item], origin)
    labels, named = _labels(table[rule.column], rule, origin)
    labelled = pl.DataFrame({"item": table[item], "label": labels}).unique(maintain_order=True)
    twice = labelled.filter(labelled["item"].is_duplicated())
    if len(twice):
        one = twice["item"][0]
        two = labelled.filter(pl.col("item").eq_missing(one))["label"].to_list()[:2]
        raise InputError(
            f"{origin.name} gives item {one!r} two groups, {two[0]!r} and {two[1]!r}; keep one"
        )
    groups = Groups(labelled["item"], labelled["label"], named, origin)
    counts = groups.counts()
    if len(counts) < 2:
        found = ", ".join(repr(name) for name in counts) or "none"
        raise InputError(
            f"the rule on column {rule.column!r} of {origin.name} puts every item with a known "
            f"value into one group ({found}); choose a rule that tells items apart"
        )
    return groups


def as_rule(groups: Mapping[str, Any] | GroupRule | Groups | None) -> GroupRule | Groups | None:
    """Return groups as the user gave them, a mapping made into a rule."""
    if isinstance(groups, Mapping):
        return GroupRule.from_mapping(groups)
    if groups is None or isinstance(groups, GroupRule | Groups):
        return groups
    raise KindError(
        f"groups must be a rule such as {{'column': 'genres', 'contains': 'Horror'}}, or made "
        f"by groups_from, got {shown(groups)}"
    )


def label_items(
    groups: Groups, item_ids: pl.Series
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Return the group number of each item (-1 unknown) and the names by number.

    Number 0 is the group that the rule names, or else the smallest; the rest follow by size.
    """
    table = pl.DataFrame({"item": _as_type_of(groups.item, item_ids), "label": groups.label})
    if not table["item"].is_in(item_ids.implode()).any():
        raise InputError(
            f"no item of the data is in {groups.origin.name}: the data names items like "
            f"{item_ids[0]!r}, the groups like {groups.item[0]!r}; check the item column"
        )
    found = item_ids.to_frame("item").join(table, on="item", how="left", maintain_order="left")
    names = tuple(_counts(found["label"].drop_nulls(), groups.named))
    if len(names) > MOST_GROUPS:
        raise InputError(
            f"{groups.origin.name} has {len(names):,} groups, and at most {MOST_GROUPS:,} are "
            f"told apart; put some together, or use a rule with a condition"
        )
    if len(names) < 2:
        found_names = ", ".join(repr(name) for name in names) or "none"
        raise InputError(
            f"all items of the data with a known group are in one group ({found_names}); "
            f"two groups are needed to compare exposure"
        )
    numbers = pl.DataFrame({"label": names}).with_row_index("number")
    coded = found.join(numbers, on="label", how="left", maintain_order="left")["number"]
    return coded.cast(pl.Int32).fill_null(-1).to_numpy(writable=True), names


def _labels(values: pl.Series, rule: GroupRule, origin: Origin) -> tuple[pl.Series, str | None]:
    if rule.contains is not None:
        _require(values.dtype == pl.String, "text", "contains", values, origin)
        parts = values.str.split(rule.separator).list.eval(pl.element().str.strip_chars())
        return _two(parts.list.contains(rule.contains), rule.contains), rule.contains
    if rule.equals is not None:
        name = str(rule.equals)
        return _two(_as_text(values) == _text(rule.equals, values), name), name
    for bound, is_below in ((rule.below, True), (rule.at_least, False)):
        if bound is not None:
            _require(values.dtype.is_numeric(), "numbers", "a bound", values, origin)
            low, high = f"{rule.column} < {bound}", f"{rule.column} >= {bound}"
            known = values.fill_nan(None) if values.dtype.is_float() else values
            return _two(known < bound, low, high), low if is_below else high
    return _as_text(values), None


def _as_text(values: pl.Series) -> pl.Series:
    """Return labels as text; NaN and an empty text are null."""
    known = values.fill_nan(None) if values.dtype.is_float() else values
    return known.cast(pl.String).replace("", None)


def _two(inside: pl.Series, name: str, rest: str | None = None) -> pl.Series:
    rest = rest or ("other" if name != "other" else "the rest")
    frame = inside.to_frame("inside")
    labels = pl.when("inside").then(pl.lit(name)).when(~pl.col("inside")).then(pl.lit(rest))
    return frame.select(label=labels)["label"]


def _text(value: str | float | bool, values: pl.Series) -> str:
    """Return `value` as polars writes values of that column, so that 1 equals 1.0."""
    try:
        return str(pl.Series([value]).cast(values.dtype).cast(pl.String)[0])
    except pl.exceptions.PolarsError:
        return str(value)


def _require(holds: bool, kind: str, condition: str, values: pl.Series, origin: Origin) -> None:
    if not holds:
        raise InputError(
            f"{condition} needs a column of {kind}, but {values.name!r} of {origin.name} "
            f"holds {values.dtype}"
        )


def _counts(labels: pl.Series, named: str | None) -> dict[str, int]:
    by_size = sorted(
        labels.value_counts().rows(), key=lambda row: (row[0] != named, row[1], row[0])
    )
    return dict(by_size)


def _as_type_of(ids: pl.Series, wanted: pl.Series) -> pl.Series:
    """Return `ids` in the type of `wanted`; an id that does not keep its form becomes null.

    Else "01" and "1", or 1.2 and 1.7, would become one item.
    """
    if ids.dtype == wanted.dtype:
        return ids
    cast = ids.cast(wanted.dtype, strict=False)
    back = cast.cast(ids.dtype, strict=False)
    return cast.to_frame("id").select(pl.when(back.eq_missing(ids)).then("id"))["id"]
