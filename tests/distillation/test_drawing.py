"""What is drawn of a list, and what its places count."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.distillation.teacher import evenly_spaced, place_weight, weight_behind


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers(1, 20))
def test_no_place_is_drawn_twice_and_short_lists_are_drawn_whole(
    lengths: list[int], n: int
) -> None:
    found = evenly_spaced(np.array(lengths), n, np.random.default_rng(0))
    for length, row in zip(lengths, found, strict=True):
        drawn = row[row >= 0]
        assert len(drawn) == min(length, n) == len(set(drawn))
        assert (drawn < length).all()
        if length <= n:
            assert drawn.tolist() == list(range(length))


def test_every_place_is_drawn_equally_often() -> None:
    length, n, lists = 37, 10, 20_000
    found = evenly_spaced(np.full(lists, length), n, np.random.default_rng(1))
    often = np.bincount(found.ravel(), minlength=length) / lists
    # A place is drawn or not, so that its frequency has at most this standard error.
    assert np.abs(often - n / length).max() < 5 * 0.5 / lists**0.5


@pytest.mark.parametrize("reach", [10.0, 100.0])
def test_what_is_behind_counts_as_much_as_its_places_together(reach: float) -> None:
    first, length = 400, 3_000
    places = np.arange(first, length, dtype=np.float64) + 0.5
    together = weight_behind(np.array([first]), np.array([length]), reach)
    assert together[0] == pytest.approx(place_weight(places, reach).sum(), rel=1e-3)


def test_a_place_counts_an_eighth_at_the_reach() -> None:
    assert place_weight(np.array([0.0, 25.0]), 25.0).tolist() == [1.0, 0.125]
