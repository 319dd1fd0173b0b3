import numpy as np
import pytest

from fairtopk.kernels.random import (
    advance,
    alias_table,
    below,
    draws,
    mix,
    normals,
    stream,
    uniform,
)

pytestmark = pytest.mark.kernel

WORD = 2**64


def plain_mix(word: int) -> int:
    """Splitmix64's finaliser in Python's own integers."""
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % WORD
    return word ^ (word >> 31)


def test_the_stream_is_splitmix64() -> None:
    # The first outputs of the reference generator from state 1234567.
    state, outputs = np.uint64(1234567), []
    for _ in range(3):
        state = np.uint64(advance(state))
        outputs.append(int(mix(state)))
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert outputs == [plain_mix((1234567 + n * 0x9E3779B97F4A7C15) % WORD) for n in (1, 2, 3)]


def test_keys_that_differ_in_one_place_give_other_streams() -> None:
    keys = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (0, 1, 1), (-1, 0, 0)]
    assert len({int(stream(*key)) for key in keys}) == len(keys)


@pytest.mark.compiled
def test_draws_are_uniform() -> None:
    state, counts, total = np.uint64(stream(1, 2, 3)), np.zeros(7), 0.0
    for _ in range(70_000):
        state = np.uint64(advance(state))
        counts[below(state, 7)] += 1
        total += uniform(state)
    assert abs(total / 70_000 - 0.5) < 5 / np.sqrt(12 * 70_000)
    chi_square = ((counts - 10_000) ** 2 / 10_000).sum()
    assert chi_square < 22.5  # 0.1 % of a chi-square with 6 degrees of freedom


@pytest.mark.parametrize(
    "weight", [[1.0], [1.0, 1.0, 1.0], [1e-9, 1.0, 3.0, 0.5], [5.0, 0.0, 0.1], range(1, 200)]
)
def test_the_alias_table_gives_each_row_the_share_of_its_weight(weight: list[float]) -> None:
    weights = np.array(weight, np.float64)

    keep, alias = alias_table(weights)

    own = np.minimum(keep, 1.0)
    share = own + np.bincount(alias, 1.0 - own, minlength=len(weights))
    np.testing.assert_allclose(share / len(weights), weights / weights.sum(), atol=1e-12)


@pytest.mark.compiled
def test_normals_have_the_moments_and_tails_of_a_normal_distribution() -> None:
    values = normals(0, 1, np.empty(200_000))

    assert abs(values.mean()) < 4 / np.sqrt(len(values))
    assert abs(values.var() - 1.0) < 4 * np.sqrt(2 / len(values))
    assert np.mean(values > 1.959964) == pytest.approx(0.025, abs=0.0015)
    assert np.mean(np.abs(values) < 0.67449) == pytest.approx(0.5, abs=0.005)


def test_a_normal_depends_on_its_own_key_alone() -> None:
    values = normals(3, 1, np.empty(50))

    np.testing.assert_array_equal(normals(3, 1, np.empty(20)), values[:20])
    assert not np.isin(normals(3, 2, np.empty(50)), values).any()
    assert not np.isin(normals(4, 1, np.empty(50)), values).any()


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
