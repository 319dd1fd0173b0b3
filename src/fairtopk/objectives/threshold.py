"""The selector psi: a sigmoid that is near 1 above a threshold and near 0 below.

The first score past the top of each list, by bisecting the bits of floating-point numbers.

Read as integers, floats keep their order once the bits of negative ones are turned round. How
many scores reach a value is then counted without branches, which makes 32 counts of 310 scores
nearly three times as fast as torch's selection.

The score that separates the top K of a list from the rest: exact, and as a smooth problem.

Eq. 10: lambda is the (K+1)-th largest score. Eq. 13 smooths the problem it solves,

    G(l) = (K + eps)/n l + tau_2/2 l^2 + tau_1 mean_i softplus((h_i - l) / tau_1)

so that it can be tracked by stochastic steps. With s_i = sigmoid((h_i - l) / tau_1):
slope G' = (K + eps)/n + tau_2 l - mean(s), curvature G'' = tau_2 + mean(s (1 - s)) / tau_1.
Means are weighted; `share` below is the weight of each slot, summing to 1 over a list.

Where the top K of each list ends: found exactly, or tracked as in Algorithm 1.

Paper: the threshold Eq. 10, its smooth problem Eq. 13, the updates of lambda, s and v Eq. 23.
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


def select(scores: Tensor, lam: Tensor, sharpness: Tensor) -> Tensor:
    """Return psi(h - lambda) = sigmoid(beta (h - lambda)), ``[Q, L]``.

    Args:
        scores: Model scores, ``[Q, L]``.
        lam: Threshold of each list, ``[Q]``; -inf selects everything.
        sharpness: beta of each list, ``[Q]``.
    """
    return torch.sigmoid(sharpness[:, None] * (scores - lam[:, None]))


def select_slope(psi: Tensor, sharpness: Tensor) -> Tensor:
    """Return the derivative of psi with respect to h, given psi, ``[Q, L]``."""
    return sharpness[:, None] * psi * (1 - psi)


Integers = NDArray[np.signedinteger]
Floats = NDArray[np.floating]
BITS = {np.dtype(np.float32): np.int32, np.dtype(np.float64): np.int64}


def slots_past_top(scores: Floats, weight: Floats, k: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first slot that holds the (k+1)-th largest score of each list, ``[Q]``.

    It is -1 for a list of no more than k.

    Args:
        scores: float32 or float64 without NaN, ``[Q, L]``.
        weight: 0 for slots that do not count, ``[Q, L]``.
        k: Of each list, not negative, ``[Q]``.
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
    """Fill in `found`, ``[Q]``; `keys` is room for those of a list, ``[L]``."""
    n_lists, n_slots = bits.shape
    least, most = np.iinfo(bits.dtype).min, np.iinfo(bits.dtype).max
    for row in range(n_lists):
        for slot in range(n_slots):
            value = bits[row, slot]
            value = value if value >= 0 else value ^ most
            keys[slot] = value if weight[row, slot] > 0 else least  # which no number has
        # The largest value that k + 1 keys reach lies between `low` and `high`, both included.
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


def are_flags(weight: Floats) -> bool:
    """Return whether every weight is 0 or 1, ``[Q, L]``."""
    return bool(((weight == 0) | (weight == 1)).all())


def topk_threshold(scores: Tensor, weight: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first score past the top, ``[Q]``, and a slot that holds it, ``[Q]``.

    With weights of 1 that is the (k+1)-th largest score. Where the list has no more than k, all
    of it is the top: the threshold is -inf.

    Args:
        scores: Model scores, ``[Q, L]``.
        weight: How many items each slot stands for, 0 on padding, ``[Q, L]``.
        k: How many items are the top, ``[Q]``.
    """
    if scores.device.type == "cpu" and scores.dtype in (torch.float32, torch.float64):
        arrays = scores.contiguous().numpy(), weight.contiguous().numpy()
        if are_flags(arrays[1]):
            # The usual case by selection, in a fraction of the time of a sort.
            slot = torch.from_numpy(slots_past_top(*arrays, k.long().numpy()))
            lam = scores.gather(-1, slot.clamp(min=0)[:, None])[:, 0]
            return lam.masked_fill(slot < 0, -torch.inf), slot.clamp(min=0)
    held = scores.masked_fill(weight == 0, -torch.inf)
    descending, place = held.sort(dim=-1, descending=True, stable=True)
    within = weight.gather(-1, place).cumsum(-1) <= k[:, None]
    first = within.sum(-1)
    whole = first >= (weight > 0).sum(-1)
    first = first.clamp(max=scores.shape[-1] - 1)[:, None]
    lam = descending.gather(-1, first)[:, 0]
    return lam.masked_fill(whole, -torch.inf), place.gather(-1, first)[:, 0]


def threshold_slope(
    scores: Tensor, share: Tensor, lam: Tensor, top: Tensor, *, tau_1: float, tau_2: float
) -> Tensor:
    """Return G'(lambda), ``[Q]``; `top` is (K + eps) / n, ``[Q]``."""
    above = torch.sigmoid((scores - lam[:, None]) / tau_1)
    return top + tau_2 * lam - (share * above).sum(-1)


def threshold_curvature(
    scores: Tensor, share: Tensor, lam: Tensor, *, tau_1: float, tau_2: float
) -> tuple[Tensor, Tensor]:
    """Return G''(lambda), ``[Q]``, and minus its cross derivative d2G / (dl dh), ``[Q, L]``.

    The implicit function theorem gives d lambda / d h as the second over the first.
    """
    above = torch.sigmoid((scores - lam[:, None]) / tau_1)
    cross = share * above * (1 - above) / tau_1
    return tau_2 + cross.sum(-1), cross


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
        length = batch.n_items if self.of_catalogue else batch.n_slots
        return self.k / length.to(batch.weight.dtype)

    def forward(self, scores: Tensor, batch: Batch) -> Cut:
        """Return the threshold of each list."""
        weight = batch.weight * batch.mask
        length = batch.n_items if self.of_catalogue else batch.n_slots
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
        share = batch.slot_weights
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
