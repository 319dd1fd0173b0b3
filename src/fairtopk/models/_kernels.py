"""NeuMF's scores and gradients for pairs of users and items, item by item.

With p, q the vectors of user and item for the product, u, i their halves of the hidden layer,

    h = p · q + b · (gate * (u + i))

where a gate is 1 if relu and dropout both let a unit through, else 0. A gradient g on h adds

    g q to that of p,  g p to q,  g b gate to u and to i,  g gate (u + i) to b

so that of the pairs only g q and g gate, summed by user, and g p and g gate, summed by item,
are needed.

Pairs are visited item by item: rows of items are read and written once, in sequence, and those
of a batch's users stay in the cache. Visited user by user, the forward pass took nearly four
times as long at 27,000 items.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled, summing
from fairtopk.kernels.random import GOLDEN, mix, stream

CERTAIN = 256  # values of a draw, a byte
EACH = np.uint64(0x0101010101010101)  # 1 in each byte of a word
TOP = np.uint64(0x8080808080808080)  # the top bit of each

Floats = NDArray[np.floating]


class Pairs(NamedTuple):
    """The slots of a batch of lists, grouped by item."""

    offsets: NDArray[np.int64]  # where the pairs of each item start, [n_items + 1]
    row: NDArray[np.int32]  # the list of each pair, [n_pairs]
    slot: NDArray[np.int32]  # its place in the list, [n_pairs]


class Dropout(NamedTuple):
    """Which units are kept: a function of seed, list, slot and unit, the same at every call."""

    seed: int  # key of all draws
    keep: int  # how many of a draw's 256 values keep a unit, from 1; at 256 nothing is drawn


def group_pairs(item: NDArray[np.int32], n_items: int) -> Pairs:
    """Return the slots of lists, ``[Q, L]``, by item; those of an item in their given order."""
    rows, slots = np.empty(item.size, np.int32), np.empty(item.size, np.int32)
    offsets = np.zeros(n_items + 2, np.int64)  # one more than there will be
    _fill_pairs(item, offsets, rows, slots)
    return Pairs(offsets[:-1], rows, slots)


@compiled
def _fill_pairs(
    item: NDArray[np.int32],
    offsets: NDArray[np.int64],
    rows: NDArray[np.int32],
    slots: NDArray[np.int32],
) -> None:
    for row in range(item.shape[0]):
        for slot in range(item.shape[1]):
            offsets[item[row, slot] + 2] += 1
    for one in range(2, len(offsets)):
        offsets[one] += offsets[one - 1]
    # Now the offset after an item's is where its first pair goes, and in the end its own end.
    for row in range(item.shape[0]):
        for slot in range(item.shape[1]):
            place = offsets[item[row, slot] + 1]
            rows[place] = row
            slots[place] = slot
            offsets[item[row, slot] + 1] += 1


@compiled
def draw_kept(dropout: Dropout, row: int, slot: int, words: NDArray[np.uint64]) -> None:
    """Fill the bytes of `words` with 1 for the units of a pair that are kept, else 0.

    A word is eight draws. Adding 256 - keep to a draw carries out of its byte unless the unit
    is kept. All eight are added at once, their top bits apart so that nothing is carried into
    the next: a loop over bytes took twice as long.
    """
    # Whole numbers as elsewhere, so that `stream` is compiled once.
    state = stream(dropout.seed, np.int64(row), np.int64(slot))
    added = EACH * np.uint64(CERTAIN - dropout.keep)
    for place in range(len(words)):
        draws = mix(state)
        state += GOLDEN
        total = ((draws & ~TOP) + (added & ~TOP)) ^ ((draws ^ added) & TOP)
        carried = ((draws & added) | ((draws | added) & ~total)) & TOP
        words[place] = (carried >> np.uint64(7)) ^ EACH


@compiled
def kept_units(pairs: Pairs, dropout: Dropout, units: int) -> NDArray[np.uint8]:
    """Return 1 for units that are kept, else 0, for the pairs of some items, ``[n, units]``.

    Args:
        pairs: All pairs, with the offsets of these items only.
        dropout: What decides.
        units: Of the layer.
    """
    start, stop = pairs.offsets[0], pairs.offsets[-1]
    words = np.full((units + 7) // 8, EACH)
    kept = words.view(np.uint8)
    mask = np.empty((stop - start, units), np.uint8)
    for pair in range(start, stop):
        if dropout.keep < CERTAIN:
            draw_kept(dropout, pairs.row[pair], pairs.slot[pair], words)
        for unit in range(units):
            mask[pair - start, unit] = kept[unit]
    return mask


class Sides(NamedTuple):
    """What users, or items, bring to a score."""

    product: Floats  # vectors of the product, [rows, width]
    hidden: Floats  # halves of the hidden layer, [rows, units]; no units for a product alone


class Filled(NamedTuple):
    """What `score_pairs` fills."""

    scores: Floats  # [Q, L]
    gate: NDArray[np.uint8]  # [n_pairs, units], or [0, units] where no gradient is to follow
    words: NDArray[np.uint64]  # room for the draws of a pair, eight to a word; before, `EACH`
    kept: NDArray[np.uint8]  # the same memory, a draw to a byte


@summing
def score_pairs(
    pairs: Pairs,
    users: Sides,
    items: Sides,
    weight: Floats,
    dropout: Dropout,
    filled: Filled,
) -> None:
    """Fill the scores of the pairs of some items.

    Args:
        pairs: All pairs, with the offsets of these items only.
        users: The users of the lists, p and u.
        items: These items, q and i.
        weight: Output weights of the hidden layer, b, ``[units]``.
        dropout: Of the hidden layer.
        filled: What is filled.
    """
    scores, gate, words, kept = filled
    units, zero = len(weight), scores.dtype.type(0)
    for one in range(len(pairs.offsets) - 1):
        for pair in range(pairs.offsets[one], pairs.offsets[one + 1]):
            row, slot = pairs.row[pair], pairs.slot[pair]
            if dropout.keep < CERTAIN:
                draw_kept(dropout, row, slot, words)
            score = zero
            for place in range(users.product.shape[1]):
                score += users.product[row, place] * items.product[one, place]
            # Two loops, because one with a test inside is not vectorised.
            if len(gate) > 0:
                for unit in range(units):
                    active = max(users.hidden[row, unit] + items.hidden[one, unit], zero)
                    active *= kept[unit]
                    gate[pair, unit] = active > zero
                    score += active * weight[unit]
            else:
                for unit in range(units):
                    active = max(users.hidden[row, unit] + items.hidden[one, unit], zero)
                    score += active * kept[unit] * weight[unit]
            scores[row, slot] = score


@summing
def sum_gradients(
    pairs: Pairs,
    vectors: tuple[Floats, Floats],
    grad: Floats,
    gate: NDArray[np.uint8],
    sums: tuple[Sides, Sides, Sides],
) -> None:
    """Sum over the pairs of some items: g q and g gate by user, g p and g gate by item.

    Args:
        pairs: All pairs, with the offsets of these items only.
        vectors: Those of the product: p of the users, ``[Q, width]``, and q of these items.
        grad: Gradient of the scores g, ``[Q, L]``; slots where it is 0 are passed over.
        gate: As `score_pairs` left it.
        sums: Those of users, added to; those of items, filled with a row for each of these;
            and room for those of one item, a row.
    """
    (users, items), (of_users, of_items, of_one) = vectors, sums
    width, units = users.shape[1], gate.shape[1]
    # Sums of one item; in place, in `of_items`, they take a tenth longer.
    product, hidden = of_one.product[0], of_one.hidden[0]
    for one in range(len(pairs.offsets) - 1):
        for place in range(width):
            product[place] = 0
        for unit in range(units):
            hidden[unit] = 0
        for pair in range(pairs.offsets[one], pairs.offsets[one + 1]):
            row = pairs.row[pair]
            slope = grad[row, pairs.slot[pair]]
            if slope == 0:
                continue
            for place in range(width):
                product[place] += slope * users[row, place]
                of_users.product[row, place] += slope * items[one, place]
            for unit in range(units):
                gated = slope * gate[pair, unit]
                hidden[unit] += gated
                of_users.hidden[row, unit] += gated
        for place in range(width):
            of_items.product[one, place] = product[place]
        for unit in range(units):
            of_items.hidden[one, unit] = hidden[unit]


@compiled
def first_layer(pairs: Pairs, users: Floats, items: Floats, active: Floats) -> None:
    """Fill `active`, ``[n, units]``, with relu(u + i) of the n pairs of some items.

    Args:
        pairs: All pairs, with the offsets of these items only.
        users: The users' halves of the hidden layer u, ``[Q, units]``.
        items: The halves i of these items.
        active: Filled in the order of the pairs.
    """
    start, zero = pairs.offsets[0], users.dtype.type(0)
    for one in range(len(pairs.offsets) - 1):
        for pair in range(pairs.offsets[one], pairs.offsets[one + 1]):
            row = pairs.row[pair]
            for unit in range(users.shape[1]):
                active[pair - start, unit] = max(users[row, unit] + items[one, unit], zero)


@compiled
def sum_rows(pairs: Pairs, grad: Floats, of_users: Floats, of_items: Floats) -> None:
    """Add the gradient of each pair of some items to its user and to its item.

    Args:
        pairs: All pairs, with the offsets of these items only.
        grad: A row for each pair of these items, in their order, ``[n, units]``.
        of_users: Added to, ``[Q, units]``.
        of_items: Added to, a row for each of these items.
    """
    start = pairs.offsets[0]
    for one in range(len(pairs.offsets) - 1):
        for pair in range(pairs.offsets[one], pairs.offsets[one + 1]):
            row = pairs.row[pair]
            for unit in range(grad.shape[1]):
                of_items[one, unit] += grad[pair - start, unit]
                of_users[row, unit] += grad[pair - start, unit]


@summing
def add_network(
    users: Floats, items: Floats, weight: Floats, first: int, scores: Floats
) -> None:
    """Add b · relu(u + i) to the scores of every user with each of some items.

    As relu(u + i) = u + max(i, -u), what is u's alone is added once, and a pair takes two
    operations per unit instead of three. Units are taken by fours, so that scores are read and
    written a quarter as often.

    Args:
        users: The users' halves of the hidden layer u, ``[Q, units]``.
        items: The halves i of these items, an item in each column, ``[units, n]``.
        weight: Output weights of the hidden layer b, ``[units]``.
        first: The column of the first of these items in `scores`.
        scores: Added to, ``[Q, n_items]``.
    """
    units, n_items = items.shape
    for row in range(len(users)):
        # A slice, because a loop over places in the whole row is not vectorised.
        mine = scores[row, first : first + n_items]
        alone = scores.dtype.type(0)
        for unit in range(units):
            alone += weight[unit] * users[row, unit]
        for one in range(n_items):
            mine[one] += alone
        fours = units - units % 4
        for unit in range(0, fours, 4):
            a, b, c, d = items[unit], items[unit + 1], items[unit + 2], items[unit + 3]
            low_a, low_b = -users[row, unit], -users[row, unit + 1]
            low_c, low_d = -users[row, unit + 2], -users[row, unit + 3]
            of_a, of_b = weight[unit], weight[unit + 1]
            of_c, of_d = weight[unit + 2], weight[unit + 3]
            for one in range(n_items):
                mine[one] += (
                    of_a * max(a[one], low_a)
                    + of_b * max(b[one], low_b)
                    + of_c * max(c[one], low_c)
                    + of_d * max(d[one], low_d)
                )
        for unit in range(fours, units):
            low = -users[row, unit]
            for one in range(n_items):
                mine[one] += weight[unit] * max(items[unit, one], low)
