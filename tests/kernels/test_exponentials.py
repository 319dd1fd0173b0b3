import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fairtopk.kernels.ranking import fill_exponentials

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
