import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fairtopk.lists.batch import order
from fairtopk.reranking.lists import Candidates, Places, Policy, dealt, reordered


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(data=st.data())
def test_scores_dealt_by_rank_sort_into_the_new_order(
    dtype: torch.dtype, data: st.DataObject
) -> None:
    values = st.sampled_from([-1e30, -1.0, -1e-40, -0.0, 0.0, 0.5, 0.5, 3.0])
    given_scores = data.draw(st.lists(values, min_size=1, max_size=10))
    n = len(given_scores)
    mask = torch.tensor([data.draw(st.lists(st.booleans(), min_size=n, max_size=n))])
    scores = torch.tensor([given_scores], dtype=dtype)
    items = data.draw(st.permutations(mask[0].nonzero()[:, 0].tolist()))
    slot = torch.tensor([items + (~mask)[0].nonzero()[:, 0].tolist()], dtype=torch.int64)
    group, query = torch.zeros_like(mask, dtype=torch.int16), torch.zeros(1, dtype=torch.int64)
    lists = Candidates(scores, mask, group, scores, query)
    rank, due = dealt(lists, slot)
    assert rank[0, slot[0]].tolist() == list(range(1, n + 1))
    assert torch.equal(order(due, mask), slot)
    kept, expected = due[mask].sort().values, scores[mask].sort().values
    torch.testing.assert_close(kept, expected, rtol=1e-5, atol=1e-30)


def test_rerankers_see_lists_best_first_with_padding_last_at_minus_infinity() -> None:
    scores = torch.tensor([[9.0, 1.0, 3.0, 2.0], [9.0, 9.0, 9.0, 9.0]])
    mask = torch.tensor([[False, True, True, True], [False, True, False, False]])
    group = torch.zeros_like(mask, dtype=torch.int16)
    seen: list[Places] = []

    def keep(places: Places, new: NDArray[np.int64]) -> NDArray[np.bool_]:
        seen.append(places)
        new[:] = np.arange(new.shape[1])
        return np.ones(len(new), bool)

    slot, _ = reordered(Candidates(scores, mask, group, scores, torch.arange(2)), keep)
    assert slot.tolist() == [[2, 3, 1, 0], [1, 0, 2, 3]]
    rows = {row: one for places in seen for row, one in enumerate(places.scores.tolist())}
    assert rows == {0: [3, 2, 1, -np.inf], 1: [9, -np.inf, -np.inf, -np.inf]}


def test_a_policy_is_a_doubly_stochastic_matrix() -> None:
    policy = Policy(torch.tensor([[2, 0, 1], [0, 1, 2]]), torch.tensor([0.25, 0.75]).double())
    expected = np.array([[0.75, 0.25, 0], [0, 0.75, 0.25], [0.25, 0, 0.75]])
    assert policy.matrix().tolist() == expected.tolist()
