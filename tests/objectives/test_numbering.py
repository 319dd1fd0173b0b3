import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.objectives.averages import FIRST_SIZE, FREE, Numbering

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
