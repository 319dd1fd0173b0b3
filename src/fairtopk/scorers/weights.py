"""The parameters of NeuMF and of its parts, as the compiled path takes them."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Weights(NamedTuple):
    """Parameters of NeuMF; in a product alone, those of the network have no units.

    Attributes:
        product_user: Vectors of the product, ``[n_users, width]``.
        product_item: The same of items, ``[n_items, width]``.
        product_output: Output weights of the product, ``[width]``.
        network_user: Vectors of the network, ``[n_users, width]``.
        network_item: The same of items, ``[n_items, width]``.
        user_layer: The users' half of the first layer, ``[units, width]``.
        user_bias: Its bias, ``[units]``.
        item_layer: The items' half, ``[units, width]``.
        network_output: Output weights of the last hidden layer, ``[its units]``.
        deeper: Weight and bias of each further layer, in order.
    """

    product_user: Tensor
    product_item: Tensor
    product_output: Tensor
    network_user: Tensor
    network_item: Tensor
    user_layer: Tensor
    user_bias: Tensor
    item_layer: Tensor
    network_output: Tensor
    deeper: tuple[Tensor, ...] = ()

    def tensors(self) -> tuple[Tensor, ...]:
        """Return all parameters in a row."""
        return (*self[:-1], *self.deeper)


def detached(tensors: Sequence[Tensor]) -> Weights:
    """Return the weights that `tensors` of some weights stand for, without a gradient."""
    first = len(Weights._fields) - 1
    plain = [one.detach().contiguous() for one in tensors]
    return Weights._make([*plain[:first], tuple(plain[first:])])


def product_weights(user: Tensor, item: Tensor) -> Weights:
    """Return the weights of p_u · q_i, given the vectors of users and items."""
    none = torch.empty(0, dtype=user.dtype)
    return Weights(
        product_user=user,
        product_item=item,
        product_output=torch.ones(user.shape[1], dtype=user.dtype),
        network_user=none.expand(len(user), 0),
        network_item=none.expand(len(item), 0),
        user_layer=none.expand(0, 0),
        user_bias=none,
        item_layer=none.expand(0, 0),
        network_output=none,
    )
