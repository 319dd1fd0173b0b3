"""Recommendations: the best items of the whole catalogue for each of some users.

Users whom the model does not know get the most rated items, and are marked. A model that reads
histories ranks new users by theirs; only those without an item of the catalogue are marked.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import narwhals as nw
import numpy as np
import polars as pl
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from numpy.typing import NDArray
from torch import Tensor, nn

from fairtopk.checks import checked_whole
from fairtopk.data.columns import FRAME_ERRORS, Origin, first_line, number_ids
from fairtopk.data.interactions import Columns, interactions_from
from fairtopk.data.tables import PARQUET, check_csv_safe, guarded, read_table, refuse_odd_bytes
from fairtopk.errors import InputError
from fairtopk.lists.users import Lists, Ratings, kept_ratings
from fairtopk.models.histories import HistoryScorer, some_of
from fairtopk.models.registry import fitted_models
from fairtopk.models.scoring import BLOCK, top_items
from fairtopk.runs.open import open_run, run_config
from fairtopk.storage import check_file, check_target, replacing

CSV = (".csv",)
LINES = (".txt", "")  # endings of files with an id in each line
RATING = "rating"  # the column of histories that may be left out
ROWS = 2**17  # that are written at once, about
SCHEMA = {"rank": pl.Int32, "score": pl.Float32, "fallback": pl.Boolean}
Progress = Callable[[int, int], None]  # users done, users in all


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Items that a trained model can recommend, and users whom it knows."""

    user_ids: pl.Series  # original id of each user, [n_users]
    item_ids: pl.Series  # original id of each item, [n_items]
    rated: Ratings  # all of each user, whether for training or for measuring
    popularity: NDArray[np.int64]  # training ratings of each item, [n_items]


class Users(NamedTuple):
    """Ids of users, and where they came from, so that an error can point there."""

    ids: Any
    origin: Origin
    path: Path | None = None


class Histories(NamedTuple):
    """What users rated, who may be new: columns user, item and perhaps rating."""

    table: Any  # a frame
    origin: Origin
    path: Path | None = None


class NewUsers(NamedTuple):
    """Users with histories of items of a catalogue."""

    ids: pl.Series  # original ids, [H]
    ratings: Ratings  # of the items that the catalogue has, user by user
    ignored: int  # ratings of items that it does not have


class RecommendRequest(NamedTuple):
    """The recommendations to make."""

    # For whom; None is all users of the catalogue.
    users: Users | Histories | NewUsers | None = None
    k: int = 10  # items for each user
    include_rated: bool = False  # whether items that a user rated already may be among them


class Written(NamedTuple):
    """Contents of a file of recommendations, counted."""

    users: int  # who have items in it
    unknown: int  # of them, not in the data; of histories, without an item of the catalogue
    rows: int  # items that they have in all
    n_items: int  # that there are to recommend
    ignored: int = 0  # ratings of histories whose item is not in the catalogue


def catalogue_of(lists: Lists) -> Catalogue:
    """Return the catalogue of a model trained on `lists`."""
    data = lists.data
    rated = Ratings(data.offsets, data.item, data.rating)
    popularity = np.bincount(lists.train.item, minlength=data.n_items)
    return Catalogue(data.user_ids, data.item_ids, rated, popularity)


