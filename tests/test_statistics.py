import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import norm, permutation_test

from fairtopk import statistics as paired
from fairtopk.errors import InputError
from fairtopk.metrics import mean_with_interval
from fairtopk.statistics import (
    add_picked,
    cut_at_loss,
    front,
    holm,
    hypervolume,
    non_dominated,
    paired_difference,
    paired_differences,
)

pytestmark = pytest.mark.kernel

Floats = NDArray[np.float64]
VALUES = st.lists(
    st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=1, max_size=7
).map(lambda rows: np.array(rows, np.float64).T / 10)


def two_runs(n: int, *, shift: float = 0.0, seed: int = 0) -> tuple[Floats, Floats]:
    generator = np.random.default_rng(seed)
    common, *own = generator.normal(size=(3, n))
    return common + own[0], common + own[1] + shift


def every_sign(a: Floats, b: Floats) -> float:
    """The p-value as it is told: try all signs of the differences."""
    change = b - a
    sums = [abs(np.dot(signs, change)) for signs in itertools.product((1, -1), repeat=len(a))]
    return sum(one >= abs(change.sum()) - 1e-9 for one in sums) / len(sums)


@given(VALUES)
def test_with_few_queries_all_signs_are_tried(pair: Floats) -> None:
    assert paired_difference(*pair).p == pytest.approx(every_sign(*pair))


@pytest.mark.parametrize("shift", [0.0, 0.5, 1.5])
def test_p_is_that_of_scipy_where_both_are_exact(shift: float) -> None:
    a, b = two_runs(11, shift=shift)
    found = permutation_test(
        (b, a),
        lambda x, y, axis: (x - y).mean(axis),
        permutation_type="samples",
        n_resamples=np.inf,
        vectorized=True,
    )
    assert paired_difference(a, b).p == pytest.approx(found.pvalue)


@pytest.mark.compiled
@pytest.mark.parametrize("shift", [0.0, 0.05, 0.1])
def test_with_many_queries_p_is_close_to_that_of_the_normal_law(shift: float) -> None:
    a, b = two_runs(2_000, shift=shift)
    change = b - a
    # With random signs the sum has mean 0 and the squares' sum as its variance.
    expected = 2 * norm.sf(abs(change.sum()) / math.sqrt((change**2).sum()))
    error = math.sqrt(expected * (1 - expected) / paired.FLIPS)
    assert paired_difference(a, b).p == pytest.approx(expected, abs=4 * error + 1e-3)


@pytest.mark.compiled
@pytest.mark.slow
def test_p_is_below_a_level_as_often_as_it_says_if_nothing_differs() -> None:
    p_values = [paired_difference(*two_runs(12, seed=seed)).p for seed in range(200)]
    assert 4 <= sum(p <= 0.1 for p in p_values) <= 36  # 20, give or take four deviations


def test_the_interval_is_that_of_the_differences() -> None:
    a, b = two_runs(50, shift=1.0)
    found, mean = paired_difference(a, b, seed=3), mean_with_interval(b - a, seed=3)
    assert (found.difference, found.ci95, found.n) == mean[:3]
    assert found.mean_b - found.mean_a == pytest.approx(found.difference)


def test_pairs_that_lack_a_value_are_counted_and_change_nothing_else() -> None:
    a, b = two_runs(9, shift=0.5)
    whole = paired_difference(a, b)
    lone = np.array([7.0, np.nan, np.nan])
    found = paired_difference(np.append(a, lone), np.append(b, lone[::-1]))
    assert (found.n, found.undefined) == (9, 3)
    assert (found.mean_a, found.mean_b, found.p) == (whole.mean_a, whole.mean_b, whole.p)
    assert found.difference == pytest.approx(whole.difference)


def test_where_no_pair_is_defined_nothing_is() -> None:
    found = paired_difference([1.0, math.nan], [math.nan, 1.0])
    numbers = (*found[:3], *found.ci95, found.p)
    assert all(math.isnan(value) for value in numbers)
    assert (found.n, found.undefined) == (0, 2)


@pytest.mark.parametrize("n", [5, 500])
def test_a_run_does_not_differ_from_itself(n: int) -> None:
    a, _ = two_runs(n)
    found = paired_difference(a, a)
    assert (found.difference, found.ci95, found.p) == (0.0, (0.0, 0.0), 1.0)


@pytest.mark.parametrize("n", [9, 40])
def test_turning_the_pair_around_turns_the_sign(n: int) -> None:
    a, b = two_runs(n, shift=0.4)
    there, back = paired_difference(a, b), paired_difference(b, a)
    assert back.difference == pytest.approx(-there.difference)
    assert back.p == there.p
    assert (back.mean_a, back.mean_b) == (there.mean_b, there.mean_a)


def test_p_is_never_0() -> None:
    a = np.zeros(100)
    assert paired_difference(a, a + 1).p == 1 / (paired.FLIPS + 1)


