import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.errors import InputError
from fairtopk.statistics import holm

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
