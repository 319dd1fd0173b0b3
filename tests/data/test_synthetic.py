"""Generated documents with features."""

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import fairtopk as ft
from fairtopk.data import synthetic
from fairtopk.data.interactions import Interactions
from fairtopk.data.synthetic import (
    GRADE_SHARES,
    LIKING,
    RELUCTANCE,
    SIZES,
    Catalogue,
    Slots,
    SyntheticShape,
    fill_users,
    load_synthetic,
    make_documents,
    make_synthetic,
)
from fairtopk.errors import InputError
from fairtopk.kernels.csr import first_repeat
from fairtopk.kernels.random import alias_table

DEMO = SIZES["demo"]
SMALL = SyntheticShape(60, 90, 2_000)


@st.composite
def shapes(draw: st.DrawFn) -> SyntheticShape:
    n_users, n_items = draw(st.integers(3, 40)), draw(st.integers(40, 120))
    least, most = max(20 * n_users, n_items), n_users * (n_items // 2)
    shares = draw(st.sampled_from([(0.15, 0.85), (0.05, 0.95), (0.2, 0.3, 0.5), (0.6, 0.4)]))
    n_ratings = draw(st.one_of(st.sampled_from([least, most]), st.integers(least, most)))
    return SyntheticShape(n_users, n_items, n_ratings, shares)


def rated_shares(bias: float, seed: int) -> NDArray[np.float64]:
    """Group a's shares of the ratings and of those of at least 4, each over that of items."""
    data = make_synthetic(DEMO, bias=bias, seed=seed).data
    in_a = data.group[data.item] == 0
    of_items = np.mean(data.group == 0)
    return np.array([in_a.mean(), in_a[data.rating >= 4].mean()]) / of_items


@given(shapes(), st.sampled_from([0.0, 1.0, 10.0]), st.integers(0, 2**63 - 1))
def test_any_shape_is_met_to_the_letter(shape: SyntheticShape, bias: float, seed: int) -> None:
    data = make_synthetic(shape, bias=bias, seed=seed).data

    per_user = np.diff(data.offsets)
    assert (data.n_users, data.n_items) == (shape.n_users, shape.n_items)
    assert len(data.item) == len(data.rating) == data.offsets[-1] == shape.n_ratings
    assert per_user.min() >= 20
    assert per_user.max() <= shape.n_items // 2
    assert np.bincount(data.item, minlength=shape.n_items).min() >= 1
    assert first_repeat(data.offsets, data.item, shape.n_items) == (-1, -1)
    assert set(np.unique(data.rating)) <= {1.0, 2.0, 3.0, 4.0, 5.0}
    counts = np.array(list(data.catalogue_counts.values()))
    assert np.abs(counts - shape.n_items * np.array(shape.group_shares)).max() <= 1
    assert counts.min() >= 1
    assert data.catalogue_counts == data.group_counts


def test_it_passes_the_checks_of_a_table() -> None:
    data = make_synthetic(SMALL).data

    frame = data.to_frame()
    again = Interactions.from_frame(
        frame, user="user", item="item", rating="rating", time="time"
    ).to_frame()

    assert again.drop("group").equals(frame.drop("group"))
    assert (data.user_ids.to_list(), data.item_ids.to_list()) == ([*range(60)], [*range(90)])
    assert data.group_names == ("a", "b")


def test_the_same_arguments_give_the_same_bits_in_any_number_of_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = make_synthetic(SMALL, bias=0.5, seed=3).data.checksum

    for n_blocks in (1, 7, 200):
        monkeypatch.setattr(synthetic, "N_BLOCKS", n_blocks)
        assert make_synthetic(SMALL, bias=0.5, seed=3).data.checksum == first
    assert make_synthetic(SMALL, bias=0.5, seed=4).data.checksum != first
    assert make_synthetic(SMALL, bias=0.6, seed=3).data.checksum != first


def test_truth_groups_and_activity_do_not_depend_on_bias() -> None:
    fair, biased = make_synthetic(SMALL, bias=0.0), make_synthetic(SMALL, bias=2.0)

    for name, values in vars(fair.truth).items():
        np.testing.assert_array_equal(values, getattr(biased.truth, name))
    np.testing.assert_array_equal(fair.data.group, biased.data.group)
    np.testing.assert_array_equal(fair.data.offsets, biased.data.offsets)


def test_popularity_and_activity_have_long_tails() -> None:
    data = make_synthetic(DEMO, bias=0.0).data

    per_user, per_item = np.diff(data.offsets), np.sort(np.bincount(data.item))[::-1]
    assert np.median(per_user) < 0.75 * per_user.mean()
    assert per_user.max() > 5 * per_user.mean()
    assert 0.4 < per_item[:80].sum() / data.n_ratings < 0.55  # MovieLens 1M: 0.44
    assert np.median(per_item) < 0.5 * per_item.mean()  # MovieLens 1M: 0.46
    assert per_item[0] < 0.9 * data.n_users


def test_nearly_every_user_of_the_demo_leaves_300_items_unrated() -> None:
    assert (DEMO.n_items - np.diff(make_synthetic(DEMO).data.offsets) >= 305).all()


@pytest.mark.parametrize("seed", [0, 1])
def test_grades_without_bias_are_shared_out_as_in_movielens(seed: int) -> None:
    data = make_synthetic(DEMO, bias=0.0, seed=seed).data

    shares = np.bincount(data.rating.astype(int), minlength=6)[1:] / data.n_ratings
    np.testing.assert_allclose(shares, GRADE_SHARES, atol=0.01)


def test_times_never_fall_within_a_user_and_few_are_equal() -> None:
    data = make_synthetic(DEMO).data

    gaps = np.diff(data.time)
    within = np.ones(len(gaps), bool)
    within[data.offsets[1:-1] - 1] = False
    assert data.time.dtype == np.int64
    assert gaps[within].min() == 0
    assert 0.01 < np.mean(gaps[within] == 0) < 0.1
    assert gaps[~within].min() < 0


def test_what_is_rated_first_is_not_what_is_liked_best() -> None:
    made = make_synthetic(DEMO)
    data, truth = made.data, made.truth

    utility = truth.utility(data.user_of_slot(), data.item)
    popularity = truth.log_popularity[data.item]
    user, place = data.user_of_slot(), np.arange(data.n_ratings)
    late = place - data.offsets[user] >= np.diff(data.offsets)[user] // 2
    assert abs(utility[late].mean() - utility[~late].mean()) < 0.03
    assert abs(popularity[late].mean() - popularity[~late].mean()) < 0.06


def test_utility_has_about_unit_spread_and_is_taste_times_factors_plus_quality() -> None:
    truth = make_synthetic(DEMO).truth

    utility = truth.utility(np.arange(1_000)[:, None], np.arange(800)[None, :])

    expected = truth.user_factors @ truth.item_factors.T + truth.quality
    np.testing.assert_allclose(utility, expected, atol=1e-5)
    assert utility.shape == (1_000, 800)
    assert abs(utility.mean()) < 0.15
    assert utility.std() == pytest.approx(1.0, abs=0.1)


def test_users_rate_what_they_like_and_grade_it_higher() -> None:
    made = make_synthetic(DEMO, bias=0.0)
    data, truth = made.data, made.truth
    user, everyone = data.user_of_slot(), np.arange(1_000)

    felt = truth.utility(user, data.item)
    of_others = truth.utility(everyone[user[::-1]], data.item)

    assert felt.mean() > of_others.mean() + 0.3
    assert np.corrcoef(felt, data.rating)[0, 1] > 0.7


def test_without_bias_no_group_is_ahead() -> None:
    ahead = np.log([rated_shares(0.0, seed) for seed in range(30)])

    error = ahead.std(axis=0, ddof=1) / np.sqrt(len(ahead))
    assert (error < 0.015).all()
    assert (np.abs(ahead.mean(axis=0)) < 3 * error).all()


@pytest.mark.parametrize("seed", range(5))
def test_the_first_group_falls_behind_as_bias_grows(seed: int) -> None:
    shares = np.array([rated_shares(bias, seed) for bias in (0.0, 0.5, 1.0, 2.0)])

    assert (np.diff(shares, axis=0) < -0.03).all()


def test_bias_one_is_about_what_horror_meets_in_movielens_1m() -> None:
    shares = np.mean([rated_shares(1.0, seed) for seed in range(10)], axis=0)

    np.testing.assert_allclose(shares, [7.64 / 8.83, 5.93 / 8.83], atol=0.03)


def test_the_first_group_must_be_liked_more_for_the_same_grade() -> None:
    def head_start(bias: float) -> float:
        made = make_synthetic(DEMO, bias=bias)
        data = made.data
        felt = made.truth.utility(data.user_of_slot(), data.item)
        in_a, fours = data.group[data.item] == 0, data.rating == 4
        return float(felt[fours & in_a].mean() - felt[fours & ~in_a].mean())

    assert abs(head_start(0.0)) < 0.06
    assert 0.15 < head_start(1.0) < 0.35


def test_the_truth_favours_no_group_where_items_are_seen() -> None:
    made = make_synthetic(SyntheticShape(100, 300, 4_000, (0.2, 0.3, 0.5)), seed=2)
    truth, weight = made.truth, np.exp(made.truth.log_popularity)

    assert made.data.group_names == ("a", "b", "c")
    for number in range(3):
        inside = truth.group == number
        quality = np.average(truth.quality[inside], weights=weight[inside])
        assert quality == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((100, 50, 1_999), "n_ratings must lie between 2,000 and 2,500 .* got 1,999"),
        ((100, 50, 2_501), "n_ratings must lie between 2,000 and 2,500 .* got 2,501"),
        ((10, 500, 499), "n_ratings must lie between 500 and 2,500 .* got 499"),
        ((2, 50, 50), "n_users must be at least 3 and n_items at least 40, got 2 and 50"),
        ((9, 39, 180), "n_users must be at least 3 and n_items at least 40, got 9 and 39"),
        ((10, 100, 400, (1.0,)), "group_shares must have from 2 to 26 shares, got 1"),
        ((10, 100, 400, (0.2, 0.7)), "group_shares must add up to 1"),
        ((10, 100, 400, (float("nan"), 0.5)), "each of group_shares must be a finite number"),
        ((10, 100, 400, (0.01, 0.99)), "at least 2 of the 100 items"),
        ((10, 100, 400, (-0.5, 1.5)), "at least 2 of the 100 items"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(
    arguments: tuple[int, int, int], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        SyntheticShape(*arguments)


@pytest.mark.parametrize("bias", [-0.1, 10.5])
def test_a_bias_out_of_range_is_refused(bias: float) -> None:
    with pytest.raises(InputError, match="bias must lie between 0 and 10"):
        make_synthetic(SMALL, bias=bias)


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_out_of_range_is_refused(seed: int) -> None:
    with pytest.raises(InputError, match=r"seed must be at (least 0|most)"):
        make_synthetic(SMALL, seed=seed)


def test_a_size_is_loaded_by_its_name() -> None:
    assert (
        load_synthetic(size="demo", seed=1).checksum
        == make_synthetic(DEMO, seed=1).data.checksum
    )
    with pytest.raises(InputError, match="size must be one of demo, movielens-20m, got 'big'"):
        load_synthetic(size="big")


def test_one_seed_gives_the_same_documents_and_another_does_not() -> None:
    one, again, other = (make_documents(seed=seed) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    assert not np.array_equal(one.x, other.x)


def test_the_bias_is_in_the_grades_alone() -> None:
    fair, biased = make_documents(bias=0.0), make_documents(bias=2.0)
    minor = fair.groups == "minor"
    assert np.array_equal(fair.x, biased.x)
    assert np.array_equal(fair.y[~minor], biased.y[~minor])
    assert abs(fair.y[minor].mean() - fair.y[~minor].mean()) < 0.2
    assert biased.y[minor].mean() < biased.y[~minor].mean() - 1


def test_lists_have_the_length_that_is_asked_for() -> None:
    documents = make_documents(3, 5)
    assert np.bincount(documents.qid).tolist() == [5, 5, 5]
    with pytest.raises(ft.InputError, match="n_lists must be at least 1, got 0"):
        make_documents(0, 5)


OFFSETS = np.array([0, 3, 8, 12, 20])


def catalogue(n_items: int) -> Catalogue:
    random = np.random.default_rng(0)
    log_weight = random.normal(0.0, 1.0, n_items)
    keep, alias = alias_table(np.exp(log_weight))
    return Catalogue(
        factors=random.normal(0.0, 0.5, (n_items, 2)).astype(np.float32),
        quality=random.normal(0.0, 0.5, n_items).astype(np.float32),
        log_weight=log_weight,
        keep=keep,
        alias=alias,
        handicap=np.zeros(n_items, np.float32),
    )


def chances_to_be_among(n_drawn: int, rate: NDArray[np.float64]) -> NDArray[np.float64]:
    """Chance of each item to be drawn, summed over every order in which it can happen."""
    chances = np.zeros(len(rate))
    for order in permutations(range(len(rate)), n_drawn):
        left, chance = rate.sum(), 1.0
        for item in order:
            chance *= rate[item] / left
            left -= rate[item]
        chances[list(order)] += chance
    return chances


@pytest.mark.kernel
@pytest.mark.compiled
@pytest.mark.parametrize("limit", [0, 3, 10_000])
def test_both_ways_to_choose_draw_without_replacement_by_weight_and_liking(limit: int) -> None:
    items, taste = catalogue(6), np.array([0.8, -0.6], np.float32)
    utility = items.factors @ taste + items.quality
    rate = np.exp(items.log_weight) / (1.0 + np.exp(RELUCTANCE - LIKING * utility))
    n_times = 10_000
    tastes, offsets = np.tile(taste, (n_times, 1)), np.arange(0, 3 * n_times + 1, 3)
    chosen, recorded = np.full(3 * n_times, -1, np.int32), np.empty(3 * n_times, np.float32)
    slots = Slots(offsets, chosen, recorded, np.empty(3 * n_times, np.int64))
    fill_users(0, tastes, items, slots, (0, n_times), limit=limit)
    assert all(len(set(mine)) == 3 for mine in chosen.reshape(-1, 3).tolist())

    drawn = np.bincount(chosen, minlength=6)
    expected = chances_to_be_among(3, rate)
    error = np.sqrt(expected * (1.0 - expected) / n_times)
    assert (np.abs(drawn / n_times - expected) < 4 * error).all()


def filled(*blocks: tuple[int, int]) -> tuple[NDArray[np.generic], ...]:
    item = np.full(20, -1, np.int32)
    item[[1, 9, 10]] = [7, 3, 11]
    recorded, time = np.full(20, np.nan, np.float32), np.zeros(20, np.int64)
    tastes = np.random.default_rng(1).normal(size=(4, 2)).astype(np.float32)
    for block in blocks:
        fill_users(5, tastes, catalogue(15), Slots(OFFSETS, item, recorded, time), block)
    return item, recorded, time


@pytest.mark.kernel
def test_users_are_filled_alike_in_any_blocks_and_order() -> None:
    whole = filled((0, 4))

    for array, in_parts in zip(whole, filled((3, 4), (0, 1), (1, 3)), strict=True):
        np.testing.assert_array_equal(array, in_parts)


@pytest.mark.kernel
def test_a_user_has_distinct_items_and_keeps_those_given() -> None:
    item, recorded, time = filled((0, 4))

    for start, stop in pairwise(OFFSETS):
        assert len(set(item[start:stop].tolist())) == stop - start
    assert 7 in item[0:3]
    assert {3, 11} <= set(item[8:12].tolist())
    assert np.isfinite(recorded).all()
    assert (time > 0).all()
