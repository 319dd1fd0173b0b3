"""What the terms of an objective read and return: selections, estimates, disparities."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fairtopk.errors import InputError
from fairtopk.lists.batch import Batch


class Estimate(NamedTuple):
    """The value of a term on a batch and its gradient.

    Attributes:
        value: Mean over the queries, a scalar.
        grad: Gradient of the value with respect to scores, ``[Q, L]``.
    """

    value: Tensor
    grad: Tensor


class Disparity(NamedTuple):
    """The value of a penalty on unequal exposure, its gradient, and the gaps behind it.

    Attributes:
        value: Weighted mean over the queries, a scalar.
        grad: Gradient of the value with respect to scores, ``[Q, L]``.
        gap: Signed gap of each list, ``[Q]``: exposure of group 0 minus the mean exposure of
            the other groups present; NaN without such a pair.
        defined: Which lists have two groups, ``[Q]``.
    """

    value: Tensor
    grad: Tensor
    gap: Tensor
    defined: Tensor


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


def select_all(scores: Tensor) -> Selection:
    """Return the selection of whole lists."""
    return Selection(psi=torch.ones_like(scores))


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
                f"a registered ranking loss must return the loss and its gradient in the "
                f"scores, of shape {list(scores.shape)}; {name} does not"
            )
        value = torch.as_tensor(found[0]).detach().to(scores.dtype).reshape(())
        return Estimate(value, grad.detach().to(scores.dtype))
