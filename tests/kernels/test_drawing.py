import numpy as np
import pytest

from fairtopk.kernels.random import alias_table, normals


@pytest.mark.parametrize(
    "weight", [[1.0], [1.0, 1.0, 1.0], [1e-9, 1.0, 3.0, 0.5], [5.0, 0.0, 0.1], range(1, 200)]
)
def test_the_alias_table_gives_each_row_the_share_of_its_weight(weight: list[float]) -> None:
    weights = np.array(weight, np.float64)

    keep, alias = alias_table(weights)

    own = np.minimum(keep, 1.0)
    share = own + np.bincount(alias, 1.0 - own, minlength=len(weights))
    np.testing.assert_allclose(share / len(weights), weights / weights.sum(), atol=1e-12)


def test_normals_have_the_moments_and_tails_of_a_normal_distribution() -> None:
    values = normals(0, 1, 200_000)

    assert abs(values.mean()) < 4 / np.sqrt(len(values))
    assert abs(values.var() - 1.0) < 4 * np.sqrt(2 / len(values))
    assert np.mean(values > 1.959964) == pytest.approx(0.025, abs=0.0015)
    assert np.mean(np.abs(values) < 0.67449) == pytest.approx(0.5, abs=0.005)


def test_a_normal_depends_on_its_own_key_alone() -> None:
    values = normals(3, 1, 50)

    np.testing.assert_array_equal(normals(3, 1, 20), values[:20])
    assert not np.isin(normals(3, 2, 50), values).any()
    assert not np.isin(normals(4, 1, 50), values).any()
