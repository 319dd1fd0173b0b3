"""The squared hinge of `functional.hinge`, list by list, without a table of all pairs."""

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import summing

Floats = NDArray[np.floating]


@summing
def hinge_means(
    scores: Floats, weight: Floats, margin: float, mean: Floats, lead: Floats
) -> None:
    """Fill `mean` with sum_j w_j m_ij^2 and `lead` with sum_j w_j m_ij, ``[Q, R]`` each.

    m_ij = max(h_j - h_i + c, 0), for the first R slots i of each list.
    """
    zero = scores.dtype.type(0)
    for query in range(mean.shape[0]):
        for row in range(mean.shape[1]):
            shift = margin - scores[query, row]
            squares, total = zero, zero
            for slot in range(scores.shape[1]):
                ahead = max(scores[query, slot] + shift, zero)
                weighted = weight[query, slot] * ahead
                total += weighted
                squares += weighted * ahead
            mean[query, row] = squares
            lead[query, row] = total


@summing
def hinge_slopes(
    scores: Floats, weight: Floats, margin: float, upstream: Floats, lead: Floats, grad: Floats
) -> None:
    """Fill `grad`, ``[Q, L]``, with 2 (sum_i A_i w_k m_ik - A_k sum_j w_j m_kj)."""
    zero, two = scores.dtype.type(0), scores.dtype.type(2)
    for query in range(grad.shape[0]):
        for slot in range(grad.shape[1]):
            grad[query, slot] = zero
        for row in range(upstream.shape[1]):
            shift, pull = margin - scores[query, row], upstream[query, row]
            for slot in range(grad.shape[1]):
                grad[query, slot] += pull * max(scores[query, slot] + shift, zero)
        for slot in range(grad.shape[1]):
            grad[query, slot] *= two * weight[query, slot]
        for row in range(upstream.shape[1]):
            grad[query, row] -= two * upstream[query, row] * lead[query, row]
