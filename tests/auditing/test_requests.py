"""How much is asked of a table."""

import polars as pl
import pytest

import fairtopk as ft
from fairtopk.auditing import audit

ROWS = pl.DataFrame({"q": [1] * 4, "i": list("abcd"), "s": [4, 3, 2, 1], "sex": list("fmfm")})


@pytest.mark.parametrize(
    ("budget", "shuffles"), [(999 * 14, 999), (999 * 14 - 1, 998), (454 * 14, 454), (14, 99)]
)
def test_large_tables_are_shuffled_less_often(
    budget: int, shuffles: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A shuffle of four rows in one list costs as much as 14 rows.
    monkeypatch.setattr(audit, "SHUFFLED_ROWS", budget)
    found = ft.audit(ROWS, query="q", item="i", score="s", groups="sex", k=2).to_dict()
    assert found["columns"][0]["metrics"]["impact_ratio_p@2"]["shuffles"] == shuffles
