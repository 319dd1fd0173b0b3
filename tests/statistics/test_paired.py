import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import norm, permutation_test

from fairtopk import statistics as paired
from fairtopk.errors import InputError
from fairtopk.metrics import mean_with_interval
from fairtopk.statistics import paired_difference, paired_differences

Floats = NDArray[np.float64]
VALUES = st.lists(
    st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=1, max_size=7
).map(lambda rows: np.array(rows, np.float64).T / 10)


def two_runs(n: int, *, shift: float = 0.0, seed: int = 0) -> tuple[Floats, Floats]:
    generator = np.random.default_rng(seed)
    common, *own = generator.normal(size=(3, n))
    return common + own[0], common + own[1] + shift


def every_sign(a: Floats, b: Floats) -> float:
    """The p-value as it is told: try all signs of the differences."""
    change = b - a
    sums = [abs(np.dot(signs, change)) for signs in itertools.product((1, -1), repeat=len(a))]
    return sum(one >= abs(change.sum()) - 1e-9 for one in sums) / len(sums)


@given(VALUES)
def test_with_few_queries_all_signs_are_tried(pair: Floats) -> None:
    assert paired_difference(*pair).p == pytest.approx(every_sign(*pair))


@pytest.mark.parametrize("shift", [0.0, 0.5, 1.5])
def test_p_is_that_of_scipy_where_both_are_exact(shift: float) -> None:
    a, b = two_runs(11, shift=shift)
    found = permutation_test(
        (b, a),
        lambda x, y, axis: (x - y).mean(axis),
        permutation_type="samples",
        n_resamples=np.inf,
        vectorized=True,
    )
    assert paired_difference(a, b).p == pytest.approx(found.pvalue)


@pytest.mark.parametrize("shift", [0.0, 0.05, 0.1])
def test_with_many_queries_p_is_close_to_that_of_the_normal_law(shift: float) -> None:
    a, b = two_runs(2_000, shift=shift)
    change = b - a
    # With random signs the sum has mean 0 and the squares' sum as its variance.
    expected = 2 * norm.sf(abs(change.sum()) / math.sqrt((change**2).sum()))
    error = math.sqrt(expected * (1 - expected) / paired.FLIPS)
    assert paired_difference(a, b).p == pytest.approx(expected, abs=4 * error + 1e-3)


@pytest.mark.slow
def test_p_is_below_a_level_as_often_as_it_says_if_nothing_differs() -> None:
    p_values = [paired_difference(*two_runs(12, seed=seed)).p for seed in range(200)]
    assert 4 <= sum(p <= 0.1 for p in p_values) <= 36  # 20, give or take four deviations


def test_the_interval_is_that_of_the_differences() -> None:
    a, b = two_runs(50, shift=1.0)
    found, mean = paired_difference(a, b, seed=3), mean_with_interval(b - a, seed=3)
    assert (found.difference, found.ci95, found.n) == mean[:3]
    assert found.mean_b - found.mean_a == pytest.approx(found.difference)


def test_pairs_that_lack_a_value_are_counted_and_change_nothing_else() -> None:
    a, b = two_runs(9, shift=0.5)
    whole = paired_difference(a, b)
    lone = np.array([7.0, np.nan, np.nan])
    found = paired_difference(np.append(a, lone), np.append(b, lone[::-1]))
    assert (found.n, found.undefined) == (9, 3)
    assert (found.mean_a, found.mean_b, found.p) == (whole.mean_a, whole.mean_b, whole.p)
    assert found.difference == pytest.approx(whole.difference)


def test_where_no_pair_is_defined_nothing_is() -> None:
    found = paired_difference([1.0, math.nan], [math.nan, 1.0])
    numbers = (*found[:3], *found.ci95, found.p)
    assert all(math.isnan(value) for value in numbers)
    assert (found.n, found.undefined) == (0, 2)


@pytest.mark.parametrize("n", [5, 500])
def test_a_run_does_not_differ_from_itself(n: int) -> None:
    a, _ = two_runs(n)
    found = paired_difference(a, a)
    assert (found.difference, found.ci95, found.p) == (0.0, (0.0, 0.0), 1.0)


@pytest.mark.parametrize("n", [9, 40])
def test_turning_the_pair_around_turns_the_sign(n: int) -> None:
    a, b = two_runs(n, shift=0.4)
    there, back = paired_difference(a, b), paired_difference(b, a)
    assert back.difference == pytest.approx(-there.difference)
    assert back.p == there.p
    assert (back.mean_a, back.mean_b) == (there.mean_b, there.mean_a)


def test_p_is_never_0() -> None:
    a = np.zeros(100)
    assert paired_difference(a, a + 1).p == 1 / (paired.FLIPS + 1)


def test_several_metrics_have_what_each_has_alone() -> None:
    one, other = two_runs(60, shift=0.3), two_runs(60, shift=0.1, seed=1)
    other[0][::7] = np.nan
    together = paired_differences(
        {"one": one[0], "other": other[0]}, {"other": other[1], "one": one[1]}, seed=2
    )
    for name, pair in (("one", one), ("other", other)):
        alone = paired_difference(*pair, seed=2)
        assert together[name].p == alone.p
        assert together[name].difference == pytest.approx(alone.difference)
        assert together[name].ci95 == pytest.approx(alone.ci95)


def test_the_signs_are_drawn_in_pieces_that_fit_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a, b = two_runs(300, shift=0.2)
    whole = paired_difference(a, b).p
    monkeypatch.setattr(paired, "FLIPPED_AT_ONCE", 300 * 700)  # the last piece is smaller
    error = math.sqrt(whole * (1 - whole) / paired.FLIPS)
    assert paired_difference(a, b).p == pytest.approx(whole, abs=6 * error)


def test_the_seed_decides_the_signs() -> None:
    a, b = two_runs(100)
    assert paired_difference(a, b, seed=1) == paired_difference(a, b, seed=1)
    assert paired_difference(a, b, seed=1).p != paired_difference(a, b, seed=2).p


def test_tensors_and_lists_are_taken_like_arrays() -> None:
    a, b = two_runs(20)
    assert paired_difference(torch.tensor(a), b.tolist()) == paired_difference(a, b)


@pytest.mark.parametrize(
    ("a", "b", "sentence"),
    [
        (
            [1.0],
            [1.0, 2.0],
            r"values must be of the same queries in a and b, got shapes \[1\] a",
        ),
        ([1.0], [math.inf], "values of b must be finite, or NaN where undefined, got inf"),
        (["x"], [1.0], "values of a must be a tensor or array of numbers, got 'x'"),
        ([], [], "values must hold one value per query, and at least one, got shape"),
        ([[1.0]], [[1.0]], "values must hold one value per query, and at least one, got shape"),
    ],
)
def test_what_is_no_pair_of_results_is_refused(a: Any, b: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{sentence}"):
        paired_difference(a, b)


def test_results_with_other_metrics_are_refused() -> None:
    with pytest.raises(
        InputError, match="must hold the same metrics, only one of them has 'y'"
    ):
        paired_differences({"x": [1.0]}, {"x": [1.0], "y": [2.0]})
