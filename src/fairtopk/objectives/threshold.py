"""The threshold lambda that ends the top K of a list, and the selector: Eqs. 10, 11, 13, 23.

lambda is the (K+1)-th largest score (Eq. 10), found by selection or tracked by stochastic steps
on the smoothed problem of Eq. 13,

    G(l) = (K + eps)/n l + tau_2/2 l^2 + tau_1 mean_i softplus((h_i - l) / tau_1).

The selector psi(h - lambda) is a sigmoid: near 1 above the threshold and near 0 below it.
The soft top-k's of exposure by rank have thresholds of their own, at which each adds up to k.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairtopk.kernels.compiled import compiled
from fairtopk.lists.batch import Batch
from fairtopk.objectives.averages import MovingAverage
from fairtopk.objectives.methods import ObjectiveSettings

Integers = NDArray[np.signedinteger]
Floats = NDArray[np.floating]
BITS = {np.dtype(np.float32): np.int32, np.dtype(np.float64): np.int64}


class Threshold(NamedTuple):
    """A threshold per list."""

    lam: Tensor  # -inf where the whole list is the top, [Q]
    exact: Tensor  # the list's own (K+1)-th largest score, for the log, [Q]
    lam_slope: Tensor | None = None  # d lambda / d h, [Q, L]; None unless requested


class Selection(NamedTuple):
    """How much each slot counts, psi(h - lambda), and how that changes with the scores."""

    psi: Tensor  # weight of each slot, [Q, L], or of the first R slots, [Q, R]
    slope: Tensor | None = None  # psi' in the shape of psi; None freezes psi
    lam_slope: Tensor | None = None  # d lambda / d h, [Q, L]; None freezes lambda

    def add_selector_gradient(self, grad: Tensor, d_value_d_psi: Tensor) -> None:
        """Add the gradient through psi and lambda to `grad`, ``[Q, L]``, in place.

        With v_i = (d value / d psi_i) psi'_i, slot k gets v_k - (d lambda / d h_k) sum_i v_i.
        `d_value_d_psi` may cover the first R slots only, ``[Q, R]``.
        """
        if self.slope is None:
            return
        rows = d_value_d_psi.shape[1]
        # Eq. 20: psi' (grad h - grad lambda)
        through_psi = self.slope[:, :rows] * d_value_d_psi
        grad[:, :rows] += through_psi
        if self.lam_slope is not None:
            grad -= self.lam_slope * through_psi.sum(-1, keepdim=True)


class TopThreshold(nn.Module):
    """The threshold of each list: exact (Eq. 10), or tracked by one step per visit (Eq. 23).

    The steps are on the smoothed problem of Eq. 13, and lead to its minimiser.

    Args:
        k: Positions in the top. If `k_of` is "catalogue" they are positions of the whole list
            of N_q items; the list at hand, with L of them, then has L K / N_q in its top.
        settings: Whether to track, and the constants of the smoothed problem.
        n_queries: Rows of the tables.
        start: lambda before a query's first visit; NaN starts at the list's own threshold.
    """

    lam: Tensor

    def __init__(
        self, k: int, settings: ObjectiveSettings, n_queries: int, *, start: float = math.nan
    ) -> None:
        super().__init__()
        self.k, self.settings = k, settings
        self.tracked = settings.threshold == "tracked"
        if self.tracked:
            self.register_buffer("lam", torch.full((n_queries,), start))
            self.s_q = MovingAverage(n_queries, gamma=settings.gamma_4, start=start)
            self.v_q = MovingAverage(n_queries, gamma=settings.gamma_4, start=start)

    def forward(self, scores: Tensor, batch: Batch) -> Threshold:
        """Return the threshold of each list; if it is tracked, take a step first."""
        settings = self.settings
        length = batch.n_items if settings.k_of == "catalogue" else batch.n_slots
        # In this order a sample that counts as uniform gives exactly K.
        k = self.k * (batch.n_represented / length)
        exact, slot = topk_threshold(scores, batch.slot_counts, k)  # Eq. 10
        defined = exact.isfinite()  # a list no longer than K has no threshold
        if not self.tracked:
            if "full" not in (settings.gradient, settings.penalty_gradient):
                return Threshold(exact, exact)
            lam_slope = torch.zeros_like(scores)
            lam_slope.scatter_(-1, slot[:, None], defined[:, None].to(scores.dtype))
            return Threshold(exact, exact, lam_slope)

        old = self.lam[batch.query]
        old = torch.where(old.isnan(), exact, old).masked_fill(~defined, 0)
        top = self.k / length.to(batch.weight.dtype)
        top = top * (1 + settings.epsilon / self.k)  # (K + eps) / n
        slope, curvature, cross = threshold_derivatives(
            scores, batch.slot_weights, old, top, tau_1=settings.tau_1, tau_2=settings.tau_2
        )
        s = self.s_q.update(batch.query, curvature, where=defined)  # Eq. 23, s_{q,t+1}
        v = self.v_q.update(batch.query, slope, where=defined)  # Eq. 23, v_{q,t+1}
        lam = old - settings.eta_0 * v  # Eq. 23, lambda_{q,t+1}
        # psi reads the new lambda and d lambda / d h the new s; in the paper's Eq. 20 both are
        # old.
        if self.training and torch.is_grad_enabled():
            self.lam[batch.query[defined]] = lam[defined].to(self.lam.dtype)
        # d lambda / d h = -(d2G / dl dh) / s. Without tau_2 both are 0 where no score is near.
        # The slopes of a list add up to at most 1; a stale, smaller s would break that.
        s = s.clamp(min=torch.finfo(s.dtype).tiny)
        lam_slope = cross / torch.maximum(s, cross.sum(-1))[:, None] * defined[:, None]
        return Threshold(lam.masked_fill(~defined, -torch.inf), exact, lam_slope)


def threshold_objective(
    scores: Tensor, weights: Tensor, lam: Tensor, top: Tensor, *, tau_1: float, tau_2: float
) -> Tensor:
    """Return G(lambda) of Eq. 13, ``[Q]``; `TopThreshold` steps towards its minimiser.

    Training needs only the derivatives below; tests compare them with this.

    Args:
        scores: Model scores, finite also on padding, ``[Q, L]``.
        weights: Weight of each slot in the mean over its list, 0 on padding, ``[Q, L]``.
        lam: Where to evaluate G, ``[Q]``.
        top: (K + eps) / n, ``[Q]``.
        tau_1: Width of the smoothing.
        tau_2: Weight of the quadratic term.
    """
    # softplus by logaddexp, because torch's own is linear from 20 on
    soft = tau_1 * torch.logaddexp((scores - lam[:, None]) / tau_1, scores.new_zeros(()))
    return top * lam + tau_2 / 2 * lam**2 + (weights * soft).sum(-1)  # Eq. 13


def threshold_derivatives(
    scores: Tensor, weights: Tensor, lam: Tensor, top: Tensor, *, tau_1: float, tau_2: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return G'(lambda) and G''(lambda), ``[Q]`` each, and -d2G / (dl dh), ``[Q, L]``.

    By the implicit function theorem d lambda / d h is the third over the second. The arguments
    are those of `threshold_objective`.
    """
    above = torch.sigmoid((scores - lam[:, None]) / tau_1)
    slope = top + tau_2 * lam - (weights * above).sum(-1)  # G' of Eq. 13
    cross = weights * above * (1 - above) / tau_1
    return slope, tau_2 + cross.sum(-1), cross  # G' and G'' of Eq. 13, as Eq. 23 averages them


