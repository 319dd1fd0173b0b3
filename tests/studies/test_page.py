"""The published pages on documents and on the catalogue show what their rows say."""

import operator
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from studies.catalogue.page import tables as catalogue_tables
from studies.documents.page import tables as document_tables
from studies.documents.run import TYPES
from studies.page import fill_marks, table
from studies.unseen.run import shown

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def catalogue(rows: Path) -> dict[str, str]:
    return catalogue_tables(pl.read_csv(rows))


def documents(rows: Path) -> dict[str, str]:
    return document_tables(pl.read_csv(rows, schema=TYPES))


def unseen(rows: Path) -> dict[str, str]:
    return {"unseen": shown(pl.read_csv(rows))}


@pytest.mark.parametrize(
    ("tables", "page"),
    [(catalogue, "catalogue.md"), (documents, "documents.md"), (unseen, "catalogue.md")],
)
def test_a_published_page_has_the_tables_of_its_rows(
    tables: Callable[[Path], dict[str, str]], page: str
) -> None:
    text = (RESULTS / page).read_text(encoding="utf-8")
    found = tables(RESULTS / f"{tables.__name__}.csv")
    assert all(f"<!-- {name} -->" in text for name in found)
    filled = fill_marks(text, found)
    numbers, published = (re.findall(r"\d+(?:\.\d+)?", one) for one in (filled, text))
    # Rows are stored with eight decimals: a table's last digit may round the other way.
    assert len(numbers) == len(published)
    assert sum(map(operator.ne, numbers, published)) <= 2
    assert re.sub(r"\d", "0", filled) == re.sub(r"\d", "0", text)


def test_only_what_stands_between_the_marks_is_replaced() -> None:
    page = "before\n<!-- a -->\nold\n<!-- a -->\nafter"
    filled = fill_marks(page, {"a": table(["x", "y"], [["1", "2"]])})
    assert filled == (
        "before\n<!-- a -->\n| x | y |\n| --- | --- |\n| 1 | 2 |\n<!-- a -->\nafter"
    )
