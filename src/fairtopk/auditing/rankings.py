"""Rankings made elsewhere: tables of queries and items become lists with group labels.

Lists are CSR arrays: the items of list q are the slots ``offsets[q] : offsets[q + 1]``.
"""

import glob
import gzip
import hashlib
import zlib
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import polars as pl
from narwhals.typing import IntoDataFrame
from numpy.typing import NDArray

from fairtopk.checks import LARGEST_RELEVANCE, checked_path
from fairtopk.data import columns as cols
from fairtopk.data.columns import Origin
from fairtopk.data.groups import GroupRule, apply_rule, label_items
from fairtopk.data.interactions import checksum, label_texts
from fairtopk.data.tables import PARQUET, read_parquet, read_table
from fairtopk.errors import InputError
from fairtopk.kernels.compiled import compiled
from fairtopk.storage import MOST_FILES, MOST_LINE_BYTES, check_file, open_file, sha256_of

OneSource = IntoDataFrame | str | Path
Source = OneSource | Sequence[str | Path]

ITEMS = Origin("the table of items")
SEPARATORS = (";", "\t", "|", ",")
EVERYTHING = (-np.inf, np.inf)
MOST_GROUPS = 100  # fewer than metrics take: an audit shows each of them
PRODUCT, BOTH = " x ", " & "  # of columns, of labels
UNKNOWN = -1


class Columns(NamedTuple):
    """The columns of a table; a list is ordered by score or by rank."""

    query: str
    item: str
    score: str | None = None
    rank: str | None = None
    relevance: str | None = None

    def ordering(self) -> str:
        """Return the column that orders lists, refusing none and two."""
        if (self.score is None) == (self.rank is None):
            got = "neither" if self.score is None else "both"
            raise InputError(f"give a column of scores or a column of ranks, got {got}")
        return self.score or self.rank or ""

    def names(self) -> list[str]:
        """Return the columns to read."""
        given = (self.query, self.item, self.ordering(), self.relevance)
        return [name for name in given if name is not None]


class Table(NamedTuple):
    """The columns of a table that are needed, and where its rows came from."""

    frame: pl.DataFrame  # the columns
    origin: Origin  # names its rows in errors
    paths: tuple[Path, ...] = ()  # its files; none if it was a frame

    def sha256(self) -> str:
        """Return the SHA-256 of the file, of a list of several, or of a frame's columns."""
        if len(self.paths) == 1:
            return sha256_of(self.paths[0])
        if self.paths:
            lines = "".join(f"{sha256_of(path)}  {path.name}\n" for path in self.paths)
            return hashlib.sha256(lines.encode()).hexdigest()
        names = sorted(self.frame.columns)
        columns = (self.frame[name].cast(pl.String).fill_null("\0") for name in names)
        arrays = (
            (
                texts.str.len_bytes().to_numpy(),
                np.frombuffer(texts.str.join("").item().encode(), np.uint8),
            )
            for texts in columns
        )
        return checksum(chain.from_iterable(arrays), [])


def read_source(
    source: Source,
    columns: Columns,
    groups: Sequence[str],
    *,
    separator: str,
    optional: Sequence[str] = (),
) -> Table:
    """Return the columns that an audit needs of files, a folder of Parquet files or a frame.

    Those of `optional` are read if all tables have them.
    """
    names = [*columns.names(), *groups]
    if not isinstance(source, str | Path | Sequence):
        origin = Origin()
        cols.as_polars(source, names, origin)
        there = nw.from_native(source, eager_only=True).columns
        wanted = [*names, *(name for name in optional if name in there)]
        return Table(cols.as_polars(source, wanted, origin), origin)
    paths, tables = _files_of(source), []
    for path in paths:
        if path.suffix.lower() in PARQUET:
            origin, present = Origin(path.name), list[str]()
            frame = read_parquet(path, names, whole=False, origin=origin)
            if optional:
                with open_file(path) as file:
                    schema = pl.read_parquet_schema(file)
                present = [name for name in optional if name in schema]
                frame = read_parquet(path, [*names, *present], whole=False, origin=origin)
        else:
            ids, numbers = [columns.query, columns.item], columns.names()[2:]
            frame, origin = read_file(path, ids, numbers, separator)
            present = [name for name in optional if name in frame.columns]
        frame = cols.as_polars(frame, [*names, *present], origin)
        tables.append(Table(frame, origin, (path,)))
    if len(tables) == 1:
        return tables[0]
    # One below the other; a column of numbers here and text there is text.
    frames = [table.frame for table in tables]
    shared = set(frames[0].columns).intersection(*(frame.columns for frame in frames))
    common = [name for name in frames[0].columns if name in shared]
    try:
        for name in common:
            types = {frame[name].dtype for frame in frames}
            if len(types) > 1 and not all(one.is_numeric() for one in types):
                frames = [frame.with_columns(pl.col(name).cast(pl.String)) for frame in frames]
        joined = pl.concat((frame.select(common) for frame in frames), how="vertical_relaxed")
    except pl.exceptions.PolarsError as error:
        raise InputError(
            f"{name_of(paths)} do not fit together as one table: {cols.first_line(error)}"
        ) from error
    starts = np.cumsum([0, *map(len, frames)]).tolist()
    parts = tuple((start, table.origin) for start, table in zip(starts, tables, strict=False))
    return Table(joined, Origin(name_of(paths), parts=parts), tuple(paths))


