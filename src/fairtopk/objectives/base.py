"""What an estimator is given beside scores, and what it returns."""

from typing import NamedTuple

import torch
from torch import Tensor


class Estimate(NamedTuple):
    """An objective on a batch and its gradient.

    Attributes:
        value: Mean over the queries, a scalar.
        grad: Gradient of the value with respect to scores, ``[Q, L]``.
    """

    value: Tensor
    grad: Tensor


class Disparity(NamedTuple):
    """A penalty on unequal exposure.

    Attributes:
        value: Weighted mean over the queries, a scalar.
        grad: Gradient of the value with respect to scores, ``[Q, L]``.
        gap: The signed gap of each list, ``[Q]``: exposure of group 0 less the mean of the
            other groups present, NaN where there is no such pair.
        defined: Which lists have two groups, ``[Q]``.
    """

    value: Tensor
    grad: Tensor
    gap: Tensor
    defined: Tensor


class Selection(NamedTuple):
    """Which part of each list counts: psi(h - lambda), and how it moves with the scores.

    Attributes:
        psi: Weight of each slot, ``[Q, L]``, or of those that are asked for, ``[Q, R]``.
        slope: psi' where the gradient goes through psi, None where psi is frozen, alike.
        lam_slope: d lambda / d h where the gradient goes through lambda too, ``[Q, L]``.
    """

    psi: Tensor
    slope: Tensor | None = None
    lam_slope: Tensor | None = None

    def add_through(self, toward: Tensor, grad: Tensor) -> None:
        """Add to `grad` the part by way of psi and lambda, where `toward` is that in psi.

        `toward` may have the first R slots only, ``[Q, R]``; `grad` has all, ``[Q, L]``.
        """
        if self.slope is None:
            return
        rows = toward.shape[1]
        moved = self.slope[:, :rows] * toward
        grad[:, :rows] += moved
        if self.lam_slope is not None:
            grad -= self.lam_slope * moved.sum(-1, keepdim=True)


def select_all(scores: Tensor) -> Selection:
    """Return the selection of whole lists."""
    return Selection(psi=torch.ones_like(scores))
