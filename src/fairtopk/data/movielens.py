"""MovieLens in its three published layouts, told apart by what the files hold.

- 100K: ``u.data`` (tabs) and ``u.item`` (bars, one flag per genre, latin-1)
- 1M and 10M: ``ratings.dat`` and ``movies.dat`` (``::``; 1M in latin-1, 10M in UTF-8)
- 20M, 25M, 32M, latest: ``ratings.csv`` and ``movies.csv``
"""

import re
from collections.abc import Callable
from pathlib import Path

import polars as pl

from fairtopk.data.archive import Archive
from fairtopk.data.columns import Origin
from fairtopk.data.delimited import Schema, read_delimited, refuse_odd_bytes
from fairtopk.data.interactions import Tables
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
ITEMS: Schema = {
    "item_id": pl.Int32,
    "title": pl.String,
    "year": pl.Int32,
    "genres": pl.String,
}

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

LAYOUT_100K, LAYOUT_DAT, LAYOUT_CSV = "100K", "1M and 10M", "20M and later sets"
LINE_100K = r"\d+\t\d+\t\d\t\d+"
FILM_100K = r"\d+(\|[^|]*){4}(\|[01]){19}"
LINE_DAT = r"\d+::\d+::[\d.]+::\d+"
FILM_DAT = r"\d+::((?!::).)+::[^:]*"
LINE_CSV = r"userId,movieId,rating,timestamp"
FILM_CSV = r"movieId,title,genres"


def read_movielens(path: str | Path) -> Tables:
    """Return the tables of a MovieLens zip or folder, whichever of the layouts it has."""
    archive = Archive(path)
    return READERS[_layout(archive)](archive)


def read_movielens_100k(path: str | Path) -> Tables:
    """Return the tables of a zip or folder in the layout of 100K."""
    return _read_layout(path, LAYOUT_100K)


def read_movielens_dat(path: str | Path) -> Tables:
    """Return the tables of a zip or folder in the layout of 1M and 10M."""
    return _read_layout(path, LAYOUT_DAT)


def read_movielens_csv(path: str | Path) -> Tables:
    """Return the tables of a zip or folder in the layout of 20M and later sets."""
    return _read_layout(path, LAYOUT_CSV)


def _read_layout(path: str | Path, wanted: str) -> Tables:
    archive = Archive(path)
    found = _layout(archive)
    if found != wanted:
        raise InputError(
            f"{archive.path} holds MovieLens in the layout of {found}, not of {wanted}; give "
            f"the name of the data set that it is"
        )
    return READERS[found](archive)


def _layout(archive: Archive) -> str:
    if archive.find_all(LINE_100K):
        return LAYOUT_100K
    if archive.find_all(LINE_DAT):
        return LAYOUT_DAT
    archive.find(LINE_CSV, usual=["ratings.csv"], what="MovieLens ratings")
    return LAYOUT_CSV


def _read_100k(archive: Archive) -> Tables:
    ratings = archive.find(LINE_100K, usual=["u.data"], what="MovieLens ratings")
    films = archive.find(FILM_100K, usual=["u.item"], what="MovieLens 100K films (u.item)")
    origin, films_origin = Origin(archive.where(ratings), 1), Origin(archive.where(films), 1)
    rows = []
    for index, line in enumerate(_lines(archive.read(films))):
        fields = line.split("|")
        if len(fields) != 24 or not ID.fullmatch(fields[0]):
            raise InputError(
                f"{films_origin.row(index)}: expected 24 fields, got {line[:60]!r}"
            )
        flags = zip(GENRES_100K, fields[5:], strict=True)
        genres = "|".join(genre for genre, flag in flags if flag == "1")
        rows.append((int(fields[0]), fields[1], genres, fields[2][-4:]))
    table = _table(archive.read(ratings), RATINGS, separator="\t", header=False, origin=origin)
    return Tables(table, _films(rows), origin, films_origin, rating_range=(1, 5))


def _read_dat(archive: Archive) -> Tables:
    ratings = archive.find(LINE_DAT, usual=["ratings.dat"], what="MovieLens ratings")
    films = archive.find(FILM_DAT, usual=["movies.dat"], what="MovieLens films (movies.dat)")
    origin, films_origin = Origin(archive.where(ratings), 1), Origin(archive.where(films), 1)
    rows = []
    for index, line in enumerate(_lines(archive.read(films))):
        fields = line.split("::")
        if len(fields) != 3 or not ID.fullmatch(fields[0]):
            raise InputError(
                f"{films_origin.row(index)}: expected 'id::title::genres', got {line[:60]!r}"
            )
        rows.append((int(fields[0]), fields[1], fields[2], ""))
    # Polars splits at single characters; numbers hold no colon, so tabs can stand in.
    data = archive.read(ratings).replace(b"::", b"\t")
    table = _table(data, RATINGS, separator="\t", header=False, origin=origin)
    return Tables(table, _films(rows), origin, films_origin, rating_range=(0.5, 5))


def _read_csv(archive: Archive) -> Tables:
    ratings = archive.find(LINE_CSV, usual=["ratings.csv"], what="MovieLens ratings")
    films = archive.find(FILM_CSV, usual=["movies.csv"], what="MovieLens films (movies.csv)")
    origin, films_origin = Origin(archive.where(ratings), 2), Origin(archive.where(films), 2)
    # An unpacked file is read from disk as it is: half the memory of a copy.
    source = archive.unpacked(ratings) or archive.read(ratings)
    table = _table(source, RATINGS_CSV, separator=",", header=True, origin=origin)
    schema: Schema = {"movieId": pl.Int32, "title": pl.String, "genres": pl.String}
    listed = _table(
        archive.read(films), schema, separator=",", header=True, origin=films_origin
    )
    rows = [(item, title, genres, "") for item, title, genres in listed.iter_rows()]
    table = table.rename(dict(zip(RATINGS_CSV, RATINGS, strict=True)))
    return Tables(table, _films(rows), origin, films_origin, rating_range=(0.5, 5))


def _table(
    source: bytes | Path, schema: Schema, *, separator: str, header: bool, origin: Origin
) -> pl.DataFrame:
    refuse_odd_bytes(source, origin)
    return read_delimited(source, schema, separator=separator, header=header, origin=origin)


def _lines(data: bytes) -> list[str]:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return [line.rstrip("\r") for line in text.split("\n") if line.strip()]


def _films(rows: list[tuple[int, str, str, str]]) -> pl.DataFrame:
    """Return the catalogue; the year is the title's last (YYYY), else the release date's."""
    films = pl.DataFrame(
        rows, schema=["item_id", "title", "genres", "released"], orient="row"
    ).with_columns(
        pl.col("title").str.extract(YEAR_IN_TITLE).alias("in_title"),
        pl.col("genres").fill_null("").replace(["", *NO_GENRE], [None] * 3),
    )
    released = pl.col("released").str.extract("([0-9]{4})")
    year = pl.coalesce("in_title", released).cast(pl.Int32)
    return films.with_columns(year=year, item_id=pl.col("item_id").cast(pl.Int32)).select(
        list(ITEMS)
    )


READERS: dict[str, Callable[[Archive], Tables]] = {
    LAYOUT_100K: _read_100k,
    LAYOUT_DAT: _read_dat,
    LAYOUT_CSV: _read_csv,
}
