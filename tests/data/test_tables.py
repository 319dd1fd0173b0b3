"""Cells of a CSV that a spreadsheet would run."""

import csv
import gzip
import io
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairtopk as ft
from fairtopk.data.tables import first_short_row, guarded

pytestmark = pytest.mark.kernel

COLUMNS = {"user": "who", "item": "what", "rating": "stars", "time": "when"}
TEXT = "who,what,stars,when,note\na,1,3.5,10,x\na,2,4,11,y\nb,1,5,12,\n"


def load(path: Path, **options: object) -> ft.Interactions:
    kind = "parquet" if path.suffix == ".parquet" else "csv"
    data = ft.load(kind, path, **{**COLUMNS, **options})  # type: ignore[arg-type]
    assert isinstance(data, ft.Interactions)
    return data


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_csv_gz_and_parquet_give_the_same(tmp_path: Path) -> None:
    plain = written(tmp_path / "a.csv", TEXT)
    packed = written(tmp_path / "a.csv.gz", gzip.compress(TEXT.encode()))
    semicolons = written(tmp_path / "b.csv", TEXT.replace(",", ";"))
    pl.read_csv(plain).write_parquet(tmp_path / "a.parquet")
    first = load(plain)
    assert first.to_frame().rows()[0][:4] == ("a", 1, 3.5, 10)
    assert load(packed).checksum == first.checksum
    assert load(tmp_path / "a.parquet").checksum == first.checksum
    assert load(semicolons, separator=";").checksum == first.checksum


def test_ids_keep_the_zeros_they_are_written_with(tmp_path: Path) -> None:
    text = "who,what,stars,when\n007,1,3,1\n7,2,3,1\n"
    assert load(written(tmp_path / "a.csv", text)).user_ids.to_list() == ["007", "7"]
    assert load(tmp_path / "a.csv").item_ids.to_list() == [1, 2]


def test_groups_come_from_a_table_of_items_or_from_the_ratings(tmp_path: Path) -> None:
    path = written(
        tmp_path / "a.csv", "who,what,stars,when,kind\na,1,3,1,p\na,2,3,1,q\nb,2,3,1,q\n"
    )
    inside = load(path, groups={"column": "kind", "equals": "p"})
    assert inside.group_counts == {"p": 1, "other": 1}
    items = written(tmp_path / "items.csv", "what,region\n1,north\n2,south\n3,north\n")
    beside = load(path, items=items, groups={"column": "region"})
    assert beside.group_counts == {"north": 1, "south": 1}
    assert beside.catalogue_counts == {"south": 1, "north": 2}


def test_dates_are_times(tmp_path: Path) -> None:
    text = "who,what,stars,when\na,1,3,2020-01-02\na,2,3,2020-01-01\n"
    data = load(written(tmp_path / "a.csv", text))
    assert data.time is not None
    assert data.time[0] - data.time[1] == 1


def test_a_column_is_judged_by_all_of_its_values(tmp_path: Path) -> None:
    rows = [f"{n},{n},3,{n},{n}" for n in range(300)]
    rows += ["x7,9,3.5,0.5,hello"]
    data = load(written(tmp_path / "a.csv", "\n".join(["who,what,stars,when,note", *rows])))
    assert data.user_ids[-1] == "x7"
    assert data.item_ids.dtype == pl.Int64
    assert data.time is not None
    assert data.time[-1] == 0.5


def test_a_day_that_could_be_a_month_is_not_guessed(tmp_path: Path) -> None:
    text = "who,what,stars,when\na,1,3,03/04/2020\n"
    with pytest.raises(ft.InputError, match="must be a number or a date like 2020-01-31"):
        load(written(tmp_path / "a.csv", text))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", r"a\.csv is empty"),
        ("who,what,stars,when\n", r"a\.csv is empty: it has a header but no rows"),
        ("who;what;stars;when\na;1;3;1\n", r"no column 'who'.* looks separated by ';'"),
        ("who,what,when\na,1,1\n", r"no column 'stars': its columns are who, what, when"),
        ("who,what,stars\na,1,1\n", r"no column 'when'"),
        ("who,what,stars,when\na,1,good,1\n", r"line 2: stars must be a number, got 'good'"),
        ("who,what,stars,when\na,1,nan,1\n", r"line 2: stars is missing"),
        ("who,what,stars,when\na,1,,1\n", r"line 2: stars is missing"),
        (
            "who,what,stars,when\na,1,3,1\na,2,77,1\n",
            r"line 3: stars must lie between 0 and 10",
        ),
        (
            "who,what,stars,when\na,1,3,1\nb,1,3,1\na,1,4,1\n",
            r"line 4: user 'a' rates item 1 again",
        ),
        (
            "who,what,stars,when\na,1,3,1,9\n",
            r"line 2: expected 4 fields separated by ',', got 5",
        ),
        ("who,what,stars,when\na,1,3,soon\n", r"line 2: when must be a number or a date"),
        ("who,what,stars,when\n,1,3,1\n", r"line 2: who is missing"),
        (b"who,what,stars,when\nZo\xeb,1,3,1\n", r"line 2 is not UTF-8 \(byte 0xeb\); save"),
    ],
)
def test_bad_text_is_refused_with_its_line(
    tmp_path: Path, text: str | bytes, sentence: str
) -> None:
    with pytest.raises(ft.InputError, match=sentence):
        load(written(tmp_path / "a.csv", text))


