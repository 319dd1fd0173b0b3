import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.objectives.averages import (
    FREE,
    claim_rows,
    find_rows,
    find_rows_by_torch,
    probe,
    with_room,
)

pytestmark = pytest.mark.kernel

WORDS = st.integers(FREE + 1, 2**63 - 1) | st.integers(-3, 3)


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
