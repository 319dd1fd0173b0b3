from fractions import Fraction
from itertools import product
from math import comb

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fairtopk as ft
from fairtopk.errors import InputError
from fairtopk.reranking import prefix_table
from fairtopk.reranking.fa_ir import (
    CLOSEST,
    CONSERVATIVE,
    adjusted_counts,
    failure,
    fill_fair_prefixes,
    minimum_counts,
)

pytestmark = pytest.mark.kernel


def runs(*lengths: int) -> list[int]:
    """0 so many times, 1 so many times, and so on."""
    return [m for m, length in enumerate(lengths) for _ in range(length)]


@pytest.mark.parametrize(
    ("k", "p", "alpha", "plain", "adjusted", "failure"),
    [
        (10, 0.2, 0.15, (8, 2), (8, 2), 0.134217728),
        (20, 0.25, 0.1, (8, 6, 5, 1), (8, 7, 5), 0.1051524736),
        (30, 0.3, 0.05, (8, 5, 5, 5, 4, 3), (10, 6, 5, 4, 5), 0.0487773080),
        (40, 0.4, 0.1, None, (6, 4, 4, 3, 4, 3, 3, 3, 3, 3, 4), 0.1006223177),
        (50, 0.5, 0.1, None, None, 0.0989579391),
        (100, 0.3, 0.1, None, None, 0.0998258922),
    ],
)
def test_tables_are_those_worked_out(
    k: int,
    p: float,
    alpha: float,
    plain: tuple[int, ...] | None,
    adjusted: tuple[int, ...] | None,
    failure: float,
) -> None:
    closest = prefix_table(k=k, p=p, alpha=alpha)
    assert closest.failure == pytest.approx(failure, abs=1e-10)
    if adjusted:
        assert closest.counts.tolist() == runs(*adjusted)
    if plain:
        unadjusted = prefix_table(k=k, p=p, alpha=alpha, adjust="none")
        assert unadjusted.counts.tolist() == runs(*plain)
        assert unadjusted.alpha_c == alpha


@pytest.mark.parametrize(
    ("k", "p", "failure"),
    [
        (12, 0.5, 0.14599609375),
        (20, 0.25, 0.1468871887),
        (40, 0.4, 0.2560603995),
        (50, 0.5, 0.2779143020),
        (100, 0.3, 0.3231205329),
    ],
)
def test_unadjusted_tables_fail_as_often_as_was_worked_out(
    k: int, p: float, failure: float
) -> None:
    table = prefix_table(k=k, p=p, alpha=0.1, adjust="none")
    assert table.failure == pytest.approx(failure, abs=1e-10)


def test_the_closest_step_may_lie_above_alpha_and_the_conservative_one_does_not() -> None:
    closest = prefix_table(k=12, p=0.5, alpha=0.1)
    conservative = prefix_table(k=12, p=0.5, alpha=0.1, adjust="conservative")
    assert closest.failure == pytest.approx(0.1113, abs=5e-5)
    assert conservative.failure < 0.1


@pytest.mark.parametrize(
    ("adjust", "expected"),
    [
        ("closest", [20, 19, 18, 17, 16, 15, 14, 13, 5, 12, 11, 10, 9, 8, 7, 4, 6, 3, 2, 1]),
        ("none", [20, 19, 18, 17, 16, 15, 14, 13, 5, 12, 11, 10, 9, 8, 4, 7, 6, 3, 2, 1]),
    ],
)
def test_the_worked_list_has_the_order_worked_out_for_it(
    adjust: str, expected: list[int]
) -> None:
    scores = torch.arange(20, 0, -1.0)[None]
    fair = ft.rerank(scores, scores <= 5, method="fa-ir", p=0.25, alpha=0.1, adjust=adjust)
    assert scores[0, fair.slot[0]].tolist() == expected


@pytest.mark.compiled
def test_lists_pass_the_table_of_their_own_length() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(200, 60, generator=generator)
    groups = (torch.rand(200, 60, generator=generator) > 0.4).long()
    scores -= (groups == 0) * 2.0
    length = torch.randint(30, 61, (200,), generator=generator)
    mask = torch.arange(60) < length[:, None]
    before = ft.rerank(scores, groups, method="group-bonus", bonus=0.0, mask=mask)
    fair = ft.rerank(scores, groups, method="fa-ir", p=0.3, k=50, mask=mask, infeasible="mark")
    assert torch.equal(fair.met, length >= 50)
    passed = []
    for order in (before.slot, fair.slot):
        counts = (groups.gather(-1, order) == 0).cumsum(-1)
        for query, n in enumerate(length.tolist()):
            top = min(n, 50)
            least = torch.from_numpy(prefix_table(k=top, p=0.3, alpha=0.1).counts)
            passed.append(bool((counts[query, :top] >= least).all()))
    assert sum(passed[:200]) < 40
    assert all(passed[200:])


