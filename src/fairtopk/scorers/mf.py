"""Matrix factorisation: h = p_u · q_i + b_i."""

import torch
from torch import Tensor, nn

from fairtopk.batches import Batch


class MatrixFactorization(nn.Module):
    """A vector per user and per item, and a bias per item.

    Args:
        n_users: Number of users.
        n_items: Number of items.
        width: Length of the vectors.
        generator: Of the random start, N(0, 0.01).
    """

    def __init__(
        self, n_users: int, n_items: int, *, width: int = 64, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.user = nn.Embedding(n_users, width)
        self.item = nn.Embedding(n_items, width)
        self.bias = nn.Embedding(n_items, 1)
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=0.01, generator=generator)
        nn.init.zeros_(self.bias.weight)

    def forward(self, batch: Batch) -> Tensor:
        """Return the scores of a batch, ``[Q, L]``."""
        scores = torch.einsum("qd,qld->ql", self.user(batch.query), self.item(batch.item))
        scores += self.bias(batch.item)[..., 0]
        return scores

    def restart_last_layer(self, generator: torch.Generator) -> None:
        """Leave everything as it is: the product has no weights of its own."""
