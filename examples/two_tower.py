"""Two towers of your own, trained fairly in a plain loop: ``python examples/two_tower.py``.

The loss takes the scores of any module, and remembers averages per user and per rated item by
the ids that it is given, here strings. Groups are needed to train, never to rank.
"""

import numpy as np
import torch
from torch import Tensor, nn

import fairtopk as ft

K = 10


class TwoTowers(nn.Module):
    """Scores items by the inner product of what two towers make of user and item."""

    def __init__(self, n_users: int, n_items: int, width: int = 16) -> None:
        super().__init__()
        self.user = nn.Sequential(nn.Embedding(n_users, width), nn.Linear(width, width))
        self.item = nn.Sequential(nn.Embedding(n_items, width), nn.Linear(width, width))

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        """Return the scores of each user's items."""
        return (self.user(user)[:, None] * self.item(item)).sum(-1)


def train(lists: ft.Lists, c_relative: float) -> TwoTowers:
    """Return a model that was trained with this weight of the penalty."""
    torch.manual_seed(0)
    names = np.array([f"user-{n}" for n in range(lists.data.n_users)])
    model = TwoTowers(len(names), lists.data.n_items)
    loss = ft.losses.KsoRed(k=K, c_relative=c_relative)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    sampler = ft.ListSampler(lists, ft.ListSizes(rated=10, unrated=60), seed=0)
    for epoch in range(10):
        for batch in sampler.epoch(epoch, batch_size=64):
            scores = model(batch.query, batch.item)
            ids = {"query": names[batch.query], "item": batch.item}
            value = loss(scores, batch.relevance, batch.group, **ids, mask=batch.mask)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
    return model


def main() -> None:
    """Print what models make of the last ratings, without and with the penalty."""
    shape = ft.SyntheticShape(400, 200, 20_000, group_shares=(0.3, 0.7))
    lists = ft.split(ft.make_synthetic(shape, bias=2.0, seed=0).data, test=5, validation=5)
    test = lists.test.sampled(unrated=60, seed=0)
    groups = lists.data.group[test.item]
    for c_relative in (0.0, 0.3):
        scores = train(lists, c_relative)(torch.tensor(test.user), torch.tensor(test.item))
        ndcg = ft.metrics.ndcg(scores, test.relevance, mask=test.mask, k=K).nanmean()
        gaps = ft.metrics.rank_exposure_gap(scores, groups, mask=test.mask, k=K, signed=True)
        print(f"c_relative {c_relative}: ndcg {ndcg:.3f}, gap {gaps.nanmean():+.3f}")


if __name__ == "__main__":
    main()
