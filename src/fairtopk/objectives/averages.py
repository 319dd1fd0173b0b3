"""Moving averages of Eqs. 17, 21 and 23.

u <- (1 - gamma) u + gamma x, one u per row of a table. A `gamma` weighs the new value, whereas
PyTorch's `momentum` weighs the old one. By default a row starts as NaN, never visited, and its
first value is taken whole, so that no start leaks into a gradient. Tables are buffers: they
follow ``.to()`` and are saved by ``state_dict()``. Nothing is remembered under ``eval()`` or
``no_grad``.
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
        of_logs: Whether averages are kept and given as logarithms, for averages of exp(score):
            that overflows, and averages of it are comparable only on one scale; subtracting
            each batch's own maximum would silently mix scales.
    """

    value: Tensor

    def __init__(
        self, n_rows: int, *, gamma: float, start: float = math.nan, of_logs: bool = False
    ) -> None:
        super().__init__()
        self.gamma, self.start, self.of_logs = gamma, start, of_logs
        self.register_buffer("value", torch.full((n_rows if gamma < 1 else 0,), start))

    def update(self, rows: Tensor, fresh: Tensor, *, where: Tensor) -> Tensor:
        """Fold `fresh` into `rows` (no row twice) `where` True; return the new averages.

        Elsewhere nothing is remembered, and what is returned is `fresh`; there rows may be -1.
        """
        gamma = self.gamma
        if gamma == 1:
            return fresh
        rows = rows.clamp(min=0)
        old = self.value[rows]
        if self.of_logs:  # Eq. 21
            blended = torch.logaddexp(old + math.log(1 - gamma), fresh + math.log(gamma))
        else:
            blended = (1 - gamma) * old + gamma * fresh  # Eqs. 17 and 23
        current = torch.where(where & ~old.isnan(), blended, fresh)
        if self.training and torch.is_grad_enabled():
            self.value[rows[where]] = current[where].to(self.value.dtype)
        return current
