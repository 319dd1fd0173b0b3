import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from fairtopk.robust._kernels import Precision, answer, discounts, project

pytestmark = pytest.mark.slow

Floats = NDArray[np.float64]
FINE = 1e-11


def answered(
    appeal: Floats, kind: NDArray[np.int8], mask: NDArray[np.bool_], bonus: Floats, mu: float
) -> tuple[Floats, Floats, Floats]:
    outs = (np.zeros(appeal.shape), np.zeros(appeal.shape), np.zeros(len(appeal)))
    answer(appeal, kind, mask, bonus, Precision(mu, FINE), outs)
    return outs


def best_of(price: Floats, mu: float) -> tuple[float, Floats]:
    """The largest a^T P v - (mu/2) |P|^2 of one list, and P v."""
    exposure, value = np.empty((1, len(price))), np.empty(1)
    mask = np.ones((1, len(price)), bool)
    project(price[None], mask, Precision(mu, FINE), (exposure, value))
    return float(value[0]), exposure[0]


@pytest.fixture
def game() -> tuple[Floats, NDArray[np.int8], NDArray[np.bool_], Floats]:
    draw = np.random.default_rng(0)
    appeal, kind = draw.normal(0.4, 0.6, (20, 9)), draw.integers(0, 3, (20, 9), np.int8)
    appeal[:, 3] = appeal[:, 2]
    mask = draw.random((20, 9)) < 0.8
    return appeal, kind, mask, draw.normal(0, 0.3, (20, 3))


@pytest.mark.parametrize("mu", [0.1, 0.5, 2.0])
def test_each_player_answers_the_other_best(
    game: tuple[Floats, NDArray[np.int8], NDArray[np.bool_], Floats], mu: float
) -> None:
    appeal, kind, mask, bonus = game
    relevance, exposure, value = answered(*game, mu)
    q = np.clip((appeal - exposure) / mu, 0, 1)
    np.testing.assert_allclose(relevance[mask], q[mask], atol=1e-8)
    for row, inside in enumerate(mask):
        mine, wanted = relevance[row, inside], appeal[row, inside]
        best, alone = best_of(mine + bonus[row, kind[row, inside]], mu)
        np.testing.assert_allclose(exposure[row, inside], alone, atol=1e-7)
        assert value[row] == pytest.approx(
            best + mu / 2 * mine @ mine - wanted @ mine, abs=1e-7
        )
    assert (relevance[~mask] == 0).all()


@pytest.mark.parametrize("mu", [0.2, 1.0])
def test_it_is_the_least_over_q_that_l_bfgs_b_finds(
    game: tuple[Floats, NDArray[np.int8], NDArray[np.bool_], Floats], mu: float
) -> None:
    appeal, kind, mask, bonus = game
    mask = np.ones_like(mask)
    relevance, _, value = answered(appeal, kind, mask, bonus, mu)
    for row in range(5):

        def worth(q: Floats, row: int = row) -> tuple[float, Floats]:
            best, exposure = best_of(q + bonus[row, kind[row]], mu)
            value = best + mu / 2 * q @ q - appeal[row] @ q
            return value, exposure + mu * q - appeal[row]

        options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 1_000}
        start = np.full(9, 0.5)
        found = minimize(worth, start, jac=True, bounds=[(0, 1)] * 9, options=options)
        np.testing.assert_allclose(relevance[row], found.x, atol=1e-5)
        assert value[row] == pytest.approx(found.fun, abs=1e-8)


def test_a_list_of_one_item_and_an_empty_one() -> None:
    appeal, kind = np.array([[1.7, 0.0], [0.0, 0.0]]), np.zeros((2, 2), np.int8)
    mask = np.array([[True, False], [False, False]])
    relevance, exposure, value = answered(appeal, kind, mask, np.full((2, 3), 0.5), 1.0)
    # P = 1, so that q = clip(1.7 - 1) and the value is q + 0.5 - 1/2 + q^2 / 2 - 1.7 q.
    np.testing.assert_allclose(relevance, [[0.7, 0], [0, 0]])
    np.testing.assert_allclose(exposure, [[1, 0], [0, 0]])
    np.testing.assert_allclose(value, [0.7 + 0.5 - 0.5 + 0.245 - 1.19, 0])


def test_where_relevance_is_at_a_bound_equal_prices_get_equal_exposure() -> None:
    appeal = np.array([[-1.0, -2.0, -3.0, 4.0, 5.0]])
    kind, mask = np.zeros((1, 5), np.int8), np.ones((1, 5), bool)
    relevance, exposure, _ = answered(appeal, kind, mask, np.zeros((1, 3)), 0.5)
    assert relevance.tolist() == [[0, 0, 0, 1, 1]]
    assert len(set(exposure[0, :3])) == len(set(exposure[0, 3:])) == 1
    assert exposure.sum() == pytest.approx(discounts(5).sum())