def test_left_out_the_share_is_that_of_each_list() -> None:
    scores = torch.arange(40, 0, -1.0).repeat(3, 1)
    groups = torch.ones(3, 40, dtype=torch.int64)
    groups[0, 20:], groups[1, 30:] = 0, 0
    fair = ft.rerank(scores, groups, method="fa-ir", k=20)
    for query, p in enumerate([0.5, 0.25]):
        given = ft.rerank(scores, groups, method="fa-ir", k=20, p=p, infeasible="mark")
        assert torch.equal(fair.slot[query], given.slot[query])
    assert fair.slot[2].tolist() == list(range(40))


def test_of_equal_scores_the_protected_item_is_first() -> None:
    fair = ft.rerank([[1.0, 1.0, 2.0]], [[1, 0, 1]], method="fa-ir", p=0.01)
    assert fair.slot.tolist() == [[2, 1, 0]]


def test_unknown_items_and_other_groups_are_the_rest() -> None:
    scores = torch.arange(20, 0, -1.0)[None]
    two = (scores > 5).long()
    several = torch.where(scores > 12, -1, two + (scores > 8).long())
    for group, labels in ((0, several), (3, torch.where(two == 0, 3, two))):
        fair = ft.rerank(scores, labels, method="fa-ir", p=0.4, group=group)
        assert torch.equal(fair.slot, ft.rerank(scores, two, method="fa-ir", p=0.4).slot)


