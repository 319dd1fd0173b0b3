"""What a student is given to learn from, where lists are whole or a user has none."""

from typing import cast

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor, nn

import fairtopk as ft
from fairtopk.data.features import Features
from fairtopk.distillation.student import (
    DistillSampler,
    DocumentDistillSampler,
    TaughtBatch,
    listwise,
    regression,
)
from fairtopk.distillation.teacher import Teaching, place_weight
from fairtopk.kernels.csr import TRAIN
from fairtopk.lists.batch import Batch
from fairtopk.objectives.methods import DistillSettings
from fairtopk.training.samplers import FeatureSampler, ListSampler, ListSizes

N_QUERIES, LENGTH, REACH = 6, 10, 4.0


class OfRows(nn.Module):
    """Scores that are written down, one for each row."""

    def __init__(self, scores: Tensor) -> None:
        super().__init__()
        self.scores = scores

    def forward(self, batch: Batch) -> Tensor:
        return self.scores[batch.item.long()]


class Flat(nn.Module):
    """The number of an item is its score."""

    def forward(self, batch: Batch) -> Tensor:
        return batch.item.float()


def features() -> Features:
    rng = np.random.default_rng(0)
    n_rows = N_QUERIES * LENGTH
    columns = {
        "query": np.repeat(np.arange(N_QUERIES), LENGTH),
        "grade": rng.integers(0, 3, n_rows),
        "kind": np.where(rng.random(n_rows) < 0.4, "a", "b"),
        "x": rng.normal(size=n_rows),
    }
    return Features.from_frame(
        pl.DataFrame(columns), query="query", relevance="grade", group="kind", features=["x"]
    )


@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_a_document_is_due_the_score_of_its_new_place_and_counts_by_it(strength: float) -> None:
    data = features()
    scores = torch.randn(data.n_rows, generator=torch.Generator().manual_seed(0))
    settings = DistillSettings(reach=REACH, mu=1.0)
    sampler = DocumentDistillSampler(
        OfRows(scores), FeatureSampler(data, seed=0), settings, strength=strength
    )
    fair = ft.rerank(
        scores.view(N_QUERIES, LENGTH),
        data.group.reshape(N_QUERIES, LENGTH),
        method="det-const-sort",
        k=LENGTH,
    )
    order = fair.slot if strength else scores.view(N_QUERIES, LENGTH).argsort(descending=True)
    batches = cast("list[TaughtBatch]", list(sampler.epoch(0, batch_size=4)))
    assert sum(len(batch.query) for batch in batches) == N_QUERIES
    for batch in batches:
        for row, query in enumerate(batch.query.tolist()):
            place = order[query].argsort()[batch.item[row].long() - query * LENGTH]
            own = scores.view(N_QUERIES, LENGTH)[query].sort(descending=True).values
            torch.testing.assert_close(batch.due[row], own[place])
            falling = place_weight(place.float(), REACH)
            torch.testing.assert_close(batch.counts[row], falling / falling.sum())


def test_documents_whose_order_is_fair_are_not_taught() -> None:
    scores = torch.randn(N_QUERIES * LENGTH, generator=torch.Generator().manual_seed(0))
    for strength, taught in ((0.0, False), (1.0, True)):
        sampler = DocumentDistillSampler(
            OfRows(scores),
            FeatureSampler(features(), seed=0),
            DistillSettings(),
            strength=strength,
        )
        assert any(True for _ in sampler.epoch(0, batch_size=4)) is taught


def test_who_has_rated_all_items_has_nothing_to_learn() -> None:
    rows = [(user, item) for user in range(3) for item in range(8) if user == 0 or item < 5]
    frame = pl.DataFrame(rows, schema=["user", "item"], orient="row")
    items = pl.DataFrame({"item": range(8), "kind": list("aaabbabb")})
    data = ft.Interactions.from_frame(
        frame, user="user", item="item", rating=None, time=None,
        groups=ft.groups_from(items, item="item", column="kind"),
    )  # fmt: skip
    everything = ft.Lists(data, np.full(len(rows), TRAIN, np.int8), rule="all", short_users=0)
    teaching = Teaching(data.group, DistillSettings(), 1.0, 0)
    sampler = DistillSampler(Flat(), everything.train, teaching)
    (batch,) = cast("list[TaughtBatch]", list(sampler.epoch(0, batch_size=3)))
    mine = batch.query == 0
    assert (batch.counts[mine] == 0).all()
    torch.testing.assert_close(batch.counts[~mine].sum(-1), torch.ones(2))
    for loss in (regression, listwise):
        value, grad = loss(torch.randn(batch.due.shape), batch.due, batch.counts)
        assert value.isfinite()
        assert grad.isfinite().all()
        assert (grad[mine] == 0).all()


def test_behind_the_lists_of_k_song_come_the_items_that_are_taught() -> None:
    lists = ft.split(ft.make_synthetic(ft.SyntheticShape(30, 60, 600)).data)
    beside = ListSampler(lists, ListSizes(rated=3, unrated=10), seed=0)
    settings = DistillSettings(head=20, tail=10, drawn=5, mu=1.0)
    teaching = Teaching(lists.data.group, settings, 1.0, 0)
    alone, both = (
        DistillSampler(Flat(), lists.train, teaching, ranked=one) for one in (None, beside)
    )
    (taught,), (batch,) = (
        cast("list[TaughtBatch]", list(one.epoch(2, batch_size=30))) for one in (alone, both)
    )
    drawn = beside.draw(batch.query.numpy(), epoch=2)
    for name in ("item", "relevance", "group", "mask", "weight"):
        expected = torch.cat([getattr(drawn, name), getattr(taught, name)], -1)
        assert torch.equal(getattr(batch, name), expected)
    assert torch.equal(batch.due, taught.due)
    assert torch.equal(batch.counts, taught.counts)
    assert not batch.mask[:, 13:].any()
