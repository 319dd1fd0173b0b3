import numpy as np
import pytest
from numpy.typing import NDArray

import fairtopk as ft
from fairtopk.robust._kernels import Precision, discounts, matrix
from fairtopk.robust.game import (
    Sides,
    bonuses,
    exposures,
    first_multipliers,
    gaps,
    multipliers,
    play,
    sides_of,
)

Floats = NDArray[np.float64]


@pytest.fixture
def lists() -> tuple[Floats, Sides, NDArray[np.bool_]]:
    """The items of group 0 are the less relevant ones."""
    draw = np.random.default_rng(0)
    group, mask = draw.integers(-1, 3, (40, 12)), draw.random((40, 12)) < 0.9
    appeal = draw.normal(0.4, 0.4, (40, 12)) - 0.3 * (group == 0)
    return appeal, sides_of(group, mask, np.ones(2)), mask


def test_the_gap_rises_with_the_multiplier_and_changes_its_sign(
    lists: tuple[Floats, Sides, NDArray[np.bool_]],
) -> None:
    appeal, sides, mask = lists
    found = np.stack(
        [
            gaps(play(appeal, sides, mask, np.array([lam]), mu=0.5).exposure, sides)
            for lam in np.linspace(-4, 4, 17)
        ]
    )
    assert (np.diff(found, axis=0) >= -1e-7).all()
    assert (found[0, sides.defined] < 0).all()
    assert (found[-1, sides.defined] > 0).all()


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("given", [True, False])
def test_a_share_of_the_gap_is_taken_away(
    lists: tuple[Floats, Sides, NDArray[np.bool_]], share: float, given: bool
) -> None:
    """Of each list, and of the mean; with q that is given, and with q that answers."""
    appeal, sides, mask = lists

    def gap(lam: Floats) -> Floats:
        if given:
            relevance = np.clip(appeal, 0, 1)
            return gaps(exposures(relevance, sides, mask, lam, mu=0.5).exposure, sides)
        return gaps(play(appeal, sides, mask, lam, mu=0.5).exposure, sides)

    def mean_gap(lam: Floats) -> Floats:
        return gap(lam).sum(keepdims=True)

    for one, first in (
        (gap, first_multipliers(sides, mu=0.5)),
        (mean_gap, first_multipliers(sides, mu=0.5).max(keepdims=True)),
    ):
        (lam, met), without = multipliers(one, first, share=share), one(np.zeros(1))
        assert met.all()
        np.testing.assert_allclose(one(lam), (1 - share) * without, atol=2e-7)
        assert (lam != 0).any() == (share > 0)


def test_a_list_that_lacks_a_side_has_a_multiplier_of_0() -> None:
    group, mask = np.array([[1, 1, 2], [0, 0, 1]]), np.ones((2, 3), bool)
    sides = sides_of(group, mask, np.ones(2))
    appeal = np.array([[0.5, 0.4, 0.3], [0.1, 0.2, 0.9]])

    def gap(lam: Floats) -> Floats:
        return gaps(play(appeal, sides, mask, lam, mu=0.5).exposure, sides)

    lam = multipliers(gap, first_multipliers(sides, mu=0.5), share=1.0).lam
    assert lam[0] == 0
    assert lam[1] > 0


def test_where_groups_cannot_get_the_same_it_is_the_largest_that_was_tried() -> None:
    """One item of two cannot have a hundred times the exposure of the other."""
    group, mask = np.array([[0, 1]]), np.ones((1, 2), bool)
    sides = sides_of(group, mask, np.array([100.0, 1.0]))

    def gap(lam: Floats) -> Floats:
        relevance = np.array([[0.1, 0.9]])
        return gaps(exposures(relevance, sides, mask, lam, mu=0.5).exposure, sides)

    found = multipliers(gap, first_multipliers(sides, mu=0.5), share=1.0)
    assert not found.met.any()
    assert gap(found.lam)[0] < -0.5
    assert found.lam[0] == 16 * first_multipliers(sides, mu=0.5)[0]
    with pytest.raises(ft.InputError, match="robust: no ranking gives the groups exposure in"):
        found.of_all()


@pytest.mark.parametrize("mu", [0.1, 1.0, 20.0, 100.0])
def test_what_rankings_can_give_is_found_however_much_they_are_smoothed(mu: float) -> None:
    """Of 2 items in 10 that get 2.2 times as much at most, these get 2.1 times as much."""
    group, mask = np.array([[0] * 2 + [1] * 8]), np.ones((1, 10), bool)
    sides = sides_of(group, mask, np.array([2.1, 1.0]))
    relevance = np.random.default_rng(0).random((1, 10))

    def gap(lam: Floats) -> Floats:
        return gaps(exposures(relevance, sides, mask, lam, mu=mu).exposure, sides)

    assert multipliers(gap, first_multipliers(sides, mu=mu), share=1.0).met.all()


RELEVANCE = np.array([0.82, 0.81, 0.80, 0.79, 0.78, 0.77])
SIDES = np.array([0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize(
    ("notion", "dcg", "of_groups"),
    [
        ("parity", 2.636088, (0.550778, 0.550778)),
        ("treatment", 2.637024, (0.561170, 0.540386)),
    ],
)
def test_with_true_relevance_and_little_smoothing_it_is_the_linear_program(
    notion: str, dcg: float, of_groups: tuple[float, float]
) -> None:
    """The vectors of the exposure program, and what `exposure-lp` finds."""
    merit = np.ones(2) if notion == "parity" else np.array([0.81, 0.78])
    mask, mu = np.ones((1, 6), bool), 1e-5
    sides = sides_of(SIDES[None], mask, merit)

    def gap(lam: Floats) -> Floats:
        return gaps(exposures(RELEVANCE[None], sides, mask, lam, mu=mu).exposure, sides)

    lam = multipliers(gap, first_multipliers(sides, mu=mu), share=1.0).lam
    price = RELEVANCE + bonuses(sides, lam)[0]
    found = matrix(price, Precision(mu, 1e-8))
    policy = ft.rerank(
        RELEVANCE[None], SIDES[None], method="exposure-lp", notion=notion
    ).policies[0]
    for one in (found, policy.matrix().numpy()):
        exposure = one @ discounts(6)
        assert RELEVANCE @ exposure == pytest.approx(dcg, abs=2e-6)
        means = [exposure[:3].mean(), exposure[3:].mean()]
        np.testing.assert_allclose(means, of_groups, atol=2e-5)