def matching(pattern: str) -> list[Path]:
    """Return the files that a pattern such as ``parts/*.parquet`` matches, sorted by name."""
    found = [
        path
        for path in map(Path, islice(glob.iglob(pattern, recursive=True), MOST_FILES + 1))
        if not path.is_dir()
    ]
    if not found:
        raise InputError(f"no file matches the pattern {pattern!r}")
    return sorted(found)


def check_source(name: str, source: Any) -> None:
    """Refuse what is not a path; a frame is checked when it is read."""
    if isinstance(source, str | bytes | Path):
        checked_path(name, source)
    elif isinstance(source, Sequence):
        for path in source:
            checked_path(f"each of {name}", path)
        if not source:
            raise InputError(f"{name} must be a frame, a path or a list of paths, got none")


def name_of(source: Source) -> str:
    """Return the name of a source for messages."""
    if isinstance(source, str | Path):
        return Path(source).name
    if not isinstance(source, Sequence):
        return "the table"
    first, *others = (Path(path).name for path in source)
    return f"{first} and {len(others):,} more" if others else first


def _files_of(source: str | Path | Sequence[str | Path]) -> list[Path]:
    """Return the files behind one or more paths; a folder stands for its Parquet files."""
    given = [source] if isinstance(source, str | Path) else source
    files: list[Path] = []
    seen: set[Path] = set()
    for path in map(Path, given):
        check_file(path, or_folder=True)
        if not path.is_dir():
            files.append(path)
            continue
        parts = [
            part
            for part in sorted(path.iterdir())
            if part.suffix.lower() in PARQUET and not part.name.startswith((".", "_"))
        ]
        if not parts:
            raise InputError(f"{path} is a folder without Parquet files; give the files in it")
        files += parts
    for file in files:
        if (real := file.resolve()) in seen:
            raise InputError(f"{file} is given twice; give each file once")
        seen.add(real)
    if len(files) > MOST_FILES:
        raise InputError(f"{len(files):,} files are given; at most {MOST_FILES:,} are read")
    return files


def read_file(
    path: Path, ids: Sequence[str], numbers: Sequence[str], separator: str
) -> tuple[pl.DataFrame, Origin]:
    """Return a table, or an error that names the separator which its header seems to have."""
    try:
        return read_table(path, ids=ids, numbers=numbers, separator=separator)
    except InputError as error:
        if path.suffix.lower() in PARQUET:
            raise
        header = ""
        unreadable = (OSError, EOFError, zlib.error, UnicodeDecodeError, InputError)
        with suppress(*unreadable), open_file(path) as file:
            text = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
            header = text.readline(MOST_LINE_BYTES).decode("utf-8-sig").strip()
        other = next((mark for mark in SEPARATORS if mark in header), None)
        is_text = header.replace("\t", "").isprintable()
        if other is None or separator in header or not is_text:
            raise
        shown = other.replace("\t", "\\t")
        raise InputError(
            f"{path.name} has one column if its fields are separated by {separator!r}, but it "
            f'looks separated by {other!r}: pass --separator "{shown}"'
        ) from error


