from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fairtopk as ft
from fairtopk.errors import InputError
from fairtopk.reranking.exposure_lp import (
    Program,
    _improve,
    _of_several_groups,
    best_mixture,
    birkhoff,
)

optimize = pytest.importorskip("scipy.optimize")

NOTIONS = ["parity", "treatment", "impact"]
RELEVANCE = np.array([0.82, 0.81, 0.80, 0.79, 0.78, 0.77])
GROUPS = np.array([0, 0, 0, 1, 1, 1])


def discount(n: int, k: int) -> np.ndarray:
    return np.where(np.arange(n) < k, 1 / np.log2(2 + np.arange(n)), 0)


def rates(relevance: np.ndarray, groups: np.ndarray, notion: str) -> np.ndarray:
    """What exposure of each item gives to each group that the list has, by the definitions."""
    rows = []
    for group in sorted({*groups.tolist()} - {-1}):
        inside = groups == group
        row = inside / inside.sum()
        if notion != "parity":
            row = row / relevance[inside].mean()
        rows.append(row * relevance if notion == "impact" else row)
    return np.array(rows)


def expected(result: Any, relevance: np.ndarray, k: int) -> tuple[np.ndarray, float]:
    """Exposure of each item, and the utility."""
    exposure = result.policies[0].matrix().numpy() @ discount(len(relevance), k)
    return exposure, float(relevance @ exposure)


def solve(relevance: np.ndarray, groups: np.ndarray, **options: Any) -> Any:
    return ft.rerank(relevance[None], groups[None], method="exposure-lp", **options)


@pytest.mark.parametrize(
    ("notion", "dcg", "first", "second"),
    [
        ("none", 2.647312, 0.710310, 0.391246),
        ("parity", 2.636088, 0.550778, 0.550778),
        ("treatment", 2.637024, 0.561170, 0.540386),
        ("impact", 2.636116, 0.551083, 0.550473),
    ],
)
def test_the_worked_list_has_the_optimum_worked_out_for_it(
    notion: str, dcg: float, first: float, second: float
) -> None:
    if notion == "none":
        result = solve(RELEVANCE, GROUPS, slack=1.0)
    else:
        result = solve(RELEVANCE, GROUPS, notion=notion)
    exposure, utility = expected(result, RELEVANCE, 6)
    means = exposure[:3].mean(), exposure[3:].mean()
    assert (utility, *means) == pytest.approx((dcg, first, second), abs=1e-6)


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int, float, str]:
    n = draw(st.integers(2, 6))
    relevance = draw(st.lists(st.integers(1, 20), min_size=n, max_size=n))
    groups = draw(st.lists(st.integers(-1, 2), min_size=n, max_size=n))
    slack = draw(st.sampled_from([0.0, 0.0, 0.05]))
    notion, k = draw(st.sampled_from(NOTIONS)), draw(st.integers(1, n))
    return np.array(relevance) / 10, np.array(groups), k, slack, notion


def by_enumeration(
    relevance: np.ndarray, groups: np.ndarray, k: int, slack: float, notion: str
) -> Any:
    """The program over the weights of all n! rankings, with a row for each pair of groups."""
    n, given = len(relevance), rates(relevance, groups, notion)
    orders = np.array(list(permutations(range(n))))
    exposure = discount(n, k)[orders]
    gets = exposure @ given.T if len(given) else np.zeros((len(orders), 0))
    pairs = [(a, b) for a in range(len(given)) for b in range(len(given)) if a != b]
    limits = [gets[:, a] - gets[:, b] for a, b in pairs] or [np.zeros(len(orders))]
    return optimize.linprog(
        -exposure @ relevance,
        A_ub=np.array(limits),
        b_ub=np.full(len(limits), slack),
        A_eq=np.ones((1, len(orders))),
        b_eq=[1.0],
    )


def check(problem: tuple[np.ndarray, np.ndarray, int, float, str]) -> None:
    relevance, groups, k, slack, notion = problem
    best = by_enumeration(*problem)
    result = solve(relevance, groups, k=k, slack=slack, notion=notion, infeasible="mark")
    assert result.met.item() == best.success
    if not best.success:
        assert result.slot[0].tolist() == (-relevance).argsort(kind="stable").tolist()
        return
    exposure, utility = expected(result, relevance, k)
    assert utility == pytest.approx(-best.fun, abs=1e-7)
    gets = rates(relevance, groups, notion) @ exposure if (groups >= 0).any() else np.zeros(1)
    assert np.ptp(gets) <= slack + 1e-7
    matrix = result.policies[0].matrix()
    for sums in (matrix.sum(0), matrix.sum(1)):
        torch.testing.assert_close(sums, torch.ones_like(sums))
    assert len(result.policies[0].probability) <= 2 * 3 + 1


@given(problem=problems())
def test_the_optimum_is_that_over_all_rankings(
    problem: tuple[np.ndarray, np.ndarray, int, float, str],
) -> None:
    check(problem)


