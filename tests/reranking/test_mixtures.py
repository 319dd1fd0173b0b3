import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.reranking.exposure_lp import Program, _improve, _of_several_groups, best_mixture

linprog = pytest.importorskip("scipy.optimize").linprog


def program(seed: int, *, n: int, k: int, slack: float, ties: bool) -> Program:
    rng = np.random.default_rng(seed)
    utility = rng.normal(size=n)
    if ties:
        utility = np.round(utility)
    protected = rng.random(n) < rng.choice([0.1, 0.5])
    protected[:2] = True, False
    utility -= protected
    rates = np.stack([protected, ~protected]).astype(float)
    rates[:, rng.random(n) < 0.1] = 0  # of unknown group
    rates[0, 0], rates[1, 1] = 1.0, 1.0
    rates /= rates.sum(-1, keepdims=True) * rng.choice([1.0, 1.5], size=(2, 1))
    discount = 1 / np.log2(2 + np.arange(k))
    return Program(utility / (np.abs(utility).max() or 1.0), rates, discount, slack)


def worth(one: Program, mixture: tuple[np.ndarray, np.ndarray]) -> tuple[float, float]:
    """The utility of a mixture, and by how much its groups differ."""
    rankings, weights = mixture
    exposure = np.zeros(len(one.utility))
    for ranking, weight in zip(rankings, weights, strict=True):
        exposure[ranking[: len(one.discount)]] += weight * one.discount
    return float(one.utility @ exposure), float(np.ptp(one.rates @ exposure))


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(2, 60),
    slack=st.sampled_from([0.0, 0.01, 0.3]),
    ties=st.booleans(),
    data=st.data(),
)
def test_two_groups_need_no_solver_and_get_its_optimum(
    seed: int, n: int, slack: float, ties: bool, data: st.DataObject
) -> None:
    one = program(seed, n=n, k=data.draw(st.integers(1, n)), slack=slack, ties=ties)
    direct, solved = best_mixture(one), _of_several_groups(one)
    assert (direct is None) == (solved is None)
    if direct is None or solved is None:
        return
    utility, gap = worth(one, direct)
    assert utility == pytest.approx(worth(one, solved)[0], abs=1e-7)
    assert gap <= slack + 1e-8
    assert len(direct[1]) <= 2
    assert direct[1].sum() == pytest.approx(1)


@pytest.mark.parametrize("seed", range(10))
def test_the_utility_lies_between_chance_and_the_order_by_utility(seed: int) -> None:
    one = program(seed, n=40, k=12, slack=0.0, ties=False)
    mixture = best_mixture(one)
    if mixture is None:
        return
    best = worth(one, ((-one.utility).argsort()[None], np.ones(1)))[0]
    relaxed = best_mixture(one._replace(slack=0.05))
    assert relaxed is not None
    utilities = worth(one, mixture)[0], worth(one, relaxed)[0], best
    assert list(utilities) == sorted(utilities)
    # Parity alone is what a shuffle has too, whose utility is the mean.
    equal = one._replace(rates=(one.rates > 0) / (one.rates > 0).sum(-1, keepdims=True))
    fair = best_mixture(equal)
    assert fair is not None
    assert worth(equal, fair)[0] >= one.utility.mean() * one.discount.sum()


def test_a_gain_that_is_rounding_ends_with_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = np.zeros((3, 12))
    rates[np.arange(12) % 3, np.arange(12)] = 1 / 4
    several = program(3, n=12, k=5, slack=0.01, ties=False)._replace(rates=rates)
    mixture = best_mixture(several)
    assert mixture is not None
    monkeypatch.setattr("fairtopk.reranking.exposure_lp.TOLERANCE", -1.0)  # all seems to gain
    rankings = list(mixture[0])
    solved = _improve(rankings, several, linprog, allowed=0.0)
    assert -solved.fun == pytest.approx(worth(several, mixture)[0])
