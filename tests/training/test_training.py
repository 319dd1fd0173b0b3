"""The loop with lazy optimizers against the loop with dense ones."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fairtopk as ft
from fairtopk.lists.batch import Batch
from fairtopk.lists.users import Lists
from fairtopk.models.mf import MatrixFactorization
from fairtopk.models.neumf import NeuMF
from fairtopk.models.optimizers import LazyAdam, LazyMomentum, LazyOptimizer
from fairtopk.objectives.methods import METHODS, ObjectiveSettings
from fairtopk.objectives.objective import Objective
from fairtopk.training.loop import Phase, Trainer
from fairtopk.training.samplers import ListSampler, ListSizes

DENSE: dict[type, Any] = {LazyAdam: torch.optim.Adam, LazyMomentum: torch.optim.SGD}
SETTINGS: dict[type, dict[str, Any]] = {
    LazyAdam: {"weight_decay": 1e-3},
    LazyMomentum: {"momentum": 0.9, "dampening": 0.9, "weight_decay": 1e-3},
}
KINDS = [LazyAdam, LazyMomentum]


class Wrapped(nn.Module):
    """A scorer that does not tell which rows it reads."""

    def __init__(self, scorer: nn.Module) -> None:
        super().__init__()
        self.scorer = scorer

    def forward(self, batch: Batch) -> Tensor:
        scores: Tensor = self.scorer(batch)
        return scores


@pytest.fixture(scope="module")
def lists() -> Lists:
    return ft.split(ft.load("synthetic"))


def scorer_of(name: str, lists: Lists, *, sparse: bool) -> nn.Module:
    n_users, n_items = lists.data.n_users, lists.data.n_items
    generator = torch.Generator().manual_seed(0)
    model: MatrixFactorization | NeuMF
    if name == "mf":
        model = MatrixFactorization(n_users, n_items, width=4, generator=generator)
    else:
        model = NeuMF(n_users, n_items, width=4, hidden=(4,), dropout=0.0, generator=generator)
    model.sparse = sparse
    return model.double()


def trainer_of(
    lists: Lists, kind: type, *, lazy: bool, name: str = "neumf", unrated: int = 3
) -> Trainer:
    """Two phases with an optimizer each; the rate of the second changes."""
    sampler = ListSampler(lists, ListSizes(rated=2, unrated=unrated), seed=0)
    scorer = scorer_of(name.removeprefix("wrapped-"), lists, sparse=lazy)
    if name.startswith("wrapped-"):
        scorer = Wrapped(scorer)
    objective = Objective(
        METHODS["listnet"],
        ObjectiveSettings(k=5),
        n_queries=lists.data.n_users,
        n_pairs=0,
        n_groups=2,
    )
    make = kind if lazy else DENSE[kind]
    phases = [
        Phase(
            name=one,
            sampler=sampler,
            objective=objective,
            optimizer=make(scorer.parameters(), lr=1.0, **SETTINGS[kind]),
            epochs=epochs,
            rate=lambda epoch: (0.01 if kind is LazyAdam else 3.0) / (1 + epoch),
            prefers=(lambda history, chosen: True) if one == "fine-tuning" else None,
        )
        for one, epochs in (("warm-up", 1), ("fine-tuning", 2))
    ]
    return Trainer(
        scorer,
        phases,
        validate=lambda: {"valid": sum(one.sum().item() for one in scorer.parameters())},
        watch=lambda history: [],
        seed=0,
        batch_size=40,
    )


def assert_near(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "unrated"), [("neumf", 3), ("neumf", 60), ("mf", 3), ("wrapped-neumf", 3)]
)
def test_a_lazy_run_ends_like_a_dense_one(
    lists: Lists, kind: type, name: str, unrated: int
) -> None:
    """With item tables that have sparse gradients, and with longer lists dense ones."""
    ends = []
    for lazy in (True, False):
        trainer = trainer_of(lists, kind, lazy=lazy, name=name, unrated=unrated)
        start = {key: value.clone() for key, value in trainer.scorer.state_dict().items()}
        for _ in trainer.run():
            pass
        end = trainer.scorer.state_dict()
        assert all(not torch.equal(start[key], end[key]) for key in start)
        assert_near(trainer.chosen, end)
        ends.append((end, trainer.progress.history))
    assert_near(ends[0][0], ends[1][0])
    for one, other in zip(ends[0][1], ends[1][1], strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-8)
        assert one.get("valid", 0.0) == pytest.approx(other.get("valid", 0.0), rel=1e-8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("phase", [0, 1])
def test_the_model_of_any_step_is_up_to_date_and_the_state_is_not(
    lists: Lists, kind: type, phase: int
) -> None:
    found = []
    for lazy in (True, False):
        trainer = trainer_of(lists, kind, lazy=lazy)
        for _ in trainer.run():
            if trainer.progress.phase == phase and trainer.progress.step == 7:
                break
        found.append((trainer.model(), trainer.state()))
    (ours, state), (theirs, _) = found
    assert_near(ours, theirs)
    users = state["scorer.product_user.weight"]
    assert not torch.allclose(users, theirs["product_user.weight"], rtol=0, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stop", [12, 24, 25, 51])
def test_a_lazy_run_goes_on_from_any_step_to_the_same_bits(
    lists: Lists, kind: type, stop: int
) -> None:
    """Stops are in the middle of an epoch, before and after its end."""
    whole, first = (trainer_of(lists, kind, lazy=True) for _ in range(2))
    for _ in whole.run():
        pass
    for taken, _ in enumerate(first.run()):
        if taken == stop:
            break
    state = {name: value.clone() for name, value in first.state().items()}
    second = trainer_of(lists, kind, lazy=True)
    second.load_state(state, vars(first.progress), first.model())
    for _ in second.run():
        pass
    ours, theirs = second.state(), whole.state()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_rows_of_users_are_left_for_later(lists: Lists) -> None:
    trainer = trainer_of(lists, LazyAdam, lazy=True)
    for _ in trainer.run():
        if trainer.progress.step == 3:
            break
    optimizer = trainer.phases[0].optimizer
    assert isinstance(optimizer, LazyOptimizer)
    scorer: Any = trainer.scorer
    last = optimizer.state[scorer.product_user.weight]["last"]
    assert last.bincount().tolist() == [lists.data.n_users - 120, 40, 40, 40]


def test_a_phase_begins_at_the_epoch_chosen_in_the_one_before(lists: Lists) -> None:
    trainer = trainer_of(lists, LazyAdam, lazy=False)
    started: list[dict[str, Tensor]] = []
    ended: list[dict[str, Tensor]] = []

    def weights() -> dict[str, Tensor]:
        return {name: one.clone() for name, one in trainer.scorer.state_dict().items()}

    tuning = replace(trainer.phases[1], prefers=lambda history, chosen: chosen is None)
    last = replace(
        trainer.phases[1], name="last", epochs=1, before=lambda: started.append(weights())
    )
    trainer.phases = [trainer.phases[0], tuning, last]
    for record in trainer.run():
        if record is not None and record["phase"] == "fine-tuning":
            ended.append(weights())
    assert [
        name for name in started[0] if not torch.equal(started[0][name], ended[0][name])
    ] == []
    assert any(not torch.equal(ended[0][name], ended[1][name]) for name in ended[0])
    assert trainer.progress.chosen == 3
