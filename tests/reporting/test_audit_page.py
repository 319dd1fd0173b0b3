"""The page of an audit."""

from typing import Any

import polars as pl
import pytest

import fairtopk as ft
from fairtopk.reporting.page import audit_page

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    rows = pl.DataFrame({"q": [f"{EVIL}{n // 6}" for n in range(36)], "i": list(range(6)) * 6})
    rows = rows.with_columns(
        s=pl.Series([float(n % 6) for n in range(36)]),
        sex=pl.Series([EVIL, EVIL, "m", "m", "m", None] * 6),
    )
    other = rows.with_columns(s=-pl.col("s"))
    found = ft.audit(
        rows, query="q", item="i", score="s", groups="sex", k=[2, 3], baseline=other,
        fail_if=["impact_ratio@2 < 0.8", "impact_ratio@3 < 0"],
    )  # fmt: skip
    return found.to_dict()


def test_every_part_of_an_audit_is_on_its_page(record: dict[str, Any]) -> None:
    page = audit_page(record)
    for said in ("Change from the baseline", "Lists with the largest gaps, top 2", "(small)",
                 "impact_ratio@2 &lt; 0.8", "✓ passed", "Unknown labels: 1 items in 6 rows",
                 record["data"]["sha256"]):  # fmt: skip
        assert said in page, said


def test_names_of_groups_and_lists_are_text(record: dict[str, Any]) -> None:
    page = audit_page(record)
    assert EVIL not in page
    assert page.count("<script") == 3
    assert "&lt;script&gt;alert(1)&lt;/script&gt;0" in page


def test_ranks_alone_without_rules_or_baseline_have_a_page() -> None:
    rows = pl.DataFrame({"q": [1] * 4, "i": list("abcd"), "r": [1, 2, 3, 4], "g": list("xyxy")})
    found = ft.audit(rows, query="q", item="i", rank="r", groups="g", k=2)
    page = audit_page(found.to_dict())
    assert "Exposure (Eq. 9)" not in page
    assert "Change from the baseline" not in page
    assert "the data has ranks only" in page
