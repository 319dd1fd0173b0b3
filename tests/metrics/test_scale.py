import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairtopk.errors import InputError
from fairtopk.metrics import entropy, matched_temperature, score_spread

MASK = torch.tensor([[True, True, True, False], [True, False, True, True], [False] * 4])
SCORES = torch.tensor(
    [[1.0, 2.0, 6.0, torch.nan], [5.0, 99.0, 5.0, 5.0], [1.0] * 4], dtype=torch.float64
)


def test_the_spread_is_the_population_deviation_of_the_items_with_a_floor() -> None:
    found = score_spread(SCORES, mask=MASK)
    assert found[:2].tolist() == pytest.approx([math.sqrt(14 / 3), 1e-6])
    assert found[2].isnan()


def test_a_constant_added_to_the_scores_keeps_spread_and_entropy() -> None:
    for measure in (score_spread, entropy):
        found = measure(SCORES + 5000, mask=MASK)
        torch.testing.assert_close(found, measure(SCORES, mask=MASK), equal_nan=True)


def test_the_entropy_is_that_of_the_softmax() -> None:
    found = entropy(SCORES, mask=MASK)
    shares = [math.exp(score) for score in (1, 2, 6)]
    plain = -sum(s / sum(shares) * math.log(s / sum(shares)) for s in shares)
    assert found[:2].tolist() == pytest.approx([plain, math.log(3)])
    assert found[2].isnan()
    assert entropy(torch.tensor([[900.0, 0.0, -900.0]])).item() == 0


@given(
    temperature=st.floats(0.01, 100),
    scores=st.lists(st.floats(-3, 3), min_size=6, max_size=6, unique_by=lambda x: round(x, 1)),
)
@settings(max_examples=20)
def test_the_temperature_that_was_applied_is_found_again(
    temperature: float, scores: list[float]
) -> None:
    lists = torch.tensor(scores, dtype=torch.float64).view(2, 3)
    target = entropy(lists).mean().item()
    assert matched_temperature(lists * temperature, target=target) == pytest.approx(
        temperature, rel=1e-5
    )


def test_one_temperature_matches_the_mean_entropy_and_keeps_every_order() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(50, 20, generator=generator) * 3
    mask = torch.rand(50, 20, generator=generator) < 0.8
    found = matched_temperature(scores, target=2.0, mask=mask)
    assert entropy(scores / found, mask=mask).mean().item() == pytest.approx(2.0, abs=1e-5)


@pytest.mark.parametrize("target", [math.log(2) - 0.01, math.log(3) + 0.01])
def test_an_entropy_that_no_temperature_gives_is_refused(target: float) -> None:
    scores = torch.tensor([[1.0, 1.0, 0.0]])
    with pytest.raises(InputError, match=r"target must lie between 0\.693147 and 1\.09861"):
        matched_temperature(scores, target=target)
    with pytest.raises(InputError, match="target must lie between"):
        matched_temperature(torch.ones(2, 3), target=math.log(3))


@pytest.mark.parametrize("target", ["a", None, torch.ones(2)])
def test_a_target_that_is_no_number_is_refused(target: Any) -> None:
    with pytest.raises(InputError, match=r"^target must be a finite number, got "):
        matched_temperature(torch.tensor([[1.0, 0.0]]), target=target)


def test_lists_without_any_item_have_no_temperature() -> None:
    with pytest.raises(InputError, match="mask must leave an item in at least one list"):
        matched_temperature(torch.ones(2, 3), target=1.0, mask=torch.zeros(2, 3).bool())
