"""NeuMF (He et al. 2017): a product of vectors and a small network, joined by a linear layer.

With p, q the vectors of user and item for the product, and p', q' those for the network,

    h = a · (p * q) + b · relu(W_u p' + W_i q' + d)

for one hidden layer. The first layer acts on the concatenation [p'; q'], so its two halves are
computed once per user and once per item and only added per pair.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn

from fairtopk.kernels.threads import seeded
from fairtopk.lists.batch import Batch
from fairtopk.models._compiled import Weights, catalogue_scores, is_compiled, pair_scores
from fairtopk.models._torch import torch_scores


class NeuMF(nn.Module):
    """Neural matrix factorisation as in the paper's experiments.

    Args:
        n_users: Number of users.
        n_items: Number of items.
        width: Length of the four embeddings.
        hidden: Widths of the network's layers, at least one.
        dropout: Share of the last hidden layer that is switched off in training.
        generator: Of the random start, N(0, 0.01).

    Attributes:
        backend: "compiled" for loops on the CPU, "torch" for torch's own operations, "auto" for
            the first where it is possible. It may be set at any time.
        sparse: Whether gradients of the embeddings may be sparse tensors, as in `nn.Embedding`.
    """

    backend: str = "auto"
    sparse: bool = False

    def __init__(
        self,
        n_users: int,
        n_items: int,
        *,
        width: int = 64,
        hidden: tuple[int, ...] = (64,),
        dropout: float = 0.2,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        with seeded(0):  # torch first fills them by its own generator
            self.product_user = nn.Embedding(n_users, width)
            self.product_item = nn.Embedding(n_items, width)
            self.network_user = nn.Embedding(n_users, width)
            self.network_item = nn.Embedding(n_items, width)
            self.user_layer = nn.Linear(width, hidden[0])
            self.item_layer = nn.Linear(width, hidden[0], bias=False)
            self.deeper = nn.ModuleList(nn.Linear(*widths) for widths in pairwise(hidden))
            self.dropout = nn.Dropout(dropout)
            self.output = nn.Linear(width + hidden[-1], 1, bias=False)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            else:
                nn.init.normal_(parameter, std=0.01, generator=generator)

    @property
    def compiled(self) -> bool:
        """Whether scores come from compiled loops."""
        return is_compiled(self.backend, self.product_user.weight)

    def forward(self, batch: Batch) -> Tensor:
        """Return the scores of a batch, ``[Q, L]``."""
        score = pair_scores if self.compiled else torch_scores
        return score(
            self._weights(),
            batch.query,
            batch.item,
            dropout=self.dropout.p if self.dropout.training else 0.0,
            sparse=self.sparse,
        )

    @torch.no_grad()
    def score_all(self, users: Tensor) -> Tensor:
        """Return the scores of all items for some users, ``[Q, n_items]``, without gradient.

        Nothing is switched off, in training neither.
        """
        if self.compiled and not self.deeper:
            return catalogue_scores(self._weights(), users)
        weights = self._weights()
        user: Tensor = self.product_user(users) * weights.product_output
        scores = user @ self.product_item.weight.T
        items = self.item_layer(self.network_item.weight)
        # User by user, because [Q, n_items, units] may not fit into memory.
        hidden = self.user_layer(self.network_user(users))
        for row, of_user in zip(scores, hidden, strict=True):
            active = (of_user + items).relu()
            for layer in self.deeper:
                active = layer(active).relu()
            row += active @ weights.network_output
        return scores

    def rows_read(self, batch: Batch) -> list[tuple[Tensor, Tensor]]:
        """Return the rows of each embedding that `forward` reads, for a lazy optimizer."""
        of_users = (self.product_user.weight, self.network_user.weight)
        of_items = (self.product_item.weight, self.network_item.weight)
        item = batch.item.reshape(-1)
        return [(one, batch.query) for one in of_users] + [(one, item) for one in of_items]

    def _weights(self) -> Weights:
        width = self.product_user.embedding_dim
        return Weights(
            product_user=self.product_user.weight,
            product_item=self.product_item.weight,
            product_output=self.output.weight[0, :width],
            network_user=self.network_user.weight,
            network_item=self.network_item.weight,
            user_layer=self.user_layer.weight,
            user_bias=self.user_layer.bias,
            item_layer=self.item_layer.weight,
            network_output=self.output.weight[0, width:],
            deeper=tuple(self.deeper.parameters()),
        )

    def restart_last_layer(self, generator: torch.Generator) -> None:
        """Draw the output layer anew, as the paper does between warm-up and fine-tuning."""
        nn.init.normal_(self.output.weight, std=0.01, generator=generator)
