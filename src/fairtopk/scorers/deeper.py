"""The layers of NeuMF's network after the first, for some pairs."""

from collections.abc import Sequence

import torch
from torch import Tensor

Layers = Sequence[tuple[Tensor, Tensor]]  # weight [units, units below] and bias [units]


def deeper_scores(
    first: Tensor, layers: Layers, output: Tensor, mask: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Return the network's part of the scores, ``[n]``, and the activations of all layers.

    Args:
        first: Activations of the first layer, ``[n, units]``.
        layers: The layers after it.
        output: Output weights of the last layer.
        mask: What dropout multiplies the last layer by.
    """
    active = [first]
    for weight, bias in layers:
        active.append(torch.addmm(bias, active[-1], weight.T).relu_())
    return (active[-1] * mask) @ output, active


def deeper_gradients(
    slope: Tensor, active: list[Tensor], layers: Layers, output: Tensor, mask: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Return the gradient of the first layer before its relu, and those of all weights.

    Args:
        slope: Gradient of the scores, ``[n]``.
        active: As `deeper_scores` returned them.
        layers: The layers after the first.
        output: Output weights of the last layer.
        mask: What dropout multiplied the last layer by.

    Returns:
        ``[n, units]``, and a list of the layers' weights and biases, the output weights last.
    """
    grad = slope[:, None] * output * mask * (active[-1] > 0)
    weights = [slope @ (active[-1] * mask)]
    for (weight, _), below in zip(reversed(layers), reversed(active[:-1]), strict=True):
        weights = [grad.T @ below, grad.sum(0), *weights]
        grad = grad @ weight * (below > 0)
    return grad, weights
