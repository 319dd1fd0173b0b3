"""Recommendations: the best items of the whole catalogue for each of some users.

Users whom the model does not know get the most rated items, and are marked.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from numpy.typing import NDArray
from torch import nn

from fairtopk.checks import checked_whole
from fairtopk.data.columns import FRAME_ERRORS, Origin, first_line, number_ids
from fairtopk.data.tables import PARQUET, check_csv_safe, guarded, read_table, refuse_odd_bytes
from fairtopk.errors import InputError
from fairtopk.lists.users import Lists, Ratings
from fairtopk.models.scoring import BLOCK, top_items
from fairtopk.runs.open import open_run, run_config
from fairtopk.storage import check_file, check_target, replacing

CSV = (".csv",)
LINES = (".txt", "")  # endings of files with an id in each line
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


class RecommendRequest(NamedTuple):
    """The recommendations to make."""

    users: Users | None = None  # for whom; None is all users of the catalogue
    k: int = 10  # items for each user
    include_rated: bool = False  # whether items that a user rated already may be among them


class Written(NamedTuple):
    """Contents of a file of recommendations, counted."""

    users: int  # who have items in it
    unknown: int  # of them, not in the data
    rows: int  # items that they have in all
    n_items: int  # that there are to recommend


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
        k: How many items.
        include_rated: Whether items that a user rated already may be among them.
        progress: Called with how many users are done, and how many there are.

    Raises:
        InputError: `k` is below 1, an id is missing, or a score is not finite.
    """
    given = None if users is None else Users(users, Origin("users"))
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
    if request.users is not None:
        ids, numbers = _numbered(request.users, catalogue.user_ids)
    # Ties keep the order of the items.
    popular = np.argsort(-catalogue.popularity, kind="stable").astype(np.int32)
    n_items, excluded = len(popular), None if request.include_rated else catalogue.rated
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
        request: For whom, and how many items.
        csv_safe: Whether ids that a spreadsheet would run get an apostrophe in front.
        data: Where the data is, if not where the config says.
        progress: Called with how many users are done, and how many there are.
    """
    checked_whole("k", request.k, least=1)
    users = request.users
    inputs = [run_config(run, data=data).data.path, users.path if users is not None else None]
    check_target(out, endings=(*CSV, *PARQUET), inputs=inputs)
    check_csv_safe(csv_safe, out)
    trained = open_run(run, data=data)
    catalogue = catalogue_of(trained.user_lists)
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
    return Written(n_users, unknown, rows, n_items)


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
