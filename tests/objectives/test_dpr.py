from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import softplus

import fairtopk as ft
from fairtopk.lists.batch import Batch, list_batch
from fairtopk.objectives.dpr import (
    LEAST_OF_WHOLE,
    Dpr,
    Labels,
    ListPairs,
    bpr_loss,
    graded_pairs,
    list_divergence,
    list_moments,
    moment_divergence,
    read_samples,
    read_whole,
)
from fairtopk.objectives.methods import METHODS, DprSettings, methods_of

TWO, EVEN = torch.eye(2), torch.tensor([10, 10])


def dpr(
    method: str = "dpr-rsp",
    *,
    c: float = 1.0,
    member: Tensor = TWO,
    count: Tensor = EVEN,
    **settings: Any,
) -> Dpr:
    return Dpr(
        METHODS[method],
        DprSettings(**settings),
        c=c,
        labels=Labels(member, count),
        generator=torch.Generator().manual_seed(0),
    ).double()


def lists(n: int = 30, *, n_groups: int = 2, apart: float = 1.0) -> tuple[Tensor, Batch]:
    """Lists of 2 relevant and 8 other items; scores of group 0 are lower by `apart`."""
    rng = torch.Generator().manual_seed(5)
    group = torch.randint(n_groups, (n, 10), generator=rng, dtype=torch.int32)
    relevance = torch.zeros(n, 10, dtype=torch.float64)
    relevance[:, :2] = 4.0
    scores = torch.randn(n, 10, generator=rng, dtype=torch.float64) - apart * (group == 0)
    mask = torch.ones(n, 10, dtype=torch.bool)
    return scores, list_batch(torch.arange(n), relevance, group, mask)


def recommender_loss(
    scores: Tensor, moments: tuple[Tensor, Tensor] | None, normal: float
) -> Tensor:
    """BPR and the divergence from N(0, 1), for `lists`."""
    above = scores[:, :2].repeat(1, 4)
    loss = softplus(scores[:, 2:] - above).mean()
    mean, variance = moments or (
        scores[:, 2:].mean(1),
        scores[:, 2:].var(1, correction=0),
    )
    return loss + normal / 2 * (mean**2 + variance - variance.log() - 1).mean()


@pytest.mark.parametrize("method", methods_of("adversary"))
@pytest.mark.parametrize("given", [True, False])
def test_at_alpha_0_it_is_bpr_and_the_divergence(method: str, given: bool) -> None:
    """The divergence is by moments where these are given, else of the list's other items."""
    scores, batch = lists()
    moments = (torch.linspace(-1, 1, 30).double(), torch.linspace(0.1, 2, 30).double())
    read = [scores, *moments] if given else [scores]
    value, *grads = dpr(method, c=0.0, normal=0.7)(scores, batch, *read[1:])
    for one in read:
        one.requires_grad_()
    expected = recommender_loss(scores, moments if given else None, 0.7)
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(tuple(grads), torch.autograd.grad(expected, read))


@pytest.mark.parametrize("method", methods_of("adversary"))
def test_the_model_gains_what_the_adversary_loses(method: str) -> None:
    """The penalty is -alpha times the adversary's loss, value and gradient alike."""
    scores, batch = lists()
    found = {}
    for c in (0.0, 1.0, 3.0):
        torch.manual_seed(1)
        found[c] = dpr(method, c=c)(scores, batch)
    for one, three, none in zip(found[1.0], found[3.0], found[0.0], strict=True):
        torch.testing.assert_close(three - none, 3 * (one - none))
    assert found[0.0][0] - 1 < found[1.0][0] < found[0.0][0]
    assert found[1.0][1].ne(found[0.0][1]).any()


@pytest.mark.parametrize("apart", [2.0, -2.0])
def test_its_gradient_brings_scores_of_groups_together(apart: float) -> None:
    scores, batch = lists(n=200, apart=apart)
    part, none = dpr(batches=50), dpr(c=0.0)
    torch.manual_seed(1)
    pull = -(part(scores, batch)[1] - none(scores, batch)[1])
    lower = pull[batch.group == 0].sum() - pull[batch.group == 1].sum()
    assert float(lower) * apart > 0
    assert part.report()["told_apart"] > 0.3


