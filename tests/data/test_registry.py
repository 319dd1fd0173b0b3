import errno
import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import fairtopk as ft
from fairtopk.data import registry
from fairtopk.data.groups import GroupRule
from fairtopk.data.registry import (
    KNOWN,
    Counts,
    acknowledge,
    acknowledged,
    data_home,
    prepare,
    warmups_home,
)
from fairtopk.errors import InputError

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
    monkeypatch.setitem(KNOWN, "movielens-20m", replace(whole, counts=Counts(3, 9, 2)))
    with pytest.warns(UserWarning, match="3 ratings by 9 users"):
        ft.load("movielens-20m", folder)
    monkeypatch.setitem(KNOWN, "movielens-20m", replace(whole, counts=Counts(3, 2, 2)))
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


def test_an_agreed_licence_is_remembered_per_data_set(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    assert "ml-1m" not in acknowledged(folder)
    acknowledge("ml-1m", "research only", folder)
    acknowledge("netflix", "no redistribution", folder)
    assert "ml-1m" in acknowledged(folder)
    assert "netflix" in acknowledged(folder)
    assert "ml-100k" not in acknowledged(folder)
    assert [file.name for file in folder.iterdir()] == ["licences.json"]
    stored = json.loads((folder / "licences.json").read_text())
    assert stored == {"ml-1m": "research only", "netflix": "no redistribution"}


@pytest.mark.parametrize("content", ["", "{ 'ml-1m'", "[]", "\xff", "[" * 100_000])
def test_a_damaged_memory_of_licences_asks_again(tmp_path: Path, content: str) -> None:
    (tmp_path / "licences.json").write_bytes(content.encode("latin-1"))
    assert "ml-1m" not in acknowledged(tmp_path)
    acknowledge("ml-1m", "research only", tmp_path)
    assert "ml-1m" in acknowledged(tmp_path)


def test_the_data_folder_is_the_one_the_user_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRTOPK_HOME", "~/films")
    assert data_home() == Path.home() / "films"


@pytest.mark.parametrize(
    ("platform", "variables", "usual"),
    [
        ("linux", {}, "user/.local/share/fairtopk"),
        ("linux", {"XDG_DATA_HOME": "share"}, "share/fairtopk"),
        ("darwin", {"XDG_DATA_HOME": "share"}, "user/Library/Application Support/fairtopk"),
        ("win32", {}, "user/AppData/Local/fairtopk"),
    ],
)
def test_the_data_folder_is_else_the_platforms(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    platform: str,
    variables: dict[str, str],
    usual: str,
) -> None:
    for name in ("FAIRTOPK_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setattr(sys, "platform", platform)
    for name, folder in variables.items():
        monkeypatch.setenv(name, str(tmp_path / folder))
    assert data_home() == tmp_path / usual


def test_a_user_without_a_home_is_told_what_to_set_and_shares_no_warm_ups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nowhere(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("FAIRTOPK_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "expanduser", nowhere)
    with pytest.raises(InputError, match="no home folder; set FAIRTOPK_HOME"):
        data_home()
    assert warmups_home() is None


RULE = {"column": "genres", "contains": "Horror"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "ratings.csv").write_text("userId,movieId,rating,timestamp\n1,1,5,1\n1,2,4,2\n")
    (folder / "movies.csv").write_text("movieId,title,genres\n1,A (1980),Horror\n2,B,War\n")
    return folder


def test_a_prepared_folder_loads_as_its_source_does(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    card = prepare("movielens-latest", source, out, groups=GroupRule.from_mapping(RULE))
    assert sorted(file.name for file in out.iterdir()) == [
        "card.json", "items.parquet", "ratings.parquet",
    ]  # fmt: skip
    assert json.loads((out / "card.json").read_text()) == card
    for name, checksum in card["files"].items():
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == checksum
    assert str(tmp_path) not in (out / "card.json").read_text()
    direct = ft.load("movielens-latest", source, groups=RULE)
    assert ft.load("movielens-latest", out, groups=RULE).checksum == direct.checksum


def test_a_prepared_folder_in_the_users_own_is_found_by_name(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRTOPK_HOME", str(tmp_path / "home"))
    prepare("movielens-latest", source, tmp_path / "home" / "movielens-latest")
    assert ft.load("movielens-latest").n_ratings == 2


def test_columns_of_ones_own_are_kept(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("who,what,kind\n007,1,x\n8,2,y\n")
    columns = {"user": "who", "item": "what", "rating": None}
    prepare("csv", tmp_path / "a.csv", tmp_path / "out", **columns)
    assert not (tmp_path / "out" / "items.parquet").exists()
    data = ft.load("csv", tmp_path / "out", groups={"column": "kind"})
    with pytest.raises(ft.InputError, match="is prepared and takes no option 'user'"):
        ft.load("csv", tmp_path / "out", user="who")
    assert data.user_ids.to_list() == ["007", "8"]
    assert data.group_counts == {"x": 1, "y": 1}


def test_the_card_names_files_by_name_and_checksum(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("who,what\n1,1\n2,2\n")
    (tmp_path / "items.csv").write_text("what,kind\n1,x\n2,y\n")
    columns = {"user": "who", "item": "what", "rating": None, "items": tmp_path / "items.csv"}
    card = prepare("csv", tmp_path / "a.csv", tmp_path / "out", **columns)
    assert card["options"]["items"]["name"] == "items.csv"
    assert str(tmp_path) not in (tmp_path / "out" / "card.json").read_text()


def test_features_are_prepared_too(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(
        "1 qid:7 1:0.5 2:1\n0 qid:7 1:0.25\n2 qid:9 2:1 #docid = d\n"
    )
    prepare("letor", tmp_path / "a.txt", tmp_path / "out")
    direct, prepared = ft.load("letor", tmp_path / "a.txt"), ft.load("letor", tmp_path / "out")
    assert prepared.to_frame().equals(direct.to_frame())
    rule = {"column": "f2", "at_least": 0.5}
    assert ft.load("letor", tmp_path / "out", groups=rule).group_counts == {
        "f2 >= 0.5": 2, "f2 < 0.5": 1,
    }  # fmt: skip


def test_nothing_is_written_where_the_source_is_bad(source: Path, tmp_path: Path) -> None:
    (source / "ratings.csv").write_text("userId,movieId,rating,timestamp\n1,1,5,1\n1,1,5,2\n")
    with pytest.raises(ft.InputError, match="line 3: user 1 rates item 1 again"):
        prepare("movielens-latest", source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_in_use_is_left_alone(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ft.InputError, match="exists and is not empty; choose another folder"):
        prepare("movielens-latest", source, source)
    assert sorted(file.name for file in source.iterdir()) == ["movies.csv", "ratings.csv"]


def test_a_prepared_folder_that_was_changed_is_refused(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare("movielens-latest", source, out)
    with pytest.raises(ft.InputError, match="holds movielens-latest, not movielens-1m"):
        ft.load("movielens-1m", out)
    whole = (out / "ratings.parquet").read_bytes()
    (out / "ratings.parquet").write_bytes(whole[:-9])
    with pytest.raises(ft.InputError, match="missing or not what was prepared"):
        ft.load("movielens-latest", out)
    (out / "card.json").write_text("{")
    with pytest.raises(
        ft.InputError, match=r"card\.json is damaged .*; prepare the data again"
    ):
        ft.load("movielens-latest", out)


def test_a_file_that_is_not_the_published_one_is_noted(real_data: Path, tmp_path: Path) -> None:
    card = prepare("movielens-1m", real_data / "ml-1m-reconstructed.zip", tmp_path / "out")
    assert any("is not the published ml-1m.zip" in note for note in card["notes"])


@pytest.mark.parametrize("name", ["synthetic", "nonsense"])
def test_a_name_that_cannot_be_prepared_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ft.InputError, match=r"nothing to prepare|unknown data set 'nonsense'"):
        prepare(name, tmp_path, tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"files": {"../../secret": "0"}}, r"card\.json is damaged \(files"),
        ({"files": []}, r"card\.json is damaged \(files"),
        ({"name": 5}, r"card\.json is damaged \(name"),
        ({"columns": None}, "is damaged .columns or rating_range is missing"),
        ({"columns": {"user": "u"}}, r"is damaged .columns\.item"),
        ({"columns": {"user": "x", "item": "item_id"}}, "ratings.parquet has no column 'x'"),
        ({"rating_range": [0, 1e9]}, "is damaged .rating_range"),
        ({"rating_range": [1, 2, 3]}, "is damaged .rating_range"),
        ({"files": {}}, "holds features, not ratings"),
    ],
)
def test_a_card_that_was_edited_is_refused(
    source: Path, tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    out = tmp_path / "out"
    card = prepare("movielens-latest", source, out)
    (out / "card.json").write_text(json.dumps(card | change))
    with pytest.raises(ft.InputError, match=sentence):
        ft.load("movielens-latest", out)


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "\0", "\xff", '{"name": 1e999}', ""])
def test_a_card_that_is_none_is_refused(source: Path, tmp_path: Path, text: str) -> None:
    prepare("movielens-latest", source, tmp_path / "out")
    (tmp_path / "out" / "card.json").write_text(text, encoding="latin-1")
    with pytest.raises(
        ft.InputError, match=r"card\.json is damaged .*; prepare the data again"
    ):
        ft.load("movielens-latest", tmp_path / "out")


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        (pl.Series("item_id", [[1], [2]]), "item_id must hold ids"),
        (pl.Series("rating", ["a", "b"]), "rating must be a number, got 'a'"),
        (pl.Series("rating", [1e9, 1.0]), "rating must lie between 0.5 and 5"),
        (pl.Series("timestamp", [True, False]), "timestamp must hold numbers or dates"),
    ],
)
def test_a_table_of_other_kinds_is_refused_whatever_its_card_says(
    source: Path, tmp_path: Path, column: pl.Series, sentence: str
) -> None:
    out = tmp_path / "out"
    card = prepare("movielens-latest", source, out)
    table = out / "ratings.parquet"
    pl.read_parquet(table).with_columns(column).write_parquet(table)
    card["files"][table.name] = hashlib.sha256(table.read_bytes()).hexdigest()
    (out / "card.json").write_text(json.dumps(card))
    with pytest.raises(ft.InputError, match=sentence):
        ft.load("movielens-latest", out)


def test_a_disk_that_is_full_leaves_nothing_behind(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(frame: pl.DataFrame, path: Path, **_: object) -> None:
        path.write_bytes(b"PAR1")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pl.DataFrame, "write_parquet", full)
    with pytest.raises(ft.InputError, match=r"cannot write .*out: no space left on device"):
        prepare("movielens-latest", source, tmp_path / "out")
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize(
    ("file", "name", "sentence"),
    [
        ("ml-100k.zip", "movielens-1m", "in the layout of 100K, not of 1M and 10M; give the"),
        ("ml-1m-reconstructed.zip", "movielens-10m", "holds MovieLens 1M, by its counts, not"),
        ("ml-latest-small.zip", "movielens-25m", "give the name movielens-latest-small"),
    ],
)
def test_one_data_set_is_not_prepared_as_another(
    real_data: Path, tmp_path: Path, file: str, name: str, sentence: str
) -> None:
    with pytest.raises(ft.InputError, match=sentence):
        prepare(name, real_data / file, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_layout_is_not_prepared_as_another(source: Path, tmp_path: Path) -> None:
    for name in ("movielens-100k", "movielens-1m", "movielens-10m"):
        with pytest.raises(ft.InputError, match="in the layout of 20M and later sets, not of"):
            prepare(name, source, tmp_path / "out")


def test_counts_tell_one_data_set_from_another(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = replace(registry.MOVIELENS["movielens-25m"], counts=registry.Counts(2, 1, 2))
    monkeypatch.setitem(registry.MOVIELENS, "movielens-25m", whole)
    sentence = (
        "ratings.csv of source holds MovieLens 25M, by its counts, not MovieLens 20M; give"
    )
    with pytest.raises(ft.InputError, match=sentence):
        prepare("movielens-20m", source, tmp_path / "out")
