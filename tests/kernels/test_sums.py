import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.kernels.sums import Lists, Places, Tops, list_sums, place_sums

pytestmark = pytest.mark.kernel

Slot = tuple[float, bool, int, int]  # score, whether it is there, grade and group
SLOT = st.tuples(
    st.sampled_from([-1.0, 0.0, 0.5, 2.0]),
    st.booleans(),
    st.sampled_from([0, 0, 1, 3]),
    st.integers(-1, 2),
)
KS, N_GROUPS = [1, 3, 5, 9], 3
both_precisions = pytest.mark.parametrize(
    ("dtype", "error"), [(np.float32, 1e-6), (np.float64, 1e-13)]
)


def plain_sums(slots: list[Slot], k: int) -> dict[str, list[float]]:
    """What `Tops` says of one list at one K, in plain Python."""
    items = sorted((slot for slot in slots if slot[1]), key=lambda slot: -slot[0])
    total = sum(math.exp(score) for score, *_ in items)
    worth = [1 / math.log2(2 + place) for place in range(len(items))]
    top = list(zip(items, worth, strict=True))[:k]
    best = sorted((2**grade - 1 for _, _, grade, _ in items), reverse=True)[:k]
    found: dict[str, list[float]] = {name: [] for name in Tops._fields}
    for number in range(N_GROUPS):
        mine = [(math.exp(item[0]) / total, one) for item, one in top if item[3] == number]
        found["exposure"].append(sum(share for share, _ in mine))
        found["discount"].append(sum(one for _, one in mine))
        found["members"].append(len(mine))
        found["size"].append(sum(item[3] == number for item in items))
    found["everyone"] = [sum(math.exp(item[0]) / total for item, _ in top)]
    found["dcg"] = [sum((2 ** item[2] - 1) * one for item, one in top)]
    found["ideal"] = [sum(gain * one for gain, one in zip(best, worth, strict=False))]
    return found


@both_precisions
@given(slots=st.lists(SLOT, min_size=1, max_size=8))
def test_sums_of_lists_are_those_of_a_plain_loop(
    slots: list[Slot], dtype: type, error: float
) -> None:
    scores, mask, grades, group = (np.array([column]) for column in zip(*slots, strict=True))
    known = np.where(mask, group, -1).astype(np.int16)
    lists = Lists(scores.astype(dtype), mask, grades.astype(dtype), known, N_GROUPS)
    sums = list_sums(lists, KS)
    for cut, k in enumerate(KS):
        for name, expected in plain_sums(slots, k).items():
            values = getattr(sums, name)
            found = values[0, ..., 0 if name == "size" else cut]
            assert np.ravel(found).tolist() == pytest.approx(expected, rel=error), name


def test_sums_of_the_first_places_are_those_of_the_whole_lists() -> None:
    rng = np.random.default_rng(0)
    shape, ks = (30, 50), [2, 7]
    scores, group = -np.sort(-rng.normal(size=shape)), rng.integers(-1, 2, shape)
    relevance = rng.integers(0, 4, shape).astype(np.float64)
    whole = list_sums(Lists(scores, np.ones(shape, np.bool_), relevance, group, 2), ks)
    exposure = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    places = Places(exposure, group, relevance, np.full(30, 50))
    head = Places(*(np.ascontiguousarray(one[:, :7]) for one in places[:3]), np.full(30, 7))
    for some in (places, head):
        found = place_sums(some, whole.size[..., 0], whole.ideal, ks)
        for name, values in whole._asdict().items():
            np.testing.assert_allclose(getattr(found, name), values, rtol=1e-12, err_msg=name)


def test_places_past_the_end_of_a_list_count_for_nothing() -> None:
    places = Places(
        np.array([[0.6, 0.4, 9.0]]),
        np.array([[0, 1, 0]]),
        np.array([[1.0, 0.0, 5.0]]),
        np.array([2]),
    )
    found = place_sums(places, np.array([[1, 1]]), np.array([[1.0]]), [3])
    assert found.exposure.tolist() == [[[0.6], [0.4]]]
    assert found.dcg.tolist() == [[1.0]]


def test_places_are_worth_what_they_are_said_to_be() -> None:
    scores, mask = np.array([[3.0, 2.0, 1.0, 0.0]]), np.ones((1, 4), np.bool_)
    lists = Lists(scores, mask, np.ones((1, 4)), np.array([[0, 1, 0, 1]], np.int16), 2)
    found = list_sums(lists, [2, 9], 10.0 ** -np.arange(4))
    np.testing.assert_allclose(found.discount[0], [[1, 1.01], [0.1, 0.101]])
    np.testing.assert_allclose(found.dcg[0], [1.1, 1.111])


def test_the_best_grades_are_found_among_many() -> None:
    grades = np.random.default_rng(0).integers(0, 50, (3, 400)).astype(np.float32) / 10
    mask = np.ones(grades.shape, np.bool_)
    group = np.full(grades.shape, -1, np.int16)
    found = list_sums(Lists(np.zeros_like(grades), mask, grades, group, 2), [5, 200, 999])
    for row, falling in enumerate(-np.sort(-grades.astype(np.float64))):
        gains = (2**falling - 1) / np.log2(2 + np.arange(400))
        expected = [gains[:k].sum() for k in (5, 200, 999)]
        assert found.ideal[row].tolist() == pytest.approx(expected)
