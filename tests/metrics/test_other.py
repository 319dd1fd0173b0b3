import math
import random
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fairtopk.errors import InputError
from fairtopk.metrics import awrf, group_attentions, group_auc, ndkl

pytestmark = pytest.mark.kernel

Slot = tuple[float, int, bool]  # score, group, valid
SLOT = st.tuples(
    st.sampled_from([-2.0, 0.0, 0.5, 1.0]), st.integers(-1, 2), st.sampled_from([True, False])
)
some_lists = given(
    slots=st.lists(SLOT, min_size=1, max_size=10),
    k=st.integers(1, 12),
    p=st.sampled_from([0.05, 0.5, 0.9, 1.0]),
)


def plain(slots: list[Slot], k: int, p: float, groups: Iterable[int]) -> list[float]:
    """Each group's mean attention, by the definition, in plain Python."""
    labels = [group for _, group, there in sorted(slots, key=lambda slot: -slot[0]) if there]
    found = []
    for group in groups:
        mine = [p * (1 - p) ** i for i, label in enumerate(labels[:k]) if label == group]
        found.append(sum(mine) / labels.count(group) if group in labels else math.nan)
    return found


def measured(slots: list[Slot], k: int, p: float) -> tuple[list[float], float]:
    score, group, mask = (torch.tensor([column]) for column in zip(*slots, strict=True))
    by_group = group_attentions(score.double(), group, k=k, p=p, mask=mask)[0].tolist()
    return by_group, awrf(score.double(), group, k=k, p=p, mask=mask).item()


def test_the_ranking_of_fairranktune_has_the_attention_worked_out_for_it() -> None:
    scores, groups = torch.arange(5.0).flip(0)[None], torch.tensor([[1, 0, 1, 0, 1]])
    assert group_attentions(scores, groups, k=5).tolist() == [[0.15625, 0.21875]]
    assert awrf(scores, groups, k=5).tolist() == [0.0625]


@some_lists
def test_attention_is_the_plain_loop_and_within_its_bounds(
    slots: list[Slot], k: int, p: float
) -> None:
    by_group, gap = measured(slots, k, p)
    if any(group < 0 and there for _, group, there in slots):
        assert by_group.pop() == pytest.approx(*plain(slots, k, p, [-1]), abs=1e-12)
    expected = plain(slots, k, p, range(len(by_group)))
    assert by_group == pytest.approx(expected, abs=1e-12, nan_ok=True)
    present = [value for value in expected if not math.isnan(value)]
    largest = max(present) - min(present) if len(present) > 1 else math.nan
    assert gap == pytest.approx(largest, abs=1e-12, nan_ok=True)
    assert math.isnan(gap) or 0 <= gap <= p


@some_lists
def test_shifted_scores_padding_and_numbers_of_groups_change_nothing(
    slots: list[Slot], k: int, p: float
) -> None:
    expected = pytest.approx(measured(slots, k, p)[1], abs=1e-12, nan_ok=True)
    shifted = [(score + 5000, group, there) for score, group, there in slots]
    swapped = [(score, 2 - group if group >= 0 else -1, there) for score, group, there in slots]
    for changed in (shifted, swapped, [(9.0, 1, False), *slots, (-9.0, 0, False)]):
        assert measured(changed, k, p)[1] == expected


def test_with_all_attention_on_the_first_place_only_its_group_gets_any() -> None:
    scores, groups = torch.tensor([[1.0, 1.0, 0.0]]), torch.tensor([[1, 0, 0]])
    assert group_attentions(scores, groups, k=3, p=1).tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("p", [0, 1.5, math.nan, "0.5", None])
def test_a_share_of_attention_that_is_none_is_refused(p: Any) -> None:
    sentence = f"p must be a number above 0 and at most 1, got {p!r}"
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        awrf(torch.ones(1, 2), torch.tensor([[0, 1]]), k=1, p=p)


