"""The training loop: phases of epochs, each step one pass of Algorithm 1's loop.

Everything random in a step is keyed by (seed, epoch, step), so that a run that goes on from any
step ends with the same bits as one that was never stopped.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairtopk.errors import InputError, TrainingError
from fairtopk.kernels.seeding import seeded
from fairtopk.optimizers.lazy import LazyOptimizer
from fairtopk.samplers import Refreshed, Sampler
from fairtopk.steps import Minimised, threads_of, train_step

Record = dict[str, Any]
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
    objective: Minimised
    optimizer: torch.optim.Optimizer
    epochs: int
    rate: Callable[[int], float]
    before: Callable[[], None] = lambda: None
    prefers: Prefers | None = None


@dataclass
class Progress:
    """How far training is, and what it saw on the way."""

    phase: int = 0
    epoch: int = 0
    step: int = 0  # of the epoch
    total: int = 0  # steps in all
    sums: dict[str, float] = field(default_factory=dict)  # of this epoch's steps
    counts: dict[str, int] = field(default_factory=dict)  # how many steps each sum has
    history: list[Record] = field(default_factory=list)  # a record per epoch
    chosen: int | None = None  # place of the chosen epoch in the history

    @property
    def mark(self) -> int:
        """A number that rises with every step and with every end of an epoch."""
        return self.total + len(self.history)


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
        return sum(
            phase.epochs * -(-len(phase.sampler.n_relevant) // self.batch_size)
            for phase in self.phases
        )

    def _steps(self, phase: Phase) -> Iterator[None]:
        """Take the steps of an epoch that are still to be taken."""
        progress = self.progress
        self.scorer.train()
        phase.objective.train()
        for group in phase.optimizer.param_groups:
            group["lr"] = phase.rate(progress.epoch)
        epoch = progress.epoch + sum(one.epochs for one in self.phases[: progress.phase])
        first = progress.step
        if first == 0 and isinstance(phase.sampler, Refreshed):
            phase.sampler.refresh(self.scorer)
        for batch in phase.sampler.epoch(epoch, batch_size=self.batch_size, first=first):
            key = key_of(self.seed, epoch, progress.step)
            with seeded(key), threads_of(self.scorer):
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
        if self.progress.step and isinstance(phase.sampler, Refreshed):
            for name, value in phase.sampler.state_dict().items():
                tensors[f"sampler.{name}"] = value
        return tensors

    def load_state(
        self, tensors: dict[str, Tensor], progress: dict[str, Any], model: dict[str, Tensor]
    ) -> None:
        """Go back to where `state`, `progress` and `model` were saved."""
        self.progress = Progress(**progress)
        self.chosen = model if self.progress.chosen is not None else {}
        self.scorer.load_state_dict(under("scorer", tensors))
        phase = self._phase()
        phase.objective.load_state_dict(under("objective", tensors))
        kept: dict[int, dict[str, Tensor]] = {}
        for name, value in under("optimizer", tensors).items():
            number, _, key = name.partition(".")
            kept.setdefault(int(number), {})[key] = value
        groups = phase.optimizer.state_dict()["param_groups"]
        phase.optimizer.load_state_dict({"state": kept, "param_groups": groups})
        if isinstance(phase.sampler, Refreshed):
            phase.sampler.load_state_dict(under("sampler", tensors))

    def _phase(self) -> Phase:
        """Return the phase that is under way, or the last once all are done."""
        return self.phases[min(self.progress.phase, len(self.phases) - 1)]


def under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with ``prefix.``, under the rest of their names."""
    start = f"{prefix}."
    return {
        name.removeprefix(start): value
        for name, value in tensors.items()
        if name.startswith(start)
    }


def key_of(*parts: int) -> int:
    """Return one 63-bit seed that depends on all parts, and on how many they are."""
    return int(
        np.random.SeedSequence((len(parts), *parts)).generate_state(1, np.uint64)[0] >> 1
    )
