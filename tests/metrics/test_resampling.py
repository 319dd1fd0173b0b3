"""Means and ratios of columns that are resampled together."""

import numpy as np
import pytest

from fairtopk.metrics import intervals as resampling
from fairtopk.metrics.intervals import Resampled


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
