"""The selector psi: a sigmoid that is near 1 above a threshold and near 0 below."""

import torch
from torch import Tensor


def select(scores: Tensor, lam: Tensor, sharpness: Tensor) -> Tensor:
    """Return psi(h - lambda) = sigmoid(beta (h - lambda)), ``[Q, L]``.

    Args:
        scores: Model scores, ``[Q, L]``.
        lam: Threshold of each list, ``[Q]``; -inf selects everything.
        sharpness: beta of each list, ``[Q]``.
    """
    return torch.sigmoid(sharpness[:, None] * (scores - lam[:, None]))


def select_slope(psi: Tensor, sharpness: Tensor) -> Tensor:
    """Return the derivative of psi with respect to h, given psi, ``[Q, L]``."""
    return sharpness[:, None] * psi * (1 - psi)
