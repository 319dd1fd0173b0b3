import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Normal, kl_divergence

from fairtopk.objectives.dpr import list_divergence, list_moments, moment_divergence


@given(st.integers(0, 2**31))
def test_it_is_the_divergence_of_a_normal_distribution_with_its_slopes(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    mean = 3 * torch.randn(5, generator=rng, dtype=torch.float64)
    variance = torch.randn(5, generator=rng, dtype=torch.float64).exp()
    for one in (mean, variance):
        one.requires_grad_()
    expected = kl_divergence(Normal(mean, variance.sqrt()), Normal(0.0, 1.0))
    slopes = torch.autograd.grad(expected.sum(), (mean, variance))
    value, *found = moment_divergence(mean.detach(), variance.detach())
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(tuple(found), slopes)


@given(st.integers(0, 2**31))
def test_the_gradient_in_scores_is_that_of_the_closed_form_and_of_autograd(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    scores = 1 + 2 * torch.randn(4, 9, generator=rng, dtype=torch.float64)
    where = torch.rand(4, 9, generator=rng) < 0.7
    where[:, :2] = True  # one score alone has no spread
    value, grad = list_divergence(scores, where)
    scores.requires_grad_()
    for place, counts in enumerate(where):
        own = scores[place][counts]
        mean, sd = own.mean(), own.std(correction=0)
        expected = (mean**2 + sd**2 - 2 * sd.log() - 1) / 2
        torch.testing.assert_close(value[place], expected.detach())
        (slope,) = torch.autograd.grad(expected, scores, retain_graph=True)
        torch.testing.assert_close(grad[place], slope[place])
        closed = (mean + (own - mean) * (1 - 1 / sd**2)) / len(own)
        torch.testing.assert_close(grad[place][counts], closed.detach())


def test_equal_scores_and_empty_lists_give_finite_numbers() -> None:
    scores = torch.tensor([[2.0, 2, 2], [0, 0, 0], [7, 8, 9]])
    where = torch.tensor([[True] * 3, [True] * 3, [False] * 3])
    value, grad = list_divergence(scores, where)
    assert value.isfinite().all()
    assert value[0] > value[1] > 10
    assert value[2] == 0
    torch.testing.assert_close(grad, torch.tensor([[2 / 3] * 3, [0.0] * 3, [0.0] * 3]))
    assert list_moments(scores, where)[0].tolist() == [2.0, 0.0, 0.0]
    found = moment_divergence(torch.zeros(1), torch.zeros(1))
    assert all(one.isfinite().all() for one in found)


def test_scores_far_from_0_keep_their_spread() -> None:
    scores = torch.tensor([[1e4 - 1, 1e4 + 1]])
    mean, variance = list_moments(scores, torch.ones(1, 2, dtype=torch.bool))
    assert (mean.tolist(), variance.tolist()) == ([1e4], [1.0])
