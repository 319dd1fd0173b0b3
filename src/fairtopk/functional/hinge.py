"""The smoothed rank: a squared hinge over a list, with its gradient in closed form.

For row i (one of the first R slots) and weights w that sum to 1 over the list,

    g_i = sum_j w_j max(h_j - h_i + c, 0)^2      (the mean in Eq. 15; n g_i stands for a rank)

Three ways to the same numbers: all pairs cost R x L per list, by compiled loops or, where those
do not run, as one table; sorting costs L log L. All are differentiable once, with respect to
scores.
"""

from typing import Any

import torch
from torch import Tensor

from fairtopk.kernels.hinge import hinge_means, hinge_slopes

# Rows x slots of a list from which on sorting is the quicker way (measured on two CPU cores).
DENSE_LIMIT = 20_000


def mean_squared_hinge(scores: Tensor, weight: Tensor, *, rows: int, margin: float) -> Tensor:
    """Return g for the first `rows` slots of each list, ``[Q, R]``.

    Args:
        scores: Model scores, finite also on padding, ``[Q, L]``.
        weight: Weight of each slot in the mean, 0 on padding, ``[Q, L]``.
        rows: How many slots, from the first on, need their g (R).
        margin: The hinge's c.
    """
    way: type[torch.autograd.Function] = SortedHinge
    if rows * scores.shape[1] <= DENSE_LIMIT:
        loops = scores.device.type == "cpu" and scores.dtype in (torch.float32, torch.float64)
        way = CompiledHinge if loops else DenseHinge
    result: Tensor = way.apply(scores, weight, rows, margin)  # type: ignore[no-untyped-call]
    return result


class CompiledHinge(torch.autograd.Function):
    """Pair by pair on the CPU: ten times as fast as a table of them at R = 10, L = 310."""

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


class DenseHinge(torch.autograd.Function):
    """All pairs at once."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, weight: Tensor, rows: int, margin: float) -> Tensor:
        """Return g, ``[Q, R]``."""
        lead = (scores[:, None, :] - (scores[:, :rows, None] - margin)).clamp_(min=0)
        weighted = lead * weight[:, None, :]  # w_j m_ij
        ctx.save_for_backward(weighted)
        return torch.einsum("qrl,qrl->qr", weighted, lead)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None]:
        """Return the gradient: 2 (sum_i A_i w_k m_ik - A_k sum_j w_j m_kj), ``[Q, L]``."""
        (weighted,) = ctx.saved_tensors
        grad = torch.einsum("qr,qrl->ql", upstream, weighted)
        grad[:, : upstream.shape[1]] -= upstream * weighted.sum(-1)
        return 2 * grad, None, None, None


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
        # Item j pulls on row i iff h_j > h_i - c: a suffix of the sorted list.
        start = torch.searchsorted(ascending, head - margin, right=True)
        sums = [_suffix(of_slot * ascending**power, start) for power in range(3)]
        shift = margin - head
        ctx.save_for_backward(centred, weight, ascending, place, sums[1] + shift * sums[0])
        ctx.margin = margin
        return (sums[2] + 2 * shift * sums[1] + shift**2 * sums[0]).to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None]:
        """Return the gradient, ``[Q, L]``: column sums over rows with h_i < h_k + c."""
        centred, weight, ascending, place, own = ctx.saved_tensors
        rows = upstream.shape[1]
        pull = torch.zeros_like(centred)
        pull[:, :rows] = upstream
        pull = pull.gather(-1, place)
        stop = torch.searchsorted(ascending, centred + ctx.margin)
        total, moment = _prefix(pull, stop), _prefix(pull * ascending, stop)
        grad = weight * ((centred + ctx.margin) * total - moment)
        grad[:, :rows] -= upstream * own
        return (2 * grad).to(upstream.dtype), None, None, None


def _prefix(values: Tensor, stop: Tensor) -> Tensor:
    """Return the sum of the values before `stop`."""
    sums = torch.nn.functional.pad(values.cumsum(-1), (1, 0))
    return sums.gather(-1, stop)


def _suffix(values: Tensor, start: Tensor) -> Tensor:
    """Return the sum of the values from `start` on."""
    return values.sum(-1, keepdim=True) - _prefix(values, start)