def select(
    scores: Tensor, threshold: Threshold, sharpness: Tensor, gradient: str = "frozen"
) -> Selection:
    """Return the top: psi(h - lambda) = sigmoid(beta (h - lambda)), ``[Q, L]``.

    Args:
        scores: Model scores, ``[Q, L]``.
        threshold: lambda of each list; -inf selects everything.
        sharpness: beta of each list, ``[Q]``.
        gradient: What it goes through: "frozen", through "psi", or "full", lambda too.
    """
    beta = sharpness[:, None]
    psi = torch.sigmoid(beta * (scores - threshold.lam[:, None]))  # psi of Eq. 11
    if gradient == "frozen":
        return Selection(psi)
    lam_slope = threshold.lam_slope if gradient == "full" else None
    return Selection(psi, beta * psi * (1 - psi), lam_slope)


def topk_threshold(scores: Tensor, weight: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first score past the top (Eq. 10) and a slot that holds it, ``[Q]`` each.

    With weights of 1 that is the (k+1)-th largest score. A list of at most k items is all top:
    its threshold is -inf.

    Args:
        scores: Model scores, ``[Q, L]``.
        weight: How many items each slot stands for, 0 on padding, ``[Q, L]``.
        k: How many items are the top, ``[Q]``.
    """
    if scores.device.type == "cpu" and scores.dtype in (torch.float32, torch.float64):
        counts = weight.contiguous().numpy()
        if ((counts == 0) | (counts == 1)).all():
            # Eq. 10, the usual case, by selection in a fraction of the time of a sort
            values = scores.contiguous().numpy()
            bits = values.view(BITS[values.dtype])
            slot, keys = torch.full((len(bits),), -1), np.empty(bits.shape[1], bits.dtype)
            find_past_top(bits, counts, k.long().numpy(), keys, slot.numpy())
            lam = scores.gather(-1, slot.clamp(min=0)[:, None])[:, 0]
            return lam.masked_fill(slot < 0, -torch.inf), slot.clamp(min=0)
    # Eq. 10, weighted: the first score at which more than k items are reached
    held = scores.masked_fill(weight == 0, -torch.inf)
    descending, place = held.sort(dim=-1, descending=True, stable=True)
    first = (weight.gather(-1, place).cumsum(-1) <= k[:, None]).sum(-1)
    all_top = first >= (weight > 0).sum(-1)
    first = first.clamp(max=scores.shape[-1] - 1)[:, None]
    lam = descending.gather(-1, first)[:, 0]
    return lam.masked_fill(all_top, -torch.inf), place.gather(-1, first)[:, 0]


def soft_threshold(scores: Tensor, weight: Tensor, k: Tensor, alpha: Tensor) -> Tensor:
    """Return b where soft top-k's have k items: sum_i w_i F((h_i - b) / alpha) = k, ``[Q, M]``.

    F is Laplace's distribution function, exp(x) / 2 below 0 and 1 - exp(-x) / 2 above (LapSum,
    Struski et al., ICML 2025). b is -inf where k covers the whole list.

    Args:
        scores: Model scores, ``[Q, L]``.
        weight: How many items each slot stands for, 0 off the list, ``[Q, L]``.
        k: Sizes of the tops of each list, ``[Q, M]``.
        alpha: Temperature of each list, ``[Q]``.
    """
    off, infinity, pad = weight == 0, torch.inf, torch.nn.functional.pad
    # In float64, because the terms below are far apart. Slots off the list join its last one.
    x = scores.double() / alpha[:, None]
    x = torch.where(off, x.masked_fill(off, infinity).amin(-1, keepdim=True), x)
    x, place = x.sort(dim=-1, descending=True)
    highest, x = x[:, :1], x - x[:, :1]
    counts = weight.double().gather(-1, place)
    # Before each place: W = sum of w, and the logarithm of A = sum of w exp(-x). From it on:
    # that of B = sum of w exp(x).
    whole = pad(counts.cumsum(-1), (1, 0))
    log_a = pad((counts.log() - x).logcumsumexp(-1), (1, 0), value=-infinity)
    log_b = (counts.log() + x).flip(-1).logcumsumexp(-1).flip(-1)
    log_b = pad(log_b, (0, 1), value=-infinity)
    # What a top has with b at each place says between which two places it has k items.
    reached = whole[:, 1:] + ((log_b[:, 1:] - x).exp() - (log_a[:, 1:] + x).exp()) / 2
    end = torch.searchsorted(reached, k.double().contiguous())
    whole, log_a, log_b = (one.gather(-1, end) for one in (whole, log_a, log_b))
    # There W - y A / 2 + B / (2 y) = k, with y = exp(b / alpha). With s = W - k,
    # y = (sqrt(s^2 + A B) + s) / A = B / (sqrt(s^2 + A B) - s).
    s = whole - k
    s = s.masked_fill(s.abs() <= 8 * torch.finfo(scores.dtype).eps * k, 0)  # sums are rounded
    log_s = s.abs().log()
    log_sum = torch.logaddexp(log_s, torch.logaddexp(2 * log_s, log_a + log_b) / 2)
    log_y = torch.where(s < 0, log_b - log_sum, log_sum - log_a)
    return ((log_y + highest) * alpha[:, None]).to(scores.dtype)


@compiled
def find_past_top(
    bits: Integers,
    weight: Floats,
    k: NDArray[np.int64],
    keys: Integers,
    found: NDArray[np.int64],
) -> None:
    """Find the first slot with the (k+1)-th largest score of each list, by bisecting bits.

    There is none in a list of at most k items. Read as integers, floats keep their order once
    the bits of negative ones are inverted. The scores that reach a value can then be counted
    without branches: 32 counts of 310 scores take about a third of the time of torch's
    selection.

    Args:
        bits: float32 or float64 scores without NaN, read as integers, ``[Q, L]``.
        weight: 0 for slots that do not count, ``[Q, L]``.
        k: Size of each list's top, not negative, ``[Q]``.
        keys: Room for a list, ``[L]``.
        found: The slot is put here, where there is one, ``[Q]``.
    """
    n_lists, n_slots = bits.shape
    least, most = np.iinfo(bits.dtype).min, np.iinfo(bits.dtype).max
    for row in range(n_lists):
        for slot in range(n_slots):
            value = bits[row, slot]
            value = value if value >= 0 else value ^ most
            keys[slot] = value if weight[row, slot] > 0 else least  # which no number has
        # The largest value that k + 1 keys reach lies in [low, high].
        low, high = least, most
        while low < high:
            middle = (low | high) - ((low ^ high) >> 1)  # their mean, rounded up
            reaching = 0
            for slot in range(n_slots):
                reaching += keys[slot] >= middle
            if reaching > k[row]:
                low = middle
            else:
                high = middle - 1
        if low == least:
            continue
        for slot in range(n_slots):
            if keys[slot] == low:
                found[row] = slot
                break
