"""The ranking losses: NDCG surrogate (SONG, K-SONG: Eqs. 1-3, 15-18), ListNet (Eq. 4), SL@K.

NDCG (Eq. 1) divides gains 2^y - 1 by log2(1 + rank). The rank (Eq. 2) is replaced by a smooth
n g_i: n is the length of the whole list, and for the slots j of a list, with weights w that sum
to 1 and margin c,

    g_i = sum_j w_j max(h_j - h_i + c, 0)^2                        (`surrogate_rank`)
    f(g) = -(gain / Z) / log2(1 + n g), Z the ideal DCG            (`ndcg_term`)

The loss of a list is the sum of f(g_i) over its relevant items (Eqs. 3 and 15); K-SONG weights
each term by psi(h_i - lambda). SL@K (`SoftmaxAtK`) bounds the rank by exponentials instead.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairtopk.kernels.compiled import summing
from fairtopk.lists.batch import Batch
from fairtopk.objectives.averages import MovingAverage
from fairtopk.objectives.threshold import Selection

Floats = NDArray[np.floating]

# f' is infinite at g = 0. With the item itself in the mean, n g >= c^2; but a list without the
# item, or a table that starts at 0, can reach 0.
SMALLEST_RANK = 1e-6
# Rows x slots of a list above which sorting is faster (measured on two CPU cores).
DENSE_LIMIT = 20_000


class Estimate(NamedTuple):
    """The value of a term on a batch and its gradient."""

    value: Tensor  # mean over the queries, a scalar
    grad: Tensor  # of the value with respect to scores, [Q, L]


class NdcgSurrogate(nn.Module):
    """Estimate the NDCG loss, minus the smoothed NDCG, and its gradient (Eqs. 3, 15 to 18).

    Args:
        n_pairs: Rows of the table of surrogate ranks u_{q,i}.
        gamma_0: Weight of a fresh surrogate rank in its average; 1 forgets the past.
        margin: The hinge's c.
        start: The table before a pair's first visit, see `MovingAverage`.
    """

    def __init__(
        self, n_pairs: int, *, gamma_0: float, margin: float = 1.0, start: float = math.nan
    ) -> None:
        super().__init__()
        self.margin = margin
        self.u_qi = MovingAverage(n_pairs, gamma=gamma_0, start=start)

    def forward(self, scores: Tensor, batch: Batch, selection: Selection) -> Estimate:
        """Take one step; `selection` says how much each slot counts."""
        rows = batch.pair.shape[1]
        relevance = batch.relevance[:, :rows]
        relevant = (relevance > 0) & batch.mask[:, :rows]
        # The sampled relevant items stand for all relevant items of the query.
        found = relevant.sum(-1).clamp(min=1).to(scores.dtype)
        scale = batch.n_relevant / found / len(scores)
        gain = torch.where(relevant, (2**relevance - 1) / batch.ideal_dcg[:, None], 0)
        gain, n_items = gain * scale[:, None], batch.n_items[:, None]

        with torch.enable_grad():
            leaf = scores.detach().requires_grad_()
            g = surrogate_rank(leaf, batch.slot_weights, rows=rows, margin=self.margin)
        remembered = relevant & (batch.pair >= 0)
        u = self.u_qi.update(batch.pair, g.detach(), where=remembered)  # Eq. 17
        term, psi = ndcg_term(u, gain, n_items), selection.psi[:, :rows]
        # Eq. 18, G1 = f'(u) grad g, at the new averages, which exist from the first visit on;
        # the paper reads the old ones.
        (grad,) = torch.autograd.grad(g, leaf, psi * ndcg_slope(u, gain, n_items))
        selection.add_selector_gradient(grad, term)
        return Estimate(value=(psi * term).sum(), grad=grad)


class ListNet(nn.Module):
    """Estimate the ListNet loss and its gradient with respect to scores (Eq. 4)."""

    def forward(self, scores: Tensor, batch: Batch, selection: Selection) -> Estimate:
        """Take one step; the loss covers whole lists, so `selection` is ignored.

        It is the cross-entropy between softmax(y) and softmax(h), with the gradient
        softmax(h) - softmax(y). No average is kept: this form reads the list at hand. A slot
        that stands for w items counts w times in both sums of exponentials.
        """
        off, log_weight = ~batch.mask, batch.weight.log()
        log_model = (scores + log_weight).masked_fill(off, -torch.inf).log_softmax(-1)
        target = (batch.relevance + log_weight).masked_fill(off, -torch.inf).softmax(-1)
        loss = -(target * (log_model - log_weight).masked_fill(off, 0)).sum(-1)  # Eq. 4
        return Estimate(loss.mean(), (log_model.exp() - target) / len(scores))


class SoftmaxAtK(nn.Module):
    """Estimate SL@K (Yang et al., KDD 2025), softmax loss at K, and its gradient.

    With sigma_w(d) = psi(d), the selector at the threshold lambda of the top K, the loss of a
    list is the mean over its relevant items i, whatever their grades, of

        sigma_w(h_i - lambda) l_i,    l_i = log sum_j w_j exp((h_j - h_i) / tau_d).

    The sum, over the whole list, is at least the rank of i, and so at least log2(1 + rank), by
    which NDCG divides. A slot that stands for w items counts w times.

    Args:
        tau_d: Temperature of the sum.
    """

    def __init__(self, tau_d: float) -> None:
        super().__init__()
        self.tau_d = tau_d

    def forward(self, scores: Tensor, batch: Batch, selection: Selection) -> Estimate:
        """Take one step; `selection` is sigma_w. Nothing is remembered."""
        rows = batch.pair.shape[1]
        relevant = (batch.relevance[:, :rows] > 0) & batch.mask[:, :rows]
        n_terms = relevant.sum(-1, keepdim=True).clamp(min=1) * len(scores)
        mean = relevant.to(scores.dtype) / n_terms
        counted = scores / self.tau_d + batch.slot_counts.log()  # -inf off the list
        log_sum = counted.logsumexp(-1, keepdim=True)
        term = mean * (log_sum - scores[:, :rows] / self.tau_d)
        # d l_i / d h_k = (p_k - [i = k]) / tau_d, where p is the softmax of the list
        pull = mean * selection.psi[:, :rows] / self.tau_d
        grad = pull.sum(-1, keepdim=True) * (counted - log_sum).exp()
        grad[:, :rows] -= pull
        selection.add_selector_gradient(grad, term)
        return Estimate((selection.psi[:, :rows] * term).sum(), grad)


def surrogate_rank(scores: Tensor, weight: Tensor, *, rows: int, margin: float) -> Tensor:
    """Return g for the first `rows` slots of each list, ``[Q, R]``; n g stands for the rank.

    It is differentiable once, with respect to scores. All pairs of a list cost R x L, by
    compiled loops or as one table where those do not run; sorting costs L log L.

    Args:
        scores: Model scores, finite also on padding, ``[Q, L]``.
        weight: Weight of each slot in the mean, 0 on padding, ``[Q, L]``.
        rows: How many leading slots need their g (R).
        margin: The hinge's c.
    """
    # g_i = mean_j max(h_j - h_i + c, 0)^2: Eq. 2 with the surrogate, as in Eqs. 3 and 15 (as it
    # is written: `hinge_table`)
    way: type[torch.autograd.Function] = SortedHinge
    if rows * scores.shape[1] <= DENSE_LIMIT:
        if scores.device.type != "cpu" or scores.dtype not in (torch.float32, torch.float64):
            return hinge_table(scores, weight, rows, margin)
        way = CompiledHinge
    result: Tensor = way.apply(scores, weight, rows, margin)  # type: ignore[no-untyped-call]
    return result


def hinge_table(scores: Tensor, weight: Tensor, rows: int, margin: float) -> Tensor:
    """Return g as it is written, by one table of all pairs, which autograd goes through."""
    ahead = (scores[:, None, :] - (scores[:, :rows, None] - margin)).clamp(min=0)
    return torch.einsum("qrl,qrl->qr", ahead * weight[:, None, :], ahead)


def ndcg_term(g: Tensor, gain: Tensor, n_items: Tensor) -> Tensor:
    """Return f(g), where `gain` is (2^y - 1) / Z; shapes broadcast."""
    rank = (n_items * g).clamp(min=SMALLEST_RANK)
    return -gain / (1 + rank).log2()  # Eqs. 3 and 15


def ndcg_slope(g: Tensor, gain: Tensor, n_items: Tensor) -> Tensor:
    """Return f'(g) = gain n / (ln 2 (1 + n g) log2(1 + n g)^2), as in Eqs. 16 and 18."""
    rank = (n_items * g).clamp(min=SMALLEST_RANK)
    return gain * n_items / (math.log(2) * (1 + rank) * (1 + rank).log2() ** 2)  # Eq. 16


