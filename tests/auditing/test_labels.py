"""Labels of items: one each, wherever they are given."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import fairtopk as ft

COLUMNS: dict[str, Any] = {"query": "q", "item": "i", "score": "s", "groups": "sex", "k": 2}


def frame(sex: str, items: str = "abcabc") -> pl.DataFrame:
    """Two lists of three items; an underscore is a missing label."""
    labels = [None if one == "_" else one for one in sex]
    rows = {"q": [1, 1, 1, 2, 2, 2], "i": list(items), "s": [3, 2, 1, 3, 2, 1], "sex": labels}
    return pl.DataFrame(rows)


def test_an_item_with_two_labels_is_refused_with_both_and_their_rows(tmp_path: Path) -> None:
    # Rows of queries mixed, so that lists and lines are in different orders.
    mixed = frame("fmmmfm").sort("i", "q")
    mixed.write_csv(tmp_path / "ranked.csv")
    with pytest.raises(ft.InputError) as error:
        ft.audit(tmp_path / "ranked.csv", **COLUMNS)
    assert str(error.value) == (
        "ranked.csv, line 3: item 'a' has sex 'm', but 'f' in ranked.csv, line 2; give it one "
        "label, or pass --local-items if ids are only unique within a query"
    )


def test_a_label_that_some_rows_lack_is_unknown_there() -> None:
    column = ft.audit(frame("fm_fmm"), **COLUMNS).to_dict()["columns"][0]
    assert column["unknown"] == {"items": 1, "rows": 1}


def test_local_items_may_have_another_label_in_another_query_and_count_by_row() -> None:
    record = ft.audit(frame("fmmmfm"), local_items=True, **COLUMNS).to_dict()
    assert record["data"]["items"] == 6
    assert {one["name"]: one["items"] for one in record["columns"][0]["groups"]} == {
        "f": 2,
        "m": 4,
    }


def test_a_table_of_items_without_a_label_is_refused() -> None:
    items = pl.DataFrame({"i": list("abc"), "sex": [None, "", None]})
    with pytest.raises(ft.InputError, match="no item of the table of items has a label in col"):
        ft.audit(frame("fmmfmm").drop("sex"), items=items, **COLUMNS)


def test_a_baseline_that_swaps_labels_is_refused() -> None:
    now, before = frame("fmmfmm"), frame("mffmff")
    with pytest.raises(ft.InputError) as error:
        ft.audit(now, baseline=before, **COLUMNS)
    assert str(error.value) == (
        "row 0 of the table: item 'a' has sex 'f', but 'm' in the baseline (row 0 of the "
        "table); an item has one label in both"
    )


def test_labels_that_contradict_in_lists_without_a_common_item_are_refused() -> None:
    now = frame("fmmffm", items="abcdef")
    before = frame("fmmffm", items="decabf")
    with pytest.raises(ft.InputError, match="item 'b' has sex 'm', but 'f' in the baseline"):
        ft.audit(now, baseline=before, **COLUMNS)


def test_a_baseline_of_local_items_is_compared_query_by_query() -> None:
    now = frame("fmmmfm")
    assert ft.audit(now, baseline=now, local_items=True, **COLUMNS).to_dict()["baseline"]
    with pytest.raises(ft.InputError, match=r"item 'a' has sex 'm', but 'f' in the baseline"):
        ft.audit(now, baseline=frame("fmmffm"), local_items=True, **COLUMNS)


def test_an_unknown_label_contradicts_none() -> None:
    found = ft.audit(frame("fm_fm_"), baseline=frame("_mm_mf", items="abcabd"), **COLUMNS)
    assert found.to_dict()["baseline"]["queries"] == 2
