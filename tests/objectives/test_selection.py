import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fairtopk.objectives.threshold import are_flags, slots_past_top

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data())
def test_the_slot_is_the_first_that_holds_the_value_past_the_top(
    dtype: type, data: st.DataObject
) -> None:
    few = st.sampled_from([-np.inf, -1e30, -2.5, -1e-40, 0.0, 1e-40, 1.0, 2.5, 1e30])
    n_slots = data.draw(st.integers(1, 20))
    scores = data.draw(arrays.arrays(dtype, (3, n_slots), elements=few.map(dtype)))
    weight = data.draw(arrays.arrays(dtype, (3, n_slots), elements=st.sampled_from([0, 1])))
    k = data.draw(arrays.arrays(np.int64, 3, elements=st.integers(0, n_slots)))
    for row, slot in enumerate(slots_past_top(scores, weight, k)):
        kept = np.flatnonzero(weight[row])
        if len(kept) <= k[row]:
            assert slot == -1
        else:
            value = -np.sort(-scores[row, kept])[k[row]]
            assert slot == kept[np.flatnonzero(scores[row, kept] == value)[0]]


@pytest.mark.compiled
def test_long_lists_of_any_numbers_agree_with_a_sort() -> None:
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((50, 999)) * 10.0 ** rng.integers(-9, 9, (50, 1))
    for k in (0, 1, 499, 998):
        slots = slots_past_top(scores, np.ones_like(scores), np.full(50, k))
        found = scores[np.arange(50), slots]
        assert (found == -np.sort(-scores, axis=1)[:, k]).all()


@pytest.mark.parametrize("other", [0.5, -1.0, 2.0, np.nan, np.inf])
def test_flags_are_zeros_and_ones(other: float) -> None:
    weight = np.ones((3, 20), np.float32)
    weight[1, :7] = 0
    assert are_flags(weight)
    weight[2, 19] = other
    assert not are_flags(weight)
