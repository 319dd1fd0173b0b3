from fractions import Fraction
from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.reranking.fa_ir import (
    adjusted_counts,
    failure,
    fill_fair_prefixes,
    minimum_counts,
)

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
    for conservative, expected in ((True, largest), (False, nearest)):
        counts, level = adjusted_counts(k, float(p), float(alpha), conservative)
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
