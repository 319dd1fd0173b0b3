"""One step of training: scores, objective, gradients, weights."""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from fairtopk.batches import Batch
from fairtopk.kernels.threads import torch_on_one_thread
from fairtopk.optimizers.lazy import LazyOptimizer, Reads


class Minimised(Protocol):
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
    objective: Minimised,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
) -> float:
    """Take one pass of Algorithm 1's loop; return the objective on this batch.

    Where it or its gradient is not finite, the weights stay as they are and NaN is returned.
    """
    if isinstance(optimizer, LazyOptimizer):
        if isinstance(scorer, ReadsRows):
            optimizer.catch_up(scorer.rows_read(batch))
        else:
            optimizer.settle()
    read = what_is_read(scorer, objective, batch)
    scores, *moments = (one.detach() for one in read)
    estimate, *grads = objective(scores, batch, *moments)
    value = float(estimate)
    if not math.isfinite(value) or not all(bool(grad.isfinite().all()) for grad in grads):
        return math.nan
    optimizer.zero_grad()
    torch.autograd.backward(read, grads)
    optimizer.step()
    return value


def what_is_read(scorer: nn.Module, objective: Minimised, batch: Batch) -> list[Tensor]:
    """Return what an objective is a function of, each with its graph.

    That is scores, and moments where it has a use for them and the scorer knows them. Moments
    read all items; as their gradient is that of all items too, none of them is ever behind.
    """
    read: list[Tensor] = [scorer(batch)]
    if getattr(objective, "reads_moments", False) and isinstance(scorer, HasMoments):
        read += scorer.moments(batch.query)
    return read


def threads_of(scorer: nn.Module) -> AbstractContextManager[None]:
    """Return how threads are shared while `scorer` is trained: compiled loops take them all."""
    return torch_on_one_thread() if getattr(scorer, "compiled", False) else nullcontext()
