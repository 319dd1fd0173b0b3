"""The whole objective against autograd on its formula, and what the methods have in common."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fairtopk.batches import Batch, list_batch
from fairtopk.estimators.base import Estimate
from fairtopk.estimators.methods import METHODS
from fairtopk.estimators.objective import Objective, list_spread
from fairtopk.estimators.settings import PRESETS, ObjectiveSettings


def ragged(seed: int, *, n_groups: int = 2, n_lists: int = 4, length: int = 9) -> Batch:
    """Lists of different length, some items unrated, some groups unknown, some absent."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(2, length + 1, (n_lists, 1), generator=generator)
    return list_batch(
        query=torch.randperm(7, generator=generator)[:n_lists],
        relevance=torch.randint(0, 5, (n_lists, length), generator=generator).double(),
        group=torch.randint(-1, n_groups, (n_lists, length), generator=generator),
        mask=torch.arange(length) < sizes,
        ideal_k=4,
    )


def drawn(seed: int, batch: Batch) -> Tensor:
    generator = torch.Generator().manual_seed(seed + 1)
    return torch.randn(batch.mask.shape, dtype=torch.float64, generator=generator)


def objective(
    method: str, *, n_groups: int = 2, n_pairs: int = 1, **values: object
) -> Objective:
    return Objective(
        METHODS[method],
        ObjectiveSettings.model_validate(values),
        n_queries=7,
        n_pairs=n_pairs,
        n_groups=n_groups,
    ).double()


def formula(method: str, scores: Tensor, batch: Batch, **values: object) -> Tensor:
    """The objective as the equations write it, list by list; autograd does the rest."""
    parts, given = METHODS[method], ObjectiveSettings.model_validate(values)
    total = torch.zeros((), dtype=torch.float64)
    for row in range(len(scores)):
        kept = batch.mask[row]
        h, y, group = scores[row, kept], batch.relevance[row, kept], batch.group[row, kept]
        n = len(h)
        stopped = h.detach()
        spread = stopped.std(correction=0).clamp(min=1e-6)

        def psi(k: int, sharpness: Tensor | float, h: Tensor = h, n: int = n) -> Tensor:
            if k >= n:
                return torch.ones_like(h)
            lam = h.sort(descending=True).values[k]
            base = h.detach() if given.gradient == "frozen" else h
            lam = lam if given.gradient == "full" else lam.detach()
            return torch.sigmoid(sharpness * (base - lam))

        if parts.ranking == "listnet":
            total = total - (y.softmax(-1) * h.log_softmax(-1)).sum()
        else:
            rank = ((h[None, :] - h[:, None] + 1).relu() ** 2).sum(-1)
            terms = -(2**y - 1) / (1 + rank).log2()
            if parts.selects:
                terms = terms * psi(given.ks[-1], given.alpha)
            if (y > 0).any():
                total = total + terms.sum() / batch.ideal_dcg[row]
        if parts.fairness == "none":
            continue
        beta = given.beta / (spread if given.beta_of == "spread" else 1.0)
        tops = [psi(k, beta) for k in given.ks] if parts.fairness == "top" else [torch.ones(n)]
        for top in tops:
            exposure = top * h.softmax(-1)
            present = [g for g in range(int(batch.group.max()) + 1) if (group == g).any()]
            means = [exposure[group == g].mean() for g in present]
            pairs = [(a - b) ** 2 for i, a in enumerate(means) for b in means[:i]]
            cost = (given.c or 0) if given.c_relative is None else given.c_relative * n**2
            if pairs:
                total = total + cost * sum(pairs) / 2 / len(tops)
    return total / len(scores)


