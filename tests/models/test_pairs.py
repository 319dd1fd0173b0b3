import numpy as np
import pytest

from fairtopk.kernels.random import advance, mix, stream
from fairtopk.models._kernels import CERTAIN, Dropout, Pairs, draw_kept, group_pairs, kept_units


def pairs_of(n_rows: int, n_slots: int) -> Pairs:
    """All slots of some lists, as if they held one item."""
    return group_pairs(np.zeros((n_rows, n_slots), np.int32), 1)


def test_pairs_are_grouped_by_item_in_the_order_of_lists_and_slots() -> None:
    item = np.array([[2, 0, 2], [0, 2, 4]], np.int32)
    pairs = group_pairs(item, 6)
    assert pairs.offsets.tolist() == [0, 2, 2, 5, 5, 6, 6]
    assert pairs.row.tolist() == [0, 1, 0, 0, 1, 1]
    assert pairs.slot.tolist() == [1, 0, 0, 2, 1, 2]


def test_no_lists_have_no_pairs() -> None:
    pairs = group_pairs(np.zeros((0, 5), np.int32), 3)
    assert pairs.offsets.tolist() == [0, 0, 0, 0]
    assert len(pairs.row) == 0


@pytest.mark.parametrize("keep", [1, 2, 127, 128, 129, 205, 255])
def test_a_unit_is_kept_when_its_byte_of_the_stream_is_below_keep(keep: int) -> None:
    words, state = np.zeros(40, np.uint64), stream(9, 3, 4)
    draw_kept(Dropout(9, keep), 3, 4, words)
    for word in words:
        draws = np.array([mix(np.uint64(state))], np.uint64).view(np.uint8)
        assert np.array([word]).view(np.uint8).tolist() == (draws < keep).astype(int).tolist()
        state = advance(np.uint64(state))


@pytest.mark.parametrize("keep", [1, 128, 205, 255, CERTAIN])
def test_the_share_of_kept_units_is_keep_of_256(keep: int) -> None:
    mask = kept_units(pairs_of(100, 100), Dropout(5, keep), 13)
    share, count = keep / CERTAIN, mask.size
    assert mask.shape == (10_000, 13)
    assert abs(mask.mean() - share) <= 5 * np.sqrt(share * (1 - share) / count)
    by_unit = mask.mean(0)
    assert np.abs(by_unit - share).max() <= 5 * np.sqrt(share * (1 - share) / len(mask))


def test_units_lists_and_slots_are_kept_independently_of_each_other() -> None:
    mask = kept_units(pairs_of(100, 100), Dropout(5, 128), 8).reshape(100, 100, 8) - 0.5
    for shifted in (np.roll(mask, 1, 0), np.roll(mask, 1, 1), np.roll(mask, 1, 2)):
        assert abs(4 * (mask * shifted).mean()) < 5 / np.sqrt(mask.size)


def test_what_is_kept_depends_on_seed_list_and_slot_alone() -> None:
    few, many = pairs_of(2, 3), pairs_of(4, 5)
    mask = kept_units(many, Dropout(5, 205), 20).reshape(4, 5, 20)
    assert (kept_units(few, Dropout(5, 205), 20).reshape(2, 3, 20) == mask[:2, :3]).all()
    assert (kept_units(few, Dropout(6, 205), 20).reshape(2, 3, 20) != mask[:2, :3]).any()
    some = many._replace(offsets=np.array([7, 9, 12]))
    assert (kept_units(some, Dropout(5, 205), 20) == mask.reshape(20, 20)[7:12]).all()
