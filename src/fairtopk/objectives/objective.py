"""A method's whole objective: ranking loss plus C times exposure penalty (Eq. 14).

Both parts are averaged over queries. One call is lines 4 to 10 of Algorithm 1: it updates every
average and returns the objective's value and gradient with respect to scores.
"""

import torch
from torch import Tensor, nn

from fairtopk.lists.batch import Batch
from fairtopk.objectives.base import Estimate, RegisteredRanking, Selection, select_all
from fairtopk.objectives.exposure import ExposureDisparity, RankExposureDisparity
from fairtopk.objectives.listnet import ListNet
from fairtopk.objectives.methods import Method, ObjectiveSettings
from fairtopk.objectives.ndcg import NdcgSurrogate
from fairtopk.objectives.threshold import (
    Cut,
    ExactThreshold,
    TrackedThreshold,
    select,
    select_slope,
)

SMALLEST_SPREAD = 1e-6


class Objective(nn.Module):
    """The objective of a method.

    Args:
        method: Its parts.
        settings: Its hyper-parameters.
        n_queries: Rows of the per-query tables (N).
        n_pairs: Rows of the table of surrogate ranks.
        n_groups: Number of groups (G).
    """

    def __init__(
        self,
        method: Method,
        settings: ObjectiveSettings,
        *,
        n_queries: int,
        n_pairs: int,
        n_groups: int,
    ) -> None:
        super().__init__()
        self.method, self.settings = method, settings
        start = 0.0 if settings.start == "zero" else torch.nan
        self.ranking = (
            ListNet()
            if method.ranking == "listnet"
            else RegisteredRanking(method.ranking, n_queries)
            if not isinstance(method.ranking, str)
            else NdcgSurrogate(
                n_pairs, gamma_0=settings.gamma_0, margin=settings.margin, start=start
            )
        )
        top = method.selects or method.fairness == "top"
        self.thresholds = nn.ModuleList(
            _threshold(settings, k, n_queries, start) for k in settings.ks if top
        )
        apart = settings.penalty_of == "unrated" and method.fairness == "top"
        self.unrated_thresholds = nn.ModuleList(
            _threshold(settings, k, n_queries, start) for k in settings.ks if apart
        )
        gamma = settings.gamma_u if method.averages and settings.gamma_u else method.gamma_u
        n_penalties = {"none": 0, "list": 1, "top": len(settings.ks)}[method.fairness]
        self.fairness = nn.ModuleList(
            RankExposureDisparity(n_groups, margin=settings.margin)
            if settings.exposure == "rank"
            else ExposureDisparity(n_queries, n_groups, gamma=gamma, start=start)
            for _ in range(n_penalties)
        )
        self.last: dict[str, Tensor] = {}

    def forward(self, scores: Tensor, batch: Batch) -> Estimate:
        """Return the objective on a batch; `scores` carry no graph, ``[Q, L]``."""
        settings = self.settings
        padded = not float(batch.weight.min()) > 0
        if padded:
            scores = scores.masked_fill(~batch.valid, 0)
        spread = list_spread(scores, batch)
        cuts: list[Cut] = [threshold(scores, batch) for threshold in self.thresholds]
        everything = select_all(scores)

        alpha = torch.full_like(spread, settings.alpha)
        selection = everything
        if self.method.selects:
            relevant = scores[:, : batch.pair.shape[1]]
            selection = _select(relevant, cuts[-1], alpha, settings.gradient)
        ranking = self.ranking(scores, batch, selection)

        compared = batch
        if self.fairness and settings.penalty_of == "unrated":
            compared = batch.unrated
            spread = list_spread(scores, compared)
            cuts = [part(scores, compared) for part in self.unrated_thresholds] or cuts
        beta = settings.beta / (
            spread if settings.beta_of == "spread" else torch.ones_like(spread)
        )
        selections = [everything] * len(self.fairness)
        if self.method.fairness == "top":
            through = settings.penalty_gradient or settings.gradient
            selections = [_select(scores, cut, beta, through) for cut in cuts]
        cost = self._cost(compared) / max(len(self.fairness), 1)
        value, grad = ranking
        fair_value, fair_grad = torch.zeros_like(value), torch.zeros_like(grad)
        gap = torch.full_like(spread, torch.nan)
        defined = torch.zeros_like(spread, dtype=torch.bool)
        for part, chosen in zip(self.fairness, selections, strict=True):
            penalty = part(scores, compared, chosen, cost)
            gap, defined = penalty.gap, penalty.defined
            fair_value, fair_grad = fair_value + penalty.value, fair_grad + penalty.grad
        if settings.anchor and cost.any():
            anchor = anchor_spread(scores, compared, spread)
            fair_value = fair_value + settings.anchor * anchor.value
            fair_grad = fair_grad + settings.anchor * anchor.grad
        self.last = {
            "ranking": value,
            "penalty": fair_value,
            "ranking_norm": grad.norm(),
            "penalty_norm": fair_grad.norm(),
            "gap_signed": gap.nanmean(),
            "without_gap": 1 - defined.float().mean(),
            "spread": spread.mean(),
        }
        if cuts:
            lam, exact = cuts[-1].lam, cuts[-1].exact
            self.last["threshold"] = lam[lam.isfinite()].mean()
            off = (lam - exact).abs() / spread
            self.last["threshold_error"] = off[exact.isfinite()].mean()
        grad = grad + fair_grad
        if padded:
            grad = grad.masked_fill(~batch.valid, 0)
        return Estimate(value + fair_value, grad)

    def report(self) -> dict[str, float]:
        """Return the parts of the last call: ranking, penalty, their gradients' norms, ..."""
        return {name: float(part) for name, part in self.last.items()}

    def _cost(self, batch: Batch) -> Tensor:
        """Return C for each list, ``[Q]``; `c_relative` is C over the scale of 1 / E^2.

        That scale is the square of the length that exposures are means over: that of the list,
        or where slots are weighted that of the catalogue.
        """
        settings, length = self.settings, batch.n_represented
        if not self.fairness:
            return torch.zeros_like(length)
        # Mean exposure is 1 / n by softmax; by rank it hardly depends on n.
        if settings.c_relative is not None and settings.exposure == "softmax":
            return settings.c_relative * length**2
        return torch.full_like(length, settings.c_relative or settings.c or 0.0)


