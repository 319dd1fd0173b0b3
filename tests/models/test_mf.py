import pytest
import torch

from fairtopk.lists.batch import list_batch
from fairtopk.models.mf import MatrixFactorization


@pytest.mark.parametrize("backend", ["auto", "torch", "compiled"])
def test_a_score_is_the_product_of_the_vectors_and_the_items_bias(backend: str) -> None:
    generator = torch.Generator().manual_seed(1)
    model = MatrixFactorization(2, 3, width=2, generator=generator).double()
    model.backend = backend
    with torch.no_grad():
        model.user.weight[:] = torch.tensor([[1, 2], [3, -1]])
        model.item.weight[:] = torch.tensor([[5, 0], [1, 1], [0, 2]])
        model.bias.weight[:, 0] = torch.tensor([0.5, 0, -1])
    item = torch.tensor([[2, 1, 0, 0], [0, 1, 1, 2]], dtype=torch.int32)
    mask, group = torch.ones(2, 4, dtype=torch.bool), torch.zeros(2, 4, dtype=torch.int32)
    batch = list_batch(torch.tensor([0, 1]), torch.zeros(2, 4), group, mask, item=item)
    assert model(batch).tolist() == [[3.0, 3.0, 5.5, 5.5], [15.5, 2.0, 2.0, -3.0]]
    assert model.score_all(torch.tensor([1])).tolist() == [[15.5, 2.0, -3.0]]


def test_the_product_has_no_last_layer_to_restart() -> None:
    assert not hasattr(MatrixFactorization, "restart_last_layer")


@pytest.mark.parametrize("sparse", [True, False])
def test_moments_are_those_of_the_scores_of_all_items_with_their_gradient(sparse: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    model = MatrixFactorization(9, 50, width=4, generator=generator).double()
    model.sparse = sparse
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(0.3, 1.0, generator=generator)
    users, weights = torch.tensor([7, 2, 2, 5]), list(model.parameters())
    found = model.moments(users)
    scores = model.user.weight[users] @ model.item.weight.T + model.bias.weight[:, 0]
    expected = scores.mean(1), scores.var(1, correction=0)
    torch.testing.assert_close(found, expected)
    upstream = [torch.randn(4, generator=generator, dtype=torch.float64) for _ in range(2)]
    ours, theirs = (
        torch.autograd.grad(moments, weights, upstream) for moments in (found, expected)
    )
    assert ours[0].is_sparse == sparse
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.to_dense(), other)


def test_moments_form_no_score() -> None:
    """With more users than the vectors have numbers, what is kept grows with items alone."""
    model = MatrixFactorization(3_000, 200, width=4, generator=torch.Generator())
    kept: list[int] = []

    def count(one: torch.Tensor) -> torch.Tensor:
        kept.append(one.numel())
        return one

    with torch.autograd.graph.saved_tensors_hooks(count, lambda one: one):
        model.moments(torch.arange(3_000))
    assert max(kept) <= 3_000 * 5


def test_moments_of_equal_items_and_of_scores_far_from_0_are_precise() -> None:
    model = MatrixFactorization(2, 1_000, width=4, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        model.bias.weight.normal_(generator=torch.Generator().manual_seed(2)).add_(1e3)
    variance = model.moments(torch.tensor([0, 1]))[1]
    expected = model.double().score_all(torch.tensor([0, 1])).var(1, correction=0)
    torch.testing.assert_close(variance.detach(), expected.float(), rtol=1e-4, atol=0)
    with torch.no_grad():
        model.item.weight[:], model.bias.weight[:] = 2.0, 1.0
    assert (model.moments(torch.tensor([0, 1]))[1].detach().abs() < 1e-20).all()
