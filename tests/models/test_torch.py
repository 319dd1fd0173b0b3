from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import Adam

from fairtopk.lists.batch import Batch, list_batch
from fairtopk.models._torch import draw_kept, rows_of
from fairtopk.models.mf import MatrixFactorization
from fairtopk.models.neumf import NeuMF
from fairtopk.models.optimizers import LazyAdam

Gradients = dict[str, Tensor]
CPU = torch.device("cpu")


def spread_out(model: Any) -> Any:
    """Parameters of size one, biases too, so that nothing is hidden by being small."""
    generator = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        nn.init.normal_(parameter, generator=generator)
    return model.double()


def neumf(n_users: int, n_items: int, *, sparse: bool = False, **options: Any) -> NeuMF:
    generator = torch.Generator().manual_seed(2)
    options = {"width": 5, "hidden": (6,), "dropout": 0.0} | options
    model = spread_out(NeuMF(n_users, n_items, generator=generator, **options))
    model.backend, model.sparse = "torch", sparse
    return model  # type: ignore[no-any-return]


def mf(n_users: int, n_items: int, *, sparse: bool = False) -> MatrixFactorization:
    generator = torch.Generator().manual_seed(2)
    model = spread_out(MatrixFactorization(n_users, n_items, width=5, generator=generator))
    model.backend, model.sparse = "torch", sparse
    return model  # type: ignore[no-any-return]


def random_batch(n_users: int, n_items: int, shape: tuple[int, int]) -> Batch:
    """Lists that may repeat users and items."""
    generator = torch.Generator().manual_seed(n_items + sum(shape))
    query = torch.randint(n_users, shape[:1], generator=generator)
    item = torch.randint(n_items, shape, generator=generator, dtype=torch.int32)
    group, mask = torch.zeros(shape, dtype=torch.int32), torch.ones(shape, dtype=torch.bool)
    return list_batch(query, torch.zeros(shape), group, mask, item=item)


def written_down(model: NeuMF, batch: Batch, kept: Tensor | float = 1.0) -> Tensor:
    """NeuMF on the concatenation of both vectors, for autograd to differentiate."""
    user = batch.query[:, None].expand(batch.item.shape)
    product = model.product_user.weight[user] * model.product_item.weight[batch.item]
    both = (model.network_user.weight[user], model.network_item.weight[batch.item])
    first = torch.cat([model.user_layer.weight, model.item_layer.weight], -1)
    active = (torch.cat(both, -1) @ first.T + model.user_layer.bias).relu()
    for layer in model.deeper:
        active = layer(active).relu()
    return torch.cat([product, active * kept], -1) @ model.output.weight[0]


def gradients(model: nn.Module, scores: Tensor) -> Gradients:
    """Those of all parameters, given some gradient of the scores."""
    generator = torch.Generator().manual_seed(1)
    grad = torch.randn(scores.shape, generator=generator, dtype=scores.dtype)
    model.zero_grad()
    scores.backward(grad)  # type: ignore[no-untyped-call]
    return {
        name: torch.zeros_like(one) if one.grad is None else one.grad.to_dense()
        for name, one in model.named_parameters()
    }


