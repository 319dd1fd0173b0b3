"""Rules that an audit can fail: ``impact_ratio@10 < 0.8``, of one column ``sex:...``.

A rule is read word by word and compared; nothing in it is ever run.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fairtopk.errors import InputError

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
FORM = re.compile(
    r"\s*(?:(?P<column>\S.*?)\s*:\s*)??(?P<metric>[a-z_]+@[0-9]+)\s*(?P<comparison><=|>=|<|>)"
    r"\s*(?P<bound>[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*"
)


class Rule(NamedTuple):
    """When an audit fails.

    Attributes:
        text: As it was given.
        column: Whose groups are meant; None: any column's.
        metric: Such as ``impact_ratio@10``.
        comparison: One of `COMPARISONS`.
        bound: What the metric is compared with.
    """

    text: str
    column: str | None
    metric: str
    comparison: str
    bound: float

    def holds(self, value: float) -> bool:
        """Return whether the audit fails if the metric has this value."""
        return COMPARISONS[self.comparison](value, self.bound)


def parsed_rule(text: str) -> Rule:
    """Return the rule that a text spells out."""
    found = FORM.fullmatch(text)
    if found is None:
        raise InputError(
            f"a rule is a metric, < <= > or >=, and a number, such as 'impact_ratio@10 < 0.8' "
            f"or 'sex:impact_ratio@10 < 0.8', got {text!r}"
        )
    column, metric, comparison, bound = found.group("column", "metric", "comparison", "bound")
    return Rule(text, column, metric, comparison, float(bound))


def check_rules(
    rules: Sequence[Rule], of_lists: Sequence[str], by_column: Mapping[str, Sequence[str]]
) -> None:
    """Refuse a rule on a metric or column that the audit does not have."""
    for rule in rules:
        columns = by_column if rule.column is None else {rule.column}
        if rule.column is not None and rule.column not in by_column:
            raise InputError(
                f"the rule {rule.text!r} names column {rule.column!r}: the columns are "
                f"{', '.join(by_column)}"
            )
        known = {name for column in columns for name in by_column[column]}
        if rule.column is None:
            known |= set(of_lists)
        if rule.metric not in known:
            some = [*(of_lists if rule.column is None else ()), *next(iter(by_column.values()))]
            raise InputError(
                f"the rule {rule.text!r} is on a metric that this audit does not have: its "
                f"metrics are {', '.join(some)}"
            )


def applied(
    rules: Sequence[Rule], of_lists: Mapping[str, Any], by_column: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return a record of each rule and each value it is on.

    `fired` says whether the rule holds, and the audit fails; None where the value is undefined.
    """
    records = []
    for rule in rules:
        values: dict[str | None, Any] = {
            column: metrics[rule.metric]
            for column, metrics in by_column.items()
            if rule.metric in metrics and rule.column in (None, column)
        }
        if rule.column is None and rule.metric in of_lists:
            values[None] = of_lists[rule.metric]
        for column, cell in values.items():
            value = cell.get("mean", cell.get("value"))
            records.append(
                {
                    "rule": rule.text,
                    "column": column,
                    "metric": rule.metric,
                    "value": value,
                    "fired": rule.holds(value) if value is not None else None,
                }
            )
    return records
