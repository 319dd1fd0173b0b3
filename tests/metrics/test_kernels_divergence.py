import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.metrics.other import mean_divergences

Slot = tuple[float, bool, int]  # score, whether it is there, group
SLOT = st.tuples(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), st.booleans(), st.integers(-1, 2))


def plain(slots: list[Slot], k: int) -> float:
    """The definition, in plain Python."""
    labels = [group for _, there, group in sorted(slots, key=lambda slot: -slot[0]) if there]
    target = shares(labels)
    if len(target) < 2:
        return math.nan
    total = weight = 0.0
    for i in range(1, min(k, len(labels)) + 1):
        found = shares(labels[:i])
        if found:
            one = 1 / math.log2(1 + i)
            total += one * sum(p * math.log(p / target[g]) for g, p in found.items())
            weight += one
    return total / weight if weight else math.nan


def shares(labels: list[int]) -> dict[int, float]:
    known = [label for label in labels if label >= 0]
    return {label: known.count(label) / len(known) for label in known}


def measured(slots: list[Slot], k: int, dtype: type = np.float64) -> float:
    scores, mask, group = (np.array([column]) for column in zip(*slots, strict=True))
    known = np.where(mask, group, -1).astype(np.int16)
    return float(mean_divergences(scores.astype(dtype), mask, known, 3, k)[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(slots=st.lists(SLOT, min_size=1, max_size=10), k=st.integers(1, 12))
def test_the_mean_divergence_is_that_of_a_plain_loop(
    slots: list[Slot], k: int, dtype: type
) -> None:
    found = measured(slots, k, dtype)
    assert found == pytest.approx(plain(slots, k), abs=1e-12, nan_ok=True)


def test_a_long_list_loses_no_digits() -> None:
    labels = np.random.default_rng(0).integers(0, 3, 500).tolist()
    slots = [(float(-place), True, label) for place, label in enumerate(labels)]
    assert measured(slots, 500) == pytest.approx(plain(slots, 500), rel=1e-11)


def test_prefixes_before_the_first_known_item_count_for_nothing() -> None:
    slots = [(3.0, True, -1), (2.0, True, 0), (1.0, True, 1)]
    assert math.isnan(measured(slots, 1))
    assert measured(slots, 2) == pytest.approx(math.log(2))
