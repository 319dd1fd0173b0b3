import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.metrics.other import group_aucs

Slot = tuple[float, bool, int]  # score, whether it is there, group
SLOT = st.tuples(
    st.sampled_from([-1.0, -0.0, 0.0, 0.5, 2.0]), st.booleans(), st.integers(-1, 2)
)


def plain(slots: list[Slot]) -> float:
    """The definition, in plain Python: every pair of a named and another item."""
    named = [score for score, there, group in slots if there and group == 0]
    others = [score for score, there, group in slots if there and group > 0]
    pairs = [(a > b) + (a == b) / 2 for a in named for b in others]
    return sum(pairs) / len(pairs) if pairs else math.nan


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(slots=st.lists(SLOT, min_size=1, max_size=12))
def test_the_area_is_the_share_of_pairs_that_a_plain_loop_counts(
    slots: list[Slot], dtype: type
) -> None:
    scores, mask, group = (np.array([column]) for column in zip(*slots, strict=True))
    known = np.where(mask, group, -1).astype(np.int16)
    (found,) = group_aucs(scores.astype(dtype), mask, known)
    assert found == pytest.approx(plain(slots), abs=1e-15, nan_ok=True)


@pytest.mark.slow
def test_a_long_list_is_ranked_whole() -> None:
    generator = np.random.default_rng(0)
    scores = generator.integers(0, 400, (2, 700)).astype(np.float32)
    group = generator.integers(-1, 3, (2, 700))
    mask = generator.random((2, 700)) < 0.9
    found = group_aucs(scores, mask, np.where(mask, group, -1))
    for row in range(2):
        slots = list(zip(scores[row].tolist(), mask[row], group[row].tolist(), strict=True))
        assert found[row] == pytest.approx(plain(slots), abs=1e-12)
