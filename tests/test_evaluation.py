from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fairtopk as ft
from fairtopk.batches import Batch, candidate_batch
from fairtopk.evaluation import evaluate, evaluate_full, sampled_blocks
from fairtopk.lists import HeldOut
from fairtopk.metrics.summary import summarise
from fairtopk.scorers.neumf import NeuMF

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
    for block in part.full(block=25):
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
    monkeypatch.setattr("fairtopk.scoring.BATCH_SLOTS", 1_000)
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
    monkeypatch.setattr("fairtopk.evaluation.BLOCK", 25)
    blocks = sampled_blocks(lists.test, unrated=30, seed=4)
    whole = lists.test.sampled(unrated=30, seed=4)
    assert [len(block.query) for block in blocks] == [25, 25, 10]
    for name in ("item", "mask", "relevance"):
        joined = torch.cat([getattr(block, name) for block in blocks])
        assert np.array_equal(joined.numpy(), getattr(whole, name))


def test_blocks_are_measured_as_one(lists: ft.Lists, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = Table(60, 120)
    (block,) = sampled_blocks(lists.test, unrated=30, seed=0)
    monkeypatch.setattr("fairtopk.evaluation.BLOCK", 7)
    several = evaluate(scorer, iter(sampled_blocks(lists.test, unrated=30, seed=0)), KS)
    values = summarise(scorer(block), block.relevance, block.group, ks=KS, mask=block.mask)
    assert several.keys() == values.keys()
    for name, value in values.items():
        torch.testing.assert_close(several[name], value, rtol=0, atol=0, equal_nan=True)
