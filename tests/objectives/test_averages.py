import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.objectives.averages import MovingAverage
from fairtopk.objectives.methods import METHODS, PRESETS, ObjectiveSettings, methods_of
from fairtopk.objectives.objective import Objective

EVERYWHERE = torch.ones(1, dtype=torch.bool)
LogMovingAverage = partial(MovingAverage, of_logs=True)
KINDS = [MovingAverage, LogMovingAverage]


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@given(
    st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=12),
    st.sampled_from([0.2, 0.9, 1.0]),
    st.sampled_from([math.nan, 0.0, 1.0]),
)
def test_an_average_is_the_plain_recursion_from_its_start_or_first_value(
    values: list[float], gamma: float, start: float
) -> None:
    log_start = math.log(start) if start > 0 else (-math.inf if start == 0 else start)
    plain = MovingAverage(1, gamma=gamma, start=start).double()
    logs = LogMovingAverage(1, gamma=gamma, start=log_start).double()
    expected = start
    row = torch.tensor([0])
    for value in values:
        expected = value if math.isnan(expected) else (1 - gamma) * expected + gamma * value
        found = plain.update(row, tensor(value), where=EVERYWHERE)
        assert float(found) == pytest.approx(expected, rel=1e-12)
        found = logs.update(row, tensor(value).log(), where=EVERYWHERE)
        assert float(found.exp()) == pytest.approx(expected, rel=1e-12)
    if gamma == 1:
        assert len(plain.value) == len(logs.value) == 0  # nothing to remember
    else:
        assert float(plain.value) == pytest.approx(expected, rel=1e-12)
        assert float(logs.value.exp()) == pytest.approx(expected, rel=1e-12)


def test_logarithms_outlast_what_exp_cannot_hold() -> None:
    average = LogMovingAverage(1, gamma=0.5).double()
    for value in (5_000.0, 5_001.0):
        found = average.update(torch.tensor([0]), tensor(value), where=EVERYWHERE)
    assert float(found) == pytest.approx(5_000 + math.log((1 + math.e) / 2), rel=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_apart_and_those_not_named_stay(kind: Callable[..., MovingAverage]) -> None:
    average = kind(4, gamma=0.5).double()
    where = torch.tensor([True, True])
    average.update(torch.tensor([2, 0]), tensor(1, 2), where=where)
    assert average.value[[2, 0]].tolist() == [1, 2]
    assert average.value[[1, 3]].isnan().all()
    average.update(torch.tensor([3, 1]), tensor(5, 6), where=where)
    assert average.value.tolist() == [2, 6, 1, 5]


@pytest.mark.parametrize("kind", KINDS)
def test_elsewhere_the_fresh_value_comes_back_and_nothing_is_kept(
    kind: Callable[..., MovingAverage],
) -> None:
    """Also in a row that has an average, and where there is no row."""
    average = kind(3, gamma=0.5).double()
    rows, where = torch.tensor([[0, 1]]), torch.tensor([[True, True]])
    average.update(rows, tensor(1, 2)[None], where=where)
    before = average.value.clone()
    for rows in (torch.tensor([[0, 1]]), torch.tensor([[-1, -1]])):
        found = average.update(rows, tensor(7, 8)[None], where=~where)
        assert found.tolist() == [[7, 8]]
        torch.testing.assert_close(average.value, before, equal_nan=True)
    found = average.update(
        torch.tensor([[-1, 1]]),
        tensor(7, 2)[None],
        where=where & rows.new_tensor([[0, 1]]).bool(),
    )
    assert found.tolist() == [[7, 2]]
    assert average.value[0] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_under_eval_and_no_grad_averages_are_read_but_not_moved(
    kind: Callable[..., MovingAverage],
) -> None:
    average, row = kind(1, gamma=0.5).double(), torch.tensor([0])
    average.update(row, tensor(1), where=EVERYWHERE)
    with torch.no_grad():
        quiet = average.update(row, tensor(2), where=EVERYWHERE)
    average.eval()
    assert torch.equal(average.update(row, tensor(2), where=EVERYWHERE), quiet)
    assert average.value.tolist() == [1]
    average.train()
    assert torch.equal(average.update(row, tensor(2), where=EVERYWHERE), quiet)
    assert average.value.tolist() == quiet.tolist() != [2]


@pytest.mark.parametrize("kind", KINDS)
def test_the_table_is_saved_loaded_and_cast(kind: Callable[..., MovingAverage]) -> None:
    average, other = kind(3, gamma=0.5), kind(3, gamma=0.5)
    average.update(torch.tensor([1]), torch.tensor([4.0]), where=EVERYWHERE)
    other.load_state_dict(average.state_dict())
    torch.testing.assert_close(other.value, average.value, rtol=0, atol=0, equal_nan=True)
    average.double().update(torch.tensor([1]), tensor(0.1), where=EVERYWHERE)
    assert average.value.dtype == torch.float64
    # What is given in float64 is kept in the table's own type.
    other.update(torch.tensor([1]), tensor(0.1), where=EVERYWHERE)
    assert other.value.dtype == torch.float32
    torch.testing.assert_close(
        other.value.double(), average.value, equal_nan=True, rtol=1e-6, atol=0
    )


@pytest.mark.parametrize("method", methods_of("objective"))
@pytest.mark.parametrize("preset", list(PRESETS))
def test_at_the_size_of_movielens_20m_state_is_a_number_per_rating_and_seven_per_user(
    method: str, preset: str
) -> None:
    """80 MB for the ratings, where users x items would be 15 GB; nothing is allocated here."""
    ratings, users = 20_000_263, 138_493
    settings = ObjectiveSettings(**PRESETS[preset])
    with torch.device("meta"):
        part = Objective(
            METHODS[method], settings, n_queries=users, n_pairs=ratings, n_groups=2
        )
    tables = part.state_dict().values()
    assert all(table.ndim == 1 and table.dtype == torch.float32 for table in tables)
    assert sum(table.nbytes for table in tables) <= 4 * ratings + 7 * 4 * users
    assert max((len(table) for table in tables), default=0) <= ratings
