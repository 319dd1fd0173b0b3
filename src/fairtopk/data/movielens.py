"""MovieLens in its three published layouts, recognised by what the files hold.

- 100K: ``u.data`` (tabs) and ``u.item`` (bars, one flag per genre, latin-1)
- 1M and 10M: ``ratings.dat`` and ``movies.dat`` (``::``; 1M in latin-1, 10M in UTF-8)
- 20M, 25M, 32M, latest: ``ratings.csv`` and ``movies.csv``
"""

import re
from pathlib import Path
from typing import NamedTuple

import polars as pl

from fairtopk.data.archive import Archive
from fairtopk.data.columns import Origin
from fairtopk.data.interactions import Tables
from fairtopk.data.tables import Schema, read_delimited, refuse_odd_bytes
from fairtopk.errors import InputError

RATINGS: Schema = {
    "user_id": pl.Int32,
    "item_id": pl.Int32,
    "rating": pl.Float32,
    "timestamp": pl.Int64,
}
RATINGS_CSV: Schema = {
    "userId": pl.Int32,
    "movieId": pl.Int32,
    "rating": pl.Float32,
    "timestamp": pl.Int64,
}
FILMS_CSV: Schema = {"movieId": pl.Int32, "title": pl.String, "genres": pl.String}

# The 19 flags at the end of a line of u.item, in order (u.genre lists them).
GENRES_100K = (
    "unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime",
    "Documentary", "Drama", "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance",
    "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip
# How the layouts write that a film's genres are not known.
NO_GENRE = ("unknown", "(no genres listed)")

# "(1994)", or the first year of a series: "(2009-2012)", "(2006–2007)", "(2009– )".
YEAR_IN_TITLE = ".*\\(([0-9]{4})(?:[-\u2013]\\s*[0-9]{0,4}\\s*)?\\)"
ID = re.compile("[0-9]{1,9}")  # what 32 bits surely hold


class Layout(NamedTuple):
    """How a family of the data sets writes its files, each known by its first line."""

    title: str
    ratings_line: str  # a pattern
    ratings_file: str  # its usual name
    films_line: str
    films_file: str
    rating_range: tuple[float, float]


LAYOUT_100K = Layout(
    "100K", r"\d+\t\d+\t\d\t\d+", "u.data", r"\d+(\|[^|]*){4}(\|[01]){19}", "u.item", (1, 5)
)
LAYOUT_DAT = Layout(
    "1M and 10M", r"\d+::\d+::[\d.]+::\d+", "ratings.dat",
    r"\d+::((?!::).)+::[^:]*", "movies.dat", (0.5, 5),
)  # fmt: skip
LAYOUT_CSV = Layout(
    "20M and later sets", ",".join(RATINGS_CSV), "ratings.csv",
    ",".join(FILMS_CSV), "movies.csv", (0.5, 5),
)  # fmt: skip


def read_movielens(path: str | Path, *, wanted: Layout | None = None) -> Tables:
    """Return the tables of a MovieLens zip or folder, in the layout `wanted` or in any."""
    archive = Archive(path)
    layout = next(
        (one for one in (LAYOUT_100K, LAYOUT_DAT) if archive.find_all(one.ratings_line)),
        LAYOUT_CSV,
    )
    ratings = archive.find(
        layout.ratings_line, usual=[layout.ratings_file], what="MovieLens ratings"
    )
    if wanted is not None and wanted != layout:
        raise InputError(
            f"{archive.path} holds MovieLens in the layout of {layout.title}, not of "
            f"{wanted.title}; give the name of the data set that it is"
        )
    what = f"MovieLens films ({layout.films_file})"
    films = archive.find(layout.films_line, usual=[layout.films_file], what=what)
    is_csv = layout is LAYOUT_CSV
    origin, films_origin = (
        Origin(archive.where(name), 2 if is_csv else 1) for name in (ratings, films)
    )
    source: bytes | Path
    if is_csv:
        # An unpacked file is read from disk as it is: half the memory of a copy.
        source = archive.unpacked(ratings) or archive.read(ratings)
    else:
        # Polars splits at single characters; numbers hold no colon, so tabs can stand in.
        source = archive.read(ratings).replace(b"::", b"\t")
    refuse_odd_bytes(source, origin)
    table = read_delimited(
        source,
        RATINGS_CSV if is_csv else RATINGS,
        "," if is_csv else "\t",
        header=is_csv,
        origin=origin,
    ).rename(dict(zip(RATINGS_CSV, RATINGS, strict=True)), strict=False)
    catalogue = _read_films(archive.read(films), layout, films_origin)
    return Tables(table, catalogue, origin, films_origin, rating_range=layout.rating_range)


def _read_films(data: bytes, layout: Layout, origin: Origin) -> pl.DataFrame:
    """Return the catalogue; the year is the title's last (YYYY), else the release date's."""
    rows: list[tuple[int, str, str, str]] = []
    if layout is LAYOUT_CSV:
        refuse_odd_bytes(data, origin)
        listed = read_delimited(data, FILMS_CSV, ",", header=True, origin=origin)
        rows = [(item, title, genres, "") for item, title, genres in listed.iter_rows()]
    else:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            text = data.decode("latin-1")
        separator, n_fields, form = "::", 3, "'id::title::genres'"
        if layout is LAYOUT_100K:
            separator, n_fields, form = "|", 24, "24 fields"
        for index, line in enumerate(text.split("\n")):
            if not line.strip():
                continue
            line = line.rstrip("\r")
            fields = line.split(separator)
            if len(fields) != n_fields or not ID.fullmatch(fields[0]):
                raise InputError(
                    f"{origin.row(index)}: expected {form}, got {line.rstrip()[:60]!r}"
                )
            genres, released = fields[2], ""
            if layout is LAYOUT_100K:
                flags = zip(GENRES_100K, fields[5:], strict=True)
                genres = "|".join(genre for genre, flag in flags if flag == "1")
                released = fields[2][-4:]
            rows.append((int(fields[0]), fields[1], genres, released))
    films = pl.DataFrame(rows, schema=["item_id", "title", "genres", "released"], orient="row")
    released_in = pl.col("released").str.extract("([0-9]{4})")
    year = pl.coalesce(pl.col("title").str.extract(YEAR_IN_TITLE), released_in)
    return films.select(
        pl.col("item_id").cast(pl.Int32),
        "title",
        year.cast(pl.Int32).alias("year"),
        pl.col("genres").fill_null("").replace(["", *NO_GENRE], [None] * 3),
    )
