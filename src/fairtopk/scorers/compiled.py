"""NeuMF and matrix factorisation on the CPU, by way of compiled loops."""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fairtopk.errors import InputError
from fairtopk.kernels.memory import recycled
from fairtopk.kernels.neumf import add_network
from fairtopk.kernels.pairs import CERTAIN, Dropout
from fairtopk.kernels.threads import run_all
from fairtopk.scorers.passes import Lists, Pass
from fairtopk.scorers.weights import Weights, detached

COLUMNS = 1_024  # items of a block, when all items are scored


def is_compiled(backend: str, table: Tensor) -> bool:
    """Return whether a model with this `backend` and a parameter like `table` is compiled.

    "auto" is compiled where that is possible: with float32 or float64 parameters on the CPU.
    """
    if backend not in ("auto", "torch", "compiled"):
        raise InputError(f'backend must be "auto", "torch" or "compiled", got "{backend}"')
    possible = table.device.type == "cpu" and table.dtype in (torch.float32, torch.float64)
    if backend == "compiled" and not possible:
        raise InputError(
            f"the compiled backend needs float32 or float64 parameters on the CPU, got "
            f'{table.dtype} on {table.device}; set backend to "auto" or "torch"'
        )
    return possible and backend != "torch"


def pair_scores(
    weights: Weights, query: Tensor, item: Tensor, *, dropout: float = 0.0, sparse: bool = False
) -> Tensor:
    """Return the scores of lists, ``[Q, L]``; they carry the gradient to all weights.

    Args:
        weights: Of the model.
        query: User numbers, ``[Q]``.
        item: Item numbers, ``[Q, L]``.
        dropout: Share of the last hidden layer that is switched off, to the nearest 1/256;
            which units, is drawn from torch's default generator.
        sparse: Whether gradients of the tables are sparse tensors where that saves work.
    """
    _check(query, len(weights.product_user), "users")
    _check(item, len(weights.product_item), "items")
    items = item.to(torch.int32).contiguous().numpy()
    lists = Lists(query, items, draw_dropout(dropout), sparse)
    tensors = weights.tensors()
    if torch.is_grad_enabled() and any(one.requires_grad for one in tensors):
        scores: Tensor = _PairScores.apply(lists, *tensors)  # type: ignore[no-untyped-call]
        return scores
    with torch.no_grad():
        return torch.from_numpy(Pass(lists, detached(tensors)).scores(keep=False))


def catalogue_scores(weights: Weights, query: Tensor) -> Tensor:
    """Return the scores of all items for some users, ``[Q, n_items]``, without a gradient.

    The network must have one hidden layer.
    """
    _check(query, len(weights.product_user), "users")
    weights = detached(weights.tensors())
    user = weights.product_user[query] * weights.product_output
    hidden = torch.addmm(weights.user_bias, weights.network_user[query], weights.user_layer.T)
    output = weights.network_output.numpy()
    n_items = len(weights.product_item)
    scores = recycled((len(query), n_items), output.dtype)

    def score(start: int) -> None:
        block = slice(start, start + COLUMNS)
        torch.mm(user, weights.product_item[block].T, out=torch.from_numpy(scores[:, block]))
        items = weights.item_layer @ weights.network_item[block].T
        add_network(hidden.numpy(), items.numpy(), output, start, scores)

    run_all([partial(score, start) for start in range(0, n_items, COLUMNS)])
    return torch.from_numpy(scores)


def item_bias(bias: Tensor, item: Tensor) -> Tensor:
    """Return the bias, ``[n_items, 1]``, of items in lists, ``[Q, L]``, with its gradient."""
    found: Tensor = _ItemBias.apply(bias, item)  # type: ignore[no-untyped-call]
    return found


def draw_dropout(share: float) -> Dropout:
    """Return a dropout of `share`, to the nearest 1/256, with a fresh seed."""
    if share == 0:
        return Dropout(seed=0, keep=CERTAIN)
    keep = min(max(round((1 - share) * CERTAIN), 1), CERTAIN - 1)
    return Dropout(int(torch.randint(2**63 - 1, ())), keep)


class _PairScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, lists: Lists, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)  # so that a change before the backward pass is noticed
        ctx.work = Pass(lists, detached(tensors))
        return torch.from_numpy(ctx.work.scores(keep=True))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        ctx.saved_tensors  # noqa: B018 (raises if a weight was changed)
        return None, *ctx.work.gradients(grad.contiguous().numpy())


class _ItemBias(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, bias: Tensor, item: Tensor) -> Tensor:
        ctx.item, ctx.shape = item, bias.shape
        return bias[:, 0][item]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        # In place of torch's own backward pass, which takes 30 times as long.
        place, slope = ctx.item.reshape(-1).numpy(), grad.reshape(-1).numpy()
        total = np.bincount(place, weights=slope, minlength=ctx.shape[0])
        return torch.from_numpy(total).to(grad.dtype).reshape(ctx.shape), None


def _check(numbers: Tensor, count: int, what: str) -> None:
    if numbers.numel() == 0:
        return
    array = numbers.numpy()
    low, high = array.min(), array.max()
    if low < 0 or high >= count:
        wrong = low if low < 0 else high
        raise InputError(
            f"{what} of this model are numbered from 0 to {count - 1}, got {wrong}"
        )
