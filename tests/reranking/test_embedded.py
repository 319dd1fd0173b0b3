"""On the embedded data, whose bias is known, each method reduces what it is built for.

Scores are those of what was recorded: how often an item was seen, and how it was graded. Each
test fails if the order stays as it was.
"""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fairtopk as ft
from fairtopk.data.synthetic import SIZES
from fairtopk.lists.batch import order
from fairtopk.metrics import representation_gap
from fairtopk.reranking import prefix_table

K = 20
Lists = tuple[Tensor, Tensor]


@pytest.fixture(scope="module")
def lists() -> Lists:
    """The scores and groups of sampled test lists."""
    made = ft.make_synthetic(SIZES["demo"], bias=2.0, seed=0)
    split = ft.split(made.data)
    (batch,) = split.test.batches(unrated=100, seed=0)
    train = split.train
    seen = np.bincount(train.item, minlength=made.data.n_items)
    grade = np.bincount(train.item, train.rating, made.data.n_items) / np.maximum(seen, 1)
    scores = torch.from_numpy(np.log1p(seen) + grade)[batch.item.long()]
    assert batch.mask.all()
    return scores[:200], batch.group[:200].long()


def missed_floors(slot: Tensor, groups: Tensor) -> float:
    """How many prefixes of the top of a list lack items of the first group, on average."""
    protected = groups == 0
    places = torch.arange(1, K + 1)
    floors = (places * protected.double().mean(-1, keepdim=True) + 1e-9).floor()
    counts = protected.gather(-1, slot)[:, :K].cumsum(-1)
    return float((counts < floors).double().sum(-1).mean())


def failing(slot: Tensor, groups: Tensor) -> float:
    """How many lists fail the test of FA*IR, as a share."""
    protected = (groups == 0).numpy()
    counts = np.take_along_axis(protected, slot.numpy(), -1)[:, :K].cumsum(-1)
    tables = [prefix_table(k=K, p=float(p), alpha=0.1).counts for p in protected.mean(-1)]
    return float((counts < np.stack(tables)).any(-1).mean())


def what_groups_get(
    result: Any, relevance: Tensor, groups: Tensor, notion: str
) -> tuple[float, float]:
    """What the two groups get in expectation by a notion, as means over lists."""
    discount = torch.where(torch.arange(groups.shape[1]) < K, 1.0, 0.0).double()
    discount /= torch.log2(torch.arange(groups.shape[1]) + 2.0)
    policies = result.policies
    exposure = torch.stack([policy.matrix() @ discount for policy in policies])
    values = exposure * relevance if notion == "impact" else exposure
    found = []
    for group in (0, 1):
        inside = (groups == group).double()
        got = (values * inside).sum(-1)
        merit = inside if notion == "parity" else inside * relevance
        found.append(got / merit.sum(-1))
    return float(found[0].mean()), float(found[1].mean())


def test_fa_ir_leaves_no_list_that_fails_its_test(lists: Lists) -> None:
    scores, groups = lists
    fair = ft.rerank(scores, groups, method="fa-ir", k=K)
    assert failing(order(scores, torch.ones_like(scores).bool()), groups) > 0.3
    assert failing(fair.slot, groups) == 0


@pytest.mark.parametrize("method", ["det-greedy", "det-cons", "det-relaxed", "det-const-sort"])
def test_det_methods_leave_no_prefix_below_its_floor(method: str, lists: Lists) -> None:
    scores, groups = lists
    fair = ft.rerank(scores, groups, method=method, k=K)
    assert missed_floors(order(scores, torch.ones_like(scores).bool()), groups) > 5
    assert missed_floors(fair.slot, groups) == 0


@pytest.mark.parametrize("notion", ["parity", "treatment", "impact"])
def test_random_rankings_give_groups_the_same_in_expectation(notion: str, lists: Lists) -> None:
    scores, groups = lists[0][:20], lists[1][:20]
    relevance = (scores / 4).sigmoid()
    options: dict[str, Any] = {"method": "exposure-lp", "k": K, "notion": notion}
    off = ft.rerank(scores, groups, relevance=relevance, slack=100.0, **options)
    fair = ft.rerank(scores, groups, relevance=relevance, **options)
    less, more = what_groups_get(off, relevance, groups, notion)
    assert less < 0.8 * more
    first, second = what_groups_get(fair, relevance, groups, notion)
    assert first == pytest.approx(second, abs=1e-7)


def test_a_growing_bonus_moves_the_gap_from_below_0_to_above(lists: Lists) -> None:
    scores, groups = lists
    gaps = []
    for bonus in (0.0, 0.25, 0.5, 1.0, 2.0):
        fair = ft.rerank(scores, groups, method="group-bonus", bonus=bonus)
        gaps.append(float(representation_gap(fair.scores, groups, k=K, signed=True).mean()))
    assert gaps == sorted(gaps)
    assert gaps[0] < -0.05
    assert gaps[-1] > 0.05
    assert min(abs(gap) for gap in gaps) < 0.5 * abs(gaps[0])
