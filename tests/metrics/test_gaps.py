import itertools
import math
from collections.abc import Callable, Iterable
from functools import partial

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from fairtopk import metrics
from fairtopk.metrics import ndcg

Slot = tuple[float, int, bool]  # score, group, valid
GAPS: dict[str, Callable[..., Tensor]] = {
    "paper": metrics.exposure_gap,
    "released": partial(metrics.exposure_gap, variant="released"),
    "rank": metrics.rank_exposure_gap,
    "representation": metrics.representation_gap,
}
BY_GROUP: dict[str, Callable[..., Tensor]] = {
    "paper": metrics.group_exposures,
    "released": partial(metrics.group_exposures, variant="released"),
    "rank": metrics.group_rank_exposures,
    "representation": metrics.group_representations,
}
every_gap = pytest.mark.parametrize("name", GAPS)
fewer = settings(max_examples=15)


@st.composite
def lists(draw: st.DrawFn, *, most_groups: int = 4) -> list[Slot]:
    n_groups = draw(st.integers(2, most_groups))
    score = st.sampled_from([-2.0, 0.0, 0.25, 0.5, 1.0, 3.0])
    slot = st.tuples(score, st.integers(-1, n_groups - 1), st.sampled_from([True, True, False]))
    return draw(st.lists(slot, min_size=1, max_size=12))


def plain_exposures(slots: list[Slot], k: int, name: str, groups: Iterable[int]) -> list[float]:
    """What each group gets, by the definitions, in plain Python."""
    items = sorted((slot for slot in slots if slot[2]), key=lambda item: -item[0])
    top = items[:k]
    found = []
    for group in groups:
        size = sum(label == group for _, label, _ in items)
        if size == 0:
            found.append(math.nan)
            continue
        inside = [i for i, (_, label, _) in enumerate(top) if label == group]
        if name == "paper":
            norm = sum(math.exp(score) for score, _, _ in items)
            value = sum(math.exp(top[i][0]) / norm for i in inside) / size
        elif name == "released":
            norm = sum(math.exp(score) for score, _, _ in top)
            value = sum(math.exp(top[i][0]) / norm for i in inside) / max(len(inside), 1)
        elif name == "rank":
            value = sum(1 / math.log2(2 + i) for i in inside) / size
        else:
            value = len(inside) / size
        found.append(value)
    return found


def plain_gap(values: list[float]) -> float:
    present = [value for value in values if not math.isnan(value)]
    if len(present) < 2:
        return math.nan
    return max(abs(one - other) for one in present for other in present)


def plain_signed(slots: list[Slot], k: int, name: str) -> float:
    merged = [(score, min(group, 1), valid) for score, group, valid in slots]
    named, rest = plain_exposures(merged, k, name, range(2))
    return named - rest


def measure(function: Callable[..., Tensor], slots: list[Slot], **options: object) -> Tensor:
    score, group, mask = (torch.tensor([column]) for column in zip(*slots, strict=True))
    return function(score.double(), group, mask=mask, **options)[0]


def number(name: str, slots: list[Slot], k: int, *, signed: bool = False) -> float:
    return measure(GAPS[name], slots, k=k, signed=signed).item()


SCORES = torch.tensor([[2, 1, 0.5, 0, -1]], dtype=torch.float64)
GROUPS = torch.tensor([[1, 0, 1, 0, 1]])


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("paper", [0.18767374, 0.08411178, 0.12598745, 0.09723285]),
        ("released", [1.0, 0.46211716, 0.15316415, 0.09723285]),
    ],
)
def test_the_worked_list_has_the_gaps_worked_out_for_it(name: str, values: list[float]) -> None:
    found = [GAPS[name](SCORES, GROUPS, k=k).item() for k in (1, 2, 3, 5)]
    assert found == pytest.approx(values, abs=5e-9)


def test_the_whole_list_has_the_signed_gap_worked_out_for_it() -> None:
    found = metrics.exposure_gap(SCORES, GROUPS, k=5, signed=True).item()
    assert found == pytest.approx(-0.09723285499728457, abs=1e-15)


def test_rank_exposure_agrees_with_the_means_of_fairranktune() -> None:
    found = metrics.group_rank_exposures(
        torch.arange(5.0).flip(0)[None].double(), torch.tensor([[1, 0, 1, 0, 1]]), k=5
    )
    assert found[0].tolist() == pytest.approx([0.5308031558, 0.6289509357], abs=1e-10)


@every_gap
@given(slots=lists(), k=st.integers(1, 14))
def test_gaps_and_group_values_are_the_plain_loops(
    name: str, slots: list[Slot], k: int
) -> None:
    by_group = measure(BY_GROUP[name], slots, k=k).tolist()
    if any(group < 0 and valid for _, group, valid in slots):
        unknown = plain_exposures(slots, k, name, [-1])
        assert by_group[-1:] == pytest.approx(unknown, abs=1e-12)
        del by_group[-1]
    plain = plain_exposures(slots, k, name, range(len(by_group)))
    assert by_group == pytest.approx(plain, abs=1e-12, nan_ok=True)
    assert number(name, slots, k) == pytest.approx(plain_gap(plain), abs=1e-12, nan_ok=True)
    signed = number(name, slots, k, signed=True)
    assert signed == pytest.approx(plain_signed(slots, k, name), abs=1e-12, nan_ok=True)


