"""NeuMF (He et al. 2017): a product of vectors and a small network, joined by a linear layer.

With p, q the vectors of user and item for the product, and p', q' those for the network,

    h = a · (p * q) + b · relu(W_u p' + W_i q' + d)

for one hidden layer. The first layer acts on the concatenation [p'; q'], so its two halves are
computed once per user and once per item and only added per pair.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn

from fairtopk.batches import Batch


class NeuMF(nn.Module):
    """Neural matrix factorisation as in the paper's experiments.

    Args:
        n_users: Number of users.
        n_items: Number of items.
        width: Length of the four embeddings.
        hidden: Widths of the network's layers, at least one.
        dropout: Share of the last hidden layer that is switched off in training.
        generator: Of the random start, N(0, 0.01).
    """

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

    def forward(self, batch: Batch) -> Tensor:
        """Return the scores of a batch, ``[Q, L]``."""
        width = self.product_user.embedding_dim
        of_product, of_network = self.output.weight[0, :width], self.output.weight[0, width:]
        user = self.product_user(batch.query) * of_product
        scores = torch.einsum("qd,qld->ql", user, self.product_item(batch.item))
        # Where lists repeat items, transforming the whole catalogue once is the cheaper way.
        items = self.item_layer(self.network_item.weight)
        active = self.user_layer(self.network_user(batch.query))[:, None, :]
        active = (active + nn.functional.embedding(batch.item, items)).relu()
        for layer in self.deeper:
            active = layer(active).relu()
        scores += self.dropout(active) @ of_network
        return scores

    def restart_last_layer(self, generator: torch.Generator) -> None:
        """Draw the output layer anew, as the paper does between warm-up and fine-tuning."""
        nn.init.normal_(self.output.weight, std=0.01, generator=generator)
