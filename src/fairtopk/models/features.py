"""Scorers of documents by their features: linear, a network, and one that sees the whole list.

Each maps features ``[Q, L, F]`` and a mask ``[Q, L]`` to scores ``[Q, L]``, and brings the
scale of its features with it. None of them is ever given a group.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from fairtopk.errors import InputError
from fairtopk.kernels.threads import seeded
from fairtopk.lists.batch import Batch

FeatureModel = Literal["linear", "mlp", "attention"]
FEATURE_MODELS: tuple[FeatureModel, ...] = ("linear", "mlp", "attention")
HEADS = 4  # of the attention, or as many of them as its width can be divided by
LAYERS = 2  # of the attention


class Standardise(nn.Module):
    """Features less their mean, over their standard deviation, both of the training rows."""

    mean: Tensor
    spread: Tensor

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(n_features))
        self.register_buffer("spread", torch.ones(n_features))

    def fit(self, values: Tensor) -> None:
        """Take mean and deviation from rows of features, ``[n, F]``; constants keep theirs."""
        wide = values.double()
        spread = wide.std(0, correction=0)
        self.mean.copy_(wide.mean(0))
        self.spread.copy_(torch.where(spread > 0, spread, 1.0))

    def forward(self, values: Tensor) -> Tensor:
        """Return features on a common scale."""
        return (values - self.mean) / self.spread


class FeatureScorer(nn.Module):
    """Scores documents by their features.

    The output weighs, without a constant, which would move no ranking: for "linear" the
    features; for "mlp" the last of some hidden layers, each with layer norm, ReLU and dropout;
    for "attention" the result of self-attention over the list, where each document sees the
    others.

    Args:
        name: Linear in the features, a network, or attention over the list.
        n_features: Number of features.
        hidden: Widths of the network's layers; the attention takes the first as its width.
        dropout: Share of units left out in training.
        seed: Of its random start.
    """

    def __init__(
        self,
        name: FeatureModel,
        n_features: int,
        *,
        hidden: tuple[int, ...] = (64,),
        dropout: float = 0.1,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if name not in FEATURE_MODELS:
            raise InputError(
                f"a model of features is one of {', '.join(FEATURE_MODELS)}, got {name!r}"
            )
        self.name = name
        self.scale = Standardise(n_features)
        width = n_features
        with seeded(seed):
            if name == "mlp":
                parts: list[nn.Module] = []
                for units in hidden:
                    parts += [nn.Linear(width, units), nn.LayerNorm(units), nn.ReLU()]
                    parts += [nn.Dropout(dropout)]
                    width = units
                self.layers: nn.Module = nn.Sequential(*parts)
            elif name == "attention":
                width = hidden[0]
                self.enter = nn.Linear(n_features, width)
                heads = max(count for count in range(1, HEADS + 1) if width % count == 0)
                layer = nn.TransformerEncoderLayer(
                    width, heads, 2 * width, dropout, batch_first=True, norm_first=True
                )
                self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
            self.output = nn.Linear(width, 1, bias=False)

    def inputs(self, values: Tensor, mask: Tensor) -> Tensor:
        """Return what the output weighs, ``[Q, L, width]``."""
        inputs: Tensor = self.scale(values)
        if self.name == "mlp":
            inputs = self.layers(inputs)
        elif self.name == "attention":
            inputs = self.layers(self.enter(inputs), src_key_padding_mask=~mask)
        return inputs

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        """Return the score of each document, ``[Q, L]``."""
        scores: Tensor = self.output(self.inputs(values, mask))[..., 0]
        return scores


class OfTable(nn.Module):
    """A scorer of features as a scorer of batches, whose items are rows of a table.

    Args:
        scorer: Scores features.
        values: The table, ``[n, F]``; not part of the weights.
    """

    scorer: FeatureScorer
    values: Tensor

    def __init__(self, scorer: FeatureScorer, values: Tensor) -> None:
        super().__init__()
        self.scorer = scorer
        self.register_buffer("values", values, persistent=False)

    def forward(self, batch: Batch) -> Tensor:
        """Return the scores of a batch, ``[Q, L]``."""
        scores: Tensor = self.scorer(self.values[batch.item.long()], batch.mask)
        return scores

    def restart_last_layer(self, generator: torch.Generator) -> None:
        """Draw the output weights anew."""
        output = self.scorer.output
        bound = output.in_features**-0.5
        nn.init.uniform_(output.weight, -bound, bound, generator=generator)
