import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.models._optimizer_kernels import rows_behind


@given(
    last=st.lists(st.integers(0, 4), min_size=1, max_size=8),
    picks=st.lists(st.integers(0, 7), max_size=12),
    now=st.integers(0, 5),
)
def test_rows_behind_are_found_once_each_and_nothing_is_changed(
    last: list[int], picks: list[int], now: int
) -> None:
    steps = np.array(last, np.int32)
    rows = np.array([one % len(last) for one in picks], np.int64)
    found = rows_behind(rows, steps, now)
    assert sorted(found) == sorted({int(row) for row in rows if last[row] < now})
    assert steps.tolist() == last
