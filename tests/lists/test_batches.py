from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from catalogues import full_lists

import fairtopk as ft
from fairtopk.lists.batch import candidate_batch, list_batch


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
    with pytest.raises(ft.InputError, match="rated of a list must be at least 1, got 0"):
        ft.ListSizes(rated=0, unrated=5)


def test_users_with_few_ratings_have_padding_that_says_nothing(data: ft.Interactions) -> None:
    lists = ft.split(data, test=1, validation=1)
    batch = ft.ListSampler(lists, ft.ListSizes(rated=3, unrated=4), seed=0).draw(
        [0, 2], epoch=0
    )
    assert batch.mask[:, :3].tolist() == [[True, True, False], [True, False, False]]
    padding = ~batch.mask
    for values, nothing in ((batch.relevance, 0), (batch.group, -1), (batch.item, 0)):
        assert (values[padding] == nothing).all()
    assert (batch.weight[padding] == 0).all()
    assert batch.pair.tolist()[1][1:] == [-1, -1]


@pytest.mark.parametrize("users", [[60], [-1], [10**9], [0.5], [[1]]])
def test_users_that_are_not_there_are_refused(lists: ft.Lists, users: object) -> None:
    sampler = ft.ListSampler(lists, ft.ListSizes(4, 30), seed=0)
    with pytest.raises(ft.InputError, match="users must be whole numbers from 0 to 59"):
        sampler.draw(users, epoch=0)  # type: ignore[arg-type]


def test_batches_of_no_size_are_refused(lists: ft.Lists) -> None:
    sampler = ft.ListSampler(lists, ft.ListSizes(4, 30), seed=0)
    with pytest.raises(ft.InputError, match="batch_size must be at least 1, got -5"):
        next(sampler.epoch(0, batch_size=-5))


def test_threads_draw_the_same_lists(lists: ft.Lists) -> None:
    sampler = ft.ListSampler(lists, ft.ListSizes(4, 30), seed=0)
    blocks = [np.arange(start, start + 10) for start in range(0, 60, 10)]
    alone = [sampler.draw(block, epoch=1).item for block in blocks]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda block: sampler.draw(block, epoch=1).item, blocks))
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))


def test_whole_catalogue_blocks_become_batches_of_their_own(lists: ft.Lists) -> None:
    for found in full_lists(lists.test, block=59):
        batch = candidate_batch(found, lists.data.group)
        batch.item[0, 0] = 7  # writable: torch would warn of a view of the catalogue
        assert batch.item.shape == (len(found.user), 120)


def test_a_batch_tells_of_the_whole_list_it_stands_for(lists: ft.Lists) -> None:
    train = lists.train
    for k in (3, None):
        sampler = ft.ListSampler(lists, ft.ListSizes(4, 30), seed=0, ideal_k=k)
        batch = sampler.draw(np.array([5, 0, 9]), epoch=2)
        assert batch.n_items.tolist() == [120] * 3
        for row, user in enumerate([5, 0, 9]):
            grades = train.rating[train.offsets[user] : train.offsets[user + 1]]
            best = np.sort(grades)[::-1][:k]
            ideal = ((2**best - 1) / np.log2(2 + np.arange(len(best)))).sum()
            assert batch.ideal_dcg[row] == pytest.approx(ideal, rel=1e-6)
            assert batch.n_relevant[row] == (grades > 0).sum()


def test_lists_that_stand_for_themselves_are_as_long_as_they_are() -> None:
    mask = torch.tensor([[True, True, False], [True, False, False]])
    relevance = torch.tensor([[0.0, 3.0, 5.0], [0.0, 0.0, 1.0]])
    batch = list_batch(torch.tensor([0, 1]), relevance, torch.zeros(2, 3).int(), mask)
    assert batch.n_items.tolist() == [2, 1]
    assert batch.n_relevant.tolist() == [1, 0]
    assert batch.ideal_dcg.tolist() == [7, 0]
    assert batch.weight.tolist() == [[1, 1, 0], [1, 0, 0]]
    assert batch.group.tolist() == [[0, 0, -1], [0, -1, -1]]
    assert (batch.pair == -1).all()


