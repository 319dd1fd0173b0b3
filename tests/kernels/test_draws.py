import numpy as np

from fairtopk.kernels.random import draws


def test_what_is_drawn_for_a_row_hangs_on_no_other_row() -> None:
    every = draws(3, 7, np.arange(1_000))
    some = np.array([999, 4, 4, 500])
    assert (draws(3, 7, some) == every[some]).all()


def test_other_seeds_and_purposes_draw_other_numbers() -> None:
    rows = np.arange(1_000)
    for seed, purpose in ((4, 7), (3, 8)):
        assert (draws(seed, purpose, rows) != draws(3, 7, rows)).all()


def test_numbers_are_spread_evenly_from_0_to_1() -> None:
    found = np.sort(draws(0, 0, np.arange(10_000)))
    assert found[0] >= 0
    assert found[-1] < 1
    # Kolmogorov and Smirnov: one sequence in a thousand is farther from even.
    assert np.abs(found - np.arange(10_000) / 10_000).max() < 1.95 / 100
