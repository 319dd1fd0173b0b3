import numpy as np
import pytest

from fairtopk.evaluation import relevance_of, sizes_without

pytestmark = pytest.mark.kernel

USERS = np.array([2, 0])
OFFSETS = np.array([0, 2, 3, 5])  # items 1, 4 of user 0, item 2 of user 1, items 0, 3 of user 2
ITEM = np.array([1, 4, 2, 0, 3], np.int32)


def test_sizes_are_those_of_the_catalogue_without_the_users_items() -> None:
    group = np.array([0, 1, 1, -1, 1], np.int32)
    assert sizes_without(USERS, OFFSETS, ITEM, group, 3).tolist() == [[0, 3, 0], [1, 1, 0]]


def test_relevance_is_what_that_user_rated_the_item() -> None:
    rating = np.array([1.0, 2.0, 3.0, 4.0, 5.0], np.float32)
    listed = np.array([[4, 3, 0, 1], [4, 3, 1, -1]], np.int32)
    found = relevance_of(listed, USERS, OFFSETS, ITEM, rating, 5)
    assert found.tolist() == [[0, 5, 4, 0], [2, 0, 1, 0]]
