"""Files that are not separated as is said, and what tables are called."""

import gzip
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import fairtopk as ft
from fairtopk.auditing.rankings import Columns, read_source

COLUMNS: dict[str, Any] = {"query": "q", "item": "i", "score": "s", "groups": "sex", "k": 2}
ROWS = pl.DataFrame({"q": [1, 1], "i": [1, 2], "s": [2, 1], "sex": ["f", "m"]})


@pytest.mark.parametrize(("separator", "shown"), [(";", ";"), ("\t", "\\t"), ("|", "|")])
@pytest.mark.parametrize("zipped", [False, True])
def test_another_separator_is_told(
    tmp_path: Path, separator: str, shown: str, zipped: bool
) -> None:
    text = ROWS.write_csv(separator=separator).encode()
    path = tmp_path / ("ranked.csv.gz" if zipped else "ranked.csv")
    path.write_bytes(gzip.compress(text) if zipped else text)
    with pytest.raises(ft.InputError) as error:
        ft.audit(path, **COLUMNS)
    assert str(error.value).startswith(f"{path.name} has one column if its fields are")
    assert str(error.value).endswith(
        f'looks separated by {separator!r}: pass --separator "{shown}"'
    )
    assert ft.audit(path, separator=separator, **COLUMNS)


def test_another_separator_of_a_table_of_items_is_told(tmp_path: Path) -> None:
    ROWS.select("i", "sex").write_csv(tmp_path / "items.csv", separator=";")
    with pytest.raises(ft.InputError, match=r"items.csv has one column .* pass --sep"):
        ft.audit(ROWS.drop("sex"), items=tmp_path / "items.csv", **COLUMNS)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", b"q,i,s\n1,1,1\n", "a.csv has no column 'sex'"),
        ("b.csv", b"PK\x03\x04;,not a table", "b.csv has no column 'q'"),
        ("c.csv.gz", b"q;i;s", "c.csv.gz"),
        ("d.csv", b"q;\xff\n", "d.csv, line 1 is not UTF-8"),
        ("e.csv", b"", "e.csv is empty"),
    ],
)
def test_what_else_is_wrong_with_a_file_is_told_as_before(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ft.InputError) as error:
        ft.audit(tmp_path / name, **COLUMNS)
    assert words in str(error.value)
    assert "--separator" not in str(error.value)


def test_the_checksum_of_a_frame_is_that_of_its_values() -> None:
    def checksum(frame: pl.DataFrame) -> str:
        columns = Columns("q", "i", "s")
        return read_source(frame, columns, ["sex"], separator=",").sha256()

    own = checksum(ROWS)
    assert len(own) == 64
    assert checksum(ROWS.select("sex", "s", "i", "q", more="q")) == own
    assert checksum(ROWS.with_columns(sex=pl.Series(["fm", ""]))) != own
    assert checksum(ROWS.with_columns(sex=pl.Series(["f", None]))) != own
