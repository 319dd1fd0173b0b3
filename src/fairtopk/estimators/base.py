"""What an estimator is given beside scores, and what it returns."""

from typing import NamedTuple

from torch import Tensor


class Estimate(NamedTuple):
    """An objective on a batch and its gradient.

    Attributes:
        value: Mean over the queries, a scalar.
        grad: Gradient of the value with respect to scores, ``[Q, L]``.
    """

    value: Tensor
    grad: Tensor


class Selection(NamedTuple):
    """Which part of each list counts: psi(h - lambda), and how it moves with the scores.

    Attributes:
        psi: Weight of each slot, ``[Q, L]``.
        log_psi: Its logarithm, finite where psi underflows, ``[Q, L]``.
        slope: psi' where the gradient goes through psi, zeros where psi is frozen, ``[Q, L]``.
        lam_slope: d lambda / d h where the gradient goes through lambda too, ``[Q, L]``.
    """

    psi: Tensor
    log_psi: Tensor
    slope: Tensor
    lam_slope: Tensor


def select_all(scores: Tensor) -> Selection:
    """Return the selection of whole lists."""
    zeros = scores.new_zeros(scores.shape)
    return Selection(psi=zeros + 1, log_psi=zeros, slope=zeros, lam_slope=zeros)
