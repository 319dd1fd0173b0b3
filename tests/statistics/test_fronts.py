import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fairtopk.errors import InputError
from fairtopk.statistics import cut_at_loss, front, hypervolume, non_dominated

Floats = NDArray[np.float64]
WORST = (0.0, 8.0)
# On a grid, so that equal values are common and areas can be counted out.
POINTS = st.lists(
    st.tuples(st.integers(-2, 8), st.integers(0, 10)), min_size=1, max_size=9
).map(lambda rows: np.array(rows, np.float64).T)


def dominates(one: Floats, other: Floats) -> bool:
    no_worse = one[0] >= other[0] and one[1] <= other[1]
    return bool(no_worse and (one[0] > other[0] or one[1] < other[1]))


def cells(points: Floats) -> int:
    """The area, by counting the unit squares that lie between the reference and a point."""
    return sum(
        any(ndcg >= right and gap <= low for ndcg, gap in points.T)
        for right in range(1, 11)
        for low in range(8)
    )


@given(POINTS)
def test_the_front_is_what_no_other_point_dominates(points: Floats) -> None:
    plain = [not any(dominates(other, one) for other in points.T) for one in points.T]
    assert non_dominated(*points).tolist() == plain


@given(POINTS)
def test_the_hypervolume_is_the_area_counted_out(points: Floats) -> None:
    assert hypervolume(*points, reference=WORST) == cells(points)


@given(POINTS)
def test_only_the_front_has_an_area_and_each_more_point_adds_to_it(points: Floats) -> None:
    whole = hypervolume(*points, reference=WORST)
    assert hypervolume(*points[:, non_dominated(*points)], reference=WORST) == whole
    assert hypervolume(*points[:, :1], reference=WORST) <= whole


@given(POINTS, st.randoms(use_true_random=False))
def test_the_order_of_the_points_does_not_matter(points: Floats, random: Any) -> None:
    places = list(range(points.shape[1]))
    random.shuffle(places)
    moved = points[:, places]
    assert non_dominated(*moved).tolist() == non_dominated(*points)[places].tolist()
    assert hypervolume(*moved, reference=WORST) == hypervolume(*points, reference=WORST)


def test_a_point_with_a_nan_is_left_out() -> None:
    ndcg, gap = [0.5, math.nan, 0.4], [0.2, 0.0, math.nan]
    assert non_dominated(ndcg, gap).tolist() == [True, False, False]
    assert hypervolume(ndcg, gap, reference=(0.0, 1.0)) == pytest.approx(0.4)
    assert not non_dominated([math.nan], [0.1]).any()
    assert hypervolume([math.nan], [0.1], reference=(0.0, 1.0)) == 0


NDCG, GAP = [0.50, 0.48, 0.40, 0.45], [0.20, 0.10, 0.05, 0.15]  # the last is dominated


@pytest.mark.parametrize(
    ("loss", "cut"),
    [
        (0.0, 0.0),
        (0.04, 0.5),  # at 0.48
        (0.02, 0.25),  # half of the way there
        (0.10, 0.5 + 0.25 * 3 / 8),  # at 0.45, from 0.48 on the way to 0.40
        (0.20, 0.75),  # the fairest
    ],
)
def test_the_cut_is_read_off_the_lines_between_neighbours_on_the_front(
    loss: float, cut: float
) -> None:
    found = cut_at_loss(NDCG, GAP, loss=loss, base=(0.50, 0.20))
    assert found == pytest.approx(cut)


def test_nothing_is_extrapolated() -> None:
    assert math.isnan(cut_at_loss(NDCG, GAP, loss=0.21, base=(0.50, 0.20)))
    assert math.isnan(cut_at_loss(NDCG, GAP, loss=0.01, base=(0.51, 0.20)))
    assert math.isnan(cut_at_loss([math.nan], [0.1], loss=0.0, base=(0.5, 0.2)))


@given(POINTS, st.floats(0, 0.99), st.floats(0, 0.99))
def test_who_gives_up_more_ndcg_never_gets_a_smaller_cut(
    points: Floats, one: float, other: float
) -> None:
    small, large = sorted((one, other))
    less, more = (cut_at_loss(*points, loss=x, base=(8.0, 10.0)) for x in (small, large))
    assert not more < less - 1e-12


def test_equal_points_do_not_hinder_reading_a_cut() -> None:
    found = cut_at_loss([1.0, 1.0, 0.5], [0.5, 0.5, 0.25], loss=0.25, base=(1.0, 0.5))
    assert found == pytest.approx(0.25)


def test_a_front_is_that_of_the_means_over_seeds() -> None:
    ndcg = np.array([[0.5, 0.4, 0.3], [0.6, 0.5, 0.3]])
    gap = np.array([[0.4, 0.1, 0.2], [0.2, 0.1, 0.4]])
    found = front(ndcg, gap, reference=(0.0, 1.0))
    assert found.ndcg == pytest.approx([0.55, 0.45, 0.3])
    assert found.gap == pytest.approx([0.3, 0.1, 0.3])
    assert found.on_front.tolist() == [True, True, False]
    assert found.hypervolume == pytest.approx(0.1 * 0.7 + 0.45 * 0.9)
    assert found.n_seeds == 2


