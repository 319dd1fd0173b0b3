"""The Netflix Prize, read from both of its layouts."""

import zipfile
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fairtopk.data.columns import Origin
from fairtopk.data.netflix import read_netflix
from fairtopk.errors import InputError

RATINGS = {
    1: ["1488844,3,2005-09-06", "822109,5,2005-05-13"],
    2: ["822109,1,1999-12-31"],
    9: ["7,4,2004-02-29"],
    10: ["1488844,2,2000-01-01", "7,5,2005-12-31"],
}
TITLES = (
    "1,2003,Dinosaur Planet\n2,NULL,Roti, Kapda, Aur Makaan\n"
    "9,1991,Caf\u00e9\u0085\n10,1987,Ten\n"
)

Files = dict[str, str]


def block(movie: int, lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in [f"{movie}:", *lines])


def combined(ratings: dict[int, list[str]] = RATINGS) -> Files:
    """Two files of several movies, named so that sorting their names misorders them."""
    blocks = [block(movie, lines) for movie, lines in ratings.items()]
    half = len(blocks) // 2
    return {
        "combined_data_2.txt": "".join(blocks[:half]),
        "combined_data_10.txt": "".join(blocks[half:]),
        "movie_titles.txt": TITLES,
    }


def per_movie(ratings: dict[int, list[str]] = RATINGS) -> Files:
    files = {
        f"training_set/mv_{movie:07}.txt": block(movie, lines)
        for movie, lines in ratings.items()
    }
    return files | {"movie_titles.txt": TITLES}


def write(folder: Path, files: Files) -> Path:
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode("latin-1"))
    return folder


def write_zip(path: Path, files: Files) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content.encode("latin-1"))
    return path


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3,000 ratings of 30 movies; the user's id tells the row."""
    day = date(2001, 1, 1)
    ratings = {
        movie: [f"{100 * movie + i},{i % 5 + 1},{day + timedelta(days=i)}" for i in range(100)]
        for movie in range(1, 31)
    }
    return write(tmp_path_factory.mktemp("many"), per_movie(ratings))


def test_the_rows_are_those_of_the_files(tmp_path: Path) -> None:
    tables = read_netflix(write(tmp_path / "netflix", combined()))

    rows = [
        (int(user), movie, float(rating), date.fromisoformat(day))
        for movie, lines in RATINGS.items()
        for user, rating, day in (line.split(",") for line in lines)
    ]
    assert tables.ratings.rows() == rows
    assert tables.ratings.schema == {
        "user_id": pl.Int32,
        "item_id": pl.Int32,
        "rating": pl.Float32,
        "timestamp": pl.Date,
    }
    assert tables.ratings_origin == Origin("netflix")
    assert tables.items_origin == Origin("movie_titles.txt of netflix", first_line=1)
    assert tables.rating_range == (1, 5)


def test_both_layouts_zipped_or_not_give_the_same_tables(tmp_path: Path) -> None:
    wanted = read_netflix(write(tmp_path / "combined", combined()))
    others = [
        write(tmp_path / "per_movie", per_movie()),
        write_zip(tmp_path / "combined.zip", combined()),
        write_zip(tmp_path / "per_movie.zip", per_movie()),
    ]

    for path in others:
        tables = read_netflix(path)
        assert tables.ratings.equals(wanted.ratings)
        assert tables.items is not None
        assert tables.items.equals(wanted.items)


def test_files_are_found_by_content_and_read_in_the_order_of_their_movies(
    tmp_path: Path,
) -> None:
    files = combined()
    renamed = {
        "b/early.txt": files["combined_data_2.txt"],
        "a/late.txt": files["combined_data_10.txt"],
        "films.txt": TITLES,
    }

    found = read_netflix(write(tmp_path / "renamed", renamed)).ratings

    assert found.equals(read_netflix(write(tmp_path / "usual", files)).ratings)


def test_titles_keep_commas_and_latin_1_and_a_year_of_null_is_unknown(tmp_path: Path) -> None:
    files = combined() | {"movie_titles.txt": TITLES.replace("\n", "\r\n")}

    items = read_netflix(write(tmp_path, files)).items

    assert items is not None
    assert items.schema == {"item_id": pl.Int32, "title": pl.String, "year": pl.Int32}
    assert items.rows() == [
        (1, "Dinosaur Planet", 2003),
        (2, "Roti, Kapda, Aur Makaan", None),
        (9, "Caf\u00e9\u0085", 1991),
        (10, "Ten", 1987),
    ]


