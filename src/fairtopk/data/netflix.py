"""The Netflix Prize: 100 million ratings from 1 to 5, in four files or one per movie.

A line is ``movie:``, or ``user,rating,YYYY-MM-DD`` about the movie named last. Lines end as on
Unix or on Windows; blank lines are skipped, and the last line needs no end. ``qualifying.txt``
and ``probe.txt`` in the same folder start alike, but hold no ratings.
"""

import re
from pathlib import Path, PurePosixPath

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairtopk.data.archive import Archive
from fairtopk.data.columns import Origin
from fairtopk.data.interactions import Tables
from fairtopk.errors import InputError
from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.random import advance, stream, uniform

NEWLINE, RETURN, COMMA, DASH, ZERO, NINE, COLON = (ord(mark) for mark in "\n\r,-09:")
DATE = len("YYYY-MM-DD")
SHORTEST = len("1,1,YYYY-MM-DD")
MOST_DIGITS = 9  # what int32 surely holds
# Days from 1970-01-01 to the start of every month from January 0000 to January 10000.
MONTHS = np.arange("0000-01", "10000-02", dtype="M8[M]").astype("M8[D]").astype(np.int32)

RATING_RANGE = (1.0, 5.0)
RATINGS_NAME = re.compile(r"(combined_data_|mv_)\d+\.txt")
TITLES_NAMES = ("movie_titles.txt", "movie_titles.csv")
TITLE = re.compile(r"(\d{1,9}),(\d{1,9}|NULL),(.*)")
FIRST_TWO_LINES = re.compile(rb"\s*(\d{1,9}):\s+(\S*)")
RATING = re.compile(rb"\d+,\d+,\d{4}-\d\d-\d\d")
ITEMS_SCHEMA = {"item_id": pl.Int32, "title": pl.String, "year": pl.Int32}
SHOWN = 60  # characters of a bad line

Int32s = NDArray[np.int32]
Parsed = tuple[Int32s, Int32s, NDArray[np.float32], Int32s, int]


def read_netflix(path: str | Path, *, subset: int | None = None, seed: int = 0) -> Tables:
    """Return the ratings, by movie and then as they stand, and the titles with their years.

    Args:
        path: The zip or folder with ``combined_data_1.txt`` to ``combined_data_4.txt``, or with
            ``mv_0000001.txt`` and so on; and with ``movie_titles.txt`` or ``.csv``.
        subset: Keep only so many ratings, drawn uniformly without replacement.
        seed: Seed of the draw; the same files and seed give the same ratings.

    Raises:
        InputError: A file is absent, empty or malformed, or `subset` is not to be had.
    """
    if subset is not None and subset < 1:
        raise InputError(f"subset must be at least 1, got {subset}")
    archive = Archive(path)
    # A file that has the name but not the look is read too, so that its fault is reported.
    found = []
    for name in archive.names:
        lines = FIRST_TWO_LINES.match(archive.head(name))
        looks = lines is not None and RATING.fullmatch(lines[2]) is not None
        if looks or RATINGS_NAME.fullmatch(PurePosixPath(name).name):
            found.append((int(lines[1]) if lines else 0, name))
    if not found:
        raise InputError(
            f"{archive.path} holds no Netflix Prize ratings: none of its files starts with a "
            f"line 'movie:' and a line 'user,rating,YYYY-MM-DD'"
        )
    names = [name for _, name in sorted(found)]  # in the order of the first movie of each
    items, items_origin = _read_titles(archive)
    kept: list[slice | NDArray[np.int64]] = [slice(None)] * len(names)  # rows of each file
    if subset is not None:
        texts = (np.frombuffer(archive.read(name), np.uint8) for name in names)
        starts = np.cumsum([0, *map(count_ratings, texts)])
        total = int(starts[-1])
        if subset > total:
            raise InputError(
                f"subset must be at most {total:,}, the number of ratings in {archive.path}, "
                f"got {subset:,}"
            )
        sample = sample_rows(total, subset, seed)
        cuts = np.searchsorted(sample, starts)
        bounds = zip(starts[:-1], cuts[:-1], cuts[1:], strict=True)
        kept = [sample[low:high] - start for start, low, high in bounds]
    parts = []
    for name, rows in zip(names, kept, strict=True):  # one file is in memory at a time
        data = archive.read(name)
        user, item, rating, day, bad = parse_ratings(np.frombuffer(data, np.uint8), MONTHS)
        if bad >= 0:
            place = Origin(archive.where(name), first_line=1).row(data.count(b"\n", 0, bad))
            line = data[bad : bad + SHOWN].split(b"\n")[0].decode("latin-1")
            raise InputError(
                f"{place}: expected 'user,rating,YYYY-MM-DD' or 'movie:', got {line.rstrip()!r}"
            )
        columns = {"user_id": user, "item_id": item, "rating": rating}
        part = pl.DataFrame(columns | {"timestamp": pl.Series(day).cast(pl.Date)})
        parts.append(part[rows])
    return Tables(
        ratings=pl.concat(parts, rechunk=True),
        items=items,
        ratings_origin=Origin(archive.path.resolve().name),
        items_origin=items_origin,
        rating_range=RATING_RANGE,
    )


