"""Sums of picked rows against a product with the bits."""

import numpy as np
import pytest

from fairtopk.statistics import picked_sums


@pytest.mark.parametrize("n", [1, 8, 13, 40])
def test_a_draw_adds_up_the_rows_whose_bits_are_set(n: int) -> None:
    rng = np.random.default_rng(n)
    rows = rng.normal(size=(n, 3))
    draws = rng.integers(0, 256, (20, -(-n // 8)), dtype=np.uint8)
    bits = np.unpackbits(draws, axis=-1, count=n)
    np.testing.assert_allclose(picked_sums(rows, draws), bits @ rows, atol=1e-12)
