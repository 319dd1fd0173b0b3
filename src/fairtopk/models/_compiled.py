"""NeuMF and matrix factorisation on the CPU, by way of compiled loops.

Items are taken in blocks of about equal work. A block is a piece for one thread: forward from
the items' half of the first layer to the scores of their pairs, backward from the gradient
of those scores to that of the items' vectors. What is summed over blocks is summed in their
order, so that results have the same bits for any number of threads.
"""

from collections.abc import Sequence
from functools import partial, reduce
from itertools import pairwise
from operator import add
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from fairtopk.errors import InputError
from fairtopk.kernels.threads import recycled, run_all
from fairtopk.models import _kernels as kernels
from fairtopk.models._kernels import CERTAIN, EACH, Dropout, Filled, Floats, Pairs, Sides

# Blocks depend on the batch alone. More than a few cost more than they balance: at 27,000 items
# a pass forward and backward takes 6 % longer with 16 of them than with 8.
MAX_BLOCKS = 8
BLOCK_COST = 24_000  # work, in pairs, that is worth a block
ROW_COST = 4  # of the matrix products of an item, in pairs

# Where less than this share of all items is in the lists, only those are looked at.
FEW = 0.7

Layers = Sequence[tuple[Tensor, Tensor]]  # weight [units, units below] and bias [units]
ROWS = 4_096  # of a table that memory is asked for at a time
COLUMNS = 1_024  # items of a block, when all items are scored


class Block(NamedTuple):
    """Some items and their pairs: a piece of work."""

    items: slice  # which of the items
    pairs: Pairs  # all pairs, with the offsets of these items only
    places: tuple[NDArray[np.int32], NDArray[np.int32]]  # lists and slots of their pairs


