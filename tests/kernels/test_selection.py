import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fairtopk.kernels.selection import slots_of_kth


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data())
def test_the_slot_is_the_first_of_the_kth_largest_value(
    dtype: type, data: st.DataObject
) -> None:
    few = st.sampled_from([-np.inf, -1e30, -2.5, -1e-40, 0.0, 1e-40, 1.0, 2.5, 1e30])
    n_slots = data.draw(st.integers(1, 20))
    scores = data.draw(arrays.arrays(dtype, (3, n_slots), elements=few.map(dtype)))
    k = data.draw(st.integers(1, n_slots))
    expected = -np.sort(-scores, axis=1)[:, k - 1]
    for row, slot in enumerate(slots_of_kth(scores, k)):
        assert slot == np.flatnonzero(scores[row] == expected[row])[0]


def test_long_lists_of_any_numbers_agree_with_a_sort() -> None:
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((50, 999)) * 10.0 ** rng.integers(-9, 9, (50, 1))
    for k in (1, 2, 500, 999):
        found = scores[np.arange(50), slots_of_kth(scores, k)]
        assert (found == -np.sort(-scores, axis=1)[:, k - 1]).all()