def test_files_without_ratings_are_left_out(tmp_path: Path) -> None:
    beside = {
        "qualifying.txt": "1:\n1046323,2005-12-19\n",
        "probe.txt": "1:\n30878\n",
        "judging.txt": "1:\n3,test\n",
        "README": "SUMMARY\n=======\n",
    }

    ratings = read_netflix(write(tmp_path / "all", combined() | beside)).ratings

    assert ratings.equals(read_netflix(write(tmp_path / "few", combined())).ratings)


@pytest.mark.parametrize("size", [1, 2, 1_000, 2_999, 3_000])
def test_a_subset_has_exactly_its_size_and_holds_rows_of_the_whole(
    many: Path, size: int
) -> None:
    whole = read_netflix(many).ratings

    subset = read_netflix(many, subset=size).ratings

    assert len(subset) == size
    assert whole.filter(pl.col("user_id").is_in(subset["user_id"].implode())).equals(subset)


def test_a_subset_depends_on_the_seed_and_the_ratings_alone(many: Path, tmp_path: Path) -> None:
    one_file = "".join(file.read_text() for file in sorted(many.rglob("mv_*.txt")))
    same = write(tmp_path, {"combined_data_1.txt": one_file, "movie_titles.csv": TITLES})

    subset = read_netflix(many, subset=500, seed=3).ratings

    assert subset.equals(read_netflix(many, subset=500, seed=3).ratings)
    assert subset.equals(read_netflix(same, subset=500, seed=3).ratings)
    assert not subset.equals(read_netflix(many, subset=500, seed=4).ratings)


def test_subsets_draw_evenly_from_all_movies(many: Path) -> None:
    seeds, size = 10, 600
    drawn = np.zeros(30)
    for seed in range(seeds):
        movies = read_netflix(many, subset=size, seed=seed).ratings["item_id"].to_numpy()
        drawn += np.bincount(movies - 1, minlength=30)

    expected = seeds * size / 30
    chi_square = ((drawn - expected) ** 2 / expected).sum()
    assert chi_square < 58.3  # 29 degrees of freedom, one in a thousand


@pytest.mark.parametrize("size", [0, -1])
def test_a_subset_of_nothing_is_refused(many: Path, size: int) -> None:
    with pytest.raises(InputError, match=f"subset must be at least 1, got {size}"):
        read_netflix(many, subset=size)


def test_a_subset_larger_than_the_data_is_refused(many: Path) -> None:
    with pytest.raises(InputError, match=r"subset must be at most 3,000, .*, got 3,001"):
        read_netflix(many, subset=3_001)


@pytest.mark.parametrize("subset", [None, 1])
def test_a_malformed_rating_is_named_by_file_and_line(
    tmp_path: Path, subset: int | None
) -> None:
    files = combined()
    files["combined_data_10.txt"] += "11:\r\n7,five,2005-01-01\r\n8,4,2005-01-01\r\n"
    path = write(tmp_path / "netflix", files)

    with pytest.raises(InputError) as error:
        read_netflix(path, subset=subset)

    assert str(error.value) == (
        "combined_data_10.txt of netflix, line 7: expected 'user,rating,YYYY-MM-DD' or "
        "'movie:', got '7,five,2005-01-01'"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"combined_data_2.txt": "2:\n82210"}, r"data_2\.txt of .*, line 2: .* got '82210'"),
        ({"combined_data_10.txt": ""}, r"combined_data_10\.txt of .* is empty"),
        ({"movie_titles.txt": TITLES + "11,Ten\n"}, r"titles\.txt of .*, line 5: .* '11,Ten'"),
        ({"movie_titles.txt": "none"}, r"no movie titles \(movie_titles\.txt or"),
    ],
    ids=["a bad start", "no bytes", "a bad title", "no titles"],
)
def test_a_file_with_a_usual_name_is_never_passed_over(
    tmp_path: Path, changes: Files, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_netflix(write(tmp_path, combined() | changes))


def test_missing_ratings_are_named(tmp_path: Path) -> None:
    files = {"movie_titles.txt": TITLES, "probe.txt": "1:\n30878\n"}

    with pytest.raises(InputError, match="holds no Netflix Prize ratings"):
        read_netflix(write(tmp_path, files))
