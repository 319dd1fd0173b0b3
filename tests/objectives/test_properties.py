"""What holds for any list: shifts, orders, swapped groups, bounds and limits."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fairtopk.lists.batch import Batch, list_batch
from fairtopk.metrics import exposure_gap, ndcg
from fairtopk.objectives.exposure import ExposureDisparity
from fairtopk.objectives.methods import METHODS, PRESETS, ObjectiveSettings, methods_of
from fairtopk.objectives.ndcg import NdcgSurrogate, surrogate_rank
from fairtopk.objectives.objective import Objective
from fairtopk.objectives.threshold import Selection, Threshold, select

LENGTH = 9
FAIR = [name for name, method in METHODS.items() if method.fairness != "none"]
BY_RANK = {"exposure": "rank"}
VARIANTS = {**PRESETS, "by rank": BY_RANK}
# Exact, tracked without the term that ties the threshold to zero, and one that is not used.
THRESHOLDS = [{}, {**PRESETS["paper"], "tau_2": 0.0}, BY_RANK]
every_method = pytest.mark.parametrize("method", methods_of("objective"))
every_fair_method = pytest.mark.parametrize("method", FAIR)
each_threshold = pytest.mark.parametrize(
    "values", THRESHOLDS, ids=["exact", "tracked", "by rank"]
)
seeds = given(seed=st.integers(0, 10**6))
fewer = settings(max_examples=10)


def drawn(seed: int, *, n_lists: int = 4) -> tuple[Tensor, Batch]:
    """Lists of different length, some labels unknown, some groups absent."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(1, LENGTH + 1, (n_lists, 1), generator=generator)
    batch = list_batch(
        query=torch.randperm(n_lists, generator=generator),
        relevance=torch.randint(0, 5, (n_lists, LENGTH), generator=generator).double(),
        group=torch.randint(-1, 2, (n_lists, LENGTH), generator=generator),
        mask=torch.arange(LENGTH) < sizes,
        ideal_k=3,
    )
    return torch.randn(n_lists, LENGTH, dtype=torch.float64, generator=generator), batch


def one_list(seed: int) -> tuple[Tensor, Batch]:
    """A whole list with both groups, no two scores alike."""
    generator = torch.Generator().manual_seed(seed)
    group = torch.randint(-1, 2, (1, LENGTH), generator=generator)
    group[0, :2] = torch.tensor([0, 1])
    grades = torch.randint(0, 5, (1, LENGTH), generator=generator).double()
    batch = list_batch(torch.zeros(1).long(), grades, group, torch.ones_like(group).bool())
    places = torch.randperm(LENGTH, generator=generator).double()
    return (places / 3 + torch.rand(1, LENGTH, generator=generator) / 10), batch


def objective(method: str, **values: object) -> Objective:
    given = ObjectiveSettings.model_validate({"k": 3, "c": 100.0, **values})
    return Objective(METHODS[method], given, n_queries=4, n_pairs=1, n_groups=2).double()


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)


@every_method
@each_threshold
@fewer
@given(seed=st.integers(0, 10**6), shift=st.floats(-50, 50))
def test_a_shift_of_all_scores_moves_the_threshold_and_nothing_else(
    method: str, values: dict[str, object], seed: int, shift: float
) -> None:
    """Over two visits, so that averages are part of it."""
    plain, shifted = objective(method, **values), objective(method, **values)
    for step in range(2):
        scores, batch = drawn(seed + step)
        found, expected = shifted(scores + shift, batch), plain(scores, batch)
        close(found.value, expected.value)
        close(found.grad, expected.grad)
    if "threshold" in values and METHODS[method].selects:
        moved = shifted.thresholds[0].lam - plain.thresholds[0].lam
        close(moved[~moved.isnan()], torch.full_like(moved, shift)[~moved.isnan()])


@every_method
@each_threshold
@pytest.mark.parametrize("gradient", ["frozen", "full"])
@fewer
@seeds
def test_gradients_sum_to_zero_over_each_list(
    method: str, values: dict[str, object], gradient: str, seed: int
) -> None:
    scores, batch = drawn(seed)
    grad = objective(method, **values, gradient=gradient)(scores, batch).grad
    torch.testing.assert_close(grad.sum(-1), torch.zeros(4).double(), rtol=0, atol=1e-11)


@every_method
@pytest.mark.parametrize("preset", list(VARIANTS))
@fewer
@seeds
def test_permuting_items_permutes_the_gradient(method: str, preset: str, seed: int) -> None:
    scores, batch = drawn(seed)
    order = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(seed))
    columns = (batch.relevance, batch.group, batch.mask)
    turned = list_batch(batch.query, *(one[:, order] for one in columns), ideal_k=3)
    expected = objective(method, **VARIANTS[preset])(scores, batch)
    found = objective(method, **VARIANTS[preset])(scores[:, order], turned)
    close(found.value, expected.value)
    close(found.grad, expected.grad[:, order])


