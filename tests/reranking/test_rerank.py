import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import fairtopk as ft
from fairtopk.errors import InputError
from fairtopk.metrics import group_rank_exposures, ndcg, rank_exposure_gap, representation_gap
from fairtopk.reranking.rerank import RERANKERS, Reranked

pytest.importorskip("scipy")  # of exposure-lp

OPTIONS: dict[str, dict[str, Any]] = {"group-bonus": {"bonus": 0.7}}
SCORES = [[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]]
GROUPS = [[0, 1, 1], [0, 1, -1]]
every_method = pytest.mark.parametrize("method", RERANKERS)


def reranked(method: str, scores: Any, groups: Any, **options: Any) -> Reranked:
    given_options = {**OPTIONS.get(method, {}), **options}
    return ft.rerank(scores, groups, method=method, infeasible="mark", **given_options)


@pytest.fixture(scope="module")
def biased() -> tuple[Tensor, Tensor]:
    """The scores of popular items, of a data set with a strong bias against group 0."""
    shape = ft.SyntheticShape(60, 120, 3_000)
    synthetic = ft.make_synthetic(shape, bias=10.0, seed=1)
    counts = np.bincount(synthetic.data.item, minlength=120)
    taste = synthetic.truth.user_factors @ synthetic.truth.item_factors.T
    scores = torch.from_numpy(np.log1p(counts) + 0.3 * taste)[:30]
    groups = torch.from_numpy(synthetic.data.group).long().expand(30, -1)
    return scores, groups


def gap(measure: Callable[..., Tensor], scores: Tensor, groups: Tensor) -> float:
    return float(measure(scores, groups, k=20, signed=True).mean())


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("fa-ir", {"alpha": 0.5}),
        ("det-greedy", {}),
        ("det-cons", {}),
        ("det-relaxed", {}),
        ("det-const-sort", {}),
        ("group-bonus", {"bonus": 0.7}),
    ],
)
def test_a_biased_order_is_nearer_to_equal_shares_of_the_top(
    method: str, options: dict[str, Any], biased: tuple[Tensor, Tensor]
) -> None:
    scores, groups = biased
    before = gap(representation_gap, scores, groups)
    fair = ft.rerank(scores, groups, method=method, k=20, **options)
    assert before < -0.1
    assert before / 2 < gap(representation_gap, fair.scores, groups) < -before / 2


def test_a_biased_order_gets_equal_exposure_in_expectation(
    biased: tuple[Tensor, Tensor],
) -> None:
    scores, groups = biased[0][:3], biased[1][:3]
    assert gap(rank_exposure_gap, scores, groups) < -0.05
    fair = ft.rerank(scores, groups, method="exposure-lp", k=20)
    for policy in fair.policies:
        rank = policy.slot.argsort(-1)
        exposures = group_rank_exposures(-rank.double(), groups[: len(rank)], k=20)
        a, b = policy.probability @ exposures
        assert float(a) == pytest.approx(float(b), abs=1e-7)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("fa-ir", {"p": 0.01, "alpha": 0.01}),
        *((method, {"targets": {}}) for method in RERANKERS if method.startswith("det-")),
        ("exposure-lp", {"slack": 100.0}),
        ("group-bonus", {"bonus": 0.0}),
    ],
)
def test_with_nothing_asked_for_the_order_stays(
    method: str, options: dict[str, Any], biased: tuple[Tensor, Tensor]
) -> None:
    scores, groups = biased[0][:5], biased[1][:5]
    fair = ft.rerank(scores, groups, method=method, **options)
    assert torch.equal(fair.slot, scores.argsort(dim=-1, descending=True, stable=True))
    assert torch.equal(fair.scores, scores)


