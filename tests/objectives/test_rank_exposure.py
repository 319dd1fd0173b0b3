"""The penalty on smoothed ranks, and the anchor, against autograd on the plain formula."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fairtopk.lists.batch import Batch, list_batch
from fairtopk.objectives.exposure import RankExposureDisparity
from fairtopk.objectives.methods import METHODS, ObjectiveSettings
from fairtopk.objectives.ndcg import Estimate
from fairtopk.objectives.objective import Objective
from fairtopk.objectives.threshold import Selection


def ragged(seed: int, n_groups: int) -> tuple[Tensor, Batch]:
    """Lists of different length, some labels unknown, some groups absent."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(2, 10, (4, 1), generator=generator)
    batch = list_batch(
        query=torch.arange(4),
        relevance=torch.randint(0, 5, (4, 9), generator=generator).double(),
        group=torch.randint(-1, n_groups, (4, 9), generator=generator),
        mask=torch.arange(9) < sizes,
    )
    return torch.randn(4, 9, dtype=torch.float64, generator=generator), batch


def penalty(
    scores: Tensor, batch: Batch, *, c: float, gradient: str = "full", k: int = 9
) -> Tensor:
    """1/2 sum_{g<h} (E_g - E_h)^2 with x_i = 1 / log2(1 + sum_j l(h_j - h_i)), list by list."""
    total = torch.zeros((), dtype=torch.float64)
    for row in range(len(scores)):
        kept = batch.mask[row]
        h, group, weight = scores[row, kept], batch.group[row, kept], batch.weight[row, kept]
        hinge = (h[None, :] - h[:, None] + 1).relu() ** 2
        rank = (hinge * weight).sum(-1)
        exposure = 1 / (1 + rank).log2()
        if k < len(h):
            beta = 10 / h.detach().std(correction=0).clamp(min=1e-6)
            lam = h.sort(descending=True).values[k]
            base = h.detach() if gradient == "frozen" else h
            lam = lam if gradient == "full" else lam.detach()
            exposure = exposure * torch.sigmoid(beta * (base - lam))
        inside = [group == g for g in range(int(batch.group.max()) + 1)]
        means = [(exposure * weight)[g].sum() / weight[g].sum() for g in inside if g.any()]
        pairs = [(a - b) ** 2 for place, a in enumerate(means) for b in means[:place]]
        total = total + c * sum(pairs) / 2 / len(scores)
    return total


def fairness_part(
    scores: Tensor, batch: Batch, method: str, n_groups: int, **values: object
) -> Estimate:
    """What the penalty and the anchor add to the objective."""
    without = {**values, "c": 0.0, "anchor": 0.0}
    with_it, plain = (
        Objective(
            METHODS[method],
            ObjectiveSettings.model_validate(one),
            n_queries=4,
            n_pairs=1,
            n_groups=n_groups,
        ).double()(scores, batch)
        for one in (values, without)
    )
    return Estimate(with_it.value - plain.value, with_it.grad - plain.grad)


