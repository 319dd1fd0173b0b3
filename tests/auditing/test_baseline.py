"""What is told of a baseline that ranks something else."""

from typing import Any

import polars as pl
import pytest

import fairtopk as ft
from fairtopk.reporting.page import audit_page

COLUMNS: dict[str, Any] = {"query": "q", "item": "i", "score": "s", "groups": "sex", "k": 2}


def lists(*rows: str) -> pl.DataFrame:
    """A list of each text: its query and items; a to m are women, later letters are men."""
    cells = [(text[0], item, -place) for text in rows for place, item in enumerate(text[1:])]
    frame = pl.DataFrame(cells, schema=["q", "i", "s"], orient="row")
    return frame.with_columns(
        sex=pl.when(pl.col("i") < "n").then(pl.lit("f")).otherwise(pl.lit("m"))
    )


def baseline_of(now: pl.DataFrame, before: pl.DataFrame) -> dict[str, Any]:
    found: dict[str, Any] = ft.audit(now, baseline=before, **COLUMNS).to_dict()
    return found["baseline"]


def test_the_same_candidates_in_another_order_need_no_note() -> None:
    found = baseline_of(lists("1axb", "2xa"), lists("2ax", "1bxa"))
    assert (found["other_candidates"], found["notes"]) == (0, [])


@pytest.mark.parametrize("before", ["1axc", "1ax", "1axbc"])
def test_lists_with_other_candidates_are_counted(before: str) -> None:
    found = baseline_of(lists("1axb", "2xa"), lists(before, "2ax"))
    assert found["other_candidates"] == 1
    assert found["notes"] == [
        "OTHER CANDIDATES: 1 of 2 lists rank other items in the table than in the baseline, so "
        "differences are not due to the order alone"
    ]


def test_the_candidates_of_another_query_are_not_those_of_this() -> None:
    found = baseline_of(lists("1ax", "2by"), lists("1by", "2ax"))
    assert found["other_candidates"] == 2


def test_queries_of_one_side_are_counted_and_told_in_every_output() -> None:
    now, before = lists("1axb", "2xa", "3ax", "4ax"), lists("1axb", "5ax")
    found = ft.audit(now, baseline=before, **COLUMNS)
    record = found.to_dict()["baseline"]
    assert (record["queries"], record["only_in_audited"], record["only_in_baseline"]) == (
        1,
        3,
        1,
    )
    (note,) = record["notes"]
    assert note == (
        "queries left out of the comparison: 3 only in the table, 1 only in the baseline"
    )
    assert "Queries left out of the comparison: 3" in audit_page(found.to_dict())


def test_ids_may_be_numbers_in_one_and_text_in_the_other() -> None:
    now = lists("1axb", "2xa")
    before = now.with_columns(q=pl.col("q").cast(pl.Int64))
    assert baseline_of(now, before)["other_candidates"] == 0


def test_whole_numbers_are_the_same_ids_in_any_type() -> None:
    now = lists("1axb", "2xa").with_columns(
        i=pl.col("i").replace_strict({"a": 1, "b": 2, "x": 3})
    )
    before = now.with_columns(i=pl.col("i").cast(pl.Float64))
    assert baseline_of(now, before)["other_candidates"] == 0
    swapped = before.with_columns(sex=pl.col("sex").replace_strict({"f": "m", "m": "f"}))
    with pytest.raises(ft.InputError):
        baseline_of(now, swapped)


def test_a_baseline_is_read_and_checked_before_anything_is_measured() -> None:
    told: list[str] = []
    with pytest.raises(ft.InputError, match="no query in common"):
        ft.audit(
            lists("1axb"),
            baseline=lists("2axb"),
            progress=lambda what, done, total: told.append(what),
            **COLUMNS,
        )
    assert told == ["reading the table", "reading the table"]
