"""Sums over the top of each ranked list, from which all metrics are computed.

Lists are cut at each of `ks`, which rise. Lists given slot by slot are ranked here
(`list_sums`); of others only the first places arrive (`place_sums`).

The same sums after group labels are shuffled: of whole lists (`shuffled_sums`), the known
labels are dealt out to the known places at random. The labels of the largest group need no
draw: they go where no other fell, and that group has what the others leave. So a shuffle costs
one draw for each item of the smaller groups. Of lists known by their first places
(`drawn_sums`), the labels of all known items are an urn, and each known place, from the first
on, gets a label drawn from what is left. A shuffle costs a draw for each place of the longest
top. Both give the same distribution.
"""

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.random import advance, below, stream
from fairtopk.kernels.ranking import top_of

Floats = NDArray[np.floating]
Whole = NDArray[np.integer]
Doubles = NDArray[np.float64]
Slots = NDArray[np.int64]
T = TypeVar("T")  # arrays here, tensors in the metrics


class Places(NamedTuple):
    """The first places of ranked lists."""

    exposure: Floats  # softmax over the whole list, by place, [Q, H]
    group: Whole  # numbers by place, -1 unknown, [Q, H]
    relevance: Floats  # grades by place, [Q, H]
    length: Slots  # how many of the places a list has, [Q]


class Lists(NamedTuple, Generic[T]):
    """Lists by slot, of which every value has been checked."""

    scores: T  # finite where the mask is True, [Q, L]
    mask: T  # False on padding, [Q, L]
    relevance: T  # grades, [Q, L]; in the metrics [1, 1] if one for all items
    group: T  # numbers, -1 unknown and on padding; shaped like `relevance`
    n_groups: int


class Ranking(NamedTuple):
    """Lists whose items are ranked as far as the longest top."""

    slot: NDArray[np.int32]  # of the item in each place, -1 past the last one, [Q, H]
    exposure: Floats  # by place, [Q, H]
    group: Whole  # by slot, [Q, L]
    relevance: Floats  # by slot, [Q, L]


class Tops(NamedTuple, Generic[T]):
    """Sums over the top of lists at each of K cuts; e is the softmax over the whole list.

    A place is worth 1 / log2(1 + rank) unless another worth is given.
    """

    exposure: T  # of e over the items of each group, [Q, G, K]
    discount: T  # of what their places are worth, [Q, G, K]
    members: T  # their number, [Q, G, K]
    everyone: T  # of e over all items, of unknown group too, [Q, 1, K]
    size: T  # items of each group in the whole list, n_g, [Q, G, 1]
    dcg: T  # of (2^y - 1) times what their places are worth, [Q, K]
    ideal: T  # the same in the best order of the list, [Q, K]


def discounts(places: int) -> Doubles:
    """Return what each of the first places is worth, 1 / log2(1 + rank)."""
    worth: Doubles = 1 / np.log2(2.0 + np.arange(places))
    return worth


def list_sums(
    lists: Lists[NDArray[Any]], ks: Sequence[int], worth: Doubles | None = None
) -> Tops[NDArray[Any]]:
    """Return the sums of lists by slot; `worth` is that of each place, or `discounts`."""
    n_places = min(ks[-1], lists.scores.shape[1])
    value = discounts(n_places) if worth is None else worth[:n_places]
    scores, relevance = lists.scores, lists.relevance
    if not lists.mask.all():
        scores = np.where(lists.mask, scores, scores.dtype.type(-np.inf))
        relevance = np.where(lists.mask, relevance, relevance.dtype.type(0))
    top = top_of(scores, len(value))
    # Less the highest score, which loses no digits; a list without items has no sum but 0.
    there = top.column[:, :1] >= 0
    high = np.where(there, top.scores[:, :1], 0)
    total = np.exp(np.where(there, top.log_sum[:, None] - high, 0))
    share = np.exp(top.scores - high)
    share /= total.astype(share.dtype)  # Eq. 5
    ranking = Ranking(top.column, share, lists.group, relevance)
    return _sums(ranking, lists.n_groups, value, ks)


