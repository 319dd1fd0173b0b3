"""Scorers of users and items in operations that torch.export can follow.

The models themselves have loops and gradients of their own, which it cannot. What a score needs
of a user or an item alone is worked out before, once for each of them.
"""

from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from fairtopk.errors import InputError
from fairtopk.scorers.mf import MatrixFactorization
from fairtopk.scorers.neumf import NeuMF


def served(scorer: nn.Module) -> "ServedProduct | ServedNeuMF":
    """Return a module that takes user and item numbers and gives the scores of `scorer`."""
    if isinstance(scorer, MatrixFactorization):
        return ServedProduct(scorer)
    if isinstance(scorer, NeuMF):
        return ServedNeuMF(scorer)
    raise InputError(f"export takes the models neumf and mf, got {type(scorer).__name__}")


class ServedProduct(nn.Module):
    """Matrix factorisation, as it is served.

    Args:
        scorer: Whose scores it gives; later changes to its weights are not seen.
    """

    users: Tensor
    items: Tensor
    bias: Tensor

    def __init__(self, scorer: MatrixFactorization) -> None:
        super().__init__()
        tables = {"users": scorer.user, "items": scorer.item, "bias": scorer.bias}
        for name, table in tables.items():
            self.register_buffer(name, table.weight.detach().clone())

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        """Return the scores of lists, ``[Q, L]``."""
        return (
            _products(self.users, self.items, user, item) + embedding(item, self.bias)[..., 0]
        )


class ServedNeuMF(nn.Module):
    """NeuMF as it is served: its first layer and the product's output weights are worked in.

    Args:
        scorer: Whose scores it gives; later changes to its weights are not seen.
    """

    users: Tensor
    items: Tensor
    hidden_users: Tensor
    hidden_items: Tensor
    output: Tensor

    @torch.no_grad()
    def __init__(self, scorer: NeuMF) -> None:
        super().__init__()
        weights, width = scorer.output.weight[0], scorer.product_user.embedding_dim
        tables = {
            "users": scorer.product_user.weight * weights[:width],
            "items": scorer.product_item.weight,
            "hidden_users": scorer.user_layer(scorer.network_user.weight),
            "hidden_items": scorer.item_layer(scorer.network_item.weight),
            "output": weights[width:],
        }
        for name, table in tables.items():
            self.register_buffer(name, table.detach().clone())
        self.deeper = deepcopy(scorer.deeper)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        """Return the scores of lists, ``[Q, L]``."""
        of_users = embedding(user, self.hidden_users)[:, None]
        active = (of_users + embedding(item, self.hidden_items)).relu()
        for layer in self.deeper:
            active = layer(active).relu()
        return _products(self.users, self.items, user, item) + active @ self.output


def _products(users: Tensor, items: Tensor, user: Tensor, item: Tensor) -> Tensor:
    """Return p_u · q_i of all pairs, ``[Q, L]``."""
    return (embedding(item, items) @ embedding(user, users)[..., None])[..., 0]
