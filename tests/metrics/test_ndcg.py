import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.metrics import ndcg

Slot = tuple[float, float, bool]  # score, grade, valid
SLOTS = st.lists(
    st.tuples(
        st.sampled_from([-1.0, 0.0, 0.5, 1.0, 7.0]),
        st.sampled_from([0.0, 0.0, 1.0, 2.5, 5.0]),
        st.booleans(),
    ),
    min_size=1,
    max_size=10,
)


def plain_ndcg(slots: list[Slot], k: int) -> float:
    """The definition for one list, in plain Python."""
    items = [slot for slot in slots if slot[2]]
    by_score = sorted(items, key=lambda item: -item[0])
    by_grade = sorted(items, key=lambda item: -item[1])
    dcg, ideal = (
        sum((2**grade - 1) / math.log2(2 + i) for i, (_, grade, _) in enumerate(one[:k]))
        for one in (by_score, by_grade)
    )
    return dcg / ideal if ideal else math.nan


def measured(slots: list[Slot], k: int) -> float:
    score, grade, mask = (torch.tensor([column]) for column in zip(*slots, strict=True))
    return ndcg(score.double(), grade, k=k, mask=mask).item()


def test_the_worked_list_has_the_ndcg_worked_out_for_it() -> None:
    scores = torch.tensor([[2, 1, 0.5, 0, -1]], dtype=torch.float64)
    relevance = torch.tensor([[0, 2, 1, 0, 3]])
    assert ndcg(scores, relevance, k=5).item() == pytest.approx(0.5430505007378631, abs=1e-15)


@given(slots=SLOTS, k=st.integers(1, 12))
def test_ndcg_is_the_plain_loop(slots: list[Slot], k: int) -> None:
    found = measured(slots, k)
    assert found == pytest.approx(plain_ndcg(slots, k), abs=1e-12, nan_ok=True)
    assert math.isnan(found) or 0 <= found <= 1 + 1e-12


@given(slots=SLOTS, k=st.integers(1, 12), shift=st.sampled_from([-5000.0, 0.25, 5000.0]))
def test_a_constant_added_to_the_scores_changes_nothing(
    slots: list[Slot], k: int, shift: float
) -> None:
    shifted = [(score + shift, grade, valid) for score, grade, valid in slots]
    assert measured(shifted, k) == pytest.approx(measured(slots, k), abs=0, nan_ok=True)


def test_the_ideal_is_the_best_of_all_orders_at_k() -> None:
    relevance = torch.tensor([1.0, 0.0, 3.0, 2.0])
    orders = torch.tensor(list(itertools.permutations(range(4)))).double()
    for k in (1, 2, 3, 4):
        assert ndcg(orders, relevance.expand_as(orders), k=k).max().item() == pytest.approx(1)


def test_a_list_without_relevant_items_is_undefined() -> None:
    scores = torch.tensor([[1.0, 2.0], [1.0, 2.0]])
    found = ndcg(scores, torch.tensor([[0, 0], [3, 0]]), k=1)
    assert found.isnan().tolist() == [True, False]
    assert found[1] == 0
    padded = ndcg(
        scores, torch.tensor([[3, 0], [3, 0]]), k=1, mask=torch.tensor([[False, True]] * 2)
    )
    assert padded.isnan().all()