DivergenceSlot = tuple[float, int]  # score, group
LISTS = st.lists(
    st.tuples(st.sampled_from([-2.0, 0.0, 0.5, 1.0]), st.integers(-1, 2)),
    min_size=1,
    max_size=10,
)


def measured_divergence(slots: list[DivergenceSlot], k: int) -> float:
    score, group = (torch.tensor([column]) for column in zip(*slots, strict=True))
    return ndkl(score.double(), group, k=k).item()


def test_the_ranking_of_fairranktune_has_the_divergence_worked_out_for_it() -> None:
    scores, groups = torch.arange(5.0).flip(0)[None].double(), torch.tensor([[1, 0, 1, 0, 1]])
    # Its share of 1e-7 for every group moves the sixth digit.
    assert ndkl(scores, groups, k=5).item() == pytest.approx(0.1822056030, abs=2e-6)


def test_a_prefix_of_one_group_is_as_far_off_as_its_share_is_small() -> None:
    scores, groups = torch.tensor([[4.0, 3.0, 2.0, 1.0]]), torch.tensor([[0, 1, 1, 1]])
    assert ndkl(scores, groups, k=1).item() == pytest.approx(math.log(4))
    assert ndkl(-scores, groups, k=1).item() == pytest.approx(math.log(4 / 3))


@given(slots=LISTS, k=st.integers(1, 12))
def test_it_stays_within_its_bounds_and_is_undefined_without_two_groups(
    slots: list[DivergenceSlot], k: int
) -> None:
    labels = [group for _, group in slots if group >= 0]
    found = measured_divergence(slots, k)
    if len(set(labels)) < 2:
        assert math.isnan(found)
    elif not math.isnan(found):
        smallest = min(map(labels.count, labels)) / len(labels)
        assert 0 <= found <= -math.log(smallest) + 1e-12


@given(slots=LISTS, k=st.integers(1, 12), seed=st.integers(0, 99))
def test_shifts_orders_padding_and_numbers_of_groups_change_nothing(
    slots: list[DivergenceSlot], k: int, seed: int
) -> None:
    apart = [(score + i * 1e-3, group) for i, (score, group) in enumerate(slots)]
    expected = pytest.approx(measured_divergence(apart, k), abs=1e-12, nan_ok=True)
    mixed = random.Random(seed).sample(apart, len(apart))
    swapped = [(score, 2 - group if group >= 0 else -1) for score, group in apart]
    for changed in (mixed, swapped, [(score + 64, group) for score, group in apart]):
        assert measured_divergence(changed, k) == expected
    score, group = (torch.tensor([column]) for column in zip(*apart, strict=True))
    padded = [torch.cat([one, torch.tensor([[7]])], dim=-1) for one in (score.double(), group)]
    mask = torch.ones_like(padded[1], dtype=torch.bool)
    mask[0, -1] = False
    assert ndkl(*padded, k=k, mask=mask).item() == expected


def test_of_equal_scores_the_earlier_slot_is_first() -> None:
    groups = torch.tensor([[0, 1, 1]])
    assert ndkl(torch.zeros(1, 3), groups, k=1).item() == pytest.approx(math.log(3))


def test_lists_are_measured_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(40, 7, generator=generator)
    groups = torch.randint(-1, 3, (40, 7), generator=generator)
    expected = ndkl(scores, groups, k=4)
    monkeypatch.setattr("fairtopk.tensors.BLOCK_SLOTS", 1)
    found = ndkl(scores, groups, k=4)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    assert expected.dtype == torch.float32


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


@pytest.mark.compiled
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


def test_the_area_of_lists_is_measured_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
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


KernelSlot = tuple[float, bool, int]  # score, whether it is there, group
KERNEL_SLOT = st.tuples(
    st.sampled_from([-1.0, 0.0, 0.5, 2.0]), st.booleans(), st.integers(-1, 2)
)


