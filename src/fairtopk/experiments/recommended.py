"""Recommendations of a trained run, from a file of users to a file of items."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from fairtopk.arguments import checked_whole
from fairtopk.data.files import replacing
from fairtopk.data.origin import Origin
from fairtopk.data.paths import check_file
from fairtopk.data.table_files import PARQUET, read_table
from fairtopk.data.text import refuse_odd_bytes
from fairtopk.errors import InputError
from fairtopk.experiments.opening import open_run, run_config
from fairtopk.experiments.spreadsheets import check_csv_safe, guarded
from fairtopk.experiments.targets import check_target
from fairtopk.recommending import Progress, catalogue_of, recommend_blocks

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
    catalogue = catalogue_of(trained.lists)
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
