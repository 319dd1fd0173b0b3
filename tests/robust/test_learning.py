import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize

from fairtopk.robust import game
from fairtopk.robust.game import game_of, multipliers
from fairtopk.robust.learning import Problem, learn, worth

Floats = NDArray[np.float64]
LAM = np.array([0.4])


@pytest.fixture(autouse=True)
def _fine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Differences of nearby values need more than the usual precision of P."""
    monkeypatch.setattr(game, "TOLERANCE", 1e-12)


@pytest.fixture
def problem() -> Problem:
    draw = np.random.default_rng(0)
    mask = draw.random((12, 7)) < 0.85
    features = np.concatenate([draw.normal(size=(12, 7, 3)), np.ones((12, 7, 1))], -1)
    group = draw.integers(-1, 2, (12, 7))
    merit = np.exp(features[..., 0]) * np.where(group == 0, 0.3, 1.0)
    return Problem(
        features=torch.from_numpy(features * mask[..., None]),
        relevance=np.where(mask, merit / merit.max(), 0.0),
        game=game_of(group, mask, np.ones(2), mu=0.6),
        gamma=0.3,
    )


def primal(q: Floats, problem: Problem) -> tuple[float, Floats]:
    """The training problem as a function of all q, and its gradient."""
    mask, mu = problem.game.mask, problem.game.mu
    q = q.reshape(mask.shape)
    found = problem.game._replace(relevance=q).play(LAM)
    theta = problem.moments(q - problem.relevance) / problem.gamma
    value = found.value.mean() + mu / 2 * (q**2).sum() / len(mask)
    value += problem.gamma / 2 * theta @ theta
    appeal = -(problem.features.double().numpy() @ theta)
    grad = (found.exposure + mu * q - appeal) * mask / len(mask)
    return float(value), grad.ravel()


def test_the_gradient_in_theta_is_that_of_finite_differences(problem: Problem) -> None:
    theta, step = np.array([0.3, -0.2, 0.1, -0.8]), 1e-5
    _, slope, _ = worth(theta, LAM, problem)
    ahead = [worth(theta + step * one, LAM, problem)[0] for one in np.eye(4)]
    behind = [worth(theta - step * one, LAM, problem)[0] for one in np.eye(4)]
    np.testing.assert_allclose(slope, np.subtract(ahead, behind) / (2 * step), atol=1e-7)


def test_the_gradient_in_q_is_that_of_finite_differences(problem: Problem) -> None:
    """(P v + mu q + X theta) / Q."""
    mask = problem.game.mask
    q, step = np.random.default_rng(1).random(mask.size) * mask.ravel(), 1e-5
    _, slope = primal(q, problem)
    for place in np.flatnonzero(mask)[::9]:
        move = step * (np.arange(q.size) == place)
        ahead, behind = primal(q + move, problem)[0], primal(q - move, problem)[0]
        assert slope[place] == pytest.approx((ahead - behind) / (2 * step), abs=1e-7)


def test_theta_ends_where_l_bfgs_b_over_all_q_ends(problem: Problem) -> None:
    start = problem.relevance.ravel()
    bounds = [(0.0, float(inside)) for inside in problem.game.mask.ravel()]
    options = {"ftol": 1e-16, "gtol": 1e-10, "maxiter": 5_000, "maxfun": 50_000}
    found = minimize(primal, start, args=(problem,), jac=True, bounds=bounds, options=options)
    theta = learn(np.zeros(4), LAM, problem, iterations=500)
    value, slope, ours = worth(theta, LAM, problem)
    q = found.x.reshape(problem.game.mask.shape)
    assert np.abs(slope).max() < 1e-6
    np.testing.assert_allclose(ours.relevance, q, atol=1e-4)
    at_end = problem.moments(q - problem.relevance) / problem.gamma
    np.testing.assert_allclose(theta, at_end, atol=1e-4)
    assert value == pytest.approx(found.fun, abs=1e-8)


def test_rounds_lead_to_a_gap_of_0(problem: Problem) -> None:
    """Also where a feature is the group itself, with which theta could undo the multiplier."""
    known = problem.game.kind[..., None] == 0
    features = torch.cat([problem.features, torch.from_numpy(known * 1.0)], -1)
    problem = problem._replace(features=features, game=problem.game._replace(mu=0.3))
    theta, relevance = np.zeros(5), problem.relevance
    for _ in range(40):
        given = problem.game._replace(relevance=relevance)
        lam, _ = multipliers([given], share=1.0, shared=True)
        theta = learn(theta, lam, problem, iterations=50)
        found = worth(theta, lam, problem)[2]
        relevance = found.relevance
    assert found.gap.sum() == pytest.approx(0, abs=1e-4)


def test_each_list_may_have_a_multiplier_of_its_own(problem: Problem) -> None:
    given = problem.game._replace(relevance=problem.relevance)
    lam, _ = multipliers([given], share=1.0, shared=False)
    np.testing.assert_allclose(given.play(lam).gap, 0, atol=2e-7)
