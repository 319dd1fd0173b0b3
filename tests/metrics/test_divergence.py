import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.metrics import ndkl

Slot = tuple[float, int]  # score, group
LISTS = st.lists(
    st.tuples(st.sampled_from([-2.0, 0.0, 0.5, 1.0]), st.integers(-1, 2)),
    min_size=1,
    max_size=10,
)


def measured(slots: list[Slot], k: int) -> float:
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
    slots: list[Slot], k: int
) -> None:
    labels = [group for _, group in slots if group >= 0]
    found = measured(slots, k)
    if len(set(labels)) < 2:
        assert math.isnan(found)
    elif not math.isnan(found):
        smallest = min(map(labels.count, labels)) / len(labels)
        assert 0 <= found <= -math.log(smallest) + 1e-12


@given(slots=LISTS, k=st.integers(1, 12), seed=st.integers(0, 99))
def test_shifts_orders_padding_and_numbers_of_groups_change_nothing(
    slots: list[Slot], k: int, seed: int
) -> None:
    apart = [(score + i * 1e-3, group) for i, (score, group) in enumerate(slots)]
    expected = pytest.approx(measured(apart, k), abs=1e-12, nan_ok=True)
    mixed = random.Random(seed).sample(apart, len(apart))
    swapped = [(score, 2 - group if group >= 0 else -1) for score, group in apart]
    for changed in (mixed, swapped, [(score + 64, group) for score, group in apart]):
        assert measured(changed, k) == expected
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
