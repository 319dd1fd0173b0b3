"""From a doubly stochastic matrix to rankings with probabilities (Birkhoff, von Neumann)."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.errors import InputError
from fairtopk.reranking.lists import Policy
from fairtopk.reranking.solvers import scipy_solver

DUST = 1e-9  # an entry below this is rounding
SUM_TOLERANCE = 1e-5


def birkhoff(matrix: Tensor | NDArray[np.floating]) -> Policy:
    """Return rankings with probabilities whose `Policy.matrix` is `matrix`, but for rounding.

    Of a matrix of n slots there are at most (n - 1)^2 + 1 rankings.

    Args:
        matrix: The probability of each slot to be at each place, ``[n, n]``.

    Example:
        >>> policy = birkhoff(torch.tensor([[0.75, 0.25], [0.25, 0.75]]))
        >>> policy.slot.tolist(), policy.probability.tolist()
        ([[0, 1], [1, 0]], [0.75, 0.25])
    """
    left = _checked(matrix)
    assign = scipy_solver("linear_sum_assignment", purpose="a decomposition into rankings")
    rankings, weights = [], []
    while True:
        # The best assignment avoids what is used up if that is possible at all; its entries are
        # large, so that it takes much away.
        slot, place = assign(np.where(left > DUST, left, -len(left)), maximize=True)
        entries = left[slot, place]
        weight = entries.min()
        if weight <= DUST:
            break
        rankings.append(slot[place.argsort()])
        weights.append(weight)
        left[slot, place] = entries - weight
    probability = torch.tensor(weights, dtype=torch.float64)
    return Policy(torch.from_numpy(np.stack(rankings)), probability / probability.sum())


def _checked(matrix: Tensor | NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the matrix as one that may be changed."""
    try:
        given = torch.as_tensor(matrix).detach().cpu().double().numpy().copy()
    except (TypeError, ValueError, RuntimeError):
        raise InputError("matrix must be a square tensor or array of numbers") from None
    if given.ndim != 2 or given.shape[0] != given.shape[1] or given.size == 0:
        raise InputError(
            f"matrix must have as many rows as columns, got shape {list(given.shape)}"
        )
    sums = np.concatenate([given.sum(0), given.sum(1)])
    if not (np.abs(sums - 1) < SUM_TOLERANCE).all() or given.min() < -SUM_TOLERANCE:
        raise InputError(
            f"matrix must have rows and columns of probabilities that add up to 1, got sums "
            f"from {sums.min():g} to {sums.max():g} and entries from {given.min():g}"
        )
    return given
