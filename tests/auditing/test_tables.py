"""The tables of an audit in a terminal that is too narrow for them."""

from typing import Any

import polars as pl
import pytest
from rich.console import Console

import fairtopk as ft

LONG = "people_with_a_very_long_label_that_has_no_space_in_it"
COLUMNS: dict[str, Any] = {"query": "q", "item": "i", "score": "s", "groups": "region_of_birth"}


def found(ks: list[int]) -> ft.Audit:
    n = 10
    rows = pl.DataFrame({"q": [q for q in range(6) for _ in range(n)], "i": list(range(n)) * 6})
    rows = rows.with_columns(s=(pl.col("i") * 7 + pl.col("q") * 3) % 13)
    labels = pl.Series([LONG, "other"]).gather(rows["i"] % 2)
    return ft.audit(rows.with_columns(region_of_birth=labels), baseline=rows.with_columns(
        s=-pl.col("s"), region_of_birth=labels), k=ks, **COLUMNS)  # fmt: skip


def printed(audit: ft.Audit, width: int) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(audit.table())
    return captured.get()


def cells(text: str, place: int) -> str:
    """Return all that stands in one column of tables, put together without spaces."""
    rows = [line.split("│") for line in text.splitlines() if line.startswith("│")]
    return "".join(row[1 + place] for row in rows).replace(" ", "")


@pytest.mark.parametrize("width", [80, 60])
@pytest.mark.parametrize("ks", [[2], [2, 3, 5, 7, 9]])
def test_names_are_folded_and_never_cut(width: int, ks: list[int]) -> None:
    text = printed(found(ks), width)
    assert "…" not in text
    assert all(len(line) <= width for line in text.splitlines())
    assert LONG in cells(text, 0)
    assert f"region_of_birth:rank_exposure_gap_signed@{ks[-1]}" in cells(text, 0)


def test_many_lengths_of_the_top_are_put_into_several_tables() -> None:
    text = printed(found([2, 3, 5, 7, 9]), 120)
    assert text.count("region_of_birth: differences") == 2
    for k in (2, 3, 5, 7, 9):
        assert f"K = {k} " in text


def test_each_group_is_compared_with_the_one_that_gets_most() -> None:
    audit = found([3])
    groups = audit.to_dict()["columns"][0]["groups"]
    ratio = audit.to_dict()["columns"][0]["metrics"]["impact_ratio@3"]
    by_name = {group["name"]: group["ratio_to_most@3"] for group in groups}
    assert by_name[ratio["most"]]["value"] == 1
    assert by_name[ratio["least"]]["value"] == pytest.approx(ratio["value"])
    assert {one["most"] for one in by_name.values()} == {ratio["most"]}
    shown = by_name[ratio["least"]]["ci95"]
    assert f"{ratio['value']:.3f} ({shown[0]:.3g}-{shown[1]:.3g})" in printed(audit, 150)


def test_a_name_cannot_steer_the_terminal() -> None:
    rows = pl.DataFrame(
        {"q": [1, 1], "i": [1, 2], "s": [2, 1], "g": ["[red]w\x1b[31m", "\u202ex"]}
    )
    audit = ft.audit(rows, query="q", item="i", score="s", groups="g", k=1)
    text = printed(audit, 200)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[red]w" in text
