import numpy as np
import pytest
import torch

import fairtopk as ft
from fairtopk.batches import candidate_batch


@pytest.fixture(scope="module")
def lists() -> ft.Lists:
    return ft.split(ft.make_synthetic(ft.SyntheticShape(60, 120, 2_400), seed=0).data)


def test_a_batch_carries_grades_groups_and_pairs_of_its_items(lists: ft.Lists) -> None:
    sampler = ft.ListSampler(lists, ft.ListSizes(rated=4, unrated=30), seed=0)
    batch = sampler.draw(np.array([5, 0, 9]), epoch=2)
    train, data = lists.train, lists.data
    assert batch.query.tolist() == [5, 0, 9]
    assert batch.item.shape == batch.relevance.shape == batch.group.shape == (3, 34)
    slots = batch.pair.numpy()
    assert slots.shape == (3, 4)
    assert (train.item[slots] == batch.item[:, :4].numpy()).all()
    assert (train.rating[slots] == batch.relevance[:, :4].numpy()).all()
    assert (batch.relevance[:, 4:] == 0).all()
    owner = batch.query.numpy()[:, None]
    assert (train.offsets[owner] <= slots).all()
    assert (slots < train.offsets[owner + 1]).all()
    assert (data.group[batch.item.numpy()] == batch.group.numpy()).all()


def test_an_epoch_visits_every_user_once_in_an_order_of_its_own(lists: ft.Lists) -> None:
    sampler = ft.ListSampler(lists, ft.ListSizes(4, 30), seed=0)
    orders = [
        torch.cat([batch.query for batch in sampler.epoch(epoch, batch_size=16)]).tolist()
        for epoch in (0, 0, 1)
    ]
    assert sorted(orders[0]) == list(range(60))
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]


def test_lists_do_not_depend_on_the_size_of_the_batch(lists: ft.Lists) -> None:
    sampler = ft.ListSampler(lists, ft.ListSizes(4, 30), seed=0)
    small = torch.cat([batch.item for batch in sampler.epoch(3, batch_size=7)])
    large = torch.cat([batch.item for batch in sampler.epoch(3, batch_size=60)])
    assert torch.equal(small, large)


def test_evaluation_lists_become_a_batch(lists: ft.Lists) -> None:
    found = lists.test.sampled(unrated=20)
    batch = candidate_batch(found, lists.data.group)
    assert batch.item.shape == (60, 25)
    assert (batch.relevance > 0).sum(1).tolist() == [5] * 60
    assert (batch.pair == -1).all()


def test_list_sizes_without_items_are_refused() -> None:
    with pytest.raises(ft.InputError, match="at least 1 rated and 1 unrated item, got 0 and 5"):
        ft.ListSizes(rated=0, unrated=5)
