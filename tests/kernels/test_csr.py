import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.kernels.csr import (
    TEST,
    TRAIN,
    VALIDATION,
    first_repeat,
    hold_out_last,
    hold_out_random,
    ideal_dcg,
    number_by_appearance,
    offsets_of,
    stable_order,
)

pytestmark = pytest.mark.kernel

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


times_of = st.lists(
    st.lists(st.integers(0, 6), min_size=1, max_size=12), min_size=1, max_size=4
)


@given(times_of, st.integers(1, 4), st.integers(0, 4), st.integers(0, 10))
def test_the_last_by_time_are_held_out_and_ties_go_by_order(
    users: list[list[int]], test: int, validation: int, least: int
) -> None:
    offsets = np.concatenate([[0], np.cumsum([len(times) for times in users])])
    least = max(least, test + validation + 1)
    part, latest = np.full(offsets[-1], TRAIN), np.empty(test + validation, np.int64)
    hold_out_last(offsets, np.concatenate(users), test, least, latest, part)
    for user, times in enumerate(users):
        got = part[offsets[user] : offsets[user + 1]].tolist()
        expected = [TRAIN] * len(times)
        if len(times) >= least:
            by_time = sorted(range(len(times)), key=lambda slot: (times[slot], slot))[::-1]
            for slot in by_time[:test]:
                expected[slot] = TEST
            for slot in by_time[test : test + validation]:
                expected[slot] = VALIDATION
        assert got == expected


def test_a_random_split_holds_out_each_rating_equally_often() -> None:
    offsets = np.array([0, 8, 10])
    parts = np.array([hold_out_random(offsets, 2, 1, 4, seed) for seed in range(4_000)])
    assert ((parts[:, :8] == TEST).sum(1) == 2).all()
    assert ((parts[:, :8] == VALIDATION).sum(1) == 1).all()
    assert (parts[:, 8:] == TRAIN).all()
    # A share p over n draws strays from p by four standard errors once in 15,000.
    for code, share in ((TEST, 2 / 8), (VALIDATION, 1 / 8)):
        error = 4 * np.sqrt(share * (1 - share) / len(parts))
        assert np.abs((parts[:, :8] == code).mean(0) - share).max() < error


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
