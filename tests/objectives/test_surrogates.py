import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.objectives.threshold import select, select_slope

one = torch.ones(1, dtype=torch.float64)


@given(score=st.floats(-5, 5), lam=st.floats(-5, 5), beta=st.floats(0.1, 20))
def test_psi_is_a_sigmoid_and_comes_with_its_derivative(
    score: float, lam: float, beta: float
) -> None:
    leaf = torch.tensor([[score]], dtype=torch.float64, requires_grad=True)
    expected = torch.sigmoid(beta * (leaf - lam))
    (grad,) = torch.autograd.grad(expected, leaf)
    psi = select(leaf.detach(), lam * one, beta * one)
    slope = select_slope(psi, beta * one)
    assert psi.item() == pytest.approx(expected.item(), rel=1e-12)
    assert slope.item() == pytest.approx(grad.item(), rel=1e-9)


def test_no_threshold_selects_everything() -> None:
    scores = torch.tensor([[-1e4, 0.0, 1e4]]).double()
    psi = select(scores, -math.inf * one, one)
    slope = select_slope(psi, one)
    assert psi.tolist() == [[1, 1, 1]]
    assert slope.tolist() == [[0, 0, 0]]
