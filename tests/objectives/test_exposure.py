"""Group exposure, the penalty of Eqs. 7 and 11, and its estimate by Eqs. 21 and 22."""

import math
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fairtopk.lists.batch import Batch, list_batch
from fairtopk.objectives.exposure import (
    ExposureDisparity,
    RankExposureDisparity,
    group_exposure,
    group_sums,
    pair_penalty,
    values_of_groups,
)
from fairtopk.objectives.methods import METHODS, ObjectiveSettings
from fairtopk.objectives.ndcg import Estimate
from fairtopk.objectives.objective import Objective
from fairtopk.objectives.threshold import Selection, Threshold, select

N_QUERIES, LENGTH = 5, 8
ONE = torch.ones(1, 1, dtype=torch.float64)
EXPOSURES = st.lists(st.floats(0, 1), min_size=2, max_size=5)


def drawn(seed: int, *, n_groups: int, apart: bool, weighted: bool) -> tuple[Tensor, Batch]:
    """Three lists of different length, some labels unknown, some groups absent."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(3, LENGTH + 1, (3, 1), generator=generator)
    mask = torch.arange(LENGTH) < sizes
    group = torch.randint(-1, n_groups, (3, LENGTH), generator=generator)
    query = torch.randperm(N_QUERIES, generator=generator)[:3]
    batch = list_batch(query, torch.zeros(3, LENGTH, dtype=torch.float64), group, mask)
    if weighted:
        weight = torch.rand(3, LENGTH, dtype=torch.float64, generator=generator) + 1
        batch = batch._replace(weight=weight * mask)
    if apart:
        # B_a, B_b, ... beside B_q: the list's own slots speak for no group.
        label = torch.randint(-1, n_groups, (3, 6), generator=generator)
        batch = batch._replace(
            group=torch.cat([torch.full_like(group, -1), label], 1),
            mask=torch.cat([mask, torch.zeros_like(label).bool()], 1),
            weight=torch.cat([batch.weight, (label >= 0).double()], 1),
        )
    return torch.randn(batch.mask.shape, dtype=torch.float64, generator=generator) / 4, batch


class Plain:
    """Eq. 21 and 22 as they are written, by dictionaries and exp, for any number of groups."""

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma
        self.u: dict[tuple[object, ...], float] = {}

    def average(self, key: tuple[object, ...], fresh: float) -> float:
        old = self.u.get(key, fresh)
        self.u[key] = (1 - self.gamma) * old + self.gamma * fresh
        return self.u[key]

    def step(
        self, scores: Tensor, batch: Batch, psi: Tensor, cost: list[float]
    ) -> tuple[float, list[list[float]], list[float]]:
        value, grads, gaps = 0.0, [], []
        for row, query in enumerate(batch.query.tolist()):
            h, chosen = scores[row].tolist(), psi[row].tolist()
            weight, label = batch.weight[row].tolist(), batch.group[row].tolist()
            slots = range(len(h))
            inside = [slot for slot in slots if batch.mask[row, slot]]
            groups = sorted({label[s] for s in slots if label[s] >= 0 and weight[s] > 0})
            whole = sum(weight[s] for s in inside)
            grad, n, scale = [0.0] * len(h), whole, cost[row] / len(scores)
            grads.append(grad)
            gaps.append(math.nan)
            if len(groups) < 2:
                continue
            of = {g: [s for s in slots if label[s] == g and weight[s] > 0] for g in groups}
            total = {g: sum(weight[s] for s in of[g]) for g in groups}
            z = {
                g: self.average(
                    (query, g),
                    sum(weight[s] * chosen[s] * math.exp(h[s]) for s in of[g]) / total[g],
                )
                for g in groups
            }
            mean = sum(weight[s] * math.exp(h[s]) for s in inside) / whole
            z_q = {g: self.average((query, "list", g), mean) for g in groups}
            e = {g: z[g] / (n * z_q[g]) for g in groups}
            value += scale * sum((e[a] - e[b]) ** 2 for a, b in combinations(groups, 2)) / 2
            for g in groups:
                f_g = scale * sum(e[g] - e[other] for other in groups) / z_q[g]
                for s in of[g]:
                    grad[s] += f_g * weight[s] * chosen[s] * math.exp(h[s]) / total[g] / n
                for s in inside:
                    grad[s] -= f_g * e[g] * weight[s] * math.exp(h[s]) / whole
            if 0 in groups:
                gaps[-1] = e[0] - sum(e[g] for g in groups[1:]) / (len(groups) - 1)
        return value, grads, gaps


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("gamma", [0.2, 1.0])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("top", [False, True])
def test_over_several_visits_it_is_the_recursion_of_the_paper(
    n_groups: int, gamma: float, apart: bool, weighted: bool, top: bool
) -> None:
    part = ExposureDisparity(N_QUERIES, n_groups, gamma=gamma).double()
    plain = Plain(gamma)
    for seed in range(20):
        scores, batch = drawn(seed, n_groups=n_groups, apart=apart, weighted=weighted)
        selection = Selection(torch.ones_like(scores))
        if top:
            lam, beta = scores.new_tensor([0.1, -0.2, 0.3]), scores.new_full((3,), 4.0)
            selection = select(scores, Threshold(lam, lam), beta)
        cost = [30.0, 0.0, 7.0]
        found = part(scores, batch, selection, torch.tensor(cost).double())
        gap = found.gap
        value, grad, gaps = plain.step(scores, batch, selection.psi, cost)
        assert float(found.value) == pytest.approx(value, rel=1e-10)
        torch.testing.assert_close(
            found.grad, torch.tensor(grad, dtype=torch.float64), rtol=1e-9, atol=1e-12
        )
        torch.testing.assert_close(gap, torch.tensor(gaps, dtype=torch.float64), equal_nan=True)
    visited = set(part.log_u_g.value.isfinite().nonzero().flatten().tolist())
    assert gamma == 1 or visited == {
        key[0] * n_groups + key[1] for key in plain.u if len(key) == 2
    }


def test_slots_drawn_apart_get_the_gradient_of_their_group_and_the_list_that_of_the_whole() -> (
    None
):
    scores, batch = drawn(1, n_groups=2, apart=True, weighted=False)
    label = torch.tensor([0, 0, 1, 1, 1, -1]).expand(3, 6)
    batch = batch._replace(
        group=torch.cat([batch.group[:, :LENGTH], label], 1),
        weight=torch.cat([batch.weight[:, :LENGTH], (label >= 0).double()], 1),
    )
    part = ExposureDisparity(N_QUERIES, 2, gamma=1.0).double()
    found = part(scores, batch, Selection(torch.ones_like(scores)), torch.ones(3).double())
    gap = found.gap
    leaf = scores.clone().requires_grad_()
    total = torch.zeros(()).double()
    for row in range(3):
        h, inside = leaf[row], batch.mask[row]
        e, n = leaf[row].exp(), int(inside.sum())
        a, b = e[LENGTH : LENGTH + 2].mean(), e[LENGTH + 2 : LENGTH + 5].mean()
        total = total + ((a - b) / (n * h[inside].exp().mean())) ** 2 / 2 / 3
    total.backward()
    torch.testing.assert_close(found.value, total.detach())
    torch.testing.assert_close(found.grad, leaf.grad)
    assert gap.isfinite().all()
    assert (found.grad[:, -1] == 0).all()


def test_a_stale_average_cannot_claim_more_exposure_than_there_is() -> None:
    part = ExposureDisparity(1, 2, gamma=0.2).double()
    mask = torch.ones(1, 4, dtype=torch.bool)
    group, cost = torch.tensor([[0, 0, 1, 1]]), torch.ones(1).double()
    batch = list_batch(torch.tensor([0]), torch.zeros(1, 4).double(), group, mask)
    scores = torch.tensor([[40.0, 40.0, 0.0, 0.0]]).double()
    part(scores, batch, Selection(torch.ones_like(scores)), cost)
    # The group's items are drawn apart, and the list's own scores have fallen since.
    label = torch.tensor([[-1, -1, 0, 1]])
    later = batch._replace(group=label, mask=torch.tensor([[True, True, False, False]]))
    part.log_u_q.value.zero_()
    found = part(torch.zeros(1, 4).double(), later, Selection(torch.ones_like(scores)), cost)
    gap = found.gap
    assert float(gap) == pytest.approx(1 - 1 / 2, abs=1e-6)
    assert found.grad.isfinite().all()


@pytest.mark.parametrize("start", [math.nan, 0.0, 2.0])
def test_averages_begin_where_they_are_told(start: float) -> None:
    scores, batch = drawn(4, n_groups=2, apart=False, weighted=False)
    batch = batch._replace(group=(torch.arange(LENGTH) % 2).expand(3, LENGTH).contiguous())
    part = ExposureDisparity(N_QUERIES, 2, gamma=0.2, start=start).double()
    part(scores, batch, Selection(torch.ones_like(scores)), torch.ones(3).double())
    for row, query in enumerate(batch.query.tolist()):
        fresh = float(scores[row, batch.mask[row]].exp().mean())
        expected = fresh if math.isnan(start) else 0.8 * start + 0.2 * fresh
        for own in part.log_u_q.value[2 * query : 2 * query + 2]:
            assert float(own.exp()) == pytest.approx(expected, rel=1e-6)


def test_a_drift_of_all_scores_is_no_gap_where_a_list_lacked_a_group() -> None:
    """Group 2 misses a visit in which all scores rise; afterwards exposures are as before."""
    part = ExposureDisparity(1, 3, gamma=0.2).double()
    mask, cost = torch.ones(1, 6, dtype=torch.bool), torch.ones(1).double()
    scores = torch.linspace(-1, 1, 6).double()[None]
    whole = torch.tensor([[0, 1, 2, 0, 1, 2]])
    for group, drift in ((whole, 0.0), (whole.clamp(max=1), 3.0), (whole, 3.0)):
        batch = list_batch(torch.tensor([0]), torch.zeros(1, 6).double(), group, mask)
        found = part(scores + drift, batch, Selection(torch.ones_like(scores)), cost)
    still = ExposureDisparity(1, 3, gamma=1.0).double()
    expected = still(scores, batch, Selection(torch.ones_like(scores)), cost)
    torch.testing.assert_close(found.gap, expected.gap, rtol=0.2, atol=0)


def test_group_exposure_is_the_mean_softmax_of_a_groups_items() -> None:
    scores = torch.tensor([[1.5, 0.3, -0.2, -1.0, 0.8]], dtype=torch.float64)
    group = torch.tensor([0, 1, 0, 1, 1])
    psi = torch.tensor([1.0, 0.9, 0.2, 0.0, 0.5], dtype=torch.float64)
    means = [(psi * scores[0].exp())[group == g].mean() for g in (0, 1)]
    found = group_exposure(
        torch.stack(means).log()[None], scores.exp().mean(-1, keepdim=True).log(), 5 * ONE
    )
    exposure = psi * scores[0].softmax(-1)
    expected = torch.stack([exposure[group == g].mean() for g in (0, 1)])
    torch.testing.assert_close(found[0], expected)


def test_sums_are_of_the_slots_of_a_group_and_unknown_slots_are_in_none() -> None:
    group = torch.tensor([[0, 1, 0, -1], [2, 2, -1, -1]])
    values = torch.tensor([[3.0, 2.0, 1.0, 5.0], [1.0, 0.0, 1.0, 1.0]]).double()
    assert group_sums(values, group, n_groups=3).tolist() == [[4, 2, 0], [0, 0, 1]]


def test_slots_get_what_a_table_has_for_their_group() -> None:
    group = torch.tensor([[0, 1, 0, -1], [2, 2, -1, -1]])
    table = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert values_of_groups(table, group).tolist() == [[1, 2, 1, 0], [6, 6, 0, 0]]


@pytest.mark.parametrize("n_groups", [4, 20])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64])
def test_loops_and_torch_agree(dtype: torch.dtype, n_groups: int) -> None:
    generator = torch.Generator().manual_seed(0)
    group = torch.randint(-1, n_groups, (5, 30), generator=generator, dtype=dtype)
    values = torch.randn(5, 30, generator=generator)
    ours = group_sums(values, group, n_groups=n_groups)
    back = values_of_groups(ours, group)
    sums = torch.zeros(5, n_groups + 1).scatter_add_(1, group.long() % (n_groups + 1), values)
    torch.testing.assert_close(ours, sums[:, :-1])
    padded = torch.nn.functional.pad(ours, (0, 1))
    torch.testing.assert_close(back, padded.gather(1, group.long() % (n_groups + 1)))


@pytest.mark.parametrize("n_groups", [2, 9])
def test_a_label_beyond_the_groups_is_in_none(n_groups: int) -> None:
    group, values = torch.tensor([[0, n_groups, 500]]), torch.ones(1, 3)
    assert group_sums(values, group, n_groups=n_groups).sum() == 1
    assert values_of_groups(torch.ones(1, n_groups), group).tolist() == [[1, 0, 0]]


@given(EXPOSURES, st.data())
def test_the_penalty_is_the_sum_over_pairs_present_and_its_slope_the_derivative(
    values: list[float], data: st.DataObject
) -> None:
    flags = st.lists(st.booleans(), min_size=len(values), max_size=len(values))
    present = torch.tensor([data.draw(flags)])
    exposure = torch.tensor([values], dtype=torch.float64, requires_grad=True)
    kept = [one for one, there in zip(exposure[0], present[0], strict=True) if there]
    plain = sum(
        ((a - b) ** 2 / 2 for i, a in enumerate(kept) for b in kept[:i]), 0 * exposure[0, 0]
    )
    (grad,) = torch.autograd.grad(plain, exposure)
    penalty, slope = pair_penalty(exposure.detach(), present)
    torch.testing.assert_close(penalty[0], plain.detach(), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(slope, grad, rtol=1e-12, atol=1e-14)


@given(st.floats(0, 1), st.floats(0, 1))
def test_with_two_groups_it_is_half_the_squared_gap(a: float, b: float) -> None:
    both = torch.tensor([[True, True]])
    penalty, slope = pair_penalty(torch.tensor([[a, b]], dtype=torch.float64), both)
    gap = a - b
    rounding = 1e-15 * abs(gap) + 1e-30
    assert penalty.tolist() == pytest.approx([gap**2 / 2], rel=1e-12, abs=rounding)
    assert penalty.item() >= 0
    assert slope[0].tolist() == pytest.approx([gap, -gap], rel=1e-12, abs=1e-15)


@given(EXPOSURES)
def test_all_pairs_are_the_spread_about_the_mean_times_the_number_of_groups(
    values: list[float],
) -> None:
    exposure = torch.tensor([values], dtype=torch.float64)
    penalty, _ = pair_penalty(exposure, torch.ones_like(exposure, dtype=torch.bool))
    about_mean = ((exposure - exposure.mean()) ** 2).sum() / 2
    torch.testing.assert_close(penalty[0], len(values) * about_mean, rtol=1e-9, atol=1e-14)


def ragged(seed: int, n_groups: int) -> tuple[Tensor, Batch]:
    """Lists of different length, some labels unknown, some groups absent."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(2, 10, (4, 1), generator=generator)
    batch = list_batch(
        query=torch.arange(4),
        relevance=torch.randint(0, 5, (4, 9), generator=generator).double(),
        group=torch.randint(-1, n_groups, (4, 9), generator=generator),
        mask=torch.arange(9) < sizes,
    )
    return torch.randn(4, 9, dtype=torch.float64, generator=generator), batch


