"""Means and ratios of columns that are resampled together."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from fairtopk.errors import InputError
from fairtopk.metrics import Mean, mean_with_interval, means_with_intervals
from fairtopk.metrics import intervals as resampling
from fairtopk.metrics.intervals import Resampled


def test_the_interval_is_close_to_that_of_the_normal_law() -> None:
    values = torch.randn(4_000, generator=torch.Generator().manual_seed(0)).double() + 5
    found = mean_with_interval(values)
    half = 1.96 * values.std().item() / math.sqrt(4_000)
    assert found.mean == pytest.approx(values.mean().item())
    assert found.ci95 == pytest.approx((found.mean - half, found.mean + half), abs=0.1 * half)
    assert found[2:] == (4_000, 0)


@pytest.mark.slow
def test_intervals_hold_the_true_mean_about_as_often_as_they_say() -> None:
    generator = np.random.default_rng(1)
    intervals = [
        mean_with_interval(generator.exponential(size=60), seed=seed).ci95
        for seed in range(100)
    ]
    hits = sum(low <= 1 <= high for low, high in intervals)
    assert 84 <= hits <= 99  # the percentile bootstrap of 60 skewed values: some 93 %


def test_undefined_queries_are_counted_and_left_out() -> None:
    values = np.array([1.0, np.nan, 3.0, np.nan, np.nan])
    found = mean_with_interval(values)
    assert (found.mean, found.n, found.undefined) == (2.0, 2, 3)
    assert found.ci95 == (1.0, 3.0)


def test_where_nothing_is_defined_the_mean_is_not_either() -> None:
    found = mean_with_interval(torch.tensor([torch.nan, torch.nan]))
    assert math.isnan(found.mean)
    assert all(math.isnan(bound) for bound in found.ci95)
    assert found[2:] == (0, 2)


def test_several_metrics_have_the_intervals_that_each_has_alone() -> None:
    one, other = torch.rand(50).double(), torch.rand(50).double()
    other[::7] = torch.nan
    together = means_with_intervals({"one": one, "other": other}, seed=3)
    for name, values in (("one", one), ("other", other)):
        alone = mean_with_interval(values, seed=3)
        assert together[name].mean == pytest.approx(alone.mean)
        assert together[name].ci95 == pytest.approx(alone.ci95)
        assert together[name][2:] == alone[2:]


def test_the_seed_decides_the_resamples() -> None:
    values = torch.arange(30.0)
    assert mean_with_interval(values, seed=1) == mean_with_interval(values, seed=1)
    assert mean_with_interval(values, seed=1).ci95 != mean_with_interval(values, seed=2).ci95


@pytest.mark.parametrize("shape", [(0,), (2, 3), ()])
def test_values_that_are_not_one_per_query_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="values must hold one value per query, and at least"):
        mean_with_interval(torch.ones(shape))


def test_a_mean_is_written_as_metrics_json_wants_it() -> None:
    found = Mean(0.5, (0.4, 0.6), 10, 1)._asdict()
    assert found == {"mean": 0.5, "ci95": (0.4, 0.6), "n": 10, "undefined": 1}


@pytest.mark.parametrize(
    ("metrics", "sentence"),
    [
        (
            {"a": [1.0, math.inf]},
            "a must be finite, or NaN where undefined, got inf for query 1",
        ),
        ({"a": [-math.inf]}, "a must be finite, or NaN where undefined, got -inf for query 0"),
        ({"a": None}, "a must be a tensor or array of numbers, got None"),
        ({"a": ["x"]}, "a must be a tensor or array of numbers, got 'x'"),
        ({"a": [1.0, 2.0], "b": [1.0]}, "b must have as many values as a, 2, got 1"),
        ({}, "metrics must map names of metrics to their values, got {}"),
        ([1.0], r"metrics must map names of metrics to their values, got \[1.0\]"),
    ],
)
def test_values_without_a_mean_are_refused_in_one_sentence(metrics: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{sentence}$"):
        means_with_intervals(metrics)


def test_a_seed_is_a_whole_number_from_0() -> None:
    with pytest.raises(InputError, match=r"^seed must be at least 0, got -1$"):
        mean_with_interval([1.0], seed=-1)
    with pytest.raises(InputError, match=r"^seed must be a whole number, got None$"):
        mean_with_interval([1.0], seed=None)


def test_values_with_a_graph_are_taken_without_it() -> None:
    assert mean_with_interval(torch.ones(3, requires_grad=True)).mean == 1


@pytest.fixture
def columns() -> dict[tuple[str, ...], np.ndarray]:
    rng = np.random.default_rng(0)
    values = {("group", str(n)): rng.random(40).astype(np.float32) for n in range(7)}
    values["group", "0"][:5] = np.nan
    return values


def test_columns_held_in_turn_are_resampled_as_all_at_once(
    columns: dict[tuple[str, ...], np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Resampled(columns, seed=3)
    monkeypatch.setattr(resampling, "COLUMNS_AT_ONCE", 3)
    parts = Resampled(columns, seed=3)
    np.testing.assert_allclose(parts.again, whole.again, rtol=1e-12)
    own, other = parts.mean(("group", "0")), whole.mean(("group", "0"))
    assert own.mean == pytest.approx(other.mean)
    assert own.ci95 == pytest.approx(other.ci95)
    assert own.undefined == 5


def test_a_ratio_of_least_to_most_is_at_most_1_and_one_to_another_is_not(
    columns: dict[tuple[str, ...], np.ndarray],
) -> None:
    found, keys = Resampled(columns, seed=0), list(columns)
    ratio = found.ratio(keys)
    assert found.ratios(keys).max() <= 1
    assert ratio.least is not None
    assert ratio.most is not None
    value, (low, high) = found.ratio_to(keys[ratio.least], keys[ratio.most])
    assert value == pytest.approx(ratio.value)
    assert low < value < high
    back, _ = found.ratio_to(keys[ratio.most], keys[ratio.least])
    assert back == pytest.approx(1 / value)


def test_columns_without_a_value_have_no_ratio() -> None:
    empty = np.full(3, np.nan, np.float32)
    found = Resampled({("a",): np.ones(3), ("b",): empty}, seed=0)
    assert np.isnan(found.ratio([("a",), ("b",)]).value)
    assert np.isnan(found.ratio([("b",)]).value)
    none = Resampled({("a",): np.zeros(3), ("b",): np.zeros(3)}, seed=0)
    assert np.isnan(none.ratio([("a",), ("b",)]).value)
