from itertools import chain

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairtopk as ft


def documents(sizes: list[int]) -> ft.Features:
    """Queries 0, 1, ... with so many documents; the feature is the row."""
    query = np.repeat(np.arange(len(sizes)), sizes)
    frame = pl.DataFrame(
        {"q": query, "grade": query % 3, "x": np.arange(len(query), dtype=float)}
    )
    return ft.Features.from_frame(frame, query="q", relevance="grade")


sizes_of = st.lists(st.integers(1, 5), min_size=10, max_size=30)


@given(sizes_of, st.integers(0, 5))
def test_the_parts_partition_the_queries(sizes: list[int], seed: int) -> None:
    data = documents(sizes)
    parts = ft.split_queries(data, test=0.3, validation=0.2, seed=seed)
    queries = [part.query_ids.to_list() for part in parts]
    assert sorted(chain.from_iterable(queries)) == list(range(len(sizes)))
    assert len(queries[2]) == round(0.3 * len(sizes))
    for part in parts:
        assert part.query_ids.is_sorted()
        whole = data.to_frame().filter(pl.col("query").is_in(part.query_ids.implode()))
        assert part.to_frame().equals(whole)


def test_a_split_depends_on_its_seed_alone() -> None:
    data = documents([2] * 20)
    first, again, other = (ft.split_queries(data, seed=seed).test for seed in (1, 1, 2))
    assert first.checksum == again.checksum != other.checksum


@pytest.mark.parametrize(
    ("shares", "sentence"),
    [
        ({"test": 0.0}, "leave some for training, got 0 and 0.2"),
        ({"test": 0.9}, "leave some for training, got 0.9 and 0.2"),
        ({"test": 0.1}, "table has 3 queries, too few for shares of 0.1 and 0.2"),
    ],
)
def test_shares_that_leave_a_part_empty_are_refused(
    shares: dict[str, float], sentence: str
) -> None:
    with pytest.raises(ft.InputError, match=sentence):
        ft.split_queries(documents([1, 1, 1]), **shares)
