"""What an estimator is given beside scores, and what it returns."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fairtopk.errors import InputError
from fairtopk.lists.batch import Batch


class Estimate(NamedTuple):
    """An objective on a batch and its gradient.

    Attributes:
        value: Mean over the queries, a scalar.
        grad: Gradient of the value with respect to scores, ``[Q, L]``.
    """

    value: Tensor
    grad: Tensor


class Disparity(NamedTuple):
    """A penalty on unequal exposure.

    Attributes:
        value: Weighted mean over the queries, a scalar.
        grad: Gradient of the value with respect to scores, ``[Q, L]``.
        gap: The signed gap of each list, ``[Q]``: exposure of group 0 less the mean of the
            other groups present, NaN where there is no such pair.
        defined: Which lists have two groups, ``[Q]``.
    """

    value: Tensor
    grad: Tensor
    gap: Tensor
    defined: Tensor


class Selection(NamedTuple):
    """Which part of each list counts: psi(h - lambda), and how it moves with the scores.

    Attributes:
        psi: Weight of each slot, ``[Q, L]``, or of those that are asked for, ``[Q, R]``.
        slope: psi' where the gradient goes through psi, None where psi is frozen, alike.
        lam_slope: d lambda / d h where the gradient goes through lambda too, ``[Q, L]``.
    """

    psi: Tensor
    slope: Tensor | None = None
    lam_slope: Tensor | None = None

    def add_through(self, toward: Tensor, grad: Tensor) -> None:
        """Add to `grad` the part by way of psi and lambda, where `toward` is that in psi.

        `toward` may have the first R slots only, ``[Q, R]``; `grad` has all, ``[Q, L]``.
        """
        if self.slope is None:
            return
        rows = toward.shape[1]
        moved = self.slope[:, :rows] * toward
        grad[:, :rows] += moved
        if self.lam_slope is not None:
            grad -= self.lam_slope * moved.sum(-1, keepdim=True)


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
