"""The trainer of a robust ranker: a colour-blind scorer first, then rounds for theta.

A round starts from theta and the multipliers alone, so that a run that is resumed after any
round ends with the same bits as one that was never stopped.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairtopk.errors import InputError
from fairtopk.lists.batch import Batch
from fairtopk.robust._kernels import Floats
from fairtopk.robust.game import multipliers
from fairtopk.robust.learning import Problem, learn, worth
from fairtopk.robust.ranker import RobustRanker
from fairtopk.training import loop

CALIBRATION = 1_000  # lists, at most, that the multiplier of serving is fitted to
ROUNDS = "rounds"  # name of the phase after those of the colour-blind scorer
LAM = "multipliers"
BASE = "base"  # prefix of the names of the colour-blind scorer's weights


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
        blind: loop.Trainer,
        *,
        draw: Callable[[], Problem],
        calibration: Sequence[Batch],
        validate: Callable[[], dict[str, float]],
    ) -> None:
        self.scorer, self.blind, self.draw = scorer, blind, draw
        self.validate = validate
        # Some of many lists, evenly spaced.
        n_lists = sum(len(batch.query) for batch in calibration)
        step = max(-(-n_lists // CALIBRATION), 1)
        self.calibration = [Batch(*(value[::step] for value in one)) for one in calibration]
        self.progress = blind.progress  # how far training is, of both
        self.lam: Floats = np.zeros(1)
        self.chosen: dict[str, Tensor] = {}  # in place of the scorer's own weights: none

    def run(self) -> Iterator[loop.Record | None]:
        """Train to the end; yield the scorer's records, then one after each round."""
        yield from self.blind.run()
        progress, scorer, settings = self.progress, self.scorer, self.scorer.settings
        if self.blind.chosen and progress.epoch == 0:
            scorer.base.load_state_dict(self.blind.chosen)
        scorer.eval()  # no dropout in features
        problem = self.draw()
        while progress.epoch < settings.rounds:
            theta, relevance = scorer.theta.numpy(), problem.relevance
            if progress.epoch:
                if len(self.lam) not in (1, len(relevance)):
                    raise InputError(
                        f"the checkpoint has {len(self.lam)} multipliers for {len(relevance)} "
                        f"training lists; train again into a new folder"
                    )
                relevance = worth(theta, self.lam, problem)[2].relevance
            # lam for the q at hand, then theta for that lam
            given = problem.game._replace(relevance=relevance)
            shared = settings.multiplier == "data"
            self.lam, met = multipliers([given], share=scorer.share, shared=shared)
            theta = learn(theta, self.lam, problem, iterations=settings.iterations)
            scorer.theta.copy_(torch.from_numpy(theta))
            value, slope, found = worth(theta, self.lam, problem)
            gap = found.gap[problem.game.defined]
            scorer.calibrate(self.calibration)
            record: loop.Record = {
                "phase": ROUNDS,
                "epoch": progress.epoch + 1,
                "loss": value,
                "slope": float(np.abs(slope).max()),  # 0 once theta is found
                "multiplier": float(self.lam.mean()),
                "multiplier_serving": float(scorer.lam),
                "gap": float(gap.mean()) if len(gap) else float("nan"),
                "unmet": float((~met).mean()),  # share of multipliers
                **self.validate(),
            }
            progress.epoch += 1
            progress.total += settings.iterations
            progress.history.append(record)
            progress.chosen = len(progress.history) - 1
            yield record
        progress.phase = len(self.stretches())

    def phase_is_over(self) -> bool:
        """Return whether the present phase of the colour-blind scorer has no more epochs."""
        return self.blind.phase_is_over()

    def stretches(self) -> list[loop.Stretch]:
        """Return the phases as progress is counted: an iteration is a step."""
        settings = self.scorer.settings
        rounds = loop.Stretch(ROUNDS, settings.rounds, settings.iterations)
        return [*self.blind.stretches(), rounds]

    def model(self) -> dict[str, Tensor]:
        """Return the weights as they are."""
        weights = {f"{BASE}.{name}": value for name, value in self.blind.model().items()}
        return dict(self.scorer.state_dict()) | weights

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that `load_state` needs, apart from `progress` and `model`."""
        if self.progress.phase < len(self.blind.phases):
            return self.blind.state()
        state = {f"scorer.{name}": value for name, value in self.scorer.state_dict().items()}
        return state | {LAM: torch.from_numpy(self.lam)}

    def load_state(
        self, tensors: dict[str, Tensor], progress: dict[str, Any], model: dict[str, Tensor]
    ) -> None:
        """Go back to where `state`, `progress` and `model` were saved.

        A state that does not fit is refused, and the trainer is left unchanged.
        """
        if progress["phase"] < len(self.blind.phases):
            self.blind.load_state(tensors, progress, loop.under(BASE, model))
            self.progress = self.blind.progress
            return
        found = loop.Progress(**progress)
        loop.check_progress(found, self.stretches())
        wanted = {f"scorer.{name}": value for name, value in self.scorer.state_dict().items()}
        lists = len(tensors[LAM]) if LAM in tensors and tensors[LAM].dim() else 1
        size = 1 if self.scorer.settings.multiplier == "data" else lists
        wanted[LAM] = torch.empty(size, dtype=torch.float64, device="meta")
        loop.check_state_tensors(tensors, wanted)
        self.scorer.load_state_dict(loop.under("scorer", tensors))
        self.lam = tensors[LAM].numpy()
        self.progress = self.blind.progress = found
