"""The training loop: phases of epochs, whose steps are those of Algorithm 1.

`Trainer._steps` draws a batch (lines 2 and 3), and `train_step` does the rest: the objective
updates its averages and returns the gradient G1 + C G2 (lines 4 to 10), the optimizer updates z
and w (lines 11 and 12).

Everything random in a step is keyed by (seed, epoch, step), so that a run resumed at any step
ends with the same bits as one that was never stopped.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from fairtopk.errors import InputError, TrainingError
from fairtopk.kernels.random import key_of
from fairtopk.kernels.threads import seeded, torch_on_one_thread
from fairtopk.lists.batch import Batch
from fairtopk.models.optimizers import (
    LazyMomentum,
    LazyOptimizer,
    Reads,
    check_values,
    state_layout,
)
from fairtopk.training.progress import Progress, Record, Stretch, check_progress
from fairtopk.training.samplers import ModelAwareSampler, Sampler


class ObjectiveLike(Protocol):
    """An objective: a module whose call is a step of its own, returning value and gradients."""

    def __call__(self, scores: Tensor, batch: Any, *moments: Tensor) -> tuple[Tensor, ...]:
        """Return the objective on a batch, and its gradient in all that it was given."""

    def report(self) -> dict[str, float]:
        """Return the parts of the last call by name."""

    def train(self) -> Any:
        """Prepare for training."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return what it remembers between steps."""

    def load_state_dict(self, state: dict[str, Tensor]) -> Any:
        """Go back to that."""


@runtime_checkable
class ReadsRows(Protocol):
    """A scorer that can tell which rows of its tables a batch will read."""

    def rows_read(self, batch: Batch) -> Reads:
        """Return tables, and the rows of each that `forward` reads."""