@summing
def hinge_means(
    scores: Floats, weight: Floats, margin: float, mean: Floats, lead: Floats
) -> None:
    """Fill `mean` with sum_j w_j m_ij^2, g, and `lead` with sum_j w_j m_ij, ``[Q, R]``.

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
            shift, slope = margin - scores[query, row], upstream[query, row]
            for slot in range(grad.shape[1]):
                grad[query, slot] += slope * max(scores[query, slot] + shift, zero)
        for slot in range(grad.shape[1]):
            grad[query, slot] *= two * weight[query, slot]
        for row in range(upstream.shape[1]):
            grad[query, row] -= two * upstream[query, row] * lead[query, row]


class CompiledHinge(torch.autograd.Function):
    """Pair by pair on the CPU: ten times as fast as `hinge_table` at R = 10, L = 310."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, weight: Tensor, rows: int, margin: float) -> Tensor:
        """Return g, ``[Q, R]``."""
        scores, weight = scores.detach().contiguous(), weight.to(scores.dtype).contiguous()
        mean, lead = scores.new_empty(2, len(scores), rows).numpy()
        ctx.margin = scores.numpy().dtype.type(margin)
        hinge_means(scores.numpy(), weight.numpy(), ctx.margin, mean, lead)
        ctx.save_for_backward(scores, weight, torch.from_numpy(lead))
        return torch.from_numpy(mean)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None]:
        """Return the gradient, ``[Q, L]``."""
        scores, weight, lead = (saved.numpy() for saved in ctx.saved_tensors)
        grad = torch.empty_like(ctx.saved_tensors[0])
        hinge_slopes(
            scores, weight, ctx.margin, upstream.contiguous().numpy(), lead, grad.numpy()
        )
        return grad, None, None, None


