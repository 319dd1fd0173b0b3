"""Rules that an audit can fail: ``impact_ratio@10 < 0.8``, of one column ``sex:...``.

A rule is read word by word and compared; nothing in it is ever run.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from fairtopk.errors import InputError
from fairtopk.terminal import shown

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
CLOSE = 0.5  # of 1: how like another name is to be offered in its place
NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
FORM = re.compile(
    r"\s*(?:(?P<column>\S.*?)\s*:\s*)??(?P<metric>[A-Za-z_]+)@(?P<k>[0-9]{1,9})"
    rf"\s*(?P<comparison><=|>=|<|>)\s*(?P<bound>{NUMBER})\s*"
)


class Rule(NamedTuple):
    """When an audit fails.

    Attributes:
        text: As it was given.
        column: Whose groups are meant; None: any column's.
        metric: Such as ``impact_ratio``.
        k: Length of the top.
        comparison: One of `COMPARISONS`.
        bound: What the metric is compared with.
    """

    text: str
    column: str | None
    metric: str
    k: int
    comparison: str
    bound: float

    def holds(self, value: float) -> bool:
        """Return whether the audit fails if the metric has this value."""
        return COMPARISONS[self.comparison](value, self.bound)


class Offer(NamedTuple):
    """What rules may be on.

    Attributes:
        ks: Lengths of the top.
        columns: Whose groups are audited.
        of_lists: Metrics of lists, whatever their groups.
        of_columns: Metrics of each column.
        needs: Metrics that are left out, and what they need.
    """

    ks: Sequence[int]
    columns: Sequence[str]
    of_lists: Sequence[str]
    of_columns: Sequence[str]
    needs: Mapping[str, str]


def parsed_rule(text: str) -> Rule:
    """Return the rule that a text spells out."""
    found = FORM.fullmatch(text) if isinstance(text, str) else None
    if found is None or not math.isfinite(float(found["bound"])):
        raise InputError(
            f"a rule is a metric@K, < <= > or >=, and a number, such as "
            f"'impact_ratio@10 < 0.8' or 'sex:impact_ratio@10 < 0.8', got {shown(text)}"
        )
    column, metric, comparison = found.group("column", "metric", "comparison")
    return Rule(text, column, metric, int(found["k"]), comparison, float(found["bound"]))


def check_rules(rules: Sequence[Rule], offer: Offer) -> None:
    """Refuse a rule on a metric, K or column that the audit does not have."""
    for rule in rules:
        said = f"the rule {rule.text!r}"
        known = [*offer.of_lists, *offer.of_columns]
        if rule.column is not None and rule.column not in offer.columns:
            raise InputError(
                f"{said} names column {rule.column!r}: the columns are "
                f"{', '.join(offer.columns)}"
            )
        if rule.metric in offer.needs:
            raise InputError(f"{said}: {rule.metric} needs {offer.needs[rule.metric]}")
        if rule.metric not in known:
            named = [*known, *offer.needs]
            close = get_close_matches(rule.metric.lower(), named, cutoff=CLOSE) or known
            raise InputError(
                f"{said}: no metric is called {rule.metric!r}; there is {', '.join(close)}"
            )
        if rule.column is not None and rule.metric in offer.of_lists:
            raise InputError(
                f"{said}: {rule.metric} is of whole lists, whatever their groups; leave out "
                f"{rule.column + ':'!r}"
            )
        if rule.k not in offer.ks:
            ks = ", ".join(map(str, offer.ks))
            raise InputError(f"{said}: K is {ks}, no @{rule.k}; add {rule.k} to --k")


def applied(
    rules: Sequence[Rule], of_lists: Mapping[str, Any], by_column: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return a record of each rule and each value it is on.

    `fired` says whether the rule holds, and the audit fails; None where the value is undefined.
    `tied` are the lists in which equal scores leave the value to the order of rows, and
    `tied_at_cut` those of them in which they leave to it who is in the top.
    """
    records = []
    for rule in rules:
        metric = f"{rule.metric}@{rule.k}"
        values: dict[str | None, Any] = {
            column: metrics[metric]
            for column, metrics in by_column.items()
            if metric in metrics and rule.column in (None, column)
        }
        if rule.column is None and metric in of_lists:
            values[None] = of_lists[metric]
        for column, cell in values.items():
            value = cell.get("mean", cell.get("value"))
            records.append(
                {
                    "rule": rule.text,
                    "column": column,
                    "metric": metric,
                    "value": value,
                    "fired": rule.holds(value) if value is not None else None,
                    "tied": cell["tied"],
                    "tied_at_cut": cell["tied_at_cut"],
                }
            )
    return records