@pytest.mark.parametrize("notion", NOTIONS)
def test_the_optimum_of_seven_items_is_that_over_all_rankings(notion: str) -> None:
    rng = np.random.default_rng(7)
    relevance, groups = rng.random(7), np.array([0, 1, 1, 2, 0, 1, -1])
    check((relevance, groups, 5, 0.0, notion))


def test_the_optimum_of_a_long_list_is_that_over_all_matrices() -> None:
    rng = np.random.default_rng(0)
    n, k = 40, 10
    relevance, groups = rng.random(n), (rng.random(n) < 0.7).astype(int)
    relevance[groups == 0] /= 2
    weight = discount(n, n)[:k]
    f = np.array([1.0, -1.0]) @ rates(relevance, groups, "treatment")
    entries = np.eye(n * k).reshape(n, k, n * k)
    best = optimize.linprog(
        -np.outer(relevance, weight).ravel(),
        A_ub=entries.sum(1),
        b_ub=np.ones(n),
        A_eq=np.vstack([entries.sum(0), np.outer(f, weight).ravel()]),
        b_eq=np.append(np.ones(k), 0),
    )
    _, utility = expected(solve(relevance, groups, k=k, notion="treatment"), relevance, k)
    assert utility == pytest.approx(-best.fun, abs=1e-8)


def test_the_ranking_is_drawn_with_its_probability_and_the_rest_is_by_score() -> None:
    scores, groups = np.tile(RELEVANCE[:4], (40, 1)), np.tile([0, 0, 1, 1], (40, 1))
    result = ft.rerank(scores, groups, method="exposure-lp", k=2, seed=1)
    policy = result.policies[0]
    drawn = [(result.slot == ranking).all(-1).double().mean().item() for ranking in policy.slot]
    assert sum(drawn) == pytest.approx(1)
    assert drawn == pytest.approx(policy.probability.tolist(), abs=0.2)
    assert min(drawn) > 0
    assert result.slot[:, 2:].diff().min() > 0


def test_the_seed_decides_what_is_drawn() -> None:
    scores, groups = np.tile(RELEVANCE[:4], (12, 1)), np.tile([0, 0, 1, 1], (12, 1))
    one, again, other = (
        ft.rerank(scores, groups, method="exposure-lp", seed=seed).slot for seed in (1, 1, 2)
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_relevance_may_differ_from_the_scores() -> None:
    scores = -RELEVANCE[None]
    result = ft.rerank(
        scores, GROUPS[None], method="exposure-lp", relevance=RELEVANCE[None], slack=1.0
    )
    assert result.slot.tolist() == [[0, 1, 2, 3, 4, 5]]


def test_padding_stays_behind_and_a_list_may_be_short_or_empty() -> None:
    scores = torch.tensor([[9.0, 1.0, 3.0, 9.0, 2.0], [0.0] * 5, [5.0, 0, 0, 0, 0]])
    mask = torch.tensor([[False, True, True, False, True], [False] * 5, [True] + [False] * 4])
    groups = torch.tensor([[0, 0, 1, 0, 1]] * 3)
    result = ft.rerank(scores, groups, method="exposure-lp", mask=mask)
    assert result.met.all()
    matrix = result.policies[0].matrix()
    assert matrix[[0, 3], 3:].sum() == 2
    assert sorted(result.slot[0, :3].tolist()) == [1, 2, 4]
    assert result.slot[1].tolist() == result.slot[2].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("relevance", [[1.0, 0.9, 0.001, 0.001], [1.0, 0.9, 0.0, 0.0]])
def test_a_list_without_a_solution_is_refused_or_marked(relevance: list[float]) -> None:
    scores, groups = (
        np.array([RELEVANCE[:4], relevance]),
        np.array([[0, 1, 0, 1], [0, 0, 1, 1]]),
    )
    options = {"method": "exposure-lp", "notion": "treatment"}
    sentence = (
        "exposure-lp: list 1 has no random ranking whose groups get the same by treatment, "
        "within 0; raise the slack or choose another notion, or pass infeasible='mark'"
    )
    with pytest.raises(InputError, match=sentence):
        ft.rerank(scores, groups, **options)
    marked = ft.rerank(scores, groups, **options, infeasible="mark")
    assert marked.met.tolist() == [True, False]
    assert marked.slot[1].tolist() == [0, 1, 2, 3]


def test_negative_relevance_is_refused_where_it_divides() -> None:
    scores = np.array([[1.0, -2.0]])
    with pytest.raises(InputError, match="must not be negative, got -2 in list 0, slot 1"):
        ft.rerank(scores, [[0, 1]], method="exposure-lp", notion="impact")
    assert ft.rerank(scores, [[0, 1]], method="exposure-lp").met.all()


def program(seed: int, *, n: int, k: int, slack: float, ties: bool) -> Program:
    rng = np.random.default_rng(seed)
    utility = rng.normal(size=n)
    if ties:
        utility = np.round(utility)
    protected = rng.random(n) < rng.choice([0.1, 0.5])
    protected[:2] = True, False
    utility -= protected
    rates = np.stack([protected, ~protected]).astype(float)
    rates[:, rng.random(n) < 0.1] = 0  # of unknown group
    rates[0, 0], rates[1, 1] = 1.0, 1.0
    rates /= rates.sum(-1, keepdims=True) * rng.choice([1.0, 1.5], size=(2, 1))
    discount = 1 / np.log2(2 + np.arange(k))
    return Program(utility / (np.abs(utility).max() or 1.0), rates, discount, slack)


def worth(one: Program, mixture: tuple[np.ndarray, np.ndarray]) -> tuple[float, float]:
    """The utility of a mixture, and by how much its groups differ."""
    rankings, weights = mixture
    exposure = np.zeros(len(one.utility))
    for ranking, weight in zip(rankings, weights, strict=True):
        exposure[ranking[: len(one.discount)]] += weight * one.discount
    return float(one.utility @ exposure), float(np.ptp(one.rates @ exposure))


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(2, 60),
    slack=st.sampled_from([0.0, 0.01, 0.3]),
    ties=st.booleans(),
    data=st.data(),
)
def test_two_groups_need_no_solver_and_get_its_optimum(
    seed: int, n: int, slack: float, ties: bool, data: st.DataObject
) -> None:
    one = program(seed, n=n, k=data.draw(st.integers(1, n)), slack=slack, ties=ties)
    direct, solved = best_mixture(one), _of_several_groups(one)
    assert (direct is None) == (solved is None)
    if direct is None or solved is None:
        return
    utility, gap = worth(one, direct)
    assert utility == pytest.approx(worth(one, solved)[0], abs=1e-7)
    assert gap <= slack + 1e-8
    assert len(direct[1]) <= 2
    assert direct[1].sum() == pytest.approx(1)


