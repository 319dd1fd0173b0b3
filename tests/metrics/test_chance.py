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
from fairtopk.metrics import (
    Floor,
    PValue,
    chance_floor,
    chance_floors,
    gap_p_value,
    gap_p_values,
)

GAPS = {
    "exposure_gap": lambda *lists, k: metrics.exposure_gap(*lists, k=k),
    "exposure_gap_released": lambda *lists, k: metrics.exposure_gap(
        *lists, k=k, variant="released"
    ),
    "rank_exposure_gap": lambda *lists, k: metrics.rank_exposure_gap(*lists, k=k),
    "representation_gap": lambda *lists, k: metrics.representation_gap(*lists, k=k),
}


def enumerated(scores: list[float], groups: list[int], k: int, metric: str) -> float:
    """The mean gap over all orders of the known labels, unknown slots in their place."""
    known = [group for group in groups if group >= 0]
    shuffles = []
    for labels in itertools.permutations(known):
        following = iter(labels)
        shuffles.append([next(following) if group >= 0 else -1 for group in groups])
    repeated = torch.tensor([scores], dtype=torch.float64).expand(len(shuffles), -1)
    return GAPS[metric](repeated, torch.tensor(shuffles), k=k).mean().item()


@given(
    groups=st.lists(st.integers(-1, 1), min_size=2, max_size=6).filter({0, 1}.issubset),
    k=st.integers(1, 8),
)
def test_the_exact_floor_is_the_mean_over_all_shuffles(groups: list[int], k: int) -> None:
    scores = [float(-i) for i in range(len(groups))]
    found = chance_floor(
        torch.tensor([scores]), torch.tensor([groups]), k=k, metric="representation_gap"
    )
    plain = enumerated(scores, groups, k, "representation_gap")
    assert found.value == pytest.approx(plain, abs=1e-12)
    assert found[1:] == (0, 0)


@pytest.mark.parametrize("metric", GAPS)
@pytest.mark.parametrize("groups", [[0, 1, -1, 1, 1, 0], [0, 1, 2, -1, 2, 1, 1]])
def test_the_shuffled_floor_is_the_mean_over_all_shuffles(
    metric: str, groups: list[int]
) -> None:
    scores = [1.5, 0.9, 0.7, 0.1, -0.2, -0.9, -1.1][: len(groups)]
    found = chance_floor(
        torch.tensor([scores]).double(), torch.tensor([groups]), k=3, metric=metric, seed=1
    )
    plain = enumerated(scores, groups, 3, metric)
    assert found.error <= 0.01 * found.value
    assert abs(found.value - plain) <= max(4 * found.error, 1e-12)


def test_the_error_that_is_reported_is_the_spread_over_seeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairtopk.metrics.chance.MOST_COPIES", 10)
    monkeypatch.setattr("fairtopk.metrics.chance.PRECISION", 0.05)
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(40, 12, generator=generator)
    groups = (torch.rand(40, 12, generator=generator) < 0.7).long()
    found = [chance_floor(scores, groups, k=4, seed=seed) for seed in range(60)]
    values = torch.tensor([floor.value for floor in found])
    errors = torch.tensor([floor.error for floor in found])
    # 60 seeds tell a standard deviation to about 9 %.
    assert 0.7 < (values.std() / errors.mean()).item() < 1.3


def test_floors_of_several_lists_are_averaged_and_undefined_lists_left_out() -> None:
    scores = torch.tensor([[3.0, 2.0, 1.0, 0.0]] * 3)
    groups = torch.tensor([[0, 1, 1, 1], [0, 0, 1, 1], [1, 1, 1, 1]])
    found = chance_floor(scores, groups, k=2, metric="representation_gap").value
    plain = [
        enumerated([3.0, 2.0, 1.0, 0.0], row, 2, "representation_gap")
        for row in groups[:2].tolist()
    ]
    assert found == pytest.approx(sum(plain) / 2, abs=1e-12)


