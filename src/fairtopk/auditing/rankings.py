"""Rankings made elsewhere: lists of items, from a table with a row per query and item."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairtopk.auditing.sources import Columns, Table
from fairtopk.data.bounds import LARGEST_RELEVANCE
from fairtopk.data.columns import number_ids, ratings_array
from fairtopk.errors import InputError
from fairtopk.kernels.csr import first_repeat, is_sorted, offsets_of, stable_order

EVERYTHING = (-np.inf, np.inf)


@dataclass(frozen=True, eq=False, repr=False)
class Rankings:
    """Lists of items, grouped by query (CSR); rows of a query keep the order of the table.

    Attributes:
        offsets: Start of each query's rows, ``[n_queries + 1]``.
        item: Item number of each row.
        score: By which lists fall; minus the rank where ranks were given.
        relevance: Grade of each row, or None.
        row: Row of the table that each came from, or None where they are in its order.
        query_ids: Original id of each query.
        item_ids: Original id of each item.
        scored: Whether there were scores; of ranks no softmax can be taken.
        local: Whether an item's id means something only within its query.
        table: Where all this came from.
    """

    offsets: NDArray[np.int64]
    item: NDArray[np.int32]
    score: NDArray[np.floating]
    relevance: NDArray[np.floating] | None
    row: NDArray[np.int64] | None
    query_ids: pl.Series
    item_ids: pl.Series
    scored: bool
    local: bool
    table: Table

    @property
    def length(self) -> NDArray[np.int64]:
        """Number of items of each list."""
        return np.diff(self.offsets)

    @property
    def n_items(self) -> int:
        """How many different items there are."""
        return len(self.item) if self.local else len(self.item_ids)

    @property
    def ordered_by(self) -> str:
        """What orders the lists: "score" or "rank"."""
        return "score" if self.scored else "rank"

    def place(self, slot: int) -> str:
        """Return where a row of the lists is in the table, in words."""
        return self.table.origin.row(slot if self.row is None else int(self.row[slot]))


def rankings_of(table: Table, columns: Columns, *, local: bool) -> Rankings:
    """Return the lists of a table, refusing values missing and an item twice in a list."""
    frame, origin = table.frame, table.origin
    query, query_ids = number_ids(frame[columns.query], origin)
    item, item_ids = number_ids(frame[columns.item], origin)
    score, relevance = _scores(table, columns), None
    if columns.relevance is not None:
        grades = (0.0, LARGEST_RELEVANCE)
        relevance = ratings_array(frame[columns.relevance], grades, origin)
    offsets, row = offsets_of(query, len(query_ids)), None
    if not is_sorted(query):
        row = stable_order(query, offsets)
        item, score = item[row], score[row]
        relevance = relevance[row] if relevance is not None else None
    rankings = Rankings(
        offsets=offsets,
        item=item,
        score=score,
        relevance=relevance,
        row=row,
        query_ids=query_ids,
        item_ids=item_ids,
        scored=columns.score is not None,
        local=local,
        table=table,
    )
    _refuse_repeats(rankings)
    return rankings


def _scores(table: Table, columns: Columns) -> NDArray[np.floating]:
    ordering = columns.ordering()
    score = ratings_array(table.frame[ordering], EVERYTHING, table.origin)
    if columns.score is not None:
        return score
    if score.min() < 0:
        raise InputError(
            f"{table.origin.row(int(score.argmin()))}: the rank in {ordering!r} is "
            f"{score.min():g}, but ranks rise from 1; a column of scores goes to score"
        )
    return -score


def _refuse_repeats(rankings: Rankings) -> None:
    earlier, later = first_repeat(rankings.offsets, rankings.item, len(rankings.item_ids))
    if later >= 0:
        query = int(np.searchsorted(rankings.offsets, later, side="right")) - 1
        raise InputError(
            f"{rankings.place(later)}: query {rankings.query_ids[query]!r} ranks item "
            f"{rankings.item_ids[int(rankings.item[later])]!r} again (first in "
            f"{rankings.place(earlier)}); keep one"
        )
