"""Sums over the top of ranked lists after their group labels are shuffled.

Of whole lists (`shuffled_sums`), the known labels are dealt out to the known places at random.
The labels of the largest group need no draw: they go where no other fell, and what that group
has is what the others leave. So a shuffle costs one draw for each item of the smaller groups.

Of lists known by their first places (`drawn_sums`), the labels of all known items are an urn,
and each known place, from the first on, gets a label drawn from what is left. A shuffle costs a
draw for each place of the longest top. Both give the same distribution.

`gap_totals` adds up over lists what each group gets, with n its items in the whole list: the
softmax exposure of its items in the top over n (Eq. 9); their share of the exposure of the top
over their number, 0 without one (the released code); the worth of their places over n; their
number over n. A signed gap is what group 0 gets less what all other groups get as one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.random import advance, below, stream
from fairtopk.kernels.sums import Doubles, Floats, Whole, discounts

Slots = NDArray[np.int64]

NOTIONS = 4


class Ranked(NamedTuple):
    """Lists in ranked order.

    Attributes:
        exposure: Softmax over the whole list, by place, as far as the longest top, ``[Q, H]``.
        group: Group numbers by place, -1 unknown and on padding, ``[Q, L]``.
    """

    exposure: Floats
    group: Whole


class Key(NamedTuple):
    """Where the random numbers of some shuffles come from.

    Attributes:
        seed: Of all shuffles.
        first_list: Number of the first list among all that are shuffled.
        first_round: Number of the first shuffle of each list.
    """

    seed: int
    first_list: int
    first_round: int


class GroupSums(NamedTuple):
    """Sums over the items of each group in each top, ``[Q, R, G, K]``; see `Tops`."""

    exposure: Doubles
    discount: Doubles
    members: Doubles


def shuffled_sums(
    lists: Ranked, n_groups: int, ks: Sequence[int], *, rounds: int, key: Key
) -> GroupSums:
    """Return the sums of each list after each of `rounds` shuffles of its labels."""
    (n_lists, n_places), n_cuts = lists.exposure.shape, len(ks)
    n_slots = lists.group.shape[1]
    # What each place gives: exposure, worth and number. One more stands for all that are in no
    # top, and gives nothing.
    gives = np.zeros((n_places + 1, 3))
    gives[:-1, 1], gives[:-1, 2] = discounts(n_places), 1
    sums = np.empty((3, n_lists, rounds, n_groups * n_cuts))
    _fill_shuffles(
        lists.exposure.astype(np.float64, copy=False),
        lists.group,
        gives,
        np.searchsorted(ks[:-1], np.arange(n_places + 1), side="right"),
        *key,
        np.empty((2, n_slots), np.int64),
        np.empty(n_groups, np.int64),
        np.empty((3, n_cuts)),
        np.empty((3, n_groups * n_cuts)),
        sums,
    )
    return GroupSums(*(part.reshape(n_lists, rounds, n_groups, n_cuts) for part in sums))


@compiled
def _fill_shuffles(
    exposure: Doubles,
    group: Whole,
    gives: Doubles,
    cut_of: Slots,
    seed: int,
    first_list: int,
    first_round: int,
    room: Slots,
    size: Slots,
    whole: Doubles,
    found: Doubles,
    sums: Doubles,
) -> None:
    """Fill in the sums of all shuffles.

    Args:
        exposure: See `Ranked`.
        group: See `Ranked`.
        gives: What each place gives; exposures are filled in, ``[H + 1, 3]``.
        cut_of: The first top that each place is in, ``[H + 1]``.
        seed: See `Key`, as the next two.
        first_list: See `Key`.
        first_round: See `Key`.
        room: For places with a known label, and labels that are drawn for, ``[2, L]``.
        size: Room for the number of items with each label, ``[G]``.
        whole: Room for what all known places of a list give to each top, ``[3, K]``.
        found: Room for what those of each label give, ``[3, G * K]``.
        sums: Filled, ``[3, Q, R, G * K]``.
    """
    places, labels = room[0], room[1]
    n_places, n_cuts, n_cells = exposure.shape[1], whole.shape[1], found.shape[1]
    for row in range(len(group)):
        for place in range(n_places):
            gives[place, 0] = exposure[row, place]
        for label in range(len(size)):
            size[label] = 0
        n_known, n_drawn, largest = 0, 0, 0
        for slot in range(group.shape[1]):
            label = group[row, slot]
            if label >= 0:
                size[label] += 1
                places[n_known] = min(slot, n_places)
                n_known += 1
        for label in range(len(size)):
            if size[label] > size[largest]:
                largest = label
        for slot in range(group.shape[1]):
            label = group[row, slot]
            if label >= 0 and label != largest:
                labels[n_drawn] = label * n_cuts
                n_drawn += 1
        for part in range(3):
            for cut in range(n_cuts):
                whole[part, cut] = 0.0
            for known in range(n_known):
                whole[part, cut_of[places[known]]] += gives[places[known], part]
        state = stream(seed, first_list + row, first_round)
        for one in range(sums.shape[2]):
            for part in range(3):
                for cell in range(n_cells):
                    found[part, cell] = 0.0
            # What the last shuffle left is as good a start as any.
            for drawn in range(n_drawn):
                state = advance(state)
                other = drawn + below(state, n_known - drawn)
                place = places[other]
                places[other] = places[drawn]
                places[drawn] = place
                cell = labels[drawn] + cut_of[place]
                found[0, cell] += gives[place, 0]
                found[1, cell] += gives[place, 1]
                found[2, cell] += gives[place, 2]
            # The largest group has what is left of the whole; a top holds the shorter ones.
            for part in range(3):
                for cut in range(n_cuts):
                    left = whole[part, cut]
                    for cell in range(cut, n_cells, n_cuts):
                        left -= found[part, cell]
                    found[part, largest * n_cuts + cut] = left
                for first in range(0, n_cells, n_cuts):
                    total = 0.0
                    for cell in range(first, first + n_cuts):
                        total += found[part, cell]
                        sums[part, row, one, cell] = total


def drawn_sums(
    heads: Ranked, size: NDArray[np.int64], ks: Sequence[int], *, rounds: int, key: Key
) -> GroupSums:
    """Return the sums of each list after each of `rounds` shuffles of its labels.

    Args:
        heads: The first places, at least as many as the longest top has; labels past those
            with an exposure are not needed.
        size: Known items of each group in the whole list, ``[Q, G]``.
        ks: Where to cut.
        rounds: How many shuffles.
        key: Of the random numbers.
    """
    (n_lists, n_groups), n_places = size.shape, min(heads.exposure.shape[1], ks[-1])
    shape = (n_lists, rounds, n_groups, len(ks))
    sums = GroupSums(np.zeros(shape), np.zeros(shape), np.zeros(shape))
    cut_of = np.searchsorted(ks, np.arange(n_places), side="right")
    left = np.empty(n_groups, np.int64)
    exposure = heads.exposure.astype(np.float64, copy=False)
    known = np.ascontiguousarray(heads.group[:, :n_places] >= 0)
    _add_draws(exposure, discounts(n_places), cut_of, known, size, left, *key, *sums)
    for part in sums:
        np.cumsum(part, axis=-1, out=part)
    return sums


@compiled
def _add_draws(
    exposure: Doubles,
    worth: Doubles,
    cut_of: NDArray[np.int64],
    known: NDArray[np.bool_],
    size: NDArray[np.int64],
    left: NDArray[np.int64],
    seed: int,
    first_list: int,
    first_round: int,
    exposures: Doubles,
    discount: Doubles,
    members: Doubles,
) -> None:
    """Add what each place gives to the first top that it is in, `cut_of`; `left` is room."""
    for row in range(len(size)):
        state = stream(seed, first_list + row, first_round)
        for one in range(members.shape[1]):
            n_left = np.int64(0)  # numba would compile `below` for a plain 0 by itself
            for label in range(len(left)):
                left[label] = size[row, label]
                n_left += left[label]
            for place in range(len(worth)):
                if known[row, place]:
                    state = advance(state)
                    drawn, label, cut = below(state, n_left), 0, cut_of[place]
                    while drawn >= left[label]:
                        drawn -= left[label]
                        label += 1
                    left[label] -= 1
                    n_left -= 1
                    exposures[row, one, label, cut] += exposure[row, place]
                    discount[row, one, label, cut] += worth[place]
                    members[row, one, label, cut] += 1


def gap_totals(sums: GroupSums, everyone: Doubles, size: NDArray[np.int64]) -> Doubles:
    """Return sums over lists, for each of R versions of them, ``[R, (4 + G) * K]``.

    Signed gaps come first, notion by notion; then the worth of places that each group gets. A
    list without group 0 or without another adds nothing to gaps, one without a group nothing
    to what that gets.

    Args:
        sums: Over the items of each group in each top, ``[Q, R, G, K]`` each.
        everyone: Exposure of all items in each top, ``[Q, K]``.
        size: Items of each group in the whole list, ``[Q, G]``.
    """
    _, n_versions, n_groups, n_cuts = sums.members.shape
    totals = np.zeros((n_versions, NOTIONS + n_groups, n_cuts))
    _add_totals(sums, everyone, size, totals)
    return totals.reshape(n_versions, -1)


@compiled
def _add_totals(
    sums: GroupSums, everyone: Doubles, size: NDArray[np.int64], totals: Doubles
) -> None:
    n_lists, n_versions, n_groups, n_cuts = sums.members.shape
    for row in range(n_lists):
        named, rest = size[row, 0], size[row, 1:].sum()
        for version in range(n_versions):
            for cut in range(n_cuts):
                exposure, worth, members = 0.0, 0.0, 0.0
                for group in range(n_groups):
                    found = sums.discount[row, version, group, cut]
                    if size[row, group] > 0:
                        totals[version, NOTIONS + group, cut] += found / size[row, group]
                    if group > 0:
                        exposure += sums.exposure[row, version, group, cut]
                        worth += found
                        members += sums.members[row, version, group, cut]
                if named == 0 or rest == 0:
                    continue
                own = sums.exposure[row, version, 0, cut]
                own_worth = sums.discount[row, version, 0, cut]
                own_members = sums.members[row, version, 0, cut]
                shown = own / max(own_members, 1.0) - exposure / max(members, 1.0)
                totals[version, 0, cut] += own / named - exposure / rest
                totals[version, 1, cut] += shown / everyone[row, cut]
                totals[version, 2, cut] += own_worth / named - worth / rest
                totals[version, 3, cut] += own_members / named - members / rest