def assert_same(model: nn.Module, found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    ours, theirs = gradients(model, found), gradients(model, expected)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@given(
    sizes=st.tuples(st.integers(1, 6), st.integers(1, 60)),
    shape=st.tuples(st.integers(1, 8), st.integers(1, 40)),
    width=st.sampled_from([1, 2, 8, 64]),
    hidden=st.sampled_from([(1,), (7,), (64,), (9, 4), (6, 5, 3)]),
)
def test_scores_and_gradients_are_those_of_autograd(
    sizes: tuple[int, int], shape: tuple[int, int], width: int, hidden: tuple[int, ...]
) -> None:
    model, batch = neumf(*sizes, width=width, hidden=hidden), random_batch(*sizes, shape)
    assert_same(model, model(batch), written_down(model, batch))


@pytest.mark.parametrize("hidden", [(6,), (6, 5), (6, 5, 20)])
def test_with_dropout_they_are_those_through_the_same_mask(hidden: tuple[int, ...]) -> None:
    model, batch = neumf(9, 30, hidden=hidden, dropout=0.2), random_batch(9, 30, (7, 25))
    torch.manual_seed(5)
    kept, scale = draw_kept(0.2, (7, 25, hidden[-1]), CPU)
    assert kept is not None
    assert 0 < kept.sum() < kept.numel()
    torch.manual_seed(5)
    assert_same(model, model(batch), written_down(model, batch, kept.double() * scale))


@pytest.mark.parametrize("n_items", [20, 2_000])
@pytest.mark.parametrize("make", [neumf, mf])
def test_matrix_factorisation_and_sparse_gradients_too(make: Any, n_items: int) -> None:
    batch = random_batch(30, n_items, (8, 40))
    dense, sparse = make(30, n_items), make(30, n_items, sparse=True)
    scores = sparse(batch)
    found = gradients(sparse, scores)
    users, items = list(sparse.children())[:2]
    assert users.weight.grad.is_sparse
    assert items.weight.grad.is_sparse == (n_items == 2_000)
    if make is mf:
        user, item = dense.user.weight[batch.query], dense.item.weight[batch.item]
        expected = (user[:, None] * item).sum(-1) + dense.bias.weight[:, 0][batch.item]
    else:
        expected = written_down(dense, batch)
    torch.testing.assert_close(scores, expected)
    torch.testing.assert_close(found, gradients(dense, expected))


def test_of_a_large_catalogue_only_the_items_in_lists_are_taken() -> None:
    table = torch.arange(20.0)[:, None]
    item = torch.tensor([[7, 3], [3, 12]], dtype=torch.int32)
    place, (taken,) = rows_of(item, [table], sparse=False)
    assert taken[:, 0].tolist() == [3, 7, 12]
    assert taken[place][..., 0].tolist() == [[7, 3], [3, 12]]
    same, (whole,) = rows_of(item, [table[:4]], sparse=False)
    assert same is item
    assert len(whole) == 4


@pytest.mark.parametrize("share", [0.001, 0.2, 0.5])
def test_dropout_keeps_units_of_any_place_alike(share: float) -> None:
    torch.manual_seed(0)
    kept, scale = draw_kept(share, (5_000, 8), CPU)
    assert kept is not None
    chance = 1 / scale
    assert abs(chance - (1 - share)) <= 1 / 256
    # A column holds the same byte of each word.
    spread = (chance * (1 - chance) / len(kept)) ** 0.5
    assert ((kept.double().mean(0) - chance).abs() <= 4.5 * spread).all()


def test_dropout_is_drawn_from_the_default_generator() -> None:
    def drawn(seed: int) -> list[list[int]]:
        torch.manual_seed(seed)
        kept = [draw_kept(0.2, (33,), CPU)[0] for _ in range(2)]
        return [one.tolist() for one in kept if one is not None]

    assert drawn(1) == drawn(1)
    assert len({tuple(one) for one in drawn(1) + drawn(2)}) == 4


def test_without_dropout_nothing_is_drawn() -> None:
    before = torch.get_rng_state()
    assert draw_kept(0.0, (3, 4), CPU) == (None, 1.0)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("make", [neumf, mf])
def test_a_batch_without_lists_has_no_scores(make: Any) -> None:
    model, batch = make(9, 30), random_batch(9, 30, (7, 25))
    scores = model(batch._replace(query=batch.query[:0], item=batch.item[:0]))
    assert scores.shape == (0, 25)
    assert all((grad == 0).all() for grad in gradients(model, scores).values())


@pytest.mark.parametrize("n_items", [20, 400])
def test_lazy_adam_takes_the_steps_of_adam(n_items: int) -> None:
    lazy, dense = neumf(30, n_items, sparse=True, dropout=0.2), neumf(30, n_items, dropout=0.2)
    optimizer, plain_optimizer = LazyAdam(lazy.parameters()), Adam(dense.parameters())
    for number in range(8):
        batch = random_batch(30, n_items, (4, 10 + number))
        optimizer.catch_up(lazy.rows_read(batch))
        for model in (lazy, dense):
            torch.manual_seed(number)
            gradients(model, model(batch))
        optimizer.step()
        plain_optimizer.step()
    optimizer.settle()
    torch.testing.assert_close(lazy.state_dict(), dense.state_dict(), rtol=0, atol=1e-9)


def test_numbers_of_less_precision_are_scored_too() -> None:
    model, batch = neumf(9, 30, hidden=(6, 5), dropout=0.2), random_batch(9, 30, (7, 25))
    torch.manual_seed(0)
    expected = model(batch)
    torch.manual_seed(0)
    scores = model.bfloat16()(batch)
    assert scores.dtype == torch.bfloat16
    torch.testing.assert_close(scores.double(), expected, rtol=0.1, atol=0.5)
    assert all(grad.dtype == torch.bfloat16 for grad in gradients(model, scores).values())
