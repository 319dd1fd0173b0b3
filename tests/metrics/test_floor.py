import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairtopk import metrics
from fairtopk.metrics import Floor, chance_floor, chance_floors

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
