from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import fairtopk as ft
from fairtopk.data.registry import KNOWN, Counts

CSV = "userId,movieId,rating,timestamp\n1,1,5,1\n1,2,4,2\n2,2,3,3\n"
FILMS = "movieId,title,genres\n1,A (1980),Horror\n2,B (1999),War\n3,C,(no genres listed)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ratings.csv").write_text(CSV)
    (tmp_path / "movies.csv").write_text(FILMS)
    return tmp_path


def test_a_known_layout_is_loaded_grouped_and_described(folder: Path) -> None:
    data = ft.load("movielens-latest", folder, groups={"column": "year", "below": 1990})
    assert data.name == "movielens-latest"
    assert data.group_counts == {"year < 1990": 1, "year >= 1990": 1}
    assert data.notes == (
        "3 ratings by 2 users of 2 items, from 3 to 5, no pair twice",
        f"3 items listed in movies.csv of {folder.name}",
        "groups of the rated items: year < 1990 1, year >= 1990 1; unknown 0 "
        "(listed: year < 1990 1, year >= 1990 1)",
    )


def test_a_part_of_a_published_data_set_is_loaded_with_a_warning(folder: Path) -> None:
    with pytest.warns(UserWarning, match=r"MovieLens 20M as published has 20,000,263 ratings"):
        data = ft.load("movielens-20m", folder)
    assert "a part of it or another version" in data.notes[1]
    assert data.n_unknown == 2


def test_the_same_ratings_by_fewer_users_are_not_the_published_ones(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = KNOWN["movielens-20m"]
    monkeypatch.setitem(KNOWN, "movielens-20m", replace(whole, counts=Counts(3, 9, 2, 3)))
    with pytest.warns(UserWarning, match="3 ratings by 9 users"):
        ft.load("movielens-20m", folder)
    monkeypatch.setitem(KNOWN, "movielens-20m", replace(whole, counts=Counts(3, 2, 2, 3)))
    assert ft.load("movielens-20m", folder).notes[0].endswith("the published counts")


def test_labels_made_elsewhere_can_be_given(folder: Path) -> None:
    studios = pl.DataFrame({"id": [1, 2], "studio": ["x", "y"]})
    groups = ft.groups_from(studios, item="id", column="studio")
    data = ft.load("movielens-latest", folder, groups=groups)
    assert data.group_counts == {"x": 1, "y": 1}


def test_a_rating_out_of_a_known_range_is_refused(folder: Path) -> None:
    (folder / "ratings.csv").write_text(CSV.replace("4,2", "6,2"))
    with pytest.raises(
        ft.InputError, match=r"line 3: rating must lie between 0.5 and 5, got 6"
    ):
        ft.load("movielens-latest", folder)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda path: ft.load("movielens"), "unknown data set 'movielens': the names are"),
        (lambda path: ft.load("movielens-1m"), "run: fairtopk data prepare movielens-1m"),
        (lambda path: ft.load("movielens-latest", path, subset=3), "no option 'subset'.*none"),
        (lambda path: ft.load("csv", path / "ratings.csv", who="x"), "no option 'who'.*user"),
        (lambda path: ft.load("synthetic", path), "takes no path"),
        (
            lambda path: ft.load("synthetic", size="huge"),
            "size must be one of demo, .* got 'huge'",
        ),
        (
            lambda path: ft.load("movielens-latest", path, groups={"column": "studio"}),
            r"movies.csv of .* has no column 'studio': its columns are item_id, title",
        ),
        (
            lambda path: ft.load("movielens-latest", path, groups={"col": "genres"}),
            "groups has no key 'col'",
        ),
    ],
)
def test_what_cannot_be_loaded_is_refused_in_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[Path], object], sentence: str
) -> None:
    monkeypatch.setenv("FAIRTOPK_HOME", str(folder / "home"))
    with pytest.raises(ft.InputError, match=sentence) as error:
        call(folder)
    assert "\n" not in str(error.value)


def test_generated_data_comes_by_name_too() -> None:
    data = ft.load("synthetic", size="demo", seed=3)
    assert (data.n_users, data.n_items, data.n_ratings) == (1_000, 800, 60_000)


def test_every_known_data_set_says_where_it_comes_from() -> None:
    for known in KNOWN.values():
        assert known.licence
        assert known.home
        assert (known.url is None) == (known.file == "")
