"""The trainer of models that are fitted: stages, each of which leaves a record of every part.

A stage changes the weights of a scorer, part by part: a ridge tried, an iteration, the fit that
is kept. The last record's weights are the model. A stage that is resumed is given the
records, and goes on from them and the weights alone, so that it ends with the same bits.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from fairtopk.errors import InputError, TrainingError
from fairtopk.training.loop import (
    Progress,
    Record,
    Stretch,
    check_progress,
    check_state_tensors,
)

ROWS = 4_096  # of a table that is looked through at once


def _nothing_kept(tensors: dict[str, Tensor]) -> None:
    """Refuse the state of a stage that keeps none."""
    check_state_tensors(tensors, {})


@dataclass(frozen=True)
class Stage:
    """A stretch of fitting."""

    name: str  # in the log
    epochs: int  # records, at most
    # Given all records so far, goes on after the stage's own; yields what the log says of each
    # part when it has changed the weights. The log adds the stage ("phase") and a number.
    run: Callable[[list[Record]], Iterator[Record]]
    # What it needs to go on, beside the scorer's weights; `load_state` refuses what does not
    # fit by an InputError.
    state: Callable[[], dict[str, Tensor]] = dict
    load_state: Callable[[dict[str, Tensor]], None] = _nothing_kept


@dataclass(eq=False)
class FitTrainer:
    """Fits a scorer, stage by stage, and keeps its last weights; compare `Trainer`."""

    scorer: nn.Module
    stages: list[Stage]  # in order
    notice: str = ""  # how much memory and time it takes, in a sentence
    progress: Progress = field(default_factory=Progress)

    @property
    def chosen(self) -> dict[str, Tensor]:
        """The weights of the last record; no copies."""
        return dict(self.scorer.state_dict()) if self.progress.history else {}

    def run(self) -> Iterator[Record | None]:
        """Fit to the end; yield a record after each part."""
        progress = self.progress
        while progress.phase < len(self.stages):
            stage = self.stages[progress.phase]
            try:
                for found in stage.run(list(progress.history)):
                    self._refuse_infinite(stage.name)
                    progress.epoch += 1
                    progress.total += 1
                    record = {"phase": stage.name, "epoch": progress.epoch, **found}
                    progress.history.append(record)
                    progress.chosen = len(progress.history) - 1
                    yield record
            except TrainingError:
                raise
            except InputError as error:
                raise TrainingError(f"{stage.name}: {error}") from error
            progress.phase += 1
            progress.epoch = 0

    def _refuse_infinite(self, stage: str) -> None:
        for name, weight in self.scorer.state_dict().items():
            if not all(bool(part.isfinite().all()) for part in weight.split(ROWS)):
                raise TrainingError(
                    f"{name} is no longer finite in {stage}; raise model.ridge, or look for "
                    f"extreme ratings"
                )

    def phase_is_over(self) -> bool:
        """Return whether the present stage has left all of its records."""
        now = min(self.progress.phase, len(self.stages) - 1)
        return self.progress.epoch >= self.stages[now].epochs

    def stretches(self) -> list[Stretch]:
        """Return the stages as progress is counted: a part is a step."""
        return [Stretch(one.name, one.epochs, 1) for one in self.stages]

    def model(self) -> dict[str, Tensor]:
        """Return the weights as they are."""
        return dict(self.scorer.state_dict())

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that `load_state` needs, apart from `progress` and `model`."""
        over = self.progress.phase >= len(self.stages)
        return {} if over else self.stages[self.progress.phase].state()

    def load_state(
        self, tensors: dict[str, Tensor], progress: dict[str, Any], model: dict[str, Tensor]
    ) -> None:
        """Go back to where `state`, `progress` and `model` were saved.

        A state that does not fit is refused, and the trainer is left unchanged.
        """
        found = Progress(**progress)
        check_progress(found, self.stretches())
        if found.chosen != (len(found.history) - 1 if found.history else None):
            raise InputError("the last record is not the one that is kept")
        check_state_tensors(model, self.scorer.state_dict())
        if found.phase < len(self.stages):
            self.stages[found.phase].load_state(tensors)
        else:
            _nothing_kept(tensors)
        self.scorer.load_state_dict(model)
        self.progress = found