def _select(scores: Tensor, cut: Cut, sharpness: Tensor, gradient: str) -> Selection:
    """Return what counts past a threshold; `gradient` says what its gradient goes through."""
    psi = select(scores, cut.lam, sharpness)
    if gradient == "frozen":
        return Selection(psi)
    lam_slope = cut.lam_slope if gradient == "full" else None
    return Selection(psi, select_slope(psi, sharpness), lam_slope)


def list_spread(scores: Tensor, batch: Batch) -> Tensor:
    """Return the population standard deviation of each list's scores, ``[Q]``."""
    variance = (batch.slot_counts * _centred(scores, batch) ** 2).sum(-1) / batch.n_represented
    return variance.sqrt().clamp(min=SMALLEST_SPREAD)


def anchor_spread(scores: Tensor, batch: Batch, spread: Tensor) -> Estimate:
    """Return the mean over lists of 1/2 (spread - 1)^2 and its gradient."""
    pull = (spread - 1) / (batch.n_represented * spread)
    value = ((spread - 1) ** 2).mean() / 2
    grad = pull[:, None] * (batch.slot_counts * _centred(scores, batch)) / len(scores)
    return Estimate(value, grad)


def _centred(scores: Tensor, batch: Batch) -> Tensor:
    """Return scores less the mean of their list, 0 off the list, ``[Q, L]``."""
    mean = (scores * batch.slot_counts).sum(-1) / batch.n_represented
    return (scores - mean[:, None]) * batch.mask


def _threshold(settings: ObjectiveSettings, k: int, n_queries: int, start: float) -> nn.Module:
    through = "full" in (settings.gradient, settings.penalty_gradient)
    exact = ExactThreshold(k, of_catalogue=settings.k_of == "catalogue", through=through)
    if settings.threshold == "exact":
        return exact
    return TrackedThreshold(
        exact,
        n_queries,
        eta_0=settings.eta_0,
        gamma_4=settings.gamma_4,
        tau_1=settings.tau_1,
        tau_2=settings.tau_2,
        epsilon=settings.epsilon,
        start=start,
    )
