"""The objective of a method: ranking loss plus C times exposure penalty (Eqs. 8 and 14).

Both parts are averaged over queries; the paper divides the ranking loss by |S|, the number of
pairs, so that its C is smaller by the mean length of lists. A call takes lines 4 to 10 of
Algorithm 1: it updates every average and returns the objective's value and its gradient with
respect to scores. By default lambda is exact and u_g of KSO-RED has no memory (that of SO-RED
has); the preset "paper" tracks lambda and gives both memory. Where the paper's equations are
(files of this folder, unless a room comes first):

| paper | code |
| --- | --- |
| Eqs. 1-2 NDCG, rank | `metrics.ndcg` by `kernels.sums._add_lists`; `lists.batch.rank` |
| Eqs. 3, 15 surrogate rank g, f | `ndcg.surrogate_rank`, `ndcg.ndcg_term` |
| Eq. 4 ListNet | `ndcg.ListNet.forward` |
| Eq. 5 exposure, mean of a group | `exposure.group_exposure`; e_i in `metrics.exposure_gap` |
| Eqs. 7, 11 U_q, U_q^K | `exposure.pair_penalty` |
| Eqs. 6, 9 the gap as a metric | `metrics.exposure_gap`, `metrics.gaps.softmax_exposure` |
| exposure by rank (not in it) | `exposure.RankExposureDisparity.forward` |
| Eqs. 8, 12, 14 the whole problem | `objective.Objective.forward` |
| Eq. 10 lambda | `threshold.topk_threshold` |
| Eq. 11 selector psi | `threshold.select` |
| Eq. 13 smoothed problem G (to read, and for tests) | `threshold.threshold_objective` |
| its derivatives G', G'' | `threshold.threshold_derivatives` |
| Eq. 16 f' | `ndcg.ndcg_slope` |
| Eq. 17 u_qi; Eq. 18 G1 | `ndcg.NdcgSurrogate.forward` |
| Eqs. 19-21 g, grad g, u of a, b, q | `exposure.ExposureDisparity.forward` |
| Eq. 20 through psi, lambda | `threshold.Selection.add_selector_gradient` |
| Eq. 22 nabla f, G2 | `exposure.ExposureDisparity.forward` |
| Eq. 23 s, v, lambda | `threshold.TopThreshold.forward` |
| moving averages of Eqs. 17, 21, 23 | `averages.MovingAverage.update` |
| Algorithm 1, lines 1-3 | `training.loop.Trainer._epoch` |
| the batches of lines 2-3 | `training.samplers.ListSampler.epoch` |
| Algorithm 1, lines 4-12 | `training.loop.train_step` |
| Algorithm 1, lines 4-10 | `objective.Objective.forward` |
| Algorithm 1, lines 11-12 | `training.loop.algorithm_1_optimizer`, stepped there |
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fairtopk.errors import InputError
from fairtopk.lists.batch import Batch
from fairtopk.objectives.exposure import Disparity, ExposureDisparity, RankExposureDisparity
from fairtopk.objectives.methods import Method, ObjectiveSettings
from fairtopk.objectives.ndcg import Estimate, ListNet, NdcgSurrogate, SoftmaxAtK
from fairtopk.objectives.threshold import Selection, Threshold, TopThreshold, select

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
        self.ranking: nn.Module | None = None  # as in `ft.losses.ExposurePenalty`
        if method.ranking == "ndcg":
            self.ranking = NdcgSurrogate(
                n_pairs, gamma_0=settings.gamma_0, margin=settings.margin, start=start
            )
        elif method.ranking == "listnet":
            self.ranking = ListNet()
        elif method.ranking == "softmax":
            self.ranking = SoftmaxAtK(settings.tau_d)
        elif not isinstance(method.ranking, str):
            self.ranking = RegisteredRanking(method.ranking, n_queries)
        top = method.selects or method.fairness == "top"
        by_rank = settings.exposure == "rank"
        apart = settings.penalty_of == "unrated" and method.fairness == "top" and not by_rank
        self.thresholds, self.unrated_thresholds = (
            nn.ModuleList(
                TopThreshold(k, settings, n_queries, start=start) for k in settings.ks if wanted
            )
            for wanted in (top, apart)
        )
        gamma = settings.gamma_u if method.averages and settings.gamma_u else method.gamma_u
        tops = {"none": (), "list": (None,), "top": settings.ks}[method.fairness]
        self.fairness = nn.ModuleList(
            RankExposureDisparity(n_groups, k, settings.k_of)
            if by_rank
            else ExposureDisparity(n_queries, n_groups, gamma=gamma, start=start)
            for k in tops
        )
        self.last: dict[str, Tensor] = {}

    def forward(self, scores: Tensor, batch: Batch) -> Estimate:
        """Return the objective on a batch; `scores` carry no graph, ``[Q, L]``."""
        padded = not float(batch.weight.min()) > 0
        if padded:
            scores = scores.masked_fill(~batch.valid, 0)
        thresholds = [one(scores, batch) for one in self.thresholds]  # line 8: s, v, lambda
        ranking = Estimate(scores.new_zeros(()), torch.zeros_like(scores))
        if self.ranking is not None:
            selection = Selection(torch.ones_like(scores))
            if self.method.selects:  # K-SONG and SL@K look at the top of the largest K
                relevant = scores[:, : batch.pair.shape[1]]
                alpha = scores.new_full((len(scores),), self.settings.alpha)
                selection = select(relevant, thresholds[-1], alpha, self.settings.gradient)
            ranking = self.ranking(scores, batch, selection)  # lines 5 and 10: u_qi, G1
        penalty = self._penalty_term(scores, batch, thresholds)  # lines 8 and 10: u_g, C G2
        self.last = {
            "ranking": ranking.value,
            "penalty": penalty.value,
            "ranking_norm": ranking.grad.norm(),
            "penalty_norm": penalty.grad.norm(),
            **self.last,
        }
        value = ranking.value + penalty.value  # Eq. 14: L + C U; C is in the penalty
        grad = ranking.grad + penalty.grad  # line 11: G1 + C G2
        return Estimate(value, grad.masked_fill(~batch.valid, 0) if padded else grad)

    def report(self) -> dict[str, float]:
        """Return the parts of the last call: ranking, penalty, their gradients' norms, ..."""
        return {name: float(part) for name, part in self.last.items()}

    def _penalty_term(
        self, scores: Tensor, batch: Batch, thresholds: Sequence[Threshold]
    ) -> Estimate:
        """Return C times the exposure penalty, averaged over the Ks.

        With ``penalty_of = "unrated"`` the lists lose the items that were rated in training,
        and have thresholds of their own.
        """
        settings = self.settings
        if self.fairness and settings.penalty_of == "unrated":
            batch = batch.unrated
            thresholds = [one(scores, batch) for one in self.unrated_thresholds] or thresholds
        spread = list_spread(scores, batch)
        whole = Selection(torch.ones_like(scores))
        selections: Sequence[Selection | Tensor] = [whole] * len(self.fairness)
        if settings.exposure == "rank":  # has soft tops of its own, and needs their temperature
            selections = [settings.temperature * spread] * len(self.fairness)
        elif self.method.fairness == "top":
            beta = settings.beta / (spread if settings.beta_of == "spread" else spread**0)
            through = settings.penalty_gradient or settings.gradient
            selections = [select(scores, one, beta, through) for one in thresholds]
        # C = c_relative n^2: exposures average 1 / n, so the penalty is of order 1 / n^2.
        cost = torch.full_like(batch.n_represented, settings.c or 0.0)
        if settings.c_relative is not None:
            cost = settings.c_relative * batch.n_represented**2
        cost = cost / len(self.fairness) if self.fairness else torch.zeros_like(cost)
        value, grad = scores.new_zeros(()), torch.zeros_like(scores)
        gap, defined = torch.full_like(spread, torch.nan), torch.zeros_like(spread)
        for part, selection in zip(self.fairness, selections, strict=True):
            found: Disparity = part(scores, batch, selection, cost)
            value, grad = value + found.value, grad + found.grad
            gap, defined = found.gap, found.defined
        self.last = {
            "gap_signed": gap.nanmean(),
            "without_gap": 1 - defined.float().mean(),
            "spread": spread.mean(),
        }
        if thresholds:
            lam, exact, _ = thresholds[-1]
            self.last["threshold"] = lam[lam.isfinite()].mean()
            error = (lam - exact).abs() / spread
            self.last["threshold_error"] = error[exact.isfinite()].mean()
        return Estimate(value, grad)