def penalty(
    scores: Tensor, batch: Batch, *, c: float, gradient: str = "full", k: int = 9
) -> Tensor:
    """1/2 sum_{g<h} (E_g - E_h)^2 with x_i = 1 / log2(1 + sum_j l(h_j - h_i)), list by list."""
    total = torch.zeros((), dtype=torch.float64)
    for row in range(len(scores)):
        kept = batch.mask[row]
        h, group, weight = scores[row, kept], batch.group[row, kept], batch.weight[row, kept]
        hinge = (h[None, :] - h[:, None] + 1).relu() ** 2
        rank = (hinge * weight).sum(-1)
        exposure = 1 / (1 + rank).log2()
        if k < len(h):
            beta = 10 / h.detach().std(correction=0).clamp(min=1e-6)
            lam = h.sort(descending=True).values[k]
            base = h.detach() if gradient == "frozen" else h
            lam = lam if gradient == "full" else lam.detach()
            exposure = exposure * torch.sigmoid(beta * (base - lam))
        inside = [group == g for g in range(int(batch.group.max()) + 1)]
        means = [(exposure * weight)[g].sum() / weight[g].sum() for g in inside if g.any()]
        pairs = [(a - b) ** 2 for place, a in enumerate(means) for b in means[:place]]
        total = total + c * sum(pairs) / 2 / len(scores)
    return total


