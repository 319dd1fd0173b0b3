import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fairtopk.models._optimizer_kernels import (
    AdamRule,
    AdamTable,
    MomentumRule,
    MomentumTable,
    adam_rows,
    adam_steps,
    momentum_rows,
    rows_behind,
)

pytestmark = pytest.mark.kernel

Floats = NDArray[np.floating]
RULE = AdamRule(rate=0.01, beta_1=0.9, beta_2=0.999, eps=1e-8, decay=0.02)
PLAIN = RULE._replace(decay=0.0)


def random_table(n_rows: int = 3, width: int = 5, dtype: type = np.float64) -> AdamTable:
    rng = np.random.default_rng(0)
    weight, first, second = (rng.normal(size=(n_rows, width)).astype(dtype) for _ in range(3))
    return AdamTable(weight, 1e-3 * first, 1e-4 * second**2, np.full(n_rows, 7, np.int32))


def advance(table: AdamTable, rule: AdamRule, now: int, grads: Floats | None = None) -> None:
    steps = adam_steps(rule, int(table.last.min()) + 1, now, table.weight.dtype)
    given = table.weight[:0] if grads is None else grads
    adam_rows(table, rule, steps, np.arange(len(table.last)), given)


def plain(table: AdamTable, rule: AdamRule, now: int, grads: Floats) -> list[Floats]:
    """Adam as it is written, with gradients in the last step only."""
    weight, first, second = (np.array(one, np.float64) for one in table[:3])
    for step in range(int(table.last[0]) + 1, now + 1):
        slope = rule.decay * weight + (grads if step == now else 0)
        first = rule.beta_1 * first + (1 - rule.beta_1) * slope
        second = rule.beta_2 * second + (1 - rule.beta_2) * slope**2
        root = np.sqrt(second / (1 - rule.beta_2**step))
        weight -= rule.rate * first / (1 - rule.beta_1**step) / (root + rule.eps)
    return [weight, first, second]


@pytest.mark.parametrize("rule", [RULE, PLAIN])
@pytest.mark.parametrize("now", [8, 9, 70, 900])
def test_missed_steps_are_those_of_adam(rule: AdamRule, now: int) -> None:
    """Nine hundred steps without weight decay are more than a row needs to come to rest."""
    table, grads = random_table(), np.random.default_rng(1).normal(size=(3, 5))
    expected = plain(table, rule, now, grads)
    advance(table, rule, now, grads)
    for found, one in zip(table[:3], expected, strict=True):
        np.testing.assert_allclose(found, one, rtol=1e-12, atol=1e-16)
    assert (table.last == now).all()


