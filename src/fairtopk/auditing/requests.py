"""From what is asked of a table to what is found in it."""

from pathlib import Path
from typing import NamedTuple

import narwhals as nw
from narwhals.typing import IntoDataFrame

from fairtopk.auditing.attributes import (
    Attribute,
    attribute_of_items,
    attribute_of_rows,
    intersection,
    items_table,
    numbered_as,
)
from fairtopk.auditing.measures import Findings, measure
from fairtopk.auditing.rankings import Columns, Rankings, rankings_of, read_source
from fairtopk.data.columns import require_column
from fairtopk.data.origin import Origin
from fairtopk.errors import InputError
from fairtopk.metrics.p_value import SHUFFLES

SHUFFLED_ROWS = 10**9  # of all shuffles of a column; these take some ten seconds
ROWS_OF_A_LIST = 10  # that cost as much as a list by itself
LEAST_SHUFFLES = 99


class Request(NamedTuple):
    """What is asked of a table, checked."""

    columns: Columns
    groups: list[str]
    items: IntoDataFrame | str | Path | None
    items_item: str
    intersections: bool
    ks: tuple[int, ...]
    separator: str
    seed: int


def findings(
    source: IntoDataFrame | str | Path, request: Request, like: Findings | None = None
) -> Findings:
    """Return what is found in rankings; with `like`, groups are numbered as there."""
    of_items, origin = None, Origin()
    if request.items is not None:
        of_items, origin = items_table(
            request.items, request.items_item, separator=request.separator
        )
    there = _columns(of_items)
    own = [name for name in request.groups if name not in there]
    if of_items is not None and len(own) == len(request.groups):
        require_column(own[0], there, origin)
    table = read_source(source, request.columns, own, separator=request.separator)
    rankings = rankings_of(table, request.columns)
    attributes = [
        attribute_of_rows(rankings, name)
        if of_items is None or name in own
        else attribute_of_items(rankings, name, of_items, request.items_item, origin)
        for name in request.groups
    ]
    if request.intersections:
        attributes.append(intersection(attributes))
    if like is not None:
        attributes = [
            _numbered_like(one, other.attribute)
            for one, other in zip(attributes, like.by_attribute, strict=True)
        ]
    shuffles = shuffles_for(rankings) if like is None else 0
    return measure(rankings, attributes, request.ks, shuffles=shuffles, seed=request.seed)


def _numbered_like(one: Attribute, other: Attribute) -> Attribute:
    if not set(one.names) & set(other.names):
        raise InputError(
            f"the baseline has other labels of {one.name}, such as {one.names[0]!r}, than the "
            f"rankings audited, such as {other.names[0]!r}"
        )
    return numbered_as(one, other.names)


def _columns(table: IntoDataFrame | None) -> list[str]:
    return [] if table is None else nw.from_native(table, eager_only=True).columns


def shuffles_for(rankings: Rankings) -> int:
    """Return how often labels are shuffled for a p-value: less often if there are many."""
    once = len(rankings.item) + ROWS_OF_A_LIST * len(rankings.query_ids)
    return max(LEAST_SHUFFLES, min(SHUFFLES, SHUFFLED_ROWS // once))
