"""CONTRIBUTING's table "where a new piece goes", followed from outside the package."""

import json
from pathlib import Path

import polars as pl
import pytest
import torch
from torch import Tensor

import fairtopk as ft
from fairtopk.data.columns import Origin
from fairtopk.data.interactions import Tables
from fairtopk.data.registry import KNOWN, READERS, Known

LINES = [("ann", "alien", 4), ("ann", "up", 2), ("bob", "up", 5), ("bob", "jaws", 3)]
KINDS = {"alien": "scary", "up": "mild", "jaws": "scary"}


@pytest.fixture
def odd_file(tmp_path: Path) -> Path:
    """Ratings as JSON lines, which no reader of the package takes."""
    path = tmp_path / "ratings.jsonl"
    rows = [{"who": user, "film": item, "stars": stars} for user, item, stars in LINES]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_odd(path: Path) -> Tables:
    """A reader as CONTRIBUTING asks for: `Tables` with the columns of published data."""
    ratings = pl.read_ndjson(path).select(
        user_id="who", item_id="film", rating="stars", timestamp=pl.lit(0)
    )
    items = pl.DataFrame({"item_id": list(KINDS), "kind": list(KINDS.values())})
    return Tables(ratings, items, Origin(path.name), Origin("films"))


def first_group_leads(scores: Tensor, groups: Tensor) -> Tensor:
    """A metric: whether the first item of each list is of group 0, NaN without that group."""
    best = scores.argmax(dim=1, keepdim=True)
    leads = (groups.gather(1, best)[:, 0] == 0).float()
    return leads.where((groups == 0).any(1), torch.nan)


def test_a_metric_of_ones_own_gets_a_mean_an_interval_and_a_count_of_undefined_lists() -> None:
    scores = torch.tensor([[2.0, 1.0], [1.0, 2.0], [1.0, 0.0], [2.0, 1.0]])
    groups = torch.tensor([[0, 1], [0, 1], [0, 1], [1, 1]])
    values = first_group_leads(scores, groups)
    found = ft.metrics.mean_with_interval(values)
    assert found.mean == pytest.approx(2 / 3)
    low, high = found.ci95
    assert low <= found.mean <= high
    assert (found.n, found.undefined) == (3, 1)


def test_a_metric_of_ones_own_is_compared_list_by_list() -> None:
    groups = torch.tensor([[0, 1]] * 8)
    before, after = (
        first_group_leads(torch.tensor([row] * 8), groups) for row in ([0.0, 1.0], [1.0, 0.0])
    )
    found = ft.statistics.paired_difference(before.numpy(), after.numpy())
    assert found.difference == 1
    assert found.p < 0.05


def test_a_data_set_of_ones_own_is_a_frame(odd_file: Path) -> None:
    kinds = pl.DataFrame({"film": list(KINDS), "kind": list(KINDS.values())})
    data = ft.Interactions.from_frame(
        pl.read_ndjson(odd_file),
        user="who",
        item="film",
        rating="stars",
        groups=ft.groups_from(kinds, item="film", column="kind", equals="mild"),
    )
    assert (data.n_users, data.n_items, data.n_ratings) == (2, 3, 4)
    assert data.group_counts == {"mild": 1, "other": 2}


def test_a_reader_and_its_rows_make_a_name_that_load_knows(
    odd_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = Known("Odd", size="4 ratings", groups="kind", licence="none", home="this test")
    monkeypatch.setitem(KNOWN, "odd", row)
    monkeypatch.setitem(READERS, "odd", read_odd)
    rule = {"column": "kind", "equals": "scary"}
    data = ft.load("odd", odd_file, groups=rule)
    assert data.group_counts == {"scary": 2, "other": 1}
    assert "4 ratings by 2 users of 3 items" in data.notes[0]
    with pytest.raises(ft.InputError, match="odd has no option 'year'"):
        ft.load("odd", odd_file, year=3)
