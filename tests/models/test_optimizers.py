"""Lazy optimizers against dense ones that are fed the same gradients."""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fairtopk.errors import InputError
from fairtopk.models import optimizers as room
from fairtopk.models.optimizers import LazyAdam, LazyMomentum, LazyOptimizer

ADAM: dict[str, Any] = {"lr": 0.01}
MOMENTUM: dict[str, Any] = {"lr": 0.1, "momentum": 0.9, "dampening": 0.9}
KINDS = [
    (LazyAdam, torch.optim.Adam, ADAM),
    (LazyAdam, torch.optim.Adam, ADAM | {"weight_decay": 0.03}),
    (LazyAdam, torch.optim.Adam, ADAM | {"betas": (0.9, 0.5)}),
    (LazyMomentum, torch.optim.SGD, MOMENTUM),
    (LazyMomentum, torch.optim.SGD, MOMENTUM | {"weight_decay": 0.03}),
    (LazyMomentum, torch.optim.SGD, MOMENTUM | {"dampening": 0.0, "weight_decay": 0.03}),
    (LazyMomentum, torch.optim.SGD, MOMENTUM | {"momentum": 0.0, "weight_decay": 0.03}),
]
LONG = (0, 1, 4)  # those that are followed for thousands of steps
BOTH = [(LazyAdam, ADAM | {"weight_decay": 0.03}), (LazyMomentum, MOMENTUM)]


@pytest.fixture
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets small tables be split like large ones, and sets torch's threads back."""
    monkeypatch.setattr(room, "PIECE", 16)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def table(shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> nn.Parameter:
    generator = torch.Generator().manual_seed(0)
    return nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype))


def sparse(rows: Tensor, values: Tensor, like: Tensor) -> Tensor:
    return torch.sparse_coo_tensor(rows[None], values, like.shape, check_invariants=True)


def gradients(
    n_steps: int, shape: tuple[int, int], *, dense: float = 0.0
) -> Iterator[tuple[Tensor, Tensor] | Tensor]:
    """Rows with gradients, or for a share of steps a dense gradient.

    Row 0 has one in every step, and the last row never, but for dense ones; the others have
    longer and longer pauses.
    """
    rng = np.random.default_rng(1)
    for _ in range(n_steps):
        if rng.random() < dense:
            yield torch.from_numpy(rng.normal(size=shape))
        else:
            chance = 1.5 ** -np.arange(shape[0])
            chance[-1] = 1.0 if shape[0] == 1 else 0.0
            rows = torch.from_numpy(
                rng.permutation(np.flatnonzero(rng.random(shape[0]) < chance))
            )
            yield rows, torch.from_numpy(rng.normal(size=(len(rows), shape[1])))


def lazy_step(optimizer: LazyOptimizer, weight: nn.Parameter, given: Any) -> None:
    if isinstance(given, Tensor):
        weight.grad = given.to(weight.dtype)
    else:
        rows, values = given
        optimizer.catch_up([(weight, rows)])
        weight.grad = sparse(rows, values.to(weight.dtype), weight)
    optimizer.step()


