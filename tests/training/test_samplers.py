"""Lists with top items: what is drawn from where, what it stands for, what is remembered."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fairtopk as ft
from fairtopk.lists.batch import Batch
from fairtopk.training.samplers import ListSampler, ListSizes

SIZES = ListSizes(rated=4, unrated=20, top=6, head=15)


class Scored(nn.Module):
    """Scores of a table, users by items."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.table = table

    def forward(self, batch: Batch) -> Tensor:
        return self.table[batch.query[:, None], batch.item.long()]


@pytest.fixture(scope="module")
def lists() -> ft.Lists:
    return ft.split(ft.make_synthetic(ft.SyntheticShape(60, 120, 2_400), seed=0).data)


@pytest.fixture(scope="module")
def scorer() -> Scored:
    return Scored(torch.randn(60, 120, generator=torch.Generator().manual_seed(0)))


@pytest.fixture(scope="module")
def sampler(lists: ft.Lists, scorer: Scored) -> ListSampler:
    made = ListSampler(lists, SIZES, seed=0)
    made.refresh(scorer)
    return made


def owned_by(lists: ft.Lists, user: int) -> set[int]:
    train = lists.train
    return set(train.item[train.offsets[user] : train.offsets[user + 1]].tolist())


def heads(lists: ft.Lists, scorer: Scored, size: int) -> list[set[int]]:
    """The best items that each user has not rated, by sorting."""
    found = []
    for user, scores in enumerate(scorer.table.tolist()):
        free = set(range(120)) - owned_by(lists, user)
        found.append(set(sorted(free, key=lambda item: -scores[item])[:size]))
    return found


def test_each_part_of_a_list_comes_from_its_part_of_the_catalogue(
    lists: ft.Lists, scorer: Scored, sampler: ListSampler
) -> None:
    seen = [set[int]() for _ in range(60)]
    head = heads(lists, scorer, SIZES.head)
    for epoch in range(20):
        batch = sampler.draw(np.arange(60), epoch=epoch)
        assert batch.item.shape == (60, 30)
        for user, (items, mask) in enumerate(zip(batch.item, batch.mask, strict=True)):
            kept = items[mask].tolist()
            assert len(set(kept)) == len(kept)
            parts = [items[a:b][mask[a:b]].tolist() for a, b in ((0, 4), (4, 24), (24, 30))]
            owned = owned_by(lists, user)
            assert set(parts[0]) <= owned
            assert not set(parts[1]) & (owned | head[user])
            assert set(parts[2]) <= head[user]
            assert [len(part) for part in parts] == [min(4, len(owned)), 20, 6]
            seen[user] |= set(parts[2])
    assert seen == head  # 20 draws of 6 in 15 miss none but once in some 10,000 users


def test_a_slot_stands_for_its_share_of_its_part(lists: ft.Lists, sampler: ListSampler) -> None:
    batch = sampler.draw(np.arange(60), epoch=1)
    for user, weight in enumerate(batch.weight):
        n_owned = len(owned_by(lists, user))
        drawn = min(4, n_owned)
        rest = 120 - n_owned - 15
        expected = [n_owned / drawn] * drawn + [0.0] * (4 - drawn)
        expected += [rest / 20] * 20 + [15 / 6] * 6
        torch.testing.assert_close(weight, torch.tensor(expected))
    torch.testing.assert_close(batch.n_represented, torch.full((60,), 120.0))
    assert (batch.group == torch.from_numpy(lists.data.group)[batch.item.long()]).all()


def test_the_rest_may_be_shorter_than_what_is_asked_of_it(
    lists: ft.Lists, scorer: Scored
) -> None:
    made = ListSampler(lists, ListSizes(rated=4, unrated=110, top=90, head=200), seed=0)
    made.refresh(scorer)
    batch = made.draw(np.arange(60), epoch=0)
    for user, mask in enumerate(batch.mask):
        n_free = 120 - len(owned_by(lists, user))  # all of which are the head
        assert mask[4:114].sum() == 0
        assert mask[114:].sum() == min(90, n_free)
    torch.testing.assert_close(batch.n_represented, torch.full((60,), 120.0))


def test_one_seed_and_one_head_give_the_same_lists(
    lists: ft.Lists, scorer: Scored, sampler: ListSampler
) -> None:
    again = ListSampler(lists, SIZES, seed=0)
    again.load_state_dict(sampler.state_dict())
    other = ListSampler(lists, SIZES, seed=1)
    other.refresh(scorer)
    one, same, third = (
        torch.cat([batch.item for batch in made.epoch(3, batch_size=size)])
        for made, size in ((sampler, 7), (again, 7), (other, 7))
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, third)
    whole = sampler.draw(np.arange(60), epoch=3).item
    few = sampler.draw(np.array([5, 9]), epoch=3).item
    assert torch.equal(whole[[5, 9]], few)


def test_a_new_model_gives_a_new_head(lists: ft.Lists, scorer: Scored) -> None:
    made = ListSampler(lists, SIZES, seed=0)
    for table in (scorer.table, -scorer.table):
        turned = Scored(table)
        made.refresh(turned)
        assert made.head is not None
        assert [set(row) for row in made.head.tolist()] == heads(lists, turned, SIZES.head)


def test_lists_with_top_items_need_a_model(lists: ft.Lists) -> None:
    made = ListSampler(lists, SIZES, seed=0)
    with pytest.raises(ft.InputError, match=r"need a model: call refresh\(scorer\) first"):
        made.draw(np.arange(2), epoch=0)


def test_lists_without_top_items_look_at_no_model(lists: ft.Lists, scorer: Scored) -> None:
    sizes = ListSizes(rated=4, unrated=20)
    made, plain = (ListSampler(lists, sizes, seed=0) for _ in range(2))
    made.refresh(scorer)
    assert made.state_dict() == {}
    drawn, expected = (one.draw(np.arange(60), epoch=0) for one in (made, plain))
    assert all(torch.equal(a, b) for a, b in zip(drawn, expected, strict=True))
    assert (drawn.weight[drawn.mask] == 1).all()


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"top": 5, "head": 4}, "top must be from 0 to head, got 5 of 4"),
        ({"top": -1}, "top of a list must be at least 0, got -1"),
        ({"top": 5, "per_group": 3}, "speak for their groups themselves; leave out per_group"),
    ],
)
def test_sizes_that_do_not_go_together_are_refused(sizes: dict[str, int], words: str) -> None:
    with pytest.raises(ft.InputError, match=words):
        ListSizes(**sizes)


def test_unrated_items_are_the_list_without_what_was_rated(sampler: ListSampler) -> None:
    batch = sampler.draw(np.arange(60), epoch=0)
    rest = batch.unrated
    assert not rest.mask[:, :4].any()
    assert (rest.group[:, :4] == -1).all()
    assert (rest.weight[:, :4] == 0).all()
    for name in ("mask", "group", "weight"):
        assert torch.equal(getattr(rest, name)[:, 4:], getattr(batch, name)[:, 4:])
    torch.testing.assert_close(rest.n_represented, rest.n_items.float())
