"""The threshold lambda that ends the top K of a list, and the selector: Eqs. 10, 11, 13, 23.

lambda is the (K+1)-th largest score (Eq. 10), found by selection or tracked by stochastic steps
on the smoothed problem of Eq. 13,

    G(l) = (K + eps)/n l + tau_2/2 l^2 + tau_1 mean_i softplus((h_i - l) / tau_1).

The selector psi(h - lambda) is a sigmoid: near 1 above the threshold and near 0 below it.
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

Integers = NDArray[np.signedinteger]
Floats = NDArray[np.floating]
BITS = {np.dtype(np.float32): np.int32, np.dtype(np.float64): np.int64}


class Threshold(NamedTuple):
    """A threshold per list.

    Attributes:
        lam: The threshold, -inf where the whole list is the top, ``[Q]``.
        lam_slope: d lambda / d h, ``[Q, L]``; None unless requested.
        exact: The list's own (K+1)-th largest score, for the log, ``[Q]``.
    """

    lam: Tensor
    lam_slope: Tensor | None
    exact: Tensor


class Selection(NamedTuple):
    """How much each slot counts, psi(h - lambda), and how that changes with the scores.

    Attributes:
        psi: Weight of each slot, ``[Q, L]``, or of the first R slots, ``[Q, R]``.
        slope: psi' in the shape of `psi`; None freezes psi.
        lam_slope: d lambda / d h, ``[Q, L]``; None freezes lambda.
    """

    psi: Tensor
    slope: Tensor | None = None
    lam_slope: Tensor | None = None

    def add_selector_gradient(self, grad: Tensor, d_value_d_psi: Tensor) -> None:
        """Add the gradient through psi and lambda to `grad`, ``[Q, L]``, in place.

        With v_i = (d value / d psi_i) psi'_i, slot k gets v_k - (d lambda / d h_k) sum_i v_i.
        `d_value_d_psi` may cover the first R slots only, ``[Q, R]``.
        """
        if self.slope is None:
            return
        rows = d_value_d_psi.shape[1]
        through_psi = self.slope[:, :rows] * d_value_d_psi
        grad[:, :rows] += through_psi
        if self.lam_slope is not None:
            grad -= self.lam_slope * through_psi.sum(-1, keepdim=True)


class Smoothing(NamedTuple):
    """Constants of the smoothed problem (Eq. 13) and of the steps on it (Eq. 23).

    Attributes:
        eta_0: Step size.
        gamma_4: Weight of fresh derivatives in their averages s and v.
        tau_1: Width of the smoothing.
        tau_2: Weight of the quadratic term; it moves the effective K by n tau_2 lambda.
        epsilon: Added to K, between 0 and 1.
    """

    eta_0: float = 0.01
    gamma_4: float = 0.9
    tau_1: float = 0.001
    tau_2: float = 1e-4
    epsilon: float = 0.25


class ExactThreshold(nn.Module):
    """The (K+1)-th largest score of each list (Eq. 10).

    Args:
        k: Positions in the top.
        of_catalogue: Whether `k` counts positions of the whole list of N_q items; the list at
            hand, with L of them, then has L K / N_q positions in its top.
        with_slope: Whether to return d lambda / d h.
    """

    def __init__(
        self, k: float, *, of_catalogue: bool = False, with_slope: bool = False
    ) -> None:
        super().__init__()
        self.k, self.of_catalogue, self.with_slope = k, of_catalogue, with_slope

    def forward(self, scores: Tensor, batch: Batch) -> Threshold:
        """Return the threshold of each list."""
        length = batch.n_items if self.of_catalogue else batch.n_slots
        # In this order a sample that counts as uniform gives exactly K.
        k = self.k * (batch.n_represented / length)
        lam, slot = topk_threshold(scores, batch.slot_counts, k)
        lam_slope = None
        if self.with_slope:
            lam_slope = torch.zeros_like(scores)
            lam_slope.scatter_(-1, slot[:, None], lam.isfinite()[:, None].to(scores.dtype))
        return Threshold(lam, lam_slope, exact=lam)


class TrackedThreshold(nn.Module):
    """The minimiser of the smoothed problem, tracked by one step per visit (Eq. 23).

    Args:
        exact: Finds the list's own threshold, where a query's first visit starts.
        n_queries: Rows of the tables.
        smoothing: Constants of the problem and of the steps.
        start: lambda before a query's first visit; NaN starts at the list's own threshold.
    """

    lam: Tensor

    def __init__(
        self,
        exact: ExactThreshold,
        n_queries: int,
        smoothing: Smoothing,
        *,
        start: float = math.nan,
    ) -> None:
        super().__init__()
        self.exact, self.smoothing = exact, smoothing
        self.register_buffer("lam", torch.full((n_queries,), start))
        self.s_q = MovingAverage(n_queries, gamma=smoothing.gamma_4, start=start)
        self.v_q = MovingAverage(n_queries, gamma=smoothing.gamma_4, start=start)

    def forward(self, scores: Tensor, batch: Batch) -> Threshold:
        """Take one step for each list; return the new thresholds."""
        exact, (eta_0, _, tau_1, tau_2, epsilon) = self.exact(scores, batch), self.smoothing
        # A list no longer than K has no threshold to track.
        tracked = exact.lam.isfinite()
        old = self.lam[batch.query]
        old = torch.where(old.isnan(), exact.lam, old).masked_fill(~tracked, 0)
        length = batch.n_items if self.exact.of_catalogue else batch.n_slots
        top = self.exact.k / length.to(batch.weight.dtype)
        top = top * (1 + epsilon / self.exact.k)  # (K + eps) / n
        slope, curvature, cross = threshold_derivatives(
            scores, batch.slot_weights, old, top, tau_1=tau_1, tau_2=tau_2
        )
        s = self.s_q.update(batch.query, curvature, where=tracked)  # Eq. 23, s_{q,t+1}
        v = self.v_q.update(batch.query, slope, where=tracked)  # Eq. 23, v_{q,t+1}
        lam = old - eta_0 * v  # Eq. 23, lambda_{q,t+1}
        if self.training and torch.is_grad_enabled():
            self.lam[batch.query[tracked]] = lam[tracked].to(self.lam.dtype)
        # d lambda / d h = -(d2G / dl dh) / s. Without tau_2 there is no curvature where no
        # score is near; nor does lambda move then. The slopes of a list add up to at most 1,
        # which a stale s could exceed.
        s = s.clamp(min=torch.finfo(s.dtype).tiny)
        return Threshold(
            lam=lam.masked_fill(~tracked, -torch.inf),
            lam_slope=cross / torch.maximum(s, cross.sum(-1))[:, None] * tracked[:, None],
            exact=exact.lam,
        )


def threshold_objective(
    scores: Tensor, weights: Tensor, lam: Tensor, top: Tensor, *, tau_1: float, tau_2: float
) -> Tensor:
    """Return G(lambda) of Eq. 13, ``[Q]``; `TrackedThreshold` steps towards its minimiser.

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