def dense_step(optimizer: torch.optim.Optimizer, weight: nn.Parameter, given: Any) -> None:
    if isinstance(given, Tensor):
        weight.grad = given
    else:
        weight.grad = torch.zeros_like(weight).index_add_(0, *given)
    optimizer.step()


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def near(one: Tensor, other: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(one.detach(), other.detach(), rtol=atol, atol=atol)


@pytest.mark.parametrize(
    "which",
    [
        pytest.param(which, marks=[pytest.mark.slow] if which in LONG else [])
        for which in range(len(KINDS))
    ],
)
def test_over_many_steps_the_numbers_are_those_of_torch(which: int) -> None:
    """With rows of all habits, rate changes, dense gradients in between, and steps without."""
    (lazy, dense, settings), n_steps = KINDS[which], 2_000 if which in LONG else 600
    ours, theirs = table((14, 5)), table((14, 5))
    mine, other = lazy([ours], **settings), dense([theirs], **settings)
    for step, given in enumerate(gradients(n_steps, (14, 5), dense=0.003)):
        if step in (200, 300, 1_500):
            for one in (mine, other):
                set_rate(one, settings["lr"] * (0.5 if step == 300 else 0.3))
        if step % 50 == 7:
            ours.grad = theirs.grad = None
            mine.step()
            other.step()
        lazy_step(mine, ours, given)
        dense_step(other, theirs, given)
        if step % 20 == 0 and not isinstance(given, Tensor):
            near(ours[given[0]], theirs[given[0]])
    behind = mine.state[ours]["last"] < mine.state[ours]["step"]
    assert behind.any()
    assert not torch.allclose(ours[behind], theirs[behind], rtol=0, atol=1e-12)
    near(mine.settled(ours), theirs)
    mine.settle()
    near(ours, theirs)
    for name in lazy.kept:
        if settings.get("momentum") != 0.0:
            near(mine.state[ours][name], other.state[theirs][name])


@pytest.mark.parametrize(("lazy", "dense", "settings"), KINDS[1::3])
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (9, 1), (9, 100)])
def test_shapes_do_not_matter(
    lazy: Any, dense: Any, settings: dict[str, Any], shape: tuple[int, int]
) -> None:
    ours, theirs = table(shape), table(shape)
    mine, other = lazy([ours], **settings), dense([theirs], **settings)
    for given in gradients(100, shape, dense=0.05):
        lazy_step(mine, ours, given)
        dense_step(other, theirs, given)
    mine.settle()
    near(ours, theirs)


@pytest.mark.parametrize(("lazy", "dense", "settings"), KINDS)
def test_a_table_without_any_gradient_in_its_first_steps_moves_as_in_torch(
    lazy: Any, dense: Any, settings: dict[str, Any]
) -> None:
    """The first step of torch's momentum takes its gradient whole, that of weight decay too."""
    ours, theirs = table((3, 2)), table((3, 2))
    mine, other = lazy([ours], **settings), dense([theirs], **settings)
    none = torch.empty(0, dtype=torch.int64), torch.empty(0, 2, dtype=torch.float64)
    one = torch.tensor([1]), torch.ones(1, 2, dtype=torch.float64)
    for given in (none, none, one, none, one):
        lazy_step(mine, ours, given)
        dense_step(other, theirs, given)
    mine.settle()
    near(ours, theirs)


@pytest.mark.parametrize(("lazy", "settings"), BOTH)
def test_any_shape_of_parameter_takes_dense_gradients(
    lazy: Any, settings: dict[str, Any]
) -> None:
    dense = torch.optim.Adam if lazy is LazyAdam else torch.optim.SGD
    shapes = [(), (4,), (3, 2), (2, 3, 2)]
    ours, theirs = [table(one) for one in shapes], [table(one) for one in shapes]
    mine, other = lazy(ours, **settings), dense(theirs, **settings)
    for step in range(20):
        for one, two in zip(ours, theirs, strict=True):
            one.grad = two.grad = torch.full_like(one, 0.1 * step - 1)
        mine.step()
        other.step()
    for one, two in zip(ours, theirs, strict=True):
        near(one, two)


@pytest.mark.parametrize(("lazy", "dense", "settings"), KINDS)
def test_single_precision_stays_near_double(
    lazy: Any, dense: Any, settings: dict[str, Any]
) -> None:
    ours, theirs = table((12, 6), torch.float32), table((12, 6))
    mine, other = lazy([ours], **settings), dense([theirs], **settings)
    for given in gradients(200, (12, 6)):
        lazy_step(mine, ours, given)
        dense_step(other, theirs, given)
    mine.settle()
    near(ours.double(), theirs, atol=2e-5)