class RegisteredRanking(nn.Module):
    """A ranking loss that `register_method` was given, its results checked.

    Args:
        ranking: A function of ``(scores, batch)``, or a class of such modules.
        n_queries: Number of queries (N), for a class.
    """

    def __init__(self, ranking: Callable[..., Any], n_queries: int) -> None:
        super().__init__()
        self.loss = ranking(n_queries=n_queries) if isinstance(ranking, type) else ranking

    def forward(self, scores: Tensor, batch: Batch, selection: Selection) -> Estimate:
        """Return the loss and its gradient; `selection`, for NDCG at the top K, is not used."""
        found = self.loss(scores, batch)
        pair = isinstance(found, tuple) and len(found) == 2
        grad = found[1] if pair else None
        if not isinstance(grad, Tensor) or grad.shape != scores.shape:
            name = getattr(self.loss, "__name__", type(self.loss).__name__)
            raise InputError(
                f"a registered ranking loss must return the loss and its gradient with "
                f"respect to scores, of shape {list(scores.shape)}; {name} does not"
            )
        value = torch.as_tensor(found[0]).detach().to(scores.dtype).reshape(())
        return Estimate(value, grad.detach().to(scores.dtype))


def list_spread(scores: Tensor, batch: Batch) -> Tensor:
    """Return the population standard deviation of each list's scores, ``[Q]``."""
    mean = (scores * batch.slot_counts).sum(-1) / batch.n_represented
    squares = batch.slot_counts * (scores - mean[:, None]) ** 2
    return (squares.sum(-1) / batch.n_represented).sqrt().clamp(min=SMALLEST_SPREAD)