@runtime_checkable
class HasMoments(Protocol):
    """A scorer that knows the moments of all scores of a user without forming them."""

    def moments(self, users: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of the scores of all items, ``[Q]`` each."""


def train_step(
    scorer: nn.Module,
    objective: ObjectiveLike,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
) -> float:
    """Take one step of Algorithm 1 on a batch of line 2; return the objective.

    If the objective or its gradient is not finite, the weights stay unchanged and the result is
    NaN.
    """
    if isinstance(optimizer, LazyOptimizer):
        if isinstance(scorer, ReadsRows):
            optimizer.catch_up(scorer.rows_read(batch))
        else:
            optimizer.settle()
    inputs = objective_inputs(scorer, objective, batch)  # scores h_q(x_i; w), with a graph
    scores, *moments = (one.detach() for one in inputs)
    # Lines 4-6 (line 5: u_qi), lines 7-9 (line 8: u_a, u_b, u_q, s, v, lambda) and line 10:
    # G1 + C G2 with respect to scores
    estimate, *grads = objective(scores, batch, *moments)
    value = float(estimate)
    if not math.isfinite(value) or not all(bool(grad.isfinite().all()) for grad in grads):
        return math.nan
    optimizer.zero_grad()
    torch.autograd.backward(inputs, grads)  # line 10: G1 + C G2 in the weights w
    optimizer.step()  # line 11: z; line 12: w
    return value


def algorithm_1_optimizer(
    parameters: Iterable[nn.Parameter], *, gamma_5: float, weight_decay: float, lazy: bool
) -> torch.optim.Optimizer:
    """Return the optimizer of lines 11 and 12 of Algorithm 1; the loop sets eta_1.

    Args:
        parameters: The weights w.
        gamma_5: Weight of a fresh gradient in the momentum z.
        weight_decay: Factor of w that is added to the gradient.
        lazy: Whether tables with sparse gradients catch up when they are read.
    """
    momentum = LazyMomentum if lazy else torch.optim.SGD
    keep = 1 - gamma_5
    # line 11: z <- (1 - gamma_5) z + gamma_5 (G1 + C G2); line 12: w <- w - eta_1 z
    return momentum(parameters, momentum=keep, dampening=keep, weight_decay=weight_decay)


def objective_inputs(scorer: nn.Module, objective: ObjectiveLike, batch: Batch) -> list[Tensor]:
    """Return the tensors that an objective is a function of, each with its graph.

    These are the scores, and the moments of all scores if the objective uses them and the
    scorer knows them. Moments read all items, and their gradient updates all of them, so that
    no row of a lazy optimizer is ever behind.
    """
    inputs: list[Tensor] = [scorer(batch)]
    if getattr(objective, "reads_moments", False) and isinstance(scorer, HasMoments):
        inputs += scorer.moments(batch.query)
    return inputs


def threads_of(scorer: nn.Module) -> AbstractContextManager[None]:
    """Return how threads are shared while `scorer` is trained: compiled loops take them all."""
    return torch_on_one_thread() if getattr(scorer, "compiled", False) else nullcontext()


Prefers = Callable[[list[Record], int | None], bool]


@dataclass(frozen=True)
class Phase:
    """A stretch of training with one objective.

    Attributes:
        name: What the log calls it.
        sampler: Draws the lists.
        objective: What is minimised on them.
        optimizer: How.
        epochs: For how long.
        rate: Learning rate of each epoch.
        before: Called once before the phase.
        prefers: Says whether the last record of a history is to be chosen over record `chosen`;
            None: the phase is not validated, and ends with its last epoch.
    """

    name: str
    sampler: Sampler
    objective: ObjectiveLike
    optimizer: torch.optim.Optimizer
    epochs: int
    rate: Callable[[int], float]
    before: Callable[[], None] = lambda: None
    prefers: Prefers | None = None


class Trainer:
    """Trains a scorer through phases, each of which begins at the epoch chosen in the last.

    Args:
        scorer: The model.
        phases: What to do, in order.
        validate: Measures the model; returns values by name.
        watch: Returns the alarms that the last record of a history raises.
        seed: Of everything random.
        batch_size: Lists per step.
        validate_every: Epochs between validations; the last of a phase has one too.
        patience: Validations without a new choice after which a phase ends early.
    """

    def __init__(
        self,
        scorer: nn.Module,
        phases: list[Phase],
        *,
        validate: Callable[[], dict[str, float]],
        watch: Callable[[list[Record]], list[str]],
        seed: int,
        batch_size: int,
        validate_every: int = 1,
        patience: int | None = None,
    ) -> None:
        self.scorer, self.phases = scorer, phases
        self.validate, self.watch = validate, watch
        self.seed, self.batch_size = seed, batch_size
        self.validate_every, self.patience = validate_every, patience
        self.progress = Progress()
        self.chosen: dict[str, Tensor] = {}

    def run(self) -> Iterator[Record | None]:
        """Train to the end; yield None after each step and a record after each epoch.

        The caller may stop between two yields, save `state`, and go on later.
        """
        progress = self.progress
        while progress.phase < len(self.phases):
            phase = self.phases[progress.phase]
            if progress.epoch == 0 and progress.step == 0:
                phase.before()
            while not self.phase_is_over():
                yield from self._steps(phase)
                yield self._end_epoch(phase)
            goes_on = any(one.epochs for one in self.phases[progress.phase + 1 :])
            if goes_on and progress.chosen is not None:
                self.scorer.load_state_dict(self.chosen)
                progress.chosen, self.chosen = None, {}
            progress.phase += 1
            progress.epoch = progress.step = 0

    def phase_is_over(self) -> bool:
        """Return whether the present phase has no more epochs, or is out of patience."""
        progress = self.progress
        if progress.epoch >= self._phase().epochs:
            return True
        if self.patience is None or progress.chosen is None:
            return False
        later = progress.history[progress.chosen + 1 :]
        return sum("valid" in record for record in later) >= self.patience

    def total_steps(self) -> int:
        """Return how many steps all phases have."""
        return sum(one.epochs * one.steps for one in self.stretches())

    def stretches(self) -> list[Stretch]:
        """Return the phases as progress is counted."""
        return [
            Stretch(one.name, one.epochs, -(-len(one.sampler.n_relevant) // self.batch_size))
            for one in self.phases
        ]

    def _steps(self, phase: Phase) -> Iterator[None]:
        """Take the steps of an epoch that are still to be taken."""
        progress = self.progress
        self.scorer.train()
        phase.objective.train()
        for group in phase.optimizer.param_groups:
            group["lr"] = phase.rate(progress.epoch)
        epoch = progress.epoch + sum(one.epochs for one in self.phases[: progress.phase])
        first = progress.step
        if first == 0 and isinstance(phase.sampler, ModelAwareSampler):
            phase.sampler.refresh(self.scorer)
        # Algorithm 1, line 1: for t = 0, ..., T - 1; lines 2-3: the batches B, B_q, B_a, B_b
        for batch in phase.sampler.epoch(epoch, batch_size=self.batch_size, first=first):
            key = key_of(self.seed, epoch, progress.step)
            with seeded(key), threads_of(self.scorer):
                # lines 4-12
                value = train_step(self.scorer, phase.objective, phase.optimizer, batch)
            if math.isnan(value):
                raise self._blow_up("the objective or its gradient")
            progress.step += 1
            progress.total += 1
            for name, part in ({"loss": value} | phase.objective.report()).items():
                if not math.isnan(part):  # undefined on this batch
                    progress.sums[name] = progress.sums.get(name, 0.0) + part
                    progress.counts[name] = progress.counts.get(name, 0) + 1
            yield None

    def _end_epoch(self, phase: Phase) -> Record:
        progress = self.progress
        means = {name: total / progress.counts[name] for name, total in progress.sums.items()}
        record: Record = {"phase": phase.name, "epoch": progress.epoch + 1, **means}
        if isinstance(phase.optimizer, LazyOptimizer):
            phase.optimizer.settle()
        if not all(bool(weight.isfinite().all()) for weight in self.scorer.parameters()):
            raise self._blow_up("a weight")
        number = progress.epoch + 1
        due = number % self.validate_every == 0 or number == phase.epochs
        if phase.prefers and due:
            try:
                record |= self.validate()
            except InputError as error:
                raise TrainingError(
                    f"validation after epoch {number} of {phase.name}: {error}; lower the "
                    f"learning rate or the weight of the penalty"
                ) from error
        progress.history.append(record)
        if found := self.watch(progress.history):
            record["alarms"] = found
        chosen = progress.chosen
        if "valid" in record and phase.prefers and phase.prefers(progress.history, chosen):
            progress.chosen = len(progress.history) - 1
            self.chosen = {
                name: value.clone() for name, value in self.scorer.state_dict().items()
            }
        progress.epoch += 1
        progress.step, progress.sums, progress.counts = 0, {}, {}
        return record

    def _blow_up(self, what: str) -> TrainingError:
        progress = self.progress
        return TrainingError(
            f"{what} is no longer finite in {self._phase().name}, epoch {progress.epoch + 1}, "
            f"step {progress.step + 1}; lower the learning rate or the weight of the penalty"
        )

    def model(self) -> dict[str, Tensor]:
        """Return the weights of the chosen epoch, or of the last step while there is none."""
        optimizer = self._phase().optimizer
        if self.chosen or not isinstance(optimizer, LazyOptimizer):
            return self.chosen or dict(self.scorer.state_dict())
        weights = self.scorer.state_dict(keep_vars=True)
        return {name: optimizer.settled(value) for name, value in weights.items()}

    def state(self) -> dict[str, Tensor]:
        """Return what `load_state` needs to go on, beside `progress` and `model`.

        Of the phases only the present one has something to remember.
        """
        phase = self._phase()
        tensors = {f"scorer.{name}": value for name, value in self.scorer.state_dict().items()}
        for name, value in phase.objective.state_dict().items():
            tensors[f"objective.{name}"] = value
        for number, kept in phase.optimizer.state_dict()["state"].items():
            for name, value in kept.items():
                tensors[f"optimizer.{number}.{name}"] = torch.as_tensor(value)
        # Before an epoch a sampler looks at the model anew.
        if self.progress.step and isinstance(phase.sampler, ModelAwareSampler):
            for name, value in phase.sampler.state_dict().items():
                tensors[f"sampler.{name}"] = value
        return tensors

    def load_state(
        self, tensors: dict[str, Tensor], progress: dict[str, Any], model: dict[str, Tensor]
    ) -> None:
        """Go back to where `state`, `progress` and `model` were saved.

        What does not fit is refused, and the trainer stays as it was.
        """
        found = Progress(**progress)
        check_progress(found, self.stretches())
        self.check_state(tensors, found, model)
        phase = self._phase(found)
        if found.step and isinstance(phase.sampler, ModelAwareSampler):
            phase.sampler.load_state_dict(under("sampler", tensors))
        _load_or_leave(phase.objective, under("objective", tensors))
        self.scorer.load_state_dict(under("scorer", tensors))
        kept: dict[int, dict[str, Tensor]] = {}
        for name, value in under("optimizer", tensors).items():
            number, _, key = name.partition(".")
            kept.setdefault(int(number), {})[key] = value
        groups = phase.optimizer.state_dict()["param_groups"]
        phase.optimizer.load_state_dict({"state": kept, "param_groups": groups})
        self.progress = found
        self.chosen = model if found.chosen is not None else {}

    def check_state(
        self, tensors: Mapping[str, Tensor], progress: Progress, model: Mapping[str, Tensor]
    ) -> None:
        """Refuse tensors, a history or a choice that this trainer could not have left.

        Args:
            tensors: What `state` is said to have returned.
            progress: How far training was, by `check_progress` a possible one.
            model: The weights of the chosen epoch, if there is one.
        """
        phase, history = self._phase(progress), progress.history
        weights = dict(self.scorer.state_dict())
        stepped = progress.phase < len(self.phases) and bool(progress.epoch or progress.step)
        wanted = {f"scorer.{name}": value for name, value in weights.items()}
        remembered = state_layout(phase.optimizer) if stepped else {}
        wanted |= {f"optimizer.{name}": value for name, value in remembered.items()}
        seen = progress.step > 0 and isinstance(phase.sampler, ModelAwareSampler)
        apart = ("objective.", "sampler.") if seen else ("objective.",)
        own = {name: value for name, value in tensors.items() if not name.startswith(apart)}
        check_layout(own, wanted)
        check_finite(own)
        check_values(under("optimizer", tensors))
        self._check_memory(phase, under("objective", tensors))
        validated = history[len(history) - progress.epoch :] if phase.prefers else []
        if progress.chosen is None and any("valid" in record for record in validated):
            raise InputError("no epoch is chosen, though one was validated")
        if progress.chosen is not None:
            if "valid" not in history[progress.chosen]:
                raise InputError("an epoch is chosen that was not validated")
            check_layout(model, weights)
            check_finite(model)
        if history:  # what reads it, epoch by epoch, finds all that it needs
            self.watch(history)
        if phase.prefers and validated and "valid" in validated[-1]:
            phase.prefers(history, progress.chosen)

    def _check_memory(self, phase: Phase, found: Mapping[str, Tensor]) -> None:
        """Refuse what an objective cannot have remembered; tables of it may have grown."""
        own = phase.objective.state_dict()
        for name, value in own.items():
            if name in found and found[name].dim() == value.dim() == 1:
                own[name] = torch.empty(len(found[name]), dtype=value.dtype, device="meta")
        check_layout(found, own)
        if isinstance(phase.objective, nn.Module):
            names = [name for name, _ in phase.objective.named_parameters() if name in found]
            check_finite({name: found[name] for name in names})

    def _phase(self, progress: Progress | None = None) -> Phase:
        """Return the phase that is under way, or the last once all are done."""
        return self.phases[min((progress or self.progress).phase, len(self.phases) - 1)]


def check_layout(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Refuse tensors that are not those wanted, by name, type and shape."""
    for name in sorted(found.keys() | wanted.keys()):
        if name not in found:
            raise InputError(f"{name!r} is missing")
        if name not in wanted:
            raise InputError(f"{name!r} is not expected")
        one, other = found[name], wanted[name]
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            raise InputError(
                f"{name!r} is {one.dtype} of shape {tuple(one.shape)}, expected {other.dtype} "
                f"of shape {tuple(other.shape)}"
            )


def check_finite(tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors with a value that is infinite or NaN."""
    for name, value in tensors.items():
        if not bool(value.isfinite().all()):
            raise InputError(f"{name!r} has a value that is not finite")


def _load_or_leave(objective: ObjectiveLike, state: dict[str, Tensor]) -> None:
    """Put back what an objective remembered; where that fails it is as before."""
    before = {name: value.clone() for name, value in objective.state_dict().items()}
    try:
        objective.load_state_dict(state)
    except Exception:
        objective.load_state_dict(before)
        raise


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with ``prefix.``, under the rest of their names."""
    start = f"{prefix}."
    return {
        name.removeprefix(start): value
        for name, value in tensors.items()
        if name.startswith(start)
    }
