import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.objectives.exposure import group_sums, pair_penalty, values_of_groups

EXPOSURES = st.lists(st.floats(0, 1), min_size=2, max_size=5)


def test_sums_are_of_the_slots_of_a_group_and_unknown_slots_are_in_none() -> None:
    group = torch.tensor([[0, 1, 0, -1], [2, 2, -1, -1]])
    values = torch.tensor([[3.0, 2.0, 1.0, 5.0], [1.0, 0.0, 1.0, 1.0]]).double()
    assert group_sums(values, group, n_groups=3).tolist() == [[4, 2, 0], [0, 0, 1]]


def test_slots_get_what_a_table_has_for_their_group() -> None:
    group = torch.tensor([[0, 1, 0, -1], [2, 2, -1, -1]])
    table = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert values_of_groups(table, group).tolist() == [[1, 2, 1, 0], [6, 6, 0, 0]]


@pytest.mark.parametrize("n_groups", [4, 20])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64])
def test_loops_and_torch_agree(dtype: torch.dtype, n_groups: int) -> None:
    generator = torch.Generator().manual_seed(0)
    group = torch.randint(-1, n_groups, (5, 30), generator=generator, dtype=dtype)
    values = torch.randn(5, 30, generator=generator)
    ours = group_sums(values, group, n_groups=n_groups)
    back = values_of_groups(ours, group)
    sums = torch.zeros(5, n_groups + 1).scatter_add_(1, group.long() % (n_groups + 1), values)
    torch.testing.assert_close(ours, sums[:, :-1])
    padded = torch.nn.functional.pad(ours, (0, 1))
    torch.testing.assert_close(back, padded.gather(1, group.long() % (n_groups + 1)))


@pytest.mark.parametrize("n_groups", [2, 9])
def test_a_label_beyond_the_groups_is_in_none(n_groups: int) -> None:
    group, values = torch.tensor([[0, n_groups, 500]]), torch.ones(1, 3)
    assert group_sums(values, group, n_groups=n_groups).sum() == 1
    assert values_of_groups(torch.ones(1, n_groups), group).tolist() == [[1, 0, 0]]


@given(EXPOSURES, st.data())
def test_the_penalty_is_the_sum_over_pairs_present_and_its_slope_the_derivative(
    values: list[float], data: st.DataObject
) -> None:
    flags = st.lists(st.booleans(), min_size=len(values), max_size=len(values))
    present = torch.tensor([data.draw(flags)])
    exposure = torch.tensor([values], dtype=torch.float64, requires_grad=True)
    kept = [one for one, there in zip(exposure[0], present[0], strict=True) if there]
    plain = sum(
        ((a - b) ** 2 / 2 for i, a in enumerate(kept) for b in kept[:i]), 0 * exposure[0, 0]
    )
    (grad,) = torch.autograd.grad(plain, exposure)
    penalty, slope = pair_penalty(exposure.detach(), present)
    torch.testing.assert_close(penalty[0], plain.detach(), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(slope, grad, rtol=1e-12, atol=1e-14)


@given(st.floats(0, 1), st.floats(0, 1))
def test_with_two_groups_it_is_half_the_squared_gap(a: float, b: float) -> None:
    both = torch.tensor([[True, True]])
    penalty, slope = pair_penalty(torch.tensor([[a, b]], dtype=torch.float64), both)
    gap = a - b
    rounding = 1e-15 * abs(gap) + 1e-30
    assert penalty.tolist() == pytest.approx([gap**2 / 2], rel=1e-12, abs=rounding)
    assert penalty.item() >= 0
    assert slope[0].tolist() == pytest.approx([gap, -gap], rel=1e-12, abs=1e-15)


@given(EXPOSURES)
def test_all_pairs_are_the_spread_about_the_mean_times_the_number_of_groups(
    values: list[float],
) -> None:
    exposure = torch.tensor([values], dtype=torch.float64)
    penalty, _ = pair_penalty(exposure, torch.ones_like(exposure, dtype=torch.bool))
    about_mean = ((exposure - exposure.mean()) ** 2).sum() / 2
    torch.testing.assert_close(penalty[0], len(values) * about_mean, rtol=1e-9, atol=1e-14)
