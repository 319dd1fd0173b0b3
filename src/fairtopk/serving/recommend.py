"""Recommendations: the best items of the whole catalogue for each of some users.

Users whom the model does not know get what most people rated, and are marked.

Recommendations of a trained run, from a file of users to a file of items.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from numpy.typing import NDArray
from torch import nn

from fairtopk.checks import checked_whole
from fairtopk.data.columns import FRAME_ERRORS, Origin, first_line, number_ids
from fairtopk.data.delimited import refuse_odd_bytes
from fairtopk.data.tables import PARQUET, check_csv_safe, guarded, read_table
from fairtopk.errors import InputError
from fairtopk.lists.users import Lists, Ratings
from fairtopk.models.scoring import BLOCK, top_items
from fairtopk.paths import check_file
from fairtopk.runs.open import open_run, run_config
from fairtopk.storage import check_target, replacing

Progress = Callable[[int, int], None]  # users done, users in all

SCHEMA = {"rank": pl.Int32, "score": pl.Float32, "fallback": pl.Boolean}


@dataclass(frozen=True, eq=False)
class Catalogue:
    """What a trained model can recommend, and to whom.

    Attributes:
        user_ids: Original id of each user, ``[n_users]``.
        item_ids: Original id of each item, ``[n_items]``.
        rated: What each user rated already, whether to train on or to measure with.
        popularity: Training ratings of each item, ``[n_items]``.
    """

    user_ids: pl.Series
    item_ids: pl.Series
    rated: Ratings
    popularity: NDArray[np.int64]


def catalogue_of(lists: Lists) -> Catalogue:
    """Return what a model trained on `lists` can recommend."""
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
    One who is not in the catalogue has the items with the most training ratings, a score that
    is their number, and True for `fallback`.

    Args:
        scorer: Scores a `Batch`, or has ``score_all(users)``; it is given no groups.
        catalogue: What `catalogue_of` the training data returned.
        users: Original ids, as a list, array or series; left out, all users of the catalogue.
        k: How many items.
        include_rated: Whether items that a user rated already may be among them.
        progress: Called with how many users are done, and how many there are.

    Raises:
        InputError: `k` is below 1, an id is missing, or a score is not finite.
    """
    blocks = recommend_blocks(
        scorer, catalogue, users, k=k, include_rated=include_rated, progress=progress
    )
    return pl.concat(blocks)