def blocks_of(item: NDArray[np.int32], n_items: int) -> tuple[Tensor | None, list[Block]]:
    """Return the items in lists, ``[Q, L]``, or None for all `n_items`, and their blocks."""
    pairs, rows = kernels.group_pairs(item, n_items), None
    offsets = pairs.offsets
    in_lists = np.diff(offsets) > 0
    if np.count_nonzero(in_lists) < FEW * n_items:
        touched = np.flatnonzero(in_lists)
        rows = torch.from_numpy(touched)
        offsets = np.append(offsets[touched], item.size)
    cost = offsets + ROW_COST * np.arange(len(offsets))
    count = min(1 + int(cost[-1]) // BLOCK_COST, MAX_BLOCKS)
    edges = np.unique(np.searchsorted(cost, np.linspace(0, cost[-1], count + 1))).tolist()
    blocks = []
    for start, stop in list(pairwise(edges)) or [(0, 0)]:
        own = offsets[start : stop + 1]
        places = (pairs.row[own[0] : own[-1]], pairs.slot[own[0] : own[-1]])
        blocks.append(Block(slice(start, stop), pairs._replace(offsets=own), places))
    return rows, blocks


class Weights(NamedTuple):
    """Parameters of NeuMF; in a product alone, those of the network have no units."""

    product_user: Tensor  # vectors of the product, [n_users, width]
    product_item: Tensor  # the same of items, [n_items, width]
    product_output: Tensor  # output weights of the product, [width]
    network_user: Tensor  # vectors of the network, [n_users, width]
    network_item: Tensor  # the same of items, [n_items, width]
    user_layer: Tensor  # the users' half of the first layer, [units, width]
    user_bias: Tensor  # its bias, [units]
    item_layer: Tensor  # the items' half, [units, width]
    network_output: Tensor  # output weights of the last hidden layer, [its units]
    deeper: tuple[Tensor, ...] = ()  # weight and bias of each further layer, in order


class Pass:
    """One batch of lists with the weights as they are.

    A network of one hidden layer is a part of the fused loops in `_kernels`. A deeper one
    has no units there; its layers run through torch, block by block.

    Args:
        weights: Of the model.
        query: User numbers, ``[Q]``.
        item: Item numbers, ``[Q, L]``.
        dropout: Of the last hidden layer.
        sparse: Whether gradients of tables are sparse tensors where only some rows have one.
    """

    def __init__(
        self,
        weights: Weights,
        query: Tensor,
        item: NDArray[np.int32],
        dropout: Dropout,
        *,
        sparse: bool,
    ) -> None:
        plain = [one.detach().contiguous() for one in (*weights[:-1], *weights.deeper)]
        first = len(weights) - 1
        self.weights = weights = Weights._make([*plain[:first], tuple(plain[first:])])
        self.query, self.item, self.dropout, self.sparse = query, item, dropout, sparse
        self.layers = list(zip(weights.deeper[::2], weights.deeper[1::2], strict=True))
        self.scale = CERTAIN / dropout.keep
        output = weights.network_output * self.scale
        self.output = output[:0] if self.layers else output
        # What the gradients of the first layer have in common.
        self.factor = torch.ones_like(weights.user_bias) if self.layers else output
        self.active: dict[int, list[Tensor]] = {}

        self.product, self.network = weights.product_user[query], weights.network_user[query]
        self.hidden = torch.addmm(weights.user_bias, self.network, weights.user_layer.T)
        vectors, hidden = self.product * weights.product_output, self.hidden.numpy()
        self.users = Sides(vectors.numpy(), hidden[:, : len(self.output)])

        self.rows, self.blocks = blocks_of(item, len(weights.product_item))
        self.vectors, self.inputs = weights.product_item, weights.network_item
        if self.rows is not None:  # filled block by block
            self.vectors = _like(self.vectors, len(self.rows))
            self.inputs = _like(self.inputs, len(self.rows))

    def scores(self, *, keep: bool) -> Floats:
        """Return the scores, ``[Q, L]``; `keep` what `gradients` needs."""
        self.gate = recycled((self.item.size if keep else 0, len(self.output)), np.uint8)
        scores = np.empty(self.item.shape, self.users.product.dtype)
        run_all([partial(self._score, block, scores, keep) for block in self.blocks])
        return scores

    def _score(self, block: Block, scores: Floats, keep: bool) -> None:
        weights, (items, pairs, places) = self.weights, block
        vectors, inputs = self.vectors[items], self.inputs[items]
        if self.rows is not None:
            torch.index_select(weights.product_item, 0, self.rows[items], out=vectors)
            torch.index_select(weights.network_item, 0, self.rows[items], out=inputs)
        hidden, output = inputs @ weights.item_layer.T, self.output.numpy()
        sides = Sides(vectors.numpy(), hidden.numpy()[:, : len(output)])
        words = np.full(-(-len(output) // 8), EACH)
        filled = Filled(scores, self.gate, words, words.view(np.uint8))
        kernels.score_pairs(pairs, self.users, sides, output, self.dropout, filled)
        if self.layers:
            first = hidden.new_empty(len(places[0]), hidden.shape[1])
            kernels.first_layer(pairs, self.hidden.numpy(), hidden.numpy(), first.numpy())
            active = [first]
            for weight, bias in self.layers:
                active.append(torch.addmm(bias, active[-1], weight.T).relu_())
            of_network = (active[-1] * self._mask(pairs)) @ weights.network_output
            scores[places] += of_network.numpy()
            if keep:
                self.active[items.start] = active

    def gradients(self, grad: Floats) -> list[Tensor]:
        """Return the gradients of all weights, given that of the scores, ``[Q, L]``."""
        product, network = _like(self.vectors), _like(self.inputs)
        parts = run_all(
            [partial(self._sums, block, grad, product, network) for block in self.blocks]
        )
        of_product, *of_network = zip(*parts, strict=True)
        both = run_all(
            [
                partial(self._product_gradients, of_product, product),
                partial(self._network_gradients, of_network, network),
            ]
        )
        return [*both[0], *both[1]]

    def _sums(
        self, block: Block, grad: Floats, product: Tensor, network: Tensor
    ) -> list[Tensor]:
        """Fill a block's rows of the gradients of items' vectors; return its part of others.

        Those are, before factors that all pairs share, the gradients of the users' vectors of
        the product, ``[Q, width]``, the users' halves of the first layer, ``[Q, units]``, the
        items' half, ``[units, width]``, the further layers, and the output weights.
        """
        items, pairs, places = block
        vectors = self.vectors[items].numpy()
        of_users = Sides(*map(np.zeros_like, self.users))
        by_item = self.output.new_empty(len(vectors), len(self.output))
        of_items = Sides(product[items].numpy(), by_item.numpy())
        both = (self.users.product, vectors)
        of_one = Sides(*(np.empty((1, side.shape[1]), grad.dtype) for side in of_users))
        sums = (of_users, of_items, of_one)
        kernels.sum_gradients(pairs, both, grad, self.gate, sums)
        by_user, deeper = torch.from_numpy(of_users.hidden), []
        if self.layers:  # back through them, to the first layer
            active, mask = self.active[items.start], self._mask(pairs)
            slope = torch.tensor(grad[places])
            through = slope[:, None] * self.weights.network_output * mask * (active[-1] > 0)
            deeper = [slope @ (active[-1] * mask)]
            for place, (weight, _) in reversed(list(enumerate(self.layers))):
                below = active[place]
                deeper = [through.T @ below, through.sum(0), *deeper]
                through = through @ weight * (below > 0)
            by_user = torch.zeros_like(self.hidden)
            by_item = by_user.new_zeros(len(vectors), by_user.shape[1])
            kernels.sum_rows(pairs, through.numpy(), by_user.numpy(), by_item.numpy())
        torch.mm(by_item, self.factor[:, None] * self.weights.item_layer, out=network[items])
        item_layer = by_item.T @ self.inputs[items]
        return [torch.from_numpy(of_users.product), by_user, item_layer, *deeper]

    def _product_gradients(self, sums: Sequence[Tensor], items: Tensor) -> list[Tensor]:
        weights, by_user = self.weights, reduce(add, sums)
        return [
            self._spread(weights.product_user, self.query, by_user * weights.product_output),
            self._spread(weights.product_item, self.rows, items),
            (by_user * self.product).sum(0),
        ]

    def _network_gradients(
        self, sums: Sequence[Sequence[Tensor]], items: Tensor
    ) -> list[Tensor]:
        weights, factor = self.weights, self.factor[:, None]
        by_user, item_layer, *deeper = (reduce(add, of_blocks) for of_blocks in sums)
        user_layer, bias = by_user.T @ self.network, by_user.sum(0)
        if self.layers:
            output = deeper.pop()
        else:
            # gate (u + i) g summed over all pairs, by way of sums that are there already.
            output = (weights.item_layer * item_layer).sum(1)
            output += (weights.user_layer * user_layer).sum(1) + weights.user_bias * bias
            output = output * self.scale
        rows = by_user @ (factor * weights.user_layer)
        return [
            self._spread(weights.network_user, self.query, rows),
            self._spread(weights.network_item, self.rows, items),
            factor * user_layer,
            self.factor * bias,
            factor * item_layer,
            output,
            *deeper,
        ]

    def _mask(self, pairs: Pairs) -> Tensor:
        output = self.weights.network_output
        kept = torch.from_numpy(kernels.kept_units(pairs, self.dropout, len(output)))
        return kept.to(output.dtype) * self.scale

    def _spread(self, table: Tensor, rows: Tensor | None, values: Tensor) -> Tensor:
        """Return the gradient of a table, given that of some rows, or of all."""
        if rows is None:
            return values
        if self.sparse:
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
    start = partial(Pass, weights, query, items, draw_dropout(dropout), sparse=sparse)
    (work,) = run_all([start])  # as a piece of work, on one thread
    tensors = (*weights[:-1], *weights.deeper)
    if torch.is_grad_enabled() and any(one.requires_grad for one in tensors):
        scores: Tensor = _PairScores.apply(work, *tensors)  # type: ignore[no-untyped-call]
        return scores
    return torch.from_numpy(work.scores(keep=False))


@torch.no_grad()
def catalogue_scores(weights: Weights, query: Tensor) -> Tensor:
    """Return the scores of all items for some users, ``[Q, n_items]``, without a gradient.

    The network must have one hidden layer.
    """
    _check(query, len(weights.product_user), "users")
    user = weights.product_user[query] * weights.product_output
    hidden = torch.addmm(weights.user_bias, weights.network_user[query], weights.user_layer.T)
    output, n_items = weights.network_output.detach().numpy(), len(weights.product_item)
    scores = recycled((len(query), n_items), output.dtype)

    def score(start: int) -> None:
        block = slice(start, start + COLUMNS)
        torch.mm(user, weights.product_item[block].T, out=torch.from_numpy(scores[:, block]))
        items = weights.item_layer @ weights.network_item[block].T
        kernels.add_network(hidden.numpy(), items.numpy(), output, start, scores)

    run_all([partial(score, start) for start in range(0, n_items, COLUMNS)])
    return torch.from_numpy(scores)


def draw_dropout(share: float) -> Dropout:
    """Return a dropout of `share`, to the nearest 1/256, with a fresh seed."""
    if share == 0:
        return Dropout(seed=0, keep=CERTAIN)
    keep = min(max(round((1 - share) * CERTAIN), 1), CERTAIN - 1)
    return Dropout(int(torch.randint(2**63 - 1, ())), keep)


class _PairScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, work: Pass, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)  # so that a change before the backward pass is noticed
        ctx.work = work
        return torch.from_numpy(work.scores(keep=True))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        ctx.saved_tensors  # noqa: B018 (raises if a weight was changed)
        return None, *ctx.work.gradients(grad.contiguous().numpy())


class ItemBias(torch.autograd.Function):
    """The bias, ``[n_items, 1]``, of items in lists, ``[Q, L]``, with its gradient."""

    @staticmethod
    def forward(ctx: Any, bias: Tensor, item: Tensor) -> Tensor:
        """Return the bias of each item, ``[Q, L]``."""
        ctx.item, ctx.shape = item, bias.shape
        return bias[:, 0][item]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of the bias, given that of what `forward` returned."""
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
