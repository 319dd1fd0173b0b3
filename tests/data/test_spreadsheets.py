"""Cells of a CSV that a spreadsheet would run."""

import polars as pl
import pytest

from fairtopk.data.tables import guarded


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
