from dataclasses import replace

import numpy as np
import pytest
import torch
from catalogues import full_lists
from torch import Tensor, nn

import fairtopk as ft
from fairtopk.evaluation import (
    GapContext,
    evaluate,
    evaluate_full,
    evaluate_full_with_context,
    fill_relevance,
    gap_context,
    sizes_without,
    wholly_in_top,
)
from fairtopk.kernels.ranking import UserItems
from fairtopk.lists.batch import Batch, candidate_batch
from fairtopk.lists.users import HeldOut
from fairtopk.metrics import chance_floors, parities, score_spread
from fairtopk.metrics.gaps import summarise
from fairtopk.models.neumf import NeuMF

KS = [1, 20, 3, 500]


class Table(nn.Module):
    """Scores from a table: the same in whatever list an item stands."""

    def __init__(self, n_users: int, n_items: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.scores = torch.randint(-40, 40, (n_users, n_items), generator=generator) / 8

    def forward(self, batch: Batch) -> Tensor:
        return self.scores[batch.query[:, None], batch.item]


@pytest.fixture(scope="module")
def lists() -> ft.Lists:
    data = ft.make_synthetic(ft.SyntheticShape(60, 120, 1_800), seed=0).data
    return ft.split(data)


def dense(scorer: nn.Module, part: HeldOut) -> dict[str, Tensor]:
    """The metrics of the whole catalogue as lists of all items, what is left out masked."""
    found: dict[str, list[Tensor]] = {}
    for block in full_lists(part, block=25):
        batch = candidate_batch(block, part.data.group)
        scores = scorer(batch)
        values = summarise(scores, batch.relevance, batch.group, ks=KS, mask=batch.mask)
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    return {name: torch.cat(parts) for name, parts in found.items()}


@pytest.mark.parametrize("part", ["validation", "test"])
def test_the_whole_catalogue_is_measured_as_lists_of_all_items_are(
    lists: ft.Lists, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer, held_out = Table(60, 120), getattr(lists, part)
    monkeypatch.setattr("fairtopk.models.scoring.BATCH_SLOTS", 1_000)
    found, expected = evaluate_full(scorer, held_out, KS), dense(scorer, held_out)
    assert found.keys() == expected.keys()
    assert len(found["ndcg@1"]) == 60
    for name, values in expected.items():
        torch.testing.assert_close(
            found[name].float(), values, rtol=1e-5, atol=1e-7, equal_nan=True
        )


@pytest.mark.parametrize("labels", [[0] * 120, [-1] * 120, [0, 1, 2, -1] * 30])
def test_groups_may_be_one_none_or_many(lists: ft.Lists, labels: list[int]) -> None:
    names = tuple(str(number) for number in range(max(labels) + 1))
    data = replace(lists.data, group=np.array(labels, np.int32), group_names=names)
    scorer, held_out = Table(60, 120), ft.split(data).test
    found, expected = evaluate_full(scorer, held_out, KS), dense(scorer, held_out)
    for name, values in expected.items():
        torch.testing.assert_close(
            found[name].float(), values, rtol=1e-5, atol=1e-7, equal_nan=True
        )
    assert found["exposure_gap@20"].isnan().all() == (len(names) < 2)


def dense_beside(scorer: nn.Module, part: HeldOut) -> GapContext:
    """What belongs beside the gaps, from lists of all items, what is left out masked."""
    (block,) = full_lists(part, block=60)
    batch = candidate_batch(block, part.data.group)
    scores = scorer(batch)
    return GapContext(
        chance_floors(scores, batch.group, ks=KS, mask=batch.mask),
        score_spread(scores, mask=batch.mask),
        parities(scores, batch.relevance, batch.group, ks=KS, mask=batch.mask),
    )


@pytest.mark.parametrize("n_groups", [2, 3])
def test_the_whole_catalogue_has_beside_its_gaps_what_lists_of_all_items_have(
    lists: ft.Lists, n_groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = [0, 1, 1, 1, 2 % n_groups, -1] * 20
    names = tuple(str(number) for number in range(n_groups))
    data = replace(lists.data, group=np.array(labels, np.int32), group_names=names)
    scorer, held_out = Table(60, 120), ft.split(data).test
    monkeypatch.setattr("fairtopk.models.scoring.BLOCK", 25)
    values, found = evaluate_full_with_context(scorer, held_out, KS, seed=0)
    expected = dense_beside(scorer, held_out)
    for name, value in evaluate_full(scorer, held_out, KS).items():
        torch.testing.assert_close(values[name], value, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(found.spread.float(), expected.spread)
    assert repr(found.overall) == repr(expected.overall)
    assert found.floors.keys() == expected.floors.keys()
    for name, floor in expected.floors.items():
        tolerance = 4 * (floor.error + found.floors[name].error) + 1e-12
        assert found.floors[name].value == pytest.approx(floor.value, abs=tolerance)
        assert found.floors[name].error <= 0.01 * floor.value
        exact = floor.rounds == 0
        assert exact == (found.floors[name].rounds == 0)
        assert exact == (n_groups == 2 and name.startswith("representation"))


def test_blocks_of_the_catalogue_change_floors_by_no_more_than_the_order_of_adding_up(
    lists: ft.Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer = Table(60, 120)
    found = []
    monkeypatch.setattr("fairtopk.evaluation.ENOUGH_SHUFFLES", 20 * 60)
    for block in (60, 25, 7):
        monkeypatch.setattr("fairtopk.models.scoring.BLOCK", block)
        found.append(evaluate_full_with_context(scorer, lists.test, [5, 20], seed=1)[1])
    for other in found[1:]:
        assert other.overall == found[0].overall
        for name, floor in other.floors.items():
            assert floor == pytest.approx(found[0].floors[name], rel=1e-12)
    again = evaluate_full_with_context(scorer, lists.test, [5, 20], seed=2)[1]
    assert again.floors["exposure_gap_floor@5"] != found[0].floors["exposure_gap_floor@5"]


def test_lists_without_two_groups_have_no_floor(lists: ft.Lists) -> None:
    data = replace(lists.data, group=np.zeros(120, np.int32), group_names=("a",))
    beside = evaluate_full_with_context(Table(60, 120), ft.split(data).test, [5], seed=0)[1]
    assert all(np.isnan(floor.value) for floor in beside.floors.values())
    assert all(np.isnan(one.value) for one in beside.overall.values())


def test_sampled_lists_have_parity_beside_their_gaps(lists: ft.Lists) -> None:
    scorer, blocks = Table(60, 120), lists.test.batches(unrated=30, seed=0)
    found = gap_context(scorer, blocks, [5, 20], seed=3)
    (block,) = blocks
    scores = scorer(block)
    expected = parities(
        scores, block.relevance, block.group, ks=[5, 20], mask=block.mask, seed=3
    )
    assert found.overall == expected
    assert list(expected) == ["rsp@5", "rsp@20", "reo@5", "reo@20"]


def test_the_built_in_scorer_is_measured_by_its_scores_of_all_items(lists: ft.Lists) -> None:
    generator = torch.Generator().manual_seed(0)
    scorer = NeuMF(60, 120, generator=generator)
    for parameter in scorer.parameters():
        nn.init.normal_(parameter, std=0.3, generator=generator)

    class Same(nn.Module):
        def forward(self, batch: Batch) -> Tensor:
            return scorer.score_all(batch.query)

    found, expected = evaluate_full(scorer, lists.test, KS), dense(Same(), lists.test)
    for name, values in expected.items():
        torch.testing.assert_close(
            found[name].float(), values, rtol=1e-4, atol=1e-6, equal_nan=True
        )


def test_blocks_hold_the_sampled_lists_of_the_part(
    lists: ft.Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairtopk.lists.users.BLOCK", 25)
    blocks = lists.test.batches(unrated=30, seed=4)
    whole = lists.test.sampled(unrated=30, seed=4)
    assert [len(block.query) for block in blocks] == [25, 25, 10]
    for name in ("item", "mask", "relevance"):
        joined = torch.cat([getattr(block, name) for block in blocks])
        assert np.array_equal(joined.numpy(), getattr(whole, name))


def test_blocks_are_measured_as_one(lists: ft.Lists, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = Table(60, 120)
    (block,) = lists.test.batches(unrated=30, seed=0)
    monkeypatch.setattr("fairtopk.lists.users.BLOCK", 7)
    several = evaluate(scorer, iter(lists.test.batches(unrated=30, seed=0)), KS)
    values = summarise(scorer(block), block.relevance, block.group, ks=KS, mask=block.mask)
    assert several.keys() == values.keys()
    for name, value in values.items():
        torch.testing.assert_close(several[name], value, rtol=0, atol=0, equal_nan=True)


USERS = np.array([2, 0])
OFFSETS = np.array([0, 2, 3, 5])  # items 1, 4 of user 0, item 2 of user 1, items 0, 3 of user 2
ITEM = np.array([1, 4, 2, 0, 3], np.int32)


@pytest.mark.kernel
def test_sizes_are_those_of_the_catalogue_without_the_users_items() -> None:
    group = np.array([0, 1, 1, -1, 1], np.int32)
    assert sizes_without(USERS, OFFSETS, ITEM, group, 3).tolist() == [[0, 3, 0], [1, 1, 0]]


def test_lists_that_are_wholly_in_the_top_are_told_of() -> None:
    lengths = np.array([4, 10, 10, 12])
    assert wholly_in_top(lengths, [3, 9]) == []
    (sentence,) = wholly_in_top(lengths, [9, 10, 12])
    assert sentence.startswith("at K = 10, 12 all items are in the top of 3 or more of 4 lists")


@pytest.mark.kernel
def test_relevance_is_what_that_user_rated_the_item() -> None:
    rating = np.array([1.0, 2.0, 3.0, 4.0, 5.0], np.float32)
    listed = np.array([[4, 3, 0, 1], [4, 3, 1, -1]], np.int32)
    found, room = np.zeros((2, 4), np.float32), np.zeros(5, np.float32)
    fill_relevance(listed, UserItems(USERS, OFFSETS, ITEM), rating, room, found)
    assert not room.any()
    assert found.tolist() == [[0, 5, 4, 0], [2, 0, 1, 0]]