def test_a_missing_file_and_a_broken_parquet_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ft.InputError, match="does not exist; check the path"):
        load(tmp_path / "none.csv")
    with pytest.raises(ft.InputError, match=r"a\.parquet is not a readable Parquet file"):
        load(written(tmp_path / "a.parquet", b"PAR1 and then nothing"))


def test_what_is_no_table_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ft.InputError, match="is a folder; give the file"):
        load(tmp_path)
    with zipfile.ZipFile(tmp_path / "a.csv", "w") as file:
        file.writestr("inside.csv", TEXT)
    with pytest.raises(ft.InputError, match="is a zip; unpack it"):
        load(tmp_path / "a.csv")
    with pytest.raises(
        ft.InputError, match=r"separator must be one ASCII character .*, got '::'"
    ):
        load(written(tmp_path / "b.csv", TEXT), separator="::")


def test_features_come_from_a_table_with_queries(tmp_path: Path) -> None:
    text = "q,grade,size,age,sex\n1,2,0.5,3,f\n1,0,0.25,4,m\n2,1,0.125,5,f\n"
    path = written(tmp_path / "a.csv", text)
    rule = {"column": "sex", "equals": "f"}
    data = ft.load("csv", path, query="q", relevance="grade", groups=rule)
    assert isinstance(data, ft.Features)
    assert data.feature_names == ("size", "age")
    assert data.values.tolist() == [[0.5, 3], [0.25, 4], [0.125, 5]]
    assert data.group_counts == {"f": 2, "other": 1}


FIELDS = st.text(st.sampled_from('ab",\n '), max_size=4)


def short_row(text: str, n_fields: int) -> int:
    return int(first_short_row(np.frombuffer(text.encode(), np.uint8), ord(","), n_fields))


@given(st.lists(st.lists(FIELDS, min_size=1, max_size=4), min_size=1, max_size=6))
def test_the_first_row_with_too_few_fields_is_found(rows: list[list[str]]) -> None:
    parts = []
    for row in rows:
        written = io.StringIO()
        csv.writer(written, lineterminator="\n", quoting=csv.QUOTE_ALL).writerow(row)
        parts.append(written.getvalue())
    short = [place for place, row in enumerate(rows) if len(row) < 3]
    wanted = sum(map(len, parts[: short[0]])) if short else -1
    assert short_row("".join(parts), 3) == wanted


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a,b\n\n\r\nc,d\n", -1),  # blank lines are no rows
        ('a,5" pipe\nb,c\n', -1),  # a quote within a field is a letter
        ("a,b\nc", 4),
        ("a,b\r\nc\r\nd,e", 5),
        ("", -1),
    ],
)
def test_odd_rows_are_told_apart(text: str, place: int) -> None:
    assert short_row(text, 2) == place


@pytest.mark.parametrize("begins", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_text_that_would_be_run_gets_an_apostrophe(begins: str) -> None:
    frame = pl.DataFrame(
        {f"{begins}name": [f"{begins}1+1", "a=b", "", None], "n": [-1, 2, 3, 4]}
    )
    found = guarded(frame)
    assert found.columns == [f"'{begins}name", "n"]
    assert found[:, 0].to_list() == [f"'{begins}1+1", "a=b", "", None]
    assert found["n"].to_list() == [-1, 2, 3, 4]


def test_labels_and_empty_tables_are_guarded_too() -> None:
    labels = pl.DataFrame({"g": pl.Series(["=x", "y"], dtype=pl.Categorical)})
    assert guarded(labels)["g"].to_list() == ["'=x", "y"]
    assert guarded(pl.DataFrame({"n": pl.Series([], dtype=pl.Int64)})).is_empty()
