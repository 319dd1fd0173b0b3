"""Orders between a teacher's own and a fair one."""

import pytest
import torch

import fairtopk as ft
from fairtopk.distillation.teacher import taught_order
from fairtopk.lists.batch import order
from fairtopk.objectives.methods import DistillSettings, Reranker
from fairtopk.reranking.lists import Candidates

RERANKERS: tuple[Reranker, ...] = ("det-const-sort", "det-greedy", "exposure-lp")


def some_lists(n_groups: int = 2) -> Candidates:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(20, 30, generator=generator)
    mask = torch.rand(20, 30, generator=generator) < 0.9
    group = torch.randint(0, n_groups, (20, 30), generator=generator).to(torch.int16)
    scores[group == 0] -= 1  # which is behind
    group = group.masked_fill(~mask, -1)
    return Candidates(scores, mask, group, scores, torch.arange(20))


@pytest.mark.parametrize("reranker", RERANKERS)
def test_without_strength_it_is_the_teachers_own(reranker: Reranker) -> None:
    lists = some_lists()
    found = taught_order(lists, DistillSettings(reranker=reranker), k=10, strength=0, seed=0)
    own = order(lists.scores, lists.mask)
    there = lists.mask.gather(-1, own)
    assert torch.equal(found[there], own[there])


@pytest.mark.slow
@pytest.mark.parametrize("reranker", RERANKERS)
@pytest.mark.parametrize("n_groups", [2, 4])
def test_at_full_strength_it_is_the_rerankers(reranker: Reranker, n_groups: int) -> None:
    lists = some_lists(n_groups)
    found = taught_order(lists, DistillSettings(reranker=reranker), k=10, strength=1, seed=0)
    fair = ft.rerank(
        lists.scores, lists.group, method=reranker, k=10, mask=lists.mask, infeasible="mark"
    )
    assert torch.equal(found, fair.slot)


def test_the_group_that_is_behind_rises_with_strength() -> None:
    lists = some_lists()
    shares = []
    for strength in (0.0, 0.25, 0.5, 0.75, 1.0):
        slot = taught_order(lists, DistillSettings(), k=10, strength=strength, seed=0)
        shares.append((lists.group.gather(-1, slot[:, :10]) == 0).float().mean().item())
    assert shares == sorted(shares)
    assert shares[0] < shares[2] < shares[-1]