def test_without_a_list_of_two_groups_there_is_no_floor() -> None:
    for metric in GAPS:
        found = chance_floor(torch.ones(2, 3), torch.zeros(2, 3).long(), k=2, metric=metric)
        assert math.isnan(found.value)
        assert found.rounds == 0


def test_a_top_that_is_the_whole_list_represents_everyone() -> None:
    scores, groups = torch.rand(2, 9), torch.arange(9).remainder(3).expand(2, 9)
    exact = chance_floor(scores, groups.clamp(max=1), k=9, metric="representation_gap")
    assert exact == Floor(0.0, 0.0, 0)
    shuffled = chance_floor(scores, groups, k=9, metric="representation_gap")
    assert shuffled[:2] == (0.0, 0.0)


def test_all_floors_together_are_those_taken_one_by_one() -> None:
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(30, 10, generator=generator)
    groups = torch.randint(-1, 2, (30, 10), generator=generator)
    mask = torch.rand(30, 10, generator=generator) < 0.9
    together = chance_floors(scores, groups, ks=[2, 5], mask=mask, seed=4)
    assert list(together) == [f"{metric}_floor@{k}" for metric in GAPS for k in (2, 5)]
    for metric in GAPS:
        for k in (2, 5):
            one = chance_floor(scores, groups, k=k, mask=mask, metric=metric, seed=4)
            other = together[f"{metric}_floor@{k}"]
            assert abs(one.value - other.value) <= 4 * (one.error + other.error)


def test_the_same_seed_gives_the_same_floor() -> None:
    scores, groups = torch.arange(12.0).view(2, 6), torch.tensor([[0, 1, 1, 0, 1, 1]] * 2)
    first, again, other = (chance_floor(scores, groups, k=2, seed=seed) for seed in (5, 5, 6))
    assert first == again
    assert first.value != other.value


def test_blocks_of_lists_change_only_the_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(2)
    scores = torch.randn(30, 8, generator=generator)
    groups = torch.randint(-1, 3, (30, 8), generator=generator)
    expected = chance_floor(scores, groups, k=3)
    monkeypatch.setattr("fairtopk.metrics.chance.BLOCK_SUMS", 1)
    found = chance_floor(scores, groups, k=3)
    assert found.rounds == expected.rounds
    assert found[:2] == pytest.approx(expected[:2], rel=1e-12)


def test_what_a_rare_shuffle_decides_ends_with_an_honest_error() -> None:
    """Flat scores: as released, a gap is left only where a group has none of the top."""
    scores, groups = torch.zeros(3, 100), torch.ones(3, 100, dtype=torch.int64)
    groups[:, :20] = 0
    floor = chance_floor(scores, groups, k=40, metric="exposure_gap_released", shuffles=50)
    assert floor.rounds <= 50
    assert floor.value >= 0


NAMED_GAPS: dict[str, Callable[..., Tensor]] = {
    "exposure_gap": metrics.exposure_gap,
    "exposure_gap_released": partial(metrics.exposure_gap, variant="released"),
    "rank_exposure_gap": metrics.rank_exposure_gap,
    "representation_gap": metrics.representation_gap,
}
every_gap = pytest.mark.parametrize("metric", NAMED_GAPS)
SCORES = torch.tensor([[1.5, 0.9, 0.7, 0.1, -0.2], [2.0, 1.0, 0.5, 0.25, 0.0]]).double()


def signed(metric: str, scores: Tensor, groups: Tensor, k: int) -> Tensor:
    return NAMED_GAPS[metric](scores, groups, k=k, signed=True)


def enumerated_p_value(groups: list[list[int]], k: int, metric: str) -> tuple[float, float]:
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
    p, centre = enumerated_p_value(groups, k, metric)
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
    assert list(together) == [f"{metric}_p@{k}" for metric in NAMED_GAPS for k in (2, 5)]
    for metric in NAMED_GAPS:
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
