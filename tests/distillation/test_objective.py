"""The losses of a student, and that what is drawn stands for the whole catalogue."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

import fairtopk as ft
from fairtopk.distillation.student import (
    Distillation,
    DistillSampler,
    TaughtBatch,
    listwise,
    regression,
)
from fairtopk.distillation.teacher import Teaching, place_weight
from fairtopk.lists.users import Lists
from fairtopk.models.mf import MatrixFactorization
from fairtopk.objectives.methods import DistillSettings
from fairtopk.objectives.ndcg import Estimate


def plain_regression(scores: Tensor, due: Tensor, counts: Tensor) -> Tensor:
    return (counts * (scores - due) ** 2).sum(-1).mean()


def plain_listwise(scores: Tensor, due: Tensor, counts: Tensor) -> Tensor:
    total = scores.new_zeros(())
    for h, t, w in zip(scores, due, counts, strict=True):
        there = w > 0
        p, q = ((w * one.exp())[there] for one in (t, h))
        p, q = p / p.sum(), q / q.sum()
        total = total + (p * (p / q).log()).sum()
    return total / len(scores)


@pytest.mark.parametrize(
    ("loss", "plain"), [(regression, plain_regression), (listwise, plain_listwise)]
)
def test_a_loss_and_its_gradient_are_those_of_its_plainest_form(
    loss: Callable[..., Estimate], plain: Callable[..., Tensor]
) -> None:
    generator = torch.Generator().manual_seed(0)
    scores, due, counts = torch.rand(3, 4, 9, generator=generator, dtype=torch.float64)
    counts[0, 3:5] = 0
    counts /= counts.sum(-1, keepdim=True)
    scores.requires_grad_()
    value = plain(scores, due, counts)
    (grad,) = torch.autograd.grad(value, scores)
    found = loss(scores.detach(), due, counts)
    torch.testing.assert_close(found.value, value.detach())
    torch.testing.assert_close(found.grad, grad)


@pytest.fixture(scope="module")
def lists() -> Lists:
    shape = ft.SyntheticShape(n_users=60, n_items=200, n_ratings=1_500)
    return ft.split(ft.make_synthetic(shape, bias=2.0).data)


def sampler_of(lists: Lists, **settings: float) -> DistillSampler:
    generator = torch.Generator().manual_seed(0)
    data = lists.data
    teacher = MatrixFactorization(data.n_users, data.n_items, width=8, generator=generator)
    with torch.no_grad():
        for weight in teacher.parameters():
            weight.mul_(30)
    told = DistillSettings.model_validate({"head": 80, "tail": 200, "reach": 20.0} | settings)
    return DistillSampler(teacher, lists.train, Teaching(data.group, told, 1.0, 0))


def first(sampler: DistillSampler, epoch: int) -> TaughtBatch:
    batch = next(iter(sampler.epoch(epoch, batch_size=60)))
    return cast(TaughtBatch, batch)


def test_what_is_drawn_gives_the_loss_of_the_whole_catalogue_in_expectation(
    lists: Lists,
) -> None:
    """The student's error is that of a teacher who would give every item the score 0."""
    whole = first(sampler_of(lists, drawn=200), 0)
    exact = float((whole.counts * whole.due**2).sum(-1).mean())
    sampler = sampler_of(lists, drawn=10)
    found = []
    for epoch in range(200):
        batch = first(sampler, epoch)
        found.append(float((batch.counts * batch.due**2).sum(-1).mean()))
    mean, error = np.mean(found), float(np.std(found)) / len(found) ** 0.5
    assert mean == pytest.approx(exact, abs=4 * error)
    assert float(whole.counts.sum(-1).mean()) == pytest.approx(1)


def test_drawn_whole_an_item_counts_by_its_place(lists: Lists) -> None:
    sampler = sampler_of(lists, drawn=200)
    batch, lesson = first(sampler, 0), sampler.lesson
    user = int(batch.query[0])
    n_head = (lesson.head[user] >= 0).sum()
    falling = place_weight(np.arange(n_head, dtype=float), 20.0)
    expected = falling / falling[0]
    counts = batch.counts[0, :n_head].double().numpy()
    np.testing.assert_allclose(counts / counts[0], expected, rtol=1e-5)
    np.testing.assert_array_equal(batch.item[0, :n_head], lesson.head[user, :n_head])


def test_the_same_lists_are_drawn_again_from_the_middle_of_an_epoch(lists: Lists) -> None:
    sampler = sampler_of(lists, drawn=10)
    late = list(sampler.epoch(3, batch_size=20))[2]
    (again,) = sampler.epoch(3, batch_size=20, first=2)
    for one, other in zip(late, again, strict=True):
        assert torch.equal(one, other)


def test_k_song_beside_is_added_with_its_weight() -> None:
    scores = torch.tensor([[0.5, 0.1, 0.3]])
    batch = SimpleNamespace(due=torch.tensor([[0.2]]), counts=torch.tensor([[1.0]]))
    ranking = Estimate(torch.tensor(2.0), torch.tensor([[1.0, -1.0, 0.0]]))
    settings = DistillSettings(mu=0.5)
    both = Distillation(settings, torch.nn.Identity(), cast("Any", lambda *_: ranking))
    value, grad = both(scores, batch)
    assert float(value) == pytest.approx(0.1**2 + 1.0)
    torch.testing.assert_close(grad, torch.tensor([[0.5, -0.5, 0.2]]))