class SortedHinge(torch.autograd.Function):
    """By prefix sums over the sorted list, on centred scores and in float64.

    Without centring, an offset of 1e3 on the scores costs a percent in float32.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, weight: Tensor, rows: int, margin: float) -> Tensor:
        """Return g, ``[Q, R]``."""
        wide, weight = scores.double(), weight.double()
        centred = wide - wide.mean(-1, keepdim=True)
        ascending, place = centred.sort(dim=-1)
        of_slot = weight.gather(-1, place)
        head = centred[:, :rows]
        # Item j counts in row i iff h_j > h_i - c: a suffix of the sorted list.
        start = torch.searchsorted(ascending, head - margin, right=True)
        terms = [of_slot * ascending**power for power in range(3)]
        sums = [one.sum(-1, keepdim=True) - _prefix(one, start) for one in terms]
        shift = margin - head
        ctx.save_for_backward(centred, weight, ascending, place, sums[1] + shift * sums[0])
        ctx.margin = margin
        return (sums[2] + 2 * shift * sums[1] + shift**2 * sums[0]).to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None]:
        """Return the gradient, ``[Q, L]``: column sums over rows with h_i < h_k + c."""
        centred, weight, ascending, place, own = ctx.saved_tensors
        rows = upstream.shape[1]
        slopes = torch.zeros_like(centred)
        slopes[:, :rows] = upstream
        slopes = slopes.gather(-1, place)
        stop = torch.searchsorted(ascending, centred + ctx.margin)
        total, moment = _prefix(slopes, stop), _prefix(slopes * ascending, stop)
        grad = weight * ((centred + ctx.margin) * total - moment)
        grad[:, :rows] -= upstream * own
        return (2 * grad).to(upstream.dtype), None, None, None


def _prefix(values: Tensor, stop: Tensor) -> Tensor:
    """Return the sum of the values before `stop`."""
    sums = torch.nn.functional.pad(values.cumsum(-1), (1, 0))
    return sums.gather(-1, stop)
