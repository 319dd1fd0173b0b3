"""A batch on its way through NeuMF: scores forward, gradients backward.

Items are taken in blocks. A block is a piece of work for one thread: forward from the items'
half of the first layer to the scores of their pairs, backward from the gradient of those scores
to that of the items' vectors. What is summed over blocks is summed in their order, so that
results have the same bits for any number of threads.
"""

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.kernels.memory import recycled
from fairtopk.kernels.neumf import (
    Floats,
    Sides,
    first_layer,
    score_pairs,
    sum_gradients,
    sum_rows,
)
from fairtopk.kernels.pairs import CERTAIN, Dropout, Pairs, kept_units
from fairtopk.kernels.threads import run_all
from fairtopk.scorers.blocks import blocks_of
from fairtopk.scorers.deeper import deeper_gradients, deeper_scores
from fairtopk.scorers.weights import Weights

ROWS = 4_096  # of a table that memory is asked for at a time


class Lists(NamedTuple):
    """What is to be scored, and how.

    Attributes:
        query: User numbers, ``[Q]``.
        item: Item numbers, ``[Q, L]``.
        dropout: Of the last hidden layer.
        sparse: Whether gradients of tables are sparse tensors where only some rows have one.
    """

    query: Tensor
    item: NDArray[np.int32]
    dropout: Dropout
    sparse: bool


class Part(NamedTuple):
    """What the pairs of a block add to gradients, before factors that all pairs share.

    Attributes:
        product: To those of the users' vectors of the product, ``[Q, width]``.
        hidden: To those of the users' halves of the first layer, ``[Q, units]``.
        item_layer: To that of the items' half of the first layer, ``[units, width]``.
        deeper: To those of the further layers and of the output weights behind them.
    """

    product: Tensor
    hidden: Tensor
    item_layer: Tensor
    deeper: list[Tensor]