def recommend_blocks(
    scorer: nn.Module,
    catalogue: Catalogue,
    users: Any = None,
    *,
    k: int = 10,
    include_rated: bool = False,
    progress: Progress | None = None,
    origin: Origin | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield the rows of `recommend` for blocks of users, however many users there are.

    `origin` is where the users came from, so that an error can point there.
    """
    checked_whole("k", k, least=1)
    ids = known = catalogue.user_ids
    if users is not None:
        ids, known = _in_one_type(_distinct(users, origin or Origin("users")), known)
    numbers = _numbers(ids, known)
    # Of equally popular items the one that was rated first.
    popular = np.argsort(-catalogue.popularity, kind="stable").astype(np.int32)
    k = min(k, len(popular))
    for start in range(0, len(ids), BLOCK):
        block = slice(start, start + BLOCK)
        number = numbers[block]
        item = np.tile(popular[:k], (len(number), 1))
        scores = catalogue.popularity[item].astype(np.float32)
        there = number >= 0
        if there.any():
            excluded = None if include_rated else catalogue.rated
            n_items = len(popular)
            top = top_items(scorer, number[there], k=k, n_items=n_items, excluded=excluded)
            item[there], scores[there] = top
        yield _frame(ids[block], catalogue.item_ids, item, scores, ~there)
        if progress is not None:
            progress(min(start + BLOCK, len(ids)), len(ids))


def _frame(
    users: pl.Series,
    item_ids: pl.Series,
    item: NDArray[np.int32],
    scores: NDArray[np.float32],
    fallback: NDArray[np.bool_],
) -> pl.DataFrame:
    """Return the rows of a block; -1 among the items, ``[Q, k]``, is for none."""
    row, place = np.nonzero(item >= 0)
    columns = {
        "user": users.gather(row),
        "item": item_ids.gather(item[row, place]),
        "rank": place + 1,
        "score": scores[row, place],
        "fallback": fallback[row],
    }
    return pl.DataFrame(columns, schema_overrides=SCHEMA)


def _distinct(users: Any, origin: Origin) -> pl.Series:
    """Return each id once, in order of first appearance."""
    try:
        ids = pl.Series("user", [users] if isinstance(users, str) else users)
    except (*FRAME_ERRORS, RuntimeError) as error:
        raise InputError(
            f"{origin.name} must hold ids, text or numbers ({first_line(error)})"
        ) from error
    if len(ids) == 0:
        raise InputError(f"{origin.name} holds no ids")
    return number_ids(ids, origin)[1]


def _in_one_type(ids: pl.Series, known: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return both in the type of the second if no id changes by that, else as text."""
    if ids.dtype == known.dtype:
        return ids, known
    converted = ids.cast(known.dtype, strict=False)
    numbers = ids.dtype.is_numeric() and known.dtype.is_numeric()
    exact = ids if numbers else ids.cast(pl.String)
    if converted.cast(exact.dtype, strict=False).eq_missing(exact).all():
        return converted, known
    if ids.dtype.is_integer() and known.dtype.is_integer():  # some lie outside that type
        return ids, known.cast(ids.dtype, strict=False)
    return ids.cast(pl.String), known.cast(pl.String)


def _numbers(ids: pl.Series, known: pl.Series) -> NDArray[np.int64]:
    """Return the number of each id among those that are known, -1 for others."""
    table = pl.DataFrame({"id": known}).with_row_index("number")
    found = ids.to_frame("id").join(table, on="id", how="left", maintain_order="left")
    numbers: NDArray[np.int64] = found["number"].cast(pl.Int64).fill_null(-1).to_numpy()
    return numbers


Write = Callable[[pl.DataFrame], None]

CSV = (".csv",)
LINES = (".txt", "")  # endings of files with an id in each line
ROWS = 2**17  # that are written at once, at least


class Users(NamedTuple):
    """Ids of users, and where they came from."""

    ids: pl.Series
    origin: Origin
    path: Path | None = None


class Written(NamedTuple):
    """What a file of recommendations holds.

    Attributes:
        users: How many have items in it.
        unknown: How many of them are not in the data.
        rows: How many items they have in all.
        n_items: How many items there are to recommend.
    """

    users: int
    unknown: int
    rows: int
    n_items: int


def recommend_run(
    run: Path,
    out: Path,
    *,
    users: Users | None = None,
    k: int = 10,
    include_rated: bool = False,
    csv_safe: bool = False,
    data: Path | None = None,
    progress: Progress | None = None,
) -> Written:
    """Write the recommendations of a run's model to a Parquet or CSV file, all or nothing.

    Args:
        run: The run's folder.
        out: The file; its ending tells which kind it is.
        users: What `read_users` returned; left out, all users of the data.
        k: How many items for each user.
        include_rated: Whether items that a user rated already may be among them.
        csv_safe: Whether ids that a spreadsheet would run get an apostrophe in front.
        data: Where the data is, if not where the config says.
        progress: Called with how many users are done, and how many there are.
    """
    checked_whole("k", k, least=1)
    inputs = [run_config(run, data=data).data.path, users.path if users is not None else None]
    check_target(out, endings=(*CSV, *PARQUET), inputs=inputs)
    check_csv_safe(csv_safe, out)
    trained = open_run(run, data=data)
    catalogue = catalogue_of(trained.user_lists)
    blocks = recommend_blocks(
        trained.scorer,
        catalogue,
        None if users is None else users.ids,
        k=k,
        include_rated=include_rated,
        progress=progress,
        origin=None if users is None else users.origin,
    )
    if csv_safe:
        blocks = map(guarded, blocks)
    return write_frames(blocks, out, n_items=len(catalogue.item_ids))


def read_users(path: Path, *, column: str = "user") -> Users:
    """Return the ids of a CSV or Parquet file, or of a text with one in each line.

    Args:
        path: The file; its ending tells which kind it is.
        column: Of ids in a table.
    """
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


def write_frames(frames: Iterable[pl.DataFrame], path: Path, *, n_items: int) -> Written:
    """Write blocks of recommendations as they come, to a file that appears when all are in."""
    users = unknown = rows = held = 0
    parts: list[pl.DataFrame] = []
    writer = _parquet if path.suffix.lower() in PARQUET else _csv
    with replacing(path) as temporary, writer(temporary) as write:
        for frame in frames:
            marks = frame.unique("user")["fallback"]
            users, unknown = users + len(marks), unknown + int(marks.sum())
            rows, held = rows + len(frame), held + len(frame)
            parts.append(frame)
            if held >= ROWS:
                write(pl.concat(parts))
                parts, held = [], 0
        if parts:
            write(pl.concat(parts))
    return Written(users, unknown, rows, n_items)


@contextmanager
def _csv(path: Path) -> Iterator[Write]:
    with path.open("wb") as file:
        yield lambda part: part.write_csv(file, include_header=file.tell() == 0)


@contextmanager
def _parquet(path: Path) -> Iterator[Write]:
    with ExitStack() as closing:
        writer = None

        def write(part: pl.DataFrame) -> None:
            nonlocal writer
            table = part.to_arrow(compat_level=pl.CompatLevel.oldest())
            if writer is None:
                opened = pq.ParquetWriter(path, table.schema, compression="zstd")
                writer = closing.enter_context(opened)
            writer.write_table(table)

        yield write
