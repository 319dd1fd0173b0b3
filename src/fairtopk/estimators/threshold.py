"""Where the top K of each list ends: found exactly, or tracked as in Algorithm 1.

Paper: the threshold Eq. 10, its smooth problem Eq. 13, the updates of lambda, s and v Eq. 23.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fairtopk.batches import Batch
from fairtopk.estimators.state import MovingAverage
from fairtopk.functional.threshold import (
    threshold_curvature,
    threshold_slope,
    topk_threshold,
)


class Cut(NamedTuple):
    """A threshold per list.

    Attributes:
        lam: The threshold, -inf where the whole list is the top, ``[Q]``.
        lam_slope: d lambda / d h, ``[Q, L]``; None where nobody asks.
        exact: The list's own (K+1)-th largest score, for the log, ``[Q]``.
    """

    lam: Tensor
    lam_slope: Tensor | None
    exact: Tensor


class ExactThreshold(nn.Module):
    """The (K+1)-th largest score of the list at hand.

    Args:
        k: Positions of the list that are its top.
        of_catalogue: Whether `k` counts positions of the whole list instead, so that the list
            at hand has L K / N_q of them.
        through: Whether its slope in the scores is asked for.
    """

    def __init__(self, k: float, *, of_catalogue: bool = False, through: bool = False) -> None:
        super().__init__()
        self.k = k
        self.of_catalogue, self.through = of_catalogue, through

    def top_share(self, batch: Batch) -> Tensor:
        """Return K / n, n being the length that K counts positions of, ``[Q]``."""
        length = batch.length if self.of_catalogue else batch.size
        return self.k / length.to(batch.weight.dtype)

    def forward(self, scores: Tensor, batch: Batch) -> Cut:
        """Return the threshold of each list."""
        weight = batch.weight * batch.mask
        length = batch.length if self.of_catalogue else batch.size
        # In this order a sample that counts as uniform gives exactly K.
        lam, slot = topk_threshold(scores, weight, self.k * (weight.sum(-1) / length))
        lam_slope = None
        if self.through:
            lam_slope = torch.zeros_like(scores)
            lam_slope.scatter_(-1, slot[:, None], lam.isfinite()[:, None].to(scores.dtype))
        return Cut(lam, lam_slope, exact=lam)


class TrackedThreshold(nn.Module):
    """The minimiser of the smooth problem, followed by one stochastic step per visit.

    Args:
        exact: Tells where a list's top ends; a query's first visit starts there.
        n_queries: Rows of the tables.
        eta_0: Step size.
        gamma_4: Weight of fresh derivatives in their averages s and v.
        tau_1: Width of the smoothing.
        tau_2: Weight of the quadratic term; it moves the effective K by n tau_2 lambda.
        epsilon: What is added to K, between 0 and 1.
        start: What lambda is before a query's first visit; NaN starts at the list's own.
    """

    lam: Tensor

    def __init__(
        self,
        exact: ExactThreshold,
        n_queries: int,
        *,
        eta_0: float = 0.01,
        gamma_4: float = 0.9,
        tau_1: float = 0.001,
        tau_2: float = 1e-4,
        epsilon: float = 0.25,
        start: float = math.nan,
    ) -> None:
        super().__init__()
        self.exact = exact
        self.eta_0, self.epsilon = eta_0, epsilon
        self.tau = {"tau_1": tau_1, "tau_2": tau_2}
        self.register_buffer("lam", torch.full((n_queries,), start))
        self.s_q = MovingAverage(n_queries, gamma=gamma_4, start=start)
        self.v_q = MovingAverage(n_queries, gamma=gamma_4, start=start)

    def forward(self, scores: Tensor, batch: Batch) -> Cut:
        """Take one step for each list; return the new thresholds."""
        exact = self.exact(scores, batch)
        # A list no longer than K has no threshold to follow.
        some = exact.lam.isfinite()
        old = self.lam[batch.query]
        old = torch.where(old.isnan(), exact.lam, old).masked_fill(~some, 0)
        share = batch.share
        top = self.exact.top_share(batch) * (1 + self.epsilon / self.exact.k)
        slope = threshold_slope(scores, share, old, top, **self.tau)
        curvature, cross = threshold_curvature(scores, share, old, **self.tau)
        s = self.s_q.update(batch.query, curvature, where=some)
        v = self.v_q.update(batch.query, slope, where=some)
        lam = old - self.eta_0 * v
        # Without tau_2 there is no curvature where no score is near; nor does lambda move then.
        s = s.clamp(min=torch.finfo(s.dtype).tiny)
        if self.training and torch.is_grad_enabled():
            self.lam[batch.query[some]] = lam[some].to(self.lam.dtype)
        return Cut(
            lam=lam.masked_fill(~some, -torch.inf),
            # A sub-probability vector; a stale s could make more of it.
            lam_slope=cross / torch.maximum(s, cross.sum(-1))[:, None] * some[:, None],
            exact=exact.lam,
        )
