import numpy as np
import pytest
from numpy.typing import NDArray

from fairtopk.kernels.random import advance, mix, stream
from fairtopk.models._kernels import (
    CERTAIN,
    EACH,
    Dropout,
    Filled,
    Floats,
    Pairs,
    Sides,
    add_network,
    draw_kept,
    first_layer,
    group_pairs,
    kept_units,
    score_pairs,
    sum_gradients,
    sum_rows,
)

pytestmark = pytest.mark.kernel

Q, L, N_ITEMS, WIDTH, UNITS = 5, 9, 7, 6, 11
NO_DROPOUT = Dropout(0, CERTAIN)
SOME = slice(2, 6)  # items of a block


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


@pytest.fixture
def pairs(rng: np.random.Generator) -> Pairs:
    return group_pairs(rng.integers(0, N_ITEMS, (Q, L)).astype(np.int32), N_ITEMS)


@pytest.fixture
def users(rng: np.random.Generator) -> Sides:
    return Sides(rng.normal(size=(Q, WIDTH)), rng.normal(size=(Q, UNITS)))


@pytest.fixture
def items(rng: np.random.Generator) -> Sides:
    return Sides(rng.normal(size=(N_ITEMS, WIDTH)), rng.normal(size=(N_ITEMS, UNITS)))


def item_of(pairs: Pairs) -> NDArray[np.int64]:
    return np.repeat(np.arange(N_ITEMS), np.diff(pairs.offsets))


def filled(scores: Floats, gate: NDArray[np.uint8]) -> Filled:
    words = np.full(-(-UNITS // 8), EACH)
    return Filled(scores, gate, words, words.view(np.uint8))


def plain_gate(pairs: Pairs, users: Sides, items: Sides, dropout: Dropout) -> NDArray[np.uint8]:
    on = users.hidden[pairs.row] + items.hidden[item_of(pairs)] > 0
    return on * kept_units(pairs, dropout, UNITS)


@pytest.mark.parametrize("dropout", [NO_DROPOUT, Dropout(4, 205)])
def test_a_score_is_the_product_and_what_passes_the_gates(
    rng: np.random.Generator, pairs: Pairs, users: Sides, items: Sides, dropout: Dropout
) -> None:
    weight, scores = rng.normal(size=UNITS), np.empty((Q, L))
    gate = np.empty((Q * L, UNITS), np.uint8)
    score_pairs(pairs, users, items, weight, dropout, filled(scores, gate))

    item, expected = item_of(pairs), plain_gate(pairs, users, items, dropout)
    hidden = users.hidden[pairs.row] + items.hidden[item]
    plain = (users.product[pairs.row] * items.product[item]).sum(1)
    plain += (hidden * expected) @ weight
    assert (gate == expected).all()
    np.testing.assert_allclose(scores[pairs.row, pairs.slot], plain, atol=1e-12)
    without = np.empty((Q, L))
    score_pairs(pairs, users, items, weight, dropout, filled(without, gate[:0]))
    np.testing.assert_allclose(without, scores, atol=1e-12)


def test_a_block_of_items_fills_its_own_pairs_only(
    rng: np.random.Generator, pairs: Pairs, users: Sides, items: Sides
) -> None:
    weight = rng.normal(size=UNITS)
    whole, part = np.empty((Q, L)), np.full((Q, L), np.nan)
    gate = np.empty((0, UNITS), np.uint8)
    score_pairs(pairs, users, items, weight, NO_DROPOUT, filled(whole, gate))
    block = pairs._replace(offsets=pairs.offsets[SOME.start : SOME.stop + 1])
    mine = Sides(items.product[SOME], items.hidden[SOME])
    score_pairs(block, users, mine, weight, NO_DROPOUT, filled(part, gate))

    inside = (item_of(pairs) >= SOME.start) & (item_of(pairs) < SOME.stop)
    row, slot = pairs.row, pairs.slot
    assert (part[row[inside], slot[inside]] == whole[row[inside], slot[inside]]).all()
    assert np.isnan(part[row[~inside], slot[~inside]]).all()


def test_gradients_are_summed_by_user_and_by_item(
    rng: np.random.Generator, pairs: Pairs, users: Sides, items: Sides
) -> None:
    grad = rng.normal(size=(Q, L)) * (rng.random((Q, L)) < 0.7)
    gate = plain_gate(pairs, users, items, NO_DROPOUT)
    of_users = Sides(np.ones((Q, WIDTH)), np.ones((Q, UNITS)))
    of_items = Sides(np.full((N_ITEMS, WIDTH), np.nan), np.full((N_ITEMS, UNITS), np.nan))
    sums = (of_users, of_items, Sides(np.empty((1, WIDTH)), np.empty((1, UNITS))))
    sum_gradients(pairs, (users.product, items.product), grad, gate, sums)

    slope, item = grad[pairs.row, pairs.slot][:, None], item_of(pairs)
    expected = [np.ones((Q, WIDTH)), np.ones((Q, UNITS))]
    expected += [np.zeros((N_ITEMS, WIDTH)), np.zeros((N_ITEMS, UNITS))]
    np.add.at(expected[0], pairs.row, slope * items.product[item])
    np.add.at(expected[1], pairs.row, slope * gate)
    np.add.at(expected[2], item, slope * users.product[pairs.row])
    np.add.at(expected[3], item, slope * gate)
    for found, plain in zip((*of_users, *of_items), expected, strict=True):
        np.testing.assert_allclose(found, plain, atol=1e-12)


def test_the_first_layer_and_its_sums_are_those_of_each_pair(
    rng: np.random.Generator, pairs: Pairs, users: Sides, items: Sides
) -> None:
    block = pairs._replace(offsets=pairs.offsets[SOME.start : SOME.stop + 1])
    inside = slice(block.offsets[0], block.offsets[-1])
    active = np.empty((inside.stop - inside.start, UNITS))
    first_layer(block, users.hidden, items.hidden[SOME], active)
    row, item = pairs.row[inside], item_of(pairs)[inside]
    plain = np.maximum(users.hidden[row] + items.hidden[item], 0)
    np.testing.assert_allclose(active, plain, atol=1e-12)

    grad = rng.normal(size=active.shape)
    of_users, of_items = np.zeros((Q, UNITS)), np.zeros((N_ITEMS, UNITS))
    sum_rows(block, grad, of_users, of_items[SOME])
    by_user, by_item = np.zeros((Q, UNITS)), np.zeros((N_ITEMS, UNITS))
    np.add.at(by_user, row, grad)
    np.add.at(by_item, item, grad)
    np.testing.assert_allclose(of_users, by_user, atol=1e-12)
    np.testing.assert_allclose(of_items, by_item, atol=1e-12)


def test_the_network_is_added_to_the_columns_of_a_block(
    rng: np.random.Generator, users: Sides, items: Sides
) -> None:
    weight, scores = rng.normal(size=UNITS), np.ones((Q, N_ITEMS))
    add_network(
        users.hidden, np.ascontiguousarray(items.hidden[SOME].T), weight, SOME.start, scores
    )
    hidden = np.maximum(users.hidden[:, None] + items.hidden[None, SOME], 0)
    plain = np.ones((Q, N_ITEMS))
    plain[:, SOME] += hidden @ weight
    np.testing.assert_allclose(scores, plain, atol=1e-12)


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
