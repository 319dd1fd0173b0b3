"""The whole objective against autograd on its formula, and what the methods have in common."""

import math
import pkgutil
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fairtopk.lists.batch import Batch, list_batch
from fairtopk.objectives import objective as module
from fairtopk.objectives.methods import METHODS, PRESETS, ObjectiveSettings, methods_of
from fairtopk.objectives.ndcg import Estimate
from fairtopk.objectives.objective import Objective, list_spread

ROOMS = ("kernels", "lists", "metrics", "training")


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
        elif parts.ranking == "softmax":
            top, relevant = psi(given.ks[-1], given.alpha), (y > 0).nonzero()[:, 0]
            for i in relevant:
                log_sum = ((h - h[i]) / given.tau_d).logsumexp(-1)
                total = total + top[i] * log_sum / len(relevant)
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


@pytest.mark.parametrize("method", methods_of("objective"))
@pytest.mark.parametrize("gradient", ["frozen", "psi", "full"])
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


@pytest.mark.parametrize("method", methods_of("objective"))
@pytest.mark.parametrize("gradient", ["frozen", "psi"])
def test_ties_and_huge_scores_have_the_gradient_of_the_formula(
    method: str, gradient: str
) -> None:
    """Through lambda too, a tie at the threshold could go to any of its items."""
    for seed in range(5):
        batch = ragged(seed)
        for scores in (drawn(seed, batch).round(), drawn(seed, batch) * 1e4):
            check(method, batch, scores, 2, k=3, c=50.0, gradient=gradient)


@pytest.mark.parametrize("method", methods_of("objective"))
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


@pytest.mark.parametrize("preset", list(PRESETS))
@pytest.mark.parametrize(
    ("fair", "blind"),
    [("ng-de", "k-song"), ("so-red", "k-song"), ("kso-red", "k-song"), ("deltr", "listnet")],
)
def test_at_c_0_a_fair_method_is_its_ranking_part_to_the_bit(
    fair: str, blind: str, preset: str
) -> None:
    values = {**PRESETS[preset], "k": 3, "n_pairs": 63}
    ours, theirs = steps(objective(fair, **values, c=0.0)), steps(objective(blind, **values))
    for found, expected in zip(ours, theirs, strict=True):
        assert torch.equal(found.value, expected.value)
        assert torch.equal(found.grad, expected.grad)


@pytest.mark.parametrize("preset", list(PRESETS))
def test_where_k_is_the_whole_list_the_top_is_all(preset: str) -> None:
    values = {**PRESETS[preset], "k": 9, "c": 100.0, "gamma_u": 0.2, "n_pairs": 63}
    ours, theirs = steps(objective("kso-red", **values)), steps(objective("so-red", **values))
    for found, expected in zip(ours, theirs, strict=True):
        assert torch.equal(found.value, expected.value)
        assert torch.equal(found.grad, expected.grad)


def test_without_averages_so_red_is_ng_de() -> None:
    values = {"k": 3, "c": 100.0, "gamma_u": 1.0, "n_pairs": 63}
    so_red, ng_de = (steps(objective(name, **values))[-1] for name in ("so-red", "ng-de"))
    assert torch.equal(so_red.grad, ng_de.grad)
    averaged = steps(objective("so-red", **{**values, "gamma_u": 0.2}))[-1]
    assert not torch.allclose(averaged.grad, ng_de.grad)


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
@pytest.mark.parametrize("method", methods_of("objective"))
@pytest.mark.parametrize("gradient", ["frozen", "psi", "full"])
def test_flat_and_huge_scores_give_finite_gradients_in_float32(
    method: str, scale: float, gradient: str
) -> None:
    batch = ragged(2)
    single = Batch(*(one.float() if one.is_floating_point() else one for one in batch))
    for preset in PRESETS.values():
        values = {**preset, "k": 3, "c": 1e9, "gradient": gradient}
        part = objective(method, **values).float()
        for seed in range(3):
            found = part(drawn(seed, batch).float() * scale, single)
            assert found.grad.dtype == torch.float32
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


@pytest.mark.slow
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
    found = list_spread(scores, batch)
    for row in range(4):
        expected = scores[row, batch.mask[row]].std(correction=0)
        torch.testing.assert_close(found[row], expected)


def test_every_name_in_the_map_from_the_paper_to_the_code_exists() -> None:
    rows = [row for row in (module.__doc__ or "").splitlines() if row.startswith("| ")]
    names = [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]
    assert len(names) > 20
    for name in names:
        room = "fairtopk" if name.split(".")[0] in ROOMS else "fairtopk.objectives"
        assert callable(pkgutil.resolve_name(f"{room}.{name}")), name


@pytest.mark.parametrize("equation", [1, 2, 3, 4, 5, 7, 9, 10, 11, *range(13, 24)])
def test_every_equation_is_numbered_at_its_line(equation: int) -> None:
    package = Path(module.__file__).parents[1]
    rooms = ("objectives/*.py", "metrics/gaps.py", "lists/batch.py")
    paths = [path for room in rooms for path in package.glob(room)]
    comments = [
        line.partition("#")[2] for path in paths for line in path.read_text().splitlines()
    ]
    assert any(re.search(rf"Eqs?\. [\d, and-]*\b{equation}\b", one) for one in comments)
