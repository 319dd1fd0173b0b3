"""Hash tables that give ids their rows: of pairs, of queries and items, of texts."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fairtopk.losses._memory import (
    FIRST_SIZE,
    FREE,
    Numbering,
    PairAverage,
    add_keys,
    find_rows,
    find_rows_by_torch,
    hash_texts,
    probe,
)


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
        assert numbering.n_taken == len(known)


def test_numbers_stay_as_the_table_grows() -> None:
    numbering = Numbering(10)
    numbers = numbering.numbers(torch.arange(2 * FIRST_SIZE) * -7919)
    more = numbering.numbers(torch.arange(9 * FIRST_SIZE) * -7919)
    assert more[: 2 * FIRST_SIZE].equal(numbers)
    assert more[1:].sort().values.equal(10 + torch.arange(9 * FIRST_SIZE - 1))


@pytest.mark.parametrize("quiet", ["eval", "no_grad"])
def test_under_eval_and_no_grad_new_ids_get_no_number(quiet: str) -> None:
    numbering = Numbering(2)
    numbering.numbers(torch.tensor([100, 1]))
    numbering.train(quiet != "eval")
    before = {name: table.clone() for name, table in numbering.state_dict().items()}
    with torch.set_grad_enabled(quiet != "no_grad"):
        assert numbering.numbers(torch.tensor([100, 1, 200])).tolist() == [2, 1, -1]
    assert numbering.n_taken == 1
    for name, table in numbering.state_dict().items():
        assert table.equal(before[name])


def test_the_one_word_that_marks_free_places_shares_the_number_of_the_next() -> None:
    found = Numbering(0).numbers(torch.tensor([FREE, FREE + 1, 5]))
    assert found.tolist() == [0, 0, 1]


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


def table_with(keys: Tensor) -> tuple[Tensor, Tensor]:
    """A table of 128 rows with up to 64 keys, and its values."""
    key, kept = torch.full((128,), FREE), torch.full((128,), -1.0)
    return add_keys(key, kept, keys, n_taken=len(keys), start=-1.0)


@pytest.mark.kernel
@given(st.lists(WORDS, max_size=64), st.lists(WORDS))
def test_keys_are_found_where_they_were_put_and_no_others(
    put: list[int], others: list[int]
) -> None:
    wanted = torch.tensor(put + others, dtype=torch.int64)
    key, _ = table_with(wanted[: len(put)])
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
    wanted = torch.tensor(put, dtype=torch.int64)
    key, kept = table_with(wanted)
    kept[find_rows(key, wanted)] = torch.arange(len(put)).float()
    larger, moved = add_keys(key, kept, wanted[:0], n_taken=n_taken, start=-1.0)
    assert len(larger) == len(moved) == max(128, 1 << (2 * n_taken - 1).bit_length())
    assert moved[find_rows(larger, wanted)].tolist() == list(range(len(put)))
    assert (moved[larger == FREE] == -1).all()
