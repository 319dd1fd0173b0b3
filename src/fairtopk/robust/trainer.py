"""The trainer of a robust ranker: a colour-blind scorer first, then rounds for theta.

A round starts from theta and the multipliers alone, so that a run that is resumed after any
round ends with the same bits as one that was never stopped.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairtopk.errors import InputError
from fairtopk.lists.batch import Batch
from fairtopk.robust._kernels import Floats
from fairtopk.robust.game import gaps
from fairtopk.robust.learning import Problem, balance, learn, worth
from fairtopk.robust.ranker import RobustRanker
from fairtopk.training.loop import (
    Progress,
    Record,
    Stretch,
    Trainer,
    check_progress,
    check_state_tensors,
    under,
)

CALIBRATION = 1_000  # lists, at most, that the multiplier of serving is fitted to
LAM = "multipliers"
BASE = "base"  # prefix of the names of the colour-blind scorer's weights


@dataclass(frozen=True)
class Stage:
    """A stretch of training, for progress bars."""

    name: str
    epochs: int


class RobustTrainer:
    """Trains a robust ranker and keeps the last round, which is nearest to the solution.

    Args:
        scorer: The ranker.
        blind: Trains its colour-blind scorer.
        draw: Draws the training lists, once the colour-blind scorer is trained.
        calibration: Lists that the multiplier of serving is fitted to.
        validate: Measures the ranker; returns values by name.
    """

    def __init__(
        self,
        scorer: RobustRanker,
        blind: Trainer,
        *,
        draw: Callable[[], Problem],
        calibration: Sequence[Batch],
        validate: Callable[[], dict[str, float]],
    ) -> None:
        self.scorer, self.blind, self.draw = scorer, blind, draw
        self.calibration, self.validate = _thinned(calibration), validate
        self.lam: Floats = np.zeros(1)
        self.chosen: dict[str, Tensor] = {}  # in place of the scorer's own weights: none
        rounds = Stage("rounds", scorer.settings.rounds)
        self.phases = [Stage(one.name, one.epochs) for one in blind.phases] + [rounds]

    @property
    def progress(self) -> Progress:
        """How far training is."""
        return self.blind.progress

    @cached_property
    def problem(self) -> Problem:
        """The training lists; their features are those of the colour-blind scorer."""
        return self.draw()

    def run(self) -> Iterator[Record | None]:
        """Train to the end; yield the scorer's records, then one after each round."""
        yield from self.blind.run()
        progress, settings = self.progress, self.scorer.settings
        if self.blind.chosen and progress.epoch == 0:
            self.scorer.base.load_state_dict(self.blind.chosen)
        while progress.epoch < settings.rounds:
            record = self._round()
            progress.epoch += 1
            progress.total += settings.iterations
            progress.history.append(record)
            progress.chosen = len(progress.history) - 1
            yield record
        progress.phase = len(self.phases)

    def phase_is_over(self) -> bool:
        """Return whether the present phase of the colour-blind scorer has no more epochs."""
        return self.blind.phase_is_over()

    def total_steps(self) -> int:
        """Return how many steps there are, an iteration counted as one."""
        settings = self.scorer.settings
        return self.blind.total_steps() + settings.rounds * settings.iterations

    def _round(self) -> Record:
        scorer = self.scorer.eval()  # no dropout in features
        problem, settings = self.problem, scorer.settings
        theta, relevance = scorer.theta.numpy(), problem.relevance
        if self.progress.epoch:
            if len(self.lam) not in (1, len(relevance)):
                raise InputError(
                    f"the checkpoint has {len(self.lam)} multipliers for {len(relevance)} "
                    f"training lists; train again into a new folder"
                )
            relevance = worth(theta, self.lam, problem)[2].relevance
        shared = settings.multiplier == "data"
        balanced = balance(relevance, problem, share=scorer.share, shared=shared)
        self.lam = balanced.of_all() if shared else balanced.lam
        theta = learn(theta, self.lam, problem, iterations=settings.iterations)
        scorer.theta.copy_(torch.from_numpy(theta))
        value, slope, found = worth(theta, self.lam, problem)
        gap = gaps(found.exposure, problem.sides)[problem.sides.defined]
        scorer.calibrate(self.calibration)
        return {
            "phase": self.phases[-1].name,
            "epoch": self.progress.epoch + 1,
            "loss": value,
            "slope": float(np.abs(slope).max()),  # 0 once theta is found
            "multiplier": float(self.lam.mean()),
            "multiplier_serving": float(scorer.lam),
            "gap": float(gap.mean()) if len(gap) else float("nan"),
            "unmet": float((~balanced.met).mean()),  # share of multipliers
            **self.validate(),
        }

    def model(self) -> dict[str, Tensor]:
        """Return the weights as they are."""
        weights = {f"{BASE}.{name}": value for name, value in self.blind.model().items()}
        return dict(self.scorer.state_dict()) | weights

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that `load_state` needs, apart from `progress` and `model`."""
        if self.progress.phase < len(self.blind.phases):
            return self.blind.state()
        return {f"scorer.{name}": value for name, value in self.scorer.state_dict().items()} | {
            LAM: torch.from_numpy(self.lam)
        }

    def load_state(
        self, tensors: dict[str, Tensor], progress: dict[str, Any], model: dict[str, Tensor]
    ) -> None:
        """Go back to where `state`, `progress` and `model` were saved.

        A state that does not fit is refused, and the trainer is left unchanged.
        """
        if progress["phase"] < len(self.blind.phases):
            self.blind.load_state(tensors, progress, under(BASE, model))
            return
        found, settings = Progress(**progress), self.scorer.settings
        rounds = Stretch(self.phases[-1].name, settings.rounds, settings.iterations)
        check_progress(found, [*self.blind.stretches(), rounds])
        wanted = {f"scorer.{name}": value for name, value in self.scorer.state_dict().items()}
        lists = len(tensors[LAM]) if LAM in tensors and tensors[LAM].dim() else 1
        size = 1 if settings.multiplier == "data" else lists
        wanted[LAM] = torch.empty(size, dtype=torch.float64, device="meta")
        check_state_tensors(tensors, wanted)
        self.scorer.load_state_dict(under("scorer", tensors))
        self.lam = tensors[LAM].numpy()
        self.blind.progress = found


def _thinned(batches: Sequence[Batch]) -> list[Batch]:
    """Return some of the lists, evenly spaced, if there are many."""
    step = max(-(-sum(len(batch.query) for batch in batches) // CALIBRATION), 1)
    return [Batch(*(value[::step] for value in batch)) for batch in batches]
