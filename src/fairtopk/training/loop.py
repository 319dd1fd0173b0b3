"""The training loop: phases of epochs, whose steps are those of Algorithm 1.

`Trainer._epoch` draws the batches (lines 1 to 3), and `train_step` does the rest: the objective
updates its averages and returns the gradient G1 + C G2 (lines 4 to 10), the optimizer updates z
and w (lines 11 and 12).

Everything random in a step is keyed by (seed, epoch, step), so that a run resumed at any step
ends with the same bits as one that was never stopped.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from fairtopk.errors import InputError, TrainingError
from fairtopk.kernels.random import key_of
from fairtopk.kernels.threads import seeded, torch_on_one_thread
from fairtopk.lists.batch import Batch
from fairtopk.models.optimizers import LazyMomentum, LazyOptimizer, state_layout
from fairtopk.training.samplers import ListSampler, Sampler

REMEDY = "lower the learning rate or the weight of the penalty"
LEAST = {"step": 1, "exp_avg_sq": 0, "last": 0}  # values of what an optimizer remembers

Record = dict[str, Any]
Prefers = Callable[[list[Record], int | None], bool]


def train_step(
    scorer: nn.Module, objective: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch
) -> float:
    """Take one step of Algorithm 1 on a batch of lines 2 and 3; return the objective.

    If the objective or its gradient is not finite, the weights stay unchanged and the result is
    NaN.

    Args:
        scorer: Scores a batch, ``[Q, L]``. It may have ``rows_read(batch)``, which returns
            tables and the rows of each that a batch reads, for a lazy optimizer, and
            ``moments(users)``, the mean and variance of the scores of all items.
        objective: Returns its value and its gradient with respect to all that it is given:
            scores, and the moments if it ``reads_moments``.
        optimizer: Updates the weights w.
        batch: The lists.
    """
    if isinstance(optimizer, LazyOptimizer):
        rows_read = getattr(scorer, "rows_read", None)
        if rows_read is None:
            optimizer.settle()
        else:
            optimizer.catch_up(rows_read(batch))
    inputs: list[Tensor] = [scorer(batch)]  # scores h_q(x_i; w), with a graph
    moments_of = getattr(scorer, "moments", None)
    if moments_of is not None and getattr(objective, "reads_moments", False):
        # They read all items, and their gradient updates all of them, so that no row of a lazy
        # optimizer is ever behind.
        inputs += moments_of(batch.query)
    scores, *moments = (one.detach() for one in inputs)
    # Lines 4-6 (line 5: u_qi), 7-9 (line 8: u_a, u_b, u_q, s, v, lambda) and 10: G1, G2; and
    # their sum G1 + C G2 of line 11, with respect to scores
    estimate, *grads = objective(scores, batch, *moments)
    value = float(estimate)
    if not math.isfinite(value) or not all(bool(grad.isfinite().all()) for grad in grads):
        return math.nan
    optimizer.zero_grad()
    torch.autograd.backward(inputs, grads)  # the same with respect to the weights w
    # Lines 11 and 12: z and w, by `algorithm_1_optimizer` where optimizer = "momentum"; the
    # default is Adam.
    optimizer.step()
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
    # line 11: z <- (1 - gamma_5) z + gamma_5 (G1 + C G2); line 12: w <- w - eta_1 z. Torch's
    # first z is the whole gradient, not gamma_5 of it.
    return momentum(parameters, momentum=keep, dampening=keep, weight_decay=weight_decay)


def threads_of(scorer: nn.Module) -> AbstractContextManager[None]:
    """Return how threads are shared while `scorer` is trained: compiled loops take them all."""
    return torch_on_one_thread() if getattr(scorer, "compiled", False) else nullcontext()


@dataclass(frozen=True)
class Phase:
    """A stretch of training with one objective.

    ``prefers(history, chosen)`` says whether the last record of a history is to be chosen over
    record `chosen`. Without it the phase is not validated, and ends with its last epoch.
    """

    name: str  # in the log
    sampler: Sampler  # draws the lists
    objective: nn.Module  # see `train_step`; `report()` returns the parts of its last value
    optimizer: torch.optim.Optimizer
    epochs: int
    rate: Callable[[int], float]  # learning rate of each epoch
    before: Callable[[], None] = lambda: None  # called once before the phase
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


class Stretch(NamedTuple):
    """A phase as its progress is counted: its name, its epochs, and the steps of each."""

    name: str
    epochs: int
    steps: int


@dataclass(eq=False)
class Trainer:
    """Trains a scorer through phases, each from the epoch that the one before chose."""

    scorer: nn.Module
    phases: list[Phase]  # in order
    validate: Callable[[], dict[str, float]]  # measures the model; returns values by name
    watch: Callable[[list[Record]], list[str]]  # alarms that a history's last record raises
    seed: int  # of everything random
    batch_size: int  # lists per step
    validate_every: int = 1  # epochs between validations; the last of a phase has one too
    patience: int | None = None  # validations without a new choice that end a phase early
    notice: str = ""  # what is to be known before it begins, in a sentence
    progress: Progress = field(default_factory=Progress)
    chosen: dict[str, Tensor] = field(default_factory=dict)  # weights; empty: no choice yet

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
                yield from self._epoch(phase)
            goes_on = any(one.epochs for one in self.phases[progress.phase + 1 :])
            if goes_on and progress.chosen is not None:
                self.scorer.load_state_dict(self.chosen)
                progress.chosen, self.chosen = None, {}
            progress.phase += 1
            progress.epoch = progress.step = 0

    def _epoch(self, phase: Phase) -> Iterator[Record | None]:
        """Take the steps of an epoch that are still to be taken; then validate and choose."""
        progress = self.progress
        self.scorer.train()
        phase.objective.train()
        for group in phase.optimizer.param_groups:
            group["lr"] = phase.rate(progress.epoch)  # eta_1 of line 12
        epoch = progress.epoch + sum(one.epochs for one in self.phases[: progress.phase])
        first, number = progress.step, progress.epoch + 1
        broken = f"is no longer finite in {phase.name}, epoch {number}, step"
        if first == 0 and isinstance(phase.sampler, ListSampler):
            phase.sampler.refresh(self.scorer)
        # Algorithm 1, line 1: for t = 0, ..., T - 1; lines 2-3: the batches B, B_q, B_a, B_b
        for batch in phase.sampler.epoch(epoch, batch_size=self.batch_size, first=first):
            key = key_of(self.seed, epoch, progress.step)
            with seeded(key), threads_of(self.scorer):
                # lines 4-12
                value = train_step(self.scorer, phase.objective, phase.optimizer, batch)
            if math.isnan(value):
                raise TrainingError(
                    f"the objective or its gradient {broken} {progress.step + 1}; {REMEDY}"
                )
            progress.step += 1
            progress.total += 1
            parts: dict[str, float] = cast(Any, phase.objective).report()
            for name, part in ({"loss": value} | parts).items():
                if not math.isnan(part):  # undefined on this batch
                    progress.sums[name] = progress.sums.get(name, 0.0) + part
                    progress.counts[name] = progress.counts.get(name, 0) + 1
            yield None

        means = {name: total / progress.counts[name] for name, total in progress.sums.items()}
        record: Record = {"phase": phase.name, "epoch": number, **means}
        if isinstance(phase.optimizer, LazyOptimizer):
            phase.optimizer.settle()
        if not all(bool(weight.isfinite().all()) for weight in self.scorer.parameters()):
            raise TrainingError(f"a weight {broken} {progress.step}; {REMEDY}")
        if phase.prefers and (number % self.validate_every == 0 or number == phase.epochs):
            try:
                record |= self.validate()
            except InputError as error:
                raise TrainingError(
                    f"validation after epoch {number} of {phase.name}: {error}; {REMEDY}"
                ) from error
        progress.history.append(record)
        if alarms := self.watch(progress.history):
            record["alarms"] = alarms
        chosen, prefers = progress.chosen, phase.prefers
        if "valid" in record and prefers and prefers(progress.history, chosen):
            progress.chosen = len(progress.history) - 1
            weights = self.scorer.state_dict()
            self.chosen = {name: value.clone() for name, value in weights.items()}
        progress.epoch += 1
        progress.step, progress.sums, progress.counts = 0, {}, {}
        yield record

    def phase_is_over(self) -> bool:
        """Return whether the present phase has no more epochs, or is out of patience."""
        progress = self.progress
        if progress.epoch >= self._phase().epochs:
            return True
        if self.patience is None or progress.chosen is None:
            return False
        later = progress.history[progress.chosen + 1 :]
        return sum("valid" in record for record in later) >= self.patience

    def stretches(self) -> list[Stretch]:
        """Return the phases as progress is counted."""
        return [
            Stretch(one.name, one.epochs, -(-len(one.sampler.n_relevant) // self.batch_size))
            for one in self.phases
        ]

    def model(self) -> dict[str, Tensor]:
        """Return the weights of the chosen epoch, or of the last step while there is none."""
        optimizer = self._phase().optimizer
        if self.chosen or not isinstance(optimizer, LazyOptimizer):
            return self.chosen or dict(self.scorer.state_dict())
        weights = self.scorer.state_dict(keep_vars=True)
        return {name: optimizer.settled(value) for name, value in weights.items()}

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that `load_state` needs, apart from `progress` and `model`.

        Only the present phase has something to remember.
        """
        phase = self._phase()
        tensors = {f"scorer.{name}": value for name, value in self.scorer.state_dict().items()}
        for name, value in phase.objective.state_dict().items():
            tensors[f"objective.{name}"] = value
        for number, kept in phase.optimizer.state_dict()["state"].items():
            for name, value in kept.items():
                tensors[f"optimizer.{number}.{name}"] = torch.as_tensor(value)
        # Before an epoch a sampler looks at the model anew.
        if self.progress.step and isinstance(phase.sampler, ListSampler):
            for name, value in phase.sampler.state_dict().items():
                tensors[f"sampler.{name}"] = value
        return tensors

    def load_state(
        self, tensors: dict[str, Tensor], progress: dict[str, Any], model: dict[str, Tensor]
    ) -> None:
        """Go back to where `state`, `progress` and `model` were saved.

        A state that does not fit is refused, and the trainer stays as it was.
        """
        found = Progress(**progress)
        check_progress(found, self.stretches())
        self._check_state(tensors, found, model)
        phase = self._phase(found)
        if found.step and isinstance(phase.sampler, ListSampler):
            phase.sampler.load_state_dict(under("sampler", tensors))
        before = {name: value.clone() for name, value in phase.objective.state_dict().items()}
        try:
            phase.objective.load_state_dict(under("objective", tensors))
        except Exception:
            phase.objective.load_state_dict(before)
            raise
        self.scorer.load_state_dict(under("scorer", tensors))
        kept: dict[int, dict[str, Tensor]] = {}
        for name, value in under("optimizer", tensors).items():
            number, _, key = name.partition(".")
            kept.setdefault(int(number), {})[key] = value
        groups = phase.optimizer.state_dict()["param_groups"]
        phase.optimizer.load_state_dict({"state": kept, "param_groups": groups})
        self.progress = found
        self.chosen = model if found.chosen is not None else {}

    def _check_state(
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
        seen = progress.step > 0 and isinstance(phase.sampler, ListSampler)
        apart = ("objective.", "sampler.") if seen else ("objective.",)
        own = {name: value for name, value in tensors.items() if not name.startswith(apart)}
        check_state_tensors(own, wanted)
        for name, value in under("optimizer", tensors).items():
            number, _, kind = name.partition(".")
            if kind in LEAST and bool((value < LEAST[kind]).any()):
                raise InputError(f"'optimizer.{name}' has a value below {LEAST[kind]}")
            if kind == "last" and bool((value > tensors[f"optimizer.{number}.step"]).any()):
                raise InputError(f"'optimizer.{name}' has a row that is ahead of its steps")

        memory, averages = under("objective", tensors), phase.objective.state_dict()
        for name, value in averages.items():
            if name in memory and memory[name].dim() == value.dim() == 1:  # may have grown
                averages[name] = torch.empty(
                    len(memory[name]), dtype=value.dtype, device="meta"
                )
        learned = [name for name, _ in phase.objective.named_parameters() if name in memory]
        check_state_tensors(memory, averages, finite=learned)

        validated = history[len(history) - progress.epoch :] if phase.prefers else []
        if progress.chosen is None and any("valid" in record for record in validated):
            raise InputError("no epoch is chosen, though one was validated")
        if progress.chosen is not None:
            if "valid" not in history[progress.chosen]:
                raise InputError("an epoch is chosen that was not validated")
            check_state_tensors(model, weights)
        if history:  # what reads it, epoch by epoch, finds all that it needs
            self.watch(history)
        if phase.prefers and validated and "valid" in validated[-1]:
            phase.prefers(history, progress.chosen)

    def _phase(self, progress: Progress | None = None) -> Phase:
        """Return the phase that is under way, or the last once all are done."""
        return self.phases[min((progress or self.progress).phase, len(self.phases) - 1)]


def check_progress(progress: Progress, stretches: Sequence[Stretch]) -> None:
    """Refuse progress that training by these phases cannot have made.

    Args:
        progress: How far training is said to be.
        stretches: All phases, in order.
    """
    if not 0 <= progress.phase <= len(stretches):
        raise InputError(f"there is no phase {progress.phase}")
    over = progress.phase == len(stretches)
    now = Stretch("", 0, 0) if over else stretches[progress.phase]
    if not (0 <= progress.epoch <= now.epochs and 0 <= progress.step <= now.steps):
        raise InputError(
            f"phase {progress.phase} has no step {progress.step} in epoch {progress.epoch}"
        )
    counted = progress.sums.keys() == progress.counts.keys()
    if not counted or any(count < 1 for count in progress.counts.values()):
        raise InputError("the sums of the epoch and the counts of its steps do not fit")

    # A record has a phase, an epoch, perhaps alarms, and otherwise numbers alone.
    for record in progress.history:
        alarms = record.get("alarms", [])
        numbers = [value for name, value in record.items() if name not in ("phase", "alarms")]
        if not (
            isinstance(record.get("phase"), str)
            and type(record.get("epoch")) is int
            and isinstance(alarms, list)
            and all(isinstance(alarm, str) for alarm in alarms)
            and all(type(value) in (int, float) for value in numbers)
        ):
            raise InputError("a record of the history is not that of an epoch")

    # The records are those of every epoch so far, in order.
    found = [(record["phase"], record["epoch"]) for record in progress.history]
    expected: list[tuple[str, int]] = []
    for place, one in enumerate(stretches[: progress.phase + 1]):
        # A phase that ran out of patience has fewer epochs than it might have had.
        done = sum(name == one.name for name, _ in found)
        last = progress.epoch if place == progress.phase else min(done, one.epochs)
        expected += [(one.name, number + 1) for number in range(last)]
    if found != expected:
        raise InputError("the history is not that of the epochs so far")
    steps = {one.name: one.steps for one in stretches}
    total = sum(steps[name] for name, _ in found) + progress.step
    if progress.total != total:
        raise InputError(f"progress says {progress.total} steps, its epochs have {total}")
    if progress.chosen is not None and not 0 <= progress.chosen < len(progress.history):
        raise InputError(f"epoch {progress.chosen} is chosen, and not in the history")


def check_state_tensors(
    found: Mapping[str, Tensor],
    wanted: Mapping[str, Tensor],
    *,
    finite: Collection[str] | None = None,
) -> None:
    """Refuse tensors that are not those wanted, by name, type and shape, or not finite.

    `finite` names those that have to be finite; None is all.
    """
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
    for name in found if finite is None else finite:
        if not bool(found[name].isfinite().all()):
            raise InputError(f"{name!r} has a value that is not finite")


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with ``prefix.``, under the rest of their names."""
    start = f"{prefix}."
    found = {name: value for name, value in tensors.items() if name.startswith(start)}
    return {name.removeprefix(start): value for name, value in found.items()}
