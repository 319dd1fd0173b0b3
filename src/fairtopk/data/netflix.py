"""The Netflix Prize: 100 million ratings from 1 to 5, in four files or in one per movie.

Both layouts hold ``movie:`` and below it ``user,rating,YYYY-MM-DD``. ``qualifying.txt`` and
``probe.txt`` beside them start alike, but hold no ratings.
"""

import re
from pathlib import Path, PurePosixPath

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairtopk.data.archive import Archive
from fairtopk.data.origin import Origin
from fairtopk.data.tables import Tables
from fairtopk.errors import InputError
from fairtopk.kernels.netflix_text import count_ratings, parse_ratings, sample_rows

RATING_RANGE = (1.0, 5.0)
RATINGS_NAME = re.compile(r"(combined_data_|mv_)\d+\.txt")
TITLES_NAMES = ("movie_titles.txt", "movie_titles.csv")
TITLE = re.compile(r"(\d{1,9}),(\d{1,9}|NULL),(.*)")
FIRST_TWO_LINES = re.compile(rb"\s*(\d{1,9}):\s+(\S*)")
RATING = re.compile(rb"\d+,\d+,\d{4}-\d\d-\d\d")
ITEMS_SCHEMA = {"item_id": pl.Int32, "title": pl.String, "year": pl.Int32}
SHOWN = 60  # characters of a bad line


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
    names = _ratings_files(archive)
    items, items_origin = _read_titles(archive)
    if subset is None:
        parts = [_read_ratings(archive, name) for name in names]
    else:
        parts = _read_sample(archive, names, subset, seed)
    return Tables(
        ratings=pl.concat(parts, rechunk=True),
        items=items,
        ratings_origin=Origin(archive.path.resolve().name),
        items_origin=items_origin,
        rating_range=RATING_RANGE,
    )


def _ratings_files(archive: Archive) -> list[str]:
    """Return the files with ratings, in the order of the first movie of each.

    One that has the name but not the look is among them, so that its fault is reported.
    """
    found = []
    for name in archive.names():
        lines = FIRST_TWO_LINES.match(archive.head(name))
        looks = lines is not None and RATING.fullmatch(lines[2]) is not None
        if looks or RATINGS_NAME.fullmatch(PurePosixPath(name).name):
            found.append((int(lines[1]) if lines else 0, name))
    if not found:
        raise InputError(
            f"{archive.path} holds no Netflix Prize ratings: none of its files starts with a "
            f"line 'movie:' and a line 'user,rating,YYYY-MM-DD'"
        )
    return [name for _, name in sorted(found)]


def _read_sample(
    archive: Archive, names: list[str], wanted: int, seed: int
) -> list[pl.DataFrame]:
    """Return each file's part of a sample of all ratings, with one file in memory at a time."""
    starts = np.cumsum([0, *(count_ratings(_text(archive.read(name))) for name in names)])
    total = int(starts[-1])
    if wanted > total:
        raise InputError(
            f"subset must be at most {total:,}, the number of ratings in {archive.path}, "
            f"got {wanted:,}"
        )
    sample = sample_rows(total, wanted, seed)
    cuts = np.searchsorted(sample, starts)
    parts = []
    for name, start, low, high in zip(names, starts[:-1], cuts[:-1], cuts[1:], strict=True):
        parts.append(_read_ratings(archive, name)[sample[low:high] - start])
    return parts


def _read_ratings(archive: Archive, name: str) -> pl.DataFrame:
    data = archive.read(name)
    parsed = parse_ratings(_text(data))
    if parsed.bad >= 0:
        origin = Origin(archive.where(name), first_line=1)
        place = origin.row(data.count(b"\n", 0, parsed.bad))
        line = data[parsed.bad : parsed.bad + SHOWN].split(b"\n")[0].decode("latin-1")
        raise InputError(
            f"{place}: expected 'user,rating,YYYY-MM-DD' or 'movie:', got {line.rstrip()!r}"
        )
    columns = {"user_id": parsed.user, "item_id": parsed.item, "rating": parsed.rating}
    return pl.DataFrame(columns | {"timestamp": pl.Series(parsed.day).cast(pl.Date)})


def _text(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


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
