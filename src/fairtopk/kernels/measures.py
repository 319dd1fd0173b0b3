"""What metrics of ranked lists are made of: sums over the top of each list.

Lists are cut at each of `ks`, which rise. Lists given slot by slot are ranked here, one after
the other in a cache's worth of memory; of others only the first places arrive.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.exponentials import fill_exponentials
from fairtopk.kernels.ranking import Work, rank_row, room_for

Floats = NDArray[np.floating]
Whole = NDArray[np.integer]
Doubles = NDArray[np.float64]
Cuts = NDArray[np.int64]


class Places(NamedTuple):
    """The first places of ranked lists.

    Attributes:
        exposure: Softmax over the whole list, by place, ``[Q, H]``.
        group: Group numbers by place, -1 unknown, ``[Q, H]``.
        relevance: Grades by place, ``[Q, H]``.
        length: How many of the places a list has, ``[Q]``.
    """

    exposure: Floats
    group: Whole
    relevance: Floats
    length: NDArray[np.int64]


class Lists(NamedTuple):
    """Lists by slot, ``[Q, L]`` each.

    Attributes:
        scores: Finite where the mask is True.
        mask: False on padding.
        relevance: Grades.
        group: Group numbers, -1 unknown and on padding.
    """

    scores: Floats
    mask: NDArray[np.bool_]
    relevance: Floats
    group: Whole


class Head(NamedTuple):
    """Room for the first places of one list; see `Places`."""

    exposure: Floats
    group: Whole
    relevance: Floats


class Sums(NamedTuple):
    """Sums over the items in each top, of a group where there is a G, at K cuts.

    Attributes:
        exposure: Of softmax exposure, ``[Q, G, K]``.
        discount: Of what their places are worth, ``[Q, G, K]``.
        members: Of 1, ``[Q, G, K]``.
        everyone: Of the exposure of all items, of unknown group too, ``[Q, 1, K]``.
        size: Of 1 over the whole list, ``[Q, G, 1]``.
        dcg: Of 2^y - 1 times what their places are worth, ``[Q, K]``.
        ideal: Of the same in the best order of the list, ``[Q, K]``.
    """

    exposure: Doubles
    discount: Doubles
    members: Doubles
    everyone: Doubles
    size: NDArray[np.int64]
    dcg: Doubles
    ideal: Doubles


@compiled
def discounts(places: int) -> Doubles:
    """Return what each of the first places is worth, 1 / log2(1 + rank)."""
    worth = np.empty(places)
    for place in range(places):
        worth[place] = 1 / math.log2(2.0 + place)
    return worth


def list_sums(
    lists: Lists, n_groups: int, ks: Sequence[int], worth: Callable[[int], Doubles] = discounts
) -> Sums:
    """Return the sums of lists by slot; `worth` says what the first places are worth."""
    n_queries, n_slots = lists.scores.shape
    n_places = min(ks[-1], n_slots)
    sums = _no_sums(n_queries, n_groups, len(ks))
    work = room_for(n_slots, lists.scores.dtype)
    head = Head(
        exposure=np.empty(n_places, lists.scores.dtype),
        group=np.empty(n_places, lists.group.dtype),
        relevance=np.empty(n_places, lists.relevance.dtype),
    )
    _add_lists(lists, np.array(ks), worth(n_places), work, head, sums)
    return _summed_up(sums)


def place_sums(
    places: Places, size: NDArray[np.int64], ideal: Doubles, ks: Sequence[int]
) -> Sums:
    """Return the same for lists of which only the first places are there.

    Args:
        places: At least as many as the longest top has.
        size: Items of each group in the whole list, ``[Q, G]``.
        ideal: Ideal DCG of the whole list at each of `ks`, ``[Q, K]``.
        ks: Where to cut.
    """
    n_queries, n_groups = size.shape
    sums = _no_sums(n_queries, n_groups, len(ks))
    places = Places(  # of one kind, so that they are compiled for once
        places.exposure.astype(np.float64, copy=False),
        places.group.astype(np.int32, copy=False),
        places.relevance.astype(np.float64, copy=False),
        places.length,
    )
    _add_heads(places, np.array(ks), discounts(places.group.shape[1]), sums)
    return _summed_up(sums)._replace(size=size[:, :, None], ideal=ideal)


def _no_sums(queries: int, n_groups: int, cuts: int) -> Sums:
    shape = (queries, n_groups, cuts)
    return Sums(
        exposure=np.zeros(shape),
        discount=np.zeros(shape),
        members=np.zeros(shape),
        everyone=np.zeros((queries, 1, cuts)),
        size=np.zeros((queries, n_groups, 1), np.int64),
        dcg=np.zeros((queries, cuts)),
        ideal=np.zeros((queries, cuts)),
    )


def _summed_up(sums: Sums) -> Sums:
    """Return sums over whole tops, given those from the end of one top to that of the next."""
    for part in (sums.exposure, sums.discount, sums.members, sums.everyone):
        np.cumsum(part, axis=-1, out=part)
    return sums


@compiled
def _add_lists(
    lists: Lists, ks: Cuts, worth: Doubles, work: Work, head: Head, sums: Sums
) -> None:
    n_queries, n_slots = lists.scores.shape
    for row in range(n_queries):
        scores, mask, group = lists.scores[row], lists.mask[row], lists.group[row]
        relevance = lists.relevance[row]
        for slot in range(n_slots):
            work.row[slot] = scores[slot] if mask[slot] else -np.inf
        for slot in range(n_slots):
            if group[slot] >= 0:
                sums.size[row, group[slot], 0] += 1
        n_best = _find_best(relevance, mask, head.relevance)
        _add_gains(head.relevance, n_best, ks, worth, sums.ideal[row])
        count = rank_row(work, n_slots, len(worth))
        if count == 0:
            continue
        total = fill_exponentials(work.row, work.row[work.column[0, 0]], work.exponential)
        for place in range(count):
            slot = work.column[0, place]
            head.exposure[place] = work.exponential[slot] / total
            head.group[place] = group[slot]
            head.relevance[place] = relevance[slot]
        _add_groups(row, head.exposure, head.group, count, ks, worth, sums)
        _add_gains(head.relevance, count, ks, worth, sums.dcg[row])


@compiled
def _add_heads(places: Places, ks: Cuts, worth: Doubles, sums: Sums) -> None:
    for row in range(len(places.length)):
        count = places.length[row]
        _add_groups(row, places.exposure[row], places.group[row], count, ks, worth, sums)
        _add_gains(places.relevance[row], count, ks, worth, sums.dcg[row])


@compiled
def _add_groups(
    row: int, exposure: Floats, group: Whole, count: int, ks: Cuts, worth: Doubles, sums: Sums
) -> None:
    """Add what each of a list's first `count` places gives to the first top that it is in."""
    place = 0
    for cut in range(len(ks)):
        while place < min(ks[cut], count):
            sums.everyone[row, 0, cut] += exposure[place]
            one = group[place]
            if one >= 0:
                sums.exposure[row, one, cut] += exposure[place]
                sums.discount[row, one, cut] += worth[place]
                sums.members[row, one, cut] += 1
            place += 1


@compiled
def _add_gains(relevance: Floats, count: int, ks: Cuts, worth: Doubles, found: Doubles) -> None:
    """Add the discounted gains of the first `count` places to `found`, at each of `ks`."""
    for place in range(count):
        if relevance[place] > 0:
            gain = (2.0 ** relevance[place] - 1) * worth[place]
            for cut in range(len(ks)):
                if place < ks[cut]:
                    found[cut] += gain


@compiled
def _find_best(relevance: Floats, mask: NDArray[np.bool_], best: Floats) -> int:
    """Return how many of the grades above 0 are in `best`: the largest, as many as fit."""
    count = 0
    for slot in range(len(relevance)):
        value = relevance[slot]
        if value <= 0 or not mask[slot]:
            continue
        if count < len(best):
            count += 1
        elif value <= best[count - 1]:
            continue
        place = count - 1
        while place > 0 and value > best[place - 1]:
            best[place] = best[place - 1]
            place -= 1
        best[place] = value
    return count
