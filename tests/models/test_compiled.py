from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fairtopk.errors import InputError
from fairtopk.kernels import threads
from fairtopk.lists.batch import Batch, list_batch
from fairtopk.models import _compiled, _torch
from fairtopk.models._compiled import draw_dropout, is_compiled
from fairtopk.models._kernels import Dropout, group_pairs, kept_units
from fairtopk.models.mf import MatrixFactorization
from fairtopk.models.neumf import NeuMF

pytestmark = pytest.mark.kernel

Gradients = dict[str, Tensor]
HIDDEN = [(1,), (7,), (64,), (100,), (9, 4), (6, 5, 3)]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets small batches take the way of large ones, and sets torch's threads back."""
    monkeypatch.setattr(_compiled, "BLOCK_COST", 32)
    monkeypatch.setattr(threads, "LARGE", 0)
    monkeypatch.setattr(_compiled, "COLUMNS", 8)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def neumf(n_users: int, n_items: int, **options: Any) -> NeuMF:
    generator = torch.Generator().manual_seed(2)
    options = {"width": 5, "hidden": (6,), "dropout": 0.0} | options
    model = NeuMF(n_users, n_items, generator=generator, **options).double()
    return _spread_out(model)


def mf(n_users: int, n_items: int, **options: Any) -> MatrixFactorization:
    generator = torch.Generator().manual_seed(2)
    options = {"width": 5} | options
    model = MatrixFactorization(n_users, n_items, generator=generator, **options).double()
    return _spread_out(model)


def _spread_out(model: Any) -> Any:
    """Parameters of size one, biases too, so that nothing is hidden by being small."""
    generator = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        nn.init.normal_(parameter, generator=generator)
    return model


def random_batch(n_users: int, n_items: int, shape: tuple[int, int]) -> Batch:
    """Lists that may repeat users and items, and end in padding."""
    generator = torch.Generator().manual_seed(n_items)
    query = torch.randint(n_users, shape[:1], generator=generator)
    item = torch.randint(n_items, shape, generator=generator, dtype=torch.int32)
    length = torch.randint(1, shape[1] + 1, (shape[0], 1), generator=generator)
    mask = torch.arange(shape[1]) < length
    item[~mask] = 0
    group = torch.zeros(shape, dtype=torch.int32)
    return list_batch(query, torch.zeros(shape), group, mask, item=item)