def test_too_few_protected_items_are_refused_or_marked() -> None:
    scores = torch.arange(20, 0, -1.0).repeat(2, 1)
    groups = torch.ones(2, 20, dtype=torch.int64)
    groups[0, -10:], groups[1, -1] = 0, 0
    sentence = (
        "fa-ir: list 1 has 1 items of group 0 where its top 20 needs 6; lower p, alpha or k, "
        r"or pass infeasible='mark' \(1 of 2 lists are like this\)"
    )
    with pytest.raises(InputError, match=f"^{sentence}$"):
        ft.rerank(scores, groups, method="fa-ir", p=0.5)
    marked = ft.rerank(scores, groups, method="fa-ir", p=0.5, infeasible="mark")
    assert marked.met.tolist() == [True, False]
    assert marked.slot[1].sort().values.tolist() == list(range(20))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"k": 0, "p": 0.5, "alpha": 0.1}, "k must be a whole number of at least 1, got 0"),
        ({"k": 1.5, "p": 0.5, "alpha": 0.1}, "k must be a whole number of at least 1, got 1.5"),
        ({"k": True, "p": 0.5, "alpha": 0.1}, "k must be a whole number .*, got True"),
        ({"k": 5, "p": 1.0, "alpha": 0.1}, "p must be a number between 0 and 1, got 1.0"),
        ({"k": 5, "p": None, "alpha": 0.1}, "p must be a number between 0 and 1, got None"),
        ({"k": 5, "p": 0.5, "alpha": 0.0}, "alpha must be a number between 0 and 1, got 0.0"),
        (
            {"k": 5, "p": 0.5, "alpha": 0.1, "adjust": "up"},
            "adjust must be closest, conservative or none, got 'up'",
        ),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(options: dict, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{sentence}$"):
        prefix_table(**options)


shares = st.integers(1, 19).map(lambda twentieths: Fraction(twentieths, 20))
levels = st.integers(1, 99).map(lambda percent: Fraction(percent, 100))


def at_most(m: int, i: int, p: Fraction) -> Fraction:
    """P(Binomial(i, p) <= m)."""
    return sum((comb(i, c) * p**c * (1 - p) ** (i - c) for c in range(m + 1)), Fraction())


def exact_counts(k: int, p: Fraction, alpha: Fraction) -> list[int]:
    return [next(m for m in range(i + 1) if at_most(m, i, p) >= alpha) for i in range(1, k + 1)]


def exact_failure(counts: list[int], p: Fraction) -> Fraction:
    """By going through all 2^k orders."""
    failed = Fraction()
    for flags in product([0, 1], repeat=len(counts)):
        if any(sum(flags[: i + 1]) < least for i, least in enumerate(counts)):
            failed += p ** sum(flags) * (1 - p) ** (len(flags) - sum(flags))
    return failed


@given(k=st.integers(1, 14), p=shares, alpha=levels)
def test_counts_are_the_quantiles_also_where_a_probability_equals_alpha(
    k: int, p: Fraction, alpha: Fraction
) -> None:
    found = minimum_counts(k, float(p), float(alpha))
    assert found.tolist() == exact_counts(k, p, alpha)


def test_a_probability_that_equals_alpha_but_for_rounding_is_enough() -> None:
    assert 0.7 * 0.7 < 0.49
    assert minimum_counts(2, 0.3, 0.49).tolist() == [0, 0]


def test_a_certain_or_impossible_group_has_certain_counts() -> None:
    assert minimum_counts(3, 1.0, 0.1).tolist() == [1, 2, 3]
    assert minimum_counts(3, 0.0, 0.1).tolist() == [0, 0, 0]
    assert failure(np.array([1, 2, 3]), 1.0) == 0
    assert minimum_counts(0, 0.5, 0.1).tolist() == []


@pytest.mark.parametrize(("p", "alpha"), [(0.02, 0.3), (0.5, 1e-6), (0.93, 0.01), (0.4, 0.9)])
def test_counts_of_long_lists_are_those_of_scipy(p: float, alpha: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    expected = stats.binom.ppf(alpha, np.arange(1, 5001), p)
    assert (minimum_counts(5000, p, alpha) == expected).all()


@given(
    steps=st.lists(st.sampled_from([-1, 0, 0, 1, 2]), min_size=1, max_size=8),
    p=shares,
)
def test_failure_is_the_share_of_all_orders_that_fail(steps: list[int], p: Fraction) -> None:
    counts = np.maximum(np.cumsum(steps), 0)
    expected = exact_failure(counts.tolist(), p)
    assert failure(counts, float(p)) == pytest.approx(float(expected), abs=1e-14)


@given(k=st.integers(1, 8), p=shares, alpha=levels)
def test_adjusted_counts_are_the_best_of_all_levels(
    k: int, p: Fraction, alpha: Fraction
) -> None:
    # Between two such levels the counts do not change.
    steps = {at_most(m, i, p) for i in range(1, k + 1) for m in range(i)} | {alpha}
    tables = [exact_counts(k, p, level) for level in sorted(steps) if level <= alpha]
    failures = [exact_failure(counts, p) for counts in [[0] * k, *tables]]
    largest = max(value for value in failures if value <= alpha)
    nearest = min(failures, key=lambda value: (abs(value - alpha), value))
    for rule, expected in ((CONSERVATIVE, largest), (CLOSEST, nearest)):
        counts, level = adjusted_counts(k, float(p), float(alpha), rule)
        assert failure(counts, float(p)) == pytest.approx(float(expected), abs=1e-12)
        assert level <= float(alpha)
        if level > 0:
            assert counts.tolist() == minimum_counts(k, float(p), level).tolist()


def plain_order(scores: list[float], protected: list[bool], counts: list[int]) -> list[int]:
    """FA*IR on lists of places, as the paper has it."""
    first = [place for place, flag in enumerate(protected) if flag]
    others = [place for place, flag in enumerate(protected) if not flag]
    found: list[int] = []
    taken = 0
    while first or others:
        least = counts[len(found)] if len(found) < len(counts) else 0
        better = first and others and scores[first[0]] >= scores[others[0]]
        if first and (not others or taken < least or better):
            found.append(first.pop(0))
            taken += 1
        else:
            found.append(others.pop(0))
    return found


@given(
    items=st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=12),
    padding=st.integers(0, 2),
    steps=st.lists(st.integers(0, 1), min_size=1, max_size=12),
)
def test_lists_are_merged_as_the_paper_has_it(
    items: list[tuple[int, bool]], padding: int, steps: list[int]
) -> None:
    items.sort(key=lambda item: -item[0])
    scores = [float(score) for score, _ in items]
    protected = [flag for _, flag in items]
    counts = np.cumsum(steps)
    order = np.full((2, len(items) + padding), -1)
    met = fill_fair_prefixes(
        np.array([scores + [-np.inf] * padding] * 2),
        np.array([protected + [False] * padding] * 2, bool),
        np.array([len(items)] * 2),
        np.stack([np.zeros_like(counts), counts]),
        np.array([1, 0]),
        order,
    )
    behind = list(range(len(items), len(items) + padding))
    assert order[0].tolist() == plain_order(scores, protected, counts.tolist()) + behind
    assert order[1].tolist() == plain_order(scores, protected, []) + behind
    flags = np.array(protected, bool)[order[0, : len(items)]]
    assert met[0] == (flags.cumsum()[: len(counts)] >= counts[: len(items)]).all()
    assert met[1]
