import numpy as np

from fairtopk.robust.game import bonuses, gaps, sides_of


def test_the_sides_are_group_0_and_all_other_known_groups() -> None:
    group = np.array([[0, 1, 2, -1, 0], [1, 1, 0, 0, 0], [0, -1, 0, 0, 1]])
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 1, 1, 1, 1]], bool)
    sides = sides_of(group, mask, np.ones(2))
    assert sides.kind.tolist() == [[0, 1, 1, 2, 0], [1, 1, 2, 2, 2], [0, 2, 0, 0, 1]]
    np.testing.assert_allclose(sides.rate, [[0.5, -0.5, 0], [0, 0, 0], [1 / 3, -1, 0]])
    assert sides.defined.tolist() == [True, False, True]
    exposure = np.array([[1.0, 2, 3, 4, 5], [6, 7, 0, 0, 0], [3, 9, 3, 3, 1]])
    np.testing.assert_allclose(gaps(exposure, sides), [3 - 2.5, 0, 3 - 1])
    lam = np.array([2.0, 1.0, 3.0])
    np.testing.assert_allclose(bonuses(sides, lam)[2], [1, 0, 1, 1, -3])


def test_by_treatment_what_a_side_gets_is_divided_by_its_merit() -> None:
    group, mask = np.array([[0, 0, 1]]), np.ones((1, 3), bool)
    sides = sides_of(group, mask, np.array([0.5, 2.0]))
    np.testing.assert_allclose(gaps(np.array([[1.0, 3, 5]]), sides), [2 / 0.5 - 5 / 2])
