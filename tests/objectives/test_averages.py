import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fairtopk.objectives.averages import (
    FIRST_SIZE,
    FREE,
    MovingAverage,
    Numbering,
    PairAverage,
    claim_rows,
    find_rows,
    find_rows_by_torch,
    hash_texts,
    probe,
    with_room,
)
from fairtopk.objectives.methods import METHODS, PRESETS, ObjectiveSettings, methods_of
from fairtopk.objectives.objective import Objective


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


IDS = st.integers(FREE + 1, 2**63 - 1) | st.integers(-8, 8)


@given(st.lists(st.lists(IDS, max_size=12)), st.integers(0, 6))
def test_small_ids_are_their_own_numbers_and_others_the_next_ones(
    batches: list[list[int]], n_own: int
) -> None:
    numbering, known = Numbering(n_own), dict[int, int]()
    for ids in batches:
        for one in sorted(set(ids)):
            if not 0 <= one < n_own and one not in known:
                known[one] = n_own + len(known)
        found = numbering.numbers(torch.tensor(ids, dtype=torch.int64)).tolist()
        assert found == [known.get(one, one) for one in ids]
        assert numbering.stop == n_own + len(known)


def test_numbers_stay_as_the_table_grows_and_after_it_was_loaded() -> None:
    numbering, other = Numbering(10), Numbering(10)
    first = torch.arange(2 * FIRST_SIZE) * -7919
    numbers = numbering.numbers(first)
    other.load_state_dict(numbering.state_dict())
    assert len(other.key) > FIRST_SIZE
    for one in (numbering, other):
        more = one.numbers(torch.arange(9 * FIRST_SIZE) * -7919)
        assert more[: 2 * FIRST_SIZE].equal(numbers)
        assert more[1:].sort().values.equal(10 + torch.arange(9 * FIRST_SIZE - 1))
    assert numbering.key.equal(other.key)
    assert numbering.number.equal(other.number)


@pytest.mark.parametrize("quiet", ["eval", "no_grad"])
def test_under_eval_and_no_grad_new_ids_get_no_number(quiet: str) -> None:
    numbering = Numbering(2)
    numbering.numbers(torch.tensor([100, 1]))
    numbering.train(quiet != "eval")
    before = {name: table.clone() for name, table in numbering.state_dict().items()}
    with torch.set_grad_enabled(quiet != "no_grad"):
        assert numbering.numbers(torch.tensor([100, 1, 200])).tolist() == [2, 1, -1]
    assert numbering.stop == 3
    for name, table in numbering.state_dict().items():
        assert table.equal(before[name])


def test_the_one_word_that_marks_free_places_shares_the_number_of_the_next() -> None:
    found = Numbering(0).numbers(torch.tensor([FREE, FREE + 1, 5]))
    assert found.tolist() == [0, 0, 1]


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


MASK = 2**64 - 1


def plain_hash(text: str) -> int:
    """Splitmix64 of each character with all before it, in whole numbers without end."""
    word = 0x9E3779B97F4A7C15
    for letter in text:
        word ^= ord(letter)
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
        word = ((word ^ (word >> 31)) + 0x9E3779B97F4A7C15) & MASK
    return word


def codes_of(texts: list[str], width: int) -> np.ndarray:
    codes = np.zeros((len(texts), width), np.uint32)
    for row, text in enumerate(texts):
        codes[row, : len(text)] = [ord(letter) for letter in text]
    return codes


@pytest.mark.kernel
@given(st.lists(st.text(max_size=6)), st.integers(6, 9))
def test_a_text_has_one_word_whatever_stands_beside_it(texts: list[str], width: int) -> None:
    found = hash_texts(codes_of(texts, width)).tolist()
    assert found == [plain_hash(text.rstrip("\0")) for text in texts]


@pytest.mark.kernel
def test_texts_that_differ_a_little_have_different_words() -> None:
    texts = [
        "",
        "a",
        "b",
        "aa",
        "ab",
        "ba",
        "a\0b",
        "a\0a",
        *(f"user-{n}" for n in range(5_000)),
    ]
    words = hash_texts(codes_of(texts, 9))
    assert len(np.unique(words)) == len(texts)
    # Every bit of a word is one in half of them.
    share = np.unpackbits(words.view(np.uint8).reshape(-1, 8), axis=1).mean(0)
    assert abs(share - 0.5).max() < 0.04


WORDS = st.integers(FREE + 1, 2**63 - 1) | st.integers(-3, 3)


@pytest.mark.kernel
@given(st.lists(WORDS, max_size=64), st.lists(WORDS))
def test_keys_are_found_where_they_were_put_and_no_others(
    put: list[int], others: list[int]
) -> None:
    key = torch.full((128,), FREE)
    wanted = torch.tensor(put + others, dtype=torch.int64)
    claim_rows(key, wanted[: len(put)])
    rows = find_rows(key, wanted)
    assert torch.equal(rows, find_rows_by_torch(key, wanted, *probe(wanted, len(key))))
    assert sorted(key[key != FREE].tolist()) == sorted(set(put))
    for one, row in zip(wanted.tolist(), rows.tolist(), strict=True):
        assert (key[row].item() == one) if one in put else row == -1


@pytest.mark.kernel
@given(st.lists(WORDS, max_size=64, unique=True), st.integers(0, 300))
def test_a_table_that_moves_keeps_what_belongs_to_its_keys(
    put: list[int], n_taken: int
) -> None:
    key, kept = torch.full((128,), FREE), torch.full((128,), -1.0)
    wanted = torch.tensor(put, dtype=torch.int64)
    claim_rows(key, wanted)
    kept[find_rows(key, wanted)] = torch.arange(len(put)).float()
    larger, moved = with_room(key, kept, n_taken, start=-1.0)
    assert len(larger) == len(moved) == max(128, 1 << (2 * n_taken - 1).bit_length())
    assert moved[find_rows(larger, wanted)].tolist() == list(range(len(put)))
    assert (moved[larger == FREE] == -1).all()
