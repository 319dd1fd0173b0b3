"""What a student minimises: how far its scores are from those that its teacher deals out.

Regression is the mean of (h - t)^2 over the slots, t being the score that is due. List-wise is
the cross-entropy of softmax(t) and softmax(h), in which a slot stands for what it counts.
"""

import torch
from torch import Tensor, nn

from fairtopk.distilling.samplers import TaughtBatch
from fairtopk.distilling.settings import DistillSettings
from fairtopk.estimators.base import Estimate
from fairtopk.estimators.objective import Objective


class Distillation(nn.Module):
    """The objective of a student.

    Args:
        settings: Its loss, and the weight of K-SONG beside it.
        teacher: A copy of the scorer, kept with the state of training.
        beside: K-SONG, where it has a weight.
    """

    def __init__(
        self, settings: DistillSettings, teacher: nn.Module, beside: Objective | None = None
    ) -> None:
        super().__init__()
        self.settings, self.teacher, self.beside = settings, teacher, beside
        self.last: dict[str, Tensor] = {}

    def forward(self, scores: Tensor, batch: TaughtBatch) -> Estimate:
        """Return the objective on a batch; `scores` carry no graph, ``[Q, L]``."""
        loss = regression if self.settings.loss == "regression" else listwise
        n_due = batch.due.shape[1]
        value, part = loss(scores[:, -n_due:], batch.due, batch.counts)
        grad = torch.zeros_like(scores)
        grad[:, -n_due:] = part
        self.last = {"lesson": value}
        if self.beside is not None:
            ranking = self.beside(scores, batch)
            value = value + self.settings.mu * ranking.value
            grad = grad + self.settings.mu * ranking.grad
            self.last["ranking"] = ranking.value
        return Estimate(value, grad)

    def report(self) -> dict[str, float]:
        """Return the parts of the last call: the lesson, and K-SONG beside it."""
        return {name: float(part) for name, part in self.last.items()}


def regression(scores: Tensor, due: Tensor, counts: Tensor) -> Estimate:
    """Return the mean squared error and its gradient; `counts` adds up to 1 in each list."""
    off = scores - due
    pull = counts * off / len(scores)
    return Estimate((pull * off).sum(), 2 * pull)


def listwise(scores: Tensor, due: Tensor, counts: Tensor) -> Estimate:
    """Return the cross-entropy of the two softmaxes, less its least value, and its gradient."""
    log_counts = counts.log()
    log_h = (scores + log_counts).log_softmax(-1)
    log_t = (due + log_counts).log_softmax(-1)
    target = log_t.exp()
    value = torch.where(counts > 0, target * (log_t - log_h), 0).sum()
    grad = torch.where(counts > 0, log_h.exp() - target, 0)
    return Estimate(value / len(scores), grad / len(scores))