def test_groups_drawn_apart_stand_beside_the_list(lists: ft.Lists) -> None:
    plain = ft.ListSampler(lists, ft.ListSizes(4, 30), seed=0).draw(np.arange(8), epoch=1)
    sizes = ft.ListSizes(4, 30, per_group=6)
    batch = ft.ListSampler(lists, sizes, seed=0).draw(np.arange(8), epoch=1)
    n_groups = len(lists.data.group_names)
    assert batch.item.shape == (8, 34 + 6 * n_groups)
    for name in ("item", "relevance", "mask", "weight"):
        assert torch.equal(getattr(batch, name)[:, :34], getattr(plain, name))
    assert torch.equal(batch.pair, plain.pair)
    # The list speaks for the query alone, the others for their groups alone.
    assert (batch.group[:, :34] == -1).all()
    apart = slice(34, None)
    assert not batch.mask[:, apart].any()
    assert (batch.relevance[:, apart] == 0).all()
    label, item = batch.group[:, apart], batch.item[:, apart]
    assert label.tolist() == [[g for g in range(n_groups) for _ in range(6)]] * 8
    assert (lists.data.group[item.numpy()] == label.numpy()).all()
    assert (batch.weight[:, apart] == 1).all()


@pytest.mark.parametrize("n_rated", [12, 100])
def test_corrected_weights_make_the_mean_of_a_list_that_of_the_catalogue(
    lists: ft.Lists, n_rated: int
) -> None:
    """Unbiased: over 400 draws the mean lies within 4.5 of its standard errors.

    What is averaged tells rated from unrated items, so that equal weights would be far off.
    """
    users = np.array([3, 17])
    sampler = ft.ListSampler(lists, ft.ListSizes(n_rated, 20), seed=0, corrected=True)
    value = np.random.default_rng(0).normal(size=120)
    drawn, flat = [], []
    for epoch in range(400):
        batch = sampler.draw(users, epoch=epoch)
        here = value[batch.item.numpy()] + 5 * (np.arange(batch.item.shape[1]) < n_rated)
        weight = batch.weight.numpy().astype(np.float64)
        assert (weight[~batch.mask.numpy()] == 0).all()
        drawn.append((here * weight).sum(1) / weight.sum(1))
        flat.append((here * (weight > 0)).sum(1) / (weight > 0).sum(1))
    train = lists.train
    rated = [len(train.item[train.offsets[user] : train.offsets[user + 1]]) for user in users]
    whole = value.mean() + 5 * np.array(rated) / 120
    error = np.std(drawn, axis=0) / np.sqrt(400)
    assert (np.abs(np.mean(drawn, axis=0) - whole) < 4.5 * error).all()
    assert (error < 0.02).all()
    assert (np.abs(np.mean(flat, axis=0) - whole) > 10 * error).all()


def test_training_lists_are_drawn_apart_from_those_that_measure() -> None:
    """Else the items that a user's test list holds would all be pushed down in some epoch."""
    lists = ft.split(ft.load("synthetic"))
    sampler = ft.ListSampler(lists, ft.ListSizes(10, 100), seed=0)
    measured = [part.sampled(unrated=100, seed=0) for part in (lists.validation, lists.test)]
    users = measured[0].user[:200]
    for epoch in range(4):
        drawn = sampler.draw(users, epoch=epoch).item[:, 10:].numpy()
        for part in measured:
            both = zip(drawn, part.item[:200], strict=True)
            shared = [len(np.intersect1d(ours, theirs)) for ours, theirs in both]
            assert np.mean(shared) < 1.5 * 100 * 100 / lists.data.n_items


def test_shares_of_a_list_sum_to_one_and_are_those_of_the_batch_at_hand() -> None:
    mask = torch.tensor([[True, True, True, False], [True, True, False, False]])
    relevance, group = torch.ones(2, 4), torch.zeros(2, 4, dtype=torch.int64)
    batch = list_batch(torch.arange(2), relevance, group, mask)
    assert batch.n_slots.tolist() == [3, 2]
    assert batch.valid.tolist() == mask.tolist()
    third = 1 / 3
    expected = torch.tensor([[third, third, third, 0], [0.5, 0.5, 0, 0]])
    torch.testing.assert_close(batch.slot_weights, expected)
    heavier = batch._replace(weight=torch.tensor([[2.0, 1, 1, 0], [1, 3, 0, 0]]))
    assert heavier.slot_weights.tolist() == [[0.5, 0.25, 0.25, 0], [0.25, 0.75, 0, 0]]


def test_of_lists_that_stand_for_themselves_nothing_was_rated_before() -> None:
    relevance, group = torch.tensor([[0.0, 2.0, 0.0]]), torch.tensor([[0, 1, 0]])
    batch = list_batch(torch.tensor([0]), relevance, group, torch.ones(1, 3, dtype=torch.bool))
    for ours, theirs in zip(batch.unrated, batch, strict=True):
        assert torch.equal(ours, theirs)
