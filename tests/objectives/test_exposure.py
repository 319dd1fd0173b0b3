"""Group exposure, the penalty of Eqs. 7 and 11, and its estimate by Eqs. 21 and 22."""

import math
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fairtopk.lists.batch import Batch, list_batch
from fairtopk.metrics import rank_exposure_gap
from fairtopk.objectives.exposure import (
    SOFT_TOPS,
    ExposureDisparity,
    RankExposureDisparity,
    discount_as_tops,
    group_exposure,
    group_sums,
    pair_penalty,
    values_of_groups,
)
from fairtopk.objectives.methods import METHODS, RUN_PRESETS, ObjectiveSettings
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


def soft_top(h: Tensor, weight: Tensor, k: float, alpha: float) -> Tensor:
    """p_i = F((h_i - b) / alpha), b by bisection, with one step of Newton for its gradient.

    Slots of weight 0 are drawn apart from the list, and have a p_i too.
    """

    def soft(b: Tensor) -> Tensor:
        x = (h - b) / alpha
        return torch.where(x > 0, 1 - (-x.abs()).exp() / 2, (-x.abs()).exp() / 2)

    if k >= weight.sum() - 1e-9:
        return torch.ones_like(h)
    low, high = h.detach().min() - 100 * alpha, h.detach().max() + 100 * alpha
    with torch.no_grad():
        for _ in range(100):
            b = (low + high) / 2
            low, high = (b, high) if (weight * soft(b)).sum() > k else (low, b)
    slope = (weight * (-(h - b).abs() / alpha).exp() / 2).sum().detach() / alpha
    return soft(b + ((weight * soft(b)).sum() - k) / slope)


def penalty(scores: Tensor, batch: Batch, *, ks: list[int], alpha: float, c: float) -> Tensor:
    """The penalty as it is written, list by list: a soft top-k for each rank up to K."""
    total = torch.zeros((), dtype=torch.float64)
    for row in range(len(scores)):
        h, weight = scores[row], batch.slot_counts[row]
        inside = batch.mask[row]
        mean = (weight * h).sum() / weight.sum()
        spread = ((weight * (h - mean) ** 2).sum() / weight.sum()).sqrt().detach()
        unit = float(weight.sum() / inside.sum())
        for last in ks:
            discounts = [1 / math.log2(1 + r) for r in range(1, last + 1)]
            shown = unit * sum(discounts[: int(inside.sum())])
            d = [one / shown for one in discounts] + [0.0]
            exposure = sum(
                (d[k - 1] - d[k]) * soft_top(h, weight, k * unit, alpha * float(spread))
                for k in range(1, last + 1)
            )
            group, of_group = batch.group[row], batch.weight[row] * exposure
            found = [(group == g) & (batch.weight[row] > 0) for g in range(3)]
            means = [
                of_group[one].sum() / batch.weight[row, one].sum() for one in found if one.any()
            ]
            pairs = sum((a - b) ** 2 for a, b in combinations(means, 2))
            total = total + c * pairs / 2 / len(scores) / len(ks)
    return total


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_groups", [2, 3])
@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), ties=st.booleans())
def test_the_gradient_of_the_gap_by_rank_is_that_of_the_formula(
    n_groups: int, weighted: bool, apart: bool, seed: int, ties: bool
) -> None:
    scores, batch = drawn(seed, n_groups=n_groups, apart=apart, weighted=weighted)
    if ties:
        scores = (4 * scores).round() / 4
        scores[:, 0] += 0.1  # some spread
    for method, k, ks in (("kso-red", (2, 4), [2, 4]), ("so-red", 2, [LENGTH])):
        values = {"k": k, "c": 20.0, "exposure": "rank", "temperature": 0.5}
        found, without = (
            Objective(
                METHODS[method],
                ObjectiveSettings.model_validate({**values, "c": c}),
                n_queries=N_QUERIES, n_pairs=1, n_groups=n_groups,
            ).double()(scores, batch)
            for c in (20.0, 0.0)
        )  # fmt: skip
        leaf = scores.clone().requires_grad_()
        exact = penalty(leaf, batch, ks=ks, alpha=0.5, c=20.0)
        (grad,) = torch.autograd.grad(exact + 0 * leaf.sum(), leaf)
        close = {"rtol": 1e-9, "atol": 1e-10}
        torch.testing.assert_close(found.value - without.value, exact.detach(), **close)
        torch.testing.assert_close(found.grad - without.grad, grad, **close)


