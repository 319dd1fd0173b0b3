import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from fairtopk.robust._kernels import Precision, discounts, matrix, project

pytestmark = pytest.mark.kernel

Floats = NDArray[np.float64]

PRICES = st.lists(st.floats(-2, 2, width=16), min_size=1, max_size=12).map(np.array)
MUS = st.sampled_from([0.01, 0.1, 1.0, 10.0])


def dykstra(target: Floats, sweeps: int = 4_000) -> Floats:
    """The projection onto rows that add up to 1, columns that do, and entries from 0 on."""
    found, kept = target.copy(), np.zeros_like(target)
    n = len(target)
    for _ in range(sweeps):
        # Two affine sets need no correction.
        found += (1 - found.sum(1, keepdims=True)) / n
        found += (1 - found.sum(0, keepdims=True)) / n
        positive = np.maximum(found + kept, 0)
        kept += found - positive
        found = positive
    return found


def objective(price: Floats, found: Floats, mu: float) -> float:
    return float(price @ found @ discounts(len(price)) - mu / 2 * (found**2).sum())


def projected(price: Floats, mu: float, tolerance: float = 1e-11) -> tuple[Floats, float]:
    exposure, value = np.empty((1, len(price))), np.empty(1)
    mask = np.ones((1, len(price)), bool)
    project(price[None], mask, Precision(mu, tolerance), (exposure, value))
    return exposure[0], float(value[0])


@given(PRICES, MUS)
def test_rows_and_columns_add_up_to_1(price: Floats, mu: float) -> None:
    found = matrix(price, Precision(mu, 1e-8))
    assert found.min() >= 0
    assert np.abs(found.sum(0) - 1).max() <= 1e-8
    assert np.abs(found.sum(1) - 1).max() <= 1e-8


@pytest.mark.compiled
def test_so_they_do_in_lists_of_305() -> None:
    price = np.random.default_rng(0).random(305) ** 3
    for mu in (1.0, 0.1):
        found = matrix(price, Precision(mu, 1e-8))
        sums = np.concatenate([found.sum(0), found.sum(1)])
        assert np.abs(sums - 1).max() <= 1e-8


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0])
def test_it_is_what_dykstra_finds(mu: float) -> None:
    price = np.random.default_rng(1).normal(size=6)
    price[4] = price[1]
    expected = dykstra(np.outer(price, discounts(6)) / mu)
    np.testing.assert_allclose(matrix(price, Precision(mu, 1e-10)), expected, atol=1e-8)


@given(st.floats(-1, 1), MUS)
def test_two_items_by_hand(lead: float, mu: float) -> None:
    """P = [[p, 1 - p], [1 - p, p]] with p = 1/2 + (a_1 - a_2) (v_1 - v_2) / (4 mu)."""
    p = np.clip(0.5 + lead * (1 - 1 / np.log2(3)) / (4 * mu), 0, 1)
    found = matrix(np.array([0.2 + lead, 0.2]), Precision(mu, 1e-10))
    np.testing.assert_allclose(found, [[p, 1 - p], [1 - p, p]], atol=1e-8)


@given(PRICES, MUS)
def test_exposure_and_value_are_those_of_the_matrix(price: Floats, mu: float) -> None:
    exposure, value = projected(price, mu)
    found = matrix(price, Precision(mu, 1e-11))
    np.testing.assert_allclose(exposure, found @ discounts(len(price)), atol=1e-8)
    assert value == pytest.approx(objective(price, found, mu), abs=1e-7)


@pytest.mark.parametrize("mu", [0.1, 1.0])
def test_exposure_is_the_gradient_of_the_value(mu: float) -> None:
    """Danskin."""
    price, step = np.random.default_rng(2).random(9), 1e-5
    slopes = [
        (projected(price + step * one, mu)[1] - projected(price - step * one, mu)[1])
        / (2 * step)
        for one in np.eye(9)
    ]
    np.testing.assert_allclose(projected(price, mu)[0], slopes, atol=1e-7)


@given(PRICES, MUS)
def test_the_order_of_prices_is_the_heaviest_assignment(price: Floats, mu: float) -> None:
    found = matrix(price, Precision(mu, 1e-11))
    best = found[linear_sum_assignment(found, maximize=True)].sum()
    order = np.argsort(-price, kind="stable")
    assert found[order, np.arange(len(price))].sum() >= best - 1e-7


def test_padding_changes_nothing_and_an_empty_list_is_worth_nothing() -> None:
    price = np.array([[0.9, 7.0, 0.1, 0.4], [1.0, 1.0, 1.0, 1.0], [0.3, 0.0, 0.0, 0.0]])
    mask = np.array([[1, 0, 1, 1], [0, 0, 0, 0], [1, 0, 0, 0]], bool)
    exposure, value = np.full(price.shape, -1.0), np.empty(3)
    project(price, mask, Precision(0.5, 1e-11), (exposure, value))
    alone, worth = projected(price[0, mask[0]], 0.5)
    np.testing.assert_array_equal(exposure[0], [alone[0], -1, *alone[1:]])
    np.testing.assert_array_equal(value, [worth, 0.0, 0.3 - 0.25])
    np.testing.assert_array_equal(exposure[1:], [[-1] * 4, [1, -1, -1, -1]])
