"""The selector psi: a sigmoid that is near 1 above a threshold and near 0 below."""

import torch
from torch import Tensor


def select(scores: Tensor, lam: Tensor, sharpness: Tensor) -> tuple[Tensor, Tensor]:
    """Return psi(h - lambda) = sigmoid(beta (h - lambda)) and its derivative, ``[Q, L]`` each.

    Args:
        scores: Model scores, ``[Q, L]``.
        lam: Threshold of each list, ``[Q]``; -inf selects everything.
        sharpness: beta of each list, ``[Q]``.
    """
    beta = sharpness[:, None]
    psi = torch.sigmoid(beta * (scores - lam[:, None]))
    return psi, beta * psi * (1 - psi)