@pytest.mark.parametrize("gradient", ["frozen", "psi", "full"])
@pytest.mark.parametrize("n_groups", [2, 3])
@settings(max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_the_gradient_is_that_of_the_formula(gradient: str, n_groups: int, seed: int) -> None:
    scores, batch = ragged(seed, n_groups)
    for method, k in (("kso-red", 3), ("so-red", 9)):
        found = fairness_part(
            scores, batch, method, n_groups, k=3, c=20.0, gradient=gradient, exposure="rank"
        )
        leaf = scores.clone().requires_grad_()
        exact = penalty(leaf, batch, c=20.0, gradient=gradient, k=k)
        if exact.requires_grad:
            exact.backward()
        expected = torch.zeros_like(scores) if leaf.grad is None else leaf.grad
        torch.testing.assert_close(found.value, exact.detach(), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(found.grad, expected, rtol=1e-10, atol=1e-12)


@given(seed=st.integers(0, 10**6))
def test_weighted_lists_rank_by_weighted_means(seed: int) -> None:
    scores, batch = ragged(seed, 3)
    generator = torch.Generator().manual_seed(seed + 1)
    weight = torch.rand(4, 9, dtype=torch.float64, generator=generator) + 0.1
    batch = batch._replace(weight=weight * batch.mask)
    part = RankExposureDisparity(3)
    found = part(
        scores.masked_fill(~batch.mask, 0),
        batch,
        Selection(torch.ones_like(scores)),
        20 * torch.ones(4).double(),
    )
    leaf = scores.clone().requires_grad_()
    exact = penalty(leaf, batch, c=20.0)
    if exact.requires_grad:  # some list has two groups
        exact.backward()
    grad = torch.zeros_like(scores) if leaf.grad is None else leaf.grad
    torch.testing.assert_close(found.value, exact.detach(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found.grad, grad, rtol=1e-10, atol=1e-12)


@given(seed=st.integers(0, 10**6), scale=st.sampled_from([0.2, 1.0, 5.0]))
def test_the_anchor_pulls_the_spread_to_one(seed: int, scale: float) -> None:
    scores, batch = ragged(seed, 2)
    scores = scores * scale
    found = fairness_part(
        scores, batch, "kso-red", 2, k=3, c=1e-30, anchor=0.7, exposure="rank"
    )
    leaf = scores.clone().requires_grad_()
    exact = sum(
        0.7 * (leaf[row, batch.mask[row]].std(correction=0) - 1) ** 2 / 2 / 4
        for row in range(4)
    )
    assert isinstance(exact, Tensor)
    exact.backward()
    torch.testing.assert_close(found.value, exact.detach(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found.grad, leaf.grad, rtol=1e-10, atol=1e-12)


def test_a_method_without_a_penalty_has_no_anchor() -> None:
    scores, batch = ragged(0, 2)
    found = fairness_part(scores, batch, "k-song", 2, k=3, c=5.0, anchor=0.7, exposure="rank")
    assert (found.grad == 0).all()


def test_the_signed_gap_is_group_0_less_the_mean_of_the_others_present() -> None:
    scores = torch.tensor([[1.0, 0.0, -1.0], [1.0, 0.0, -1.0], [1.0, 0.0, -1.0]]).double()
    group = torch.tensor([[0, 1, 2], [0, 1, -1], [1, 2, 2]])
    batch = list_batch(torch.arange(3), 0 * scores, group, torch.ones(3, 3).bool())
    gap = RankExposureDisparity(3)(
        scores, batch, Selection(torch.ones_like(scores)), torch.ones(3).double()
    ).gap
    hinge = (scores[0][None, :] - scores[0][:, None] + 1).relu() ** 2
    x = 1 / (1 + hinge.sum(-1)).log2()
    expected = torch.stack([x[0] - (x[1] + x[2]) / 2, x[0] - x[1], x[0] * torch.nan])
    torch.testing.assert_close(gap, expected, equal_nan=True)


def test_without_a_weight_there_is_no_anchor() -> None:
    scores, batch = ragged(0, 2)
    found = fairness_part(scores, batch, "kso-red", 2, k=3, c=0.0, anchor=0.7, exposure="rank")
    assert (found.grad == 0).all()


def test_an_item_drawn_apart_that_beats_the_whole_list_has_rank_one() -> None:
    scores = torch.tensor([[1.0, 0.5, 0.0, 9.0, -9.0]]).double()
    mask = torch.tensor([[True, True, True, False, False]])
    group = torch.tensor([[-1, -1, -1, 0, 1]])
    batch = list_batch(torch.tensor([0]), torch.zeros(1, 5).double(), group, mask)
    batch = batch._replace(group=group, weight=torch.ones(1, 5).double())
    found = RankExposureDisparity(2)(
        scores, batch, Selection(torch.ones_like(scores)), torch.ones(1).double()
    )
    # Rank 1 has exposure 1 / log2(2); the last one's smoothed rank is 1 + sum of squares.
    rank = 1 + sum((score + 9 + 1) ** 2 for score in (1.0, 0.5, 0.0))
    assert float(found.gap) == pytest.approx(1 - 1 / math.log2(1 + rank))
