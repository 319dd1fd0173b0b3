import math

import pytest
import torch
from torch import Tensor

from fairtopk.objectives.averages import FIRST_SIZE, PairAverage


def visit(table: PairAverage, query: Tensor, item: Tensor, fresh: Tensor) -> Tensor:
    everywhere = torch.ones_like(item, dtype=torch.bool)
    rows = table.rows(query[:, None].expand_as(item).flatten(), item.flatten())
    return table.update(rows.view_as(item), fresh, where=everywhere)


def test_averages_are_those_of_a_dict_as_the_table_grows() -> None:
    """Pairs come back, among others that make the table move several times."""
    generator = torch.Generator().manual_seed(0)
    table, plain = PairAverage(gamma=0.3).double(), dict[tuple[int, int], float]()
    for _ in range(30):
        query = torch.randperm(50, generator=generator)[:20] + 2**30 - 50
        item = torch.stack([torch.randperm(100, generator=generator)[:15] for _ in query])
        item += 2**33 - 100
        fresh = torch.rand(item.shape, dtype=torch.float64, generator=generator)
        found = visit(table, query, item, fresh)
        for row, column in torch.cartesian_prod(torch.arange(20), torch.arange(15)).tolist():
            pair = (int(query[row]), int(item[row, column]))
            value = float(fresh[row, column])
            plain[pair] = 0.7 * plain[pair] + 0.3 * value if pair in plain else value
            assert math.isclose(plain[pair], found[row, column], rel_tol=1e-12)
    assert table.n_taken == len(plain) > 2 * FIRST_SIZE
    assert 2 * len(plain) <= len(table.value) == len(table.key) <= 4 * len(plain)


def test_an_item_of_no_number_gets_no_row() -> None:
    table = PairAverage(gamma=0.3)
    rows = table.rows(torch.tensor([3, 3, 4, 4]), torch.tensor([5, -1, 5, -1]))
    assert (rows >= 0).tolist() == [True, False, True, False]
    assert rows[0] != rows[2]
    assert table.n_taken == 2


def test_a_pair_seen_first_under_eval_or_no_grad_gets_no_row() -> None:
    table = PairAverage(gamma=0.3)
    visit(table, torch.tensor([1]), torch.tensor([[2, 3]]), torch.ones(1, 2))
    before = {name: value.clone() for name, value in table.state_dict().items()}
    query, item = torch.tensor([1, 1]), torch.tensor([3, 9])
    with torch.no_grad():
        rows = table.rows(query, item)
    table.eval()
    assert rows.equal(table.rows(query, item))
    assert rows[0] >= 0
    assert rows[1] == -1
    for name, value in table.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("start", [math.nan, 0.0])
def test_a_grown_table_is_loaded_whole_and_goes_on(start: float) -> None:
    table, other = (PairAverage(gamma=0.3, start=start) for _ in range(2))
    item = torch.arange(3 * FIRST_SIZE)[None]
    visit(table, torch.tensor([0]), item, torch.rand(item.shape))
    other.load_state_dict(table.state_dict())
    assert other.n_taken == 3 * FIRST_SIZE
    more, fresh = (
        torch.arange(FIRST_SIZE, 8 * FIRST_SIZE)[None],
        torch.rand(7 * FIRST_SIZE)[None],
    )
    found = [visit(one, torch.tensor([0]), more, fresh) for one in (table, other)]
    assert torch.equal(*found)
    assert table.key.equal(other.key)


def test_the_table_follows_to() -> None:
    table = PairAverage(gamma=0.3).double()
    visit(table, torch.tensor([0]), torch.arange(FIRST_SIZE)[None], torch.rand(1, FIRST_SIZE))
    assert table.value.dtype == torch.float64
    assert table.key.dtype == torch.int64
