import math

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fairtopk.kernels.ranking import (
    UserItems,
    fill_exponentials,
    rank_row,
    room_for,
    top_of,
)

pytestmark = pytest.mark.kernel


def plain_order(row: NDArray[np.floating], k: int) -> list[int]:
    """The columns that are there, by (score falling, column), as many as `k`."""
    there = [column for column in range(len(row)) if row[column] > -math.inf]
    return sorted(there, key=lambda column: (-row[column], column))[:k]


@pytest.mark.compiled
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("values", [3, 50, 10**6])  # many, some and hardly any ties
@pytest.mark.parametrize("k", [1, 7, 60, 400, 5_000])
def test_a_row_has_the_top_of_a_full_sort(dtype: type, values: int, k: int) -> None:
    rng = np.random.default_rng(k)
    scores = rng.integers(-values, values, (8, 3_001)).astype(dtype) / 7
    scores[rng.random(scores.shape) < 0.1] = -np.inf
    scores[0, 40:] = -np.inf
    scores[1] = -np.inf
    scores[2, ::3], scores[2, 1::3] = -0.0, 0.0
    work = room_for(3_001, np.dtype(dtype))
    for row in scores:
        work.row[:] = row
        count = rank_row(work, len(row), k)
        assert work.column[0, :count].tolist() == plain_order(row, k)


def test_the_best_may_all_stand_together_or_far_apart() -> None:
    work = room_for(1_000, np.dtype(np.float32))
    for best in (range(990, 1_000), range(0, 1_000, 100), [0, 1, 998, 999]):
        work.row[:] = np.linspace(-1, -2, 1_000)
        work.row[best] = 5
        assert rank_row(work, 1_000, len(best)) == len(best)
        assert work.column[0, : len(best)].tolist() == list(best)


SCORES = st.lists(st.floats(-80, 200, width=32), min_size=1, max_size=40)
both_precisions = pytest.mark.parametrize(
    ("dtype", "error"), [(np.float32, 1e-5), (np.float64, 1e-14)]
)


def filled(row: NDArray[np.floating]) -> tuple[NDArray[np.floating], float]:
    """The exponentials of scores less the highest, and their sum."""
    out, power = np.empty_like(row), np.empty_like(row)
    bits = power.view(f"i{row.itemsize}")
    return out, fill_exponentials(row, row.max(), bits, power, out)


@both_precisions
@given(scores=SCORES)
def test_they_are_those_of_the_library(scores: list[float], dtype: type, error: float) -> None:
    row = np.array(scores, dtype)
    out, total = filled(row)
    plain = [math.exp(float(score) - float(row.max())) for score in row]
    # Of small ones the relative error is larger, but they hardly count.
    assert out.tolist() == pytest.approx(plain, rel=error, abs=1e-35)
    assert total == pytest.approx(math.fsum(plain), rel=3e-7 if dtype is np.float32 else 1e-14)


@both_precisions
def test_rows_of_any_length_are_added_up_whole(dtype: type, error: float) -> None:
    rng = np.random.default_rng(0)
    for n in (1, 15, 1_023, 1_024, 1_025, 30_000):
        row = rng.normal(0, 3, n).astype(dtype)
        _, total = filled(row)
        exact = math.fsum(math.exp(float(score) - float(row.max())) for score in row)
        assert total == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("far", [-3e38, -1e4, -100.0, -math.inf])
def test_scores_far_below_the_highest_have_next_to_nothing(far: float) -> None:
    row = np.array([3e38 if far == -3e38 else 0.0, far], np.float32)
    out, total = filled(row)
    assert total == 1
    assert out[0] == 1
    assert 0 <= out[1] < 1e-37


# Few distinct values make ties; the two zeros and the extremes are traps for a sort by bits.
SCORE = st.sampled_from([0.0, -0.0, 1.0, -1.5, 1e-45, -1e-45, 3e38, -3e38, 5000.5, -math.inf])
best_in_both_precisions = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def plain_top(row: NDArray[np.floating], k: int) -> list[int]:
    """The columns that are there, by (score falling, column), as many as `k`."""
    there = [column for column in range(len(row)) if row[column] > -math.inf]
    return sorted(there, key=lambda column: (-row[column], column))[:k]


@best_in_both_precisions
@given(scores=st.lists(SCORE, min_size=1, max_size=30), k=st.integers(1, 32))
@example(scores=[-0.0, 0.0, -0.0], k=2)
@example(scores=[-math.inf] * 5, k=3)
def test_the_top_is_sorted_by_score_then_by_column(
    scores: list[float], k: int, dtype: type
) -> None:
    row = np.array(scores, dtype)
    found, expected = top_of(row[None], k), plain_top(row, k)
    missing = k - len(expected)
    assert found.column[0].tolist() == expected + [-1] * missing
    assert found.scores[0].tolist() == row[expected].tolist() + [-math.inf] * missing


@best_in_both_precisions
def test_the_sum_of_exponentials_is_that_of_the_whole_row(dtype: type) -> None:
    scores = np.random.default_rng(0).normal(0, 2, (5, 700)).astype(dtype)
    scores[:, ::3], scores[4] = -np.inf, -np.inf
    expected = torch.from_numpy(scores).double().logsumexp(-1).numpy()
    np.testing.assert_allclose(top_of(scores, 5).log_sum, expected, atol=1e-6)


def test_the_items_of_a_user_are_left_out_and_the_scores_left_alone() -> None:
    scores = np.array([[5.0, 4.0, 3.0, 2.0]] * 3, np.float32)
    items = UserItems(
        np.array([2, 0, 1]), np.array([0, 2, 2, 6]), np.array([0, 3, 0, 1, 2, 3], np.int32)
    )
    found = top_of(scores, 2, items)
    assert found.column.tolist() == [[-1, -1], [1, 2], [0, 1]]
    assert found.log_sum[0] == -math.inf
    assert found.log_sum[1] == pytest.approx(math.log(math.exp(4) + math.exp(3)))
    assert (scores == [5, 4, 3, 2]).all()
