"""Moving averages, the only thing that estimators remember.

u <- (1 - gamma) u + gamma x, one u per row of a table. A `gamma` weighs the new value, where
PyTorch's `momentum` weighs the old one. A row's first value is taken whole, so that the table's
start never leaks into a gradient; NaN marks a row that was never visited. Tables are buffers:
they follow ``.to()`` and are saved by ``state_dict()``. Nothing is remembered under ``eval()``
or ``no_grad``.
"""

import math

import torch
from torch import Tensor, nn


class MovingAverage(nn.Module):
    """One average per row.

    Args:
        n_rows: Rows of the table.
        gamma: Weight of a new value; 1 forgets the past, and needs no table.
        start: What a row holds before its first visit; NaN takes the first value whole.
    """

    value: Tensor

    def __init__(self, n_rows: int, *, gamma: float, start: float = math.nan) -> None:
        super().__init__()
        self.gamma, self.start = gamma, start
        self.register_buffer("value", torch.full((n_rows if gamma < 1 else 0,), start))

    def update(self, rows: Tensor, fresh: Tensor, *, where: Tensor) -> Tensor:
        """Fold `fresh` into `rows` (no row twice) `where` True; return the new averages.

        Elsewhere nothing is remembered, and what is returned is `fresh`; there rows may be -1.
        """
        if self.gamma == 1:
            return fresh
        rows = rows.clamp(min=0)
        old = self.value[rows]
        current = torch.where(where & ~old.isnan(), self.blend(old, fresh), fresh)
        if self.training and torch.is_grad_enabled():
            self.value[rows[where]] = current[where].to(self.value.dtype)
        return current

    def blend(self, old: Tensor, fresh: Tensor) -> Tensor:
        """Return the average after a visit."""
        return (1 - self.gamma) * old + self.gamma * fresh


class LogMovingAverage(MovingAverage):
    """One average per row, kept and given as its logarithm, for averages of exp(score).

    exp(score) overflows, and averages of it are comparable only on one scale; subtracting each
    batch's own maximum would mix scales without a sound.
    """

    def blend(self, old: Tensor, fresh: Tensor) -> Tensor:
        """Return the logarithm of the average after a visit."""
        keep = math.log(1 - self.gamma) if self.gamma < 1 else -math.inf
        return torch.logaddexp(old + keep, fresh + math.log(self.gamma))
