"""Sums over the top of each ranked list, from which all metrics are computed.

Lists are cut at each of `ks`, which rise. Lists given slot by slot are ranked here; of others
only the first places arrive.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.ranking import top_of

Floats = NDArray[np.floating]
Whole = NDArray[np.integer]
Doubles = NDArray[np.float64]
T = TypeVar("T")  # arrays here, tensors in the metrics


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


class Tops(NamedTuple, Generic[T]):
    """Sums over the top of lists at each of K cuts; e is the softmax over the whole list.

    Attributes:
        exposure: Of e over the items of each group, ``[Q, G, K]``.
        discount: Of what their places are worth, 1 / log2(1 + rank) unless another worth is
            given, ``[Q, G, K]``.
        members: Their number, ``[Q, G, K]``.
        everyone: Of e over all items, of unknown group too, ``[Q, 1, K]``.
        size: Items of each group in the whole list, n_g, ``[Q, G, 1]``.
        dcg: Of (2^y - 1) times what their places are worth, ``[Q, K]``.
        ideal: The same in the best order of the list, ``[Q, K]``.
    """

    exposure: T
    discount: T
    members: T
    everyone: T
    size: T
    dcg: T
    ideal: T


def discounts(places: int) -> Doubles:
    """Return what each of the first places is worth, 1 / log2(1 + rank)."""
    worth: Doubles = 1 / np.log2(2.0 + np.arange(places))
    return worth


def list_sums(
    lists: Lists, n_groups: int, ks: Sequence[int], worth: Callable[[int], Doubles] = discounts
) -> Tops[NDArray[Any]]:
    """Return the sums of lists by slot; `worth` says what the first places are worth."""
    value = worth(min(ks[-1], lists.scores.shape[1]))
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
    share /= total.astype(share.dtype)
    return _sums(top.column, share, lists.group, relevance, n_groups, value, ks)


def place_sums(
    places: Places, size: NDArray[np.int64], ideal: Doubles, ks: Sequence[int]
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
    worth, n_groups = discounts(len(place)), size.shape[1]
    sums = _sums(slot, places.exposure, places.group, places.relevance, n_groups, worth, ks)
    return sums._replace(size=size[:, :, None], ideal=ideal)


def _sums(
    slot: NDArray[np.int32],
    exposure: Floats,
    group: Whole,
    relevance: Floats,
    n_groups: int,
    worth: Doubles,
    ks: Sequence[int],
) -> Tops[NDArray[Any]]:
    """Return the sums of lists whose items are ranked.

    Args:
        slot: Of the item in each of the first places, -1 past the last one, ``[Q, H]``.
        exposure: By place, ``[Q, H]``.
        group: By slot, ``[Q, L]``.
        relevance: By slot, ``[Q, L]``.
        n_groups: How many groups there are.
        worth: Of each place, ``[H]``.
        ks: Where to cut.
    """
    n_queries, n_cuts = len(slot), len(ks)
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
    _add_lists(
        slot,
        exposure.astype(np.float64, copy=False),
        group.astype(np.int16, copy=False),
        relevance,
        cut_of,
        worth,
        np.empty(len(cut_of)),
        *sums,
    )
    for part in (*sums[:4], sums.dcg, sums.ideal):
        np.cumsum(part, axis=-1, out=part)
    return sums


@compiled
def _add_lists(
    slots: NDArray[np.int32],
    shares: Doubles,
    groups: NDArray[np.int16],
    grades: Floats,
    cut_of: NDArray[np.int64],
    worth: Doubles,
    best: Doubles,
    exposure: Doubles,
    discount: Doubles,
    members: Doubles,
    everyone: Doubles,
    size: NDArray[np.int64],
    dcg: Doubles,
    ideal: Doubles,
) -> None:
    """Add up what `Tops` has; `best` is room for the best grades of a list, ``[H]``."""
    for row in range(len(slots)):
        n_best = 0
        for slot in range(groups.shape[1]):
            one, grade = groups[row, slot], grades[row, slot]
            if one >= 0:
                size[row, one, 0] += 1
            if grade > 0 and (n_best < len(best) or grade > best[n_best - 1]):
                if n_best < len(best):
                    n_best += 1
                place = n_best - 1
                while place > 0 and grade > best[place - 1]:
                    best[place] = best[place - 1]
                    place -= 1
                best[place] = grade
        for place in range(n_best):
            ideal[row, cut_of[place]] += (2.0 ** best[place] - 1) * worth[place]
        for place in range(len(cut_of)):
            slot, cut = slots[row, place], cut_of[place]
            if slot < 0:
                break
            one, grade = groups[row, slot], grades[row, slot]
            everyone[row, 0, cut] += shares[row, place]
            if one >= 0:
                exposure[row, one, cut] += shares[row, place]
                discount[row, one, cut] += worth[place]
                members[row, one, cut] += 1
            if grade > 0:
                dcg[row, cut] += (2.0**grade - 1) * worth[place]
