import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fairtopk import metrics
from fairtopk.errors import InputError
from fairtopk.metrics import impact_ratio, impact_ratios

BY_GROUP: dict[str, Callable[..., Tensor]] = {
    "exposure_gap": metrics.group_exposures,
    "exposure_gap_released": partial(metrics.group_exposures, variant="released"),
    "rank_exposure_gap": metrics.group_rank_exposures,
    "representation_gap": metrics.group_representations,
}
SLOT = st.tuples(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), st.integers(-1, 2), st.booleans())
TABLES = st.lists(st.lists(SLOT, min_size=6, max_size=6), min_size=1, max_size=5)


def columns(rows: list[list[tuple[float, int, bool]]]) -> tuple[Tensor, Tensor, Tensor]:
    score, group, mask = (
        torch.tensor([[slot[i] for slot in row] for row in rows]) for i in range(3)
    )
    return score.double(), group, mask


def plain_ratio(values: list[float]) -> float:
    present = [value for value in values if not math.isnan(value)]
    if len(present) < 2 or max(present) == 0:
        return math.nan
    return min(present) / max(present)


@pytest.mark.parametrize("metric", BY_GROUP)
@given(rows=TABLES, k=st.integers(1, 8))
def test_ratios_are_the_least_over_the_most_of_each_list_and_of_the_means(
    metric: str, rows: list[list[tuple[float, int, bool]]], k: int
) -> None:
    scores, groups, mask = columns(rows)
    by_group = BY_GROUP[metric](scores, groups, k=k, mask=mask)
    if (mask & (groups < 0)).any():
        by_group = by_group[:, :-1]  # the last column is of unknown group
    each = impact_ratios(scores, groups, k=k, mask=mask, metric=metric).tolist()
    assert each == pytest.approx([plain_ratio(row) for row in by_group.tolist()], nan_ok=True)
    whole = impact_ratio(scores, groups, k=k, mask=mask, metric=metric)
    means = by_group.nanmean(0).tolist()
    assert whole.by_group == pytest.approx(means, nan_ok=True)
    assert whole.value == pytest.approx(plain_ratio(means), nan_ok=True)
    assert whole.n == int((~by_group.isnan()).any(-1).sum())
    assert whole.n + whole.undefined == len(rows)
    for value in (*each, whole.value):
        assert math.isnan(value) or 0 <= value <= 1


def test_the_default_is_exposure_by_rank() -> None:
    scores, groups = torch.tensor([[5.0, 4.0, 3.0, 2.0]]), torch.tensor([[0, 1, 1, 0]])
    a, b = 1 + 1 / math.log2(5), 1 / math.log2(3) + 1 / 2
    assert impact_ratios(scores, groups, k=4).item() == pytest.approx(b / a)
    assert impact_ratio(scores, groups, k=4).value == pytest.approx(b / a)


def test_the_whole_set_may_be_even_where_every_list_is_not() -> None:
    scores, groups = torch.tensor([[2.0, 1.0]] * 2), torch.tensor([[0, 1], [1, 0]])
    assert impact_ratios(scores, groups, k=1).tolist() == [0, 0]
    assert impact_ratio(scores, groups, k=1).value == 1


def test_the_number_of_a_group_does_not_matter() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(50, 8, generator=generator).double()
    groups = torch.randint(0, 3, (50, 8), generator=generator)
    found = impact_ratio(scores, groups, k=3)
    turned = impact_ratio(scores, (groups + 1) % 3, k=3)
    assert turned.value == pytest.approx(found.value, rel=1e-12)
    assert turned.ci95 == pytest.approx(found.ci95, rel=1e-12)
    low, high = found.ci95
    assert low < found.value < high


@pytest.mark.parametrize("measure", [impact_ratio, impact_ratios])
def test_a_notion_that_is_none_is_refused(measure: Callable[..., object]) -> None:
    with pytest.raises(InputError, match=r"^metric must be one of .*, got 'rank'$"):
        measure(torch.ones(1, 2), torch.tensor([[0, 1]]), k=1, metric="rank")
