"""How much is asked of a table."""

from types import SimpleNamespace
from typing import cast

import pytest

from fairtopk.auditing.audit import shuffles_for
from fairtopk.auditing.rankings import Rankings


@pytest.mark.parametrize(
    ("rows", "lists", "shuffles"),
    [(8_000, 200, 999), (2_000_000, 20_000, 454), (10_000_000, 100_000, 99)],
)
def test_large_tables_are_shuffled_less_often(rows: int, lists: int, shuffles: int) -> None:
    rankings = SimpleNamespace(item=range(rows), query_ids=range(lists))
    assert shuffles_for(cast(Rankings, rankings)) == shuffles