def upstream(batch: Batch, dtype: torch.dtype) -> Tensor:
    """A gradient of the scores, 0 on padding."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(batch.item.shape, generator=generator, dtype=dtype) * batch.mask


def step(model: Any, batch: Batch, *, backend: str = "compiled") -> tuple[Tensor, Gradients]:
    """The scores of a batch and the gradients of all parameters."""
    torch.manual_seed(0)
    model.backend = backend
    model.zero_grad()
    scores = model(batch)
    scores.backward(upstream(batch, scores.dtype))
    grads = {name: one.grad.to_dense().clone() for name, one in model.named_parameters()}
    return scores.detach(), grads


def assert_equal_steps(
    one: tuple[Tensor, Gradients], other: tuple[Tensor, Gradients], *, atol: float = 1e-10
) -> None:
    torch.testing.assert_close(one[0], other[0], rtol=0, atol=atol)
    torch.testing.assert_close(one[1], other[1], rtol=0, atol=atol)


sizes = st.tuples(st.integers(1, 6), st.integers(1, 60))
shapes = st.tuples(st.integers(1, 8), st.integers(1, 40))
widths = st.sampled_from([1, 2, 8, 64, 100])


@given(sizes=sizes, shape=shapes, width=widths, hidden=st.sampled_from(HIDDEN))
def test_neumf_has_the_scores_and_gradients_of_torch(
    sizes: tuple[int, int], shape: tuple[int, int], width: int, hidden: tuple[int, ...]
) -> None:
    model, batch = neumf(*sizes, width=width, hidden=hidden), random_batch(*sizes, shape)
    expected = step(model, batch, backend="torch")
    scale = max(1.0, *(float(grad.abs().max()) for grad in expected[1].values()))
    assert_equal_steps(step(model, batch), expected, atol=1e-12 * scale)


@given(sizes=sizes, shape=shapes, width=widths)
def test_matrix_factorisation_has_the_scores_and_gradients_of_torch(
    sizes: tuple[int, int], shape: tuple[int, int], width: int
) -> None:
    model, batch = mf(*sizes, width=width), random_batch(*sizes, shape)
    assert_equal_steps(step(model, batch), step(model, batch, backend="torch"))


@pytest.mark.parametrize("n_items", [20, 2_000])
@pytest.mark.parametrize("make", [neumf, mf])
def test_sparse_gradients_hold_the_same_values(make: Any, n_items: int) -> None:
    batch = random_batch(30, n_items, (8, 40))
    dense, sparse = make(30, n_items), make(30, n_items)
    sparse.sparse = True
    assert_equal_steps(step(sparse, batch), step(dense, batch))
    users, items = list(sparse.children())[:2]
    assert users.weight.grad.is_sparse
    assert items.weight.grad.is_sparse == (n_items == 2_000)


@pytest.mark.parametrize("hidden", [(6,), (6, 5), (6, 5, 20)])
def test_with_dropout_the_gradient_is_that_through_the_same_mask(
    hidden: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, batch = neumf(9, 30, hidden=hidden, dropout=0.2), random_batch(9, 30, (7, 25))
    found = step(model, batch)

    torch.manual_seed(0)
    dropout = draw_dropout(0.2)
    pairs = group_pairs(batch.item.numpy(), 30)
    mask = torch.zeros(*batch.item.shape, hidden[-1], dtype=torch.uint8)
    mask.numpy()[pairs.row, pairs.slot] = kept_units(pairs, dropout, hidden[-1])
    monkeypatch.setattr(_torch, "draw_kept", lambda *_: (mask, 256 / 205))
    assert_equal_steps(found, step(model, batch, backend="torch"))


@pytest.mark.compiled
@pytest.mark.parametrize("hidden", [(6,), (6, 5)])
def test_dropout_leaves_the_expected_scores_alone(hidden: tuple[int, ...]) -> None:
    model, batch = neumf(3, 6, hidden=hidden, dropout=0.4), random_batch(3, 6, (3, 6))
    with torch.no_grad():
        drawn = torch.stack([model(batch) for _ in range(400)])
        plain = model.eval()(batch)
    spread = drawn.std(0) / len(drawn) ** 0.5
    assert spread.max() > 0
    assert ((drawn.mean(0) - plain).abs() <= 4.5 * spread).all()


@pytest.mark.parametrize(
    ("share", "keep"), [(0.0, 256), (0.2, 205), (0.5, 128), (0.001, 255), (0.999, 1)]
)
def test_dropout_is_rounded_to_a_draw_of_eight_bits(share: float, keep: int) -> None:
    assert draw_dropout(share).keep == keep


def test_the_seed_of_dropout_is_a_word_of_the_default_generator() -> None:
    def drawn(seed: int) -> list[Dropout]:
        torch.manual_seed(seed)
        return [draw_dropout(0.2), draw_dropout(0.2)]

    assert drawn(1) == drawn(1)
    assert len({*drawn(1), *drawn(2)}) == 4


@pytest.mark.compiled
@pytest.mark.parametrize("hidden", [(16,), (16, 8)])
def test_one_seed_gives_the_same_bits_for_one_and_two_threads(hidden: tuple[int, ...]) -> None:
    model = neumf(50, 900, width=16, hidden=hidden, dropout=0.2).float()
    batch = random_batch(50, 900, (40, 60))
    torch.set_num_threads(1)
    alone, alone_again = step(model, batch), step(model, batch)
    torch.set_num_threads(2)
    assert_equal_steps(step(model, batch), alone, atol=0)
    assert_equal_steps(alone_again, alone, atol=0)
    everything = model.score_all(batch.query)
    torch.set_num_threads(1)
    assert torch.equal(model.score_all(batch.query), everything)


def test_matrix_factorisation_has_the_same_bits_for_one_and_two_threads() -> None:
    model, batch = mf(50, 900, width=16).float(), random_batch(50, 900, (40, 60))
    torch.set_num_threads(1)
    alone = step(model, batch)
    torch.set_num_threads(2)
    assert_equal_steps(step(model, batch), alone, atol=0)


def test_blocks_depend_on_the_batch_and_not_on_threads() -> None:
    batch = random_batch(50, 900, (40, 60))
    torch.set_num_threads(1)
    alone = [block.items for block in _compiled.blocks_of(batch.item.numpy(), 900)[1]]
    torch.set_num_threads(2)
    _, blocks = _compiled.blocks_of(batch.item.numpy(), 900)
    assert [block.items for block in blocks] == alone
    assert len(alone) == _compiled.MAX_BLOCKS


@pytest.mark.parametrize("hidden", [(6,), (6, 5)])
@pytest.mark.parametrize("training", [True, False])
def test_without_a_gradient_scores_are_the_same(
    hidden: tuple[int, ...], training: bool
) -> None:
    model, batch = neumf(9, 30, hidden=hidden, dropout=0.3), random_batch(9, 30, (7, 25))
    model.train(training)
    torch.manual_seed(4)
    scores = model(batch)
    torch.manual_seed(4)
    with torch.no_grad():
        plain = model(batch)
    assert scores.requires_grad
    assert not plain.requires_grad
    torch.testing.assert_close(plain, scores.detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("backend", ["compiled", "torch"])
@pytest.mark.parametrize("hidden", [(6,), (6, 5), None])
def test_scores_of_all_items_are_those_of_lists_of_all(
    backend: str, hidden: tuple[int, ...] | None
) -> None:
    model: Any = mf(9, 30) if hidden is None else neumf(9, 30, hidden=hidden, dropout=0.3)
    model.backend = backend
    batch = random_batch(9, 30, (7, 30))
    batch = batch._replace(item=torch.arange(30).expand(7, 30))
    found = model.score_all(batch.query)
    assert not found.requires_grad
    torch.testing.assert_close(found, model.eval()(batch).detach(), rtol=0, atol=1e-12)


def test_a_gradient_that_is_held_is_not_overwritten_by_the_next() -> None:
    model, batch = neumf(9, 30), random_batch(9, 30, (7, 25))
    model.backend = "compiled"
    once = step(model, batch)[1]
    first, second = model(batch), model(batch)
    model.zero_grad()
    first.backward(upstream(batch, first.dtype))
    held = {name: one.grad for name, one in model.named_parameters()}
    second.backward(-3 * upstream(batch, second.dtype))
    for name, parameter in model.named_parameters():
        assert parameter.grad is held[name]
        torch.testing.assert_close(parameter.grad, -2 * once[name], rtol=0, atol=1e-10)


def test_training_takes_the_same_course_with_both_backends() -> None:
    courses = []
    for backend in ("compiled", "torch"):
        model, batch = neumf(20, 50), random_batch(20, 50, (10, 20))
        model.backend = backend
        course = []
        for _ in range(30):
            loss = (model(batch) - 1).square()[batch.mask].mean()
            model.zero_grad()
            loss.backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.02 * parameter.grad
            course.append(loss.item())
        courses.append(course)
    assert courses[0][-1] < courses[0][0] / 2
    assert courses[0] == pytest.approx(courses[1], rel=1e-9)


@pytest.mark.parametrize("hidden", [(6,), (6, 5)])
def test_a_batch_without_lists_has_no_scores(hidden: tuple[int, ...]) -> None:
    model, batch = neumf(9, 30, hidden=hidden), random_batch(9, 30, (7, 25))
    empty = batch._replace(query=batch.query[:0], item=batch.item[:0], mask=batch.mask[:0])
    assert_equal_steps(step(model, empty), step(model, empty, backend="torch"))


def test_a_weight_that_changes_before_the_backward_pass_is_noticed() -> None:
    model, batch = neumf(9, 30), random_batch(9, 30, (7, 25))
    scores = model(batch)
    with torch.no_grad():
        model.network_item.weight += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        scores.sum().backward()


def test_the_compiled_path_is_for_single_and_double_precision_on_the_cpu() -> None:
    assert is_compiled("auto", torch.empty(1))
    assert is_compiled("compiled", torch.empty(1, dtype=torch.float64))
    assert not is_compiled("torch", torch.empty(1))
    assert not is_compiled("auto", torch.empty(1, dtype=torch.bfloat16))
    assert not is_compiled("auto", torch.empty(1, device="meta"))


def test_a_backend_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(InputError, match=r'backend must be .*, got "numba"'):
        is_compiled("numba", torch.empty(1))
    with pytest.raises(InputError, match=r"got torch.float16 on cpu; set backend to"):
        is_compiled("compiled", torch.empty(1, dtype=torch.float16))


@pytest.mark.parametrize("number", [-1, 30])
def test_users_and_items_that_the_model_does_not_have_are_refused(number: int) -> None:
    model, batch = neumf(9, 30), random_batch(9, 30, (7, 25))
    batch.item[2, 3] = number
    with pytest.raises(InputError, match=rf"items .* from 0 to 29, got {number}"):
        model(batch)
    batch.query[2] = number
    with pytest.raises(InputError, match=rf"users .* from 0 to 8, got {number}"):
        model(batch)
    with pytest.raises(InputError, match=rf"users .* from 0 to 8, got {number}"):
        model.score_all(batch.query)
