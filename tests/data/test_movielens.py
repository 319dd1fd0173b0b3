import zipfile
from pathlib import Path

import polars as pl
import pytest

import fairtopk as ft
from fairtopk.data.interactions import Tables
from fairtopk.data.movielens import GENRES_100K, read_movielens

FILMS = [(1, "Léon (1994)", "Horror|War"), (2, "Se7en", ""), (3, "2001 (1968) (1999)", "Drama")]
RATINGS = [(1, 1, 5, 100), (1, 3, 2, 90), (2, 1, 4, 80), (2, 2, 1, 80)]


def film_100k(item: int, title: str, genres: str) -> str:
    flags = ["1" if genre in (genres or "unknown").split("|") else "0" for genre in GENRES_100K]
    return "|".join([str(item), title, "01-Jan-1995", "", "http://x", *flags])


LAYOUTS = {
    "100k": {
        "set/u.data": "".join("\t".join(map(str, row)) + "\n" for row in RATINGS),
        "set/u1.base": "1\t1\t5\t100\n",
        "set/u.item": "".join(film_100k(*film) + "\n" for film in FILMS),
    },
    "1m": {
        "set/ratings.dat": "".join("::".join(map(str, row)) + "\n" for row in RATINGS),
        "set/movies.dat": "".join("::".join(map(str, film)) + "\n" for film in FILMS),
        "set/users.dat": "1::F::1::10::48067\n",
    },
    "20m": {
        "set/ratings.csv": "userId,movieId,rating,timestamp\r\n"
        + "".join(",".join(map(str, row)) + "\r\n" for row in RATINGS),
        "set/movies.csv": "movieId,title,genres\r\n"
        + "".join(f'{i},"{title}",{genres}\r\n' for i, title, genres in FILMS),
        "set/tags.csv": "userId,movieId,tag,timestamp\r\n1,1,good,5\r\n",
    },
}


def write(folder: Path, layout: str, **changes: str) -> Path:
    for name, text in LAYOUTS[layout].items():
        text = changes.get(Path(name).name.replace(".", "_"), text)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(text.encode("utf-8" if layout == "20m" else "latin-1"))
    return folder


def assert_same(tables: Tables) -> None:
    assert [tuple(map(float, row)) for row in tables.ratings.rows()] == RATINGS
    assert tables.items["title"].to_list() == [title for _, title, _ in FILMS]
    assert tables.items["genres"].to_list() == ["Horror|War", None, "Drama"]


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_every_layout_gives_the_same_tables_from_folder_and_zip(
    tmp_path: Path, layout: str
) -> None:
    folder = write(tmp_path / "files", layout) if (tmp_path / "files").mkdir() is None else None
    assert folder is not None
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as file:
        for path in folder.rglob("*.*"):
            file.write(path, path.relative_to(folder))
    for path in (folder, tmp_path / "set.zip"):
        assert_same(read_movielens(path))


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_files_under_other_names_are_found_by_their_content(
    tmp_path: Path, layout: str
) -> None:
    write(tmp_path, layout)
    for place, path in enumerate(sorted(tmp_path.rglob("*.*"))):
        path.rename(path.with_name(f"file{place}"))
    assert_same(read_movielens(tmp_path))


def test_the_year_is_the_last_of_the_title_else_of_the_release_date(tmp_path: Path) -> None:
    for layout, second in (("100k", 1995), ("1m", None), ("20m", None)):
        (tmp_path / layout).mkdir()
        tables = read_movielens(write(tmp_path / layout, layout))
        assert tables.items["year"].to_list() == [1994, second, 1999]


@pytest.mark.parametrize(
    ("layout", "changes", "sentence"),
    [
        (
            "100k",
            {"u_data": "1\t1\t5\t1\n1\t2\tx\t1\n"},
            r"u\.data .*line 2: rating must be a num",
        ),
        ("100k", {"u_item": film_100k(*FILMS[0]) + "\n2|x\n"}, "line 2: expected 24 fields"),
        ("1m", {"ratings_dat": "1::1::5::9\n1:2:3:4\n"}, "line 2: expected 4 fields"),
        ("1m", {"movies_dat": "1::A::War\n2::B\n"}, "line 2: expected 'id::title::genres'"),
        ("1m", {"movies_dat": "1::A::War\n\n\r\n2::B\n"}, r"line 4: expected .*got '2::B'"),
        ("1m", {"ratings_dat": ""}, "holds no MovieLens ratings"),
        ("20m", {"ratings_csv": "userId,movieId,rating,timestamp\n"}, "a header but no rows"),
        (
            "20m",
            {"ratings_csv": "userId,movieId,stars,timestamp\n1,1,1,1\n"},
            "holds no MovieL",
        ),
        (
            "20m",
            {"ratings_csv": "userId;movieId;rating;timestamp\n1;1;1;1\n"},
            "holds no Movie",
        ),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_refused(
    tmp_path: Path, layout: str, changes: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ft.InputError, match=sentence):
        read_movielens(write(tmp_path, layout, **changes))


@pytest.mark.parametrize(
    ("name", "file", "shape", "horror", "listed"),
    [
        ("movielens-100k", "ml-100k.zip", (100_000, 943, 1_682), 92, 92),
        ("movielens-1m", "ml-1m-reconstructed.zip", (1_000_209, 6_040, 3_706), 339, 343),
        ("movielens-latest-small", "ml-latest-small.zip", (100_836, 610, 9_724), 977, 978),
    ],
)
def test_the_published_files_give_the_published_counts(
    real_data: Path, name: str, file: str, shape: tuple[int, int, int], horror: int, listed: int
) -> None:
    rule = {"column": "genres", "contains": "Horror"}
    data = ft.load(name, real_data / file, groups=rule)
    assert (data.n_ratings, data.n_users, data.n_items) == shape
    assert data.group_counts["Horror"] == horror
    assert data.catalogue_counts["Horror"] == listed
    assert data.notes[0].endswith("the published counts")


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("ml-100k.zip", "ml-100k"),
        ("ml-1m-reconstructed.zip", "ml-1m"),
        ("ml-latest-small.zip", "ml-latest-small"),
    ],
)
def test_the_published_catalogues_are_read_to_the_letter(
    real_data: Path, file: str, name: str
) -> None:
    found = read_movielens(real_data / file).items
    expected = pl.read_parquet(real_data / f"{name}.items.parquet").with_columns(
        pl.col("genres").replace(["unknown", "(no genres listed)"], [None, None])
    )
    assert found.equals(expected.select(found.columns))


def test_the_year_of_a_series_is_its_first(tmp_path: Path) -> None:
    films = "1::A (2009-2012)::War\n2::B (2006\u20132007)::War\n3::C (2009\u2013 )::War\n"
    for name, text in LAYOUTS["1m"].items():
        (tmp_path / Path(name).name).write_text(films if "movies" in name else text, "utf-8")
    assert read_movielens(tmp_path).items["year"].to_list() == [2009, 2006, 2009]
