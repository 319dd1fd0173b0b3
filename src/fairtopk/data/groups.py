"""Group labels of items: from a rule on a column, or from a column of labels as it is.

A label is text; null is *unknown*: the item takes part in every list, and in no group.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
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
        rows = self.label.drop_nulls().value_counts().rows()
        return dict(sorted(rows, key=lambda row: (row[0] != self.named, row[1], row[0])))


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

    values, bound = table[rule.column], rule.at_least if rule.below is None else rule.below
    wrong = None
    if rule.contains is not None and kind != pl.String:
        wrong = "contains needs a column of text"
    if bound is not None and not kind.is_numeric():
        wrong = "a bound needs a column of numbers"
    if wrong is not None:
        raise InputError(f"{wrong}, but {values.name!r} of {origin.name} holds {kind}")
    known = values.fill_nan(None) if kind.is_float() else values
    labels = as_text = known.cast(pl.String).replace("", None)
    inside = named = rest = None
    if bound is not None:
        named, rest = f"{rule.column} < {bound}", f"{rule.column} >= {bound}"
        inside = known < bound
        if rule.below is None:
            named, rest, inside = rest, named, ~inside
    elif rule.contains is not None:
        named = rule.contains
        parts = values.str.split(rule.separator).list.eval(pl.element().str.strip_chars())
        inside = parts.list.contains(rule.contains)
    elif rule.equals is not None:
        named = str(rule.equals)
        try:  # as polars writes values of that column, so that 1 equals 1.0
            wanted = str(pl.Series([rule.equals]).cast(kind).cast(pl.String)[0])
        except pl.exceptions.PolarsError:
            wanted = named
        inside = as_text == wanted
    if inside is not None:  # else the values are the labels
        rest = rest or ("other" if named != "other" else "the rest")
        label = pl.when("inside").then(pl.lit(named)).when(~pl.col("inside")).then(pl.lit(rest))
        labels = inside.to_frame("inside").select(label=label)["label"]

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
    ids = groups.item
    if ids.dtype != item_ids.dtype:
        # An id that does not keep its form becomes null: else "01" and "1", or 1.2 and 1.7,
        # would become one item.
        cast = ids.cast(item_ids.dtype, strict=False)
        back = cast.cast(ids.dtype, strict=False)
        ids = cast.to_frame("id").select(pl.when(back.eq_missing(ids)).then("id"))["id"]
    table = pl.DataFrame({"item": ids, "label": groups.label})
    if not table["item"].is_in(item_ids.implode()).any():
        raise InputError(
            f"no item of the data is in {groups.origin.name}: the data names items like "
            f"{item_ids[0]!r}, the groups like {groups.item[0]!r}; check the item column"
        )
    found = item_ids.to_frame("item").join(table, on="item", how="left", maintain_order="left")
    names = tuple(replace(groups, label=found["label"]).counts())
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


def split_labels(
    labels: Sequence[str], separator: str | None
) -> tuple[tuple[str, ...], NDArray[np.float32]]:
    """Return the names of the groups that labels name, and the groups of each label.

    A label such as "Horror|War" may name several; without a separator each label is a group.
    Names are in the order of their first label. The groups of a label are a row of 1 for those
    that it names and 0 for the others, ``[labels, groups]``.

    Example:
        >>> split_labels(["Horror", "Horror|War"], "|")[1].tolist()
        [[1.0, 0.0], [1.0, 1.0]]
    """
    parts = [
        [label] if separator is None else [part.strip() for part in label.split(separator)]
        for label in labels
    ]
    names = tuple(dict.fromkeys(part for one in parts for part in one if part))
    return names, np.array([[name in one for name in names] for one in parts], np.float32)