@every_gap
@given(slots=lists(), k=st.integers(1, 14), shift=st.sampled_from([-5000.0, 0.25, 5000.0]))
@fewer
def test_a_constant_added_to_the_scores_changes_nothing(
    name: str, slots: list[Slot], k: int, shift: float
) -> None:
    shifted = [(score + shift, group, valid) for score, group, valid in slots]
    assert number(name, shifted, k) == pytest.approx(number(name, slots, k), nan_ok=True)


@every_gap
@given(slots=lists(), k=st.integers(1, 14), random=st.randoms(use_true_random=False))
@fewer
def test_reordering_items_without_ties_changes_nothing(
    name: str, slots: list[Slot], k: int, random: object
) -> None:
    apart = [(score + i * 1e-3, group, valid) for i, (score, group, valid) in enumerate(slots)]
    mixed = apart.copy()
    random.shuffle(mixed)  # type: ignore[attr-defined]
    expected = number(name, apart, k)
    assert number(name, mixed, k) == pytest.approx(expected, abs=1e-12, nan_ok=True)


@every_gap
@given(slots=lists(most_groups=2), k=st.integers(1, 14))
@fewer
def test_swapping_two_groups_flips_the_sign_and_keeps_the_gap(
    name: str, slots: list[Slot], k: int
) -> None:
    swapped = [(score, 1 - group if group >= 0 else -1, valid) for score, group, valid in slots]
    gap, signed = number(name, slots, k), number(name, slots, k, signed=True)
    assert number(name, swapped, k) == pytest.approx(gap, abs=0, nan_ok=True)
    assert number(name, swapped, k, signed=True) == pytest.approx(-signed, abs=0, nan_ok=True)
    assert abs(signed) == pytest.approx(gap, abs=1e-15, nan_ok=True)


@every_gap
@given(slots=lists(), k=st.integers(1, 14))
@fewer
def test_padding_anywhere_changes_nothing(name: str, slots: list[Slot], k: int) -> None:
    items = [slot for slot in slots if slot[2]]
    assume(items)
    expected = number(name, items, k)
    assert number(name, slots, k) == pytest.approx(expected, abs=1e-12, nan_ok=True)
    assert number(name, [(99.0, 0, False), *items, (-99.0, 3, False)], k) == pytest.approx(
        expected, abs=1e-12, nan_ok=True
    )


@every_gap
@given(slots=lists())
@fewer
def test_k_from_the_length_of_the_list_on_is_the_whole_list(
    name: str, slots: list[Slot]
) -> None:
    whole = number(name, slots, len(slots))
    assert number(name, slots, 1_000) == pytest.approx(whole, abs=0, nan_ok=True)
    if name == "representation" and not math.isnan(whole):
        assert whole == 0
    if name == "released":
        assert whole == pytest.approx(number("paper", slots, 1_000), abs=1e-12, nan_ok=True)


@given(slots=lists(), k=st.integers(1, 14))
@fewer
def test_gaps_stay_within_their_bounds(slots: list[Slot], k: int) -> None:
    for name in GAPS:
        found = number(name, slots, k)
        assert math.isnan(found) or 0 <= found <= 1 + 1e-12
    sizes = [sum(valid and group == g for _, group, valid in slots) for g in range(4)]
    found = number("paper", slots, k)
    assert math.isnan(found) or found <= max(1 / size for size in sizes if size) + 1e-12


def test_equal_scores_leave_no_gap_in_the_whole_list_and_position_decides_the_top() -> None:
    scores, groups = torch.zeros(1, 4).double(), torch.tensor([[0, 1, 1, 0]])
    for name in ("paper", "released", "representation"):
        assert GAPS[name](scores, groups, k=4).item() == 0
    assert metrics.exposure_gap(scores, groups, k=1, signed=True).item() == 1 / 4 / 2
    assert metrics.representation_gap(scores, groups, k=1, signed=True).item() == 1 / 2


@every_gap
def test_a_list_with_fewer_than_two_groups_is_undefined(name: str) -> None:
    scores = torch.tensor([[3.0, 2.0, 1.0]]).expand(4, 3)
    groups = torch.tensor([[0, 0, -1], [-1, -1, -1], [1, 2, -1], [0, 2, 2]])
    gap, signed = (GAPS[name](scores, groups, k=2, signed=flag) for flag in (False, True))
    assert gap.isnan().tolist() == [True, True, False, False]
    assert signed.isnan().tolist() == [True, True, True, False]


def test_a_group_outside_the_top_gets_nothing_but_is_not_undefined() -> None:
    found = metrics.group_exposures(SCORES, GROUPS, k=1, variant="released")
    assert found.tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("name", BY_GROUP)