def select(scores: Tensor, lam: Tensor, sharpness: Tensor) -> Tensor:
    """Return psi(h - lambda) = sigmoid(beta (h - lambda)), ``[Q, L]``.

    Args:
        scores: Model scores, ``[Q, L]``.
        lam: Threshold of each list, ``[Q]``; -inf selects everything.
        sharpness: beta of each list, ``[Q]``.
    """
    return torch.sigmoid(sharpness[:, None] * (scores - lam[:, None]))  # psi of Eq. 11


def select_slope(psi: Tensor, sharpness: Tensor) -> Tensor:
    """Return the derivative of psi with respect to h, given psi, ``[Q, L]``."""
    return sharpness[:, None] * psi * (1 - psi)


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
            slot = torch.from_numpy(slots_past_top(values, counts, k.long().numpy()))
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


def slots_past_top(scores: Floats, weight: Floats, k: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first slot with the (k+1)-th largest score of each list, ``[Q]``.

    It is -1 for a list of at most k items.

    Args:
        scores: float32 or float64 without NaN, ``[Q, L]``.
        weight: 0 for slots that do not count, ``[Q, L]``.
        k: Size of each list's top, not negative, ``[Q]``.
    """
    bits = scores.view(BITS[scores.dtype])
    found = np.full(len(bits), -1)
    _find_past_top(bits, weight, k, np.empty(bits.shape[1], bits.dtype), found)
    return found


@compiled
def _find_past_top(
    bits: Integers,
    weight: Floats,
    k: NDArray[np.int64],
    keys: Integers,
    found: NDArray[np.int64],
) -> None:
    """Fill `found`, ``[Q]``, by bisecting bits; `keys` is scratch space, ``[L]``.

    Read as integers, floats keep their order once the bits of negative ones are inverted. The
    scores that reach a value can then be counted without branches: 32 counts of 310 scores take
    about a third of the time of torch's selection.
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
