import math
import re
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.errors import InputError
from fairtopk.metrics import awrf, group_attentions

Slot = tuple[float, int, bool]  # score, group, valid
SLOT = st.tuples(
    st.sampled_from([-2.0, 0.0, 0.5, 1.0]), st.integers(-1, 2), st.sampled_from([True, False])
)
some_lists = given(
    slots=st.lists(SLOT, min_size=1, max_size=10),
    k=st.integers(1, 12),
    p=st.sampled_from([0.05, 0.5, 0.9, 1.0]),
)


def plain(slots: list[Slot], k: int, p: float, groups: Iterable[int]) -> list[float]:
    """Each group's mean attention, by the definition, in plain Python."""
    labels = [group for _, group, there in sorted(slots, key=lambda slot: -slot[0]) if there]
    found = []
    for group in groups:
        mine = [p * (1 - p) ** i for i, label in enumerate(labels[:k]) if label == group]
        found.append(sum(mine) / labels.count(group) if group in labels else math.nan)
    return found


def measured(slots: list[Slot], k: int, p: float) -> tuple[list[float], float]:
    score, group, mask = (torch.tensor([column]) for column in zip(*slots, strict=True))
    by_group = group_attentions(score.double(), group, k=k, p=p, mask=mask)[0].tolist()
    return by_group, awrf(score.double(), group, k=k, p=p, mask=mask).item()


def test_the_ranking_of_fairranktune_has_the_attention_worked_out_for_it() -> None:
    scores, groups = torch.arange(5.0).flip(0)[None], torch.tensor([[1, 0, 1, 0, 1]])
    assert group_attentions(scores, groups, k=5).tolist() == [[0.15625, 0.21875]]
    assert awrf(scores, groups, k=5).tolist() == [0.0625]


@some_lists
def test_attention_is_the_plain_loop_and_within_its_bounds(
    slots: list[Slot], k: int, p: float
) -> None:
    by_group, gap = measured(slots, k, p)
    if any(group < 0 and there for _, group, there in slots):
        assert by_group.pop() == pytest.approx(*plain(slots, k, p, [-1]), abs=1e-12)
    expected = plain(slots, k, p, range(len(by_group)))
    assert by_group == pytest.approx(expected, abs=1e-12, nan_ok=True)
    present = [value for value in expected if not math.isnan(value)]
    largest = max(present) - min(present) if len(present) > 1 else math.nan
    assert gap == pytest.approx(largest, abs=1e-12, nan_ok=True)
    assert math.isnan(gap) or 0 <= gap <= p


@some_lists
def test_shifted_scores_padding_and_numbers_of_groups_change_nothing(
    slots: list[Slot], k: int, p: float
) -> None:
    expected = pytest.approx(measured(slots, k, p)[1], abs=1e-12, nan_ok=True)
    shifted = [(score + 5000, group, there) for score, group, there in slots]
    swapped = [(score, 2 - group if group >= 0 else -1, there) for score, group, there in slots]
    for changed in (shifted, swapped, [(9.0, 1, False), *slots, (-9.0, 0, False)]):
        assert measured(changed, k, p)[1] == expected


def test_with_all_attention_on_the_first_place_only_its_group_gets_any() -> None:
    scores, groups = torch.tensor([[1.0, 1.0, 0.0]]), torch.tensor([[1, 0, 0]])
    assert group_attentions(scores, groups, k=3, p=1).tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("p", [0, 1.5, math.nan, "0.5", None])
def test_a_share_of_attention_that_is_none_is_refused(p: Any) -> None:
    sentence = f"p must be a number above 0 and at most 1, got {p!r}"
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        awrf(torch.ones(1, 2), torch.tensor([[0, 1]]), k=1, p=p)