def place_sums(
    places: Places, size: Slots, ideal: Doubles, ks: Sequence[int]
) -> Tops[NDArray[Any]]:
    """Return the same for lists of which only the first places are there.

    Args:
        places: At least as many as the longest top has.
        size: Items of each group in the whole list, ``[Q, G]``.
        ideal: Ideal DCG of the whole list at each of `ks`, ``[Q, K]``.
        ks: Where to cut.
    """
    place = np.arange(places.group.shape[1], dtype=np.int32)
    slot = np.where(place < places.length[:, None], place, np.int32(-1))
    ranking = Ranking(slot, places.exposure, places.group, places.relevance)
    sums = _sums(ranking, size.shape[1], discounts(len(place)), ks)
    return sums._replace(size=size[:, :, None], ideal=ideal)


def _sums(
    ranking: Ranking, n_groups: int, worth: Doubles, ks: Sequence[int]
) -> Tops[NDArray[Any]]:
    """Return the sums of ranked lists; `worth` is that of each place, ``[H]``."""
    n_queries, n_cuts = len(ranking.slot), len(ks)
    shape = (n_queries, n_groups, n_cuts)
    sums: Tops[NDArray[Any]] = Tops(
        exposure=np.zeros(shape),
        discount=np.zeros(shape),
        members=np.zeros(shape),
        everyone=np.zeros((n_queries, 1, n_cuts)),
        size=np.zeros((n_queries, n_groups, 1), np.int64),
        dcg=np.zeros((n_queries, n_cuts)),
        ideal=np.zeros((n_queries, n_cuts)),
    )
    # Each place is added to the first top that it is in, and so to all that follow. Arrays are
    # of one kind each, so that the loop is compiled for once.
    cut_of = np.searchsorted(ks, np.arange(min(len(worth), ks[-1])), side="right")
    ranking = ranking._replace(
        exposure=ranking.exposure.astype(np.float64, copy=False),
        group=ranking.group.astype(np.int16, copy=False),
    )
    _add_lists(ranking, cut_of, worth, np.empty(len(cut_of)), sums)
    for part in (*sums[:4], sums.dcg, sums.ideal):
        np.cumsum(part, axis=-1, out=part)
    return sums


@compiled
def _add_lists(
    ranking: Ranking,
    cut_of: Slots,
    worth: Doubles,
    best: Doubles,
    sums: Tops[NDArray[Any]],
) -> None:
    """Add up what `Tops` has; `best` is room for the best grades of a list, ``[H]``."""
    groups, grades = ranking.group, ranking.relevance
    for row in range(len(ranking.slot)):
        n_best = 0
        for slot in range(groups.shape[1]):
            one, grade = groups[row, slot], grades[row, slot]
            if one >= 0:
                sums.size[row, one, 0] += 1
            if grade > 0 and (n_best < len(best) or grade > best[n_best - 1]):
                if n_best < len(best):
                    n_best += 1
                place = n_best - 1
                while place > 0 and grade > best[place - 1]:
                    best[place] = best[place - 1]
                    place -= 1
                best[place] = grade
        for place in range(n_best):
            sums.ideal[row, cut_of[place]] += (2.0 ** best[place] - 1) * worth[place]
        for place in range(len(cut_of)):
            slot, cut = ranking.slot[row, place], cut_of[place]
            if slot < 0:
                break
            one, grade = groups[row, slot], grades[row, slot]
            sums.everyone[row, 0, cut] += ranking.exposure[row, place]
            if one >= 0:
                sums.exposure[row, one, cut] += ranking.exposure[row, place]  # Eq. 9
                sums.discount[row, one, cut] += worth[place]
                sums.members[row, one, cut] += 1
            if grade > 0:
                sums.dcg[row, cut] += (2.0**grade - 1) * worth[place]  # Eq. 1


class Ranked(NamedTuple):
    """Lists in ranked order."""

    exposure: Floats  # softmax over the whole list, by place, up to the longest top, [Q, H]
    group: Whole  # numbers by place, -1 unknown and on padding, [Q, L]


class Key(NamedTuple):
    """Where the random numbers of some shuffles come from."""

    seed: int  # of all shuffles
    first_list: int  # number of the first list among all that are shuffled
    first_round: int  # number of the first shuffle of each list


class Heads(NamedTuple):
    """The first places of ranked lists, as far as the longest top."""

    exposure: Doubles  # softmax over the whole list, by place, [Q, H]
    known: NDArray[np.bool_]  # whether the group of the item in each place is, [Q, H]
    worth: Doubles  # of each place, [H]
    cut_of: Slots  # the first top that each place is in, [H]


