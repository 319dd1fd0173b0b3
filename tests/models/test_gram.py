"""X'X of histories, and inverses in place."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from fairtopk.errors import InputError
from fairtopk.lists.users import Ratings
from fairtopk.models import gram
from fairtopk.models.gram import gram_matrix, invert_in_place


@pytest.fixture(params=[512, 7])
def side(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Blocks larger than the matrix, and blocks that it is no multiple of."""
    monkeypatch.setattr(gram, "SIDE", request.param)
    monkeypatch.setattr(gram, "GRAM_ROWS", min(request.param, 5))
    return int(request.param)


@pytest.fixture
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def histories_of(table: np.ndarray) -> Ratings:
    user, item = np.nonzero(table)
    offsets = np.searchsorted(user, np.arange(len(table) + 1))
    return Ratings(offsets, item.astype(np.int32), table[user, item].astype(np.float32))


def random_table(seed: int = 0, *, users: int = 60, items: int = 40) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.random((users, items)) < 0.2) * rng.integers(1, 32, (users, items))


def test_the_matrix_is_that_of_the_dense_product(side: int) -> None:
    table = random_table()
    table[:, 3] = 0  # an item that nobody rated
    table[5] = 0  # a user without a history
    found = gram_matrix(histories_of(table), 40)
    assert found.dtype == torch.float32
    np.testing.assert_array_equal(found.numpy(), table.T @ table)


def test_the_inverse_is_that_of_float64_and_symmetric_to_the_bit(side: int) -> None:
    table = (random_table(1) > 0).astype(np.float64)
    exact = table.T @ table + 5.0 * np.eye(40)
    found = torch.from_numpy(exact).float()
    invert_in_place(found)
    np.testing.assert_allclose(found.numpy(), np.linalg.inv(exact), atol=1e-6)
    assert torch.equal(found, found.T)


@pytest.mark.usefixtures("_threads", "side")
def test_bits_do_not_depend_on_the_number_of_threads() -> None:
    found = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        matrix = gram_matrix(histories_of(random_table(2)), 40)
        matrix.diagonal().add_(9.0)
        invert_in_place(matrix)
        found.append(matrix)
    assert torch.equal(*found)


@pytest.mark.usefixtures("side")
def test_a_matrix_without_an_inverse_is_refused() -> None:
    singular = torch.ones(20, 20)
    with pytest.raises(
        InputError, match=r"not positive definite in float32; raise model\.ridge"
    ):
        invert_in_place(singular)
