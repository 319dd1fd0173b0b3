import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.kernels.heaps import put_smallest_last


@given(keys=st.lists(st.floats(-9, 9), unique=True, max_size=40), wanted=st.integers(0, 45))
def test_the_smallest_keys_end_the_rows_and_no_row_is_lost(
    keys: list[float], wanted: int
) -> None:
    rows = np.arange(len(keys))
    put_smallest_last(np.array(keys), rows, wanted)
    assert sorted(rows.tolist()) == list(range(len(keys)))
    falling = sorted(range(len(keys)), key=lambda row: -keys[row])
    n = min(wanted, len(keys))
    assert rows[len(keys) - n :].tolist() == falling[len(keys) - n :]


def test_keys_that_are_infinite_come_first() -> None:
    rows = np.arange(6)
    put_smallest_last(np.array([np.inf, 3.0, np.inf, 1.0, 2.0, np.inf]), rows, 3)
    assert rows[3:].tolist() == [1, 4, 3]
