"""The re-rankers of Geyik, Ambler and Kenthapadi (2019), for any number of groups.

A group with target share p has at least floor(i p) items in every prefix of i items of the top
K, as far as it has so many, and at most ceil(i p), as far as floors allow. Items of no group
with a share are the last group: it gets the rest, and has no floor. Scores are not needed: a
place in the old order says which of two items is better.

With four or more groups DetGreedy may miss floors that can be met; DetConstSort never does, and
the other two did not in any test.
"""

import math
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled, inlined
from fairtopk.reranking.lists import Candidates, Floors, Outcome, Places, reordered

ROUNDING = 1e-9  # floor(0.29 * 100) is 28 in floating point
GREEDY, CONSERVATIVE, RELAXED, SORTED = 0, 1, 2, 3

RULES = {
    "det-greedy": GREEDY,
    "det-cons": CONSERVATIVE,
    "det-relaxed": RELAXED,
    "det-const-sort": SORTED,
}
Method = Literal["det-greedy", "det-cons", "det-relaxed", "det-const-sort"]


def floors(lists: Candidates, k: int, settings: Floors, *, method: Method) -> Outcome:
    """Return the lists in the order that one of the Det* family makes."""
    n_groups = max([int(lists.group.max()), *(settings.targets or ())]) + 1
    counts = torch.zeros(len(lists.group), n_groups + 1, dtype=torch.int64)  # unknown first
    one = torch.ones((), dtype=torch.int64)
    counts.scatter_add_(-1, lists.group.long() + 1, one.expand(lists.group.shape))
    sizes, n_items = counts[:, 1:], lists.mask.sum(-1)
    if settings.targets is None:
        shares = (sizes / n_items.clamp(min=1)[:, None].double()).numpy()
    else:
        row = np.zeros(n_groups)
        for group, share in settings.targets.items():
            row[group] = share if share > ROUNDING else 0.0
        shares = np.broadcast_to(row, sizes.shape)
    free = np.append((shares == 0).all(0), True)  # groups that no list has a share for

    def fill(places: Places, order: NDArray[np.int64]) -> NDArray[np.bool_]:
        # Unknown, -1, is the last of all groups, and so are groups without a target.
        group = np.where(free[places.group], n_groups, places.group).astype(np.int16)
        block = shares[places.rows]
        left = np.maximum(1.0 - block.sum(-1, keepdims=True), 0.0)
        wanted = np.hstack([block, np.where(left > ROUNDING, left, 0.0)])
        return fill_lists(group, places.n_items, wanted, k, RULES[method], order)

    def why(query: int) -> str:
        length = min(k, int(n_items[query]))
        for group, size in enumerate(sizes[query].tolist()):
            needed = floor_of(length, shares[query, group])
            if size < needed:
                return (
                    f"has {size} items of {lists.called(group)} where its top {length} needs "
                    f"{needed}; lower its target or k"
                )
        return f"has a prefix where {method} missed a floor; use det-const-sort"

    slot, met = reordered(lists, fill)
    return Outcome(slot, met, why)


@inlined
def floor_of(position: int, share: float) -> int:
    """Return floor(position * share)."""
    return math.floor(position * share + ROUNDING)


@inlined
def _due(count: int, share: float) -> int:
    """Return the first rank where the floor of a group is `count`."""
    return math.ceil((count - ROUNDING) / share)


@compiled
def fill_lists(
    group: NDArray[np.int16],
    n_items: NDArray[np.int64],
    shares: NDArray[np.float64],
    k: int,
    rule: int,
    order: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Fill `order` rank by rank; return which lists have every floor in their top `k`.

    DetConstSort (`SORTED`) appends items when the floor of their group rises to them. Each then
    moves up past worse ones, as long as those stay within the rank where they are due.

    Args:
        group: By place, from 0, ``[Q, L]``.
        n_items: Places of each list that are not padding, ``[Q]``.
        shares: Of each group, the last without a floor, ``[Q, G]``.
        k: Length of the top; the rest follows in its old order.
        rule: `SORTED`, or one of the others, which `_next_group` explains.
        order: The old place of the item at each new place, ``[Q, L]``.
    """
    met = np.ones(len(n_items), np.bool_)
    n_slots, n_groups = group.shape[1], shares.shape[1]
    # The best item left of each group, and the next one of its group after each item; -1: none.
    head, taken, present = np.empty((3, n_groups), np.int64)
    following, latest = np.empty((2, n_slots), np.int64)
    used = np.empty(n_slots, np.bool_)
    for query in range(len(n_items)):
        n, share, row = n_items[query], shares[query], order[query]
        top, n_present = min(k, n), 0
        for one in range(n_groups):  # loops compile in less time than head[:] = -1
            head[one], taken[one] = -1, 0
        for place in range(n - 1, -1, -1):
            one, used[place] = group[query, place], False
            if head[one] < 0:
                present[n_present] = one
                n_present += 1
            following[place] = head[one]
            head[one] = place
        for appended in range(top):
            one = _next_group(share, present[:n_present], head, taken, appended + 1, rule)
            item, place = head[one], appended
            if rule == SORTED:
                last = n  # the last rank that the item may have
                if one < n_groups - 1 and share[one] > 0.0:
                    last = _due(taken[one] + 1, share[one])
                while place > 0 and latest[place - 1] > place and row[place - 1] > item:
                    row[place], latest[place] = row[place - 1], latest[place - 1]
                    place -= 1
                latest[place] = last
            row[place] = item
            used[item] = True
            taken[one] += 1
            head[one] = following[item]
        rest = top
        for place in range(n):
            if not used[place]:
                row[rest] = place
                rest += 1
        for place in range(n, n_slots):
            row[place] = place
        # Each item of the top must be where it is due or before, and no floor be left open.
        for one in range(n_groups):
            taken[one] = 0
        for place in range(top):
            one = group[query, row[place]]
            taken[one] += 1
            if one < n_groups - 1 and share[one] > 0.0:
                met[query] &= place + 1 <= _due(taken[one], share[one])
        for one in range(n_groups - 1):
            met[query] &= taken[one] >= floor_of(top, share[one])
    return met


@inlined
def _next_group(
    shares: NDArray[np.float64],
    present: NDArray[np.int64],
    head: NDArray[np.int64],
    taken: NDArray[np.int64],
    rank: int,
    rule: int,
) -> int:
    """Return the group whose turn it is at `rank`; of several, the one with the best item.

    By `SORTED` it is the group whose next item is due first; groups without a share are never
    due, and come last. By the other rules groups below their floor come first, then those below
    their ceiling: the best item (`GREEDY`), or that of the group whose floor rises soonest,
    measured exactly (`CONSERVATIVE`) or in whole ranks (`RELAXED`). Groups at their ceiling
    come last.
    """
    best, best_stage, best_key = -1, 3, 0.0
    for one in present:
        if head[one] < 0:
            continue
        share, stage, key = shares[one], 2, 0.0
        if rule == SORTED:
            if share > 0.0:
                stage, key = 0, float(_due(taken[one] + 1, share))
        elif one < len(shares) - 1 and taken[one] < floor_of(rank, share):
            stage = 0
        else:
            high = math.ceil(rank * share - ROUNDING)
            if taken[one] < high:
                stage = 1
                if rule != GREEDY:
                    key = high / share
                if rule == RELAXED:
                    key = math.ceil(key - ROUNDING)
        ahead = key - best_key
        if stage < best_stage or (
            stage == best_stage
            and (ahead < -ROUNDING or (ahead <= ROUNDING and head[one] < head[best]))
        ):
            best, best_stage, best_key = one, stage, key
    return best