@pytest.mark.parametrize(("lazy", "settings"), BOTH)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_state_that_was_saved_goes_on_to_the_same_bits(
    lazy: Any, settings: dict[str, Any], dtype: torch.dtype
) -> None:
    """Saving settles nothing, and steps are not rounded to the type of the table."""
    whole = table((12, 3), dtype)
    optimizer = lazy([whole], **settings)
    # More steps than single precision can count.
    lazy_step(optimizer, whole, (torch.tensor([3]), torch.ones(1, 3)))
    optimizer.state[whole]["step"] += 2**24
    optimizer.state[whole]["last"] += 2**24
    course = list(gradients(60, (12, 3), dense=0.05))
    for given in course[:30]:
        lazy_step(optimizer, whole, given)
    part = nn.Parameter(whole.detach().clone())
    saved = copy.deepcopy(optimizer.state_dict())
    resumed = lazy([part], **(settings | {"lr": 7.0}))
    groups = resumed.state_dict()["param_groups"]
    resumed.load_state_dict({"state": saved["state"], "param_groups": groups})
    for one in (optimizer, resumed):
        set_rate(one, 0.003)
    for given in course[30:]:
        lazy_step(optimizer, whole, given)
        lazy_step(resumed, part, given)
    assert torch.equal(whole, part)
    assert (optimizer.state[whole]["last"] < optimizer.state[whole]["step"]).any()
    for name, value in optimizer.state[whole].items():
        assert torch.equal(value, resumed.state[part][name])
        assert value.dtype == resumed.state[part][name].dtype


@pytest.mark.usefixtures("_small_pieces")
@pytest.mark.parametrize(("lazy", "settings"), BOTH)
def test_one_and_two_threads_give_the_same_bits(lazy: Any, settings: dict[str, Any]) -> None:
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        weight = table((300, 9), torch.float32)
        optimizer = lazy([weight], **settings)
        rng = torch.Generator().manual_seed(5)
        for _ in range(30):
            rows = torch.randperm(300, generator=rng)[:40]
            lazy_step(optimizer, weight, (rows, torch.randn(40, 9, generator=rng)))
        lazy_step(optimizer, weight, torch.randn(300, 9, generator=rng))
        lazy_step(optimizer, weight, (rows, torch.randn(40, 9, generator=rng)))
        optimizer.settle()
        found.append([weight.detach(), *(optimizer.state[weight][name] for name in lazy.kept)])
    for alone, shared in zip(*found, strict=True):
        assert torch.equal(alone, shared)


@pytest.mark.parametrize(("lazy", "settings"), BOTH)
def test_a_settled_copy_changes_nothing(lazy: Any, settings: dict[str, Any]) -> None:
    weight = table((12, 3))
    optimizer = lazy([weight], **settings)
    assert torch.equal(optimizer.settled(weight), weight)
    for given in gradients(40, (12, 3)):
        lazy_step(optimizer, weight, given)
    before = copy.deepcopy((weight.detach(), optimizer.state_dict()["state"][0]))
    copied = optimizer.settled(weight)
    assert torch.equal(weight, before[0])
    for name, value in optimizer.state[weight].items():
        assert torch.equal(value, before[1][name])
    assert not torch.equal(copied, weight)
    optimizer.settle()
    assert torch.equal(copied, weight)


@pytest.mark.parametrize(("lazy", "settings"), BOTH)
def test_an_embedding_that_repeats_rows_trains_as_with_dense_gradients(
    lazy: Any, settings: dict[str, Any]
) -> None:
    courses = []
    for is_sparse in (True, False):
        torch.manual_seed(0)
        embedding = nn.Embedding(20, 4, sparse=is_sparse, dtype=torch.float64)
        optimizer = lazy(embedding.parameters(), **settings)
        rng = torch.Generator().manual_seed(5)
        for _ in range(50):
            rows = torch.randint(20, (8,), generator=rng)
            optimizer.catch_up([(embedding.weight, rows)])
            optimizer.zero_grad()
            (embedding(rows) - 1).square().sum().backward()
            optimizer.step()
        optimizer.settle()
        courses.append(embedding.weight)
    near(*courses)


