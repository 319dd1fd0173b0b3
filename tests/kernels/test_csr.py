import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.kernels.csr import (
    first_repeat,
    is_sorted,
    number_by_appearance,
    offsets_of,
    stable_order,
)

keys_of = st.lists(st.integers(0, 6), min_size=1, max_size=40)


@given(st.lists(st.integers(-5, 20), min_size=1, max_size=40))
def test_ids_are_numbered_in_order_of_first_appearance(ids: list[int]) -> None:
    table = np.full(max(ids) - min(ids) + 1, -1, np.int32)
    codes, first = number_by_appearance(np.array(ids), min(ids), table)
    seen = list(dict.fromkeys(ids))
    assert codes.tolist() == [seen.index(one) for one in ids]
    assert first.tolist() == [ids.index(one) for one in seen]


@given(keys_of)
def test_rows_are_grouped_by_key_in_their_given_order(keys: list[int]) -> None:
    array = np.array(keys, np.int32)
    offsets = offsets_of(array, 7)
    assert offsets.tolist() == [sum(key < bound for key in keys) for bound in range(8)]
    assert stable_order(array, offsets).tolist() == np.argsort(array, kind="stable").tolist()
    assert is_sorted(array) == (keys == sorted(keys))


@given(st.lists(st.lists(st.integers(0, 5), max_size=8), min_size=1, max_size=5))
def test_an_item_twice_under_one_key_is_found(lists: list[list[int]]) -> None:
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in lists])])
    item = np.array([i for one in lists for i in one], np.int32)
    earlier, later = first_repeat(offsets, item, 6)
    if all(len(set(one)) == len(one) for one in lists):
        assert (earlier, later) == (-1, -1)
    else:
        assert earlier < later
        assert item[earlier] == item[later]
        assert np.searchsorted(offsets, earlier, "right") == np.searchsorted(
            offsets, later, "right"
        )
