"""The surrogate rank by three ways, and the term f of Eqs. 3 and 15 with its slope."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fairtopk.lists.batch import list_batch
from fairtopk.objectives.ndcg import (
    DENSE_LIMIT,
    CompiledHinge,
    Estimate,
    ListNet,
    SoftmaxAtK,
    SortedHinge,
    hinge_table,
    ndcg_slope,
    ndcg_term,
    surrogate_rank,
)
from fairtopk.objectives.threshold import Selection

WAYS = [CompiledHinge.apply, hinge_table, SortedHinge.apply]


def plain(scores: Tensor, weight: Tensor, rows: int, margin: float) -> Tensor:
    """The sum as it is written."""
    lead = scores[:, None, :] - scores[:, :rows, None] + margin
    return (weight[:, None, :] * lead.relu() ** 2).sum(-1)


def lists(seed: int, n_lists: int, length: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(n_lists, length, dtype=torch.float64, generator=generator)
    weight = torch.rand(n_lists, length, dtype=torch.float64, generator=generator)
    return scores, weight * (weight > 0.2)


@pytest.mark.kernel
@pytest.mark.parametrize("way", WAYS)
@given(
    seed=st.integers(0, 10**6),
    length=st.integers(1, 30),
    margin=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    ties=st.booleans(),
)
def test_value_and_gradient_are_those_of_the_plain_sum(
    way: Callable[..., Tensor], seed: int, length: int, margin: float, ties: bool
) -> None:
    scores, weight = lists(seed, 3, length)
    if ties:
        scores = scores.round()
    rows = max(1, length // 2)
    upstream = torch.linspace(-1, 2, 3 * rows, dtype=torch.float64).reshape(3, rows)
    ours, theirs = (scores.clone().requires_grad_() for _ in range(2))
    found = way(ours, weight, rows, margin)
    expected = plain(theirs, weight, rows, margin)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    found.backward(upstream)
    expected.backward(upstream)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-10, atol=1e-10)


@pytest.mark.kernel
def test_sorting_stays_exact_far_from_zero_in_float32() -> None:
    scores, weight = (values.float() for values in lists(0, 4, 200))
    weight /= weight.sum(-1, keepdim=True)
    shifted = (scores.double() + 1e4).float()
    found: Tensor = SortedHinge.apply(shifted, weight, 200, 1.0)  # type: ignore[no-untyped-call]
    expected = plain(shifted.double(), weight.double(), 200, 1.0)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.kernel
def test_the_way_is_chosen_by_size() -> None:
    for length in (10, DENSE_LIMIT // 100):
        scores, weight = lists(1, 2, length)
        scores.requires_grad_()
        name = type(surrogate_rank(scores, weight, rows=10, margin=1.0).grad_fn).__name__
        assert name == "CompiledHingeBackward"
        name = type(surrogate_rank(scores, weight, rows=length, margin=1.0).grad_fn).__name__
        assert name == ("CompiledHingeBackward" if length == 10 else "SortedHingeBackward")


@pytest.mark.kernel
@given(mean=st.floats(1e-3, 50), gain=st.floats(0, 31), length=st.integers(1, 30_000))
def test_the_ndcg_term_is_that_of_eq_3_and_its_slope_the_derivative(
    mean: float, gain: float, length: int
) -> None:
    leaf = torch.tensor(mean, dtype=torch.float64, requires_grad=True)
    plain = -gain / (1 + length * leaf).log2()
    (grad,) = torch.autograd.grad(plain, leaf)
    given = (leaf.detach(), torch.tensor(gain, dtype=torch.float64), torch.tensor(length))
    assert ndcg_term(*given).item() == pytest.approx(plain.item(), rel=1e-10)
    assert ndcg_slope(*given).item() == pytest.approx(grad.item(), rel=1e-8)


@pytest.mark.kernel
def test_a_mean_of_zero_gives_a_finite_term_and_slope() -> None:
    given = (torch.zeros(1), torch.ones(1), torch.full((1,), 300))
    assert ndcg_term(*given).isfinite().all()
    assert ndcg_slope(*given).isfinite().all()


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


def softmax_at_k(
    scores: Tensor, grades: Tensor, weight: Tensor, psi: Tensor, tau_d: float
) -> Estimate:
    query, mask = torch.arange(len(scores)), weight > 0
    batch = list_batch(query, grades, torch.zeros_like(mask).long(), mask)
    selection = Selection(psi[:, : batch.pair.shape[1]])
    found: Estimate = SoftmaxAtK(tau_d)(scores, batch._replace(weight=weight), selection)
    return found


@given(seed=st.integers(0, 10**6), tau_d=st.sampled_from([0.1, 0.25, 1.0, 3.0]))
def test_sl_at_k_is_a_loop_over_relevant_items_and_over_the_list(
    seed: int, tau_d: float
) -> None:
    """Padding, weighted slots, and lists without a relevant item are among them."""
    (scores, weight), (other, grades) = lists(seed, 3, 7), lists(seed + 1, 3, 7)
    weight[:, 0], psi, grades = 1, other.sigmoid(), (4 * grades).round()
    leaf, expected = scores.clone().requires_grad_(), torch.zeros(()).double()
    for h, w, y, top in zip(leaf, weight, grades, psi, strict=True):
        relevant = [i for i in range(7) if y[i] > 0 and w[i] > 0]
        for i in relevant:
            ahead = torch.zeros(()).double()
            for j in range(7):
                ahead = ahead + w[j] * ((h[j] - h[i]) / tau_d).exp()
            expected = expected + top[i] * ahead.log() / len(relevant) / 3
    if expected.requires_grad:
        expected.backward()
    found = softmax_at_k(scores, grades, weight, psi, tau_d)
    torch.testing.assert_close(found.value, expected.detach(), rtol=1e-10, atol=1e-12)
    grad = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    torch.testing.assert_close(found.grad, grad, rtol=1e-10, atol=1e-10)


def test_sl_at_k_is_above_the_logarithm_of_what_ndcg_divides_by() -> None:
    for seed in range(20):
        scores, _ = lists(seed, 1, 30)
        ones = torch.ones_like(scores)
        for item in range(30):
            relevant = torch.zeros_like(scores)
            relevant[0, item] = 1
            rank = int((scores >= scores[0, item]).sum())
            found = softmax_at_k(scores, relevant, ones, ones, 0.25).value
            assert found >= math.log(math.log2(1 + rank)) - 1e-12
