"""The Netflix Prize, read from both of its layouts."""

import zipfile
from calendar import monthrange
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fairtopk.data.columns import Origin
from fairtopk.data.netflix import (
    MONTHS,
    count_ratings,
    parse_ratings,
    read_netflix,
    sample_rows,
)
from fairtopk.errors import InputError

pytestmark = pytest.mark.kernel

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


@pytest.mark.compiled
def test_a_subset_depends_on_the_seed_and_the_ratings_alone(many: Path, tmp_path: Path) -> None:
    one_file = "".join(file.read_text() for file in sorted(many.rglob("mv_*.txt")))
    same = write(tmp_path, {"combined_data_1.txt": one_file, "movie_titles.csv": TITLES})

    subset = read_netflix(many, subset=500, seed=3).ratings

    assert subset.equals(read_netflix(many, subset=500, seed=3).ratings)
    assert subset.equals(read_netflix(same, subset=500, seed=3).ratings)
    assert not subset.equals(read_netflix(many, subset=500, seed=4).ratings)


@pytest.mark.compiled
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


without_deadline = settings(deadline=None)  # the first example may wait for the compiler
GOOD = "1:\n12,3,2005-09-06\n"


def text(lines: str) -> NDArray[np.uint8]:
    return np.frombuffer(lines.encode(), np.uint8)


def rows(lines: NDArray[np.uint8]) -> list[tuple[int, int, float, int]]:
    *columns, bad = parse_ratings(lines, MONTHS)
    assert bad == -1
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_a_rating_belongs_to_the_movie_named_last() -> None:
    lines = text("8:\n12,3,1970-01-02\n7,5,1969-12-31\n9:\n10:\n12,1,1970-01-01\n")

    assert rows(lines) == [(12, 8, 3.0, 1), (7, 8, 5.0, -1), (12, 10, 1.0, 0)]
    assert [column.dtype for column in parse_ratings(lines, MONTHS)[:-1]] == [
        np.int32,
        np.int32,
        np.float32,
        np.int32,
    ]


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines.replace("\n", "\r\n"),
        lambda lines: lines.rstrip("\n"),
        lambda lines: lines.replace("\n", "\r\n").rstrip("\n"),
        lambda lines: "\n" + lines.replace("\n", "\n\n") + "\r\n\n",
    ],
    ids=["windows", "no final newline", "a final return", "blank lines"],
)
def test_line_ends_and_blank_lines_change_nothing(change) -> None:
    lines = "1:\n12,3,2005-09-06\n7,5,1999-12-31\n2:\n3,4,2000-02-29\n"

    changed = text(change(lines))

    assert count_ratings(changed) == 3
    assert rows(changed) == rows(text(lines))


@without_deadline
@given(st.lists(st.dates(), min_size=1, max_size=20))
def test_dates_round_trip(dates: list[date]) -> None:
    lines = "1:\n" + "".join(f"7,4,{day.isoformat()}\n" for day in dates)

    *_, days, _ = parse_ratings(text(lines), MONTHS)

    assert np.array_equal(days.astype("datetime64[D]"), np.array(dates, "datetime64[D]"))


def test_months_are_as_long_as_the_calendar_says() -> None:
    lengths = np.diff(MONTHS).reshape(-1, 12)
    for year in range(1, 10_000):
        assert lengths[year].tolist() == [monthrange(year, month)[1] for month in range(1, 13)]


@pytest.mark.parametrize(
    "line",
    [
        "12",
        "12,2005-09-06",
        "12,3",
        "12,3,2005-9-6",
        "12,3,2005/09/06",
        "12,3,2005-09-06 ",
        "12,3,2005-09-06,",
        "12,3,4,2005-09-06",
        "12,,2005-09-06",
        ",3,2005-09-06",
        "12,3.5,2005-09-06",
        "-12,3,2005-09-06",
        "12, 3,2005-09-06",
        "1234567890,3,2005-09-06",
        "12,3,2005-00-06",
        "12,3,2005-13-06",
        "12,3,2005-09-00",
        "12,3,2005-09-31",
        "12,3,2005-02-29",
        "12,3,20x5-02-28",
        "12,3,2005-02-2x",
        ":",
        "x:",
        "1,2:",
        "user,rating,date",
    ],
)
@pytest.mark.parametrize("after", ["", "\n", "\r\n", "\n13,3,2005-09-06\n"])
def test_a_malformed_line_is_pointed_at(line: str, after: str) -> None:
    assert parse_ratings(text(GOOD + line + after), MONTHS)[-1] == len(GOOD)


def test_a_rating_before_any_movie_is_malformed() -> None:
    assert parse_ratings(text("12,3,2005-09-06\n" + GOOD), MONTHS)[-1] == 0


@without_deadline
@given(st.text(alphabet="0123456789,-:\n\r", max_size=60))
def test_rows_are_counted_as_they_are_parsed(lines: str) -> None:
    users = parse_ratings(text(lines), MONTHS)[0]

    filled = [line for line in lines.split("\n") if line.removesuffix("\r")]
    movies = [line for line in filled if line.removesuffix("\r").endswith(":")]
    assert count_ratings(text(lines)) == len(filled) - len(movies) == len(users)


@without_deadline
@given(st.integers(1, 200), st.data(), st.integers(-(2**63), 2**63 - 1))
def test_a_sample_has_its_size_and_no_row_twice(total: int, data: st.DataObject, seed) -> None:
    wanted = data.draw(st.integers(1, total))

    sample = sample_rows(total, wanted, seed)

    assert len(sample) == wanted
    assert sample.min() >= 0
    assert sample.max() < total
    assert (np.diff(sample) > 0).all()


def test_every_pair_of_rows_is_drawn_equally_often() -> None:
    draws = 6_000
    pairs = np.zeros((5, 5))
    for seed in range(draws):
        first, second = sample_rows(5, 2, seed)
        pairs[first, second] += 1

    seen = pairs[np.triu_indices(5, 1)]
    expected = draws / 10
    chi_square = ((seen - expected) ** 2 / expected).sum()
    assert seen.sum() == draws
    assert chi_square < 27.9  # 9 degrees of freedom, one in a thousand
