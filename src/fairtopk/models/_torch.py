"""NeuMF and matrix factorisation in plain torch, for any device and for ONNX files.

With p, q the vectors of user and item for the product and u, i their halves of the first layer,

    h = p · q + b · deeper(relu(u + i))

for each pair. Gradients are those of autograd. On the CPU training takes the compiled loops of
`models._compiled` instead, with which these scores agree but for rounding.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear

from fairtopk.models._compiled import Layers, Weights, draw_dropout
from fairtopk.models._kernels import CERTAIN

WORD = 8  # bytes


def torch_scores(
    weights: Weights, query: Tensor, item: Tensor, *, dropout: float = 0.0, sparse: bool = False
) -> Tensor:
    """Return NeuMF's scores of lists, ``[Q, L]``; they carry the gradient to all weights.

    Arguments are those of `models._compiled.pair_scores`.
    """
    tables = (weights.product_item, weights.network_item)
    item, (vectors, inputs) = rows_of(item, tables, sparse=sparse)
    users = embedding(query, weights.product_user, sparse=sparse) * weights.product_output
    of_users = embedding(query, weights.network_user, sparse=sparse)
    hidden = linear(of_users, weights.user_layer, weights.user_bias)
    items = linear(inputs, weights.item_layer)
    layers = list(zip(weights.deeper[::2], weights.deeper[1::2], strict=True))
    kept, scale = draw_kept(dropout, (*item.shape, len(weights.network_output)), item.device)
    output = weights.network_output * scale
    network = network_scores(hidden, items, item, layers=layers, output=output, kept=kept)
    return network + products(users, vectors, item)


def products(users: Tensor, items: Tensor, item: Tensor) -> Tensor:
    """Return p · q of all pairs, ``[Q, L]``.

    Args:
        users: Vectors of the users, ``[Q, width]``.
        items: Vectors of all items, ``[n_items, width]``.
        item: The items of each user's list, ``[Q, L]``.
    """
    return (embedding(item, items) @ users[..., None])[..., 0]


def network_scores(
    users: Tensor,
    items: Tensor,
    item: Tensor,
    *,
    layers: Layers,
    output: Tensor,
    kept: Tensor | None = None,
) -> Tensor:
    """Return the network's part of the scores of all pairs, ``[Q, L]``.

    Args:
        users: The users' halves of the first layer, ``[Q, units]``.
        items: The halves of all items, ``[n_items, units]``.
        item: The items of each user's list, ``[Q, L]``.
        layers: The layers after the first.
        output: Output weights of the last layer.
        kept: 1 for units of the last layer that dropout keeps, else 0, ``[Q, L, its units]``;
            None if it keeps all.
    """
    active = (users[:, None] + embedding(item, items)).relu()
    for weight, bias in layers:
        active = linear(active, weight, bias).relu()
    if kept is not None:
        active = active * kept.to(active.dtype)
    return active @ output


def rows_of(
    item: Tensor, tables: Sequence[Tensor], *, sparse: bool
) -> tuple[Tensor, list[Tensor]]:
    """Return lists, ``[Q, L]``, and the tables whose rows they number.

    Those are the tables given; or, if the lists have fewer slots than these have rows, only the
    rows in the lists. Their gradient is then a sparse tensor if `sparse` is set.
    """
    if item.numel() >= len(tables[0]):
        return item, list(tables)
    rows, item = item.unique(return_inverse=True)  # type: ignore[no-untyped-call]
    return item, [embedding(rows, table, sparse=sparse) for table in tables]


def draw_kept(
    share: float, shape: tuple[int, ...], device: torch.device
) -> tuple[Tensor | None, float]:
    """Return 1 for units that dropout keeps and 0 for others, and what it multiplies them by.

    Units are bytes that are drawn eight at a time, 15 times as fast as a draw for each.
    """
    if share == 0:
        return None, 1.0
    seed, keep = draw_dropout(share)
    count = torch.Size(shape).numel()
    words = torch.empty(-(-count // WORD), dtype=torch.int64, device=device)
    words.random_(-(2**63), None, generator=torch.Generator(device).manual_seed(seed))
    # In place: a comparison that makes booleans is not vectorised.
    return words.view(torch.uint8)[:count].lt_(keep).view(shape), CERTAIN / keep
