from typing import Any

import pytest
import torch
from torch import Tensor

from fairtopk.objectives.dpr import Adversary, AdversaryInput
from fairtopk.objectives.methods import DprSettings

each_loss = pytest.mark.parametrize("loss", ["cross-entropy", "squared"])


def adversary(n_groups: int = 2, **settings: Any) -> Adversary:
    generator = torch.Generator().manual_seed(0)
    return Adversary(n_groups, DprSettings(**settings), generator=generator)


def drawn(score: Tensor, member: Tensor) -> AdversaryInput:
    return AdversaryInput(score, member.float(), torch.ones(len(score)))


def two_groups(n: int = 1_000, *, apart: float) -> AdversaryInput:
    """Standard normal scores; those of the first group, a half, are lower by `apart`."""
    rng = torch.Generator().manual_seed(1)
    score, first = torch.randn(n, generator=rng), torch.arange(n) < n // 2
    return drawn(score - apart * first, torch.stack([first, ~first], dim=1))


@each_loss
def test_it_learns_to_tell_groups_apart_by_their_scores(loss: str) -> None:
    found, heard = adversary(loss=loss), two_groups(apart=3.0)
    for _ in range(100):
        found.learn(heard)
    guess = found(heard.score).argmax(1) == heard.member.argmax(1)
    assert guess.float().mean() > 0.9  # 0.93 by the best threshold
    assert found.answer(heard).told_apart > 0.6


@each_loss
def test_groups_with_the_same_scores_are_not_told_apart(loss: str) -> None:
    found, heard = adversary(loss=loss), two_groups(apart=0.0)
    for _ in range(100):
        found.learn(heard)
    answer = found.answer(two_groups(apart=0.0))
    assert abs(answer.told_apart) < 0.05
    blind = {"cross-entropy": 0.693, "squared": 0.25}[loss]
    assert answer.loss == pytest.approx(blind, rel=0.05)


def test_scores_on_both_sides_of_another_group_are_told_apart_too() -> None:
    """No threshold would do."""
    score = torch.linspace(-2, 2, 500)
    heard = drawn(score, torch.stack([score.abs() > 1, score.abs() <= 1], dim=1))
    found = adversary()
    for _ in range(150):
        found.learn(heard)
    assert found.answer(heard).told_apart > 0.8


@each_loss
def test_the_gradient_in_scores_is_that_of_the_loss(loss: str) -> None:
    found = adversary(3, loss=loss, hidden=(5, 4)).double()
    rng = torch.Generator().manual_seed(2)
    score = torch.randn(6, generator=rng, dtype=torch.float64)
    member = (torch.rand(6, 3, generator=rng) < 0.5).double()  # in none, one or several groups
    weight = torch.rand(6, generator=rng, dtype=torch.float64)
    step = 1e-6
    answer = found.answer(AdversaryInput(score, member, weight))
    probability = found(score).sigmoid().detach()
    each = (probability - member) ** 2
    if loss == "cross-entropy":
        each = -torch.where(member > 0, probability, 1 - probability).log()
    torch.testing.assert_close(answer.loss, (weight * each.mean(1)).mean())
    for place in range(6):
        moved = score.clone()
        moved[place] += step
        rise = found.answer(AdversaryInput(moved, member, weight)).loss - answer.loss
        assert float(rise) / step == pytest.approx(float(answer.grad[place]), abs=1e-5)


def test_its_start_tells_scores_apart_and_depends_on_the_generator_alone() -> None:
    torch.manual_seed(3)
    first = adversary()
    torch.manual_seed(4)
    second = adversary()
    score = torch.linspace(-2, 2, 9)
    assert torch.equal(first(score), second(score))
    assert first(score).std(0).min() > 0.1
    assert [layer.out_features for layer in first.hidden] == [50] * 4


@pytest.mark.parametrize("taken", [0, 3])
def test_what_it_remembers_survives_saving_and_loading(taken: int) -> None:
    heard = two_groups(apart=1.0)
    whole = adversary()
    for _ in range(taken):
        whole.learn(heard)
    kept = {name: value.clone() for name, value in whole.state_dict().items()}
    assert all(isinstance(value, Tensor) for value in kept.values())
    before = kept["_extra_state"].clone()
    again = adversary()
    again.learn(two_groups(apart=-5.0))  # what it learnt is forgotten
    again.load_state_dict(kept)
    for _ in range(3):
        whole.learn(heard)
        again.learn(heard)
    assert torch.equal(kept["_extra_state"], before)
    for name, value in again.state_dict().items():
        assert torch.equal(value, whole.state_dict()[name])


def test_without_what_adam_remembers_it_goes_on_otherwise() -> None:
    heard = two_groups(apart=1.0)
    whole, again = adversary(), adversary()
    for _ in range(3):
        whole.learn(heard)
    again.load_state_dict(whole.state_dict() | {"_extra_state": torch.empty(0)})
    whole.learn(heard)
    again.learn(heard)
    assert not torch.equal(whole.output.weight, again.output.weight)


@each_loss
def test_where_all_are_in_one_group_nothing_is_to_be_told(loss: str) -> None:
    member = torch.tensor([[1, 0]]).expand(5, 2)
    answer = adversary(loss=loss).answer(drawn(torch.randn(5), member))
    assert answer.told_apart.isnan()
    assert answer.loss.isfinite()
    assert answer.grad.isfinite().all()