def _read_titles(archive: Archive) -> tuple[pl.DataFrame, Origin]:
    name = archive.find(
        TITLE.pattern, usual=TITLES_NAMES, what=f"movie titles ({' or '.join(TITLES_NAMES)})"
    )
    origin = Origin(archive.where(name), first_line=1)
    # splitlines would also break at bytes that latin-1 puts inside a title, such as 0x85.
    lines = archive.read(name).decode("latin-1").rstrip("\r\n").split("\n")
    rows = []
    for row, line in enumerate(lines):
        # Only the first two commas separate: a title may hold more.
        match = TITLE.fullmatch(line.rstrip("\r"))
        if match is None:
            raise InputError(
                f"{origin.row(row)}: expected 'movie,year,title' with a year or NULL, "
                f"got {line[:SHOWN]!r}"
            )
        movie, year, title = match.groups()
        rows.append((int(movie), title, None if year == "NULL" else int(year)))
    return pl.DataFrame(rows, schema=ITEMS_SCHEMA, orient="row"), origin


@compiled
def parse_ratings(text: NDArray[np.uint8], months: NDArray[np.int32]) -> Parsed:
    """Return users, movies, ratings and days since 1970 of a text's rows, and -1.

    A malformed line ends it: the last value is then the byte where the first such line starts,
    and past it the arrays hold nothing of use. `months` are `MONTHS`.
    """
    rows = count_ratings(text)
    users, items = np.empty(rows, np.int32), np.empty(rows, np.int32)
    ratings, days = np.empty(rows, np.float32), np.empty(rows, np.int32)
    row, start, movie = 0, 0, -1
    while start < len(text):
        stop, end = line_ends(text, start)
        if stop > start and text[stop - 1] == COLON:
            movie = number(text, start, stop - 1)
            if movie < 0:
                return users, items, ratings, days, start
        elif stop > start:
            date = stop - DATE
            if movie < 0 or stop - start < SHORTEST or text[date - 1] != COMMA:
                return users, items, ratings, days, start
            comma = start
            while text[comma] != COMMA:
                comma += 1
            user, rating = number(text, start, comma), number(text, comma + 1, date - 1)
            year = number(text, date, date + 4)
            month = number(text, date + 5, date + 7)
            day = number(text, date + 8, stop)
            dashed = text[date + 4] == DASH and text[date + 7] == DASH
            if min(user, rating, year) < 0 or not dashed or month < 1 or month > 12:
                return users, items, ratings, days, start
            first = months[12 * year + month - 1]
            if day < 1 or first + day > months[12 * year + month]:
                return users, items, ratings, days, start
            users[row], items[row], ratings[row] = user, movie, rating
            days[row] = first + day - 1
            row += 1
        start = end + 1
    return users, items, ratings, days, -1


@compiled
def count_ratings(text: NDArray[np.uint8]) -> int:
    """Return the number of lines that are neither blank nor a movie's."""
    rows = 0
    start = 0
    while start < len(text):
        stop, end = line_ends(text, start)
        if stop > start and text[stop - 1] != COLON:
            rows += 1
        start = end + 1
    return rows


@compiled
def line_ends(text: NDArray[np.uint8], start: int) -> tuple[int, int]:
    """Return where the line that begins at `start` ends, without and with its return."""
    end = start
    while end < len(text) and text[end] != NEWLINE:
        end += 1
    has_return = end > start and text[end - 1] == RETURN
    return end - 1 if has_return else end, end


@compiled
def number(text: NDArray[np.uint8], start: int, stop: int) -> int:
    """Return the number that ``text[start:stop]`` spells, -1 unless it is 1 to 9 digits."""
    if stop <= start or stop - start > MOST_DIGITS:
        return -1
    value = 0
    for place in range(start, stop):
        if text[place] < ZERO or text[place] > NINE:
            return -1
        value = 10 * value + int(np.int64(text[place]) - ZERO)
    return value


@compiled
def sample_rows(total: int, wanted: int, seed: int) -> NDArray[np.int64]:
    """Return `wanted` of the rows 0 to ``total - 1``, rising, every such set equally likely.

    Knuth's algorithm S: a row is taken with the probability that the rows still wanted are of
    the rows still to come, so that exactly `wanted` are taken in the end.
    """
    rows = np.empty(wanted, np.int64)
    state = stream(seed, 0, 0)
    taken = 0
    for row in range(total):
        if uniform(state) * (total - row) < wanted - taken:
            rows[taken] = row
            taken += 1
        state = advance(state)
    return rows
