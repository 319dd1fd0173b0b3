from fractions import Fraction
from math import ceil, floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.reranking.det import (
    CONSERVATIVE,
    GREEDY,
    RELAXED,
    fill_by_bounds,
    fill_by_sorting,
    floor_of,
)

Case = tuple[list[int], list[Fraction], int]  # group of each place, shares, k


@st.composite
def cases(draw: st.DrawFn, *, most_groups: int = 6, enough: bool = False) -> Case:
    """The last share is that of the group without a floor; together they are 1."""
    n_groups = draw(st.integers(1, most_groups))
    weights = draw(st.lists(st.integers(0, 6), min_size=n_groups, max_size=n_groups))
    weights.append(draw(st.integers(0, 3)) + (sum(weights) == 0))
    shares = [Fraction(weight, sum(weights)) for weight in weights]
    group = draw(st.lists(st.integers(0, n_groups), min_size=1, max_size=14))
    k = draw(st.integers(1, 16))
    if enough:
        for one, share in enumerate(shares[:-1]):
            missing = floor(min(k, 14) * share) - group.count(one)
            group += [one] * max(0, missing)
        group = draw(st.permutations(group))
        k = min(k, 14)
    return group, shares, k


def run(case: Case, rule: int | None) -> tuple[list[int], bool]:
    group, shares, k = case
    order = np.empty((1, len(group)), np.int64)
    labels, n_items = np.array([group], np.int16), np.array([len(group)])
    wanted = np.array([shares], np.float64)
    if rule is None:
        met = fill_by_sorting(labels, n_items, wanted, k, order)
    else:
        met = fill_by_bounds(labels, n_items, wanted, k, rule, order)
    return order[0].tolist(), bool(met[0])


def has_floors(case: Case, order: list[int]) -> bool:
    group, shares, k = case
    labels = [group[place] for place in order[:k]]
    return all(
        labels[:i].count(one) >= floor(i * share)
        for i in range(1, len(labels) + 1)
        for one, share in enumerate(shares[:-1])
    )


def plain_bounds(case: Case, rule: int) -> list[int]:
    """Each rank by the sets of groups below their floor and below their ceiling."""
    group, shares, k = case
    queues = [
        [place for place, one in enumerate(group) if one == g] for g in range(len(shares))
    ]
    counts, found = [0] * len(shares), []
    for rank in range(1, min(k, len(group)) + 1):
        left = [g for g, queue in enumerate(queues) if queue]
        below_min = [
            g for g in left if g < len(shares) - 1 and counts[g] < floor(rank * shares[g])
        ]
        below_max = [g for g in left if counts[g] < ceil(rank * shares[g])]

        def urgency(g: int, rank: int = rank) -> Fraction | int:
            due = ceil(rank * shares[g]) / shares[g]
            return {GREEDY: 0, CONSERVATIVE: due, RELAXED: ceil(due)}[rule]

        if below_min:
            chosen = min(below_min, key=lambda g: queues[g][0])
        elif below_max:
            chosen = min(below_max, key=lambda g: (urgency(g), queues[g][0]))
        else:
            chosen = min(left, key=lambda g: queues[g][0])
        found.append(queues[chosen].pop(0))
        counts[chosen] += 1
    return found + [place for place in range(len(group)) if place not in found]


def plain_sorting(case: Case) -> list[int]:
    """With a counter that goes on until the top is full, and swaps of neighbours."""
    group, shares, k = case
    queues = [
        [place for place, one in enumerate(group) if one == g] for g in range(len(shares))
    ]
    found: list[int] = []
    limits: list[int] = []
    counter, wanted = 0, min(k, len(group))

    def append(place: int, limit: int) -> None:
        found.append(place)
        limits.append(limit)
        at = len(found) - 1
        while at > 0 and limits[at - 1] >= at and found[at - 1] > found[at]:
            for values in (found, limits):
                values[at - 1], values[at] = values[at], values[at - 1]
            at -= 1

    while len(found) < wanted:
        counter += 1
        if not any(queue and share for queue, share in zip(queues, shares, strict=True)):
            left = min(queue[0] for queue in queues if queue)
            queues[group[left]].remove(left)
            append(left, len(group))
            continue
        rose = [
            g
            for g, share in enumerate(shares)
            if queues[g] and floor(counter * share) > floor((counter - 1) * share)
        ]
        for g in sorted(rose, key=lambda g: queues[g][0])[: wanted - len(found)]:
            append(queues[g].pop(0), counter - 1 if g < len(shares) - 1 else len(group))
    return found + [place for place in range(len(group)) if place not in found]


@pytest.mark.parametrize("rule", [GREEDY, CONSERVATIVE, RELAXED])
@given(case=cases())
def test_each_rank_goes_to_the_group_whose_turn_it_is(rule: int, case: Case) -> None:
    order, met = run(case, rule)
    assert order == plain_bounds(case, rule)
    assert met == has_floors(case, order)


@given(case=cases())
def test_sorting_is_that_of_a_counter_and_swaps(case: Case) -> None:
    order, met = run(case, None)
    assert order == plain_sorting(case)
    assert met == has_floors(case, order)


@pytest.mark.parametrize("rule", [CONSERVATIVE, RELAXED, None])
@given(case=cases(enough=True))
def test_every_prefix_has_its_floors_where_groups_are_large_enough(
    rule: int | None, case: Case
) -> None:
    order, met = run(case, rule)
    assert has_floors(case, order)
    assert met


@given(case=cases(most_groups=2, enough=True))
def test_greedy_has_the_floors_of_two_groups_and_others(case: Case) -> None:
    assert run(case, GREEDY)[1]


def test_greedy_misses_a_floor_of_four_groups_and_says_so() -> None:
    shares = [Fraction(1, 3), Fraction(1, 3), Fraction(1, 6), Fraction(1, 6), Fraction(0)]
    case = [2, 3, 0, 0, 1, 1], shares, 6
    # At rank 3 both groups with a third are due, and neither has an item yet.
    assert run(case, GREEDY) == ([0, 1, 2, 4, 3, 5], False)
    assert all(run(case, rule)[1] for rule in (CONSERVATIVE, RELAXED, None))


def test_a_floor_is_not_lost_to_rounding() -> None:
    assert 0.29 * 100 < 29
    assert floor_of(100, 0.29) == 29
