"""A table of rankings in a new order by a re-ranker, with metrics of both orders."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from fairtopk.auditing.audit import AuditRequest, labelled
from fairtopk.auditing.measures import measure, padded_lists
from fairtopk.auditing.rankings import Attribute, Columns, Labelled, Rankings, Source, name_of
from fairtopk.data.tables import PARQUET
from fairtopk.errors import InputError
from fairtopk.lists.batch import rank as ranks_of
from fairtopk.metrics.chance import Floor
from fairtopk.reranking.lists import Candidates, ExposureProgram, Settings, dealt
from fairtopk.reranking.request import RerankRequest, Unmet, reordered_lists
from fairtopk.storage import replacing
from fairtopk.terminal import Progress

OLD_RANK, NEW_RANK, MET = ADDED = "old_rank", "new_rank", "met"
SHUFFLES = 2  # for p-values, which are not used here; floors take as many as they need

Floats = NDArray[np.floating]
Ints = NDArray[np.int32]


class NewOrder(NamedTuple):
    """The new order of lists."""

    score: Floats  # those of the list by new rank; minus the rank if ranks were given, [n_rows]
    old_rank: Ints  # rank of each row from 1, [n_rows]
    new_rank: Ints  # the same in the new order, [n_rows]
    met: NDArray[np.bool_]  # which lists meet the targets, [n_queries]
    unmet: Unmet  # counts the others


@dataclass(frozen=True, eq=False)
class RerankedTable:
    """A table of rankings before and after re-ranking."""

    rankings: Rankings  # the original lists
    attribute: Attribute  # their groups
    order: NewOrder  # their new order, by row of `rankings`
    before: dict[str, Floats]  # metrics of the old order by name, one value per list
    after: dict[str, Floats]  # the same of the new order
    floors: dict[str, Floor]  # chance level of each gap in the new order

    def frame(self, columns: Columns) -> pl.DataFrame:
        """Return the columns that were read, lists in their new order.

        The column of scores or ranks has the new ones, so that the new table can be used like
        the old; `old_rank`, `new_rank` and `met` are added.
        """
        rankings, order = self.rankings, self.order
        start = np.repeat(rankings.offsets[:-1], rankings.length)
        slot = np.empty(len(start), np.int64)
        slot[start + order.new_rank - 1] = np.arange(len(start))
        row = slot if rankings.row is None else rankings.row[slot]
        new = order.score.astype(np.float64) if rankings.scored else order.new_rank
        frame, grades = rankings.table.frame, columns.relevance
        texts = [path for path in rankings.table.paths if path.suffix.lower() not in PARQUET]
        if grades is not None and texts:
            # What is read of a text are floats; grades that are whole numbers stay such.
            whole = frame[grades].cast(pl.Int64)
            frame = frame.with_columns(whole) if (whole == frame[grades]).all() else frame
        return frame[row].with_columns(
            pl.Series(columns.ordering(), new[slot]),
            pl.Series(OLD_RANK, order.old_rank[slot]),
            pl.Series(NEW_RANK, order.new_rank[slot]),
            pl.Series(MET, np.repeat(order.met, rankings.length)),
        )


def rerank_table(
    source: Source,
    request: AuditRequest,
    reranking: RerankRequest,
    *,
    merit: str | None,
    progress: Progress,
) -> RerankedTable:
    """Return the rankings of a table in a new order, with metrics of both orders.

    These are at the K of `request`. Several columns of groups are combined. `merit` is the
    column that `exposure-lp` maximises; None: the scores.
    """
    names, ordering = [*request.columns.names(), *request.groups], request.columns.ordering()
    for name in names:
        if name in ADDED:
            raise InputError(
                f"the new table has a column {name!r} of its own; rename yours before you "
                f"re-rank by it"
            )
    if names.count(ordering) > 1:
        raise InputError(
            f"{ordering!r} orders the lists and is written anew; name another column for all "
            f"else"
        )
    reranking = reranking.checked()
    request.check()
    if merit is not None and reranking.method != "exposure-lp":
        raise InputError(f"{reranking.method} takes no merit; it is for exposure-lp")
    progress(f"reading {name_of(source)}", 0, 0)
    given = labelled(source, request, merit=merit)
    rankings, attribute = given.rankings, given.attributes[-1]
    settings = reranking.settings(attribute.names)
    worth = rankings.score if given.merit is None else given.merit
    if isinstance(settings, ExposureProgram) and settings.notion != "parity":
        if not rankings.scored and merit is None:
            raise InputError(
                f"{settings.notion} divides by relevance, and there are ranks alone; name a "
                f"column of relevance from 0 with --merit, or use --notion parity"
            )
        least = int(worth.argmin())
        if worth[least] < 0:
            raise InputError(
                f"{rankings.place(least)}: {merit or ordering} is {worth[least]:g}, but "
                f"{settings.notion} divides by relevance; name a column of relevance from 0 "
                f"with --merit, or use --notion parity"
            )
    given = Labelled(rankings, [attribute], worth)
    order = _reordered(given, reranking, settings, progress)
    order.unmet.refuse(reranking, "query", rankings.query_ids)
    reordered = given._replace(rankings=replace(rankings, score=order.score))
    before = measure(given, request.ks, shuffles=0, seed=0, progress=progress)
    after = measure(reordered, request.ks, shuffles=SHUFFLES, seed=0, progress=progress)
    return RerankedTable(
        rankings=rankings,
        attribute=attribute,
        order=order,
        before={**before.lists, **before.by_attribute[0].gaps},
        after={**after.lists, **after.by_attribute[0].gaps},
        floors=after.by_attribute[0].floors,
    )


def write_table(frame: pl.DataFrame, path: Path) -> None:
    """Write a frame as Parquet or CSV by the ending of `path`, all or nothing."""
    with replacing(path) as temporary:
        if path.suffix.lower() in PARQUET:
            frame.write_parquet(temporary)
        else:
            frame.write_csv(temporary)


def _reordered(
    given: Labelled, reranking: RerankRequest, settings: Settings, progress: Progress
) -> NewOrder:
    """Return the new order of lists by one attribute, made block by block."""
    rankings, (attribute,), worth = given
    assert worth is not None
    n_rows, n_queries, unmet = len(rankings.item), len(rankings.query_ids), Unmet()
    score, met = np.empty_like(rankings.score), np.empty(n_queries, np.bool_)
    old_rank, new_rank = np.empty((2, n_rows), np.int32)
    done = 0
    for query, mask, row in padded_lists(rankings):
        group = np.where(mask, attribute.group[row], np.int16(-1))
        lists = Candidates(
            scores=torch.from_numpy(rankings.score[row]),
            mask=torch.from_numpy(mask),
            group=torch.from_numpy(group),
            relevance=torch.from_numpy(worth[row]),
            query=torch.from_numpy(query),
            names=attribute.names,
        )
        outcome = reordered_lists(reranking, lists, settings, unmet)
        new, due = dealt(lists, outcome.slot)
        rows = row[mask]
        old_rank[rows] = ranks_of(lists.scores, lists.mask).numpy()[mask]
        new_rank[rows] = new.numpy()[mask]
        score[rows] = due.numpy()[mask] if rankings.scored else -new.numpy()[mask]
        met[query] = outcome.met.numpy()
        done += len(rows)
        progress("re-ranking", done, n_rows)
    return NewOrder(score, old_rank, new_rank, met, unmet)
