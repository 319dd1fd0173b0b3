"""NeuMF and matrix factorisation by torch's own operations, on any device.

What is computed once per user or item is left to autograd; the two parts that visit all pairs
have backward passes of their own. Forward and backward pass of NeuMF with 256 lists of 310 take
30 ms on two cores, where with `nn.Dropout` and autograd throughout they take 90.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding, embedding_bag, linear

from fairtopk.models._compiled import Layers, Weights, draw_dropout
from fairtopk.models._kernels import CERTAIN

# Numbers in a layer of the pairs that are in hand at a time, so that they stay in the cache:
# with all pairs at once those 30 ms are 45.
CHUNK = 2**19

WORD = 8  # bytes


def plain_scores(
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
    tables = (weights.product_item, weights.network_item)
    lists, (vectors, inputs) = lists_of(item, tables, sparse=sparse)
    users = embedding(query, weights.product_user, sparse=sparse) * weights.product_output
    of_users = embedding(query, weights.network_user, sparse=sparse)
    hidden = linear(of_users, weights.user_layer, weights.user_bias)
    items = linear(inputs, weights.item_layer)
    kept, scale = draw_kept(dropout, (*item.shape, len(weights.network_output)), item.device)
    output = weights.network_output * scale
    scores: Tensor = _NetworkScores.apply(  # type: ignore[no-untyped-call]
        lists, kept, hidden, items, output, *weights.deeper
    )
    return scores + products(lists, users, vectors)


def draw_kept(
    share: float, shape: tuple[int, ...], device: torch.device
) -> tuple[Tensor | None, float]:
    """Return 1 for units that dropout keeps and 0 for others, and by what it multiplies them.

    Units are bytes that are drawn eight at a time: 3 ms, where a draw for each takes 45.
    """
    if share == 0:
        return None, 1.0
    seed, keep = draw_dropout(share)
    count = torch.Size(shape).numel()
    words = torch.empty(-(-count // WORD), dtype=torch.int64, device=device)
    words.random_(-(2**63), None, generator=torch.Generator(device).manual_seed(seed))
    # In place, for a comparison that makes booleans is not vectorised.
    return words.view(torch.uint8)[:count].lt_(keep).view(shape), CERTAIN / keep


class ItemLists:
    """Lists of items, also as pairs grouped by item.

    Args:
        item: Item numbers, ``[Q, L]``.
        n_items: How many items there are.
    """

    def __init__(self, item: Tensor, n_items: int) -> None:
        self.item, self.n_items = item, n_items

    def parts(self, width: int) -> Iterator[slice]:
        """Yield parts of the lists, with about `CHUNK` numbers if each slot has `width`."""
        step = max(CHUNK // max(self.item.shape[1] * width, 1), 1)
        for start in range(0, len(self.item), step):
            yield slice(start, start + step)

    def take(self, table: Tensor, part: slice) -> Tensor:
        """Return the rows of the items in a part of the lists, ``[q, L, width]``."""
        item = self.item[part]
        return table.index_select(0, item.reshape(-1)).view(*item.shape, table.shape[1])

    @cached_property
    def by_item(self) -> tuple[Tensor, Tensor]:
        """Places of the pairs in all lists, grouped by item, and where each group starts.

        A sum over such a group is a bag of embeddings. That takes 2 ms with the sorting, and
        torch's own backward pass of `embedding` 10; nor does its result depend on threads.
        """
        item = self.item.reshape(-1)
        count = torch.bincount(item, minlength=self.n_items)
        return item.argsort(stable=True), count.cumsum(0) - count


def lists_of(
    item: Tensor, tables: Sequence[Tensor], *, sparse: bool
) -> tuple[ItemLists, list[Tensor]]:
    """Return lists, and the tables that they have row numbers of.

    Those are the tables given, or where lists have fewer slots than these have rows, the rows
    that are in lists: with 300,000 items, forward and backward pass take 65 ms instead of 160.

    Args:
        item: Item numbers, ``[Q, L]``.
        tables: Of items, ``[n_items, width]``.
        sparse: Whether the gradient of a part of a table is a sparse tensor.
    """
    taken = list(tables)
    if item.numel() < len(taken[0]):
        rows, item = item.unique(return_inverse=True)  # type: ignore[no-untyped-call]
        taken = [embedding(rows, table, sparse=sparse) for table in taken]
    return ItemLists(item, len(taken[0])), taken


def products(lists: ItemLists, users: Tensor, items: Tensor) -> Tensor:
    """Return p_u · q_i of all pairs, ``[Q, L]``, with its gradient.

    Args:
        lists: The items of each user.
        users: Vectors of the users, ``[Q, width]``.
        items: Vectors of all items that `lists` has numbers of, ``[n_items, width]``.
    """
    scores: Tensor = _Products.apply(lists, users, items)  # type: ignore[no-untyped-call]
    return scores


class Network(NamedTuple):
    """What the network's part of the scores is made of.

    Attributes:
        kept: 1 for units of the last layer that are kept, else 0, ``[Q, L, its units]``; None
            if all are.
        users: The users' halves of the first layer, ``[Q, units]``.
        items: The items' halves, ``[n_items, units]``.
        output: Output weights of the last layer.
        layers: Those after the first.
    """

    kept: Tensor | None
    users: Tensor
    items: Tensor
    output: Tensor
    layers: Layers

    def active(self, lists: ItemLists, part: slice) -> list[Tensor]:
        """Return the activations of all layers, ``[n, units]``, for the pairs of some lists."""
        first = lists.take(self.items, part).add_(self.users[part, None]).relu_()
        active = [first.view(-1, first.shape[-1])]
        for weight, bias in self.layers:
            active.append(torch.addmm(bias, active[-1], weight.T).relu_())
        if self.kept is not None:
            active[-1].mul_(self.kept[part].view(active[-1].shape).to(first.dtype))
        return active


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, lists: ItemLists, users: Tensor, items: Tensor) -> Tensor:
        ctx.save_for_backward(users, items)
        ctx.lists = lists
        scores = users.new_empty(lists.item.shape)
        for part in lists.parts(users.shape[1]):
            scores[part] = torch.einsum("qd,qld->ql", users[part], lists.take(items, part))
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor]:
        (users, items), lists = ctx.saved_tensors, ctx.lists
        (order, offsets), grad = lists.by_item, grad.contiguous()
        of_users = embedding_bag(lists.item, items, mode="sum", per_sample_weights=grad)
        user, slope = order // lists.item.shape[1], grad.view(-1)[order]
        of_items = embedding_bag(user, users, offsets, mode="sum", per_sample_weights=slope)
        return None, of_users, of_items


class _NetworkScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, lists: ItemLists, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        ctx.lists, ctx.active = lists, []
        network = _as_network(tensors)
        scores = network.users.new_empty(lists.item.shape)
        for part in lists.parts(network.users.shape[1]):
            active = network.active(lists, part)
            ctx.active.append(active)
            scores[part] = (active[-1] @ network.output).view(scores[part].shape)
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        lists, network = ctx.lists, _as_network(ctx.saved_tensors)
        by_pair = grad.new_empty(*grad.shape, network.users.shape[1])
        of_users = torch.empty_like(network.users)
        of_weights = [torch.zeros_like(one) for one in ctx.saved_tensors[3:]]
        for part, active in zip(lists.parts(of_users.shape[1]), ctx.active, strict=True):
            sums = _gradients(network, active, grad[part].reshape(-1), by_pair[part])
            for total, one in zip(of_weights, sums, strict=True):
                total += one
            torch.sum(by_pair[part], 1, out=of_users[part])
        order, offsets = lists.by_item
        of_items = embedding_bag(order, by_pair.flatten(0, 1), offsets, mode="sum")
        return None, None, of_users, of_items, *of_weights


def _as_network(tensors: Sequence[Tensor]) -> Network:
    """Return the network, given what `_NetworkScores` takes."""
    kept, users, items, output, *deeper = tensors
    layers = list(zip(deeper[::2], deeper[1::2], strict=True))
    return Network(kept, users, items, output, layers)


def _gradients(
    network: Network, active: list[Tensor], slope: Tensor, first: Tensor
) -> list[Tensor]:
    """Return the gradients of output weights and layers, and fill that of the first layer.

    Args:
        network: All of it.
        active: Activations of some pairs.
        slope: Gradient of their scores, ``[n]``.
        first: Filled with the gradient of the first layer before its relu, ``[q, L, units]``.
    """
    of_output, of_layers = slope @ active[-1], []
    grad = torch.outer(slope, network.output)
    for place in reversed(range(len(network.layers))):
        grad *= active[place + 1].sign()  # 1 for units that are on, else 0
        of_layers += [grad.sum(0), grad.T @ active[place]]
        grad = grad @ network.layers[place][0]
    torch.mul(grad, active[0].sign(), out=first.view(grad.shape))
    return [of_output, *reversed(of_layers)]
