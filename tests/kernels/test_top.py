import math

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fairtopk.kernels.ranking import UserItems, first_not_finite, top_of

# Few distinct values make ties; the two zeros and the extremes are traps for a sort by bits.
SCORE = st.sampled_from([0.0, -0.0, 1.0, -1.5, 1e-45, -1e-45, 3e38, -3e38, 5000.5, -math.inf])
both_precisions = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def plain_top(row: NDArray[np.floating], k: int) -> list[int]:
    """The columns that are there, by (score falling, column), as many as `k`."""
    there = [column for column in range(len(row)) if row[column] > -math.inf]
    return sorted(there, key=lambda column: (-row[column], column))[:k]


@both_precisions
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


@both_precisions
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


@both_precisions
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_the_first_score_that_is_not_finite_is_found(dtype: type, odd: float) -> None:
    scores = np.full((3, 100), np.finfo(dtype).max, dtype)
    assert first_not_finite(scores) == (-1, -1)
    scores[1, [70, 90]], scores[2, 0] = odd, odd
    assert first_not_finite(scores) == (1, 70)
