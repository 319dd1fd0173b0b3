"""Lists in which the order of rows decides."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairtopk.auditing.measures import count_ties

pytestmark = pytest.mark.kernel

KS = [1, 3]


def counted(scores: list[float], labels: list[int], ks: list[int] = KS) -> list[list[int]]:
    rows = np.array([scores], float), np.array([len(scores)]), np.array([labels], float)
    return count_ties(*rows, np.array(ks)).tolist()


def test_a_tie_across_a_cut_has_items_on_both_sides() -> None:
    assert counted([3, 2, 2, 1], [0, 0, 1, 1]) == [[0, 0], [0, 1]]
    assert counted([3, 3, 2, 1], [0, 1, 0, 1]) == [[1, 0], [1, 1]]
    assert counted([4, 3, 2, 2], [0, 1, 0, 1]) == [[0, 1], [0, 1]]


def test_a_tie_after_the_longest_top_does_not_matter() -> None:
    assert counted([5, 4, 3, 2, 2], [0, 1, 0, 1, 0]) == [[0, 0], [0, 0]]


def test_equals_with_one_label_are_no_tie() -> None:
    assert counted([1, 1, 1, 1], [1, 1, 1, 1]) == [[0, 0], [0, 0]]


def test_a_label_far_below_the_cut_can_be_the_one_that_differs() -> None:
    assert counted([1, 1, 1, 1, 1], [0, 0, 0, 0, 1]) == [[1, 1], [1, 1]]


def test_padding_is_in_no_tie() -> None:
    scores, labels = np.zeros((1, 4)), np.array([[0.0, -1, -1, -1]])
    assert count_ties(scores, np.array([1]), labels, np.array(KS)).sum() == 0


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=8))
def test_without_a_tie_no_order_of_equals_changes_who_is_in_the_top(
    rows: list[tuple[int, int]],
) -> None:
    ranked = sorted(rows, key=lambda row: -row[0])
    scores, labels = map(list, zip(*ranked, strict=True))
    across, within = counted(scores, labels)
    first, last = (sorted(rows, key=lambda row: (-row[0], sign * row[1])) for sign in (1, -1))
    for place, k in enumerate(KS):
        tops = [[label for _, label in order[:k]] for order in (first, last)]
        assert across[place] == (sorted(tops[0]) != sorted(tops[1]))
        assert within[place] >= across[place]
        assert (tops[0] == tops[1]) or within[place]
