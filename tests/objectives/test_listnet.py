"""The ListNet loss against Eq. 4."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fairtopk.lists.batch import list_batch
from fairtopk.objectives.ndcg import Estimate, ListNet
from fairtopk.objectives.threshold import Selection


def listnet_loss(scores: Tensor, grades: Tensor, mask: Tensor, weight: Tensor) -> Estimate:
    query, group = torch.zeros(1).long(), torch.zeros_like(mask, dtype=torch.int64)
    batch = list_batch(query, grades, group, mask)._replace(weight=weight)
    found: Estimate = ListNet()(scores, batch, Selection(torch.ones_like(scores)))
    return found


@given(seed=st.integers(0, 10**6), n=st.integers(1, 7))
def test_listnet_is_eq_4_and_its_gradient_the_derivative(seed: int, n: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(1, 7, dtype=torch.float64, generator=generator)
    grades = torch.randint(0, 5, (1, 7), generator=generator).double()
    mask = torch.arange(7)[None] < n
    leaf = scores[0, :n].clone().requires_grad_()
    ahead = (leaf[None, :] - leaf[:, None]).exp().sum(-1)
    plain = (grades[0, :n].softmax(-1) * ahead.log()).sum()
    plain.backward()
    loss, grad = listnet_loss(
        scores.masked_fill(~mask, math.nan), grades, mask, mask.to(scores.dtype)
    )
    torch.testing.assert_close(loss, plain.detach(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(grad[0, :n], leaf.grad, rtol=1e-10, atol=1e-12)
    assert (grad[0, n:] == 0).all()


def test_in_listnet_a_slot_that_stands_for_two_items_is_two_slots() -> None:
    scores = torch.tensor([[0.3, -1.0, 0.7, 0.7]], dtype=torch.float64)
    grades = torch.tensor([[2.0, 1.0, 0.0, 0.0]], dtype=torch.float64)
    mask, ones = torch.ones(1, 4, dtype=torch.bool), torch.ones(1, 4, dtype=torch.float64)
    loss, grad = listnet_loss(scores, grades, mask, ones)
    weight = torch.tensor([[1.0, 1.0, 2.0]], dtype=torch.float64)
    ours, ours_grad = listnet_loss(scores[:, :3], grades[:, :3], mask[:, :3], weight)
    torch.testing.assert_close(ours, loss)
    torch.testing.assert_close(ours_grad[0, 2], grad[0, 2:].sum())
    torch.testing.assert_close(ours_grad[:, :2], grad[:, :2])
