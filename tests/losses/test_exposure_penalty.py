"""The fairness penalty alone: against Eqs. 7 and 11, its weight, its memory and its errors."""

import pytest
import torch
from torch import Tensor

import fairtopk as ft
from fairtopk.losses import ExposurePenalty, KSong, KsoRed


def drawn(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, groups and a mask of three lists of different length."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(3, 8, dtype=torch.float64, generator=generator)
    groups = torch.randint(-1, 2, (3, 8), generator=generator)
    groups[:, :2] = torch.tensor([0, 1])
    mask = torch.arange(8) < torch.tensor([[8], [6], [5]])
    return scores, groups, mask


def formula(scores: Tensor, groups: Tensor, mask: Tensor, k: int | None) -> Tensor:
    """Eq. 11, or Eq. 7 without `k`, as written; psi is frozen, as in the default settings."""
    total = torch.zeros((), dtype=torch.float64)
    for row in range(len(scores)):
        h, group = scores[row, mask[row]], groups[row, mask[row]]
        psi = torch.ones_like(h)
        if k is not None and k < len(h):
            fixed = h.detach()
            lam = fixed.sort(descending=True).values[k]
            psi = torch.sigmoid(10 / fixed.std(correction=0) * (fixed - lam))
        exposure = psi * h.softmax(-1)
        gap = exposure[group == 0].mean() - exposure[group == 1].mean()
        total = total + gap**2 / 2 / len(scores)
    return total


@pytest.mark.parametrize("k", [1, 3, 20, None])
def test_value_and_gradient_are_those_of_the_formula(k: int | None) -> None:
    for seed in range(5):
        scores, groups, mask = drawn(seed)
        ours, theirs = (scores.clone().requires_grad_() for _ in range(2))
        value = ExposurePenalty(k=k, c=30.0)(ours, groups, mask=mask)
        value.backward()
        expected = 30 * formula(theirs, groups, mask, k)
        expected.backward()
        torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-10, atol=1e-12)


def test_it_is_what_kso_red_adds_to_k_song() -> None:
    penalty, fair = ExposurePenalty(k=3, c=30.0, gamma_u=0.5), KsoRed(k=3, c=30.0, gamma_u=0.5)
    blind = KSong(k=3)
    for seed in range(4):
        scores, groups, mask = drawn(seed)
        relevance, query = torch.ones_like(groups), torch.arange(3)
        given = {"query": query, "mask": mask}
        ours = penalty(scores, groups, **given)
        added = fair(scores, relevance, groups, **given) - blind(scores, relevance, **given)
        torch.testing.assert_close(ours, added, rtol=1e-8, atol=1e-10)


def test_its_averages_are_saved_loaded_and_go_on() -> None:
    first, second = (ExposurePenalty(k=3, c_relative=1.0, gamma_u=0.3) for _ in range(2))
    scores, groups, mask = drawn(0)
    first(scores, groups, query=["ada", "bob", "eve"], mask=mask)
    second.load_state_dict(first.state_dict())
    scores, groups, mask = drawn(1)
    values = [
        one(scores, groups, query=["bob", "eve", "ada"], mask=mask) for one in (first, second)
    ]
    fresh = ExposurePenalty(k=3, c_relative=1.0)(scores, groups, mask=mask)
    assert torch.equal(*values)
    assert not torch.allclose(values[0], fresh)


def test_state_of_another_loss_is_refused() -> None:
    penalty = ExposurePenalty(k=3, c=1.0, gamma_u=0.3)
    with pytest.raises(ft.InputError, match="cannot be loaded"):
        penalty.load_state_dict(KsoRed(k=3, c=1.0, gamma_u=0.3).state_dict())


def test_a_weight_of_zero_gives_zero() -> None:
    scores, groups, mask = drawn(0)
    scores.requires_grad_()
    value = ExposurePenalty(k=3, c=0.0)(scores, groups, mask=mask)
    value.backward()
    assert value == 0
    assert (scores.grad == 0).all()


def test_it_needs_a_weight_and_groups() -> None:
    with pytest.raises(ft.InputError, match="ExposurePenalty needs the weight"):
        ExposurePenalty(k=3)
    with pytest.raises(ft.InputError, match="ExposurePenalty needs the group"):
        ExposurePenalty(k=3, c=1.0)(torch.zeros(1, 3), None)
    with pytest.raises(ft.InputError, match="k must be a whole number"):
        ExposurePenalty(k=0, c=1.0)
