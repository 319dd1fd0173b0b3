import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fairtopk import metrics
from fairtopk.errors import InputError
from fairtopk.metrics import PValue, gap_p_value, gap_p_values

GAPS: dict[str, Callable[..., Tensor]] = {
    "exposure_gap": metrics.exposure_gap,
    "exposure_gap_released": partial(metrics.exposure_gap, variant="released"),
    "rank_exposure_gap": metrics.rank_exposure_gap,
    "representation_gap": metrics.representation_gap,
}
every_gap = pytest.mark.parametrize("metric", GAPS)
SCORES = torch.tensor([[1.5, 0.9, 0.7, 0.1, -0.2], [2.0, 1.0, 0.5, 0.25, 0.0]]).double()


def signed(metric: str, scores: Tensor, groups: Tensor, k: int) -> Tensor:
    return GAPS[metric](scores, groups, k=k, signed=True)


def enumerated(groups: list[list[int]], k: int, metric: str) -> tuple[float, float]:
    """The exact p-value of the two lists, and the mean over all shuffles of both."""
    means = []
    for row, labels in zip(SCORES, groups, strict=True):
        orders = []
        for known in itertools.permutations([label for label in labels if label >= 0]):
            following = iter(known)
            orders.append([next(following) if label >= 0 else -1 for label in labels])
        means.append(signed(metric, row.expand(len(orders), -1), torch.tensor(orders), k))
    pairs = (means[0][:, None] + means[1]) / 2
    observed = signed(metric, SCORES, torch.tensor(groups), k).mean()
    centre = pairs.mean()
    as_far = (pairs - centre).abs() >= (observed - centre).abs() - 1e-12
    return as_far.double().mean().item(), centre.item()


@every_gap
@pytest.mark.parametrize(
    "groups", [[[0, 0, 1, -1, 1], [0, 1, 1, 1, 0]], [[0, 2, -1, 1, 2], [1, 0, 0, 2, 1]]]
)
@pytest.mark.parametrize("k", [1, 3])
def test_p_is_the_share_of_all_shuffles_that_are_as_far(
    metric: str, groups: list[list[int]], k: int
) -> None:
    found = gap_p_value(SCORES, torch.tensor(groups), k=k, metric=metric, shuffles=4_000)
    p, centre = enumerated(groups, k, metric)
    assert found.p == pytest.approx(p, abs=0.035)  # 4 standard errors
    assert found.expected == pytest.approx(centre, abs=1e-12)
    observed = signed(metric, SCORES, torch.tensor(groups), k).mean().item()
    assert found.gap == pytest.approx(observed, abs=1e-12)
    assert found.shuffles == 4_000


def test_the_released_gap_favours_the_larger_group_by_itself_and_p_knows() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(300, 30, generator=generator)
    groups = (torch.arange(30) >= 2).long().expand(300, 30)
    found = gap_p_values(scores, groups, ks=[3], shuffles=199)
    released = found["exposure_gap_released_p@3"]
    assert released.gap < -0.2
    assert released.expected == pytest.approx(released.gap, abs=0.05)
    assert found["exposure_gap_p@3"].expected == 0
    assert all(one.p > 0.01 for one in found.values())


def test_where_labels_know_nothing_of_the_order_p_is_uniform() -> None:
    generator = torch.Generator().manual_seed(1)
    values = []
    for seed in range(200):
        scores = torch.randn(6, 10, generator=generator)
        groups = torch.randint(0, 2, (6, 10), generator=generator)
        values.append(gap_p_value(scores, groups, k=4, shuffles=39, seed=seed).p)
    found = torch.tensor(values)
    assert (found <= 0.05).sum() <= 20  # 10 expected
    assert 0.42 < found.mean() < 0.6