@pytest.mark.parametrize("seed", range(10))
def test_the_utility_lies_between_chance_and_the_order_by_utility(seed: int) -> None:
    one = program(seed, n=40, k=12, slack=0.0, ties=False)
    mixture = best_mixture(one)
    if mixture is None:
        return
    best = worth(one, ((-one.utility).argsort()[None], np.ones(1)))[0]
    relaxed = best_mixture(one._replace(slack=0.05))
    assert relaxed is not None
    utilities = worth(one, mixture)[0], worth(one, relaxed)[0], best
    assert list(utilities) == sorted(utilities)
    # Parity alone is what a shuffle has too, whose utility is the mean.
    equal = one._replace(rates=(one.rates > 0) / (one.rates > 0).sum(-1, keepdims=True))
    fair = best_mixture(equal)
    assert fair is not None
    assert worth(equal, fair)[0] >= one.utility.mean() * one.discount.sum()


def test_a_gain_that_is_rounding_ends_with_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = np.zeros((3, 12))
    rates[np.arange(12) % 3, np.arange(12)] = 1 / 4
    several = program(3, n=12, k=5, slack=0.01, ties=False)._replace(rates=rates)
    mixture = best_mixture(several)
    assert mixture is not None
    monkeypatch.setattr("fairtopk.reranking.exposure_lp.TOLERANCE", -1.0)  # all seems to gain
    rankings = list(mixture[0])
    solved = _improve(rankings, several, allowed=0.0)
    assert -solved.fun == pytest.approx(worth(several, mixture)[0])


pytest.importorskip("scipy")


@pytest.mark.parametrize("n", [1, 2, 5, 12])
@pytest.mark.parametrize("terms", [1, 3, 40])
def test_the_rankings_add_up_to_the_matrix(n: int, terms: int) -> None:
    rng = np.random.default_rng(n * terms)
    matrix = np.zeros((n, n))
    for weight in rng.dirichlet(np.ones(terms)):
        matrix[rng.permutation(n), np.arange(n)] += weight
    policy = birkhoff(matrix)
    assert len(policy.probability) <= (n - 1) ** 2 + 1
    assert (policy.probability > 0).all()
    assert policy.probability.sum().item() == pytest.approx(1)
    assert policy.slot.sort().values.tolist() == [list(range(n))] * len(policy.slot)
    torch.testing.assert_close(policy.matrix(), torch.from_numpy(matrix), rtol=0, atol=1e-7)


def test_single_precision_is_precise_enough() -> None:
    matrix = torch.full((7, 7), 1 / 7)
    assert (birkhoff(matrix).matrix() - 1 / 7).abs().max() < 1e-6


@pytest.mark.parametrize(
    ("matrix", "sentence"),
    [
        (torch.ones(2, 3), r"as many rows as columns, got shape \[2, 3\]"),
        (torch.ones(2, 2), "add up to 1, got sums from 2 to 2 and entries from 1"),
        (
            torch.tensor([[1.5, -0.5], [-0.5, 1.5]]),
            "got sums from 1 to 1 and entries from -0.5",
        ),
        (torch.full((2, 2), torch.nan), "add up to 1"),
        (None, "matrix must be a square tensor or array of numbers"),
        ([[1.0, 0.0], [0.0]], "matrix must be a square tensor or array of numbers"),
    ],
)
def test_what_is_not_doubly_stochastic_is_refused(matrix: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        birkhoff(matrix)
