"""The features X of the game: what a colour-blind scorer makes of a user and an item.

They are the inputs of its last layer (in matrix factorisation, the products p_u * q_i) and its
score. A linear scorer of documents has learnt nothing that they need: their own features are X,
as in the original. The mean over the list is taken off each: how two lists compare is nothing
that scorers learn. Each is then divided by its spread over the training lists.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from fairtopk.batches import Batch
from fairtopk.errors import InputError
from fairtopk.kernels.threads import run_all
from fairtopk.scorers.features import Linear, OfTable
from fairtopk.scorers.mf import MatrixFactorization
from fairtopk.scorers.neumf import NeuMF

PIECE = 64  # lists whose features are in hand at a time


def n_features(scorer: nn.Module) -> int:
    """Return how many features `features` has of a pair."""
    if isinstance(scorer, NeuMF):
        return scorer.output.in_features + 1
    if isinstance(scorer, MatrixFactorization):
        return scorer.user.embedding_dim + 1
    if isinstance(scorer, OfTable):
        return scorer.scorer.output.in_features + (not isinstance(scorer.scorer, Linear))
    raise InputError(
        f"robust takes its features from one of the models, got {type(scorer).__name__}"
    )


def features(scorer: nn.Module, batch: Batch) -> Tensor:
    """Return features less their mean over the list, 0 on padding, ``[Q, L, F]``."""
    if isinstance(scorer, OfTable):
        found = _of_table(scorer, batch)
    else:
        found = _neumf(scorer, batch) if isinstance(scorer, NeuMF) else _mf(scorer, batch)
    inside = batch.mask[..., None]
    count = inside.sum(1, keepdim=True).clamp(min=1)
    mean = found.masked_fill(~inside, 0).sum(1, keepdim=True) / count
    return (found - mean).masked_fill(~inside, 0)


def by_pieces(work: Callable[[Batch], Tensor], batch: Batch) -> Tensor:
    """Return what `work` makes of a batch, a piece of its lists at a time."""
    return torch.cat(run_all([partial(work, piece) for piece in _pieces(batch)]))


def _pieces(batch: Batch) -> Iterator[Batch]:
    for start in range(0, len(batch.query), PIECE):
        yield Batch(*(value[start : start + PIECE] for value in batch))


def _neumf(scorer: NeuMF, batch: Batch) -> Tensor:
    product = scorer.product_user(batch.query)[:, None] * scorer.product_item(batch.item)
    of_user = scorer.user_layer(scorer.network_user(batch.query))
    active = (of_user[:, None] + scorer.item_layer(scorer.network_item(batch.item))).relu()
    for layer in scorer.deeper:
        active = layer(active).relu()
    inputs = torch.cat([product, active], -1)
    return torch.cat([inputs, scorer.output(inputs)], -1)


def _mf(scorer: nn.Module, batch: Batch) -> Tensor:
    assert isinstance(scorer, MatrixFactorization)
    inputs = scorer.user(batch.query)[:, None] * scorer.item(batch.item)
    score = inputs.sum(-1, keepdim=True) + scorer.bias(batch.item)
    return torch.cat([inputs, score], -1)


def _of_table(scorer: OfTable, batch: Batch) -> Tensor:
    inputs = scorer.inputs(batch)
    if isinstance(scorer.scorer, Linear):
        return inputs
    return torch.cat([inputs, scorer.scorer.output(inputs)], -1)