def test_rsp_hears_relevant_and_other_items_and_reo_relevant_ones_alone() -> None:
    scores, batch = lists()
    none = dpr(c=0.0)(scores, batch)[1]
    for method, slots in (("dpr-rsp", slice(0, 10)), ("dpr-reo", slice(0, 2))):
        moved = dpr(method, samples=5_000)(scores, batch)[1] != none
        assert moved[:, slots].all()
        assert not moved[:, slots.stop :].any()


def test_relevant_and_other_items_are_heard_alike_as_in_pairs_of_the_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores, batch = lists()
    part, heard = dpr(samples=20_000, batches=1), []
    monkeypatch.setattr(part.adversary, "learn", heard.append)
    part(scores, batch)
    relevant = torch.isin(heard[0].score, scores[:, :2])
    assert relevant.double().mean() == pytest.approx(0.5, abs=0.02)


def test_items_of_unknown_group_are_not_heard() -> None:
    scores, batch = lists()
    group = batch.group.clone()
    group[:, 1::2] = -1
    batch = batch._replace(group=group)
    moved = dpr(samples=5_000)(scores, batch)[1] != dpr(c=0.0)(scores, batch)[1]
    assert moved[:, 0::2].all()
    assert not moved[:, 1::2].any()
    unknown = batch._replace(group=torch.full_like(group, -1))
    for found, expected in zip(
        dpr()(scores, unknown), dpr(c=0.0)(scores, unknown), strict=True
    ):
        assert torch.equal(found, expected)


def test_a_label_that_is_in_no_group_is_unknown() -> None:
    scores, batch = lists(n_groups=3)
    part = dpr(member=torch.eye(3)[:, :2], count=torch.tensor([5, 5, 5]), samples=5_000)
    moved = part(scores, batch)[1] != dpr(c=0.0)(scores, batch)[1]
    assert torch.equal(moved, batch.group < 2)


def test_items_may_be_in_several_groups_and_there_may_be_many() -> None:
    """Labels 0 and 1 share a group that only their scores give away."""
    scores, batch = lists(n=100, n_groups=5, apart=0.0)
    scores = scores - 3 * (batch.group <= 1)
    member = torch.tensor(
        [[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 0], [1, 0, 1, 0], [0, 1, 1, 0]]
    )
    part = dpr(member=member, count=torch.full((5,), 7), batches=100)
    torch.manual_seed(1)
    part(scores, batch)
    low, high = part.adversary(torch.tensor([-3.0, 0.0])).sigmoid()
    assert low[3] > 0.8 > 0.2 > high[3]
    assert part.report()["told_apart"] > 0.1


def test_all_groups_count_the_same_and_an_item_1_in_the_mean() -> None:
    count = torch.tensor([10, 30, 60, 50])
    member = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]])
    weight = dpr(member=member, count=count).weight.float()
    torch.testing.assert_close(weight, torch.tensor([10 / 3, 10 / 9, 5 / 9, 0.0]))
    several = torch.tensor([[1, 1], [0, 1]])
    weight = dpr(member=several, count=torch.tensor([1, 3])).weight.float()
    torch.testing.assert_close(weight, torch.tensor([2 * (1 + 1 / 4), 2 / 4]))


@pytest.mark.parametrize("count", [[4, 0], [0, 0]])
def test_one_group_alone_is_refused(count: list[int]) -> None:
    with pytest.raises(ft.InputError, match="needs items in at least two groups to tell apart"):
        dpr(count=torch.tensor(count))
    assert dpr(member=torch.eye(3), count=torch.tensor([4, 0, 2])).weight.tolist() == [
        0.75, 0.0, 1.5,
    ]  # fmt: skip


@pytest.mark.parametrize("method", methods_of("adversary"))
def test_a_group_without_relevant_items_and_lists_without_any_train(method: str) -> None:
    scores, batch = lists()
    group = batch.group.clone()
    group[:, :2] = 1
    relevance = batch.relevance.clone()
    relevance[:5] = 0
    batch = batch._replace(group=group, relevance=relevance)
    part = dpr(method)
    for _ in range(3):
        assert all(one.isfinite().all() for one in part(scores, batch))
    blank = batch._replace(relevance=torch.zeros_like(relevance))
    value, grad = part(scores, blank)
    assert value.isfinite()
    assert grad.isfinite().all()
    # In a group that relevant items are all in, there is nothing to tell.
    assert "told_apart" not in part.report()


