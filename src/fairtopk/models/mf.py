"""Matrix factorisation: h = p_u · q_i + b_i."""

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from fairtopk.kernels.threads import seeded
from fairtopk.lists.batch import Batch
from fairtopk.models._compiled import ItemBias, Weights, is_compiled, pair_scores
from fairtopk.models._torch import products, rows_of


class MatrixFactorization(nn.Module):
    """A vector per user and per item, and a bias per item.

    Args:
        n_users: Number of users.
        n_items: Number of items.
        width: Length of the vectors.
        generator: Of the random start of the vectors.

    Attributes:
        backend: As in `NeuMF`.
        sparse: Whether gradients of the vectors may be sparse tensors.
    """

    backend: str = "auto"
    sparse: bool = False

    def __init__(
        self,
        n_users: int,
        n_items: int,
        *,
        width: int = 64,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        with seeded(0):  # torch first fills them by its own generator
            self.user = nn.Embedding(n_users, width)
            self.item = nn.Embedding(n_items, width)
            self.bias = nn.Embedding(n_items, 1)
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=0.01, generator=generator)
        nn.init.zeros_(self.bias.weight)

    @property
    def compiled(self) -> bool:
        """Whether scores come from compiled loops."""
        return is_compiled(self.backend, self.user.weight)

    def forward(self, batch: Batch) -> Tensor:
        """Return the scores of a batch, ``[Q, L]``."""
        if self.compiled:
            none = self.user.weight.new_empty(0)
            weights = Weights(
                product_user=self.user.weight,
                product_item=self.item.weight,
                product_output=self.user.weight.new_ones(self.user.embedding_dim),
                network_user=none.expand(self.user.num_embeddings, 0),
                network_item=none.expand(self.item.num_embeddings, 0),
                user_layer=none.expand(0, 0),
                user_bias=none,
                item_layer=none.expand(0, 0),
                network_output=none,
            )
            scores = pair_scores(weights, batch.query, batch.item, sparse=self.sparse)
            bias: Tensor = ItemBias.apply(self.bias.weight, batch.item)  # type: ignore[no-untyped-call]
            return scores + bias
        item, (items,) = rows_of(batch.item, [self.item.weight], sparse=self.sparse)
        users = embedding(batch.query, self.user.weight, sparse=self.sparse)
        bias = self.bias(batch.item)[..., 0]
        return products(users, items, item) + bias

    @torch.no_grad()
    def score_all(self, users: Tensor) -> Tensor:
        """Return the scores of all items for some users, ``[Q, n_items]``, without gradient."""
        return torch.addmm(self.bias.weight[:, 0], self.user(users), self.item.weight.T)

    def moments(self, users: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of the scores of all items for some users, ``[Q]`` each.

        With q̄ and S the mean and covariance of the items' vectors, they are p · q̄ and pᵀ S p:
        no score is formed. They carry the gradient to all vectors.
        """
        items = torch.cat([self.item.weight, self.bias.weight], 1)
        centre = items.mean(0)
        apart = items - centre
        covariance = apart.T @ apart / len(items)
        vectors = embedding(users, self.user.weight, sparse=self.sparse)
        vectors = torch.cat([vectors, torch.ones_like(vectors[:, :1])], 1)  # 1 for the bias
        return vectors @ centre, (vectors @ covariance * vectors).sum(-1)

    def rows_read(self, batch: Batch) -> list[tuple[Tensor, Tensor]]:
        """Return the rows of the vectors that `forward` reads, for a lazy optimizer."""
        return [(self.user.weight, batch.query), (self.item.weight, batch.item.reshape(-1))]