def test_items_of_unknown_group_have_a_column_of_their_own_that_no_gap_counts(
    name: str,
) -> None:
    scores = torch.tensor([[4.0, 3.0, 2.0, 1.0], [4.0, 3.0, 2.0, 1.0]]).double()
    groups = torch.tensor([[-1, 0, 1, 2], [0, 1, 2, -1]])
    mask = torch.tensor([[True] * 4, [True, True, True, False]])
    found = BY_GROUP[name](scores, groups, k=2, mask=mask)
    assert found.shape == (2, 4)
    known = found[:, :3]
    gaps = GAPS[name](scores, groups, k=2, mask=mask)
    assert gaps.tolist() == pytest.approx((known.amax(-1) - known.amin(-1)).tolist())
    as_group = BY_GROUP[name](scores, groups.where(groups >= 0, 3), k=2, mask=mask)
    torch.testing.assert_close(found, as_group, equal_nan=True)
    assert found[1, 3].isnan()  # padding is no item
    assert BY_GROUP[name](scores[1:], groups[1:], k=2, mask=mask[1:]).shape == (1, 3)


def test_flatter_scores_shrink_the_softmax_gap_and_leave_the_others() -> None:
    flat = SCORES / 10
    assert metrics.exposure_gap(flat, GROUPS, k=2) < metrics.exposure_gap(SCORES, GROUPS, k=2)
    for name in ("rank", "representation"):
        assert torch.equal(GAPS[name](flat, GROUPS, k=2), GAPS[name](SCORES, GROUPS, k=2))


def test_large_scores_overflow_nothing() -> None:
    scores = torch.tensor([[1e4, 1e4 - 1, -1e4]])
    found = metrics.exposure_gap(scores, torch.tensor([[0, 1, 1]]), k=2).item()
    assert found == pytest.approx(1 / (1 + math.exp(-1)) - 1 / (1 + math.e) / 2, rel=1e-6)


GradedSlot = tuple[float, float, bool]  # score, grade, valid
SLOTS = st.lists(
    st.tuples(
        st.sampled_from([-1.0, 0.0, 0.5, 1.0, 7.0]),
        st.sampled_from([0.0, 0.0, 1.0, 2.5, 5.0]),
        st.booleans(),
    ),
    min_size=1,
    max_size=10,
)


def plain_ndcg(slots: list[GradedSlot], k: int) -> float:
    """The definition for one list, in plain Python."""
    items = [slot for slot in slots if slot[2]]
    by_score = sorted(items, key=lambda item: -item[0])
    by_grade = sorted(items, key=lambda item: -item[1])
    dcg, ideal = (
        sum((2**grade - 1) / math.log2(2 + i) for i, (_, grade, _) in enumerate(one[:k]))
        for one in (by_score, by_grade)
    )
    return dcg / ideal if ideal else math.nan


def measured(slots: list[GradedSlot], k: int) -> float:
    score, grade, mask = (torch.tensor([column]) for column in zip(*slots, strict=True))
    return ndcg(score.double(), grade, k=k, mask=mask).item()


def test_the_worked_list_has_the_ndcg_worked_out_for_it() -> None:
    scores = torch.tensor([[2, 1, 0.5, 0, -1]], dtype=torch.float64)
    relevance = torch.tensor([[0, 2, 1, 0, 3]])
    assert ndcg(scores, relevance, k=5).item() == pytest.approx(0.5430505007378631, abs=1e-15)


@given(slots=SLOTS, k=st.integers(1, 12))
def test_ndcg_is_the_plain_loop(slots: list[GradedSlot], k: int) -> None:
    found = measured(slots, k)
    assert found == pytest.approx(plain_ndcg(slots, k), abs=1e-12, nan_ok=True)
    assert math.isnan(found) or 0 <= found <= 1 + 1e-12


@given(slots=SLOTS, k=st.integers(1, 12), shift=st.sampled_from([-5000.0, 0.25, 5000.0]))
def test_a_constant_added_to_the_scores_leaves_ndcg_alone(
    slots: list[GradedSlot], k: int, shift: float
) -> None:
    shifted = [(score + shift, grade, valid) for score, grade, valid in slots]
    assert measured(shifted, k) == pytest.approx(measured(slots, k), abs=0, nan_ok=True)


def test_the_ideal_is_the_best_of_all_orders_at_k() -> None:
    relevance = torch.tensor([1.0, 0.0, 3.0, 2.0])
    orders = torch.tensor(list(itertools.permutations(range(4)))).double()
    for k in (1, 2, 3, 4):
        assert ndcg(orders, relevance.expand_as(orders), k=k).max().item() == pytest.approx(1)


def test_a_list_without_relevant_items_is_undefined() -> None:
    scores = torch.tensor([[1.0, 2.0], [1.0, 2.0]])
    found = ndcg(scores, torch.tensor([[0, 0], [3, 0]]), k=1)
    assert found.isnan().tolist() == [True, False]
    assert found[1] == 0
    padded = ndcg(
        scores, torch.tensor([[3, 0], [3, 0]]), k=1, mask=torch.tensor([[False, True]] * 2)
    )
    assert padded.isnan().all()
