import numpy as np
import pytest
from numpy.typing import NDArray

from fairtopk.kernels.random import stream
from fairtopk.kernels.ranking import UserItems
from fairtopk.lists.users import (
    draw_others,
    draw_slots,
    evaluation_lists,
    group_lists,
    training_lists,
)

pytestmark = pytest.mark.kernel


NO_HEAD = np.empty((30, 0), np.int32)


def ratings(owned: list[list[int]]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in owned])])
    return offsets, np.array([i for one in owned for i in one], np.int32)


@pytest.mark.parametrize(("n_items", "wanted"), [(40, 5), (12, 5), (12, 9), (12, 30)])
def test_others_are_distinct_unowned_and_equally_likely(n_items: int, wanted: int) -> None:
    owned = np.array([1, 4, 7], np.int32)
    taken, out = np.zeros(n_items, np.bool_), np.empty(wanted, np.int32)
    counts, rounds = np.zeros(n_items), 6_000
    for key in range(rounds):
        count, _ = draw_others(owned, taken, np.uint64(stream(key, 0, 0)), out)
        assert count == min(wanted, n_items - 3)
        assert len(set(out[:count].tolist())) == count
        counts[out[:count]] += 1
        assert not taken.any()
    assert counts[owned].sum() == 0
    share = count / (n_items - 3)
    free = np.delete(counts, owned) / rounds
    assert np.abs(free - share).max() <= 4.5 * np.sqrt(share * (1 - share) / rounds)


@pytest.mark.compiled
def test_slots_are_distinct_and_equally_likely() -> None:
    counts, out = np.zeros(9), np.empty(4, np.int64)
    for key in range(6_000):
        draw_slots(100, 109, np.uint64(stream(key, 0, 0)), out)
        assert len(set(out.tolist())) == 4
        counts[out - 100] += 1
    share = 4 / 9
    assert np.abs(counts / 6_000 - share).max() < 4.5 * np.sqrt(share * (1 - share) / 6_000)


def test_where_slots_are_few_all_are_taken_and_the_rest_left_alone() -> None:
    out = np.full(5, -1, np.int64)
    draw_slots(7, 10, np.uint64(stream(0, 0, 0)), out)
    assert sorted(out[:3].tolist()) == [7, 8, 9]
    assert out[3:].tolist() == [-1, -1]


def test_training_lists_hold_training_items_first_then_others() -> None:
    owned = [[3], [0, 1, 2, 3, 4, 5], [9, 8]]
    offsets, item = ratings(owned)
    lists, slots, mask = training_lists(
        UserItems(np.arange(3), offsets, item), NO_HEAD, 10, (3, 4, 0), (5, 1)
    )
    for user, mine in enumerate(owned):
        rated, others = lists[user, :3][mask[user, :3]], lists[user, 3:][mask[user, 3:]]
        assert len(rated) == min(3, len(mine))
        assert set(rated.tolist()) <= set(mine)
        assert len(others) == min(4, 10 - len(mine))
        assert not set(others.tolist()) & set(mine)
        assert item[slots[user, : len(rated)]].tolist() == rated.tolist()
        assert (slots[user, len(rated) :] == -1).all()
        assert slots.shape == (3, 3)
        assert (lists[user][~mask[user]] == 0).all()


def test_a_list_depends_on_seed_round_and_user_but_not_on_its_batch() -> None:
    offsets, item = ratings([[user, user + 1] for user in range(6)])

    def drawn(users: list[int], key: tuple[int, int]) -> list[list[int]]:
        owned = UserItems(np.array(users), offsets, item)
        lists, _, _ = training_lists(owned, NO_HEAD, 50, (2, 8, 0), key)
        return lists.tolist()

    together = drawn([0, 1, 2, 3, 4, 5], (7, 0))
    assert drawn([4, 2], (7, 0)) == [together[4], together[2]]
    assert drawn([4], (7, 1)) != [together[4]]
    assert drawn([4], (8, 0)) != [together[4]]


@pytest.mark.compiled
def test_evaluation_lists_hold_the_held_out_among_never_rated_items_in_random_order() -> None:
    offsets, item = ratings([[0, 1, 2, 3], [4, 5, 6]])
    held_out = np.array([True, False, False, True, False, True, False])
    places = []
    for seed in range(2_000):
        lists, slots, mask = evaluation_lists(
            UserItems(np.array([0, 1]), offsets, item), held_out, 20, (2, 5), (seed, 2)
        )
        assert mask.sum(1).tolist() == [7, 6]
        assert set(lists[0].tolist()) & {0, 1, 2, 3} == {0, 3}
        assert set(lists[1][:6].tolist()) & {4, 5, 6} == {5}
        assert (lists[1][slots[1] >= 0] == 5).all()
        assert not mask[1, 6]
        places.append(int(np.flatnonzero(lists[0] == 0)[0]))
    counts = np.bincount(places, minlength=7)
    assert ((counts - 2_000 / 7) ** 2 / (2_000 / 7)).sum() < 22.5  # 0.1 % of chi-square, 6 d.f.


def test_group_lists_hold_distinct_items_of_each_group_equally_likely() -> None:
    """Groups of 6, 1 and 0 items, 2 of each wanted; the rest is padding."""
    offsets, item = ratings([[10, 11, 12, 13, 14, 15], [20], []])
    counts, rounds = np.zeros(6), 3_000
    for seed in range(rounds):
        lists, label = group_lists(np.array([4]), (offsets, item), 2, (seed, 0))
        assert label.tolist() == [[0, 0, 1, -1, -1, -1]]
        assert lists[0, 2:].tolist() == [20, 0, 0, 0]
        first = lists[0, :2] - 10
        assert first[0] != first[1]
        counts[first] += 1
    share = 2 / 6
    assert np.abs(counts / rounds - share).max() < 4.5 * np.sqrt(share * (1 - share) / rounds)


def test_group_lists_depend_on_seed_round_and_user_but_not_on_their_batch() -> None:
    offsets, item = ratings([list(range(40)), list(range(40, 100))])

    def drawn(users: list[int], key: tuple[int, int]) -> list[list[int]]:
        lists, _ = group_lists(np.array(users), (offsets, item), 5, key)
        return lists.tolist()

    together = drawn([0, 1, 2, 3], (7, 0))
    assert drawn([3, 1], (7, 0)) == [together[3], together[1]]
    assert drawn([3], (7, 1)) != [together[3]]
    assert drawn([3], (8, 0)) != [together[3]]
    assert together[0] != together[1]


def test_group_lists_are_drawn_apart_from_the_users_own_list() -> None:
    """With one stream for both, the same places of equally long CSR rows would be drawn."""
    offsets, item = ratings([list(range(50)) for _ in range(30)])
    owned = UserItems(np.arange(30), offsets, item)
    own, _, _ = training_lists(owned, NO_HEAD, 60, (5, 1, 0), (7, 0))
    apart, _ = group_lists(np.arange(30), (offsets[:2], item[:50]), 5, (7, 0))
    assert (np.sort(own[:, :5]) != np.sort(apart)).any(1).all()
