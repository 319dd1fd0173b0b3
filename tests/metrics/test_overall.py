import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fairtopk import metrics
from fairtopk.errors import InputError
from fairtopk.metrics import Overall, impact_ratio, impact_ratios, parities, reo, rsp
from fairtopk.metrics.gaps import checked_lists
from fairtopk.metrics.intervals import parities_of_counts, parity_counts

Slot = tuple[float, int, bool, int]  # score, group, valid, grade
SLOT = st.tuples(
    st.sampled_from([-1.0, 0.0, 0.5, 2.0]),
    st.integers(-1, 3),
    st.booleans(),
    st.sampled_from([0, 0, 1, 4]),
)
TABLES = st.lists(st.lists(SLOT, min_size=6, max_size=6), min_size=1, max_size=5)


def plain(rows: list[list[Slot]], k: int, *, relevant: bool) -> tuple[list[float], float]:
    """Chances of four groups and their spread, by the definitions, in plain Python."""
    inside, size = [0] * 4, [0] * 4
    for row in rows:
        items = [slot for slot in sorted(row, key=lambda slot: -slot[0]) if slot[2]]
        for rank, (_, group, _, grade) in enumerate(items):
            if group >= 0 and (grade > 0 or not relevant):
                size[group] += 1
                inside[group] += rank < k
    present = [Fraction(a, b) for a, b in zip(inside, size, strict=True) if b]
    chances = [a / b if b else math.nan for a, b in zip(inside, size, strict=True)]
    if len(present) < 2 or sum(present) == 0:
        return chances, math.nan
    mean = sum(present) / len(present)
    variance = sum((one - mean) ** 2 for one in present) / len(present)
    return chances, math.sqrt(variance) / mean


def measured(rows: list[list[Slot]], k: int) -> tuple[Overall, Overall]:
    score, group, mask, grade = (
        torch.tensor([[slot[i] for slot in row] for row in rows]) for i in range(4)
    )
    score = score.double()
    return rsp(score, group, k=k, mask=mask), reo(score, grade, group, k=k, mask=mask)


def some_lists(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(200, 12, generator=generator).double()
    groups = torch.randint(-1, 3, (200, 12), generator=generator)
    return scores, (torch.rand(200, 12, generator=generator) < 0.3).int(), groups


def test_a_matrix_made_by_hand_has_the_values_worked_out_for_it() -> None:
    scores = torch.tensor([[4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0]])
    groups = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1]])
    grades = torch.tensor([[1, 0, 1, 0], [2, 0, 0, 1]])
    parity, opportunity = rsp(scores, groups, k=2), reo(scores, grades, groups, k=2)
    # In the top 2: two of three of group 0, two of five of group 1.
    assert parity.by_group == pytest.approx((2 / 3, 2 / 5))
    assert parity.value == pytest.approx((2 / 3 - 2 / 5) / (2 / 3 + 2 / 5))
    # Relevant: slots 0 and 4 of group 0, the first in the top; 2 and 7 of group 1, the last.
    assert opportunity.by_group == (0.5, 0.5)
    assert opportunity.value == 0


@given(rows=TABLES, k=st.integers(1, 8))
def test_parity_and_opportunity_are_the_plain_loops(rows: list[list[Slot]], k: int) -> None:
    for found, relevant in zip(measured(rows, k), (False, True), strict=True):
        chances, value = plain(rows, k, relevant=relevant)
        known = len(found.by_group)
        assert found.by_group == pytest.approx(chances[:known], nan_ok=True)
        assert all(map(math.isnan, chances[known:]))
        assert found.value == pytest.approx(value, abs=1e-12, nan_ok=True)
        assert math.isnan(found.value) or 0 <= found.value <= math.sqrt(3) + 1e-12
        assert found.n + found.undefined == len(rows)


@given(rows=TABLES, k=st.integers(1, 8))
@settings(max_examples=20)
def test_shifts_padding_and_numbers_of_groups_change_nothing(
    rows: list[list[Slot]], k: int
) -> None:
    shifted = [[(score + 64, *others) for score, *others in row] for row in rows]
    padded = [[(9.0, 0, False, 3), *row] for row in rows]
    turned = [[(s, 3 - g if g >= 0 else -1, *more) for s, g, *more in row] for row in rows]
    expected = [found.value for found in measured(rows, k)]
    for changed in (shifted, padded, turned):
        values = [found.value for found in measured(changed, k)]
        assert values == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_several_k_at_once_give_what_each_gives_alone() -> None:
    scores, grades, groups = some_lists()
    found = parities(scores, grades, groups, ks=[7, 2], seed=5)
    assert list(found) == ["rsp@2", "rsp@7", "reo@2", "reo@7"]
    for k in (2, 7):
        assert found[f"rsp@{k}"] == rsp(scores, groups, k=k, seed=5)
        assert found[f"reo@{k}"] == reo(scores, grades, groups, k=k, seed=5)


