"""From what is asked of a table to the lists and groups that are measured."""

from collections.abc import Iterable
from typing import NamedTuple

import narwhals as nw
from narwhals.typing import IntoDataFrame

from fairtopk.arguments import checked_flag, checked_text, shown
from fairtopk.auditing.attributes import (
    PRODUCT,
    Attribute,
    attribute_of_items,
    attribute_of_rows,
    intersection,
    numbered_as,
)
from fairtopk.auditing.measures import gaps_of
from fairtopk.auditing.pairing import Labelled
from fairtopk.auditing.rankings import Rankings, rankings_of
from fairtopk.auditing.rules import Offer
from fairtopk.auditing.sources import Columns, OneSource, Source, read_items, read_source
from fairtopk.data.columns import check_names, require_column
from fairtopk.data.origin import Origin
from fairtopk.data.text import check_separator
from fairtopk.errors import InputError
from fairtopk.metrics.grouped import NOTIONS
from fairtopk.metrics.p_value import SHUFFLES

SHUFFLED_ROWS = 10**9  # of all shuffles of a column; these take some five seconds
ROWS_OF_A_LIST = 10  # that cost as much as a list by itself
LEAST_SHUFFLES = 99
MOST_K = 100_000  # every place up to the largest K is counted
MOST_KS = 100


class Request(NamedTuple):
    """What is asked of a table; see `audit`."""

    columns: Columns
    groups: list[str]
    items: OneSource | None
    items_item: str
    local_items: bool
    intersections: bool
    ks: tuple[int, ...]
    separator: str
    seed: int

    def check(self) -> None:
        """Refuse what cannot be asked of any table."""
        given, columns = self.groups, self.columns
        optional = {name: getattr(columns, name) for name in ("score", "rank", "relevance")}
        check_names({"query": columns.query, "item": columns.item}, optional)
        for name in given:
            checked_text("each of groups", name)
        check_names({}, {"items_item": self.items_item})
        check_separator(self.separator)
        checked_flag("local_items", self.local_items)
        checked_flag("intersections", self.intersections)
        if not given or len(set(given)) < len(given):
            raise InputError(f"groups must name columns, each once, got {', '.join(given)!r}")
        if len(self.ks) > MOST_KS or self.ks[-1] > MOST_K:
            raise InputError(
                f"k must be up to {MOST_KS} lengths of the top of up to {MOST_K:,} each, got "
                f"{len(self.ks):,} up to {shown(self.ks[-1])}"
            )
        if self.columns.query in given:
            raise InputError(
                f"groups names {self.columns.query!r}, the column of queries: each list would "
                f"be of one group, and there would be nothing to compare"
            )
        if self.intersections and len(given) < 2:
            raise InputError("intersections need two columns of groups or more, got one")
        if self.local_items and self.items is not None:
            raise InputError(
                "local items have ids that mean nothing outside of their query, and a table of "
                "items cannot label them; give one of the two"
            )
        self.columns.ordering()

    def offer(self) -> Offer:
        """Return what rules may be on."""
        measured = gaps_of(self.columns.score is not None)
        missing = [gap for gap in NOTIONS if gap not in measured]
        needs = dict.fromkeys(_forms(missing), "scores (--score)")
        if self.columns.relevance is None:
            needs["ndcg"] = "a column of relevance (--relevance)"
        product = [PRODUCT.join(self.groups)] if self.intersections else []
        return Offer(
            ks=self.ks,
            columns=[*self.groups, *product],
            of_lists=["ndcg"] if self.columns.relevance is not None else [],
            of_columns=["impact_ratio", "impact_ratio_p", *_forms(measured)],
            needs=needs,
        )


def labelled(source: Source, request: Request, like: Labelled | None = None) -> Labelled:
    """Return the lists of a table and their groups; with `like`, numbered as there."""
    of_items, origin = None, Origin()
    if request.items is not None:
        of_items, origin = read_items(
            request.items, request.items_item, separator=request.separator
        )
    there = _columns(of_items)
    own = [name for name in request.groups if name not in there]
    if of_items is not None and len(own) == len(request.groups):
        require_column(own[0], there, origin)
    table = read_source(source, request.columns, own, separator=request.separator)
    rankings = rankings_of(table, request.columns, local=request.local_items)
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
            _numbered_like(one, other)
            for one, other in zip(attributes, like.attributes, strict=True)
        ]
    return Labelled(rankings, attributes)


def shuffles_for(rankings: Rankings) -> int:
    """Return how often labels are shuffled for a p-value: less often if there are many."""
    once = len(rankings.item) + ROWS_OF_A_LIST * len(rankings.query_ids)
    return max(LEAST_SHUFFLES, min(SHUFFLES, SHUFFLED_ROWS // once))


def _forms(gaps: Iterable[str]) -> list[str]:
    return [f"{gap}{form}" for gap in gaps for form in ("", "_signed", "_floor", "_p")]


def _numbered_like(one: Attribute, other: Attribute) -> Attribute:
    if not set(one.names) & set(other.names):
        raise InputError(
            f"the baseline has other labels of {one.name}, such as {one.names[0]!r}, than the "
            f"rankings audited, such as {other.names[0]!r}"
        )
    return numbered_as(one, other.names)


def _columns(table: IntoDataFrame | None) -> list[str]:
    return [] if table is None else nw.from_native(table, eager_only=True).columns