@every_method
@given(data=st.data())
def test_an_order_has_every_item_once_keeps_each_group_in_order_and_padding_last(
    method: str, data: st.DataObject
) -> None:
    slot = st.tuples(st.integers(0, 5), st.integers(-1, 3), st.booleans())
    rows = data.draw(st.lists(slot, min_size=1, max_size=8))
    k = data.draw(st.integers(1, 9))
    score, group, mask = (torch.tensor([column]) for column in zip(*rows, strict=True))
    fair = reranked(method, score, group, k=k, mask=mask)
    order, n = fair.slot[0].tolist(), int(mask.sum())
    assert sorted(order) == list(range(len(rows)))
    assert all(mask[0, order[:n]])
    assert fair.rank[0, order].tolist() == list(range(1, len(rows) + 1))
    if method not in ("fa-ir", "exposure-lp"):
        for one in range(-1, 4):
            inside = [slot for slot in order[:n] if group[0, slot] == one]
            assert inside == sorted(inside, key=lambda slot: (-score[0, slot], slot))


@every_method
def test_padding_and_other_lists_change_nothing(method: str) -> None:
    generator = torch.Generator().manual_seed(3)
    scores = torch.rand(4, 9, generator=generator)
    groups = torch.randint(-1, 2, (4, 9), generator=generator)
    mask = torch.rand(4, 9, generator=generator) < 0.7
    together = reranked(method, scores, groups, mask=mask, k=5)
    for query in range(4):
        kept = mask[query].nonzero()[:, 0]
        alone = reranked(method, scores[query, kept][None], groups[query, kept][None], k=5)
        if method == "exposure-lp":  # the draw is another, its chances are not
            policy = together.policies[query]
            assert torch.equal(policy.slot[:, : len(kept)], kept[alone.policies[0].slot])
            torch.testing.assert_close(policy.probability, alone.policies[0].probability)
        else:
            assert torch.equal(together.slot[query, : len(kept)], kept[alone.slot[0]])


@every_method
def test_a_list_shorter_than_k_is_refused_or_marked(method: str) -> None:
    scores, groups = torch.tensor([[3.0, 2.0, 1.0]] * 2), torch.tensor([[0, 1, 0]] * 2)
    mask = torch.tensor([[True, True, True], [True, True, False]])
    given_options = OPTIONS.get(method, {})
    sentence = (
        rf"^{method}: list 1 has 2 items where k asks for 3; lower k, or pass "
        rf"infeasible='mark' \(1 of 2 lists are like this\)$"
    )
    with pytest.raises(InputError, match=sentence):
        ft.rerank(scores, groups, method=method, k=3, mask=mask, **given_options)
    marked = reranked(method, scores, groups, k=3, mask=mask)
    assert marked.met.tolist() == [True, False]
    assert ft.rerank(scores, groups, method=method, mask=mask, **given_options).met.all()


@every_method
def test_arrays_lists_and_tensors_give_the_same(method: str) -> None:
    expected = reranked(method, torch.tensor(SCORES), torch.tensor(GROUPS))
    mask = np.ones((2, 3), bool)
    for scores, groups in (
        (SCORES, GROUPS),
        (np.array(SCORES, np.float32)[:, ::-1][:, ::-1], np.array(GROUPS, np.int8)),
        (torch.tensor(SCORES, requires_grad=True), torch.tensor(GROUPS)),
    ):
        found = reranked(method, scores, groups, mask=mask)
        assert torch.equal(found.slot, expected.slot)
        assert not found.scores.requires_grad


