from itertools import pairwise, permutations

import numpy as np
import pytest
from numpy.typing import NDArray

from fairtopk.data._synthetic_kernels import (
    LIKING,
    RELUCTANCE,
    Catalogue,
    Slots,
    fill_users,
)
from fairtopk.kernels.random import alias_table

pytestmark = pytest.mark.kernel

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


def test_users_are_filled_alike_in_any_blocks_and_order() -> None:
    whole = filled((0, 4))

    for array, in_parts in zip(whole, filled((3, 4), (0, 1), (1, 3)), strict=True):
        np.testing.assert_array_equal(array, in_parts)


def test_a_user_has_distinct_items_and_keeps_those_given() -> None:
    item, recorded, time = filled((0, 4))

    for start, stop in pairwise(OFFSETS):
        assert len(set(item[start:stop].tolist())) == stop - start
    assert 7 in item[0:3]
    assert {3, 11} <= set(item[8:12].tolist())
    assert np.isfinite(recorded).all()
    assert (time > 0).all()