@pytest.mark.parametrize("k", [1, 3, SOFT_TOPS, 50, 200])
def test_in_the_limit_it_is_the_gap_by_rank_of_the_metrics(k: int) -> None:
    """Exactly while each rank has a top of its own, else by a few per cent."""
    generator = torch.Generator().manual_seed(k)
    scores = torch.randn(40, 120, dtype=torch.float64, generator=generator)
    group = torch.randint(-1, 2, scores.shape, generator=generator)
    mask = torch.arange(120) < torch.randint(90, 121, (40, 1), generator=generator)
    batch = list_batch(torch.arange(40), 0 * scores, group, mask)
    found = RankExposureDisparity(2, k)(
        scores, batch, scores.new_full((40,), 1e-9), torch.ones(40).double()
    )
    exact = rank_exposure_gap(scores, group, mask=mask, k=k, signed=True)
    rank = torch.arange(1, 121, dtype=torch.float64)
    exact /= ((rank <= k) * mask / (1 + rank).log2()).sum(-1)
    error = (found.gap - exact).abs().mean() / exact.abs().mean()
    assert error < (1e-12 if k <= SOFT_TOPS else 0.07)
    torch.testing.assert_close(found.value, (found.gap**2).mean() / 2)


@given(k=st.integers(1, 5_000))
def test_few_tops_have_the_exposure_of_the_first_rank_and_of_all(k: int) -> None:
    tops, weights = discount_as_tops(k)
    assert len(tops) <= SOFT_TOPS
    assert tops == sorted(tops)
    assert tops[-1] == pytest.approx(k)
    discount = [1 / math.log2(1 + r) for r in range(1, k + 1)]
    assert sum(weights) == pytest.approx(1)
    total = sum(a * b for a, b in zip(tops, weights, strict=True))
    assert total == pytest.approx(sum(discount))


def test_the_signed_gap_is_group_0_less_the_mean_of_the_others_present() -> None:
    scores = torch.tensor([[1.0, 0.0, -1.0]]).double().expand(3, 3)
    group = torch.tensor([[0, 1, 2], [0, 1, -1], [1, 2, 2]])
    batch = list_batch(torch.arange(3), 0 * scores, group, torch.ones(3, 3).bool())
    sharp = scores.new_full((3,), 1e-9)
    found = RankExposureDisparity(3, 3)(scores, batch, sharp, torch.ones(3).double())
    d = [1 / math.log2(1 + rank) for rank in (1, 2, 3)]
    expected = scores.new_tensor([d[0] - (d[1] + d[2]) / 2, d[0] - d[1], math.nan]) / sum(d)
    torch.testing.assert_close(found.gap, expected, equal_nan=True)
    assert found.defined.tolist() == [True, True, True]


def test_an_item_drawn_apart_that_beats_the_whole_list_has_all_exposure() -> None:
    scores = torch.tensor([[1.0, 0.5, 0.0, 9.0, -9.0]]).double()
    mask = torch.tensor([[True, True, True, False, False]])
    group = torch.tensor([[-1, -1, -1, 0, 1]])
    batch = list_batch(torch.tensor([0]), torch.zeros(1, 5).double(), group, mask)
    batch = batch._replace(group=group, weight=torch.ones(1, 5).double())
    sharp = scores.new_full((1,), 1e-9)
    found = RankExposureDisparity(2, 2)(scores, batch, sharp, torch.ones(1).double())
    assert float(found.gap) == pytest.approx(1 / (1 + 1 / math.log2(3)))


def test_settings_without_a_meaning_for_exposure_by_rank_are_refused() -> None:
    for values in (
        {"gamma_u": 0.5},
        {"penalty_gradient": "psi"},
        {"penalty_gradient": "frozen"},
    ):
        with pytest.raises(ValueError, match="; leave "):
            ObjectiveSettings.model_validate({"exposure": "rank", **values})
    catalogue = ObjectiveSettings(exposure="rank", **RUN_PRESETS["catalogue"])
    assert catalogue.penalty_gradient == "full"