@every_fair_method
@fewer
@seeds
def test_swapping_the_groups_flips_the_gap_and_keeps_the_penalty(
    method: str, seed: int
) -> None:
    scores, batch = drawn(seed)
    swapped = batch._replace(group=torch.where(batch.group >= 0, 1 - batch.group, -1))
    part, other = objective(method), objective(method)
    expected, found = part(scores, batch), other(scores, swapped)
    close(found.value, expected.value)
    close(found.grad, expected.grad)
    gap = part.report()["gap_signed"]
    assert other.report()["gap_signed"] == pytest.approx(-gap, abs=1e-15, nan_ok=True)


@every_fair_method
@pytest.mark.parametrize("preset", list(VARIANTS))
@pytest.mark.parametrize("level", [0.0, -7.3])
def test_equal_scores_have_no_gap_and_no_gradient_of_the_penalty(
    method: str, preset: str, level: float
) -> None:
    _, batch = drawn(3)
    part = objective(method, **VARIANTS[preset], c_relative=1e3, c=None)
    part(torch.full((4, LENGTH), level).double(), batch)
    found = part.report()
    assert found["gap_signed"] == pytest.approx(0, abs=1e-16)
    assert found["penalty"] == pytest.approx(0, abs=1e-24)
    assert found["penalty_norm"] == pytest.approx(0, abs=1e-12)
    assert found["ranking_norm"] > 0.01


@seeds
def test_a_gap_is_at_most_one_over_the_smaller_group_whatever_the_averages_saw(
    seed: int,
) -> None:
    """Scores jump by tens from visit to visit; the groups' sizes stay."""
    scores, batch = one_list(seed)
    sizes = [int((batch.group == label).sum()) for label in (0, 1)]
    part = ExposureDisparity(1, 2, gamma=0.2).double()
    generator = torch.Generator().manual_seed(seed)
    for _ in range(5):
        jump = 30 * torch.randn(1, LENGTH, dtype=torch.float64, generator=generator)
        gap = part(
            scores + jump, batch, Selection(torch.ones_like(scores)), torch.ones(1).double()
        ).gap
        assert abs(gap.item()) <= max(1 / size for size in sizes) + 1e-12


@given(seed=st.integers(0, 10**6), k=st.integers(1, LENGTH + 1))
def test_a_sharp_selector_between_two_scores_gives_the_exact_gap_of_the_top(
    seed: int, k: int
) -> None:
    scores, batch = one_list(seed)
    falling = scores[0].sort(descending=True).values.tolist()
    lam = scores.new_full((1,), (falling[k - 1] + falling[k]) / 2 if k < LENGTH else -torch.inf)
    psi = select(scores, Threshold(lam, lam), scores.new_full((1,), 1e6)).psi
    part = ExposureDisparity(1, 2, gamma=1.0).double()
    cost = torch.ones(1).double()
    found = part(scores, batch, Selection(psi), cost)
    gap = found.gap
    exact = exposure_gap(scores, batch.group, k=k, signed=True)
    torch.testing.assert_close(gap, exact, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(found.value, exact[0] ** 2 / 2, rtol=1e-12, atol=1e-16)
    if k >= LENGTH:
        whole = part(scores, batch, Selection(torch.ones_like(scores)), cost).gap
        assert torch.equal(gap, whole)


@given(st.lists(st.integers(-6, 6), min_size=1, max_size=LENGTH), st.integers(0, 10**6))
def test_a_smoothed_rank_is_no_better_than_the_rank_nor_its_ndcg_than_ndcg(
    halves: list[int], seed: int
) -> None:
    """With ties, which share their last place."""
    scores = torch.tensor([halves]).double() / 2
    n = len(halves)
    ranks = (scores[:, None, :] >= scores[:, :, None]).double().sum(-1)
    smoothed = n * surrogate_rank(scores, torch.full_like(scores, 1 / n), rows=n, margin=1)
    assert (smoothed >= ranks - 1e-9).all()
    generator = torch.Generator().manual_seed(seed)
    grades = torch.randint(0, 5, (1, n), generator=generator).double()
    nowhere, everywhere = torch.full((1, n), -1), torch.ones(1, n).bool()
    batch = list_batch(torch.zeros(1).long(), grades, nowhere, everywhere)
    found = NdcgSurrogate(1, gamma_0=1.0)(scores, batch, Selection(torch.ones_like(scores)))
    exact = ndcg(scores, grades, k=n)
    assert exact.isnan() or -found.value <= exact + 1e-12


@seeds
def test_code_for_many_groups_with_two_is_the_plain_two_group_formula(seed: int) -> None:
    """D e_k (w_k psi_k - D) for one list, with groups 1 and 3 of five present."""
    scores, batch = one_list(seed)
    lam, beta = scores.median(-1).values, scores.new_full((1,), 4.0)
    psi = select(scores, Threshold(lam, lam), beta).psi
    in_a, in_b = ((batch.group == label).double() for label in (0, 1))
    w = in_a / in_a.sum() - in_b / in_b.sum()
    e = scores.softmax(-1)
    d = (w * psi * e).sum()
    labels = torch.tensor([1, 3, -1])
    part = ExposureDisparity(1, 5, gamma=1.0).double()
    found = part(
        scores,
        batch._replace(group=labels[batch.group]),
        Selection(psi),
        torch.ones(1).double(),
    )
    torch.testing.assert_close(found.value, d**2 / 2, rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(found.grad, d * e * (w * psi - d), rtol=1e-10, atol=1e-14)