def test_items_may_be_in_several_groups() -> None:
    """Group 1 is in both of two others, 0 in the first, 2 in the second."""
    scores, grades, groups = some_lists()
    member = torch.tensor([[1, 0], [1, 1], [0, 1]])
    counts = parity_counts(checked_lists(scores, groups, None, relevance=grades), [4, 12])
    found = parities_of_counts(counts, [4, 12], seed=5, member=member)
    assert {name: found[name] for name in ("rsp@4", "reo@12")} == {
        "rsp@4": rsp(scores, groups, k=4, seed=5),
        "reo@12": reo(scores, grades, groups, k=12, seed=5),
    }
    top = scores >= scores.topk(4).values[:, -1:]
    for name, counts in (("rsp", groups >= 0), ("reo", (groups >= 0) & (grades > 0))):
        chances = []
        for several in ((0, 1), (1, 2)):
            inside = counts & torch.isin(groups, torch.tensor(several))
            chances.append(int((inside & top).sum()) / int(inside.sum()))
        whole = found[f"{name}_split@4"]
        assert whole.by_group == pytest.approx(chances, rel=1e-6)
        assert whole.value == pytest.approx(np.std(chances) / np.mean(chances), rel=1e-6)
        low, high = whole.ci95
        assert low < whole.value < high
        assert found[f"{name}_split@12"].value == 0


def test_the_whole_list_gives_all_groups_the_same_chance() -> None:
    scores, grades, groups = some_lists()
    for found in (rsp(scores, groups, k=12), reo(scores, grades, groups, k=99)):
        assert found.by_group == (1, 1, 1)
        assert found[:2] == (0, (0, 0))


def test_a_group_without_a_relevant_item_is_left_out_and_the_last_but_one_decides() -> None:
    scores, groups = torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0, 1, 2]])
    found = reo(scores, torch.tensor([[1, 0, 1]]), groups, k=1)
    assert found.by_group == pytest.approx((1, math.nan, 0), nan_ok=True)
    assert found.value == 1
    alone = reo(scores, torch.tensor([[1, 0, 0]]), groups, k=1)
    assert math.isnan(alone.value)
    assert all(map(math.isnan, alone.ci95))
    nowhere = reo(scores, torch.tensor([[0, 1, 1]]), groups, k=1)
    assert math.isnan(nowhere.value)  # no relevant item is in a top


def test_the_interval_is_that_of_resampled_lists() -> None:
    scores, grades, groups = some_lists()
    found = reo(scores, grades, groups, k=4)
    rng = np.random.default_rng(1)
    plain_values = []
    for _ in range(400):
        rows = torch.from_numpy(rng.integers(200, size=200))
        top = scores[rows].argsort(descending=True, stable=True)[:, :4]
        hit = torch.zeros(200, 12, dtype=torch.bool).scatter_(1, top, True)
        good = grades[rows] > 0
        chances = [
            ((groups[rows] == g) & good & hit).sum() / ((groups[rows] == g) & good).sum()
            for g in range(3)
        ]
        values = torch.stack(chances)
        plain_values.append(float(values.std(correction=0) / values.mean()))
    low, high = np.quantile(plain_values, [0.025, 0.975])
    width = high - low
    assert found.ci95 == pytest.approx((low, high), abs=0.15 * width)


def test_the_seed_decides_the_resamples_and_lists_without_items_are_counted() -> None:
    scores, _, groups = some_lists()
    groups[:5] = -1
    first, again, other = (rsp(scores, groups, k=3, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.ci95 != other.ci95
    assert (first.n, first.undefined) == (195, 5)


BY_GROUP: dict[str, Callable[..., Tensor]] = {
    "exposure_gap": metrics.group_exposures,
    "exposure_gap_released": partial(metrics.group_exposures, variant="released"),
    "rank_exposure_gap": metrics.group_rank_exposures,
    "representation_gap": metrics.group_representations,
}
IMPACT_SLOT = st.tuples(
    st.sampled_from([-1.0, 0.0, 0.5, 2.0]), st.integers(-1, 2), st.booleans()
)


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
