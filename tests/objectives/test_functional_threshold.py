import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fairtopk.objectives.threshold import threshold_curvature, threshold_slope, topk_threshold

TAU = {"tau_1": 0.3, "tau_2": 0.02}


def drawn(seed: int) -> tuple[Tensor, Tensor]:
    """A list and its weights, which add up to 1."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(1, 6, dtype=torch.float64, generator=generator)
    weight = torch.rand(1, 6, dtype=torch.float64, generator=generator)
    return scores, weight / weight.sum()


def smooth(scores: Tensor, share: Tensor, lam: Tensor, top: float) -> Tensor:
    """G as Eq. 13 writes it."""
    tau_1, tau_2 = TAU["tau_1"], TAU["tau_2"]
    # As logaddexp, because torch's softplus is linear from 20 on.
    soft = tau_1 * torch.logaddexp((scores - lam) / tau_1, scores.new_zeros(()))
    return top * lam + tau_2 / 2 * lam**2 + (share * soft).sum()


@given(seed=st.integers(0, 10**6), start=st.floats(-3, 3))
def test_slope_and_curvature_are_derivatives_of_the_smooth_problem(
    seed: int, start: float
) -> None:
    scores, share = drawn(seed)
    scores.requires_grad_()
    lam = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(smooth(scores, share, lam, 0.4), lam, create_graph=True)
    second, across = torch.autograd.grad(first, [lam, scores])
    given = (scores.detach(), share, lam.detach()[None])
    slope = threshold_slope(*given, torch.full((1,), 0.4, dtype=torch.float64), **TAU)
    curvature, cross = threshold_curvature(*given, **TAU)
    torch.testing.assert_close(slope[0], first.detach(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(curvature[0], second, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(cross, -across, rtol=1e-10, atol=1e-12)


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=9),
    st.integers(1, 10),
)
def test_by_selection_and_by_sorting_the_threshold_is_one(
    slots: list[tuple[int, bool]], k: int
) -> None:
    """Whole slots are selected from; weights of 2 make it a sort, of twice K."""
    grades, mask = zip(*slots, strict=True)
    scores, weight = torch.tensor([grades]).double(), torch.tensor([mask]).double()
    alone, slot = topk_threshold(scores, weight, torch.tensor([float(k)]))
    twice, _ = topk_threshold(scores, 2 * weight, torch.tensor([2.0 * k]))
    assert alone[0] == twice[0]
    kept = sorted((one for one, there in slots if there), reverse=True)
    assert alone[0] == (kept[k] if k < len(kept) else -math.inf)
    assert k >= len(kept) or (scores[0, slot] == alone and mask[slot])