@every_method
def test_blocks_and_threads_change_nothing(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(4)
    scores = torch.rand(7, 6, generator=generator)
    groups = torch.randint(0, 2, (7, 6), generator=generator)
    expected = reranked(method, scores, groups)
    monkeypatch.setattr("fairtopk.reranking.lists.BLOCK_SLOTS", 13)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    found = reranked(method, scores, groups)
    torch.set_num_threads(before)
    for one, other in zip(found[:4], expected[:4], strict=True):
        assert torch.equal(one, other)


def test_scores_dealt_again_have_the_metrics_of_the_new_order() -> None:
    relevance = torch.tensor([[0, 1, 0, 2]])
    scores, groups = torch.tensor([[4.0, 4.0, 4.0, 4.0]]), torch.tensor([[1, 1, 0, 0]])
    fair = ft.rerank(scores, groups, method="det-cons")
    by_rank = ndcg(-fair.rank.float(), relevance, k=4)
    assert ndcg(fair.scores, relevance, k=4) == by_rank
    assert ndcg(scores, relevance, k=4) != by_rank


def test_a_bonus_moves_its_group_and_leaves_equals_in_place() -> None:
    scores, groups = [[3.0, 2.0, 1.0, 2.0]], [[1, 1, 0, 0]]
    for bonus, expected in (
        (0.0, [0, 1, 3, 2]),
        (1.0, [0, 3, 1, 2]),
        (1e30, [3, 2, 0, 1]),
        (-1e30, [0, 1, 3, 2]),
    ):
        fair = ft.rerank(scores, groups, method="group-bonus", bonus=bonus)
        assert fair.slot[0].tolist() == expected
    other = ft.rerank(scores, groups, method="group-bonus", bonus=1.5, group=1)
    assert other.slot[0].tolist() == [0, 1, 3, 2]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"method": "fair"},
            "method must be one of fa-ir, det-greedy, det-cons, det-relaxed, det-const-sort, "
            "exposure-lp, group-bonus, got 'fair'",
        ),
        ({"method": "fa-ir", "infeasible": "skip"}, "infeasible must be one of raise, mark"),
        ({"method": ["fa-ir"]}, "method must be one of fa-ir, det-greedy, det-cons, "),
        ({"method": "fa-ir", "k": 0}, "k must be at least 1, got 0"),
        ({"method": "fa-ir", "k": True}, "k must be a whole number, got True"),
        ({"method": "fa-ir", "group": 1.5}, "fa-ir: group should be a valid integer, got 1.5"),
        (
            {"method": "fa-ir", "group": True},
            "fa-ir: group must be a group's number (True in groups is 0), got True",
        ),
        ({"method": "fa-ir", "alpha": "x"}, "fa-ir: alpha should be a valid number, got 'x'"),
        (
            {"method": "det-cons", "targets": 0.5},
            "det-cons: targets must be a list of shares, or map groups to shares, got 0.5",
        ),
        (
            {"method": "det-cons", "targets": {"a": 0.5}},
            "det-cons: a group of targets should be a valid integer, got 'a'",
        ),
        ({"method": "fa-ir", "targets": 1}, "fa-ir has no option 'targets'; it has p, alpha"),
        ({"method": "fa-ir", "p": 1.0}, "fa-ir: p should be less than 1, got 1.0"),
        ({"method": "fa-ir", "alpha": 0}, "fa-ir: alpha should be greater than 0, got 0"),
        ({"method": "group-bonus"}, "group-bonus needs the option 'bonus'"),
        (
            {"method": "det-cons", "targets": [0.7, 0.7]},
            "det-cons: targets must add up to 1 at most, got 1.4",
        ),
        (
            {"method": "det-cons", "targets": [0.7, -0.1]},
            "det-cons: targets.1 should be greater than or equal to 0, got -0.1",
        ),
        (
            {"method": "det-cons", "relevance": SCORES},
            "det-cons takes no relevance; it is for exposure-lp",
        ),
        (
            {"method": "det-cons", "mask": [[True, False]]},
            "mask must have the shape of scores, [2, 3], got [1, 2]",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_sentence(
    options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}"):
        ft.rerank(SCORES, GROUPS, **options)


@pytest.mark.parametrize(
    ("groups", "sentence"),
    [
        (None, "groups must be a tensor or array of whole numbers from 0, and -1 where "
            "unknown, got None"),
        ([["a", "b", "b"]] * 2, "groups must be a tensor or array of whole numbers from 0, and "
            "-1 where unknown, got 'a'"),
        ([[0, 1, -2]] * 2, "groups must be numbered from 0 to 999, and -1 where unknown, got "
            "-2 in list 0, slot 2"),
    ],
)  # fmt: skip
def test_groups_that_are_no_numbers_are_refused(groups: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        ft.rerank(SCORES, groups, method="det-greedy")
