"""The same items of two sets of lists, and labels that contradict."""

import numpy as np

from fairtopk.auditing.baseline import slots_of_same
from fairtopk.auditing.rankings import label_holders


def test_the_first_known_label_of_an_item_is_held() -> None:
    item, group = np.array([0, 1, 0, 1, 2], np.int32), np.array([-1, 3, 2, 3, -1], np.int16)
    holder, other = label_holders(item, group, 3)
    assert holder.tolist() == [2, 1, -1]
    assert other == -1


def test_a_label_that_contradicts_an_earlier_one_is_found() -> None:
    item, group = np.array([0, 1, 0, 0], np.int32), np.array([5, 1, -1, 4], np.int16)
    assert label_holders(item, group, 2)[1] == 3


def test_items_are_found_in_the_paired_list_only() -> None:
    # Lists 7 8 | 8 9 against 9 8 | 7 8 | 5 7, of which the first two are paired crosswise.
    first = np.array([0, 2, 4]), np.array([0, 1, 1, 2], np.int32)
    second = np.array([0, 2, 4, 6]), np.array([2, 1, 0, 1, -1, 0], np.int32)
    pairs = np.array([0, 1]), np.array([1, 0])
    assert slots_of_same(first, second, pairs, 3).tolist() == [3, 2, 0, 1, -1, -1]


def test_an_item_of_an_earlier_pair_is_not_taken_for_one_of_this() -> None:
    first = np.array([0, 1, 2]), np.array([0, 1], np.int32)
    second = np.array([0, 1, 2]), np.array([0, 0], np.int32)
    pairs = np.array([0, 1]), np.array([0, 1])
    assert slots_of_same(first, second, pairs, 2).tolist() == [0, -1]
