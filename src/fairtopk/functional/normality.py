"""How far scores are from a standard normal distribution, by their mean and variance.

KL(N(mu, sd^2) || N(0, 1)) = 1/2 (mu^2 + sd^2 - 2 ln sd - 1) of a list's n scores, with

    d KL / d h_k = [mu + (h_k - mu) (1 - 1 / sd^2)] / n
"""

from typing import NamedTuple

from torch import Tensor

LEAST_VARIANCE = 1e-12  # for equal scores have no logarithm


class Divergence(NamedTuple):
    """The divergence of distributions and its slope in their moments, each ``[Q]``."""

    value: Tensor
    in_mean: Tensor
    in_variance: Tensor


def moment_divergence(
    mean: Tensor, variance: Tensor, *, least: float = LEAST_VARIANCE
) -> Divergence:
    """Return the divergence of distributions with this mean and variance, ``[Q]`` each.

    A variance below `least` counts as that.
    """
    variance = variance.clamp(min=least)
    value = (mean**2 + variance - variance.log() - 1) / 2
    return Divergence(value, in_mean=mean, in_variance=(1 - 1 / variance) / 2)


def list_divergence(
    scores: Tensor, where: Tensor, *, least: float = LEAST_VARIANCE
) -> tuple[Tensor, Tensor]:
    """Return the divergence of each list's scores, ``[Q]``, and its gradient, ``[Q, L]``.

    Only slots `where` True count, ``[Q, L]``; a list without any has a divergence of 0. Of a
    variance below `least` the gradient is no steeper than there.
    """
    n = where.sum(-1, keepdim=True).clamp(min=1)
    mean, variance = list_moments(scores, where)
    found = moment_divergence(mean, variance, least=least)
    apart = 2 * found.in_variance[:, None] * (scores - mean[:, None])
    grad = (found.in_mean[:, None] + apart) * where / n
    return found.value * where.any(-1), grad


def list_moments(scores: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and population variance of the scores of each list, ``[Q]`` each.

    Only slots `where` True count, ``[Q, L]``; without any, both are 0.
    """
    n = where.sum(-1).clamp(min=1)
    mean = (scores * where).sum(-1) / n
    return mean, (((scores - mean[:, None]) * where) ** 2).sum(-1) / n
