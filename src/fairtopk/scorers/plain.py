"""NeuMF and matrix factorisation by torch's own operations, on any device."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding, embedding_bag, linear

from fairtopk.kernels.pairs import CERTAIN
from fairtopk.scorers.compiled import draw_dropout
from fairtopk.scorers.weights import Weights

CHUNK = 2**20  # numbers, of the vectors of the pairs that are in hand at a time


def plain_scores(
    weights: Weights, query: Tensor, item: Tensor, *, dropout: float = 0.0, sparse: bool = False
) -> Tensor:
    """Return the scores of lists, ``[Q, L]``, as `compiled.pair_scores` does."""
    vectors, inputs = weights.product_item, weights.network_item
    if len(vectors) > item.numel():
        rows, item = item.unique(return_inverse=True)
        vectors, inputs = (embedding(rows, one, sparse=sparse) for one in (vectors, inputs))
    lists = ItemLists(item, len(vectors))
    users = embedding(query, weights.product_user, sparse=sparse) * weights.product_output
    network = embedding(query, weights.network_user, sparse=sparse)
    hidden = linear(network, weights.user_layer, weights.user_bias)
    items = linear(inputs, weights.item_layer)
    kept, scale = _draw_kept(dropout, (*item.shape, len(weights.network_output)), item.device)
    output = weights.network_output * scale
    scores = products(lists, users, vectors)
    of_network: Tensor = _Network.apply(lists, kept, hidden, items, output, *weights.deeper)
    return scores + of_network


def _draw_kept(share, shape, device):
    if share == 0:
        return None, 1.0
    seed, keep = draw_dropout(share)
    count = torch.Size(shape).numel()
    generator = torch.Generator(device).manual_seed(seed)
    words = torch.empty(-(-count // 8), dtype=torch.int64, device=device)
    words.random_(-(2**63), None, generator=generator)
    return words.view(torch.uint8)[:count].lt_(keep).view(shape), CERTAIN / keep


class ItemLists:
    def __init__(self, item: Tensor, n_items: int) -> None:
        self.item, self.n_items = item, n_items

    @cached_property
    def by_item(self) -> tuple[Tensor, Tensor]:
        item = self.item.reshape(-1)
        count = torch.bincount(item, minlength=self.n_items)
        return item.argsort(stable=True), count.cumsum(0) - count

    def parts(self, width: int) -> Iterator[slice]:
        step = max(CHUNK // max(width * self.item.shape[1], 1), 1)
        for start in range(0, len(self.item), step):
            yield slice(start, start + step)

    def take(self, table: Tensor, part: slice) -> Tensor:
        item = self.item[part]
        return table.index_select(0, item.reshape(-1)).view(*item.shape, -1)


def products(lists: ItemLists, users: Tensor, items: Tensor) -> Tensor:
    return _Products.apply(lists, users, items)


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
    def backward(ctx: Any, grad: Tensor):
        users, items = ctx.saved_tensors
        lists = ctx.lists
        order, offsets = lists.by_item
        grad = grad.contiguous()
        of_users = embedding_bag(lists.item, items, mode="sum", per_sample_weights=grad)
        slope = grad.view(-1)[order]
        user = order // grad.shape[1]
        of_items = embedding_bag(user, users, offsets, mode="sum", per_sample_weights=slope)
        return None, of_users, of_items


def _activations(lists, part, kept, users, items, deeper):
    first = lists.take(items, part).add_(users[part, None]).relu_()
    active = [first.view(-1, users.shape[1])]
    for weight, bias in zip(deeper[::2], deeper[1::2], strict=True):
        active.append(torch.addmm(bias, active[-1], weight.T).relu_())
    if kept is not None:
        active[-1].mul_(kept[part].reshape(active[-1].shape).to(users.dtype))
    return active


class _Network(torch.autograd.Function):
    @staticmethod
    def forward(ctx, lists, kept, users, items, output, *deeper):
        ctx.save_for_backward(kept, users, items, output, *deeper)
        ctx.lists = lists
        scores = users.new_empty(lists.item.shape)
        for part in lists.parts(users.shape[1]):
            active = _activations(lists, part, kept, users, items, deeper)
            scores[part] = (active[-1] @ output).view(-1, scores.shape[1])
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        lists = ctx.lists
        kept, users, items, output, *deeper = ctx.saved_tensors
        by_pair = users.new_empty(*lists.item.shape, users.shape[1])
        of_users = torch.empty_like(users)
        of_output = torch.zeros_like(output)
        of_deeper = [torch.zeros_like(x) for x in deeper]
        for part in lists.parts(users.shape[1]):
            slope = grad[part].reshape(-1)
            active = _activations(lists, part, kept, users, items, deeper)
            of_output += slope @ active[-1]
            slopes = torch.outer(slope, output)
            for place in range(len(deeper) - 2, -1, -2):
                layer = place // 2
                slopes.mul_(active[layer + 1].sign_())
                of_deeper[place] += slopes.T @ active[layer]
                of_deeper[place + 1] += slopes.sum(0)
                slopes = slopes @ deeper[place]
            torch.mul(slopes, active[0].sign_(), out=by_pair[part].view(slopes.shape))
            torch.sum(by_pair[part], 1, out=of_users[part])
        order, offsets = lists.by_item
        of_items = embedding_bag(order, by_pair.view(-1, users.shape[1]), offsets, mode="sum")
        return None, None, of_users, of_items, of_output, *of_deeper
