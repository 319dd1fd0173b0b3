import math

import numpy as np
import pytest
from numpy.typing import NDArray

from fairtopk.kernels.ranking import rank_row, room_for


def plain_order(row: NDArray[np.floating], k: int) -> list[int]:
    """The columns that are there, by (score falling, column), as many as `k`."""
    there = [column for column in range(len(row)) if row[column] > -math.inf]
    return sorted(there, key=lambda column: (-row[column], column))[:k]


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