def recommend(
    scorer: nn.Module,
    catalogue: Catalogue,
    users: Any = None,
    *,
    histories: Any = None,
    k: int = 10,
    include_rated: bool = False,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """Return the `k` items that score highest for each user: user, item, rank, score, fallback.

    Users come in their given order, each once, and have fewer rows where fewer items are left.
    One who is not in the catalogue has the items with the most training ratings, their numbers
    of ratings as scores, and True for `fallback`.

    Args:
        scorer: Scores a `Batch`, or has ``score_all(users)``; it is given no groups.
        catalogue: The `catalogue_of` the training data.
        users: Original ids, as a list, array or series; left out, all users of the catalogue.
        histories: Instead of users, a frame of what they rated, with the columns ``user``,
            ``item`` and perhaps ``rating``: they may be new, and are ranked by that alone. It
            takes a model that reads histories, such as ``ease``. Items that are not in the
            catalogue are passed over.
        k: How many items.
        include_rated: Whether items that a user rated already may be among them.
        progress: Called with how many users are done, and how many there are.

    Raises:
        InputError: `k` is below 1, an id is missing, a score is not finite, or the model
            cannot read histories.
    """
    given: Users | NewUsers | None = None if users is None else Users(users, Origin("users"))
    if histories is not None:
        if users is not None:
            raise InputError("histories name their users themselves; leave out users")
        asked = Histories(histories, Origin("histories"))
        given = new_users(scorer, catalogue, asked)
    request = RecommendRequest(given, k, include_rated)
    return pl.concat(recommend_blocks(scorer, catalogue, request, progress=progress))


def recommend_blocks(
    scorer: nn.Module,
    catalogue: Catalogue,
    request: RecommendRequest,
    *,
    progress: Progress | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield the rows of `recommend` for blocks of users, however many users there are."""
    checked_whole("k", request.k, least=1)
    ids, numbers = catalogue.user_ids, np.arange(len(catalogue.user_ids))
    users, rated = request.users, catalogue.rated
    if isinstance(users, Histories):
        users = new_users(scorer, catalogue, users)
    if isinstance(users, NewUsers):
        ids, rated = users.ids, users.ratings
        numbers = np.where(np.diff(rated.offsets) > 0, np.arange(len(ids)), -1)
        scorer = _ByHistory(cast(HistoryScorer, scorer), rated)
    elif users is not None:
        ids, numbers = _numbered(users, catalogue.user_ids)
    # Ties keep the order of the items.
    popular = np.argsort(-catalogue.popularity, kind="stable").astype(np.int32)
    n_items, excluded = len(popular), None if request.include_rated else rated
    k = min(request.k, n_items)
    for start in range(0, len(ids), BLOCK):
        number = numbers[start : start + BLOCK]
        item = np.tile(popular[:k], (len(number), 1))
        scores = catalogue.popularity[item].astype(np.float32)
        known = number >= 0
        if known.any():
            top = top_items(scorer, number[known], k=k, n_items=n_items, excluded=excluded)
            item[known], scores[known] = top
        row, place = np.nonzero(item >= 0)  # -1 where a user has fewer items left
        columns = {
            "user": ids[start : start + BLOCK].gather(row),
            "item": catalogue.item_ids.gather(item[row, place]),
            "rank": place + 1,
            "score": scores[row, place],
            "fallback": ~known[row],
        }
        yield pl.DataFrame(columns, schema_overrides=SCHEMA)
        if progress is not None:
            progress(min(start + BLOCK, len(ids)), len(ids))


class _ByHistory(nn.Module):
    """A scorer of some histories, numbered from 0."""

    def __init__(self, scorer: HistoryScorer, ratings: Ratings) -> None:
        super().__init__()
        self.scorer, self.ratings = scorer, ratings

    def score_all(self, users: Tensor) -> Tensor:
        """Return the scores of all items, ``[Q, n_items]``."""
        return self.scorer.score_histories(some_of(self.ratings, users.numpy()))


def new_users(scorer: nn.Module, catalogue: Catalogue, histories: Histories) -> NewUsers:
    """Return the users of histories, with what they rated of a catalogue.

    Raises:
        InputError: The scorer cannot read histories or needs their ratings, or the table is
            wrong.
    """
    if not isinstance(scorer, HistoryScorer):
        raise InputError(
            f"this model cannot read histories: it has a vector for each user of its data, and "
            f"none for a new one; the models {', '.join(fitted_models())} can"
        )
    table, origin, _ = histories
    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        raise InputError(f"{origin.name} must be a frame with the columns user and item")
    rating = RATING if RATING in frame.columns else None
    if rating is None and scorer.graded:
        raise InputError(
            f"{origin.name} has no column 'rating', and this model reads graded histories "
            f"(model.input); add it"
        )
    columns = Columns("user", "item", rating)
    given = interactions_from(
        frame.to_native(), columns, groups=None, origin=origin, name="histories"
    )
    _, number = _numbered(Users(given.item_ids, origin), catalogue.item_ids)
    item = number[given.item]
    known, every = item >= 0, Ratings(given.offsets, item.astype(np.int32), given.rating)
    return NewUsers(given.user_ids, kept_ratings(every, known), int((~known).sum()))


def _numbered(users: Users, known: pl.Series) -> tuple[pl.Series, NDArray[np.int64]]:
    """Return each id once, in order of first appearance, and its number among those known.

    Ids take the type of the known ones if that changes none of them; otherwise both are
    compared as text. The number of an unknown id is -1.
    """
    given, origin, _ = users
    try:
        ids = pl.Series("user", [given] if isinstance(given, str) else given)
    except (*FRAME_ERRORS, RuntimeError) as error:
        raise InputError(
            f"{origin.name} must hold ids, text or numbers ({first_line(error)})"
        ) from error
    if len(ids) == 0:
        raise InputError(f"{origin.name} holds no ids")
    ids = number_ids(ids, origin)[1]
    if ids.dtype != known.dtype:
        converted = ids.cast(known.dtype, strict=False)
        numeric = ids.dtype.is_numeric() and known.dtype.is_numeric()
        exact = ids if numeric else ids.cast(pl.String)
        if converted.cast(exact.dtype, strict=False).eq_missing(exact).all():
            ids = converted
        elif ids.dtype.is_integer() and known.dtype.is_integer():  # some exceed that type
            known = known.cast(ids.dtype, strict=False)
        else:
            ids, known = ids.cast(pl.String), known.cast(pl.String)
    table = pl.DataFrame({"id": known}).with_row_index("number")
    found = ids.to_frame("id").join(table, on="id", how="left", maintain_order="left")
    return ids, found["number"].cast(pl.Int64).fill_null(-1).to_numpy()


def recommend_run(
    run: Path,
    out: Path,
    request: RecommendRequest,
    *,
    csv_safe: bool = False,
    data: Path | None = None,
    progress: Progress | None = None,
) -> Written:
    """Write the recommendations of a run's model to a Parquet or CSV file, all or nothing.

    Args:
        run: The run's folder.
        out: The file; its ending decides its kind.
        request: For whom, and how many items; `Histories` need a model that reads them.
        csv_safe: Whether ids that a spreadsheet would run get an apostrophe in front.
        data: Where the data is, if not where the config says.
        progress: Called with how many users are done, and how many there are.
    """
    checked_whole("k", request.k, least=1)
    users, path = request.users, None
    if isinstance(users, Users | Histories):
        path = users.path
    inputs = [run_config(run, data=data).data.path, path]
    check_target(out, endings=(*CSV, *PARQUET), inputs=inputs)
    check_csv_safe(csv_safe, out)
    trained = open_run(run, data=data)
    catalogue, ignored = catalogue_of(trained.user_lists), 0
    if isinstance(users, Histories):
        found = new_users(trained.scorer, catalogue, users)
        request, ignored = request._replace(users=found), found.ignored
    blocks = recommend_blocks(trained.scorer, catalogue, request, progress=progress)
    n_users = unknown = rows = 0
    n_items = len(catalogue.item_ids)
    at_once = math.ceil(ROWS / (BLOCK * min(request.k, n_items)))
    with replacing(out) as temporary, ExitStack() as closing:
        file = closing.enter_context(temporary.open("wb"))
        writer: Any = None
        while held := list(islice(blocks, at_once)):
            part = pl.concat(held)
            fallback = part.unique("user")["fallback"]
            n_users, unknown = n_users + len(fallback), unknown + int(fallback.sum())
            rows += len(part)
            part = guarded(part) if csv_safe else part
            if out.suffix.lower() in CSV:
                part.write_csv(file, include_header=file.tell() == 0)
                continue
            table = part.to_arrow(compat_level=pl.CompatLevel.oldest())
            if writer is None:
                opened = pq.ParquetWriter(file, table.schema, compression="zstd")
                writer = closing.enter_context(opened)
            writer.write_table(table)
    return Written(n_users, unknown, rows, n_items, ignored)


def read_histories(path: Path) -> Histories:
    """Return the columns user, item and perhaps rating of a CSV or Parquet file."""
    if path.suffix.lower() not in (*CSV, *PARQUET):
        raise InputError(f"{path} must end in .csv or .parquet (columns user, item, rating)")
    table, origin = read_table(path, ids=["user", "item"])
    if RATING in table.columns and not table[RATING].dtype.is_numeric():
        table, origin = read_table(path, ids=["user", "item"], numbers=[RATING])
    return Histories(table, origin, path)


def read_users(path: Path, *, column: str = "user") -> Users:
    """Return the ids in `column` of a CSV or Parquet file, or in the lines of a text file."""
    kind = path.suffix.lower()
    if kind in (*CSV, *PARQUET):
        table, origin = read_table(path, ids=[column])
        return Users(table[column], origin, path)
    if kind not in LINES:
        raise InputError(f"{path} must end in .csv, .parquet or .txt (an id in each line)")
    check_file(path)
    origin = Origin(path.name)
    refuse_odd_bytes(path, origin)
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path.name} is not UTF-8; save it as UTF-8") from error
    ids = [line.strip() for line in lines if line.strip()]
    return Users(pl.Series(column, ids, dtype=pl.String), origin, path)
