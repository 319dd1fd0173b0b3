"""The search for a weight, on curves that are known."""

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.runs.goal import MARGIN, Bounds, Scale, SearchResult, Trial, search

LOG, SHARE = Scale(1.0, 1e4, 10.0), Scale(0.5, 1.0, None)
Curve = Callable[[float], float]


def found(
    gap: Curve, accuracy: Curve = lambda w: 1.0, *, asked: Bounds, scale: Scale = LOG, runs: int
) -> SearchResult:
    return search(lambda w: Trial(w, gap(w), accuracy(w)), scale, asked, runs=runs)


def falling(half: float, *, floor: float = 0.0) -> Curve:
    """A gap that falls from 1 to `floor`, and is halfway at the weight `half`."""
    return lambda weight: floor + (1 - floor) / (1 + weight / half)


def crossing(value: float, at: float) -> Curve:
    """An accuracy that falls from 1, and is `value` at the weight `at`."""
    return lambda weight: 1 - (1 - value) * weight / at


@given(st.floats(1e-2, 2e3), st.floats(3, 1e3), st.floats(0.1, 0.9))
def test_what_can_be_reached_is_reached(enough: float, wide: float, at_most: float) -> None:
    """The gap is low enough from one weight on, the accuracy kept up to a larger one."""
    half = enough * at_most / (1 - at_most)
    asked = Bounds(at_most, 0.99)
    end = found(falling(half), crossing(0.99, enough * wide), asked=asked, runs=10)
    assert end.reached
    assert end.chosen is not None
    assert enough * 0.99 <= end.chosen.weight <= enough * wide * 1.01


@given(st.floats(1e-2, 2e3), st.floats(0.1, 0.9))
def test_the_search_closes_in_on_the_smallest_weight_that_is_enough(
    enough: float, at_most: float
) -> None:
    half = enough * at_most / (1 - at_most)
    end = found(falling(half), crossing(0.5, 1e5), asked=Bounds(at_most, 0.0), runs=30)
    assert end.reached
    assert end.end in ("enough", "narrow")
    assert end.chosen is not None
    close = end.chosen.gap >= at_most - MARGIN
    assert close or end.chosen.weight <= enough * (1 + 3 * MARGIN)


@given(st.floats(0.05, 0.9), st.floats(0.1, 0.9))
def test_a_share_is_found_between_0_and_1(enough: float, at_most: float) -> None:
    def gap(share: float) -> float:
        return 1 - (1 - at_most) * share / enough

    end = found(gap, lambda w: 1 - w / 100, asked=Bounds(at_most, 0.9), scale=SHARE, runs=12)
    assert end.reached
    assert end.chosen is not None
    assert end.chosen.gap >= at_most - MARGIN or end.chosen.weight <= enough + 2 * MARGIN
    assert all(0 < one.weight <= 1 for one in end.tries)


@given(st.floats(0.03, 1e3), st.floats(2, 100), st.floats(0.1, 0.8))
def test_what_cannot_be_kept_ends_with_the_fairest_that_keeps(
    kept: float, too_far: float, at_most: float
) -> None:
    """The gap is low enough only at weights that lose too much."""
    half = kept * too_far * at_most / (1 - at_most)
    gap, accuracy = falling(half), crossing(0.99, kept)
    end = found(gap, accuracy, asked=Bounds(at_most, 0.99), runs=12)
    assert not end.reached
    assert end.chosen is not None
    assert kept / 1.2 <= end.chosen.weight <= kept
    assert end.chosen.gap == min(one.gap for one in end.tries if one.accuracy >= 0.99)


@given(st.floats(1e-3, 0.2), st.floats(0.6, 0.9))
def test_a_gap_that_no_longer_falls_ends_the_search(half: float, floor: float) -> None:
    end = found(falling(half, floor=floor), asked=Bounds(0.5, 0.0), runs=20)
    assert (end.end, end.reached) == ("flat", False)
    assert len(end.tries) <= 5
    assert end.chosen is not None
    assert end.chosen.gap == min(one.gap for one in end.tries)


def test_a_gap_that_never_falls_leaves_the_colour_blind_model() -> None:
    end = found(lambda w: 1.0, asked=Bounds(0.5, 0.0), runs=20)
    assert (end.chosen, end.reached, end.end) == (None, False, "top")
    assert [one.weight for one in end.tries] == [1, 10, 100, 1e3, 1e4]


def test_a_goal_that_is_reached_at_no_cost_ends_the_search() -> None:
    end = found(falling(0.5), asked=Bounds(0.9, 0.99), runs=6)
    assert (end.end, end.reached, len(end.tries)) == ("enough", True, 1)


def test_a_weight_that_overshoots_is_followed_by_smaller_ones() -> None:
    """The gap is lowest at 0.05, and larger than colour-blind from 0.5 on."""

    def gap(weight: float) -> float:
        return abs(math.log10(weight) - math.log10(0.05))

    end = found(gap, asked=Bounds(0.4, 0.0), runs=8)
    assert end.reached
    assert end.chosen is not None
    assert end.chosen.weight < 0.2


def test_a_gap_that_rises_again_is_looked_for_in_between() -> None:
    def gap(weight: float) -> float:
        return 0.3 + abs(math.log10(weight) - math.log10(4)) / 2

    end = found(gap, asked=Bounds(0.36, 0.0), runs=6)
    assert end.reached


@pytest.mark.parametrize("broken", [math.nan, 0.0])
def test_training_that_breaks_off_is_followed_by_a_smaller_weight(broken: float) -> None:
    def gap(weight: float) -> float:
        return falling(5)(weight) if weight < 30 else math.nan

    end = found(gap, lambda w: 1.0 if w < 30 else broken, asked=Bounds(0.2, 0.9), runs=8)
    assert end.reached
    assert end.chosen is not None
    assert end.chosen.weight < 30


@given(st.integers(0, 10**6), st.sampled_from([LOG, SHARE]), st.integers(1, 9))
def test_noise_never_makes_a_search_claim_what_it_has_not_found(
    seed: int, scale: Scale, runs: int
) -> None:
    chance, asked = random.Random(seed), Bounds(0.5, 0.98)
    curves = [
        lambda w: falling(chance.uniform(0.1, 10))(w) + chance.gauss(0, 0.2),
        lambda w: chance.choice([1.0, 0.99, 0.9, math.nan]),
    ]
    end = found(*curves, asked=asked, scale=scale, runs=runs)
    weights = [one.weight for one in end.tries]
    assert 1 <= len(weights) <= runs
    assert len(set(weights)) == len(weights)
    assert all(0 < weight <= scale.top for weight in weights)
    accurate = [one for one in end.tries if one.accuracy >= asked.at_least]
    there = [one for one in accurate if one.gap <= asked.at_most]
    assert end.reached == bool(there)
    if there:
        assert end.chosen in there
        assert end.chosen.accuracy == max(one.accuracy for one in there)
    elif end.chosen is not None:
        assert end.chosen.gap == min(one.gap for one in accurate)
    else:
        assert all(one.gap >= 1 for one in accurate)
