import pytest
import torch
from torch import Tensor

from fairtopk.errors import InputError
from fairtopk.metrics.other import group_auc


def by_ranks(scores: Tensor, named: Tensor) -> float:
    """The area by the rank-sum of Mann and Whitney: (R - n (n + 1) / 2) / (n m)."""
    below = (scores[:, None] > scores).sum(1)
    alike = (scores[:, None] == scores).sum(1)
    rank = below + (alike + 1) / 2  # the mean of the ranks that equal scores share
    n, m = int(named.sum()), int((~named).sum())
    return (float(rank[named].sum()) - n * (n + 1) / 2) / (n * m)


def test_the_area_is_that_of_the_rank_sum() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 9, (20, 15), generator=generator).double()
    groups = torch.rand(20, 15, generator=generator) < 0.4
    expected = [by_ranks(row, named) for row, named in zip(scores, groups, strict=True)]
    assert group_auc(scores, groups).tolist() == pytest.approx(expected, abs=1e-12)


def test_half_tells_nothing_one_and_nought_tell_all() -> None:
    groups = torch.tensor([[0, 1, 0, 1]])
    assert group_auc(torch.tensor([[4.0, 2.0, 3.0, 1.0]]), groups).item() == 1
    assert group_auc(torch.tensor([[1.0, 3.0, 2.0, 4.0]]), groups).item() == 0
    assert group_auc(torch.full((1, 4), 7.0), groups).item() == 0.5


def test_only_the_order_counts_and_swapped_groups_turn_it_over() -> None:
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(30, 12, generator=generator).double()
    groups = torch.rand(30, 12, generator=generator) < 0.5
    found = group_auc(scores, groups)
    for same in (scores.exp(), 3 * scores + 5):
        torch.testing.assert_close(group_auc(same, groups), found)
    torch.testing.assert_close(group_auc(scores.flip(1), groups.flip(1)), found)
    torch.testing.assert_close(group_auc(scores, ~groups), 1 - found)


def test_labels_drawn_at_random_have_an_area_of_one_half_on_average() -> None:
    generator = torch.Generator().manual_seed(2)
    scores = torch.randn(4_000, 20, generator=generator)
    groups = torch.rand(4_000, 20, generator=generator) < 0.3
    assert group_auc(scores, groups).nanmean().item() == pytest.approx(0.5, abs=0.01)


def test_a_list_without_the_named_group_or_the_rest_is_undefined() -> None:
    groups = torch.tensor([[0, 0], [1, 2], [-1, 0], [0, 1]])
    assert group_auc(torch.rand(4, 2), groups).isnan().tolist() == [True, True, True, False]


def test_padding_unknown_items_and_more_groups_change_nothing() -> None:
    scores = torch.tensor([[3.0, 1.0, 2.0, 9.0, -9.0]])
    groups = torch.tensor([[0, 1, 2, -1, 0]])
    mask = torch.tensor([[True, True, True, True, False]])
    short = group_auc(scores[:, :3], groups[:, :3].clamp(max=1))
    assert group_auc(scores, groups, mask=mask).item() == short.item() == 1


def test_lists_are_measured_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(40, 7, generator=generator)
    groups = torch.randint(-1, 3, (40, 7), generator=generator)
    expected = group_auc(scores, groups)
    monkeypatch.setattr("fairtopk.tensors.BLOCK_SLOTS", 1)
    found = group_auc(scores, groups)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    assert expected.dtype == torch.float32


def test_groups_of_another_shape_and_scores_that_are_not_finite_are_refused() -> None:
    with pytest.raises(InputError, match="groups must have the shape of scores"):
        group_auc(torch.zeros(1, 3), torch.zeros(1, 2, dtype=torch.int64))
    with pytest.raises(InputError, match="scores must be finite"):
        group_auc(torch.tensor([[torch.nan, 1.0]]), torch.tensor([[0, 1]]))