def test_several_metrics_have_what_each_has_alone() -> None:
    one, other = two_runs(60, shift=0.3), two_runs(60, shift=0.1, seed=1)
    other[0][::7] = np.nan
    together = paired_differences(
        {"one": one[0], "other": other[0]}, {"other": other[1], "one": one[1]}, seed=2
    )
    for name, pair in (("one", one), ("other", other)):
        alone = paired_difference(*pair, seed=2)
        assert together[name].p == alone.p
        assert together[name].difference == pytest.approx(alone.difference)
        assert together[name].ci95 == pytest.approx(alone.ci95)


@pytest.mark.compiled
def test_the_signs_are_drawn_in_pieces_that_fit_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a, b = two_runs(300, shift=0.2)
    whole = paired_difference(a, b).p
    monkeypatch.setattr(paired, "FLIPPED_AT_ONCE", 300 * 700)  # the last piece is smaller
    error = math.sqrt(whole * (1 - whole) / paired.FLIPS)
    assert paired_difference(a, b).p == pytest.approx(whole, abs=6 * error)


def test_the_seed_decides_the_signs() -> None:
    a, b = two_runs(100)
    assert paired_difference(a, b, seed=1) == paired_difference(a, b, seed=1)
    assert paired_difference(a, b, seed=1).p != paired_difference(a, b, seed=2).p


def test_tensors_and_lists_are_taken_like_arrays() -> None:
    a, b = two_runs(20)
    assert paired_difference(torch.tensor(a), b.tolist()) == paired_difference(a, b)


@pytest.mark.parametrize(
    ("a", "b", "sentence"),
    [
        (
            [1.0],
            [1.0, 2.0],
            r"values must be of the same queries in a and b, got shapes \[1\] a",
        ),
        ([1.0], [math.inf], "values of b must be finite, or NaN where undefined, got inf"),
        (["x"], [1.0], "values of a must be a tensor or array of numbers, got 'x'"),
        ([], [], "values must hold one value per query, and at least one, got shape"),
        ([[1.0]], [[1.0]], "values must hold one value per query, and at least one, got shape"),
    ],
)
def test_what_is_no_pair_of_results_is_refused(a: Any, b: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{sentence}"):
        paired_difference(a, b)


def test_results_with_other_metrics_are_refused() -> None:
    with pytest.raises(
        InputError, match="must hold the same metrics, only one of them has 'y'"
    ):
        paired_differences({"x": [1.0]}, {"x": [1.0], "y": [2.0]})


P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def rejected(p_values: list[float], level: float) -> list[bool]:
    """Holm's procedure as it is told: step down until one test fails."""
    found = [False] * len(p_values)
    for step, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[place] * (len(p_values) - step) > level:
            break
        found[place] = True
    return found


@given(P_VALUES, st.floats(0.001, 0.999))
def test_what_is_below_a_level_is_what_holms_procedure_rejects_at_it(
    p_values: list[float], level: float
) -> None:
    assert (holm(p_values) <= level).tolist() == rejected(p_values, level)


@given(P_VALUES)
def test_the_corrected_lie_between_the_given_and_bonferronis(p_values: list[float]) -> None:
    corrected = holm(p_values)
    given_values = np.array(p_values)
    assert (corrected >= given_values).all()
    assert (corrected <= np.minimum(len(p_values) * given_values, 1)).all()


@given(P_VALUES, st.randoms(use_true_random=False))
def test_the_order_of_the_tests_does_not_matter(p_values: list[float], random: Any) -> None:
    places = list(range(len(p_values)))
    random.shuffle(places)
    moved = holm([p_values[place] for place in places])
    assert moved.tolist() == holm(p_values)[places].tolist()


def test_what_is_no_test_is_not_counted() -> None:
    found = holm([math.nan, 0.01, math.nan, 0.04])
    assert found[[1, 3]].tolist() == [0.02, 0.04]
    assert np.isnan(found[[0, 2]]).all()
    assert holm([]).tolist() == []


@pytest.mark.parametrize(
    ("p_values", "sentence"),
    [
        ([0.5, 1.5], "p_values must lie between 0 and 1, got 1.5"),
        ([-0.1], "p_values must lie between 0 and 1, got -0.1"),
        ([[0.1]], r"p_values must be one per test, got shape \[1, 1\]"),
        (["x"], "p_values must be a tensor or array of numbers, got 'x'"),
    ],
)
def test_what_is_no_p_value_is_refused(p_values: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{sentence}$"):
        holm(p_values)


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


@pytest.mark.parametrize("n", [1, 8, 13, 40])
def test_a_draw_adds_up_the_rows_whose_bits_are_set(n: int) -> None:
    rng = np.random.default_rng(n)
    rows = rng.normal(size=(n, 3))
    draws = rng.integers(0, 256, (20, -(-n // 8)), dtype=np.uint8)
    bits = np.unpackbits(draws, axis=-1, count=n)
    sums = np.zeros((20, 3))
    add_picked(rows, draws, np.zeros((256, 3)), sums)
    np.testing.assert_allclose(sums, bits @ rows, atol=1e-12)