@every_gap
def test_a_favoured_group_is_found_and_p_is_never_0(metric: str) -> None:
    generator = torch.Generator().manual_seed(2)
    groups = torch.randint(0, 3, (200, 20), generator=generator)
    scores = torch.randn(200, 20, generator=generator) + 0.7 * (groups == 0)
    found = gap_p_value(scores, groups, k=5, metric=metric)
    assert found.p == 1 / 1_000
    assert found.gap > found.expected


@every_gap
def test_where_every_shuffle_gives_the_same_p_is_1(metric: str) -> None:
    groups = torch.tensor([[0, 1, 1, 0, 1]])
    whole = gap_p_value(torch.zeros(1, 5), groups, k=5, metric=metric, shuffles=99)
    # Ties have an order, by which ranks differ.
    assert (whole.p == 1) == (metric != "rank_exposure_gap")


@every_gap
@given(seed=st.integers(0, 10**6))
@settings(max_examples=10)
def test_shifts_padding_and_the_other_groups_numbers_change_nothing(
    metric: str, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(-8, 9, (20, 9), generator=generator).double() / 4
    groups = torch.randint(-1, 3, (20, 9), generator=generator)
    p_value = partial(gap_p_value, k=4, metric=metric, shuffles=199)
    expected = p_value(scores, groups)
    turned = torch.where(groups > 0, 3 - groups, groups)
    mask = torch.ones(20, 11, dtype=torch.bool)
    mask[:, 9:] = False
    padded = (
        torch.cat([scores, torch.full((20, 2), 9.0)], 1),
        torch.cat([groups, mask[:, 9:]], 1),
    )
    for found in (
        p_value(scores + 64, groups),
        p_value(scores, turned),
        p_value(*padded, mask=mask),
    ):
        assert found == pytest.approx(expected, abs=1e-12)


def test_lists_without_both_sides_are_left_out() -> None:
    groups = torch.tensor([[0, 1, 1, 0, 1], [1, 2, -1, 1, 2]])
    both, alone = (gap_p_value(SCORES[:n], groups[:n], k=2) for n in (2, 1))
    assert both == alone
    nothing = gap_p_value(SCORES[1:], groups[1:], k=2)
    assert math.isnan(nothing.p)
    assert math.isnan(nothing.gap)
    assert nothing.shuffles == 0


def test_all_p_values_together_are_those_taken_one_by_one() -> None:
    generator = torch.Generator().manual_seed(4)
    scores = torch.randn(30, 8, generator=generator)
    groups = torch.randint(-1, 2, (30, 8), generator=generator)
    together = gap_p_values(scores, groups, ks=[2, 5], shuffles=99, seed=3)
    assert list(together) == [f"{metric}_p@{k}" for metric in GAPS for k in (2, 5)]
    for metric in GAPS:
        for k in (2, 5):
            one = gap_p_value(scores, groups, k=k, metric=metric, shuffles=99, seed=3)
            assert together[f"{metric}_p@{k}"] == pytest.approx(one, abs=1e-12)


def test_the_seed_decides_the_shuffles_and_blocks_and_threads_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = torch.Generator().manual_seed(5)
    scores = torch.randn(40, 8, generator=generator)
    groups = torch.randint(0, 2, (40, 8), generator=generator)

    def found(seed: int) -> PValue:
        return gap_p_value(scores, groups, k=3, shuffles=150, seed=seed)

    expected = found(0)
    assert found(0) == expected
    assert found(1).p != expected.p
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    assert found(0) == expected
    torch.set_num_threads(before)
    monkeypatch.setattr("fairtopk.metrics.chance.BLOCK_SUMS", 1)
    assert found(0) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"metric": "ndcg"}, "metric must be one of exposure_gap, exposure_gap_released, "),
        ({"shuffles": 0}, "shuffles must be at least 1, got 0"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
    ],
)
def test_what_cannot_be_meant_is_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{sentence}"):
        gap_p_value(SCORES, torch.tensor([[0, 1, 1, 0, 1]] * 2), k=1, **wrong)
