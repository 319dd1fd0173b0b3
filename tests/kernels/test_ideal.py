import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.kernels.csr import ideal_dcg

GRADES = st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0, 5.0]), max_size=8), min_size=1)


def plain(grades: list[float], k: int) -> float:
    best = sorted(grades, reverse=True)[:k]
    return sum((2**grade - 1) / math.log2(1 + rank) for rank, grade in enumerate(best, 1))


@given(GRADES, st.integers(1, 10))
def test_it_is_the_dcg_of_the_best_k_grades_in_falling_order(
    users: list[list[float]], k: int
) -> None:
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in users])]).astype(np.int64)
    rating = np.array([grade for one in users for grade in one], np.float32)
    found = ideal_dcg(offsets, rating, k)
    assert found.tolist() == pytest.approx([plain(one, k) for one in users], rel=1e-12)


def test_ratings_are_left_in_their_order() -> None:
    rating = np.array([1.0, 5.0, 3.0])
    ideal_dcg(np.array([0, 3]), rating, 2)
    assert rating.tolist() == [1, 5, 3]