def test_padding_changes_nothing() -> None:
    scores, batch = lists()
    wide = torch.nn.functional.pad(scores, (0, 3), value=torch.nan)
    padded = list_batch(
        batch.query,
        torch.nn.functional.pad(batch.relevance, (0, 3), value=5.0),
        torch.nn.functional.pad(batch.group, (0, 3)),
        torch.nn.functional.pad(batch.mask, (0, 3)),
    )
    found = []
    for one, lists_ in ((scores, batch), (wide, padded)):
        torch.manual_seed(2)
        found.append(dpr()(one, lists_))
    torch.testing.assert_close(found[1][0], found[0][0])
    torch.testing.assert_close(found[1][1][:, :10], found[0][1])
    assert (found[1][1][:, 10:] == 0).all()


def test_alpha_means_the_same_for_every_size_of_a_batch() -> None:
    scores, batch = lists()
    twice = Batch(*(torch.cat([one, one]) for one in batch))
    values = []
    for one, part in ((scores, batch), (torch.cat([scores, scores]), twice)):
        torch.manual_seed(2)
        found = dpr(samples=20_000, batches=1)
        found(one, part)
        values.append(found.report())
    for name in ("ranking", "normal", "penalty"):
        assert values[1][name] == pytest.approx(values[0][name], rel=0.05)


def test_nothing_is_learnt_in_evaluation_or_without_gradients() -> None:
    scores, batch = lists()
    part = dpr()
    before = {name: value.clone() for name, value in part.state_dict().items()}
    part.eval()(scores, batch)
    with torch.no_grad():
        part.train()(scores, batch)
    assert all(torch.equal(before[name], value) for name, value in part.state_dict().items())
    part(scores, batch)
    assert not torch.equal(
        before["adversary.output.weight"], part.state_dict()["adversary.output.weight"]
    )


def test_the_number_of_batches_is_how_often_the_adversary_learns() -> None:
    scores, batch = lists()
    for batches in (1, 4):
        part = dpr(batches=batches)
        part(scores, batch)
        part(scores, batch)
        (steps,) = {int(kept["step"]) for kept in part.adversary.optimizer.state.values()}
        assert steps == 2 * batches


def test_its_state_is_the_adversary_alone_whatever_the_data() -> None:
    part = dpr(member=torch.eye(2), count=torch.tensor([10**6, 10**7]))
    assert sum(value.numel() for value in part.state_dict().values()) < 10_000


