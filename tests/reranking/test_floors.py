import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fairtopk as ft
from fairtopk.errors import InputError

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