def test_a_place_on_the_front_that_hangs_on_a_seed_has_a_share_below_1() -> None:
    ndcg = np.array([[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]])
    gap = np.array([[0.2, 0.1], [0.2, 0.1], [0.2, 0.5]])
    found = front(ndcg, gap, reference=(0.0, 1.0))
    # The first is fairer if the third seed is drawn at least once: 1 - (2/3)^3.
    assert found.share == pytest.approx([19 / 27, 8 / 27], abs=0.06)
    assert found.on_front.tolist() == [True, False]


def test_the_interval_over_three_seeds_is_the_range_that_was_seen() -> None:
    ndcg, gap = np.array([[0.3], [0.5], [0.4]]), np.full((3, 1), 0.5)
    found = front(ndcg, gap, reference=(0.0, 1.0))
    assert found.ci95 == pytest.approx((0.15, 0.25))
    assert found.ndcg_ci95 == pytest.approx(np.array([[0.3, 0.5]]))
    assert found.gap_ci95 == pytest.approx(np.array([[0.5, 0.5]]))


def test_intervals_over_few_seeds_hold_less_than_they_say_and_the_docstring_tells() -> None:
    generator = np.random.default_rng(0)
    for n_seeds, told in ((2, 0.50), (3, 0.75), (5, 0.84), (10, 0.90)):
        values = 5 + generator.normal(size=(n_seeds, 400))
        low, high = front(values, np.ones_like(values), reference=(0.0, 2.0)).ndcg_ci95.T
        held = ((low <= 5 + 1e-9) & (high >= 5 - 1e-9)).mean()
        assert held == pytest.approx(told, abs=0.08)


def test_one_seed_tells_nothing_of_others() -> None:
    found = front([[0.5, 0.4]], [[0.2, 0.1]], reference=(0.0, 1.0))
    assert found.on_front.all()
    assert np.isnan([*found.ci95, *found.share, *found.ndcg_ci95.flat]).all()


def test_a_point_that_is_undefined_for_a_seed_is_left_out() -> None:
    found = front([[0.5, 0.6], [0.5, 0.6]], [[0.2, 0.1], [0.2, math.nan]], reference=(0.0, 1.0))
    assert found.on_front.tolist() == [True, False]
    assert found.share.tolist() == [1.0, 0.0]
    assert found.hypervolume == pytest.approx(0.4)
    assert np.isnan(found.gap_ci95[1]).all()


def test_the_seed_decides_the_resamples() -> None:
    ndcg, gap = np.random.default_rng(0).random((2, 6, 4))
    one, again, other = (front(ndcg, gap, reference=(0.0, 1.0), seed=s).ci95 for s in (1, 1, 2))
    assert one == again != other


@pytest.mark.parametrize(
    ("ndcg", "gap", "sentence"),
    [
        (
            [0.5],
            [0.1, 0.2],
            r"ndcg and gap must have one value per point, got shapes \[1\] and",
        ),
        ([], [], "ndcg and gap must have one value per point, got shapes"),
        ([0.5], [-0.1], "gap must be at least 0, not signed, got -0.1"),
        ([math.inf], [0.1], "ndcg and gap must be finite, or NaN where undefined, got inf"),
        ([None], [0.1], "ndcg must be a tensor or array of numbers, got None"),
    ],
)
def test_what_are_no_points_is_refused(ndcg: Any, gap: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{sentence}"):
        non_dominated(ndcg, gap)


@pytest.mark.parametrize("reference", [None, 0.5, (0.5,), (0.5, math.nan), ("x", 1.0)])
def test_a_reference_that_is_no_point_is_refused(reference: Any) -> None:
    with pytest.raises(InputError, match=r"^reference must be an NDCG and a gap, such as"):
        hypervolume([0.5], [0.1], reference=reference)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"loss": 1.0}, "loss must be a share from 0 to below 1, got 1.0"),
        ({"loss": -0.1}, "loss must be a share from 0 to below 1, got -0.1"),
        ({"base": (0.5, 0.0)}, "base must have an NDCG and a gap above 0"),
        ({"base": 3}, "base must be an NDCG and a gap, such as"),
    ],
)
def test_a_cut_that_means_nothing_is_refused(changes: dict[str, Any], sentence: str) -> None:
    given_values: dict[str, Any] = {"loss": 0.01, "base": (0.5, 0.2), **changes}
    with pytest.raises(InputError, match=f"^{sentence}"):
        cut_at_loss(NDCG, GAP, **given_values)


def test_seeds_are_rows() -> None:
    with pytest.raises(
        InputError, match="must have a row per seed, a value per point, got sha"
    ):
        front([0.5], [0.1], reference=(0.0, 1.0))