def test_only_the_given_rows_are_changed() -> None:
    table, before = random_table(), random_table()
    steps = adam_steps(RULE, 8, 9, table.weight.dtype)
    adam_rows(table, RULE, steps, np.array([2, 0]), table.weight[:0])
    for found, one in zip(table, before, strict=True):
        assert (found[1] == one[1]).all()
        assert (found[::2] != one[::2]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_steps_missed_at_once_have_the_bits_of_steps_one_by_one(dtype: type) -> None:
    once, one_by_one = random_table(dtype=dtype), random_table(dtype=dtype)
    advance(once, RULE, 100)
    for now in range(8, 101):
        advance(one_by_one, RULE, now)
    for found, other in zip(once, one_by_one, strict=True):
        assert (found == other).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("beta_2", [0.999, 0.7])
def test_averages_come_to_0_and_not_to_numbers_too_small_to_be_normal(
    dtype: type, beta_2: float
) -> None:
    table, rule = random_table(dtype=dtype), PLAIN._replace(beta_2=beta_2)
    for now in range(100, 12_000, 100):
        advance(table, rule, now)
        for average in (table.first, table.second):
            small = np.abs(average[average != 0])
            assert (small >= np.finfo(dtype).tiny).all()
    assert (table.first == 0).all()
    assert np.isfinite(table.weight).all()


def test_averages_of_very_small_gradients_are_kept() -> None:
    table, rule = random_table(dtype=np.float32), RULE._replace(eps=1e-20, decay=1e-17)
    table.first[:], table.second[:] = 1e-17, 1e-33
    expected = plain(table, rule, 60, np.zeros((3, 5)))
    advance(table, rule, 60)
    for found, one in zip(table[:3], expected, strict=True):
        np.testing.assert_allclose(found, one, rtol=1e-4)


def test_a_number_that_is_none_stays() -> None:
    table = random_table()
    table.first[1, 2] = np.nan
    advance(table, PLAIN, 50)
    assert np.isnan(table.weight[1, 2])
    assert np.isnan(table.weight).sum() == 1


MOMENTUM = MomentumRule(rate=0.1, keep=0.9, fresh=0.1, decay=0.02)


def random_momentum_table(last: int, dtype: type = np.float64) -> MomentumTable:
    rng = np.random.default_rng(0)
    weight, buffer = (rng.normal(size=(3, 5)).astype(dtype) for _ in range(2))
    return MomentumTable(weight, buffer * (last > 0), np.full(3, last, np.int32))


@pytest.mark.parametrize("last", [0, 7])
@pytest.mark.parametrize("missed", [0, 1, 2, 3, 10, 1_000])
@pytest.mark.parametrize("with_gradient", [True, False])
def test_missed_steps_are_those_of_momentum(
    last: int, missed: int, with_gradient: bool
) -> None:
    """The very first step takes its gradient whole."""
    table, now = random_momentum_table(last), last + missed + with_gradient
    grads = np.random.default_rng(1).normal(size=(3 * with_gradient, 5))
    weight, buffer = table.weight.copy(), table.buffer.copy()
    for step in range(last + 1, now + 1):
        slope = MOMENTUM.decay * weight + (grads if with_gradient and step == now else 0)
        buffer = slope if step == 1 else MOMENTUM.keep * buffer + MOMENTUM.fresh * slope
        weight = weight - MOMENTUM.rate * buffer
    momentum_rows(table, MOMENTUM, now, np.arange(3), grads)
    np.testing.assert_allclose(table.weight, weight, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(table.buffer, buffer, rtol=1e-12, atol=1e-14)
    assert (table.last == now).all()


def test_momentum_changes_only_the_given_rows() -> None:
    table, before = random_momentum_table(7), random_momentum_table(7)
    momentum_rows(table, MOMENTUM, 9, np.array([2, 0]), table.weight[:0])
    for found, one in zip(table, before, strict=True):
        assert (found[1] == one[1]).all()
        assert (found[::2] != one[::2]).all()


@pytest.mark.compiled
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_average_comes_to_0_and_not_to_numbers_too_small_to_be_normal(dtype: type) -> None:
    table = random_momentum_table(7, dtype)
    grads = np.zeros((3, 5), dtype)
    for now in range(8, 9_000):
        given = grads if now % 50 == 0 else grads[:0]
        momentum_rows(table, MOMENTUM._replace(decay=0.0), now, np.arange(3), given)
        small = np.abs(table.buffer[table.buffer != 0])
        assert (small >= np.finfo(dtype).tiny).all()
    assert (table.buffer == 0).all()


@given(
    last=st.lists(st.integers(0, 4), min_size=1, max_size=8),
    picks=st.lists(st.integers(0, 7), max_size=12),
    now=st.integers(0, 5),
)
def test_rows_behind_are_found_once_each_and_nothing_is_changed(
    last: list[int], picks: list[int], now: int
) -> None:
    steps = np.array(last, np.int32)
    rows = np.array([one % len(last) for one in picks], np.int64)
    found = rows_behind(rows, steps, now)
    assert sorted(found) == sorted({int(row) for row in rows if last[row] < now})
    assert steps.tolist() == last
