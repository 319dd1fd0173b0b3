"""Sums after labels are shuffled, against those of the labels that were dealt."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.kernels.sums import (
    GroupSums,
    Key,
    Places,
    Ranked,
    drawn_sums,
    place_sums,
    shuffled_sums,
)

pytestmark = pytest.mark.kernel

N_GROUPS, KEY = 3, Key(0, 0, 0)


def shuffled(group: list[int], ks: list[int], *, rounds: int, key: Key = KEY) -> GroupSums:
    """One list whose exposures tell its places apart."""
    exposure = 2.0 ** -np.arange(1, min(ks[-1], len(group)) + 1)[None]
    lists = Ranked(exposure, np.array([group], np.int16))
    return shuffled_sums(lists, N_GROUPS, ks, rounds=rounds, key=key)


def labels_of(sums: GroupSums, one: int, n: int) -> tuple[int, ...]:
    """The labels that a shuffle put on each place, where `ks` is 1 to n; -1 unknown."""
    counts = np.diff(sums.members[0, one], axis=-1, prepend=0)
    return tuple(
        int(counts[:, place].argmax()) if counts[:, place].any() else -1 for place in range(n)
    )


@given(
    group=st.lists(st.integers(-1, N_GROUPS - 1), min_size=1, max_size=9),
    ks=st.lists(st.integers(1, 12), min_size=1, max_size=4, unique=True).map(sorted),
)
def test_the_sums_are_those_of_some_order_of_the_known_labels(
    group: list[int], ks: list[int]
) -> None:
    every = list(range(1, len(group) + 1))
    sums, whole = shuffled(group, ks, rounds=5), shuffled(group, every, rounds=5)
    for one in range(5):
        labels = labels_of(whole, one, len(group))
        assert Counter(labels) == Counter(group)
        assert [label < 0 for label in labels] == [label < 0 for label in group]
        # The same key deals the same labels, wherever the list is cut.
        exposure = 2.0 ** -np.arange(1, len(group) + 1)[None]
        places = Places(exposure, np.array([labels]), 0 * exposure, np.array([len(group)]))
        plain = place_sums(places, np.ones((1, N_GROUPS), int), np.zeros((1, len(ks))), ks)
        for name, values in sums._asdict().items():
            np.testing.assert_allclose(values[:, one], getattr(plain, name), atol=1e-12)


@pytest.mark.compiled
@pytest.mark.parametrize("group", [[0, -1, 1, 2], [2, 2, -1, 0, 1], [0, 0, 1, 1]])
def test_each_order_is_as_likely(group: list[int]) -> None:
    rounds = 6_000
    sums = shuffled(group, list(range(1, len(group) + 1)), rounds=rounds)
    counts = Counter(labels_of(sums, one, len(group)) for one in range(rounds))
    n_orders = {4: 6, 5: 12}[len(group)]
    assert len(counts) == n_orders
    expected = rounds / n_orders
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi_square < {6: 20.5, 12: 31.3}[n_orders]  # 0.1 % of 5 and 11 degrees of freedom


@pytest.mark.compiled
def test_two_shuffles_in_a_row_know_nothing_of_each_other() -> None:
    sums = shuffled([0, 1, 2], [1, 2, 3], rounds=20_000)
    labels = [labels_of(sums, one, 3) for one in range(20_000)]
    pairs = Counter(zip(labels[::2], labels[1::2], strict=True))
    assert len(pairs) == 36
    expected = 10_000 / 36
    assert sum((count - expected) ** 2 / expected for count in pairs.values()) < 66.6  # 35 d.f.


def test_lists_rounds_and_seeds_have_shuffles_of_their_own() -> None:
    group, ks = [0, 1, 2, 0, 1, 2, 0, 1, 2], list(range(1, 10))

    def dealt(key: Key) -> list[tuple[int, ...]]:
        sums = shuffled(group, ks, rounds=4, key=key)
        return [labels_of(sums, one, 9) for one in range(4)]

    assert dealt(Key(1, 2, 3)) == dealt(Key(1, 2, 3))
    others = [dealt(key) for key in (Key(0, 2, 3), Key(1, 3, 3), Key(1, 2, 4))]
    assert all(other != dealt(Key(1, 2, 3)) for other in others)
    exposure = np.repeat(2.0 ** -np.arange(1, 10)[None], 2, axis=0)
    both = Ranked(exposure, np.array([group] * 2, np.int16))
    sums = shuffled_sums(both, N_GROUPS, ks, rounds=4, key=Key(1, 2, 3))
    alone = shuffled(group, ks, rounds=4, key=Key(1, 3, 3))
    np.testing.assert_array_equal(sums.members[1], alone.members[0])


def test_a_list_of_one_group_or_none_keeps_its_labels() -> None:
    assert labels_of(shuffled([1, -1, 1], [1, 2, 3], rounds=2), 1, 3) == (1, -1, 1)
    assert not shuffled([-1, -1], [1, 2], rounds=2).members.any()


def drawn(
    head: list[int], size: list[int], ks: list[int], *, rounds: int, key: Key = KEY
) -> GroupSums:
    """One list whose exposures tell its places apart."""
    exposure = 2.0 ** -np.arange(1, len(head) + 1)[None]
    heads = Ranked(exposure, np.array([head], np.int16))
    return drawn_sums(heads, np.array([size]), ks, rounds=rounds, key=key)


@given(
    group=st.lists(st.integers(-1, N_GROUPS - 1), min_size=1, max_size=9),
    head=st.integers(1, 9),
    ks=st.lists(st.integers(1, 12), min_size=1, max_size=4, unique=True).map(sorted),
)
def test_the_sums_are_those_of_the_start_of_some_order_of_the_known_labels(
    group: list[int], head: int, ks: list[int]
) -> None:
    first, size = group[:head], [group.count(label) for label in range(N_GROUPS)]
    n = len(first)
    ks = sorted({*ks, n})  # the same key deals the same labels to as many places
    sums, whole = (drawn(first, size, at, rounds=5) for at in (ks, list(range(1, n + 1))))
    for one in range(5):
        labels = labels_of(whole, one, n)
        assert [label < 0 for label in labels] == [label < 0 for label in first]
        assert not Counter(label for label in labels if label >= 0) - Counter(group)
        exposure = 2.0 ** -np.arange(1, n + 1)[None]
        places = Places(exposure, np.array([labels]), 0 * exposure, np.array([n]))
        plain = place_sums(places, np.ones((1, N_GROUPS), int), np.zeros((1, len(ks))), ks)
        for name, values in sums._asdict().items():
            np.testing.assert_allclose(values[:, one], getattr(plain, name), atol=1e-12)


@pytest.mark.parametrize(
    ("head", "size", "chances"),
    [
        # Of labels 0, 0, 1, 2 the first two places have 12 pairs, equal ones counted apart.
        ([0, 0], [2, 1, 1], {(0, 0): 2, (0, 1): 2, (1, 0): 2, (0, 2): 2, (2, 0): 2, (1, 2): 1,
                             (2, 1): 1}),
        ([2, -1, 0], [0, 1, 2], {(1, -1, 2): 1, (2, -1, 1): 1, (2, -1, 2): 1}),
    ],
)  # fmt: skip
def test_each_start_is_as_likely_as_there_are_orders_with_it(
    head: list[int], size: list[int], chances: dict[tuple[int, ...], int]
) -> None:
    rounds = 6_000
    sums = drawn(head, size, list(range(1, len(head) + 1)), rounds=rounds)
    counts = Counter(labels_of(sums, one, len(head)) for one in range(rounds))
    assert set(counts) == set(chances)
    expected = {one: rounds * n / sum(chances.values()) for one, n in chances.items()}
    chi_square = sum((counts[one] - n) ** 2 / n for one, n in expected.items())
    assert chi_square < {7: 22.5, 3: 13.8}[len(chances)]  # 0.1 % of 6 and 2 d.f.


def test_lists_rounds_and_seeds_have_draws_of_their_own() -> None:
    head, size, ks = [0] * 9, [30, 30, 30], list(range(1, 10))

    def dealt(key: Key) -> list[tuple[int, ...]]:
        sums = drawn(head, size, ks, rounds=4, key=key)
        return [labels_of(sums, one, 9) for one in range(4)]

    assert dealt(Key(1, 2, 3)) == dealt(Key(1, 2, 3))
    assert len(set(dealt(KEY))) == 4
    others = [dealt(key) for key in (Key(0, 2, 3), Key(1, 3, 3), Key(1, 2, 4))]
    assert all(other != dealt(Key(1, 2, 3)) for other in others)


def test_a_top_of_one_group_or_none_keeps_its_labels() -> None:
    assert labels_of(drawn([1, -1, 1], [0, 2, 0], [1, 2, 3], rounds=2), 1, 3) == (1, -1, 1)
    assert not drawn([-1, -1], [0, 0, 0], [1, 2], rounds=2).members.any()