def fairness_part(
    scores: Tensor, batch: Batch, method: str, n_groups: int, **values: object
) -> Estimate:
    """What the penalty and the anchor add to the objective."""
    without = {**values, "c": 0.0, "anchor": 0.0}
    with_it, plain = (
        Objective(
            METHODS[method],
            ObjectiveSettings.model_validate(one),
            n_queries=4,
            n_pairs=1,
            n_groups=n_groups,
        ).double()(scores, batch)
        for one in (values, without)
    )
    return Estimate(with_it.value - plain.value, with_it.grad - plain.grad)


@pytest.mark.parametrize("gradient", ["frozen", "psi", "full"])
@pytest.mark.parametrize("n_groups", [2, 3])
@settings(max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_the_gradient_is_that_of_the_formula(gradient: str, n_groups: int, seed: int) -> None:
    scores, batch = ragged(seed, n_groups)
    for method, k in (("kso-red", 3), ("so-red", 9)):
        found = fairness_part(
            scores, batch, method, n_groups, k=3, c=20.0, gradient=gradient, exposure="rank"
        )
        leaf = scores.clone().requires_grad_()
        exact = penalty(leaf, batch, c=20.0, gradient=gradient, k=k)
        if exact.requires_grad:
            exact.backward()
        expected = torch.zeros_like(scores) if leaf.grad is None else leaf.grad
        torch.testing.assert_close(found.value, exact.detach(), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(found.grad, expected, rtol=1e-10, atol=1e-12)


@given(seed=st.integers(0, 10**6))
def test_weighted_lists_rank_by_weighted_means(seed: int) -> None:
    scores, batch = ragged(seed, 3)
    generator = torch.Generator().manual_seed(seed + 1)
    weight = torch.rand(4, 9, dtype=torch.float64, generator=generator) + 0.1
    batch = batch._replace(weight=weight * batch.mask)
    part = RankExposureDisparity(3)
    found = part(
        scores.masked_fill(~batch.mask, 0),
        batch,
        Selection(torch.ones_like(scores)),
        20 * torch.ones(4).double(),
    )
    leaf = scores.clone().requires_grad_()
    exact = penalty(leaf, batch, c=20.0)
    if exact.requires_grad:  # some list has two groups
        exact.backward()
    grad = torch.zeros_like(scores) if leaf.grad is None else leaf.grad
    torch.testing.assert_close(found.value, exact.detach(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found.grad, grad, rtol=1e-10, atol=1e-12)


@given(seed=st.integers(0, 10**6), scale=st.sampled_from([0.2, 1.0, 5.0]))
def test_the_anchor_pulls_the_spread_to_one(seed: int, scale: float) -> None:
    scores, batch = ragged(seed, 2)
    scores = scores * scale
    found = fairness_part(
        scores, batch, "kso-red", 2, k=3, c=1e-30, anchor=0.7, exposure="rank"
    )
    leaf = scores.clone().requires_grad_()
    exact = sum(
        0.7 * (leaf[row, batch.mask[row]].std(correction=0) - 1) ** 2 / 2 / 4
        for row in range(4)
    )
    assert isinstance(exact, Tensor)
    exact.backward()
    torch.testing.assert_close(found.value, exact.detach(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found.grad, leaf.grad, rtol=1e-10, atol=1e-12)


def test_a_method_without_a_penalty_has_no_anchor() -> None:
    scores, batch = ragged(0, 2)
    found = fairness_part(scores, batch, "k-song", 2, k=3, c=5.0, anchor=0.7, exposure="rank")
    assert (found.grad == 0).all()


def test_the_signed_gap_is_group_0_less_the_mean_of_the_others_present() -> None:
    scores = torch.tensor([[1.0, 0.0, -1.0], [1.0, 0.0, -1.0], [1.0, 0.0, -1.0]]).double()
    group = torch.tensor([[0, 1, 2], [0, 1, -1], [1, 2, 2]])
    batch = list_batch(torch.arange(3), 0 * scores, group, torch.ones(3, 3).bool())
    gap = RankExposureDisparity(3)(
        scores, batch, Selection(torch.ones_like(scores)), torch.ones(3).double()
    ).gap
    hinge = (scores[0][None, :] - scores[0][:, None] + 1).relu() ** 2
    x = 1 / (1 + hinge.sum(-1)).log2()
    expected = torch.stack([x[0] - (x[1] + x[2]) / 2, x[0] - x[1], x[0] * torch.nan])
    torch.testing.assert_close(gap, expected, equal_nan=True)


def test_without_a_weight_there_is_no_anchor() -> None:
    scores, batch = ragged(0, 2)
    found = fairness_part(scores, batch, "kso-red", 2, k=3, c=0.0, anchor=0.7, exposure="rank")
    assert (found.grad == 0).all()


def test_an_item_drawn_apart_that_beats_the_whole_list_has_rank_one() -> None:
    scores = torch.tensor([[1.0, 0.5, 0.0, 9.0, -9.0]]).double()
    mask = torch.tensor([[True, True, True, False, False]])
    group = torch.tensor([[-1, -1, -1, 0, 1]])
    batch = list_batch(torch.tensor([0]), torch.zeros(1, 5).double(), group, mask)
    batch = batch._replace(group=group, weight=torch.ones(1, 5).double())
    found = RankExposureDisparity(2)(
        scores, batch, Selection(torch.ones_like(scores)), torch.ones(1).double()
    )
    # Rank 1 has exposure 1 / log2(2); the last one's smoothed rank is 1 + sum of squares.
    rank = 1 + sum((score + 9 + 1) ** 2 for score in (1.0, 0.5, 0.0))
    assert float(found.gap) == pytest.approx(1 - 1 / math.log2(1 + rank))
