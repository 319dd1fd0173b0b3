import numpy as np
import pytest
from numpy.typing import NDArray

import fairtopk as ft
from fairtopk.robust._kernels import Precision, discounts, matrix
from fairtopk.robust.game import Game, game_of, multipliers

Floats = NDArray[np.float64]


def test_the_sides_are_group_0_and_all_other_known_groups() -> None:
    group = np.array([[0, 1, 2, -1, 0], [1, 1, 0, 0, 0], [0, -1, 0, 0, 1]])
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 1, 1, 1, 1]], bool)
    game = game_of(group, mask, np.ones(2), mu=0.5)
    assert game.kind.tolist() == [[0, 1, 1, 2, 0], [1, 1, 2, 2, 2], [0, 2, 0, 0, 1]]
    np.testing.assert_allclose(game.rate, [[0.5, -0.5, 0], [0, 0, 0], [1 / 3, -1, 0]])
    assert game.defined.tolist() == [True, False, True]
    relevance = np.full(group.shape, 0.25)
    found = game._replace(relevance=relevance).play(np.array([2.0, 1.0, 3.0]))
    np.testing.assert_allclose(found.price[2] - 0.25, [1, 0, 1, 1, -3])
    of_0, of_others = found.exposure[0, [0, 4]], found.exposure[0, [1, 2]]
    last = found.exposure[2]
    gaps = np.array([of_0.mean() - of_others.mean(), 0, last[[0, 2, 3]].mean() - last[4]])
    np.testing.assert_allclose(found.gap, gaps)


def test_by_treatment_what_a_side_gets_is_divided_by_its_merit() -> None:
    group, mask = np.array([[0, 0, 1]]), np.ones((1, 3), bool)
    game = game_of(group, mask, np.array([0.5, 2.0]), mu=0.5)
    found = game._replace(relevance=np.array([[0.1, 0.7, 0.4]])).play(np.zeros(1))
    exposure = found.exposure[0]
    np.testing.assert_allclose(found.gap, [exposure[:2].mean() / 0.5 - exposure[2] / 2])


@pytest.fixture
def game() -> Game:
    """The items of group 0 are the less relevant ones."""
    draw = np.random.default_rng(0)
    group, mask = draw.integers(-1, 3, (40, 12)), draw.random((40, 12)) < 0.9
    appeal = draw.normal(0.4, 0.4, (40, 12)) - 0.3 * (group == 0)
    return game_of(group, mask, np.ones(2), mu=0.5)._replace(appeal=appeal)


def test_the_gap_rises_with_the_multiplier_and_changes_its_sign(game: Game) -> None:
    found = np.stack([game.play(np.array([lam])).gap for lam in np.linspace(-4, 4, 17)])
    assert (np.diff(found, axis=0) >= -1e-7).all()
    assert (found[0, game.defined] < 0).all()
    assert (found[-1, game.defined] > 0).all()


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_a_share_of_the_gap_is_taken_away(
    game: Game, share: float, given: bool, shared: bool
) -> None:
    """Of each list, and of the mean; with q that is given, and with q that answers."""
    if given:
        game = game._replace(relevance=np.clip(game.appeal, 0, 1))
    lam, met = multipliers([game], share=share, shared=shared)
    assert len(lam) == (1 if shared else 40)
    assert met.all()
    gaps, without = game.play(lam).gap, game.play(np.zeros(1)).gap
    if shared:
        n_lists = game.defined.sum()
        gaps, without = gaps.sum() / n_lists, without.sum() / n_lists
    np.testing.assert_allclose(gaps, (1 - share) * without, atol=2e-7)
    assert (lam != 0).any() == (share > 0)


def test_several_games_share_the_multiplier_of_all_their_lists(game: Game) -> None:
    parts = [
        game._replace(
            kind=game.kind[part],
            rate=game.rate[part],
            defined=game.defined[part],
            mask=game.mask[part],
            appeal=game.appeal[part],
        )
        for part in (slice(15), slice(15, None))
    ]
    alone, _ = multipliers([game], share=0.7, shared=True)
    together, _ = multipliers(parts, share=0.7, shared=True)
    np.testing.assert_allclose(together, alone, rtol=1e-6)


def test_a_list_that_lacks_a_side_has_a_multiplier_of_0() -> None:
    group, mask = np.array([[1, 1, 2], [0, 0, 1]]), np.ones((2, 3), bool)
    appeal = np.array([[0.5, 0.4, 0.3], [0.1, 0.2, 0.9]])
    game = game_of(group, mask, np.ones(2), mu=0.5)._replace(appeal=appeal)
    lam, _ = multipliers([game], share=1.0, shared=False)
    assert lam[0] == 0
    assert lam[1] > 0


def test_where_groups_cannot_get_the_same_it_is_the_largest_that_was_tried() -> None:
    """One item of two cannot have a hundred times the exposure of the other."""
    game = game_of(np.array([[0, 1]]), np.ones((1, 2), bool), np.array([100.0, 1.0]), mu=0.5)
    game = game._replace(relevance=np.array([[0.1, 0.9]]))
    lam, met = multipliers([game], share=1.0, shared=False)
    assert not met.any()
    assert game.play(lam).gap[0] < -0.5
    assert lam[0] == 16 * (1 / (1 / 100 + 1))  # the first puts one side above the other
    with pytest.raises(ft.InputError, match="robust: no ranking gives the groups exposure in"):
        multipliers([game], share=1.0, shared=True)


@pytest.mark.parametrize("mu", [0.1, 1.0, 20.0, 100.0])
def test_what_rankings_can_give_is_found_however_much_they_are_smoothed(mu: float) -> None:
    """Of 2 items in 10 that get 2.2 times as much at most, these get 2.1 times as much."""
    group, mask = np.array([[0] * 2 + [1] * 8]), np.ones((1, 10), bool)
    game = game_of(group, mask, np.array([2.1, 1.0]), mu=mu)
    game = game._replace(relevance=np.random.default_rng(0).random((1, 10)))
    assert multipliers([game], share=1.0, shared=False)[1].all()


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
    game = game_of(SIDES[None], mask, merit, mu=mu)._replace(relevance=RELEVANCE[None])
    lam, _ = multipliers([game], share=1.0, shared=False)
    price = game.play(lam).price[0]
    found = matrix(price, Precision(mu, 1e-8))
    policy = ft.rerank(
        RELEVANCE[None], SIDES[None], method="exposure-lp", notion=notion
    ).policies[0]
    for one in (found, policy.matrix().numpy()):
        exposure = one @ discounts(6)
        assert RELEVANCE @ exposure == pytest.approx(dcg, abs=2e-6)
        means = [exposure[:3].mean(), exposure[3:].mean()]
        np.testing.assert_allclose(means, of_groups, atol=2e-5)