@given(st.integers(0, 2**31))
def test_it_is_the_divergence_of_a_normal_distribution_with_its_slopes(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    mean = 3 * torch.randn(5, generator=rng, dtype=torch.float64)
    variance = torch.randn(5, generator=rng, dtype=torch.float64).exp()
    for one in (mean, variance):
        one.requires_grad_()
    expected = kl_divergence(Normal(mean, variance.sqrt()), Normal(0.0, 1.0))
    slopes = torch.autograd.grad(expected.sum(), (mean, variance))
    value, *found = moment_divergence(mean.detach(), variance.detach())
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(tuple(found), slopes)


@given(st.integers(0, 2**31))
def test_the_gradient_in_scores_is_that_of_the_closed_form_and_of_autograd(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    scores = 1 + 2 * torch.randn(4, 9, generator=rng, dtype=torch.float64)
    where = torch.rand(4, 9, generator=rng) < 0.7
    where[:, :2] = True  # one score alone has no spread
    value, grad = list_divergence(scores, where)
    scores.requires_grad_()
    for place, counts in enumerate(where):
        own = scores[place][counts]
        mean, sd = own.mean(), own.std(correction=0)
        expected = (mean**2 + sd**2 - 2 * sd.log() - 1) / 2
        torch.testing.assert_close(value[place], expected.detach())
        (slope,) = torch.autograd.grad(expected, scores, retain_graph=True)
        torch.testing.assert_close(grad[place], slope[place])
        closed = (mean + (own - mean) * (1 - 1 / sd**2)) / len(own)
        torch.testing.assert_close(grad[place][counts], closed.detach())


def test_equal_scores_and_empty_lists_give_finite_numbers() -> None:
    scores = torch.tensor([[2.0, 2, 2], [0, 0, 0], [7, 8, 9]])
    where = torch.tensor([[True] * 3, [True] * 3, [False] * 3])
    value, grad = list_divergence(scores, where)
    assert value.isfinite().all()
    assert value[0] > value[1] > 10
    assert value[2] == 0
    torch.testing.assert_close(grad, torch.tensor([[2 / 3] * 3, [0.0] * 3, [0.0] * 3]))
    assert list_moments(scores, where)[0].tolist() == [2.0, 0.0, 0.0]
    found = moment_divergence(torch.zeros(1), torch.zeros(1))
    assert all(one.isfinite().all() for one in found)


def test_scores_far_from_0_keep_their_spread() -> None:
    scores = torch.tensor([[1e4 - 1, 1e4 + 1]])
    mean, variance = list_moments(scores, torch.ones(1, 2, dtype=torch.bool))
    assert (mean.tolist(), variance.tolist()) == ([1e4], [1.0])


def sampled_pairs(relevance: Tensor, mask: Tensor) -> ListPairs:
    """The pairs of lists that are samples: relevant items and others."""
    query, group = torch.arange(len(mask)), torch.zeros_like(mask, dtype=torch.int64)
    batch = list_batch(query, relevance, group, mask)
    return read_samples(batch, METHODS["dpr-rsp"]).pairs


def plain(scores: Tensor, relevance: Tensor, mask: Tensor) -> list[Tensor]:
    """Pair by pair, list by list."""
    found = []
    for one, grades, inside in zip(scores, relevance, mask, strict=True):
        slots = range(len(one))
        above = [slot for slot in slots if inside[slot] and grades[slot] > 0]
        below = [slot for slot in slots if inside[slot] and not grades[slot] > 0]
        losses = [
            -(one[above[turn % len(above)]] - one[slot]).sigmoid().log()
            for turn, slot in enumerate(below)
            if above
        ]
        found.append(torch.stack(losses).mean() if losses else 0 * one.sum())
    return found


@given(st.integers(0, 2**31), st.sampled_from([0.0, 0.2, 0.6, 1.0]))
def test_loss_and_gradient_are_those_of_each_pair(seed: int, share: float) -> None:
    """Lists with any number of relevant items, none and all among them, and with padding."""
    rng = torch.Generator().manual_seed(seed)
    scores = torch.randn(4, 7, generator=rng, dtype=torch.float64).requires_grad_()
    relevance = 3.0 * (torch.rand(4, 7, generator=rng) < share)
    mask = torch.rand(4, 7, generator=rng) < 0.8
    expected = torch.stack(plain(scores, relevance, mask))
    (slope,) = torch.autograd.grad(expected.sum(), scores)
    loss, grad = bpr_loss(scores.detach(), sampled_pairs(relevance, mask))
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(grad, slope)


def test_every_relevant_item_has_its_share_of_the_others() -> None:
    relevance = torch.tensor([[5.0, 1, 0, 0, 0, 2, 0, 0], [0, 0, 0, 0, 0, 0, 0, 1]])
    pairs = sampled_pairs(relevance, torch.ones(2, 8, dtype=torch.bool))
    assert pairs.query.tolist() == [0] * 5 + [1] * 7
    assert pairs.below.tolist() == [2, 3, 4, 6, 7, 0, 1, 2, 3, 4, 5, 6]
    assert pairs.above.tolist() == [0, 1, 5, 0, 1] + [7] * 7


def test_scores_far_apart_give_finite_numbers() -> None:
    scores = torch.tensor([[0.0, 1e4], [1e4, 0.0]])
    pairs = sampled_pairs(torch.tensor([[1.0, 0.0]] * 2), torch.ones(2, 2, dtype=torch.bool))
    loss, grad = bpr_loss(scores, pairs)
    assert loss.tolist() == [1e4, 0.0]
    assert grad.tolist() == [[-1.0, 1.0], [0.0, 0.0]]


def by_grades(scores: Tensor, grades: Tensor, mask: Tensor) -> list[tuple[int, int]]:
    """The pairs (above, below) of a list: items of a grade take turns with those above it."""
    slots = [slot for slot in range(len(scores)) if mask[slot]]
    slots.sort(key=lambda slot: -float(grades[slot]))
    found = []
    for grade in sorted({float(grades[slot]) for slot in slots}):
        above = [slot for slot in slots if grades[slot] > grade]
        below = [slot for slot in slots if grades[slot] == grade]
        found += [(above[turn % len(above)], one) for turn, one in enumerate(below) if above]
    return found


@given(st.integers(0, 2**31), st.sampled_from([1, 2, 5]))
def test_by_grades_each_item_is_paired_with_one_of_a_higher_grade(
    seed: int, n_grades: int
) -> None:
    rng = torch.Generator().manual_seed(seed)
    scores = torch.randn(4, 7, generator=rng)
    grades = torch.randint(n_grades, (4, 7), generator=rng).float()
    mask = torch.rand(4, 7, generator=rng) < 0.8
    pairs = graded_pairs(grades, mask)
    found = sorted(zip(*(part.tolist() for part in pairs), strict=True))
    assert found == sorted(
        (query, *pair)
        for query in range(4)
        for pair in by_grades(scores[query], grades[query], mask[query])
    )


GRADES = torch.tensor([[2.0, 1, 1, 0, 0, 0], [1, 1, 1, 1, 3, 0], [4, 0, 0, 0, 0, 0]]).double()
MASK = torch.tensor([[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0]]).bool()


def document_dpr(method: str, *, c: float, normal: float = 1.0) -> Dpr:
    return Dpr(
        METHODS[method],
        DprSettings(normal=normal, samples=500, batches=1),
        c=c,
        labels=Labels(torch.eye(2), torch.tensor([6, 6])),
        generator=torch.Generator().manual_seed(0),
        reads=read_whole,
    ).double()


def document_lists() -> tuple[Tensor, Batch]:
    draw = torch.Generator().manual_seed(1)
    scores = torch.randn(3, 6, generator=draw, dtype=torch.float64)
    group = torch.randint(2, (3, 6), generator=draw, dtype=torch.int32)
    return scores, list_batch(torch.arange(3), GRADES, group, MASK)


@pytest.mark.parametrize("method", methods_of("adversary"))
def test_at_alpha_0_it_is_bpr_by_grades_and_the_divergence_of_whole_lists(method: str) -> None:
    scores, batch = document_lists()
    value, grad = document_dpr(method, c=0.0, normal=0.7)(scores, batch)
    scores.requires_grad_()

    def loss(query: int, pairs: list[tuple[int, int]]) -> Tensor:
        behind = [softplus(scores[query, low] - scores[query, high]) for high, low in pairs]
        return torch.stack(behind).mean()

    ranking = (
        loss(0, [(0, 1), (0, 2), (0, 3), (1, 4)])
        + loss(1, [(4, 0), (4, 1), (4, 2), (4, 3), (4, 5)])
    )  # fmt: skip
    normal = torch.zeros((), dtype=torch.float64)
    for query in (0, 1):  # one document by itself has no distribution
        own = scores[query][MASK[query]]
        mean, variance = own.mean(), own.var(correction=0)
        normal = normal + (mean**2 + variance - variance.log() - 1) / 2
    expected = (ranking + 0.7 * normal) / 3
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(grad, torch.autograd.grad(expected, scores)[0])


def test_rsp_hears_every_document_once_and_reo_every_relevant_one() -> None:
    _, batch = document_lists()
    slots = MASK.flatten().nonzero()[:, 0]
    heard = read_whole(batch, METHODS["dpr-rsp"]).heard
    assert heard.tolist() == slots.tolist()
    relevant = (MASK & (GRADES > 0)).flatten().nonzero()[:, 0]
    assert read_whole(batch, METHODS["dpr-reo"]).heard.tolist() == relevant.tolist()


def test_documents_that_are_all_but_alike_are_not_torn_apart() -> None:
    scores, batch = document_lists()
    alike = 1e-5 * scores
    _, grad = document_dpr("dpr-rsp", c=0.0)(alike, batch)
    _, apart = document_dpr("dpr-rsp", c=0.0, normal=0.0)(alike, batch)
    assert (grad - apart).abs().max() < LEAST_OF_WHOLE**-0.5
