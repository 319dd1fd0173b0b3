import itertools
import math
from fractions import Fraction
from math import ceil, floor

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fairtopk as ft
from fairtopk.errors import InputError
from fairtopk.kernels.random import draws
from fairtopk.reranking.det import (
    CONSERVATIVE,
    FLOORS,
    GREEDY,
    RELAXED,
    SORTED,
    Quotas,
    fill_lists,
    floor_of,
    random_floors,
)

pytestmark = pytest.mark.kernel

FAMILY = ["det-greedy", "det-cons", "det-relaxed", "det-const-sort"]
every_method = pytest.mark.parametrize("method", FAMILY)

SCORES = [[0.95 - 0.05 * item for item in range(10)]]
GROUPS = [[1] * 6 + [0] * 4]


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("det-greedy", [0, 1, 6, 2, 7, 3, 4, 8]),
        ("det-cons", [0, 6, 1, 2, 7, 3, 8, 4]),
        ("det-relaxed", [0, 6, 1, 2, 7, 3, 8, 4]),
        ("det-const-sort", [0, 1, 6, 2, 7, 3, 4, 8]),
    ],
)
@pytest.mark.parametrize(
    "targets", [{0: 0.4, 1: 0.6}, [0.4, 0.6], torch.tensor([0.4, 0.6]), None]
)
def test_the_worked_list_has_the_order_worked_out_for_it(
    method: str, expected: list[int], targets: object
) -> None:
    fair = ft.rerank(SCORES, GROUPS, method=method, targets=targets, k=8)
    assert fair.slot[0, :8].tolist() == expected
    assert fair.slot[0, 8:].tolist() == sorted({*range(10)} - {*expected})


@every_method
@given(data=st.data())
def test_own_shares_are_a_floor_of_every_prefix(method: str, data: st.DataObject) -> None:
    most = 2 if method == "det-greedy" else 5
    item = st.tuples(st.integers(0, 4), st.integers(-1, most - 1), st.booleans())
    rows = data.draw(st.lists(item, min_size=1, max_size=20))
    score, group, mask = (torch.tensor([column]) for column in zip(*rows, strict=True))
    fair = ft.rerank(score, group, method=method, mask=mask)
    n = int(mask.sum())
    labels = group.masked_fill(~mask, -9)[0, fair.slot[0]].tolist()
    assert fair.slot[0].sort().values.tolist() == list(range(len(rows)))
    assert set(labels[n:]) <= {-9}
    for one in range(most):
        share = Fraction(labels.count(one), max(n, 1))
        for i in range(1, n + 1):
            assert labels[:i].count(one) >= math.floor(i * share)
    assert fair.met.all()


@every_method
def test_of_equal_scores_the_earlier_slot_is_first(method: str) -> None:
    fair = ft.rerank([[1.0] * 6], [[1, 1, 0, 0, 1, 0]], method=method)
    for group in (0, 1):
        slots = [slot for slot in fair.slot[0].tolist() if [1, 1, 0, 0, 1, 0][slot] == group]
        assert slots == sorted(slots)
    assert fair.slot[0, 0] == 0


@every_method
def test_unknown_items_have_what_the_shares_leave(method: str) -> None:
    scores = torch.arange(12, 0, -1.0)[None]
    groups = torch.tensor([[-1, -1, -1, 1, 1, 1, -1, 0, 0, 0, -1, -1]])
    own = ft.rerank(scores, groups, method=method, k=8)
    labels = groups[0, own.slot[0, :8]].tolist()
    assert labels.count(0) == labels.count(1) == 2
    halves = ft.rerank(scores, groups, method=method, k=6, targets=[0.5, 0.5])
    assert groups[0, halves.slot[0, :6]].min() == 0
    assert halves.slot[0, 6:].tolist() == [0, 1, 2, 6, 10, 11]


@every_method
def test_what_the_shares_leave_need_not_be_used(method: str) -> None:
    fair = ft.rerank(SCORES, [[0] * 10], method=method, targets={0: 0.4})
    assert fair.met.all()
    assert fair.slot[0].tolist() == list(range(10))


