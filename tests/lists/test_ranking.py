import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from fairtopk.lists.batch import ideal_dcg, order, rank

pytestmark = pytest.mark.kernel

# Few distinct values make ties; the two zeros and the extremes are traps for a sort by bits.
SCORES = st.sampled_from([0.0, -0.0, 1.0, 2.0, -1.5, 1e-45, -1e-45, 3e38, -3e38, 5000.5])
SLOTS = st.lists(st.tuples(SCORES, st.booleans()), min_size=1, max_size=12)


def tensors(slots: list[tuple[float, bool]], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    scores, mask = zip(*slots, strict=True)
    return torch.tensor([scores], dtype=dtype), torch.tensor([mask])


def plain_order(slots: list[tuple[float, bool]]) -> list[int]:
    """The slots by (padding last, score falling, position)."""
    return sorted(range(len(slots)), key=lambda i: (not slots[i][1], -slots[i][0], i))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(slots=SLOTS)
@example(slots=[(-0.0, True), (0.0, True), (-0.0, True)])
def test_items_go_by_score_then_by_position_and_padding_comes_last(
    slots: list[tuple[float, bool]], dtype: torch.dtype
) -> None:
    scores, mask = tensors(slots, dtype)
    found = order(scores, mask)[0].tolist()
    n = sum(valid for _, valid in slots)
    assert found[:n] == plain_order(slots)[:n]
    assert sorted(found) == list(range(len(slots)))


@given(slots=SLOTS)
def test_ranks_are_ordinal_and_padding_comes_last(slots: list[tuple[float, bool]]) -> None:
    scores, mask = tensors(slots, torch.float32)
    ranks = rank(scores, mask)[0].tolist()
    n = sum(valid for _, valid in slots)
    for place, slot in enumerate(plain_order(slots)[:n], start=1):
        assert ranks[slot] == place
    assert sorted(ranks) == list(range(1, len(slots) + 1))


def test_long_lists_with_many_ties_are_ordered_alike_in_both_precisions() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(-40, 40, (50, 3_000), generator=generator).float()
    mask = torch.rand(scores.shape, generator=generator) < 0.9
    n = mask.sum(-1)
    single, double = order(scores, mask), order(scores.double(), mask)
    for query in range(50):
        assert torch.equal(single[query, : n[query]], double[query, : n[query]])


def test_order_reads_scores_that_carry_a_graph() -> None:
    scores = torch.tensor([[1.0, 3.0, 2.0]], requires_grad=True)
    assert order(scores, torch.ones(1, 3, dtype=torch.bool)).tolist() == [[1, 2, 0]]


def test_discount_and_gain_are_those_of_ndcg() -> None:
    one_item = torch.tensor([[0.0], [1.0], [2.0], [5.0], [0.5]])
    gains = ideal_dcg(one_item, torch.ones_like(one_item) > 0, None)
    assert gains.tolist() == pytest.approx([0, 1, 3, 31, math.sqrt(2) - 1])
    equal = torch.ones(1, 7)
    sums = torch.cat([ideal_dcg(equal, equal > 0, k) for k in range(8)])
    assert sums.diff()[[0, 2, 6]].tolist() == pytest.approx([1, 1 / 2, 1 / 3])


def test_ideal_dcg_is_that_of_the_best_order_at_k() -> None:
    relevance = torch.tensor([[0.0, 2.0, 1.0, 0.0, 3.0], [9.0, 0.0, 9.0, 1.0, 9.0]]).double()
    mask = torch.tensor([[True] * 5, [False, True, False, True, False]])
    whole = ideal_dcg(relevance, mask, None)
    assert whole.tolist() == pytest.approx([9.392789260714373, 1.0], abs=1e-14)
    assert ideal_dcg(relevance, mask, 2)[0].item() == pytest.approx(7 + 3 / math.log2(3))
    assert torch.equal(ideal_dcg(relevance, mask, 50), whole)
    assert ideal_dcg(torch.zeros(1, 3), torch.ones(1, 3, dtype=torch.bool), 2).tolist() == [0.0]