@dataclass(frozen=True, eq=False, repr=False)
class Rankings:
    """Lists of items, grouped by query (CSR); rows of a query keep the order of the table."""

    offsets: NDArray[np.int64]  # start of each query's rows, [n_queries + 1]
    item: NDArray[np.int32]  # item number of each row
    score: NDArray[np.floating]  # by which lists fall; minus the rank if ranks were given
    relevance: NDArray[np.floating] | None  # grade of each row, or None
    row: NDArray[np.int64] | None  # of the table; None if they are in its order
    query_ids: pl.Series  # original id of each query
    item_ids: pl.Series  # original id of each item
    scored: bool  # whether there were scores; ranks have no softmax
    local: bool  # whether item ids are only unique within a query
    table: Table  # the table that was read

    @property
    def length(self) -> NDArray[np.int64]:
        """Number of items of each list."""
        return np.diff(self.offsets)

    def place(self, slot: int) -> str:
        """Return the place of a row in the table, for messages."""
        return self.table.origin.row(slot if self.row is None else int(self.row[slot]))


def rankings_of(table: Table, columns: Columns, *, local: bool) -> Rankings:
    """Return the lists of a table, refusing values missing and an item twice in a list."""
    frame, origin = table.frame, table.origin
    query, query_ids = cols.number_ids(frame[columns.query], origin)
    item, item_ids = cols.number_ids(frame[columns.item], origin)
    ordering = columns.ordering()
    score, relevance = cols.ratings_array(frame[ordering], EVERYTHING, origin), None
    if columns.score is None:
        if score.min() < 0:
            raise InputError(
                f"{origin.row(int(score.argmin()))}: the rank in {ordering!r} is "
                f"{score.min():g}, but ranks rise from 1; give a column of scores as score"
            )
        score = -score
    if columns.relevance is not None:
        grades = (0.0, LARGEST_RELEVANCE)
        relevance = cols.ratings_array(frame[columns.relevance], grades, origin)
    offsets, item, row = cols.group_rows(
        (query, query_ids), (item, item_ids), phrase="query {} ranks", place=origin.row
    )
    if row is not None:
        score = score[row]
        relevance = relevance[row] if relevance is not None else None
    return Rankings(
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


@dataclass(frozen=True, eq=False)
class Attribute:
    """The groups of the rows of rankings."""

    name: str  # the column, or several combined
    names: tuple[str, ...]  # by number; the first has the fewest rows, and signed gaps are its
    group: NDArray[np.int16]  # group number of each row, -1 unknown


class Labelled(NamedTuple):
    """Rankings, the groups of their rows by each attribute, and their merit if it was read."""

    rankings: Rankings
    attributes: Sequence[Attribute]
    merit: NDArray[np.floating] | None = None


@compiled
def label_holders(
    item: NDArray[np.int32], group: NDArray[np.int16], n_items: int
) -> tuple[NDArray[np.int64], int]:
    """Return the first slot in which each item has a known label, and a slot with another.

    Args:
        item: Item number of each slot.
        group: Group number of each slot, -1 unknown.
        n_items: How many different items there are.

    Returns:
        A slot of each item, -1 where none has a label, ``[n_items]``; the first slot whose
        label is not that of its item, -1 where there is none.
    """
    holder = np.full(n_items, -1, np.int64)
    for slot in range(len(item)):
        if group[slot] < 0:
            continue
        first = holder[item[slot]]
        if first < 0:
            holder[item[slot]] = slot
        elif group[first] != group[slot]:
            return holder, slot
    return holder, -1


def attribute_of_rows(rankings: Rankings, column: str) -> Attribute:
    """Return the groups in a column of the rankings' own table.

    An item with two labels is refused, unless item ids are only unique within a query.
    """
    origin = rankings.table.origin
    labels = rankings.table.frame[column]
    texts = _texts(labels)
    if texts is None:
        raise InputError(
            f"column {column!r} of {origin.name} holds {labels.dtype}; labels are text"
        )
    names = texts.drop_nulls().unique().sort().to_list()
    if not names:
        raise InputError(
            f"no row of {origin.name} has a label in column {column!r}: all of it is empty"
        )
    if len(names) < 2:
        raise InputError(
            f"all rows of {origin.name} with a known {column} are in one group ({names[0]!r}); "
            f"two groups are needed to compare exposure"
        )
    numbers = pl.DataFrame({"label": names}, schema={"label": pl.String})
    coded = texts.to_frame().join(
        numbers.with_row_index("number"), on="label", how="left", maintain_order="left"
    )
    codes = coded["number"].cast(pl.Int32).fill_null(UNKNOWN).to_numpy()
    attribute = _by_size(column, names, codes if rankings.row is None else codes[rankings.row])
    if rankings.local:
        return attribute
    group, item_ids = attribute.group, rankings.item_ids
    holder, other = label_holders(rankings.item, group, len(item_ids))
    if other >= 0:
        item = int(rankings.item[other])
        first = int(holder[item])
        raise InputError(
            f"{rankings.place(other)}: item {item_ids[item]!r} has {column} "
            f"{attribute.names[group[other]]!r}, but {attribute.names[group[first]]!r} in "
            f"{rankings.place(first)}; give it one label, or pass --local-items if ids are "
            f"only unique within a query"
        )
    return attribute


def attribute_of_items(
    rankings: Rankings,
    column: str,
    table: IntoDataFrame,
    item: str,
    *,
    origin: Origin,
    compare: bool,
) -> Attribute:
    """Return the groups in a column of a table of items.

    With `compare`, labels that contradict those of the rankings' own table are refused.
    """
    texts = _texts(cols.as_polars(table, [column], origin)[column])
    if texts is not None and texts.is_null().all():
        raise InputError(
            f"no item of {origin.name} has a label in column {column!r}: all of it is empty"
        )
    groups = apply_rule(table, item=item, rule=GroupRule(column), origin=origin)
    codes, names = label_items(groups, rankings.item_ids)
    attribute = _by_size(column, names, codes[rankings.item])
    own = _texts(rankings.table.frame[column]) if compare else None
    if own is None:
        return attribute
    own = own if rankings.row is None else own[rankings.row]
    other = label_texts(attribute.group, attribute.names)
    numbers, others = (texts.cast(pl.Float64, strict=False) for texts in (own, other))
    differ = (own != other) & ~(numbers == others).fill_null(False)
    slots = differ.fill_null(False).arg_true()
    if len(slots):
        slot = int(slots[0])
        raise InputError(
            f"{rankings.place(slot)}: item {rankings.item_ids[int(rankings.item[slot])]!r} has "
            f"{column} {own[slot]!r}, but {other[slot]!r} in {origin.name}; correct one of them"
        )
    return attribute


def intersection(attributes: Sequence[Attribute]) -> Attribute:
    """Return attributes combined; a row with an unknown label is in no group."""
    product, *others = attributes
    for other in others:
        name = product.name + PRODUCT + other.name
        known = (product.group >= 0) & (other.group >= 0)
        code = product.group.astype(np.int32) * len(other.names) + other.group
        there, codes = np.unique(code[known], return_inverse=True)
        group = np.full(len(code), UNKNOWN, np.int32)
        group[known] = codes
        pairs = (divmod(int(one), len(other.names)) for one in there)
        names = [product.names[a] + BOTH + other.names[b] for a, b in pairs]
        product = _by_size(name, names, group)
        if twice := [one for one, count in Counter(names).items() if count > 1]:
            raise InputError(
                f"two intersections of {name} are both called {twice[0]!r}; rename labels that "
                f"hold {BOTH!r}"
            )
    return product


def numbered_as(attribute: Attribute, names: Sequence[str]) -> Attribute:
    """Return the same groups, those of `names` first and with these numbers."""
    order = [*names, *(name for name in attribute.names if name not in names)]
    place = {name: number for number, name in enumerate(order)}
    numbers = np.array([*(place[name] for name in attribute.names), UNKNOWN], np.int16)
    return Attribute(attribute.name, tuple(order), numbers[attribute.group])


def _texts(labels: pl.Series) -> pl.Series | None:
    """Return labels as text, NaN and an empty text as null; None if they are no labels."""
    if labels.dtype.is_nested() or labels.dtype in cols.OPAQUE:
        return None
    known = labels.fill_nan(None) if labels.dtype.is_float() else labels
    return known.cast(pl.String).replace("", None).alias("label")


def _by_size(name: str, names: Sequence[str], codes: NDArray[np.int32]) -> Attribute:
    """Return an attribute whose smallest group is the first."""
    if len(names) > MOST_GROUPS:
        raise InputError(
            f"{name} has {len(names):,} groups, but an audit takes at most {MOST_GROUPS}; "
            f"merge some of them"
        )
    rows = np.bincount(codes[codes >= 0], minlength=len(names)).tolist()
    order = sorted(range(len(names)), key=lambda one: (rows[one], names[one]))
    given = Attribute(name, tuple(names), codes.astype(np.int16))
    return numbered_as(given, [names[one] for one in order])