class Room(NamedTuple):
    """Room for the shuffles of a list."""

    places: Slots  # those with a known label, [L]
    labels: Slots  # those that are drawn for, [L]
    size: Slots  # items with each label, [G]
    whole: Doubles  # what all known places give to each top, [3, K]
    found: Doubles  # what those of each label give, [3, G * K]


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
    room = Room(
        places=np.empty(n_slots, np.int64),
        labels=np.empty(n_slots, np.int64),
        size=np.empty(n_groups, np.int64),
        whole=np.empty((3, n_cuts)),
        found=np.empty((3, n_groups * n_cuts)),
    )
    lists = lists._replace(exposure=lists.exposure.astype(np.float64, copy=False))
    cut_of = np.searchsorted(ks[:-1], np.arange(n_places + 1), side="right")
    _fill_shuffles(lists, gives, cut_of, key, room, sums)
    return GroupSums(*(part.reshape(n_lists, rounds, n_groups, n_cuts) for part in sums))


@compiled
def _fill_shuffles(
    lists: Ranked, gives: Doubles, cut_of: Slots, key: Key, room: Room, sums: Doubles
) -> None:
    """Fill in the sums of all shuffles.

    Args:
        lists: The lists.
        gives: What each place gives; exposures are filled in, ``[H + 1, 3]``.
        cut_of: The first top that each place is in, ``[H + 1]``.
        key: Key of the random numbers.
        room: For one list at a time.
        sums: Filled, ``[3, Q, R, G * K]``.
    """
    group, (places, labels, size, whole, found) = lists.group, room
    n_places, n_cuts, n_cells = lists.exposure.shape[1], whole.shape[1], found.shape[1]
    for row in range(len(group)):
        for place in range(n_places):
            gives[place, 0] = lists.exposure[row, place]
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
        state = stream(key.seed, key.first_list + row, key.first_round)
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
    heads: Ranked, size: Slots, ks: Sequence[int], *, rounds: int, key: Key
) -> GroupSums:
    """Return the sums of each list after each of `rounds` shuffles of its labels.

    Args:
        heads: The first places, at least as many as the longest top has; labels past those
            with an exposure are not needed.
        size: Known items of each group in the whole list, ``[Q, G]``.
        ks: Where to cut.
        rounds: How many shuffles.
        key: Key of the random numbers.
    """
    (n_lists, n_groups), n_places = size.shape, min(heads.exposure.shape[1], ks[-1])
    shape = (n_lists, rounds, n_groups, len(ks))
    sums = GroupSums(np.zeros(shape), np.zeros(shape), np.zeros(shape))
    first_places = Heads(
        exposure=heads.exposure.astype(np.float64, copy=False),
        known=np.ascontiguousarray(heads.group[:, :n_places] >= 0),
        worth=discounts(n_places),
        cut_of=np.searchsorted(ks, np.arange(n_places), side="right"),
    )
    _add_draws(first_places, size, np.empty(n_groups, np.int64), key, sums)
    for part in sums:
        np.cumsum(part, axis=-1, out=part)
    return sums


@compiled
def _add_draws(heads: Heads, size: Slots, left: Slots, key: Key, sums: GroupSums) -> None:
    """Add what each place gives to the first top that it is in; `left` is room, ``[G]``."""
    for row in range(len(size)):
        state = stream(key.seed, key.first_list + row, key.first_round)
        for one in range(sums.members.shape[1]):
            n_left = np.int64(0)  # numba would compile `below` for a plain 0 by itself
            for label in range(len(left)):
                left[label] = size[row, label]
                n_left += left[label]
            for place in range(len(heads.worth)):
                if heads.known[row, place]:
                    state = advance(state)
                    drawn, label, cut = below(state, n_left), 0, heads.cut_of[place]
                    while drawn >= left[label]:
                        drawn -= left[label]
                        label += 1
                    left[label] -= 1
                    n_left -= 1
                    sums.exposure[row, one, label, cut] += heads.exposure[row, place]
                    sums.discount[row, one, label, cut] += heads.worth[place]
                    sums.members[row, one, label, cut] += 1