def check(method: str, batch: Batch, scores: Tensor, n_groups: int, **values: object) -> None:
    found = objective(method, n_groups=n_groups, gamma_0=1.0, gamma_u=1.0, **values)(
        scores, batch
    )
    leaf = scores.clone().requires_grad_()
    exact = formula(method, leaf, batch, **values)
    exact.backward()
    torch.testing.assert_close(found.value, exact.detach(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found.grad, leaf.grad, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("gradient", ["frozen", "psi", "full"])
@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), n_groups=st.integers(2, 4))
def test_without_memory_the_gradient_is_that_of_the_formula(
    method: str, gradient: str, seed: int, n_groups: int
) -> None:
    batch = ragged(seed, n_groups=n_groups)
    check(method, batch, drawn(seed, batch), n_groups, k=3, c=50.0, gradient=gradient)


@pytest.mark.parametrize("values", [
    {"k": 1}, {"k": 9}, {"k": (2, 4, 20)}, {"beta": 2.0, "beta_of": "score"}, {"c": 0.0},
    {"c": 1e9}, {"c": None, "c_relative": 0.7},
])  # fmt: skip
def test_every_setting_is_in_the_gradient(values: dict[str, object]) -> None:
    for seed in range(5):
        batch = ragged(seed)
        check("kso-red", batch, drawn(seed, batch), 2, **({"k": 3, "c": 50.0} | values))


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("preset", list(PRESETS))
def test_scores_shifted_by_5000_give_the_same_gradient(method: str, preset: str) -> None:
    """Over several steps, so that averages of exp(score) are part of it."""
    values = {**PRESETS[preset], "k": 3, "c": 1e3, "threshold": "exact", "tau_2": 0.0}
    results = []
    for shift in (0.0, 5_000.0):
        part = objective(method, **values)
        for seed in (1, 2, 1):
            batch = ragged(seed)
            found = part(drawn(seed, batch) + shift, batch)
        results.append(found)
    torch.testing.assert_close(results[0].grad, results[1].grad, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(results[0].value, results[1].value, rtol=1e-8, atol=1e-10)


def steps(part: Objective, n: int = 3) -> list[Estimate]:
    """Some steps on lists that come back, their pairs remembered."""
    found = []
    for step in range(n):
        batch = ragged(step % 2)
        rows = batch.query[:, None] * 9 + torch.arange(9)
        found.append(part(drawn(step, batch), batch._replace(pair=rows)))
    return found


def test_at_c_0_the_four_ndcg_methods_are_one() -> None:
    results = [
        steps(objective(method, n_pairs=63, k=3, c=0.0))[-1].grad
        for method in ("k-song", "ng-de", "so-red", "kso-red")
    ]
    for other in results[1:]:
        assert torch.equal(results[0], other)


def test_where_k_is_the_whole_list_the_top_is_all() -> None:
    values = {"k": 9, "c": 100.0, "gamma_u": 0.2, "n_pairs": 63}
    so_red, kso_red = (steps(objective(name, **values))[-1] for name in ("so-red", "kso-red"))
    assert torch.equal(so_red.grad, kso_red.grad)


def test_without_averages_so_red_is_ng_de() -> None:
    values = {"k": 3, "c": 100.0, "gamma_u": 1.0, "n_pairs": 63}
    so_red, ng_de = (steps(objective(name, **values))[-1] for name in ("so-red", "ng-de"))
    assert torch.equal(so_red.grad, ng_de.grad)
    averaged = steps(objective("so-red", **{**values, "gamma_u": 0.2}))[-1]
    assert not torch.allclose(averaged.grad, ng_de.grad)


@pytest.mark.parametrize("method", ["song", "listnet", "deltr", "so-red", "kso-red"])
def test_gradients_sum_to_zero_over_a_list(method: str) -> None:
    for seed in range(5):
        batch = ragged(seed)
        grad = objective(method, k=3, c=100.0)(drawn(seed, batch), batch).grad
        # With psi frozen, a shift of all scores changes nothing.
        torch.testing.assert_close(grad.sum(-1), torch.zeros(4).double(), rtol=0, atol=1e-12)


def test_reordering_items_reorders_the_gradient_and_swapping_groups_keeps_it() -> None:
    batch = ragged(3)
    scores = drawn(3, batch)
    part = objective("kso-red", k=3, c=100.0)
    grad = part(scores, batch).grad
    turned = list_batch(
        batch.query,
        batch.relevance.flip(-1),
        batch.group.flip(-1),
        batch.mask.flip(-1),
        ideal_k=4,
    )
    torch.testing.assert_close(part(scores.flip(-1), turned).grad, grad.flip(-1))
    swapped = torch.where(batch.group >= 0, 1 - batch.group, -1)
    torch.testing.assert_close(part(scores, batch._replace(group=swapped)).grad, grad)


def test_what_stands_on_padding_changes_nothing() -> None:
    batch = ragged(5)
    scores = drawn(5, batch)
    part = objective("kso-red", k=3, c=100.0)
    found = part(scores, batch)
    for rubbish in (1e6, math.nan, -math.inf):
        again = part(scores.masked_fill(~batch.mask, rubbish), batch)
        assert torch.equal(found.grad, again.grad)
        assert (again.grad[~batch.mask] == 0).all()


def test_a_list_with_one_group_moves_no_average_and_is_counted() -> None:
    batch = ragged(0)
    part = objective("kso-red", k=3, c=100.0, gamma_u=0.5)
    part(drawn(0, batch), batch)
    before = {name: value.clone() for name, value in part.fairness[0].state_dict().items()}
    alone = batch._replace(group=torch.where(batch.group >= 0, 0, -1))
    part(drawn(1, batch), alone)
    for name, value in part.fairness[0].state_dict().items():
        torch.testing.assert_close(value, before[name], equal_nan=True)
    assert part.report()["without_gap"] == 1


@pytest.mark.parametrize("scale", [0.0, 1e-8, 1e4])
@pytest.mark.parametrize("method", list(METHODS))
def test_flat_and_huge_scores_give_finite_gradients(method: str, scale: float) -> None:
    batch = ragged(2)
    for preset in PRESETS.values():
        part = objective(method, **{**preset, "k": 3, "c": 1e9})
        for _ in range(2):
            found = part(drawn(2, batch) * scale, batch)
        assert found.grad.isfinite().all()
        assert found.value.isfinite()


def test_nothing_is_remembered_under_eval_or_no_grad() -> None:
    part = objective("kso-red", **PRESETS["paper"], k=3, c=10.0, n_pairs=63)
    steps(part)
    before = {name: value.clone() for name, value in part.state_dict().items()}
    with torch.no_grad():
        steps(part)
    part.eval()
    steps(part)
    for name, value in part.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0, equal_nan=True)