def plain_divergence(slots: list[KernelSlot], k: int) -> float:
    """The definition, in plain Python."""
    labels = [group for _, there, group in sorted(slots, key=lambda slot: -slot[0]) if there]
    target = shares(labels)
    if len(target) < 2:
        return math.nan
    total = weight = 0.0
    for i in range(1, min(k, len(labels)) + 1):
        found = shares(labels[:i])
        if found:
            one = 1 / math.log2(1 + i)
            total += one * sum(p * math.log(p / target[g]) for g, p in found.items())
            weight += one
    return total / weight if weight else math.nan


def shares(labels: list[int]) -> dict[int, float]:
    known = [label for label in labels if label >= 0]
    return {label: known.count(label) / len(known) for label in known}


def kernel_divergence(slots: list[KernelSlot], k: int, dtype: type = np.float64) -> float:
    scores, mask, group = (np.array([column]) for column in zip(*slots, strict=True))
    return ndkl(scores.astype(dtype), group, k=k, mask=mask).item()


@pytest.mark.parametrize(("dtype", "close"), [(np.float32, 1e-6), (np.float64, 1e-12)])
@given(slots=st.lists(KERNEL_SLOT, min_size=1, max_size=10), k=st.integers(1, 12))
def test_the_mean_divergence_is_that_of_a_plain_loop(
    slots: list[KernelSlot], k: int, dtype: type, close: float
) -> None:
    found = kernel_divergence(slots, k, dtype)
    assert found == pytest.approx(plain_divergence(slots, k), abs=close, nan_ok=True)


def test_a_long_list_loses_no_digits() -> None:
    labels = np.random.default_rng(0).integers(0, 3, 500).tolist()
    slots = [(float(-place), True, label) for place, label in enumerate(labels)]
    assert kernel_divergence(slots, 500) == pytest.approx(
        plain_divergence(slots, 500), rel=1e-11
    )


def test_prefixes_before_the_first_known_item_count_for_nothing() -> None:
    slots = [(3.0, True, -1), (2.0, True, 0), (1.0, True, 1)]
    assert math.isnan(kernel_divergence(slots, 1))
    assert kernel_divergence(slots, 2) == pytest.approx(math.log(2))


AreaSlot = tuple[float, bool, int]  # score, whether it is there, group
AREA_SLOT = st.tuples(
    st.sampled_from([-1.0, -0.0, 0.0, 0.5, 2.0]), st.booleans(), st.integers(-1, 2)
)


def plain_area(slots: list[AreaSlot]) -> float:
    """The definition, in plain Python: every pair of a named and another item."""
    named = [score for score, there, group in slots if there and group == 0]
    others = [score for score, there, group in slots if there and group > 0]
    pairs = [(a > b) + (a == b) / 2 for a in named for b in others]
    return sum(pairs) / len(pairs) if pairs else math.nan


@pytest.mark.parametrize(("dtype", "close"), [(np.float32, 1e-7), (np.float64, 1e-15)])
@given(slots=st.lists(AREA_SLOT, min_size=1, max_size=12))
def test_the_area_is_the_share_of_pairs_that_a_plain_loop_counts(
    slots: list[AreaSlot], dtype: type, close: float
) -> None:
    scores, mask, group = (np.array([column]) for column in zip(*slots, strict=True))
    found = group_auc(scores.astype(dtype), group, mask=mask).item()
    assert found == pytest.approx(plain_area(slots), abs=close, nan_ok=True)


@pytest.mark.slow
def test_a_long_list_is_ranked_whole() -> None:
    generator = np.random.default_rng(0)
    scores = generator.integers(0, 400, (2, 700)).astype(np.float64)
    group = generator.integers(-1, 3, (2, 700))
    mask = generator.random((2, 700)) < 0.9
    found = group_auc(scores, group, mask=mask).tolist()
    for row in range(2):
        slots = list(zip(scores[row].tolist(), mask[row], group[row].tolist(), strict=True))
        assert found[row] == pytest.approx(plain_area(slots), abs=1e-12)
