import numpy as np
import pytest

from fairtopk.models._optimizer_kernels import MomentumRule, MomentumTable, momentum_rows

RULE = MomentumRule(rate=0.1, keep=0.9, fresh=0.1, decay=0.02)


def random_table(last: int, dtype: type = np.float64) -> MomentumTable:
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
    table, now = random_table(last), last + missed + with_gradient
    grads = np.random.default_rng(1).normal(size=(3 * with_gradient, 5))
    weight, buffer = table.weight.copy(), table.buffer.copy()
    for step in range(last + 1, now + 1):
        slope = RULE.decay * weight + (grads if with_gradient and step == now else 0)
        buffer = slope if step == 1 else RULE.keep * buffer + RULE.fresh * slope
        weight = weight - RULE.rate * buffer
    momentum_rows(table, RULE, now, np.arange(3), grads)
    np.testing.assert_allclose(table.weight, weight, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(table.buffer, buffer, rtol=1e-12, atol=1e-14)
    assert (table.last == now).all()


def test_only_the_given_rows_are_changed() -> None:
    table, before = random_table(7), random_table(7)
    momentum_rows(table, RULE, 9, np.array([2, 0]), table.weight[:0])
    for found, one in zip(table, before, strict=True):
        assert (found[1] == one[1]).all()
        assert (found[::2] != one[::2]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_average_comes_to_0_and_not_to_numbers_too_small_to_be_normal(dtype: type) -> None:
    table = random_table(7, dtype)
    grads = np.zeros((3, 5), dtype)
    for now in range(8, 9_000):
        given = grads if now % 50 == 0 else grads[:0]
        momentum_rows(table, RULE._replace(decay=0.0), now, np.arange(3), given)
        small = np.abs(table.buffer[table.buffer != 0])
        assert (small >= np.finfo(dtype).tiny).all()
    assert (table.buffer == 0).all()