class Pass:
    """One batch of lists with the weights as they are.

    A network of one hidden layer is a part of the fused loops in `kernels.neumf`. A deeper one
    has no units there; its layers run through torch, block by block.

    Args:
        lists: The batch.
        weights: Of the model, without a gradient.
    """

    def __init__(self, lists: Lists, weights: Weights) -> None:
        self.lists, self.weights = lists, weights
        self.layers = list(zip(weights.deeper[::2], weights.deeper[1::2], strict=True))
        self.scale = CERTAIN / lists.dropout.keep
        output = weights.network_output * self.scale
        self.output = output[:0] if self.layers else output
        # What the gradients of the first layer have in common.
        self.factor = torch.ones_like(weights.user_bias) if self.layers else output
        self.active: dict[int, list[Tensor]] = {}
        run_all([self._take_users, self._group_items])

    def scores(self, *, keep: bool) -> Floats:
        """Return the scores, ``[Q, L]``; `keep` what `gradients` needs."""
        item = self.lists.item
        self.gate = recycled((item.size if keep else 0, len(self.output)), np.uint8)
        scores = np.empty(item.shape, self.users.product.dtype)
        run_all([partial(self._score, block, scores, keep) for block in self.blocks.slices])
        return scores

    def gradients(self, grad: Floats) -> list[Tensor]:
        """Return the gradients of all weights, given that of the scores, ``[Q, L]``."""
        product, network = _like(self.vectors), _like(self.inputs)
        parts = run_all(
            [partial(self._part, block, grad, product, network) for block in self.blocks.slices]
        )
        of_product, of_network = run_all(
            [
                partial(self._product_gradients, parts, product),
                partial(self._network_gradients, parts, network),
            ]
        )
        return of_product + of_network

    def _take_users(self) -> None:
        weights, query = self.weights, self.lists.query
        self.product, self.network = weights.product_user[query], weights.network_user[query]
        self.hidden = torch.addmm(weights.user_bias, self.network, weights.user_layer.T)
        self.users = self._sides(self.product * weights.product_output, self.hidden)

    def _group_items(self) -> None:
        product, network = self.weights.product_item, self.weights.network_item
        self.blocks = blocks_of(self.lists.item, len(product))
        self.vectors, self.inputs = product, network
        if self.blocks.rows is not None:
            self.vectors = _like(product, len(self.blocks.rows))
            self.inputs = _like(network, len(self.blocks.rows))

    def _score(self, block: slice, scores: Floats, keep: bool) -> None:
        weights, rows = self.weights, self.blocks.rows
        pairs = self.blocks.pairs_of(block)
        vectors, inputs = self.vectors[block], self.inputs[block]
        if rows is not None:
            torch.index_select(weights.product_item, 0, rows[block], out=vectors)
            torch.index_select(weights.network_item, 0, rows[block], out=inputs)
        hidden = inputs @ weights.item_layer.T
        items, dropout = self._sides(vectors, hidden), self.lists.dropout
        output = self.output.numpy()
        score_pairs(pairs, self.users, items, output, dropout, scores, self.gate)
        if self.layers:
            first = hidden.new_empty(len(_slots(pairs)[0]), hidden.shape[1])
            first_layer(pairs, self.hidden.numpy(), hidden.numpy(), first.numpy())
            last, mask = weights.network_output, self._mask(pairs)
            of_network, active = deeper_scores(first, self.layers, last, mask)
            scores[_slots(pairs)] += of_network.numpy()
            if keep:
                self.active[block.start] = active

    def _part(self, block: slice, grad: Floats, product: Tensor, network: Tensor) -> Part:
        """Return the sums of a block, and fill its rows of the gradients of items' vectors."""
        pairs, vectors = self.blocks.pairs_of(block), self.vectors[block].numpy()
        of_users = Sides(*map(np.zeros_like, self.users))
        by_item = self.output.new_empty(len(vectors), len(self.output))
        of_items = Sides(product[block].numpy(), by_item.numpy())
        both = (self.users.product, vectors)
        sum_gradients(pairs, both, grad, self.gate, of_users, of_items)
        by_user = torch.from_numpy(of_users.hidden)
        deeper: list[Tensor] = []
        if self.layers:
            by_user, by_item, deeper = self._through_layers(block, grad)
        torch.mm(by_item, self.factor[:, None] * self.weights.item_layer, out=network[block])
        item_layer = by_item.T @ self.inputs[block]
        return Part(torch.from_numpy(of_users.product), by_user, item_layer, deeper)

    def _through_layers(
        self, block: slice, grad: Floats
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Return the gradients of the first layer, by user and by item, and of what follows."""
        pairs, active = self.blocks.pairs_of(block), self.active[block.start]
        slope, mask = torch.tensor(grad[_slots(pairs)]), self._mask(pairs)
        last = self.weights.network_output
        first, deeper = deeper_gradients(slope, active, self.layers, last, mask)
        by_user = torch.zeros_like(self.hidden)
        by_item = by_user.new_zeros(block.stop - block.start, by_user.shape[1])
        sum_rows(pairs, first.numpy(), by_user.numpy(), by_item.numpy())
        return by_user, by_item, deeper

    def _product_gradients(self, parts: list[Part], items: Tensor) -> list[Tensor]:
        weights, query = self.weights, self.lists.query
        by_user = _add_up(part.product for part in parts)
        return [
            self._spread(weights.product_user, query, by_user * weights.product_output),
            self._spread(weights.product_item, self.blocks.rows, items),
            (by_user * self.product).sum(0),
        ]

    def _network_gradients(self, parts: list[Part], items: Tensor) -> list[Tensor]:
        weights, query, factor = self.weights, self.lists.query, self.factor[:, None]
        by_user = _add_up(part.hidden for part in parts)
        item_layer = _add_up(part.item_layer for part in parts)
        user_layer, bias = by_user.T @ self.network, by_user.sum(0)
        if self.layers:
            *deeper, output = map(_add_up, zip(*(part.deeper for part in parts), strict=True))
        else:
            # gate (u + i) g summed over all pairs, by way of sums that are there already.
            output = (weights.item_layer * item_layer).sum(1)
            output += (weights.user_layer * user_layer).sum(1) + weights.user_bias * bias
            deeper, output = [], output * self.scale
        rows = by_user @ (factor * weights.user_layer)
        return [
            self._spread(weights.network_user, query, rows),
            self._spread(weights.network_item, self.blocks.rows, items),
            factor * user_layer,
            self.factor * bias,
            factor * item_layer,
            output,
            *deeper,
        ]

    def _sides(self, product: Tensor, hidden: Tensor) -> Sides:
        if self.layers:
            hidden = hidden.new_empty(len(hidden), 0)
        return Sides(product.numpy(), hidden.numpy())

    def _mask(self, pairs: Pairs) -> Tensor:
        output = self.weights.network_output
        kept = torch.from_numpy(kept_units(pairs, self.lists.dropout, len(output)))
        return kept.to(output.dtype) * self.scale

    def _spread(self, table: Tensor, rows: Tensor | None, values: Tensor) -> Tensor:
        """Return the gradient of a table, given that of some rows, or of all."""
        if rows is None:
            return values
        if self.lists.sparse:
            return torch.sparse_coo_tensor(
                rows[None], values, table.shape, check_invariants=False
            )
        # Unlike torch's, numpy's zeros are not written before they are read.
        whole = torch.from_numpy(np.zeros(table.shape, values.numpy().dtype))
        return whole.index_add_(0, rows, values)


def _like(table: Tensor, rows: int | None = None) -> Tensor:
    """Return a table of that shape, or with so many rows, with whatever content."""
    count = len(table) if rows is None else rows
    # Whole steps, so that batches with other numbers of rows find the memory of those before.
    room = (-(-count // ROWS) * ROWS, table.shape[1])
    return torch.from_numpy(recycled(room, table.numpy().dtype))[:count]


def _slots(pairs: Pairs) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the places in the lists of the pairs of some items, their offsets given."""
    some = slice(pairs.offsets[0], pairs.offsets[-1])
    return pairs.row[some], pairs.slot[some]


def _add_up(parts: Iterable[Tensor]) -> Tensor:
    first, *others = parts
    total = first.clone()
    for one in others:
        total += one
    return total