def test_state_that_is_saved_and_loaded_goes_on_with_the_same_bits() -> None:
    values = {**PRESETS["paper"], "k": 3, "c": 10.0, "n_pairs": 63}
    part, other = (objective("kso-red", **values) for _ in range(2))
    steps(part)
    other.load_state_dict(part.state_dict())
    assert torch.equal(steps(part)[-1].grad, steps(other)[-1].grad)


def test_the_penalty_falls_as_its_weight_grows() -> None:
    """A toy whose minority is shifted down: plain descent on the scores themselves."""
    batch = ragged(1, n_lists=6, length=9)
    start = drawn(1, batch) - 2.0 * (batch.group == 0)
    gaps = []
    for c in (0.0, 10.0, 30.0, 100.0):
        scores, part = start.clone(), objective("kso-red", k=3, c=c)
        for _ in range(400):
            scores -= 0.1 * part(scores, batch).grad
        gaps.append(abs(part.report()["gap_signed"]))
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 0.3 * gaps[0]


def test_the_spread_is_that_of_the_valid_slots() -> None:
    batch = ragged(4)
    scores = drawn(4, batch)
    found = list_spread(scores, batch.mask)
    for row in range(4):
        expected = scores[row, batch.mask[row]].std(correction=0)
        torch.testing.assert_close(found[row], expected)