def test_bringing_rows_up_to_date_is_noticed_by_a_backward_pass_on_their_old_values() -> None:
    weight = table((4, 2))
    optimizer = LazyAdam([weight], **ADAM)
    for row in (0, 1):
        lazy_step(optimizer, weight, (torch.tensor([row]), torch.ones(1, 2)))
    weight.grad = None
    loss = weight.square().sum()
    optimizer.catch_up([(weight, torch.tensor([0]))])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_the_state_of_a_dense_optimizer_is_refused() -> None:
    weight = table((4, 2))
    dense = torch.optim.Adam([weight], **ADAM)
    weight.grad = torch.ones_like(weight)
    dense.step()
    with pytest.raises(InputError, match="saved by another optimizer"):
        LazyAdam([weight]).load_state_dict(dense.state_dict())


def test_a_gradient_of_rows_that_were_behind_is_refused() -> None:
    weight = table((4, 2))
    optimizer = LazyMomentum([weight], **MOMENTUM)
    lazy_step(optimizer, weight, (torch.tensor([0]), torch.ones(1, 2)))
    weight.grad = sparse(torch.tensor([1]), torch.ones(1, 2, dtype=torch.float64), weight)
    with pytest.raises(InputError, match="name them to catch_up before it"):
        optimizer.step()


@pytest.mark.parametrize("row", [-1, 4])
def test_rows_that_a_table_does_not_have_are_refused(row: int) -> None:
    weight = table((4, 2))
    optimizer = LazyAdam([weight], **ADAM)
    lazy_step(optimizer, weight, (torch.tensor([0]), torch.ones(1, 2)))
    with pytest.raises(InputError, match="numbered from 0 to 3"):
        optimizer.catch_up([(weight, torch.tensor([row]))])


@pytest.mark.parametrize(
    "weight",
    [torch.zeros(2, 2, dtype=torch.float16), torch.zeros(2, 2, device="meta"), table((2, 3)).T],
)
def test_parameters_that_it_cannot_update_are_refused(weight: Tensor) -> None:
    with pytest.raises(InputError, match=r"on the CPU, got .*; use one of torch\.optim"):
        LazyAdam([nn.Parameter(weight.detach())])


@pytest.mark.parametrize(
    ("lazy", "settings"),
    [
        (LazyAdam, {"lr": -1.0}),
        (LazyAdam, {"betas": (0.9, 1.0)}),
        (LazyAdam, {"weight_decay": -1.0}),
        (LazyMomentum, {"momentum": -0.1}),
    ],
)
def test_settings_out_of_range_are_refused(lazy: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="must be at least 0"):
        lazy([table((2, 2))], **settings)


def test_a_closure_is_evaluated_before_the_step() -> None:
    weight = table((2, 2))
    optimizer = LazyMomentum([weight], lr=0.5)

    def closure() -> float:
        optimizer.zero_grad()
        loss = weight.square().sum() / 2
        loss.backward()
        return loss.item()

    before = weight.detach().clone()
    assert optimizer.step(closure) == pytest.approx(float(before.square().sum() / 2))
    near(weight, before / 2)


@pytest.mark.parametrize("betas", [(0.0, 0.999), (0.9, 0.0)])
def test_adam_takes_averages_that_remember_nothing(betas: tuple[float, float]) -> None:
    ours, theirs = table((4, 3)), table((4, 3))
    mine, other = LazyAdam([ours], betas=betas), torch.optim.Adam([theirs], betas=betas)
    for given in gradients(5, (4, 3)):
        lazy_step(mine, ours, given)
        dense_step(other, theirs, given)
    mine.settle()
    near(ours, theirs)


def test_rows_to_catch_up_with_may_have_any_shape() -> None:
    ours = table((4, 3))
    mine = LazyAdam([ours])
    for given in gradients(5, (4, 3)):
        lazy_step(mine, ours, given)
    mine.catch_up([(ours, torch.tensor([[0, 1], [2, 3]]))])
    assert bool((mine.state[ours]["last"] == mine.state[ours]["step"]).all())