@every_method
def test_groups_without_a_target_are_free(method: str) -> None:
    groups = torch.tensor([[2, 1, 1, 2, 2, -1, 0, 0, 0, 0]])
    merged = torch.where(groups == 0, 0, -1)
    fair = ft.rerank(SCORES, groups, method=method, targets={0: 0.5}, k=8)
    same = ft.rerank(SCORES, merged, method=method, targets=[0.5], k=8)
    assert torch.equal(fair.slot, same.slot)
    labels = groups[0, fair.slot[0]].tolist()
    assert all(labels[:i].count(0) >= i // 2 for i in range(1, 9))


@every_method
def test_a_group_too_small_for_its_target_is_refused_or_marked(method: str) -> None:
    scores = [SCORES[0], SCORES[0]]
    groups = [GROUPS[0], [1] * 9 + [0]]
    sentence = (
        f"{method}: list 1 has 1 items of group 0 where its top 8 needs 3; lower its target "
        r"or k, or pass infeasible='mark' \(1 of 2 lists are like this\)"
    )
    with pytest.raises(InputError, match=f"^{sentence}$"):
        ft.rerank(scores, groups, method=method, targets=[0.4, 0.6], k=8)
    marked = ft.rerank(
        scores, groups, method=method, targets=[0.4, 0.6], k=8, infeasible="mark"
    )
    assert marked.met.tolist() == [True, False]
    assert 9 in marked.slot[1, :3].tolist()
    assert marked.slot.sort().values.tolist() == [list(range(10))] * 2


def test_a_group_that_no_list_has_cannot_have_a_share() -> None:
    with pytest.raises(InputError, match="has 0 items of group 7 where its top 10 needs 2"):
        ft.rerank(SCORES, GROUPS, method="det-cons", targets={7: 0.2})
    assert ft.rerank(SCORES, GROUPS, method="det-cons", targets={7: 0.05}).met.all()


def test_greedy_that_misses_a_floor_says_which_method_does_not() -> None:
    scores, groups = [[6.0, 5.0, 4.0, 3.0, 2.0, 1.0]], [[2, 3, 0, 0, 1, 1]]
    with pytest.raises(InputError, match="det-greedy missed a floor; use det-const-sort"):
        ft.rerank(scores, groups, method="det-greedy")
    assert not ft.rerank(scores, groups, method="det-greedy", infeasible="mark").met.any()
    assert ft.rerank(scores, groups, method="det-const-sort").met.all()


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


def run(case: Case, rule: int) -> tuple[list[int], bool]:
    group, shares, k = case
    order = np.empty((1, len(group)), np.int64)
    labels, n_items = np.array([group], np.int16), np.array([len(group)])
    wanted = np.array([shares], np.float64)
    quotas = Quotas(wanted, np.zeros((len(wanted), 0), np.int64))
    met = fill_lists(labels, n_items, quotas, k, rule, order)
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
    order, met = run(case, SORTED)
    assert order == plain_sorting(case)
    assert met == has_floors(case, order)


@pytest.mark.parametrize("rule", [CONSERVATIVE, RELAXED, SORTED])
@given(case=cases(enough=True))
def test_every_prefix_has_its_floors_where_groups_are_large_enough(
    rule: int, case: Case
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
    assert all(run(case, rule)[1] for rule in (CONSERVATIVE, RELAXED, SORTED))


def test_a_floor_is_not_lost_to_rounding() -> None:
    assert 0.29 * 100 < 29
    assert floor_of(100, 0.29) == 29


def rising(shares: list[Fraction], top: int, seed: int) -> list[int]:
    """The group whose floor rises at each rank, in one draw."""
    return random_floors(np.array(shares, np.float64), top, seed, 0).tolist()


@st.composite
def random_cases(draw: st.DrawFn) -> tuple[list[Fraction], int, int]:
    weights = draw(st.lists(st.integers(0, 9), min_size=2, max_size=6).filter(any))
    shares = [Fraction(weight, sum(weights)) for weight in weights]
    return shares, draw(st.integers(1, 40)), draw(st.integers(0, 2**40))


@given(case=random_cases())
def test_a_random_floor_is_the_share_rounded_down_or_up(
    case: tuple[list[Fraction], int, int],
) -> None:
    shares, top, seed = case
    drawn = rising(shares, top, seed)
    for i in range(1, top + 1):
        for one, share in enumerate(shares):
            assert floor(i * share) <= drawn[:i].count(one) <= ceil(i * share)


@pytest.mark.parametrize("weights", [(1, 10), (3, 5, 4), (1, 2, 3, 6), (1, 1, 1, 1, 1, 2)])
def test_each_rank_raises_the_floor_of_a_group_with_the_chance_of_its_share(
    weights: tuple[int, ...],
) -> None:
    shares, top, n = [Fraction(one, sum(weights)) for one in weights], 20, 4_000
    drawn = np.array([rising(shares, top, seed) for seed in range(n)])
    for one, share in enumerate(shares):
        # The floor at rank i is i p in expectation: at each rank it rises with chance p.
        off = (drawn == one).mean(0) - float(share)
        assert abs(off).max() < 5 * math.sqrt(share * (1 - share) / n)


def test_of_two_groups_a_random_floor_is_one_uniform_more_than_the_share_rounded_down() -> None:
    share = Fraction(3, 31)
    for seed in range(50):
        drawn = rising([share, 1 - share], 60, seed)
        start = draws(seed, FLOORS, np.zeros(1, np.int64))[0]
        assert [drawn[:i].count(0) for i in range(61)] == [
            floor(i * share + Fraction(start)) for i in range(61)
        ]


def test_random_floors_reach_every_order_that_rounds_the_shares() -> None:
    shares = [Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)]
    allowed = {
        order
        for order in itertools.product(range(3), repeat=6)
        if all(
            floor(i * share) <= order[:i].count(one) <= ceil(i * share)
            for i in range(1, 7)
            for one, share in enumerate(shares)
        )
    }
    drawn = {tuple(rising(shares, 6, seed)) for seed in range(3_000)}
    assert drawn <= allowed
    # Unit c of a group falls to a rank where it is earned: no other order has a chance.
    assert drawn == {
        order
        for order in allowed
        if all(
            floor(c / share) <= rank <= ceil((c + 1) / share) - 1
            for one, share in enumerate(shares)
            for c, rank in enumerate(i for i, other in enumerate(order) if other == one)
        )
    }


@pytest.mark.parametrize("method", ["det-cons", "det-relaxed", "det-const-sort"])
@pytest.mark.parametrize("n_groups", [2, 4])
def test_every_prefix_has_its_random_floors(method: str, n_groups: int) -> None:
    n, k, generator = 60, 40, torch.Generator().manual_seed(1)
    scores = torch.randn(n, 200, generator=generator)
    groups = torch.randint(0, n_groups, (n, 200), generator=generator)
    scores[groups == 0] -= 2
    weights = range(1, n_groups + 1)
    targets = [weight / (sum(weights) + 1) for weight in weights]  # the rest is for unknown
    fair = ft.rerank(
        scores, groups, method=method, k=k, targets=targets, rounding="random", seed=7
    )
    assert fair.met.all()
    labels, shares = (
        groups.gather(-1, fair.slot).numpy(),
        np.array([*targets, 1 - sum(targets)]),
    )
    for query in range(n):
        drawn = random_floors(shares, k, 7, query)
        for one in range(n_groups):
            floors = (drawn == one).cumsum()
            assert ((labels[query, :k] == one).cumsum() >= floors).all()


def test_a_small_group_is_first_now_and_then_where_floors_are_random() -> None:
    scores = torch.arange(100, 0, -1.0).expand(4_000, 100)
    groups = torch.ones(4_000, 100, dtype=torch.int64)
    groups[:, 90:] = 0  # a tenth, and all at the end
    draw = {"method": "det-const-sort", "k": 10, "targets": [0.03, 0.97]}
    down, fair, same, other = (
        ft.rerank(scores, groups, **draw, **how)  # type: ignore[arg-type]
        for how in ({}, *({"rounding": "random", "seed": seed} for seed in (1, 1, 2)))
    )
    assert (down.slot[:, :10] < 90).all()
    there = (fair.slot[:, :10] >= 90).float().mean().item()
    assert abs(there - 0.03) < 5 * math.sqrt(0.3 * 0.7 / 4_000) / 10
    assert torch.equal(fair.slot, same.slot)
    assert not torch.equal(fair.slot, other.slot)


def test_a_list_that_cannot_have_a_random_floor_says_what_it_needs() -> None:
    with pytest.raises(
        InputError, match="list 0 has 1 items of group 0 where its top 8 needs 4"
    ):
        ft.rerank(
            [SCORES[0]],
            [[1] * 9 + [0]],
            method="det-const-sort",
            targets=[0.5, 0.5],
            k=8,
            rounding="random",
        )
